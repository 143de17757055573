package fleet

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"path"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdall/holdall"
	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/app/catalog/book"
	"github.com/holdall/holdall/internal/testkit"
	"github.com/holdall/holdall/internal/write/pack"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storekit"
	"github.com/holdall/holdall/store/storetest/s3test"
)

// bundle is packed in parts. Its plan has the same name as that of the other
// tests.
var bundle = Spec{Name: spec.Target, Sources: []string{"s3://from"}, Target: "s3://out/set.bundle", ChunkSize: 100_000, Param: map[string]string{"level": "1"}}

// out returns the names of the target's objects below a folder.
func (s *site) out(folder string) (names []string) {
	s.T.Helper()
	st, err := storekit.OpenFolder(s.T.Context(), "s3://out")
	if err != nil {
		s.T.Fatal(err)
	}
	for info, err := range storekit.List(s.T.Context(), st, folder) {
		if err != nil {
			s.T.Fatal(err)
		}
		names = append(names, info.Name)
	}
	return names
}

// checkBundles is check for bundles: there must be n, without lists of parts,
// and without errors.
func (s *site) checkBundles(n int) {
	s.T.Helper()
	s.Check()
	archives, err := s.B.Archives(s.T.Context())
	if err != nil || len(archives) != n {
		s.T.Errorf("%d archives are recorded, %v; expected %d", len(archives), err, n)
	}
	for _, a := range archives {
		st, name, err := store.OpenAddress(s.T.Context(), a.Address)
		if err != nil {
			s.T.Fatal(err)
		}
		v, err := holdall.Verify(s.T.Context(), name, holdall.VerifyOptions{OpenOptions: holdall.OpenOptions{Store: st}}, func(p holdall.Problem) {
			if p.Severity > format.Note {
				s.T.Errorf("%s: %+v", a.Address, p)
			}
		})
		if err != nil || v.Errors+v.Warnings > 0 {
			s.T.Errorf("%s: %+v, %v", a.Address, v, err)
		}
		if left := s.out(name + "/parts/"); len(left) > 0 {
			s.T.Errorf("left beside it: %q", left)
		}
	}
}

func TestABundleOfManyWorkersIsThatOfOne(t *testing.T) {
	s := newSite(t)
	s.some(200, 5000)
	p := s.plan(bundle)
	if p.Objects != 200 || p.Chunks < 5 {
		t.Errorf("planned %+v", p)
	}
	sum := s.work(WorkOptions{Workers: 3})
	if sum.Done != p.Chunks || sum.Objects != 200 || sum.Bytes != p.Bytes || sum.Failed != 0 {
		t.Errorf("worked %+v of %+v", sum, p)
	}
	s.checkBundles(1)
	st, err := storekit.OpenFolder(t.Context(), "s3://from")
	if err != nil {
		t.Fatal(err)
	}
	target, name, err := store.OpenAddress(t.Context(), "s3://out/one.bundle")
	if err != nil {
		t.Fatal(err)
	}
	// A plan stores no times.
	if _, err := pack.Objects(t.Context(), target, name, func(yield func(pack.Object, error) bool) {
		for info, err := range storekit.List(t.Context(), st, "") {
			info.ModTime = time.Time{}
			if !yield(pack.Object{From: st, Info: info, Name: info.Name}, err) {
				return
			}
		}
	}, pack.Options{Param: map[string]string{"level": "1", "shard-size": fmt.Sprint(1 << 20)}}); err != nil {
		t.Fatal(err)
	}
	// One chunk makes one shard. Its name and length are those of a single shard.
	large := bundle
	large.Name, large.Target, large.ChunkSize = "large", "s3://out/large.bundle", 1<<20
	second, err := book.Create(t.Context(), target, "second.catalog")
	if err != nil {
		t.Fatal(err)
	}
	s.f.Book = second
	s.plan(large)
	s.work(WorkOptions{Workers: 2})
	one, many := s.out("one.bundle/"), s.out("large.bundle/")
	if len(one) != len(many) || len(one) < 7 {
		t.Fatalf("%q, expected %q", many, one)
	}
	for i, name := range one {
		if want := strings.Replace(name, "one.", "large.", 1); many[i] != want || !bytes.Equal(s.S3.Get("out", name), s.S3.Get("out", want)) {
			t.Errorf("%s is not as %s", many[i], name)
		}
	}
}

