package fleet

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/holdall/holdall/internal/app/catalog/book"
	"github.com/holdall/holdall/internal/testkit"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storetest/s3test"
)

// everything returns what there is in both buckets.
func (s *site) everything() map[string]string {
	all := map[string]string{}
	for _, bucket := range []string{"from", "out"} {
		for _, key := range s.S3.Keys(bucket) {
			all[bucket+"/"+key] = string(s.S3.Get(bucket, key))
		}
	}
	return all
}

// wantBehind checks that nothing is deleted or written because of a marker.
func (s *site) wantBehind(marker string) {
	s.T.Helper()
	before := s.everything()
	for _, o := range []RetireOptions{{}, {DryRun: true}, {Newest: true}} {
		did := s.retireAs(s.T.Context(), spec.Target, o)
		behind, ok := errors.AsType[*BehindError](did.err)
		if !ok || !strings.HasPrefix(behind.Marker, marker) || !book.IsMarker(behind.Marker) || !strings.Contains(did.err.Error(), behind.Marker) {
			s.T.Errorf("%v, expected a marker at %s", did.err, marker)
		}
	}
	if !maps.Equal(before, s.everything()) {
		s.T.Error("something is deleted, or new")
	}
}

// TestAnOlderCatalogueDeletesNothing puts back a copy of a catalogue from before a retirement, and from the midst
// of one.
func TestAnOlderCatalogueDeletesNothing(t *testing.T) {
	testkit.Serial(t)
	s := newSite(t)
	s.some(40, 3000)
	s.packs(spec)
	old := s.kept(catalogue)
	if did := s.retire(RetireOptions{Limit: 10}); did.Objects != 10 {
		t.Fatalf("%+v", did.Retired)
	}
	half := s.kept(catalogue)
	s.retire(RetireOptions{Limit: 10})
	newest := s.kept(catalogue)
	for _, back := range []func(){old, half} {
		back()
		s.wantBehind("s3://from/")
		// A marker anywhere suffices.
		for bucket, other := range map[string]string{"from": "s3://out/", "out": "s3://from/"} {
			markers := s.kept(func(_, key string) bool { return book.IsMarker(key) })
			for _, key := range s.S3.Keys(bucket) {
				if book.IsMarker(key) {
					s.S3.Remove(bucket, key)
				}
			}
			s.wantBehind(other)
			markers()
		}
	}
	// A job that an old copy finds in the queue does nothing.
	newest()
	r, _, jobs := s.ranged(RetireOptions{})
	half()
	before := s.everything()
	r.f = s.f
	if err := newWorker(s.f, WorkOptions{}).do(t.Context(), jobs[0]); !isBehind(err) {
		t.Error(err)
	}
	if !maps.Equal(before, s.everything()) {
		t.Error("something is deleted, or new")
	}
	// The newest goes on, and nothing is lost. Only the last markers are kept.
	newest()
	if did := s.retire(RetireOptions{}); did.Objects != 20 {
		t.Errorf("%+v", did.Retired)
	}
	s.wantOnly()
	s.reads()
	if keys := s.S3.Keys("from"); len(keys) != 1 {
		t.Errorf("%q", keys)
	}
}

// TestAnOlderCatalogueDeletesNothingOfAnotherPlan retires originals and removes an archive by one plan. The older
// copy is used by another one, of the same sources, whose archives are elsewhere.
func TestAnOlderCatalogueDeletesNothingOfAnotherPlan(t *testing.T) {
	testkit.Serial(t)
	s := newSite(t)
	s.some(40, 3000)
	s.packs(spec)
	elsewhere := spec
	elsewhere.Target = "s3://out/elsewhere/set.caf"
	s.plan(elsewhere)
	old := s.kept(catalogue)
	s.retire(RetireOptions{Limit: 10})
	for _, name := range s.originals()[:14] {
		s.S3.Remove("from", name)
	}
	if done := s.compact(CompactOptions{}); done.Removed == 0 {
		t.Fatalf("%+v", done)
	}
	old()
	p := s.planOf(elsewhere.Target)
	if _, err := Compact(t.Context(), s.f, p, CompactOptions{}); !isBehind(err) {
		t.Errorf("compaction: %v", err)
	}
	if did := s.retireAs(t.Context(), elsewhere.Target, RetireOptions{}); !isBehind(did.err) {
		t.Errorf("retirement: %v", did.err)
	}
}

