package queue

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver"
	"github.com/riverqueue/river/rivertype"

	"github.com/holdall/holdall/internal/testkit"
	"github.com/holdall/holdall/internal/testkit/pgtest"
)

// child names the queue of a process that begins one job and never ends.
const child = "HOLDALL_TEST_QUEUE"

func TestMain(m *testing.M) {
	if address := os.Getenv(child); address != "" {
		q, err := Open(context.Background(), address, Options{})
		if err == nil {
			q.follower = os.Getenv("REAL") == ""
			err = q.Work(context.Background(), WorkOptions{Kinds: kinds}, func(ctx context.Context, j Job) error {
				fmt.Println("begun")
				select {}
			})
		}
		fmt.Println(err)
		os.Exit(1)
	}
	testkit.Main(m)
}

var kinds = []string{"list", "pack"}

// both runs a test with a queue in a file and with one in PostgreSQL.
func both(t *testing.T, do func(t *testing.T, address string)) {
	t.Run("sqlite", func(t *testing.T) { do(t, filepath.Join(t.TempDir(), "queue ?#%41 ä.db")) })
	t.Run("postgres", func(t *testing.T) { do(t, pgtest.Database(t)) })
}

// logged fails a test if River reports an error, except that something took longer than it waits, after
// which it tries again: machines may be slow.
type logged struct{ t testing.TB }

func (l logged) Write(b []byte) (int, error) {
	if !bytes.Contains(b, []byte("context deadline exceeded")) {
		l.t.Errorf("River: %s", b)
	}
	return len(b), nil
}

// quiet opens a queue with short times.
func quiet(t testing.TB, address string) *Queue {
	t.Helper()
	q, err := Open(t.Context(), address, Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := q.Close(); err != nil {
			t.Error(err)
		}
	})
	q.grace, q.look, q.poll, q.pause = 200*time.Millisecond, 20*time.Millisecond, 20*time.Millisecond, time.Millisecond
	return q
}

// open is quiet for a queue of which River must report no error.
func open(t testing.TB, address string) *Queue {
	t.Helper()
	q := quiet(t, address)
	q.log = slog.New(slog.NewTextHandler(logged{t}, &slog.HandlerOptions{Level: slog.LevelError}))
	return q
}

func job(kind, name string) Job { return Job{Plan: "s3://out/set.caf", Kind: kind, Name: name} }

func add(t testing.TB, q *Queue, want int, jobs ...Job) {
	t.Helper()
	if n, err := q.Add(t.Context(), jobs...); err != nil || n != want {
		t.Errorf("%d jobs added, expected %d, %v", n, want, err)
	}
}

func work(t testing.TB, q *Queue, o WorkOptions, do func(ctx context.Context, j Job) error) {
	t.Helper()
	if o.Kinds == nil {
		o.Kinds = kinds
	}
	if err := q.Work(t.Context(), o, do); err != nil {
		t.Fatal(err)
	}
}

func nothing(context.Context, Job) error { return nil }

// states returns the jobs of a plan, one line each.
func states(t testing.TB, q *Queue, plan string) (all []string) {
	t.Helper()
	for s, err := range q.Jobs(t.Context(), plan) {
		if err != nil {
			t.Fatal(err)
		}
		if s.Since.IsZero() || s.Plan != plan {
			t.Errorf("%+v", s)
		}
		all = append(all, strings.TrimSuffix(fmt.Sprintf("%s %s %s %d: %s", s.Kind, s.Name, s.Status, s.Attempt, s.Problem), ": "))
	}
	return all
}

func expect(t testing.TB, q *Queue, plan string, want ...string) {
	t.Helper()
	if got := states(t, q, plan); !slices.Equal(got, want) {
		t.Errorf("expected %q, found %q", want, got)
	}
}

const plan = "s3://out/set.caf"

