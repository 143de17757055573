package fleet

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdall/holdall/internal/app/catalog"
	"github.com/holdall/holdall/internal/testkit/pgtest"
	"github.com/holdall/holdall/store"
)

// A folder that is taken away after it was planned is no reason to give up a chunk.
func TestAnyNumberOfObjectsMayVanishOrChangeInARow(t *testing.T) {
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

// Keys that no archive has a place for, or that cannot be asked for, are set aside at once,
// and hold up none of the others.
func TestOddKeysHoldUpNoOthers(t *testing.T) {
	s := newSite(t)
	s.some(50, 400)
	for _, odd := range []string{"a/../b", "../x", "./y", "/lead", "a//b", "a/./b", "dir/", "control\x01", "nul\x00x", "bad\xff", "a\\b", "CON", strings.Repeat("long/", 180) + "x"} {
		s.put(odd, 9)
	}
	for i := range 200 {
		s.put(fmt.Sprintf("many/../%03d", i), 3)
	}
	p := s.plan(spec)
	var left []catalog.Member
	sum := s.work(WorkOptions{Tries: 2, Tell: func(e Event) { left = append(left, e.Left...) }})
	if sum.Failed != 0 || sum.SetAside != 0 || sum.Done != p.Chunks {
		t.Errorf("worked %+v of %+v", sum, p)
	}
	for _, m := range left {
		if m.Outcome != catalog.SetAside || m.Note == "" {
			t.Errorf("%q: %v %q", m.Path, m.Outcome, m.Note)
		}
		if !strings.HasPrefix(m.Path, "many/") {
			t.Logf("%q: %s", m.Path, m.Note)
		}
		delete(s.Want, m.Path)
	}
	s.Check()
}

// An upload of somebody else, of a name that begins like ours, is not taken away.
func TestUploadsOfOthersStay(t *testing.T) {
	s := newSite(t)
	s.some(10, 300)
	s.plan(spec)
	st, name, err := store.OpenAddress(t.Context(), "s3://out/set-00001.caf.copy")
	if err != nil {
		t.Fatal(err)
	}
	w, err := store.Create(t.Context(), st, name)
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

// Folders are sources and targets as buckets are.
func TestFoldersAreSourcesAndTargets(t *testing.T) {
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

// Of two who make a plan of one name at once neither spoils what the other does.
func TestTwoMayMakeAPlanAtOnce(t *testing.T) {
	s := newSite(t)
	s.some(400, 3000)
	s.S3.Page = 40
	var wg sync.WaitGroup
	errs := make([]error, 4)
	for i := range errs {
		c := s.Open(catalog.Options{})
		wg.Go(func() { _, errs[i] = Plan(t.Context(), c, spec, nil) })
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil && !errors.Is(err, fs.ErrExist) {
			t.Error(err)
		}
		t.Log(err)
	}
	s.plan(spec)
	s.work(WorkOptions{Workers: 3})
	s.Check()
}

// What is planned while others are packed is packed, each version in one chunk.
func TestPlanningWhileWorkersRun(t *testing.T) {
	s := newSite(t)
	s.some(200, 2000)
	s.plan(spec)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var wg sync.WaitGroup
	c := s.Open(catalog.Options{})
	wg.Go(func() {
		if _, err := Work(ctx, c, WorkOptions{Workers: 2, Stay: true, Look: time.Millisecond, Pause: time.Millisecond}); err != nil {
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

// A database that is away for a while costs no chunk a try, whatever is done meanwhile.
func TestADatabaseThatIsAwayIsWaitedFor(t *testing.T) {
	s := newSiteOn(t, pgtest.Database(t))
	s.some(4500, 100)
	one := spec
	one.ChunkSize = 0
	s.plan(one)
	var reads atomic.Int64
	var going sync.WaitGroup
	restart := func() {
		going.Go(func() {
			if err := pgtest.Restart(500 * time.Millisecond); err != nil {
				t.Error(err)
			}
		})
	}
	s.Meet(func(_ http.ResponseWriter, r *http.Request) bool {
		switch {
		case r.Method == http.MethodGet && strings.HasPrefix(r.URL.Path, "/from/") && reads.Add(1) == 1000: // some are not listed yet
			restart()
		case r.Method == http.MethodPut: // the archive is about to be there
			going.Wait()
			restart()
		}
		return false
	})
	if sum := s.work(WorkOptions{Lease: time.Minute}); sum.Done != 1 || sum.Failed != 0 || sum.Lost != 0 {
		t.Errorf("worked %+v", sum)
	}
	going.Wait()
	s.Check()
}
