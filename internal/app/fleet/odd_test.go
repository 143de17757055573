package fleet

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/holdall/holdall/internal/testkit"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storekit"
	"github.com/holdall/holdall/store/storetest/s3test"
)

// TestAnyNumberOfObjectsMayVanishOrChangeInARow checks that the removal of a
// folder after planning does not fail a chunk.
func TestAnyNumberOfObjectsMayVanishOrChangeInARow(t *testing.T) {
	testkit.Serial(t)
	for _, what := range []string{"vanished", "changed"} {
		t.Run(what, func(t *testing.T) {
			s := newSite(t)
			for i := range 300 {
				s.put(fmt.Sprintf("x/%03d", i), 10+i%3*(i%2))
			}
			s.plan(spec)
			for i := 50; i < 250; i++ {
				name := fmt.Sprintf("x/%03d", i)
				if what == "changed" {
					s.S3.Put("from", name, []byte("another"))
				} else {
					s.S3.Remove("from", name)
				}
				delete(s.Want, name)
			}
			if sum := s.work(WorkOptions{}); sum.Done != 1 || sum.Failed != 0 || sum.Objects != 100 {
				t.Errorf("worked %+v", sum)
			}
			s.Check()
		})
	}
}

// TestOddKeysHoldUpNoOthers checks that keys that cannot be requested are set
// aside at once, and do not delay the others, which are packed unchanged.
func TestOddKeysHoldUpNoOthers(t *testing.T) {
	testkit.Serial(t)
	s := newSite(t)
	s.some(50, 400)
	for _, odd := range []string{"a/../b", "../x", "./y", "/lead", "a//b", "a/./b", "dir/", "control\x01", "nul\x00x", "bad\xff", "a\\b", "CON", strings.Repeat("long/", 180) + "x"} {
		s.put(odd, 9)
	}
	for i := range 200 {
		s.put(fmt.Sprintf("many/../%03d", i), 3)
	}
	p := s.plan(spec)
	var left []Member
	sum := s.work(WorkOptions{Tries: 2, Tell: func(e Event) { left = append(left, e.Chunk.Left...) }})
	if sum.Failed != 0 || sum.SetAside != 0 || sum.Done != p.Chunks {
		t.Errorf("worked %+v of %+v", sum, p)
	}
	for _, m := range left {
		if m.Outcome != SetAside || m.Note == "" {
			t.Errorf("%q: %v %q", m.Path, m.Outcome, m.Note)
		}
		if m.Path != "bad\xff" && m.Path != "nul\x00x" {
			t.Errorf("%q: %s", m.Path, m.Note)
		}
		delete(s.Want, m.Path)
	}
	s.Check()

	// The names that a catalogue lists in a folder lead to its contents.
	var walked []string
	var walk func(prefix string)
	walk = func(prefix string) {
		for l, err := range s.B.List(t.Context(), prefix) {
			switch {
			case err != nil:
				t.Fatal(err)
			case l.Folder:
				walk(l.Path)
			default:
				walked = append(walked, l.Path)
			}
		}
	}
	walk("")
	slices.Sort(walked)
	if want := slices.Sorted(maps.Keys(s.Want)); !slices.Equal(walked, want) {
		t.Errorf("walked %q, expected %q", walked, want)
	}
}

// TestKeysWithDotsThatCannotBeAskedForAreNotPlanned checks keys with elements
// of dots. A server, or a proxy before it, may resolve such a path or refuse
// it. The first key of each kind shows this, and the keys are reported during
// planning.
func TestKeysWithDotsThatCannotBeAskedForAreNotPlanned(t *testing.T) {
	testkit.Serial(t)
	for _, what := range []string{"refused", "resolved"} {
		t.Run(what, func(t *testing.T) {
			s := newSite(t)
			s.some(20, 400)
			asked := atomic.Int64{}
			s.Meet(func(w http.ResponseWriter, r *http.Request) bool {
				if !strings.Contains(r.URL.EscapedPath(), "%2E") {
					return false
				}
				asked.Add(1)
				if what == "resolved" {
					r.URL.Path = path.Clean(r.URL.Path)
					return false
				}
				s3test.Refuse(w, r, http.StatusBadRequest, "InvalidURI")
				return true
			})
			want := 0
			for i := range 30 {
				for _, odd := range []string{"a/../%d", "../%d", "b/./%d"} {
					s.S3.Put("from", fmt.Sprintf(odd, i), []byte("some"))
					want++
				}
			}
			s.S3.Put("from", "empty/..", nil)
			var told []string
			with := spec
			with.Tell = func(path string, err error) {
				told = append(told, path)
				if !strings.Contains(err.Error(), "element cannot be requested over HTTP") {
					t.Errorf("%s: %v", path, err)
				}
			}
			p := s.plan(with)
			if p.Objects != 20 || p.Refused != int64(want)+1 || len(told) != want+1 || asked.Load() > 3 {
				t.Errorf("planned %+v, told of %d of %d, asked %d times", p, len(told), want+1, asked.Load())
			}
			s.work(WorkOptions{})
			s.Check()
		})
	}
}