func TestNamesOfUnfinishedJobsAreUnique(t *testing.T) {
	both(t, func(t *testing.T, address string) {
		q := open(t, address)
		add(t, q, 2, job("list", "a"), job("list", "b"), job("pack", "a"))
		add(t, q, 1, job("pack", "a"), job("pack", "c"))
		elsewhere := job("list", "a")
		elsewhere.Plan = "s3-out-set-caf"
		add(t, q, 1, elsewhere)
		expect(t, q, plan, "list a waiting 0", "list b waiting 0", "pack c waiting 0")
		work(t, q, WorkOptions{Plans: []string{plan}}, func(_ context.Context, j Job) error {
			switch j.Name {
			case "b":
				add(t, q, 0, j) // while it runs
			case "c":
				return Never(errors.New("no"))
			}
			return nil
		})
		expect(t, q, plan, "pack c set aside 1: no")
		expect(t, q, elsewhere.Plan, "list a waiting 0")
		// The name of a job that is done is free again, that of one set aside is not.
		add(t, q, 2, job("list", "a"), job("list", "b"), job("list", "c"))
		expect(t, q, plan, "pack c set aside 1: no", "list a waiting 0", "list b waiting 0")
		// So is the name of one that was cancelled.
		if n, err := q.Cancel(t.Context(), plan); n != 3 || err != nil {
			t.Error(n, err)
		}
		expect(t, q, plan)
		add(t, q, 3, job("list", "a"), job("list", "b"), job("list", "c"))
	})
}