func TestPlanningAgainGivesAFurtherBundle(t *testing.T) {
	testkit.Serial(t)
	s := newSite(t)
	s.some(100, 4000)
	s.plan(bundle)
	if p := s.plan(bundle); p.Chunks != 0 || p.Known != 100 {
		t.Errorf("planned again %+v", p)
	}
	s.work(WorkOptions{Workers: 2})
	s.checkBundles(1)
	s.put("data/000/00000x", 10)
	s.put("zzz", 20)
	if p := s.plan(bundle); p.Objects != 2 || p.Chunks != 2 || p.Known != 100 {
		t.Errorf("planned again %+v", p)
	}
	s.put("zzzz", 20)
	if p := s.plan(bundle); p.Objects != 1 || p.Chunks != 2 || p.Known != 102 {
		t.Errorf("planned again %+v", p)
	}
	s.work(WorkOptions{Workers: 2})
	s.checkBundles(3)
	if len(s.out("set.bundle/")) == 0 {
		t.Error("there is no set.bundle")
	}
}

func TestPartsOfAPlanThatBrokeOffBecomeABundle(t *testing.T) {
	testkit.Serial(t)
	s := newSite(t)
	s.some(300, 3000)
	s.breaksOff()
	if p, err := MakePlan(t.Context(), s.f, bundle, nil); err == nil || p.Chunks == 0 {
		t.Fatalf("planned %+v, %v", p, err)
	}
	s.Meet(nil)
	s.work(WorkOptions{Workers: 2})
	if all, err := s.B.Archives(t.Context()); len(all) != 0 || err != nil {
		t.Errorf("an archive of half a plan: %v, %v", all, err)
	}
	s.plan(bundle) // which makes an archive of the parts, and another of what is new
	s.work(WorkOptions{Workers: 2})
	s.checkBundles(2)
}

func TestAPartWithNothingLeftIsAnEmptyShard(t *testing.T) {
	testkit.Serial(t)
	s := newSite(t)
	for _, name := range []string{"a", "b", "c"} {
		s.put(name, 90_000)
	}
	s.plan(bundle)
	s.S3.Remove("from", "b")
	delete(s.Want, "b")
	s.put("c", 9)
	changed := s.Want["c"]
	delete(s.Want, "c")
	if sum := s.work(WorkOptions{}); sum.Done != 4 || sum.Objects != 1 {
		t.Errorf("worked %+v", sum)
	}
	s.checkBundles(1)
	if is := s.status(); is.Left[Vanished] != 1 || is.Left[Changed] != 1 || is.Objects != 1 {
		t.Errorf("%+v", is)
	}
	s.Want["c"] = changed
	s.plan(bundle)
	s.work(WorkOptions{})
	s.checkBundles(2)
}

func TestABundleWaitsForPartsThatWereSetAside(t *testing.T) {
	testkit.Serial(t)
	s := newSite(t)
	s.some(60, 5000)
	s.plan(bundle)
	s.Meet(func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method != http.MethodGet && path.Base(r.URL.Path) == "shard-00000000" {
			s3test.Refuse(w, r, http.StatusForbidden, "AccessDenied")
			return true
		}
		return false
	})
	if sum := s.work(WorkOptions{Tries: 1}); sum.SetAside != 1 || sum.Done == 0 {
		t.Errorf("worked %+v", sum)
	}
	s.Meet(nil)
	if _, err := holdall.Open(t.Context(), bundle.Target, holdall.OpenOptions{}); err == nil {
		t.Error("parts are an archive")
	}
	if n, err := s.Q.Retry(t.Context(), bundle.Name); n != 1 || err != nil {
		t.Errorf("retried %d, %v", n, err)
	}
	s.work(WorkOptions{})
	s.checkBundles(1)
}

// recorded returns the paths in the catalogue.
func (s *site) recorded() map[string]bool {
	s.T.Helper()
	found := map[string]bool{}
	archives, err := s.B.Archives(s.T.Context())
	if err != nil {
		s.T.Fatal(err)
	}
	for _, a := range archives {
		for l, err := range s.B.Locations(s.T.Context(), a) {
			if err != nil {
				s.T.Fatal(err)
			}
			found[l.Path] = true
		}
	}
	return found
}

// dying works like a worker that is killed during a request: its jobs are handed out again.
func (s *site) dying(ctx context.Context) {
	w := &worker{Fleet: Fleet{s.Open(), s.Q}, o: WorkOptions{Tries: 5}, jobs: map[string]*job{}, packs: map[string]Chunk{}}
	met := map[string]bool{}
	for n := -1; n < len(met); {
		n = len(met)
		for k, err := range s.Q.Jobs(s.T.Context(), bundle.Name) {
			c, ok := chunkNamed(k.Name)
			if err != nil || !ok {
				s.T.Fatal(k.Name, err)
			}
			if met[k.Name] {
				continue
			}
			met[k.Name] = true
			j, err := w.job(ctx, k.Plan)
			if err == nil && ctx.Err() == nil {
				_ = w.pack(ctx, j, c, 1)
			}
		}
	}
}

