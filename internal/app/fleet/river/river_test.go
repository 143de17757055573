package river

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdall/holdall/internal/app/catalog"
	"github.com/holdall/holdall/internal/app/fleet"
	"github.com/holdall/holdall/internal/testkit"
	"github.com/holdall/holdall/internal/testkit/fleettest"
	"github.com/holdall/holdall/internal/testkit/pgtest"
	"github.com/holdall/holdall/store/storetest/s3test"

	_ "github.com/holdall/holdall/format/all"
	_ "github.com/holdall/holdall/store/all"
)

var (
	_ catalog.Queue = (*Queue)(nil)
	_ fleet.Feed    = (*Queue)(nil)
)

// A site is a server with objects to be packed, and a catalogue in PostgreSQL.
type site struct {
	*fleettest.Site
	q *Queue
}

func newSite(t testing.TB) *site {
	q := &Queue{Log: slog.New(slog.NewTextHandler(logged{t}, &slog.HandlerOptions{Level: slog.LevelError}))}
	return &site{fleettest.New(t, pgtest.Database(t), catalog.Options{Queue: q}), q}
}

// logged fails a test if anything is written to it.
type logged struct{ t testing.TB }

func (l logged) Write(b []byte) (int, error) {
	l.t.Errorf("River: %s", b)
	return len(b), nil
}

func (s *site) some(n, size int) {
	for i := range n {
		s.Put(fmt.Sprintf("data/%03d/%05d", i%7, i), bytes.Repeat([]byte{byte(i)}, i*7919%size+1))
	}
}

var spec = fleet.Spec{Sources: []string{"s3://from"}, Target: "s3://out/set.caf", ChunkSize: 20_000}

func (s *site) plan(spec fleet.Spec) fleet.Planned {
	s.T.Helper()
	p, err := fleet.Plan(s.T.Context(), s.C, spec, nil)
	if err != nil {
		s.T.Fatal(err)
	}
	return p
}

func (s *site) work(o fleet.WorkOptions) fleet.Worked {
	s.T.Helper()
	o.Feed = s.q
	sum, err := fleet.Work(s.T.Context(), s.C, o)
	if err != nil {
		s.T.Fatal(err)
	}
	return sum
}

// counted calls then after it has announced a number of chunks.
type counted struct {
	*Queue
	left int64
	then func()
}

func (c *counted) Feed(ctx context.Context, plan int64, n int, work func(ctx context.Context, chunk int64) (time.Duration, error)) (func(), error) {
	return c.Queue.Feed(ctx, plan, n, func(ctx context.Context, chunk int64) (time.Duration, error) {
		defer func() {
			if atomic.AddInt64(&c.left, -1) == 0 {
				c.then()
			}
		}()
		return work(ctx, chunk)
	})
}

// jobs returns the contents of River's table, by chunk and then in the order
// of insertion.
func (s *site) jobs() (all []string) {
	s.T.Helper()
	rows, err := s.q.pool.Query(s.T.Context(), "SELECT args->>'chunk' || ' ' || (args->>'fence') || ' ' || state || coalesce(': ' || (errors[1]->>'error'), '') FROM river_job ORDER BY (args->>'chunk')::bigint, id")
	if err == nil {
		all, err = pgx.CollectRows(rows, pgx.RowTo[string])
	}
	if err != nil {
		s.T.Fatal(err)
	}
	return all
}

// openJobs counts the jobs that River would hand out, or believes to be
// running.
func (s *site) openJobs() (n int) {
	s.T.Helper()
	if err := s.q.pool.QueryRow(s.T.Context(), "SELECT count(*) FROM river_job WHERE finalized_at IS NULL").Scan(&n); err != nil {
		s.T.Fatal(err)
	}
	return n
}