// TestContentMayBeBelowASlash checks that an object whose key ends in a slash
// represents a folder only if it is empty.
func TestContentMayBeBelowASlash(t *testing.T) {
	testkit.Serial(t)
	s := newSite(t)
	s.put("a/", 100)
	s.put("a/b", 100)
	s.S3.Put("from", "c/", nil)
	if p := s.plan(spec); p.Objects != 2 || p.Markers != 1 {
		t.Errorf("planned %+v", p)
	}
	if sum := s.work(WorkOptions{}); sum.Objects != 2 {
		t.Errorf("worked %+v", sum)
	}
	s.Check()
}

// TestASourceMayBeginWithASlash checks that a slash at the start of a key is
// not taken for the end of the bucket's name.
func TestASourceMayBeginWithASlash(t *testing.T) {
	testkit.Serial(t)
	s := newSite(t)
	for _, name := range []string{"/a", "//b", "/c/d", "e"} {
		s.S3.Put("from", name, []byte(name))
	}
	for source, want := range map[string]string{"s3://from//*": "/a //b /c/d", "s3://from///*": "//b", "s3://from//c": "d", "s3://from//c/*": "d"} {
		p := s.plan(Spec{Sources: []string{source}, Target: "s3://out/x.caf", Name: source})
		var got []string
		j, err := open(t.Context(), p.Plan)
		if err != nil {
			t.Fatal(err)
		}
		all, err := s.f.waiting(t.Context(), j)
		if err != nil {
			t.Fatal(err)
		}
		for _, k := range all {
			for m, err := range s.f.members(t.Context(), j, k) {
				if err != nil {
					t.Fatal(err)
				}
				got = append(got, m.Path)
			}
		}
		slices.Sort(got)
		w := strings.Fields(want)
		slices.Sort(w)
		if !slices.Equal(got, w) {
			t.Errorf("%s: %q, expected %q", source, got, w)
		}
	}
}

// TestUploadsOfOthersStay checks that another program's upload, whose name
// begins like holdall's, is not removed.
func TestUploadsOfOthersStay(t *testing.T) {
	testkit.Serial(t)
	s := newSite(t)
	s.some(10, 300)
	s.plan(spec)
	st, name, err := store.OpenAddress(t.Context(), "s3://out/set-00001.caf.copy")
	if err != nil {
		t.Fatal(err)
	}
	w, err := storekit.Create(t.Context(), st, name)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Abort()
	if _, err := w.Write(make([]byte, 20<<20)); err != nil {
		t.Fatal(err)
	}
	s.work(WorkOptions{})
	if n := s.S3.Uploads(); n != 1 {
		t.Errorf("%d uploads are left, expected that of somebody else", n)
	}
	if _, err := w.Commit(t.Context()); err != nil {
		t.Error(err)
	}
	s.Check()
}

// TestFoldersAreSourcesAndTargets checks that local folders work like buckets.
func TestFoldersAreSourcesAndTargets(t *testing.T) {
	testkit.Serial(t)
	s := newSite(t)
	from, to := filepath.Join(t.TempDir(), "from"), t.TempDir()
	names := []string{"a", "a-b/c", "a b/d", "sub/x/y", "sub-x", "z\xff", "new\nline"}
	for _, n := range names {
		p := filepath.Join(from, filepath.FromSlash(n))
		if err := os.MkdirAll(filepath.Dir(p), 0o777); err != nil {
			t.Fatal(err)
		}
		s.Want[n] = []byte("content of " + n)
		if err := os.WriteFile(p, s.Want[n], 0o666); err != nil {
			t.Skipf("a file of this name: %v", err)
		}
	}
	local := Spec{Sources: []string{from}, Target: filepath.Join(to, "set.caf"), ChunkSize: 40}
	p := s.plan(local)
	if p.Objects != int64(len(names)) {
		t.Errorf("planned %+v", p)
	}
	if again := s.plan(local); again.Objects != 0 || again.Known != int64(len(names)) {
		t.Errorf("planned again %+v", again)
	}
	if sum := s.work(WorkOptions{Workers: 3}); sum.Done != p.Chunks {
		t.Errorf("worked %+v", sum)
	}
	s.Check()
}