func isBehind(err error) bool {
	_, is := errors.AsType[*BehindError](err)
	return is
}

// TestAForkOfACatalogueDeletesNothing lets two copies of a catalogue go on by themselves: one retires, and the other
// has as many commits.
func TestAForkOfACatalogueDeletesNothing(t *testing.T) {
	testkit.Serial(t)
	s := newSite(t)
	s.some(20, 3000)
	s.packs(spec)
	fork := s.kept(catalogue)
	if did := s.retire(RetireOptions{Limit: 10}); did.Objects != 10 {
		t.Fatalf("%+v", did.Retired)
	}
	n := s.B.Marker().Commit
	newest := s.kept(catalogue)
	fork()
	for s.B.Marker().Commit <= n+1 {
		s.plan(spec)
	}
	s.wantBehind("s3://from/")
	newest()
	s.retire(RetireOptions{})
	s.wantOnly()
	s.reads()
}

// TestTwoCopiesOfACatalogueDoNotBothDelete has one copy retire while the other, which may have more commits, is about
// to write its markers.
func TestTwoCopiesOfACatalogueDoNotBothDelete(t *testing.T) {
	for _, commits := range []int{0, 2} {
		s := newSite(t)
		s.some(20, 3000)
		s.packs(spec)
		for _, key := range s.S3.Keys("out") {
			if rest, ok := strings.CutPrefix(key, "set.catalog/"); ok {
				s.S3.Put("out", "other.catalog/"+rest, s.S3.Get("out", key))
			}
		}
		mine := s.f
		st, name, err := store.OpenAddress(t.Context(), "s3://out/other.catalog")
		if err != nil {
			t.Fatal(err)
		}
		b, err := book.Open(t.Context(), st, name, book.Options{Write: true})
		if err != nil {
			t.Fatal(err)
		}
		other := Fleet{b, s.Q}
		p := s.planOf(spec.Target)
		_, _, jobs := s.ranged(RetireOptions{})
		jobs[0].Args = []byte(strings.Replace(string(jobs[0].Args), `"objects":20`, `"objects":5`, 1))
		for range commits {
			if _, err := mine.Book.Do(t.Context(), book.Step{Begins: true}); err != nil {
				t.Fatal(err)
			}
		}
		var met atomic.Bool
		s.Meet(func(w http.ResponseWriter, r *http.Request) bool {
			if r.Method == http.MethodPut && book.IsMarker(r.URL.Path) && !met.Swap(true) { // the other one is faster
				if err := newWorker(other, WorkOptions{}).do(context.WithoutCancel(r.Context()), jobs[0]); err != nil {
					t.Error(err)
				}
			}
			return false
		})
		if err := newWorker(mine, WorkOptions{}).do(t.Context(), jobs[0]); !isBehind(err) {
			t.Error(err)
		}
		s.Meet(nil)
		if n := len(s.originals()); n != 15 {
			t.Errorf("%d originals are left", n)
		}
		s.wantBehind("s3://from/")
		if did, err := Retire(t.Context(), other, p, RetireOptions{}); err != nil || did.Objects != 15 {
			t.Errorf("%+v, %v", did, err)
		}
		s.f, s.B = other, other.Book
		s.wantOnly()
		s.reads()
	}
}

// TestWithoutMarkersNothingMoreIsRetired removes all markers after a retirement.
func TestWithoutMarkersNothingMoreIsRetired(t *testing.T) {
	testkit.Serial(t)
	s := newSite(t)
	s.some(20, 3000)
	s.packs(spec)
	s.retire(RetireOptions{Limit: 10})
	s.put("a later one", 1000) // comes before those that are retired
	s.packs(spec)
	for _, bucket := range []string{"from", "out"} {
		for _, key := range s.S3.Keys(bucket) {
			if book.IsMarker(key) {
				s.S3.Remove(bucket, key)
			}
		}
	}
	before := s.everything()
	for _, o := range []RetireOptions{{}, {DryRun: true}, {Limit: 1}} {
		did := s.retireAs(t.Context(), spec.Target, o)
		if gone, ok := errors.AsType[*UnmarkedError](did.err); !ok || gone.Place != "s3://from" {
			t.Errorf("%+v", did)
		}
	}
	if !maps.Equal(before, s.everything()) {
		t.Error("something is deleted, or new")
	}
	if did := s.retire(RetireOptions{Newest: true, Limit: 5}); did.Objects != 5 {
		t.Errorf("%+v", did)
	}
	if did := s.retire(RetireOptions{}); did.Objects != 6 {
		t.Errorf("%+v", did)
	}
	s.reads()
}