// TestChunksAreHandedOutByJobs checks that workers that hardly ever poll are
// notified of all chunks: only River can have announced them.
func TestChunksAreHandedOutByJobs(t *testing.T) {
	s := newSite(t)
	s.some(120, 3000)
	p := s.plan(spec)
	if n := s.openJobs(); n != p.Chunks || n < 5 {
		t.Errorf("%d jobs of %d chunks", n, p.Chunks)
	}
	ctx, stop := context.WithCancel(t.Context())
	var done atomic.Int64
	_, err := fleet.Work(ctx, s.C, fleet.WorkOptions{Feed: s.q, Workers: 3, Look: time.Hour, Tell: func(e fleet.Event) {
		if e.Err != nil {
			t.Error(e.Err)
		}
		if e.What == fleet.Done && int(done.Add(1)) == p.Chunks {
			stop()
		}
	}})
	if err != nil || int(done.Load()) != p.Chunks {
		t.Errorf("%d chunks of %d, %v", done.Load(), p.Chunks, err)
	}
	s.Check()
	for _, j := range s.jobs() {
		if !strings.HasSuffix(j, " 0 completed") {
			t.Error(j)
		}
	}
}

func TestWhoWaitsIsToldOfANewPlan(t *testing.T) {
	s := newSite(t)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	ended := make(chan error)
	finished := make(chan string, 10)
	one := spec
	one.Name = "one"
	s.Put("a", []byte("alpha"))
	p := s.plan(one)
	go func() {
		_, err := fleet.Work(ctx, s.C, fleet.WorkOptions{Plan: "one", Feed: s.q, Stay: true, Look: time.Hour, Tell: func(e fleet.Event) {
			if e.What == fleet.Done {
				finished <- e.Chunk.Name
			}
		}})
		ended <- err
	}()
	if name := <-finished; name != "s3://out/set-00001.caf" {
		t.Error(name)
	}
	s.Put("b", []byte("beta"))
	if again := s.plan(one); again.Chunks != 1 || again.Plan.ID != p.Plan.ID {
		t.Errorf("%+v", again)
	}
	if name := <-finished; name != "s3://out/set-00002.caf" {
		t.Error(name)
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	s.Check()
	// A worker on one plan leaves the jobs of other plans alone.
	two := spec
	two.Name, two.Target = "two", "s3://out/two.caf"
	s.plan(two)
	if sum := s.work(fleet.WorkOptions{Plan: "one", Look: 20 * time.Millisecond}); sum.Done != 0 {
		t.Errorf("%+v", sum)
	}
	if n := s.openJobs(); n != 1 {
		t.Errorf("%d jobs of another plan", n)
	}
}

func TestAChunkThatFailsIsAnotherJobEachTime(t *testing.T) {
	s := newSite(t)
	s.Put("a", []byte("alpha"))
	s.plan(spec)
	s.Meet(func(w http.ResponseWriter, r *http.Request) bool {
		if strings.HasPrefix(r.URL.Path, "/out/") && r.Method == http.MethodPut {
			s3test.Refuse(w, r, http.StatusForbidden, "AccessDenied")
			return true
		}
		return false
	})
	// It is told to stop after the first try, as the next would wait for River's
	// scheduler.
	ctx, stop := context.WithCancel(t.Context())
	sum, err := fleet.Work(ctx, s.C, fleet.WorkOptions{Feed: s.q, Pause: time.Millisecond, Look: time.Hour, Tell: func(e fleet.Event) {
		if e.What == fleet.Failed {
			stop()
		}
	}})
	if err != nil || sum.Failed != 1 {
		t.Errorf("%+v, %v", sum, err)
	}
	all := s.jobs()
	if len(all) != 2 || !strings.HasPrefix(all[0], "1 0 discarded: ") || !strings.Contains(all[0], "AccessDenied") || all[1] != "1 1 scheduled" {
		t.Errorf("%q", all)
	}
	s.Meet(nil)
	if sum := s.work(fleet.WorkOptions{Look: 100 * time.Millisecond}); sum.Done != 1 {
		t.Errorf("%+v", sum)
	}
	s.Check()
	if n := s.openJobs(); n != 0 {
		t.Errorf("%d jobs are open: %q", n, s.jobs())
	}
}

func TestJobsOfACancelledPlanEnd(t *testing.T) {
	s := newSite(t)
	s.some(40, 3000)
	p := s.plan(spec)
	if _, err := fleet.Cancel(t.Context(), s.C, p.Plan); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	if sum, err := fleet.Work(ctx, s.C, fleet.WorkOptions{Feed: &counted{Queue: s.q, left: int64(p.Chunks), then: stop}, Stay: true, Look: time.Hour}); err != nil || sum.Done != 0 {
		t.Errorf("%+v, %v", sum, err)
	}
	for _, j := range s.jobs() {
		if !strings.Contains(j, " cancelled: ") {
			t.Error(j)
		}
	}
}

// TestWorkersFindWhatNoJobTellsOf covers jobs that are gone, that never
// existed, or that belong to a dead worker.
func TestWorkersFindWhatNoJobTellsOf(t *testing.T) {
	s := newSite(t)
	s.some(60, 3000)
	p := s.plan(spec)
	if _, err := s.q.pool.Exec(t.Context(), "DELETE FROM river_job WHERE id % 2 = 0; UPDATE river_job SET state = 'running', attempt = 1, attempted_at = now(), attempted_by = '{dead}'"); err != nil {
		t.Fatal(err)
	}
	if _, err := s.C.Claim(t.Context(), catalog.Request{Owner: "dead", Lease: 300 * time.Millisecond}); err != nil {
		t.Fatal(err)
	}
	if sum := s.work(fleet.WorkOptions{Workers: 2, Look: 50 * time.Millisecond}); sum.Done != p.Chunks {
		t.Errorf("%+v of %d", sum, p.Chunks)
	}
	s.Check()
	if n := s.openJobs(); n != 0 {
		t.Errorf("%d jobs are open: %q", n, s.jobs())
	}
}

// TestALapsedChunkDoesNotWaitForTheQueueToBeEmpty checks that a chunk whose
// worker died comes before chunks that were never started, however many these
// are.
func TestALapsedChunkDoesNotWaitForTheQueueToBeEmpty(t *testing.T) {
	s := newSite(t)
	s.some(200, 3000)
	p := s.plan(spec)
	if p.Chunks < 10 {
		t.Fatal(p.Chunks)
	}
	ids := func() (ids []int64) {
		for k, err := range s.C.Chunks(t.Context(), p.Plan.ID) {
			if err != nil {
				t.Fatal(err)
			}
			ids = append(ids, k.ID)
		}
		return ids
	}()
	last := ids[len(ids)-1]
	if _, err := s.C.Claim(t.Context(), catalog.Request{Owner: "dead", Chunk: last}); err != nil { // which ends at once
		t.Fatal(err)
	}
	var order []int64
	s.work(fleet.WorkOptions{Look: 200 * time.Millisecond, Tell: func(e fleet.Event) {
		if e.What == fleet.Done {
			order = append(order, e.Chunk.ID)
		}
	}})
	if at := slices.Index(order, last); at != 0 {
		t.Errorf("it was packed after %d others", at)
	}
	s.Check()
}

func TestWhoIsToldToEndGivesItsJobsBack(t *testing.T) {
	s := newSite(t)
	s.some(60, 3000)
	s.plan(spec)
	ctx, stop := context.WithCancel(t.Context())
	s.Meet(func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method == http.MethodGet && r.URL.Path == "/from/data/004/00004" {
			stop()
			<-r.Context().Done()
			return true
		}
		return false
	})
	if _, err := fleet.Work(ctx, s.C, fleet.WorkOptions{Feed: s.q, Lease: time.Hour}); err != nil {
		t.Fatal(err)
	}
	s.Meet(nil)
	var running int
	if err := s.q.pool.QueryRow(t.Context(), "SELECT count(*) FROM river_job WHERE state = 'running'").Scan(&running); err != nil || running != 0 {
		t.Errorf("%d jobs are running, %v: %q", running, err, s.jobs())
	}
	s.work(fleet.WorkOptions{Look: 100 * time.Millisecond})
	s.Check()
}