func TestJobsAreHandedOutAsTheyWereAdded(t *testing.T) {
	testkit.Serial(t)
	both(t, func(t *testing.T, address string) {
		q := open(t, address)
		jobs := []Job{}
		for i, plan := range []string{"a", "A", "a b", "a/b", "a-b", "-", "äöü 日本", "\xff\x00\n", `x'y"z\`, strings.Repeat("n", 300), strings.Repeat("n", 299) + "m"} {
			for _, args := range []string{`{"a":[1,"x"]}`, `"\u0000"`, `{"\ud800":1}`, ` "text"`, `null`, ``} {
				j := Job{Plan: plan, Kind: "list", Name: fmt.Sprintf("%d%s %s", i, plan, args), Args: json.RawMessage(args), Long: time.Duration(i+1) * time.Second}
				if args == "" {
					j.Args, j.Long = nil, 0
				}
				jobs = append(jobs, j)
			}
		}
		add(t, q, len(jobs), jobs...)
		var mu sync.Mutex
		found := map[string]Job{}
		work(t, q, WorkOptions{Workers: 4}, func(_ context.Context, j Job) error {
			mu.Lock()
			defer mu.Unlock()
			found[j.Name] = j
			return nil
		})
		for _, j := range jobs {
			got := found[j.Name]
			j.Attempt = 1
			if j.Long == 0 {
				j.Long = time.Minute
			}
			var a, b any
			if json.Unmarshal(j.Args, &a); len(j.Args) > 0 {
				if err := json.Unmarshal(got.Args, &b); err != nil {
					t.Errorf("%q: %v", got.Args, err)
				}
			}
			if got.Args, j.Args = nil, nil; !reflect.DeepEqual(got, j) || !reflect.DeepEqual(a, b) {
				t.Errorf("expected %+v %v, found %+v %v", j, a, got, b)
			}
		}
	})
}

func TestBadJobsAreRefused(t *testing.T) {
	q := open(t, filepath.Join(t.TempDir(), "q"))
	for _, j := range []Job{
		{}, {Plan: "p", Kind: "list"}, {Kind: "list", Name: "n"}, {Plan: "p", Name: "n"}, {Plan: "p", Kind: "a b", Name: "n"}, {Plan: "p", Kind: ".a", Name: "n"},
		{Plan: "p", Kind: strings.Repeat("k", 101), Name: "n"}, {Plan: "p", Kind: "list", Name: strings.Repeat("n", 4097)}, {Plan: strings.Repeat("n", 4097), Kind: "list", Name: "n"},
		{Plan: "p", Kind: "list", Name: "n", Long: -1}, {Plan: "p", Kind: "list", Name: "n", Long: 25 * time.Hour},
		{Plan: "p", Kind: "list", Name: "n", Args: json.RawMessage("{")}, {Plan: "p", Kind: "list", Name: "n", Args: json.RawMessage("\"\xff\"")},
		{Plan: "p", Kind: "list", Name: "n", Args: json.RawMessage(`"` + strings.Repeat("x", 64<<10) + `"`)},
	} {
		if n, err := q.Add(t.Context(), job("list", "good"), j); n != 0 || err == nil || strings.Contains(err.Error(), "\n") {
			t.Errorf("%d added, %v", n, err)
		}
	}
	if err := q.Work(t.Context(), WorkOptions{Kinds: []string{"a b"}}, nothing); err == nil {
		t.Error("kinds: no error")
	}
	if err := q.Work(t.Context(), WorkOptions{}, nothing); err == nil {
		t.Error("no kinds: no error")
	}
}

func TestJobsThatFailAreSetAside(t *testing.T) {
	both(t, func(t *testing.T, address string) {
		q := quiet(t, address) // the panic is logged
		add(t, q, 4, job("pack", "bad"), job("pack", "worse"), job("pack", "later"), job("list", "once"))
		var events []string
		tries := map[string]int{}
		o := WorkOptions{Tries: 3, Tell: func(e Event) {
			if e.What != Started {
				events = append(events, fmt.Sprintf("%s %s %d %v", e.Job.Name, e.What, e.Job.Attempt, e.Err))
			}
		}}
		do := func(_ context.Context, j Job) error {
			tries[j.Name]++
			switch {
			case j.Name == "bad":
				return fmt.Errorf("bad\x00\xff\n %d", tries[j.Name])
			case j.Name == "worse":
				return fmt.Errorf("wrapped: %w", Never(errors.New("worse")))
			case j.Name == "later" && tries[j.Name] < 8:
				return Again(time.Millisecond)
			case j.Name == "once" && tries[j.Name] == 1:
				panic("once")
			}
			return nil
		}
		work(t, q, o, do)
		slices.Sort(events)
		want := []string{
			"bad failed 1 bad\x00\xff\n 1", "bad failed 2 bad\x00\xff\n 2", "bad set aside 3 bad\x00\xff\n 3", "worse set aside 1 worse",
			"later put off 1 <nil>", "later put off 1 <nil>", "later put off 1 <nil>", "later put off 1 <nil>", "later put off 1 <nil>", "later put off 1 <nil>", "later put off 1 <nil>",
			"later done 1 <nil>", "once failed 1 panic: once", "once done 2 <nil>",
		}
		if slices.Sort(want); !slices.Equal(events, want) {
			t.Errorf("%q", events)
		}
		expect(t, q, plan, `pack bad set aside 3: bad\x00\xff\x0a 3`, "pack worse set aside 1: worse")
		if c, err := q.Counts(t.Context(), plan); err != nil || len(c) != 1 || len(c["pack"]) != 1 || c["pack"][SetAside] != 2 {
			t.Errorf("%v, %v", c, err)
		}
		// River would remove them after a week.
		if _, err := q.db.ExecContext(t.Context(), "UPDATE river_job SET finalized_at = '2001-01-01 00:00:00'"); err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- q.Work(ctx, WorkOptions{Kinds: kinds, Stay: true}, do) }()
		testkit.Until(t, "River removes old jobs that are done", func() (gone bool) {
			return q.db.QueryRowContext(ctx, "SELECT count(*) = 0 FROM river_job WHERE state = 'completed'").Scan(&gone) == nil && gone
		})
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if n, err := q.Retry(t.Context(), plan); n != 2 || err != nil {
			t.Error(n, err)
		}
		expect(t, q, plan, `pack bad waiting 0: bad\x00\xff\x0a 3`, "pack worse waiting 0: worse")
		work(t, q, o, do)
		expect(t, q, plan, `pack bad set aside 3: bad\x00\xff\x0a 6`, "pack worse set aside 1: worse")
		if n, err := q.Retry(t.Context(), "another"); n != 0 || err != nil {
			t.Error(n, err)
		}
	})
}

func TestAJobWaitsLongerAfterEachFailure(t *testing.T) {
	q := open(t, filepath.Join(t.TempDir(), "q"))
	q.pause = 5 * time.Second
	w := &worker{q: q, o: WorkOptions{Tries: 100}, stopping: t.Context(), do: func(context.Context, Job) error { return errors.New("no") }}
	for attempt, want := range []time.Duration{5 * time.Second, 20 * time.Second, 80 * time.Second, 320 * time.Second, 1280 * time.Second, time.Hour, time.Hour, 49: time.Hour} {
		if want == 0 {
			continue
		}
		now := q.now()
		j := &river.Job[arguments]{JobRow: &rivertype.JobRow{Attempt: attempt + 1, AttemptedAt: &now}, Args: arguments{Long: time.Minute}}
		if err := w.Work(t.Context(), j); err == nil || j.Args.again != want {
			t.Errorf("attempt %d: %s, %v", attempt+1, j.Args.again, err)
		}
	}
}

func TestJobsAddJobs(t *testing.T) {
	both(t, func(t *testing.T, address string) {
		q := open(t, address)
		add(t, q, 1, job("list", "x"))
		var n atomic.Int64
		work(t, q, WorkOptions{Workers: 3}, func(ctx context.Context, j Job) error {
			n.Add(1)
			if len(j.Name) < 5 {
				add(t, q, 2, job("pack", j.Name+"0"), job("pack", j.Name+"1"))
				other := job("pack", "other "+j.Name)
				other.Plan = j.Name
				add(t, q, 1, other)
			}
			return nil
		})
		if n.Load() < 31 {
			t.Errorf("%d jobs", n.Load())
		}
		if live, err := q.live(t.Context()); err != nil || len(live) != 0 {
			t.Error(live, err)
		}
	})
}

func TestWorkEndsWhenOthersHaveEnded(t *testing.T) {
	both(t, func(t *testing.T, address string) {
		first, second := open(t, address), open(t, address)
		add(t, first, 1, job("pack", "a"))
		begun, end := make(chan bool), make(chan bool)
		var over atomic.Bool
		ended := make(chan error, 2)
		go func() {
			ended <- first.Work(t.Context(), WorkOptions{Kinds: kinds}, func(context.Context, Job) error {
				close(begun)
				<-end
				over.Store(true)
				return nil
			})
		}()
		<-begun
		expect(t, second, plan, "pack a running 1")
		go func() {
			err := second.Work(t.Context(), WorkOptions{Kinds: kinds}, nothing)
			if !over.Load() {
				t.Error("it ended while another had a job")
			}
			ended <- err
		}()
		for range 20 {
			if _, err := second.live(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		close(end)
		for range 2 {
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
	})
}

func TestAWorkerMayServeSomePlansAndKinds(t *testing.T) {
	both(t, func(t *testing.T, address string) {
		q := open(t, address)
		one, two := job("pack", "a"), job("pack", "a")
		one.Plan, two.Plan = "one", "two"
		unknown := job("future", "b")
		unknown.Plan = "two"
		add(t, q, 3, one, two, unknown)
		work(t, q, WorkOptions{Plans: []string{"one", "none"}}, nothing)
		expect(t, q, "one")
		expect(t, q, "two", "pack a waiting 0", "future b waiting 0")
		// It waits for a plan that does not exist yet.
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		served := make(chan string, 1)
		ended := make(chan error)
		go func() {
			ended <- q.Work(ctx, WorkOptions{Kinds: kinds, Stay: true}, func(_ context.Context, j Job) error {
				served <- j.Plan
				return nil
			})
		}()
		if plan := <-served; plan != "two" {
			t.Error(plan)
		}
		three := job("pack", "c")
		three.Plan = "three"
		add(t, q, 1, three)
		if plan := <-served; plan != "three" {
			t.Error(plan)
		}
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		expect(t, q, "two", "future b waiting 0")
	})
}

// TestQueuesWithoutJobsAreForgotten checks that a plan that was not looked at any more is served
// when it has jobs again.
func TestQueuesWithoutJobsAreForgotten(t *testing.T) {
	both(t, func(t *testing.T, address string) {
		q := open(t, address)
		q.idle, q.look = 0, time.Millisecond
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		served, ended := make(chan string), make(chan error)
		go func() {
			ended <- q.Work(ctx, WorkOptions{Kinds: kinds, Stay: true}, func(_ context.Context, j Job) error {
				served <- j.Name
				return nil
			})
		}()
		for i := range 10 {
			name := fmt.Sprint(i)
			add(t, q, 1, job("pack", name))
			if got := <-served; got != name {
				t.Error(got)
			}
			if i%2 == 0 {
				testkit.Until(t, "the job is done", func() bool { live, err := q.live(t.Context()); return err == nil && len(live) == 0 })
			}
		}
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// flaky is a database that is away when River begins with a queue.
type flaky struct {
	engine
	left atomic.Int64
}

func (f *flaky) client(c *river.Config, wrap func(riverdriver.Executor) riverdriver.Executor) (client, error) {
	return f.engine.client(c, func(exec riverdriver.Executor) riverdriver.Executor { return away{wrap(exec), f} })
}

type away struct {
	riverdriver.Executor
	f *flaky
}

func (a away) QueueCreateOrSetUpdatedAt(ctx context.Context, p *riverdriver.QueueCreateOrSetUpdatedAtParams) (*rivertype.Queue, error) {
	if p.Name != "none" && a.f.left.Add(-1) >= 0 {
		return nil, errors.New("it is away")
	}
	return a.Executor.QueueCreateOrSetUpdatedAt(ctx, p)
}

func TestAQueueThatCouldNotBeServedIsTriedAgain(t *testing.T) {
	both(t, func(t *testing.T, address string) {
		q := quiet(t, address)
		f := &flaky{engine: q.engine}
		f.left.Store(3)
		q.engine = f
		add(t, q, 1, job("pack", "a"))
		n := 0
		work(t, q, WorkOptions{}, func(context.Context, Job) error {
			n++
			return nil
		})
		if n != 1 || f.left.Load() >= 0 {
			t.Error(n, f.left.Load())
		}
	})
}

func TestCancelRemovesJobsAndStopsThoseThatRun(t *testing.T) {
	both(t, func(t *testing.T, address string) {
		q, other := open(t, address), open(t, address)
		add(t, q, 3, job("pack", "a"), job("pack", "b"), job("pack", "c"))
		begun := make(chan string, 3)
		var events []What
		ended := make(chan error)
		go func() {
			ended <- q.Work(t.Context(), WorkOptions{Kinds: kinds, Tell: func(e Event) { events = append(events, e.What) }}, func(ctx context.Context, j Job) error {
				begun <- j.Name
				<-ctx.Done()
				return ctx.Err()
			})
		}()
		<-begun
		if c, err := other.Counts(t.Context(), plan); err != nil || c["pack"][Running] != 1 || c["pack"][Waiting] != 2 {
			t.Errorf("%v, %v", c, err)
		}
		if n, err := other.Cancel(t.Context(), plan); n != 3 || err != nil {
			t.Error(n, err)
		}
		if err := <-ended; err != nil || !slices.Equal(events, []What{Started, Cancelled}) {
			t.Error(events, err)
		}
		expect(t, q, plan)
	})
}

func TestAWorkerThatIsStoppedGivesItsJobsBack(t *testing.T) {
	both(t, func(t *testing.T, address string) {
		q := open(t, address)
		add(t, q, 2, job("pack", "a"), job("pack", "b"))
		ctx, stop := context.WithCancel(t.Context())
		begun := make(chan string, 2)
		ended := make(chan error)
		var given atomic.Int64
		go func() {
			ended <- q.Work(ctx, WorkOptions{Kinds: kinds, Workers: 2, Tell: func(e Event) {
				if e.What == GivenBack {
					given.Add(1)
				}
			}}, func(ctx context.Context, j Job) error {
				begun <- j.Name
				<-ctx.Done()
				return errors.New("the connection was closed")
			})
		}()
		<-begun
		<-begun
		stop()
		if err := <-ended; err != nil || given.Load() != 2 {
			t.Error(given.Load(), err)
		}
		expect(t, q, plan, "pack a waiting 0", "pack b waiting 0")
		work(t, q, WorkOptions{Tries: 1}, func(_ context.Context, j Job) error {
			if j.Attempt != 1 {
				t.Errorf("%+v", j)
			}
			return nil
		})
	})
}

// row returns the only job of River's table.
func row(t *testing.T, q *Queue) *rivertype.JobRow {
	t.Helper()
	all, err := q.client.JobList(t.Context(), river.NewJobListParams())
	if err != nil || len(all.Jobs) != 1 {
		t.Fatal(len(all.Jobs), err)
	}
	return all.Jobs[0]
}

func TestAJobThatTakesTooLongGetsTwiceTheTime(t *testing.T) {
	both(t, func(t *testing.T, address string) {
		q := open(t, address)
		q.grace = time.Minute
		j := job("pack", "a")
		j.Long = 100 * time.Millisecond
		add(t, q, 1, j)
		var limits []time.Duration
		work(t, q, WorkOptions{Tell: func(e Event) {
			if e.What != Started && e.What != Done && !strings.HasPrefix(e.Err.Error(), fmt.Sprintf("it took longer than %s: ", limits[len(limits)-1])) {
				t.Errorf("%+v", e)
			}
		}}, func(ctx context.Context, j Job) error {
			r := row(t, q)
			limits = append(limits, limitOf(r))
			w := &worker{q: q}
			if got := w.Timeout(&river.Job[arguments]{JobRow: r, Args: arguments{Long: j.Long}}); got != limitOf(r)+q.grace {
				t.Errorf("rescued after %s", got)
			}
			if len(limits) == 3 {
				return nil
			}
			<-ctx.Done()
			return ctx.Err()
		})
		if want := []time.Duration{100 * time.Millisecond, 200 * time.Millisecond, 400 * time.Millisecond}; !slices.Equal(limits, want) {
			t.Error(limits)
		}
	})
}

// old waits until a running job is so old that its worker is taken for dead.
func old(t *testing.T, q *Queue) {
	t.Helper()
	testkit.Until(t, "a job that is too old", func() bool {
		r := row(t, q)
		return q.now().After(r.AttemptedAt.Add(limitOf(r) + q.grace))
	})
}

func TestTheJobOfAKilledWorkerIsTakenOver(t *testing.T) {
	both(t, func(t *testing.T, address string) {
		q := open(t, address)
		j := job("pack", "a")
		j.Long = 100 * time.Millisecond
		add(t, q, 1, j)
		cmd := exec.CommandContext(t.Context(), os.Args[0])
		cmd.Env = append(os.Environ(), child+"="+address)
		cmd.Stderr = os.Stderr
		out, err := cmd.StdoutPipe()
		if err == nil {
			err = cmd.Start()
		}
		if err != nil {
			t.Fatal(err)
		}
		line, err := bufio.NewReader(out).ReadString('\n')
		if err != nil || line != "begun\n" {
			rest, _ := io.ReadAll(out)
			t.Fatalf("%q %s %v", line, rest, err)
		}
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait() // it was killed
		expect(t, q, plan, "pack a running 1")
		old(t, q)
		n := 0
		work(t, q, WorkOptions{Tries: 2}, func(_ context.Context, j Job) error {
			n++
			if j.Attempt != 2 || j.Name != "a" {
				t.Errorf("%+v", j)
			}
			return nil
		})
		if n != 1 {
			t.Errorf("%d times", n)
		}
	})
}

// TestAJobWhoseWorkersDieIsSetAside covers a job that kills its workers.
func TestAJobWhoseWorkersDieIsSetAside(t *testing.T) {
	both(t, func(t *testing.T, address string) {
		q := open(t, address)
		add(t, q, 1, job("pack", "a"))
		if _, err := q.db.ExecContext(t.Context(), "UPDATE river_job SET state = 'running', attempt = 5, attempted_at = '2001-01-01 00:00:00'"); err != nil {
			t.Fatal(err)
		}
		work(t, q, WorkOptions{}, func(context.Context, Job) error {
			t.Error("it was tried again")
			return nil
		})
		if s := states(t, q, plan); len(s) != 1 || !strings.HasPrefix(s[0], "pack a set aside 6: expected at most 5 attempts") {
			t.Errorf("%q", s)
		}
	})
}

// TestALateWorkerDoesNotTakeAJobFromAnother checks that the failure of a worker whose job was
// given to another one leaves the job with that one.
func TestALateWorkerDoesNotTakeAJobFromAnother(t *testing.T) {
	both(t, func(t *testing.T, address string) {
		late, q := open(t, address), open(t, address)
		late.follower = true
		j := job("pack", "a")
		j.Long = 100 * time.Millisecond
		add(t, q, 1, j)
		begun, end, ended := make(chan int, 2), make(chan bool), make(chan error, 2)
		ctx, stop := context.WithCancel(t.Context())
		go func() {
			ended <- late.Work(ctx, WorkOptions{Kinds: kinds}, func(context.Context, Job) error {
				begun <- 1
				<-end
				return errors.New("late")
			})
		}()
		<-begun
		old(t, q)
		if _, err := q.db.ExecContext(t.Context(), "UPDATE river_job SET args = "+map[bool]string{true: "jsonb_set(args, '{long_ns}', '3600000000000')", false: "jsonb_set(args, '$.long_ns', 3600000000000)"}[strings.HasPrefix(address, "postgres:")]); err != nil {
			t.Fatal(err)
		}
		if _, err := q.db.ExecContext(t.Context(), "UPDATE river_job SET attempted_at = '2001-01-01 00:00:00'"); err != nil {
			t.Fatal(err)
		}
		release := make(chan bool)
		go func() {
			ended <- q.Work(t.Context(), WorkOptions{Kinds: kinds}, func(context.Context, Job) error {
				begun <- 2
				<-release
				return nil
			})
		}()
		<-begun
		close(end)
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		expect(t, q, plan, "pack a running 2: Stuck job rescued by JobRescuer")
		close(release)
		if err := <-ended; err != nil {
			t.Error(err)
		}
		expect(t, q, plan)
	})
}

func TestEachJobIsDoneOnce(t *testing.T) {
	both(t, func(t *testing.T, address string) {
		n := testkit.Rounds(t, 2000)
		var mu sync.Mutex
		done := map[string]int{}
		var jobs []Job
		for i := range n {
			jobs = append(jobs, Job{Plan: fmt.Sprint(i % 3), Kind: "list", Name: fmt.Sprint(i)})
		}
		add(t, open(t, address), n, jobs...)
		var wg sync.WaitGroup
		for range 3 {
			q := open(t, address)
			wg.Go(func() {
				if err := q.Work(t.Context(), WorkOptions{Kinds: kinds, Workers: 8}, func(_ context.Context, j Job) error {
					mu.Lock()
					defer mu.Unlock()
					done[j.Name]++
					return nil
				}); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		for name, times := range done {
			if times != 1 {
				t.Errorf("%s: %d times", name, times)
			}
		}
		if len(done) != n {
			t.Errorf("%d jobs", len(done))
		}
	})
}

func TestTablesOfANewerRiverAreRefused(t *testing.T) {
	both(t, func(t *testing.T, address string) {
		q := open(t, address)
		for range 2 { // what exists is left as it is
			open(t, address)
		}
		if _, err := q.db.ExecContext(t.Context(), "INSERT INTO river_migration (line, version) VALUES ('main', 99)"); err != nil {
			t.Fatal(err)
		}
		_, err := Open(t.Context(), address, Options{})
		if e, ok := errors.AsType[*VersionError](err); !ok || e.Found != 99 || e.Known >= 99 {
			t.Error(err)
		}
	})
}

func TestManyMayOpenANewQueue(t *testing.T) {
	both(t, func(t *testing.T, address string) {
		var wg sync.WaitGroup
		for range 6 {
			wg.Go(func() {
				q, err := Open(t.Context(), address, Options{})
				if err != nil {
					t.Error(err)
					return
				}
				if err := q.Close(); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
	})
}

func TestBadAddressesAreRefused(t *testing.T) {
	dir := t.TempDir()
	text, others := filepath.Join(dir, "text"), filepath.Join(dir, "others")
	if err := os.WriteFile(text, []byte(strings.Repeat("no database ", 100)), 0o666); err != nil {
		t.Fatal(err)
	}
	q := open(t, others)
	if _, err := q.db.ExecContext(t.Context(), "ALTER TABLE river_migration RENAME TO others"); err != nil {
		t.Fatal(err)
	}
	addresses := []string{"", "sqlite:", dir, text, others, filepath.Join(dir, "no", "q"), "a\x00b", "postgres://x:secret@127.0.0.1:1/y", "postgres://x:secret@127.0.0.1:1/y?sslmode=z", "postgres://x:secret@%zz/"}
	if pgtest.Available() {
		address := pgtest.Database(t)
		for _, schema := range []string{"a b", "a/b", "ä", strings.Repeat("s", 300), `"`, "1"} {
			addresses = append(addresses, address+"?schema="+strings.NewReplacer(" ", "%20", `"`, "%22").Replace(schema))
		}
		addresses = append(addresses, address+"x")
		open(t, address+"?schema=Other_1")
	}
	for _, address := range addresses {
		if _, err := Open(t.Context(), address, Options{}); err == nil || strings.ContainsAny(err.Error(), "\n\t") || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v", address, err)
		}
	}
}