// TestTwoMayMakeAPlanAtOnce checks that two processes that make a plan of the
// same name at once do not damage each other's work.
func TestTwoMayMakeAPlanAtOnce(t *testing.T) {
	s := newSite(t)
	s.some(400, 3000)
	s.S3.Page = 40
	var wg sync.WaitGroup
	errs := make([]error, 4)
	for i := range errs {
		f := Fleet{s.Open(), s.Q}
		wg.Go(func() { _, errs[i] = MakePlan(t.Context(), f, spec, nil) })
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil && !errors.Is(err, fs.ErrExist) {
			t.Error(err)
		}
		t.Log(err)
	}
	s.work(WorkOptions{Workers: 3})
	s.visible()
	if p := s.plan(spec); p.Objects != 0 || p.Known != 400 {
		t.Errorf("planned again %+v", p)
	}
}

// visible checks that each object is visible with its size; it may be in several archives.
func (s *site) visible() {
	s.T.Helper()
	n := 0
	for l, err := range s.B.Below(s.T.Context(), "") {
		if err != nil {
			s.T.Fatal(err)
		}
		if n++; l.Size != int64(len(s.Want[l.Path])) {
			s.T.Errorf("%s has %d bytes", l.Path, l.Size)
		}
	}
	if n != len(s.Want) {
		s.T.Errorf("%d files, expected %d", n, len(s.Want))
	}
}

// TestPlanningWhileWorkersRun checks that objects planned while others are
// packed are packed, each version in one chunk.
func TestPlanningWhileWorkersRun(t *testing.T) {
	s := newSite(t)
	s.some(200, 2000)
	s.plan(spec)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var wg sync.WaitGroup
	f := Fleet{s.Open(), s.Q}
	wg.Go(func() {
		if _, err := Work(ctx, f, WorkOptions{Workers: 2, Stay: true}); err != nil {
			t.Error(err)
		}
	})
	for i := range 8 {
		s.put(fmt.Sprintf("data/%03d/new-%d", i, i), 700)
		s.plan(spec)
	}
	stop()
	wg.Wait()
	s.work(WorkOptions{})
	s.Check()
	if p := s.plan(spec); p.Objects != 0 || p.Known != 208 {
		t.Errorf("planned again %+v", p)
	}
}

// The damaged list of a chunk is named. The other chunks are packed, and what it had is planned again.
func TestADamagedListIsNamed(t *testing.T) {
	testkit.Serial(t)
	s := newSite(t)
	s.some(30, 1000)
	small := spec
	small.ChunkObjects = 10
	s.plan(small)
	lists := slices.DeleteFunc(s.S3.Keys("out"), func(key string) bool { return !strings.HasPrefix(key, path.Join("set.catalog", workKind)) })
	content := slices.Clone(s.S3.Get("out", lists[1]))
	content[len(content)/2] ^= 1
	s.S3.Put("out", lists[1], content)
	var problem error
	sum := s.work(WorkOptions{Tries: 1, Tell: func(e Event) { problem = errors.Join(problem, e.Err) }})
	if sum.Done != 2 || sum.SetAside != 1 || problem == nil || !strings.Contains(problem.Error(), lists[1]) {
		t.Errorf("%+v, %v", sum, problem)
	}
	_, err := StatusOf(t.Context(), s.f, s.planOf(small.Target))
	if _, is := errors.AsType[*ListError](err); !is {
		t.Errorf("status: %v", err)
	}
	if _, err := Cancel(t.Context(), s.f, s.planOf(small.Target)); err != nil {
		t.Fatal(err)
	}
	if p := s.plan(small); p.Objects != 10 {
		t.Errorf("planned again %+v", p)
	}
	s.work(WorkOptions{})
	s.reads()
}