// TestTwoDozenProcessesTakeFewConnections has two dozen machines share a
// database of a hundred connections, some of which are reserved for its
// administrators.
func TestTwoDozenProcessesTakeFewConnections(t *testing.T) {
	s := newSite(t)
	s.some(400, 3000)
	p := s.plan(spec)
	pool, err := pgxpool.New(t.Context(), s.DB)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	var wg, watching sync.WaitGroup
	var done atomic.Int64
	ctx, cancel := context.WithCancel(t.Context())
	most := 0
	watching.Go(func() {
		for ctx.Err() == nil {
			n := 0
			if err := pool.QueryRow(ctx, "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'holdall' AND datname = current_database()").Scan(&n); err == nil {
				most = max(most, n)
			}
		}
	})
	s.C.Close()
	for range 24 {
		q := &Queue{}
		c := s.Open(catalog.Options{Queue: q, Workers: 1})
		wg.Go(func() {
			sum, err := fleet.Work(t.Context(), c, fleet.WorkOptions{Feed: q, Lease: time.Second, Look: 500 * time.Millisecond})
			if err != nil {
				t.Error(err)
			}
			done.Add(int64(sum.Done))
		})
	}
	wg.Wait()
	cancel()
	watching.Wait()
	if done.Load() != int64(p.Chunks) || p.Chunks < 24 {
		t.Errorf("%d of %d chunks are done", done.Load(), p.Chunks)
	}
	if most < 24 || most > 24*4 {
		t.Errorf("%d connections were open, expected up to 4 of each", most)
	}
	t.Logf("%d connections", most)
	s.C = s.Open(catalog.Options{})
	s.Check()
}

