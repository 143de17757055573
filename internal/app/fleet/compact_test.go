package fleet

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/holdall/holdall"
	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/app/catalog/shelf"
	"github.com/holdall/holdall/internal/testkit/pgtest"
)

// onEachSite runs a test with a catalogue in SQLite, and in PostgreSQL where there is one.
func onEachSite(t *testing.T, do func(t *testing.T, s *site)) {
	t.Run("sqlite", func(t *testing.T) { do(t, newSite(t)) })
	t.Run("postgres", func(t *testing.T) { do(t, newSiteOn(t, pgtest.Database(t))) })
}

// reads compares what the bucket of the catalogue has with what there should be.
func (s *site) reads() {
	s.T.Helper()
	ctx := s.T.Context()
	sh, err := shelf.New(ctx, s.C, shelf.Options{})
	if err != nil {
		s.T.Fatal(err)
	}
	defer sh.Close()
	in, err := holdall.OpenStore(ctx, sh, "buckets/s3/from", holdall.OpenOptions{Format: "catalog", Formats: []*format.Format{shelf.Format}})
	if err != nil {
		s.T.Fatal(err)
	}
	defer in.Close()
	found := map[string]bool{}
	for e, err := range in.Entries(ctx) {
		if err != nil {
			s.T.Fatal(err)
		}
		found[e.Name] = true
		var got bytes.Buffer
		if err := in.WriteContent(ctx, &got, e); err != nil {
			s.T.Errorf("%s: %v", e.Name, err)
		} else if want, ok := s.Want[e.Name]; !ok || !bytes.Equal(want, got.Bytes()) {
			s.T.Errorf("%s: %d bytes, which are not what they should be", e.Name, got.Len())
		}
	}
	for name := range s.Want {
		if !found[name] {
			s.T.Errorf("%s: it is not there", name)
		}
	}
}

// compact compacts, works and tidies.
func (s *site) compact(o CompactOptions) Compacted {
	s.T.Helper()
	p, err := s.C.Plan(s.T.Context(), spec.Target)
	if err != nil {
		s.T.Fatal(err)
	}
	done, err := Compact(s.T.Context(), s.C, p, o)
	if err != nil {
		s.T.Fatal(err)
	}
	s.work(WorkOptions{})
	if done.Dead, done.Removed, err = Tidy(s.T.Context(), s.C, p, o.Grace); err != nil {
		s.T.Fatal(err)
	}
	return done
}

// stored is how many bytes the archives have.
func (s *site) stored() (n int64) {
	for _, name := range s.S3.Keys("out") {
		n += int64(len(s.S3.Get("out", name)))
	}
	return n
}

func TestWhatIsGoneAtTheSourceIsCompactedAway(t *testing.T) {
	onEachSite(t, func(t *testing.T, s *site) {
		s.some(300, 5000)
		s.plan(spec)
		s.work(WorkOptions{Workers: 2, Tell: func(e Event) {
			if e.Err != nil {
				t.Logf("%s: %v", e.What, e.Err)
			}
		}})
		s.reads()
		names := slices.Sorted(maps.Keys(s.Want))
		for i, name := range names {
			switch {
			case i%10 < 3:
				s.S3.Remove("from", name)
				delete(s.Want, name)
			case i%20 == 7:
				s.put(name, 3000)
			}
		}
		p := s.plan(spec)
		if p.Objects != 15 {
			t.Errorf("planned %+v", p)
		}
		s.work(WorkOptions{})
		before := s.stored()
		done := s.compact(CompactOptions{})
		if done.Gone != 90 || done.Chunks == 0 || done.Removed == 0 || done.Dead != 0 {
			t.Errorf("%+v", done)
		}
		s.reads()
		live := int64(0)
		for _, content := range s.Want {
			live += int64(len(content))
		}
		if after := s.stored(); after >= before || float64(after) > 1.1*float64(live)+200*250 {
			t.Errorf("%d bytes are stored, before %d, of which %d are live", after, before, live)
		}
		if again := s.compact(CompactOptions{}); again.Gone+int64(again.Chunks+again.Removed) != 0 {
			t.Errorf("again: %+v", again)
		}
		if p := s.plan(spec); p.Objects != 0 {
			t.Errorf("planned again %+v", p)
		}
		// What comes back is new.
		s.put(names[0], 100)
		if p := s.plan(spec); p.Objects != 1 {
			t.Errorf("what came back was planned as %+v", p)
		}
		s.work(WorkOptions{})
		s.reads()
	})
}

// Small archives of many plans become few.
func TestSmallArchivesAreJoined(t *testing.T) {
	s := newSite(t)
	for night := range 8 {
		s.put(fmt.Sprintf("day%d/a", night), 1000)
		s.put(fmt.Sprintf("day%d/b", night), 500)
		s.plan(spec)
		s.work(WorkOptions{})
	}
	if n := len(s.S3.Keys("out")); n != 8 {
		t.Fatalf("%d archives", n)
	}
	s.compact(CompactOptions{})
	if n := len(s.S3.Keys("out")); n > 2 {
		t.Errorf("%d archives are left", n)
	}
	s.reads()
}

// Archives that are small in bytes, since their chunks are full of objects, are not joined: that
// would never end.
func TestArchivesThatAreFullOfObjectsAreNotJoined(t *testing.T) {
	s := newSite(t)
	s.some(100, 300)
	full := spec
	full.ChunkObjects = 20
	s.plan(full)
	s.work(WorkOptions{})
	if done := s.compact(CompactOptions{}); done.Archives != 5 || done.Chunks != 0 {
		t.Errorf("%+v", done)
	}
	s.reads()
}

// An archive is not written anew for files of which it is hardly smaller.
func TestALargeFileIsNotCopiedForSmallOnes(t *testing.T) {
	s := newSite(t)
	s.put("large", 60_000)
	for i := range 10 {
		s.put(fmt.Sprintf("small/%d", i), 100)
	}
	s.plan(spec)
	s.work(WorkOptions{})
	for i := range 5 {
		name := fmt.Sprintf("small/%d", i)
		s.S3.Remove("from", name)
		delete(s.Want, name)
	}
	if done := s.compact(CompactOptions{}); done.Gone != 5 || done.Chunks != 0 {
		t.Errorf("%+v", done)
	}
	s.reads()
}

// A source of which most is gone is taken for a mistake.
func TestASourceThatIsNearlyEmptyDeletesNothing(t *testing.T) {
	s := newSite(t)
	s.some(40, 1000)
	s.plan(spec)
	s.work(WorkOptions{})
	for i, name := range slices.Sorted(maps.Keys(s.Want)) {
		if i > 0 {
			s.S3.Remove("from", name)
		}
	}
	p, err := s.C.Plan(t.Context(), spec.Target)
	if err != nil {
		t.Fatal(err)
	}
	if _, err = Compact(t.Context(), s.C, p, CompactOptions{}); err == nil || !strings.Contains(err.Error(), "39 of 40") {
		t.Errorf("%v", err)
	}
	s.reads()
	if done, err := Compact(t.Context(), s.C, p, CompactOptions{Gone: 1}); err != nil || done.Gone != 39 {
		t.Errorf("%+v, %v", done, err)
	}
}
