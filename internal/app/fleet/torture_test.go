package fleet

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/holdall/holdall/internal/app/catalog/book"
	"github.com/holdall/holdall/internal/app/fleet/queue"
	"github.com/holdall/holdall/internal/testkit"
	"github.com/holdall/holdall/internal/testkit/fleettest"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storetest/s3test"
)

// workEnv makes this program a worker on a catalogue, to be killed.
const workEnv = "HOLDALL_FLEET_WORK"

func beWorker(db string) error {
	ctx := context.Background()
	least = time.Second
	st, name, err := store.OpenAddress(ctx, fleettest.Catalogue)
	if err != nil {
		return err
	}
	b, err := book.Open(ctx, st, name, book.Options{Write: true})
	if err != nil {
		return err
	}
	q, err := queue.Open(ctx, db, queue.Options{Pause: 10 * time.Millisecond, Look: 20 * time.Millisecond, Grace: 500 * time.Millisecond})
	if err != nil {
		return err
	}
	defer q.Close()
	_, err = Work(ctx, Fleet{b, q}, WorkOptions{Workers: 2, Tries: 50})
	return errors.Join(err, b.Close())
}

func TestMain(m *testing.M) {
	if db := os.Getenv(workEnv); db != "" {
		if err := beWorker(db); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// TestWhateverIsKilledABundleHasEachObjectOnce kills workers one after the
// other, at any moment, while the server refuses requests, breaks connections
// and omits responses. interop/fleet does that to chunks, and TestHistories to all that a fleet does.
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
	was := least
	least = time.Second
	p := s.plan(tortured)
	least = was

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
	if is := s.status(); is.Waiting > 0 || len(is.Jobs) > 0 {
		t.Errorf("%+v", is)
	}
}