func TestTablesOfANewerRiverAreRefused(t *testing.T) {
	s := newSite(t)
	if _, err := s.q.pool.Exec(t.Context(), "INSERT INTO river_migration (line, version) VALUES ('main', 99)"); err != nil {
		t.Fatal(err)
	}
	_, err := catalog.Open(t.Context(), s.DB, catalog.Options{Queue: &Queue{}})
	if v, ok := errors.AsType[*VersionError](err); !ok || v.Found != 99 || !strings.Contains(err.Error(), "written by a newer holdall") {
		t.Error(err)
	}
	// A reader, which needs no queue, continues.
	c, err := catalog.Open(t.Context(), s.DB, catalog.Options{})
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
}

func TestTablesAreMadeOnceWhoeverComes(t *testing.T) {
	db := pgtest.Database(t)
	if err := catalog.Create(t.Context(), db); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			c, err := catalog.Open(t.Context(), db, catalog.Options{Queue: &Queue{}})
			if err != nil {
				t.Error(err)
				return
			}
			c.Close()
		})
	}
	wg.Wait()
	// A migration that is interrupted between two steps is continued.
	pool, err := pgxpool.New(t.Context(), db+"?search_path=holdall")
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	if _, err := pool.Exec(t.Context(), "DROP TABLE river_notification; DELETE FROM river_migration WHERE version >= 7; CREATE TABLE river_client(); CREATE TABLE river_client_queue()"); err != nil {
		t.Fatal(err)
	}
	c, err := catalog.Open(t.Context(), db, catalog.Options{Queue: &Queue{}})
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
	if v, err := version(t.Context(), pool); err != nil || v < 8 {
		t.Errorf("version %d, %v", v, err)
	}
}

