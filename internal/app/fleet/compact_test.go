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
	"sync/atomic"
	"testing"

	"github.com/holdall/holdall"
	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/app/catalog"
	"github.com/holdall/holdall/internal/app/catalog/book"
	"github.com/holdall/holdall/internal/app/catalog/rows"
	"github.com/holdall/holdall/internal/app/catalog/shelf"
	"github.com/holdall/holdall/internal/testkit"
)

// reads compares the bucket in the catalogue with the expected contents.
func (s *site) reads() {
	s.T.Helper()
	ctx := s.T.Context()
	sh, err := shelf.New(ctx, s.B, shelf.Options{})
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

// keys returns the names of the archives in a bucket.
func (s *site) keys(bucket string) []string {
	return slices.DeleteFunc(s.S3.Keys(bucket), func(name string) bool { return !strings.HasSuffix(name, ".caf") })
}

// looks lists the originals of a plan once. What is new is packed.
func (s *site) looks(spec Spec) {
	s.T.Helper()
	s.plan(spec)
	s.work(WorkOptions{})
}

// atOnce is CompactOptions.GoneAfter of tests.
const atOnce = -1

// compacted is the result of a compaction and of the steps after it.
type compacted struct {
	Compacted
	Waiting, Removed int
}

// compact lists the originals twice, and then compacts, works and tidies.
func (s *site) compact(o CompactOptions) (done compacted) {
	s.T.Helper()
	s.looks(s.last)
	s.looks(s.last)
	o.GoneAfter, o.Yes = atOnce, true
	p := s.planOf(spec.Target)
	var err error
	if done.Compacted, err = Compact(s.T.Context(), s.f, p, o); err != nil {
		s.T.Fatal(err)
	}
	s.work(WorkOptions{})
	if done.Waiting, done.Removed, err = Tidy(s.T.Context(), s.f, p, 0); err != nil {
		s.T.Fatal(err)
	}
	return done
}

func (s *site) planOf(name string) Plan {
	s.T.Helper()
	p, err := PlanNamed(s.T.Context(), s.B, name)
	if err != nil {
		s.T.Fatal(err)
	}
	return p
}

// newer records an archive with a different version of a file, of 7 bytes.
func (s *site) newer(old catalog.Found, etag string) {
	a := old.In
	a.Address = "s3://out/newer.caf"
	if _, err := s.B.Add(s.T.Context(), catalog.Addition{Archive: a, Rows: func(yield func(catalog.Location, error) bool) {
		yield(catalog.Location{Path: old.Path, Size: 7, Raw: true, ETag: etag}, nil)
	}}); err != nil {
		s.T.Error(err)
	}
}

// leaving records that originals were retired.
func (s *site) leaving(all ...catalog.Location) {
	s.T.Helper()
	if _, err := s.B.Do(s.T.Context(), book.Step{Rows: func(yield func(*rows.Row, error) bool) {
		for _, l := range all {
			if !yield(&rows.Row{Name: l.Path, What: rows.Fate, Of: l.Seq, Original: rows.Leaving}, nil) {
				return
			}
		}
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

func on(t *testing.T, do func(t *testing.T, s *site)) { do(t, newSite(t)) }

func TestWhatIsGoneAtTheSourceIsCompactedAway(t *testing.T) {
	testkit.Serial(t)
	on(t, func(t *testing.T, s *site) {
		s.some(300, 5000)
		s.plan(spec)
		s.work(WorkOptions{Workers: 2, Tell: func(e Event) {
			if e.Err != nil {
				t.Logf("%s: %v", e.What, e.Err)
			}
		}})
		s.reads()
		s.looks(spec)
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
		if done.Gone != 90 || done.Chunks == 0 || done.Removed == 0 || done.Waiting != 0 {
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
	s.looks(spec)
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
	before, err := s.B.Newest(t.Context(), "large")
	if err != nil {
		t.Fatal(err)
	}
	s.looks(one)
	s.S3.Remove("from", "z")
	delete(s.Want, "z")
	if done := s.compact(CompactOptions{}); done.Removed != 1 {
		t.Errorf("%+v", done)
	}
	after, err := s.B.Newest(t.Context(), "large")
	if err != nil || after.Archive == before.Archive || after.ETag != before.ETag || after.HeaderText != before.HeaderText || !after.Modified.Equal(before.Modified) {
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
	s.looks(spec)
	for i, name := range slices.Sorted(maps.Keys(s.Want)) {
		if i > 0 {
			s.S3.Remove("from", name)
		}
	}
	if _, err := MakePlan(t.Context(), s.f, spec, nil); err == nil || !strings.Contains(err.Error(), "39 of 40") {
		t.Errorf("%v", err)
	}
	s.reads()
	all := spec
	all.Gone = 1
	s.looks(all)
	s.looks(all)
	if done, err := Compact(t.Context(), s.f, s.planOf(spec.Target), CompactOptions{GoneAfter: atOnce, Yes: true}); err != nil || done.Gone != 39 {
		t.Errorf("%+v, %v", done, err)
	}
}

// TestWhatChangesDuringACompactionStays checks that files that are deleted or
// replaced while an archive is rewritten stay so.
func TestWhatChangesDuringACompactionStays(t *testing.T) {
	on(t, func(t *testing.T, s *site) {
		ctx := t.Context()
		s.some(60, 2000)
		one := spec
		one.ChunkSize = 1 << 30
		s.plan(one)
		s.work(WorkOptions{})
		s.looks(one)
		names := slices.Sorted(maps.Keys(s.Want))
		for _, name := range names[:20] {
			s.S3.Remove("from", name)
			delete(s.Want, name)
		}
		s.looks(one)
		p := s.planOf(spec.Target)
		if done, err := Compact(ctx, s.f, p, CompactOptions{GoneAfter: atOnce, Yes: true}); err != nil || done.Chunks != 1 {
			t.Fatalf("%+v, %v", done, err)
		}
		deleted, replaced := names[30], names[40]
		left, err := s.B.Newest(ctx, names[50])
		if err != nil {
			t.Fatal(err)
		}
		old, err := s.B.Newest(ctx, replaced)
		if err != nil {
			t.Fatal(err)
		}
		var once atomic.Bool
		s.Meet(func(w http.ResponseWriter, r *http.Request) bool {
			if r.Method != http.MethodPut && r.Method != http.MethodPost || !strings.HasPrefix(r.URL.Path, "/out/") {
				return false
			}
			if once.CompareAndSwap(false, true) {
				if n, err := s.B.Delete(ctx, []string{deleted}); err != nil || n != 1 {
					t.Error(n, err)
				}
				s.leaving(left.Location)
				s.newer(old, `"new"`)
			}
			return false
		})
		s.work(WorkOptions{})
		s.Meet(nil)
		if _, err := s.B.Newest(ctx, deleted); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("what was deleted is there: %v", err)
		}
		if f, err := s.B.Newest(ctx, replaced); err != nil || f.ETag != `"new"` || f.Size != 7 {
			t.Errorf("what was replaced is %+v, %v", f, err)
		}
		if f, err := s.B.Newest(ctx, names[50]); err != nil || f.Archive == left.Archive || f.Original != catalog.OriginalLeaving {
			t.Errorf("what was retired is %+v, %v", f, err)
		}
		if _, removed, err := Tidy(ctx, s.f, p, 0); err != nil || removed != 1 {
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
	p := s.planOf(all.Target)
	if done, err := Compact(ctx, s.f, p, CompactOptions{}); err != nil || done.Gone+done.Missing != 0 || done.Live != 20 {
		t.Errorf("%+v, %v", done, err)
	}
	newer := all
	newer.Target, newer.Exclude = "s3://out/newer.caf", []string{"*.tmp"}
	s.plan(newer)
	s.work(WorkOptions{})
	for _, name := range []string{older.Target, all.Target} {
		if err := Forget(ctx, s.f, s.planOf(name)); err != nil {
			t.Fatal(err)
		}
	}
	s.looks(newer)
	p = s.planOf(newer.Target)
	if done, err := Compact(ctx, s.f, p, CompactOptions{}); err != nil || done.Gone+done.Missing != 0 {
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
	name := s.keys("out")[0]
	var paths []string
	for name := range s.Want {
		paths = append(paths, name)
	}
	if _, err := s.B.Delete(ctx, paths); err != nil {
		t.Fatal(err)
	}
	p := s.planOf(spec.Target)
	if done, err := Compact(ctx, s.f, p, CompactOptions{}); err != nil || done.Chunks != 1 {
		t.Fatalf("%+v, %v", done, err)
	}
	s.work(WorkOptions{})
	// The process that was to remove it was killed here, and the name is in use again.
	s.S3.Put("out", name, []byte("another"))
	if _, removed, err := Tidy(ctx, s.f, p, 0); err != nil || removed != 0 {
		t.Errorf("%d, %v", removed, err)
	}
	if got := s.S3.Get("out", name); string(got) != "another" {
		t.Errorf("%q", got)
	}
	if is, err := s.B.Full(ctx); err != nil || len(is.Removals) > 0 {
		t.Errorf("%+v, %v", is.Removals, err)
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
	s.looks(local)
	for _, name := range slices.Sorted(maps.Keys(s.Want))[:10] {
		s.S3.Remove("from", name)
		delete(s.Want, name)
	}
	s.looks(local)
	p := s.planOf(local.Target)
	if done, err := Compact(ctx, s.f, p, CompactOptions{GoneAfter: atOnce, Yes: true}); err != nil || done.Gone != 10 || done.Chunks != 1 {
		t.Errorf("%+v, %v", done, err)
	}
	s.work(WorkOptions{})
	if _, removed, err := Tidy(ctx, s.f, p, 0); err != nil || removed != 1 {
		t.Errorf("%d, %v", removed, err)
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
	s.looks(spec)
	name := slices.Sorted(maps.Keys(s.Want))[3]
	old, err := s.B.Newest(ctx, name)
	if err != nil {
		t.Fatal(err)
	}
	s.S3.Remove("from", name)
	s.looks(spec)
	var once atomic.Bool
	s.Meet(func(w http.ResponseWriter, r *http.Request) bool {
		if r.URL.Query().Has("list-type") {
			if once.CompareAndSwap(false, true) {
				s.newer(old, "")
			}
		}
		return false
	})
	s.looks(spec)
	if _, err := Compact(ctx, s.f, s.planOf(spec.Target), CompactOptions{GoneAfter: atOnce, Yes: true}); err != nil {
		t.Fatal(err)
	}
	if f, err := s.B.Newest(ctx, name); err != nil || f.Size != 7 {
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
		s.looks(spec)
		for i, name := range slices.Sorted(maps.Keys(s.Want)) {
			if i%9 == round%9 {
				s.S3.Remove("from", name)
				delete(s.Want, name)
			}
		}
		s.looks(spec)
		ctx, cancel := context.WithCancel(t.Context())
		var n atomic.Int64
		at := int64(5 + 7*round)
		s.Meet(func(w http.ResponseWriter, r *http.Request) bool {
			if n.Add(1) == at {
				cancel()
			}
			return false
		})
		p := s.planOf(spec.Target)
		if _, err := Compact(ctx, s.f, p, CompactOptions{Dead: 0.05, GoneAfter: atOnce, Yes: true}); err == nil {
			if _, err = Work(ctx, s.f, WorkOptions{}); err == nil {
				Tidy(ctx, s.f, p, 0)
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

// After an old copy of the catalogue was put back, a rewrite that it does not know may have the name of its next one,
// with older files.
func TestARewriteOfOtherFilesIsNotTakenOver(t *testing.T) {
	testkit.Serial(t)
	s := newSite(t)
	s.put("a", 900)
	s.put("b", 900)
	s.packs(spec)
	old := s.kept(catalogue)
	rewrites := func(done, aside int) {
		t.Helper()
		if c, err := Compact(t.Context(), s.f, s.planOf(spec.Target), CompactOptions{Dead: -1}); err != nil || c.Chunks != 1 {
			t.Fatalf("%+v, %v", c, err)
		}
		if sum := s.work(WorkOptions{Tries: 1}); sum.Done != done || sum.SetAside != aside {
			t.Errorf("%+v", sum)
		}
	}
	s.plan(spec)
	if _, err := s.B.Do(t.Context(), book.Step{Begins: true}); err != nil {
		t.Fatal(err)
	}
	rewrites(1, 0)
	old()
	s.put("a", 900)
	s.packs(spec)
	rewrites(0, 1)
	s.reads()
}

// A rewrite that waited for so long that the catalogue has forgotten what was before it makes room for the next one.
func TestALateRewriteIsBegunAnew(t *testing.T) {
	testkit.Serial(t)
	s := newSite(t)
	s.put("a", 900)
	s.packs(spec)
	for _, late := range []bool{true, false} {
		done, err := Compact(t.Context(), s.f, s.planOf(spec.Target), CompactOptions{Dead: -1})
		if err != nil || done.Chunks != 1 {
			t.Fatalf("%+v, %v", done, err)
		}
		if late {
			s.plan(spec)
			if _, err := s.B.GC(t.Context(), 0, false); err != nil {
				t.Fatal(err)
			}
		}
		was, err := s.B.Newest(t.Context(), "a")
		if err != nil {
			t.Fatal(err)
		}
		if sum := s.work(WorkOptions{}); sum.Done != 1 || sum.SetAside != 0 {
			t.Errorf("%+v", sum)
		}
		if is, err := s.B.Newest(t.Context(), "a"); err != nil || late != (is.Archive == was.Archive) {
			t.Errorf("%+v, %v", is, err)
		}
		s.reads()
	}
}