// TestWorkEndsIfItCannotGoOn covers errors that remain, such as a missing table.
func TestWorkEndsIfItCannotGoOn(t *testing.T) {
	both(t, func(t *testing.T, address string) {
		q := quiet(t, address)
		add(t, q, 1, job("list", "a"))
		err := q.Work(t.Context(), WorkOptions{Kinds: kinds, Stay: true}, func(ctx context.Context, j Job) error {
			if _, err := q.db.ExecContext(t.Context(), "DROP TABLE river_job"); err != nil {
				t.Error(err)
			}
			<-ctx.Done()
			return ctx.Err()
		})
		if err == nil || strings.Contains(err.Error(), "\n") || !strings.Contains(err.Error(), "river_job") {
			t.Error(err)
		}
	})
}

func TestWorkGoesOnWhenTheDatabaseIsBack(t *testing.T) {
	q := quiet(t, pgtest.Database(t))
	add(t, q, 1, job("list", "first"))
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	ended, begun, end, seen, last := make(chan error), make(chan bool), make(chan bool), make(chan What, 2), make(chan bool)
	go func() {
		ended <- q.Work(ctx, WorkOptions{Kinds: kinds, Stay: true, Tell: func(e Event) {
			if e.What == Away || e.What == Back {
				select {
				case seen <- e.What:
				default:
				}
			}
		}}, func(ctx context.Context, j Job) error {
			if j.Name == "first" {
				close(begun)
				<-end
				return ctx.Err()
			}
			close(last)
			return nil
		})
	}()
	<-begun
	if err := pgtest.Restart(time.Second); err != nil {
		t.Fatal(err)
	}
	if what := <-seen; what != Away {
		t.Error(what)
	}
	if what := <-seen; what != Back {
		t.Error(what)
	}
	close(end)
	testkit.Until(t, "the job is done", func() bool { live, err := q.live(t.Context()); return err == nil && len(live) == 0 })
	add(t, q, 1, job("list", "last"))
	<-last
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// stub is an executor that returns one running job, and keeps what it was asked.
type stub struct {
	riverdriver.Executor
	jobs    []*rivertype.JobRow
	horizon time.Time
}

func (s *stub) JobGetStuck(_ context.Context, p *riverdriver.JobGetStuckParams) ([]*rivertype.JobRow, error) {
	s.horizon = p.StuckHorizon
	return s.jobs, nil
}

func (s *stub) JobRescueMany(_ context.Context, p *riverdriver.JobRescueManyParams) (*struct{}, error) {
	s.horizon = p.StuckHorizon
	return nil, nil
}

// TestAWrongClockDoesNotMakeJobsOlder checks that River sees the true age of a job where the
// machine's clock differs from the database's.
func TestAWrongClockDoesNotMakeJobsOlder(t *testing.T) {
	for _, wrong := range []time.Duration{0, time.Hour, -time.Hour} {
		q := &Queue{}
		q.clock.Store(&reading{time.Now().Add(-wrong).Round(0), time.Now()})
		at := q.now().Add(-time.Minute)
		s := &stub{jobs: []*rivertype.JobRow{{Kind: "list", AttemptedAt: &at}, {Kind: "future", AttemptedAt: &at}}}
		g := &gate{Executor: s, q: q, kinds: map[string]bool{"list": true}}
		near := func(what string, a, b time.Time) {
			if d := a.Sub(b).Abs(); d > 30*time.Minute {
				t.Errorf("clock wrong by %s: %s is off by %s", wrong, what, d)
			}
		}
		rows, err := g.JobGetStuck(t.Context(), &riverdriver.JobGetStuckParams{StuckHorizon: time.Now()})
		if err != nil || len(rows) != 1 {
			t.Fatal(rows, err)
		}
		near("the age", *rows[0].AttemptedAt, time.Now().Add(-time.Minute))
		near("the horizon", s.horizon, q.now())
		if _, err := g.JobRescueMany(t.Context(), &riverdriver.JobRescueManyParams{StuckHorizon: time.Now()}); err != nil {
			t.Fatal(err)
		}
		near("the horizon of the rescue", s.horizon, q.now())
	}
}

func TestPlansShareTheSlotsOfAWorker(t *testing.T) {
	g := &gate{free: 3, busy: map[string]int{}, hungry: map[string]hunger{}}
	took := func(queue string, want int) {
		t.Helper()
		if n := g.take(queue, 5); n != want {
			t.Errorf("%s took %d, expected %d", queue, n, want)
		}
	}
	took("a", 3)
	took("b", 0)
	if g.forget("a") || !g.forget("c") {
		t.Error("a is forgotten, or c is not")
	}
	took("b", 0)
	g.give("a", 1)
	took("a", 1) // b has not waited for long
	now := time.Now()
	g.hungry["b"] = hunger{now.Add(-2 * turn), now}
	g.hungry["c"] = hunger{now.Add(-3 * turn), now}
	g.give("a", 1)
	took("a", 0)
	took("b", 0)
	took("c", 1) // which has waited the longest
	g.give("a", 1)
	took("b", 1)
	g.hungry["b"] = hunger{now.Add(-3 * turn), now.Add(-2 * turn)} // it was paused
	g.give("b", 1)
	took("a", 1)
	g.give("a", 2)
	g.give("c", 1)
	if len(g.busy) != 0 || g.free != 3 {
		t.Errorf("%+v", g)
	}
}

// Two that share a database, with plans of the same names, do only their own jobs.
func TestSpacesAreApart(t *testing.T) {
	address := filepath.Join(t.TempDir(), "jobs.db")
	var all [2]*Queue
	for i := range all {
		q, err := Open(t.Context(), address, Options{Space: fmt.Sprint("space ", i), Look: 5 * time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		defer q.Close()
		all[i] = q
		job := Job{Plan: "photos", Kind: "pack", Name: "1", Long: time.Minute, Args: []byte(fmt.Sprint(i))}
		if n, err := q.Add(t.Context(), job); err != nil || n != 1 {
			t.Fatal(n, err)
		}
	}
	for i, q := range all {
		var did []string
		if err := q.Work(t.Context(), WorkOptions{Kinds: []string{"pack"}}, func(_ context.Context, j Job) error {
			did = append(did, string(j.Args))
			return nil
		}); err != nil || !slices.Equal(did, []string{fmt.Sprint(i)}) {
			t.Errorf("%q, %v", did, err)
		}
	}
}