// TestABundleIsWholeWhereverItsWorkersAreKilled kills them at every third
// request, from the first, second or third on. HOLDALL_LONG has it kill them at
// each.
func TestABundleIsWholeWhereverItsWorkersAreKilled(t *testing.T) {
	testkit.Long(t)
	empty := []string{"data/000/empty", "data/004/empty"}
	step := int64(3)
	if testkit.Rounds(t, 1) > 1 {
		step = 1
	}
	for n := 1 + testkit.Rand(t).Int64N(step); ; n += step {
		s := newSite(t)
		s.some(8, 30_000)
		for _, name := range empty {
			s.put(name, 0)
		}
		s.plan(bundle)
		ctx, kill := context.WithCancel(t.Context())
		var made, removed atomic.Int64
		s.Meet(func(w http.ResponseWriter, r *http.Request) bool {
			if !strings.HasPrefix(r.URL.Path, "/out") || r.Method == http.MethodGet || r.Method == http.MethodHead {
				return false
			}
			if r.Method == http.MethodDelete && removed.Add(1) > 2 {
				return false // deleting each further list is the same case again
			}
			if made.Add(1) == n {
				kill()
				if n%2 == 1 {
					panic(http.ErrAbortHandler)
				}
				// It is carried out, but the answer is lost.
			}
			return false
		})
		s.dying(ctx)
		killed := ctx.Err() != nil
		kill()
		s.Meet(nil)
		for _, name := range empty { // the next claim finds fewer
			s.S3.Remove("from", name)
			delete(s.Want, name)
		}
		s.work(WorkOptions{Workers: 2, again: n%2 == 0})
		for name := range s.recorded() {
			if slices.Contains(empty, name) {
				s.Want[name] = nil // it was packed before
			}
		}
		s.checkBundles(1)
		if t.Failed() {
			t.Fatalf("killed at request %d", n)
		}
		if !killed {
			last := n - step
			t.Logf("killed at requests up to %d", last)
			if last < 14 {
				t.Errorf("the last of them was %d", last)
			}
			return
		}
	}
}

// TestWhoComesLateChangesNoBundle has a worker that was taken for dead
// continue after another one has done everything.
func TestWhoComesLateChangesNoBundle(t *testing.T) {
	testkit.Serial(t)
	for _, late := range []string{"/out/set.bundle/parts/00000000.*/CURRENT", "/out/set.bundle/shard-00000000", "/out/set.bundle/index/000004.sst", "/out/set.bundle/index/CURRENT"} {
		t.Run(path.Base(late), func(t *testing.T) {
			s := newSite(t)
			s.some(40, 8000)
			s.plan(bundle)
			var once atomic.Bool
			var names []string
			before := map[string][]byte{}
			s.Meet(func(w http.ResponseWriter, r *http.Request) bool {
				if r.Method == http.MethodPut && matches(late, r.URL.Path) && once.CompareAndSwap(false, true) {
					s.work(WorkOptions{})
					for _, name := range s.out("set.bundle/") {
						if !strings.Contains(name, "/parts/") {
							names = append(names, name)
							before[name] = s.S3.Get("out", name)
						}
					}
				}
				return false
			})
			s.dying(t.Context())
			s.Meet(nil)
			s.work(WorkOptions{}) // sweeps
			s.checkBundles(1)
			if now := s.out("set.bundle/"); len(names) < 7 || !slices.Equal(now, names) {
				t.Errorf("%q, expected %q", now, names)
			}
			for name, b := range before {
				if !bytes.Equal(s.S3.Get("out", name), b) {
					t.Errorf("%s was replaced by something else", name)
				}
			}
		})
	}
}

func matches(pattern, name string) bool {
	is, err := path.Match(pattern, name)
	return err == nil && is
}

func TestBundlesThatCannotBeAreRefused(t *testing.T) {
	testkit.Serial(t)
	s := newSite(t)
	s.some(5, 100)
	whole := bundle
	whole.Target, whole.Format = "s3://out", "databundle"
	if _, err := MakePlan(t.Context(), s.f, whole, nil); err == nil {
		t.Error("a bundle that is a whole bucket")
	}
	s.S3.Put("out", "set.bundle/shard-00000007", []byte("somebody's"))
	if _, err := MakePlan(t.Context(), s.f, bundle, nil); !errors.Is(err, fs.ErrExist) {
		t.Errorf("planned over something: %v", err)
	}
}