// TestNothingIsDeletedBeforeItsMarkers refuses the markers of a job, in either bucket.
func TestNothingIsDeletedBeforeItsMarkers(t *testing.T) {
	testkit.Serial(t)
	s := newSite(t)
	s.some(10, 3000)
	s.packs(spec)
	for _, bucket := range []string{"from", "out"} {
		_, _, jobs := s.ranged(RetireOptions{})
		var deleted atomic.Int64
		s.Meet(func(w http.ResponseWriter, r *http.Request) bool {
			switch {
			case r.Method == http.MethodDelete && !book.IsMarker(r.URL.Path):
				deleted.Add(1)
			case r.Method == http.MethodPut && book.IsMarker(r.URL.Path) && strings.HasPrefix(r.URL.Path, "/"+bucket+"/"): // as in a bucket that may only be read
				s3test.Refuse(w, r, 403, "AccessDenied")
				return true
			}
			return false
		})
		err := newWorker(s.f, WorkOptions{}).do(t.Context(), jobs[0])
		s.Meet(nil)
		if !errors.Is(err, fs.ErrPermission) || deleted.Load() > 0 {
			t.Errorf("%s: %v, %d deleted", bucket, err, deleted.Load())
		}
		s.wantOnly(slices.Collect(maps.Keys(s.Want))...)
		if bucket == "from" { // a listing finds that they are there
			s.wantOriginals(Originals{Retired: 10})
			s.plan(spec)
			s.wantOriginals(Originals{Lingers: 10})
		} else if err := newWorker(s.f, WorkOptions{}).do(t.Context(), jobs[0]); err != nil { // or the next attempt goes on
			t.Error(err)
		}
	}
	s.wantOnly()
	s.reads()
}

// TestAnotherCatalogueMayDelete checks that the markers of one catalogue do not stop another one, and that no plan
// packs them.
func TestAnotherCatalogueMayDelete(t *testing.T) {
	testkit.Serial(t)
	s := newSite(t)
	for i := range 6 {
		s.put(fmt.Sprintf("logs/2026-%d", i), 1000)
	}
	s.put("logs/.holdall-catalogue-x", 100) // which only looks similar
	part := Spec{Sources: []string{"s3://from/logs/2026-*"}, Target: "s3://from/logs.caf"}
	s.packs(part)
	if did := s.retireAs(t.Context(), part.Target, RetireOptions{Limit: 2}); did.err != nil || did.Objects != 2 {
		t.Errorf("%+v", did)
	}
	markers := slices.DeleteFunc(s.S3.Keys("from"), func(key string) bool { return !book.IsMarker(key) })
	if len(markers) != 2 { // the archives are beside the originals
		t.Errorf("%q", markers)
	}
	st, name, err := store.OpenAddress(t.Context(), "s3://out/other.catalog")
	if err != nil {
		t.Fatal(err)
	}
	if s.B, err = book.Create(t.Context(), st, name); err != nil {
		t.Fatal(err)
	}
	s.f.Book = s.B
	for _, gone := range []string{"logs/2026-0", "logs/2026-1"} {
		delete(s.Want, gone)
	}
	all := spec
	all.Exclude = []string{"*.caf*"}
	if p := s.plan(all); p.Objects != 5 {
		t.Errorf("%+v", p)
	}
	s.work(WorkOptions{Plan: spec.Target})
	if did := s.retire(RetireOptions{}); did.Objects != 5 {
		t.Errorf("%+v", did)
	}
	s.reads()
}
