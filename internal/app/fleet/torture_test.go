package fleet

import (
	"context"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/holdall/holdall/internal/app/catalog"
	"github.com/holdall/holdall/internal/testkit"
	"github.com/holdall/holdall/store/storetest/s3test"
)

// workEnv makes this program a worker on a catalogue, to be killed.
const workEnv = "HOLDALL_FLEET_WORK"

func beWorker(db string) error {
	ctx := context.Background()
	c, err := catalog.Open(ctx, db, catalog.Options{})
	if err != nil {
		return err
	}
	defer c.Close()
	_, err = Work(ctx, c, WorkOptions{Workers: 2, Lease: 500 * time.Millisecond, Pause: 10 * time.Millisecond, Look: 20 * time.Millisecond, Tries: 50})
	return err
}

// TestWhateverIsKilledEachObjectIsInOneChunk kills workers one after the
// other, at any moment, while the server refuses requests, breaks connections
// and omits responses.
func TestWhateverIsKilledEachObjectIsInOneChunk(t *testing.T) {
	testkit.Long(t)
	for what, replacing := range map[string]bool{"a bucket that creates once": false, "a bucket that replaces": true} {
		t.Run(what, func(t *testing.T) {
			s := newSite(t)
			s.S3.Replacing = replacing
			s.torture(spec, 700, 8)
			s.Check()
		})
	}
}

func TestWhateverIsKilledABundleHasEachObjectOnce(t *testing.T) {
	testkit.Long(t)
	s := newSite(t)
	s.torture(bundle, 500, 5)
	s.checkBundles(1)
}

// torture plans n small objects and some large ones. It has workers pack them,
// some of which it kills.
func (s *site) torture(tortured Spec, n, kill int) {
	t := s.T
	s.some(n, 9000)
	for _, n := range []string{"large/1", "large/2", "large/3"} {
		s.put(n, 12<<20)
	}
	tortured.ChunkSize = 300_000
	p := s.plan(tortured)

	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	var mu sync.Mutex
	draw := func(n int) int {
		mu.Lock()
		defer mu.Unlock()
		return r.IntN(n)
	}
	chance := func(one int) bool { return draw(one) == 0 }
	hook := func(w http.ResponseWriter, req *http.Request) bool {
		switch {
		case chance(60):
			s3test.Refuse(w, req, http.StatusServiceUnavailable, "SlowDown")
			return true
		case chance(60):
			panic(http.ErrAbortHandler)
		}
		return false
	}
	s.Meet(hook)
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	start := func() *exec.Cmd {
		cmd := exec.Command(program)
		cmd.Env = append(os.Environ(), workEnv+"="+s.DB)
		cmd.Stderr = os.Stderr
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		return cmd
	}
	kills := 0
	workers := []*exec.Cmd{start(), start()}
	for range kill {
		time.Sleep(time.Duration(100+draw(300)) * time.Millisecond)
		i := draw(len(workers))
		_ = workers[i].Process.Kill()
		if workers[i].Wait() != nil {
			kills++
		}
		workers[i] = start()
	}
	for _, w := range workers {
		if err := w.Wait(); err != nil {
			t.Errorf("a worker that nobody killed: %v", err)
		}
	}
	t.Logf("%d chunks, %d workers killed", p.Chunks, kills)
	s.Meet(nil)
	if d := s.totals().States[catalog.ChunkDone]; d.Chunks != int64(p.Chunks) {
		t.Errorf("%d chunks of %d are done", d.Chunks, p.Chunks)
	}
}