func TestSchemasOfOtherNames(t *testing.T) {
	for name, fine := range map[string]bool{"Mixed_Case": true, "two": true, "with space": false, strings.Repeat("x", 60): false} {
		db := pgtest.Database(t) + "?schema=" + strings.ReplaceAll(name, " ", "%20")
		if err := catalog.Create(t.Context(), db); err != nil {
			t.Fatal(err)
		}
		c, err := catalog.Open(t.Context(), db, catalog.Options{Queue: &Queue{}})
		if (err == nil) != fine || err != nil && !strings.Contains(err.Error(), "Schema") {
			t.Errorf("%s: %v", name, err)
		}
		if err != nil {
			continue
		}
		p, err := c.AddPlan(t.Context(), catalog.Plan{Name: "p"})
		if err == nil {
			_, err = c.AddChunks(t.Context(), p.ID, []catalog.NewChunk{{Name: "odd \xff\x00 name"}})
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		c.Close()
	}
}

// workEnv makes this program a worker on a catalogue, to be killed.
const workEnv = "HOLDALL_RIVER_WORK"

func beWorker(db string) error {
	ctx := context.Background()
	q := &Queue{}
	c, err := catalog.Open(ctx, db, catalog.Options{Queue: q})
	if err != nil {
		return err
	}
	defer c.Close()
	_, err = fleet.Work(ctx, c, fleet.WorkOptions{Feed: q, Workers: 2, Lease: 500 * time.Millisecond, Pause: 10 * time.Millisecond, Look: 100 * time.Millisecond, Tries: 50})
	return err
}

// TestWhateverIsKilledEachObjectIsInOneChunk kills workers at any moment,
// including River's leader, and closes their connections.
func TestWhateverIsKilledEachObjectIsInOneChunk(t *testing.T) {
	testkit.Long(t)
	s := newSite(t)
	s.some(200, 9000)
	for i := range 2 {
		s.Put(fmt.Sprintf("large/%d", i), bytes.Repeat([]byte{byte(i)}, 8<<20))
	}
	p := s.plan(spec)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	var mu sync.Mutex
	s.Meet(func(w http.ResponseWriter, req *http.Request) bool {
		mu.Lock()
		fate := r.IntN(100)
		mu.Unlock()
		switch fate {
		case 0:
			s3test.Refuse(w, req, http.StatusServiceUnavailable, "SlowDown")
		case 1:
			panic(http.ErrAbortHandler)
		}
		return fate == 0
	})
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	start := func() *exec.Cmd {
		cmd := exec.Command(program)
		cmd.Env = append(os.Environ(), workEnv+"="+s.DB+"?application_name=worker")
		cmd.Stderr = os.Stderr
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		return cmd
	}
	kills := 0
	workers := []*exec.Cmd{start(), start()}
	for n := range 6 {
		mu.Lock()
		pause, i := 150+r.IntN(300), r.IntN(len(workers))
		mu.Unlock()
		time.Sleep(time.Duration(pause) * time.Millisecond)
		_ = workers[i].Process.Kill()
		if workers[i].Wait() != nil {
			kills++
		}
		workers[i] = start()
		// For workers, a restart of the server looks the same.
		if _, err := s.q.pool.Exec(t.Context(), "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'worker' AND $1", n == 2); err != nil {
			t.Error(err)
		}
	}
	for _, w := range workers {
		if err := w.Wait(); err != nil {
			t.Errorf("a worker that nobody killed: %v", err)
		}
	}
	t.Logf("%d chunks, %d workers killed, %d jobs", p.Chunks, kills, len(s.jobs()))
	s.Meet(nil)
	totals, err := s.C.Totals(t.Context(), p.Plan.ID)
	if d := totals.States[catalog.ChunkDone]; err != nil || d.Chunks != int64(p.Chunks) {
		t.Errorf("%d chunks of %d are done, %v", d.Chunks, p.Chunks, err)
	}
	s.Check()
	if n := s.openJobs(); n != 0 {
		t.Errorf("%d jobs are open: %q", n, s.jobs())
	}
}

// BenchmarkTinyChunks measures the time per chunk apart from its contents.
func BenchmarkTinyChunks(b *testing.B) {
	for _, workers := range []int{1, 4} {
		for _, queue := range []string{"leases", "river"} {
			b.Run(fmt.Sprintf("%s/workers=%d", queue, workers), func(b *testing.B) {
				const n = 1000
				var planning, working time.Duration
				for b.Loop() {
					s := newSite(b)
					for i := range n {
						s.S3.Put("from", fmt.Sprintf("%05d", i), []byte("x"))
					}
					tiny := spec
					tiny.ChunkObjects = 1
					o := fleet.WorkOptions{Workers: workers}
					if queue == "river" {
						o.Feed = s.q
					} else {
						var err error
						if s.C, err = catalog.Open(b.Context(), s.DB, catalog.Options{}); err != nil {
							b.Fatal(err)
						}
						defer s.C.Close()
					}
					begun := time.Now()
					s.plan(tiny)
					planned := time.Now()
					planning += planned.Sub(begun)
					ctx, stop := context.WithCancel(b.Context())
					done := 0
					o.Tell = func(e fleet.Event) {
						if e.What == fleet.Done {
							if done++; done == n {
								working += time.Since(planned)
								stop()
							}
						}
					}
					if _, err := fleet.Work(ctx, s.C, o); err != nil || done != n {
						b.Fatal(done, err)
					}
				}
				b.ReportMetric(float64(planning.Microseconds())/1000/n/float64(b.N), "plan-ms/chunk")
				b.ReportMetric(float64(working.Microseconds())/1000/n/float64(b.N), "work-ms/chunk")
				b.ReportMetric(0, "ns/op")
			})
		}
	}
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
