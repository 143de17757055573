package fleet

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdall/holdall"
	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/app/catalog"
	"github.com/holdall/holdall/internal/app/catalog/shelf"
	"github.com/holdall/holdall/internal/testkit"
	"github.com/holdall/holdall/internal/testkit/pgtest"
)

// onEachSite runs a test with a catalogue in SQLite, and with one in
// PostgreSQL if there is a server.
func onEachSite(t *testing.T, do func(t *testing.T, s *site)) {
	t.Run("sqlite", func(t *testing.T) { do(t, newSite(t)) })
	t.Run("postgres", func(t *testing.T) { do(t, newSiteOn(t, pgtest.Database(t))) })
}

// reads compares the bucket in the catalogue with the expected contents.
func (s *site) reads() {
	s.T.Helper()
	ctx := s.T.Context()
	sh, err := shelf.New(ctx, s.C, shelf.Options{})
	if err != nil {
		s.T.Fatal(err)
	}
	defer sh.Close()
	in, err := holdall.Open(ctx, "buckets/s3/from", holdall.OpenOptions{Store: sh, Format: "catalog", Formats: []*format.Format{shelf.Format}})
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

// keys returns the keys of a bucket, without markers.
func (s *site) keys(bucket string) []string {
	return slices.DeleteFunc(s.S3.Keys(bucket), catalog.IsMarker)
}

// looks lists the originals of a plan once, as a compaction does.
func (s *site) looks(target string) {
	s.T.Helper()
	p, err := s.C.Plan(s.T.Context(), target)
	if err != nil {
		s.T.Fatal(err)
	}
	j, err := open(s.T.Context(), p)
	if err == nil {
		err = j.bury(s.T.Context(), s.C, CompactOptions{GoneAfter: 1, Gone: 1, Yes: true}, &Compacted{})
	}
	if err != nil {
		s.T.Fatal(err)
	}
}

// compacted is the result of a compaction and of the steps after it.
type compacted struct {
	Compacted
	Dead, Removed int
}

// compact lists the originals once, and then compacts, works and tidies.
func (s *site) compact(o CompactOptions) (done compacted) {
	s.T.Helper()
	s.looks(spec.Target)
	o.GoneAfter, o.Yes = 1, true
	p, err := s.C.Plan(s.T.Context(), spec.Target)
	if err != nil {
		s.T.Fatal(err)
	}
	if done.Compacted, err = Compact(s.T.Context(), s.C, p, o); err != nil {
		s.T.Fatal(err)
	}
	s.work(WorkOptions{})
	if done.Dead, done.Removed, err = Tidy(s.T.Context(), s.C, p, 0); err != nil {
		s.T.Fatal(err)
	}
	return done
}

// newer records an archive with a different version of a file, of 7 bytes.
func (s *site) newer(old catalog.Found, etag string) {
	a := old.In
	a.Address = "s3://out/newer.caf"
	if _, err := s.C.Add(s.T.Context(), catalog.Addition{Archive: a, Rows: func(yield func(catalog.Location, error) bool) {
		yield(catalog.Location{Path: old.Path, Size: 7, Raw: true, ETag: etag}, nil)
	}}); err != nil {
		s.T.Error(err)
	}
}

// stored returns the total size of the archives.
func (s *site) stored() (n int64) {
	for _, name := range s.keys("out") {
		n += int64(len(s.S3.Get("out", name)))
	}
	return n
}

func TestWhatIsGoneAtTheSourceIsCompactedAway(t *testing.T) {
	testkit.Serial(t)
	onEachSite(t, func(t *testing.T, s *site) {
		s.some(300, 5000)
		s.plan(spec)
		s.work(WorkOptions{Workers: 2, Tell: func(e Event) {
			if e.Err != nil {
				t.Logf("%s: %v", e.What, e.Err)
			}
		}})
		s.reads()
		s.looks(spec.Target)
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
		// An object that comes back is new.
		s.put(names[0], 100)
		if p := s.plan(spec); p.Objects != 1 {
			t.Errorf("what came back was planned as %+v", p)
		}
		s.work(WorkOptions{})
		s.reads()
	})
}

// TestSmallArchivesAreJoined checks that small archives of many plans are
// merged.
func TestSmallArchivesAreJoined(t *testing.T) {
	testkit.Serial(t)
	s := newSite(t)
	for night := range 8 {
		s.put(fmt.Sprintf("day%d/a", night), 1000)
		s.put(fmt.Sprintf("day%d/b", night), 500)
		s.plan(spec)
		s.work(WorkOptions{})
	}
	if n := len(s.keys("out")); n != 8 {
		t.Fatalf("%d archives", n)
	}
	s.compact(CompactOptions{})
	if n := len(s.keys("out")); n > 2 {
		t.Errorf("%d archives are left", n)
	}
	s.reads()
}

// TestArchivesThatAreFullOfObjectsAreNotJoined checks that archives that are
// small in bytes, but whose chunks are full of objects, are not merged: that
// would never end.
func TestArchivesThatAreFullOfObjectsAreNotJoined(t *testing.T) {
	testkit.Serial(t)
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

// TestALargeFileIsNotCopiedForSmallOnes checks that an archive is not
// rewritten if that makes it only slightly smaller.
func TestALargeFileIsNotCopiedForSmallOnes(t *testing.T) {
	testkit.Serial(t)
	s := newSite(t)
	s.put("large", 60_000)
	for i := range 10 {
		s.put(fmt.Sprintf("small/%d", i), 100)
	}
	s.plan(spec)
	s.work(WorkOptions{})
	s.looks(spec.Target)
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

// TestLargeObjectsKeepWhatIsKnownOfThem checks that the server copies large
// objects again, and that their records are kept.
func TestLargeObjectsKeepWhatIsKnownOfThem(t *testing.T) {
	testkit.Serial(t)
	s := newSite(t)
	one := spec
	one.ChunkSize = 1 << 30
	s.put("a", 1000)
	s.put("large", 12<<20)
	s.put("z", 8<<20)
	s.S3.Describe("from", "large", map[string]string{"Content-Type": "x/large"})
	s.plan(one)
	s.work(WorkOptions{})
	before, err := s.C.Newest(t.Context(), "large")
	if err != nil {
		t.Fatal(err)
	}
	s.looks(spec.Target)
	s.S3.Remove("from", "z")
	delete(s.Want, "z")
	if done := s.compact(CompactOptions{}); done.Removed != 1 {
		t.Errorf("%+v", done)
	}
	after, err := s.C.Newest(t.Context(), "large")
	if err != nil || after.Archive == before.Archive || after.ETag != before.ETag || after.Headers != before.Headers || !after.Modified.Equal(before.Modified) {
		t.Errorf("%+v, before %+v, %v", after, before, err)
	}
	s.reads()
}

// TestASourceThatIsNearlyEmptyDeletesNothing checks that a source with most of
// its objects gone is treated as a mistake.
func TestASourceThatIsNearlyEmptyDeletesNothing(t *testing.T) {
	testkit.Serial(t)
	s := newSite(t)
	s.some(40, 1000)
	s.plan(spec)
	s.work(WorkOptions{})
	s.looks(spec.Target)
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
	s.looks(spec.Target)
	if done, err := Compact(t.Context(), s.C, p, CompactOptions{Gone: 1, GoneAfter: 1, Yes: true}); err != nil || done.Gone != 39 {
		t.Errorf("%+v, %v", done, err)
	}
}

// TestWhatChangesDuringACompactionStays checks that files that are deleted or
// replaced while an archive is rewritten stay so.
func TestWhatChangesDuringACompactionStays(t *testing.T) {
	onEachSite(t, func(t *testing.T, s *site) {
		ctx := t.Context()
		s.some(60, 2000)
		one := spec
		one.ChunkSize = 1 << 30
		s.plan(one)
		s.work(WorkOptions{})
		s.looks(one.Target)
		names := slices.Sorted(maps.Keys(s.Want))
		for _, name := range names[:20] {
			s.S3.Remove("from", name)
			delete(s.Want, name)
		}
		s.looks(one.Target)
		p, err := s.C.Plan(ctx, spec.Target)
		if err != nil {
			t.Fatal(err)
		}
		if done, err := Compact(ctx, s.C, p, CompactOptions{GoneAfter: 1, Yes: true}); err != nil || done.Chunks != 1 {
			t.Fatalf("%+v, %v", done, err)
		}
		deleted, replaced := names[30], names[40]
		left, err := s.C.Newest(ctx, names[50])
		if err != nil {
			t.Fatal(err)
		}
		old, err := s.C.Newest(ctx, replaced)
		if err != nil {
			t.Fatal(err)
		}
		var once sync.Once
		s.Meet(func(w http.ResponseWriter, r *http.Request) bool {
			if r.Method != http.MethodPut && r.Method != http.MethodPost || !strings.HasPrefix(r.URL.Path, "/out/") {
				return false
			}
			once.Do(func() {
				if n, err := s.C.Delete(ctx, old.In.Roots, []string{deleted}, 0); err != nil || n != 1 {
					t.Error(n, err)
				}
				if err := s.C.Mark(ctx, []catalog.Location{left.Location}, catalog.OriginalLeft); err != nil {
					t.Error(err)
				}
				s.newer(old, `"new"`)
			})
			return false
		})
		s.work(WorkOptions{})
		s.Meet(nil)
		if _, err := s.C.Newest(ctx, deleted); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("what was deleted is there: %v", err)
		}
		if f, err := s.C.Newest(ctx, replaced); err != nil || f.ETag != `"new"` || f.Size != 7 {
			t.Errorf("what was replaced is %+v, %v", f, err)
		}
		if f, err := s.C.Newest(ctx, names[50]); err != nil || f.Archive == left.Archive || f.Original != catalog.OriginalLeft {
			t.Errorf("what was retired is %+v, %v", f, err)
		}
		if _, removed, err := Tidy(ctx, s.C, p, 0); err != nil || removed != 1 {
			t.Errorf("removed %d, %v", removed, err)
		}
		if got := s.keys("out"); len(got) != 1 {
			t.Errorf("%q", got)
		}
	})
}

// TestWhatAPlanDoesNotListIsNotGone checks that files that other plans packed
// from the same folder are not taken for gone because this plan does not list
// them.
func TestWhatAPlanDoesNotListIsNotGone(t *testing.T) {
	testkit.Serial(t)
	s := newSite(t)
	ctx := t.Context()
	for i := range 10 {
		s.put(fmt.Sprintf("2025-%d", i), 300)
		s.put(fmt.Sprintf("2026-%d", i), 300)
		s.put(fmt.Sprintf("2026-%d.tmp", i), 300)
	}
	older := Spec{Sources: []string{"s3://from/2025-*"}, Target: "s3://out/older.caf"}
	all := Spec{Sources: []string{"s3://from/2026-*"}, Target: "s3://out/all.caf"}
	s.plan(older)
	s.plan(all)
	s.work(WorkOptions{})
	p, err := s.C.Plan(ctx, all.Target)
	if err != nil {
		t.Fatal(err)
	}
	if done, err := Compact(ctx, s.C, p, CompactOptions{}); err != nil || done.Gone+done.Missing != 0 || done.Live != 20 {
		t.Errorf("%+v, %v", done, err)
	}
	newer := all
	newer.Target, newer.Exclude = "s3://out/newer.caf", []string{"*.tmp"}
	s.plan(newer)
	s.work(WorkOptions{})
	for _, name := range []string{older.Target, all.Target} {
		p, err := s.C.Plan(ctx, name)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.C.ForgetPlan(ctx, p.ID); err != nil {
			t.Fatal(err)
		}
	}
	if p, err = s.C.Plan(ctx, newer.Target); err != nil {
		t.Fatal(err)
	}
	if done, err := Compact(ctx, s.C, p, CompactOptions{Gone: 1}); err != nil || done.Gone+done.Missing != 0 {
		t.Errorf("%+v, %v", done, err)
	}
	s.reads()
}

// TestAnotherArchiveOfTheNameIsNotRemoved checks that an object with the name
// of an archive to be removed is removed only if it is that archive.
func TestAnotherArchiveOfTheNameIsNotRemoved(t *testing.T) {
	testkit.Serial(t)
	s := newSite(t)
	ctx := t.Context()
	s.some(10, 500)
	one := spec
	one.ChunkSize = 1 << 30
	s.plan(one)
	s.work(WorkOptions{})
	a, err := s.C.Archive(ctx, "s3://out/set-00001.caf")
	if err != nil {
		t.Fatal(err)
	}
	var paths []string
	for name := range s.Want {
		paths = append(paths, name)
	}
	if _, err := s.C.Delete(ctx, a.Roots, paths, 0); err != nil {
		t.Fatal(err)
	}
	if err := s.C.Spare(ctx, []int64{a.ID}, nil); err != nil {
		t.Fatal(err)
	}
	if err := s.C.Drop(ctx, a.ID, 0); err != nil {
		t.Fatal(err)
	}
	// The process that was to remove it was killed here, and the name is in use
	// again.
	s.S3.Put("out", "set-00001.caf", []byte("another"))
	p, err := s.C.Plan(ctx, spec.Target)
	if err != nil {
		t.Fatal(err)
	}
	if _, removed, err := Tidy(ctx, s.C, p, 0); err != nil || removed != 0 {
		t.Errorf("%d, %v", removed, err)
	}
	if got := s.S3.Get("out", "set-00001.caf"); string(got) != "another" {
		t.Errorf("%q", got)
	}
	if left, err := s.C.Removals(ctx); err != nil || len(left) > 0 {
		t.Errorf("%+v, %v", left, err)
	}
}

// TestArchivesOfThisMachineAreCompacted compacts archives that are local
// files.
func TestArchivesOfThisMachineAreCompacted(t *testing.T) {
	testkit.Serial(t)
	s := newSite(t)
	ctx := t.Context()
	s.some(20, 500)
	local := spec
	local.Target = filepath.Join(t.TempDir(), "set.caf")
	s.plan(local)
	s.work(WorkOptions{})
	s.looks(local.Target)
	for _, name := range slices.Sorted(maps.Keys(s.Want))[:10] {
		s.S3.Remove("from", name)
		delete(s.Want, name)
	}
	s.looks(local.Target)
	p, err := s.C.Plan(ctx, local.Target)
	if err != nil {
		t.Fatal(err)
	}
	if done, err := Compact(ctx, s.C, p, CompactOptions{GoneAfter: 1, Yes: true}); err != nil || done.Gone != 10 || done.Chunks != 1 {
		t.Errorf("%+v, %v", done, err)
	}
	s.work(WorkOptions{})
	if _, removed, err := Tidy(ctx, s.C, p, 0); err != nil || removed != 1 {
		t.Errorf("%d, %v", removed, err)
	}
	s.reads()
}

// TestACopyOfAnotherPlanStays checks that two plans of one source make two
// copies, and that neither is removed because of the other.
func TestACopyOfAnotherPlanStays(t *testing.T) {
	testkit.Serial(t)
	s := newSite(t)
	ctx := t.Context()
	s.some(30, 500)
	s.plan(spec)
	s.work(WorkOptions{})
	second := spec
	second.Target = "s3://out/copy.caf"
	s.plan(second)
	s.work(WorkOptions{})
	before := s.keys("out")
	for _, name := range []string{spec.Target, second.Target} {
		p, err := s.C.Plan(ctx, name)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Compact(ctx, s.C, p, CompactOptions{}); err == nil || !strings.Contains(err.Error(), "packs the same") {
			t.Errorf("%s: %v", name, err)
		}
		if dead, removed, err := Tidy(ctx, s.C, p, 0); err != nil || dead+removed > 0 {
			t.Errorf("%s: %d, %d, %v", name, dead, removed, err)
		}
	}
	first, err := s.C.Plan(ctx, spec.Target)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.C.ForgetPlan(ctx, first.ID); err != nil {
		t.Fatal(err)
	}
	other, err := s.C.Plan(ctx, second.Target)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Compact(ctx, s.C, other, CompactOptions{}); err != nil {
		t.Error(err)
	}
	if _, removed, err := Tidy(ctx, s.C, other, 0); err != nil || removed > 0 {
		t.Errorf("%d, %v", removed, err)
	}
	if got := s.keys("out"); !slices.Equal(got, before) {
		t.Errorf("%q, before %q", got, before)
	}
	s.reads()
}

// TestWhatIsPackedWhileSourcesAreListedStays checks that an object that comes
// back, and is packed, while the sources are listed is not deleted.
func TestWhatIsPackedWhileSourcesAreListedStays(t *testing.T) {
	s := newSite(t)
	ctx := t.Context()
	s.some(30, 500)
	s.plan(spec)
	s.work(WorkOptions{})
	s.looks(spec.Target)
	name := slices.Sorted(maps.Keys(s.Want))[3]
	old, err := s.C.Newest(ctx, name)
	if err != nil {
		t.Fatal(err)
	}
	s.S3.Remove("from", name)
	s.looks(spec.Target)
	var once sync.Once
	s.Meet(func(w http.ResponseWriter, r *http.Request) bool {
		if r.URL.Query().Has("list-type") {
			once.Do(func() {
				s.newer(old, "")
			})
		}
		return false
	})
	p, err := s.C.Plan(ctx, spec.Target)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Compact(ctx, s.C, p, CompactOptions{GoneAfter: 1, Yes: true}); err != nil {
		t.Fatal(err)
	}
	if f, err := s.C.Newest(ctx, name); err != nil || f.Size != 7 {
		t.Errorf("%+v, %v", f, err)
	}
}

// TestCompactionsThatBreakOffAreFinished checks that the next compaction
// finishes one that was interrupted anywhere.
func TestCompactionsThatBreakOffAreFinished(t *testing.T) {
	testkit.Long(t)
	s := newSite(t)
	s.some(200, 3000)
	s.plan(spec)
	s.work(WorkOptions{})
	for round := range 12 {
		s.looks(spec.Target)
		for i, name := range slices.Sorted(maps.Keys(s.Want)) {
			if i%9 == round%9 {
				s.S3.Remove("from", name)
				delete(s.Want, name)
			}
		}
		s.looks(spec.Target)
		ctx, cancel := context.WithCancel(t.Context())
		var n atomic.Int64
		at := int64(5 + 7*round)
		s.Meet(func(w http.ResponseWriter, r *http.Request) bool {
			if n.Add(1) == at {
				cancel()
			}
			return false
		})
		p, err := s.C.Plan(t.Context(), spec.Target)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Compact(ctx, s.C, p, CompactOptions{Dead: 0.05, GoneAfter: 1, Yes: true}); err == nil {
			if _, err = Work(ctx, s.C, WorkOptions{Look: 5 * time.Millisecond, Pause: time.Millisecond, Lease: 50 * time.Millisecond}); err == nil {
				Tidy(ctx, s.C, p, 0)
			}
		}
		cancel()
		s.Meet(nil)
		s.work(WorkOptions{})
	}
	s.compact(CompactOptions{Dead: 0.05})
	s.reads()
	if n := s.S3.Uploads(); n != 0 {
		t.Errorf("%d uploads are left", n)
	}
}
