package queue

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver"
	"github.com/riverqueue/river/rivertype"

	"github.com/holdall/holdall/format"
)

// WorkOptions are options for a worker.
type WorkOptions struct {
	// Plans are the plans to work on; empty means all, also those that are added later.
	Plans []string
	// Kinds are the kinds of jobs to do. Others are left to other workers, and waited for.
	Kinds []string
	// Workers is how many jobs to do at once; 0 means 1.
	Workers int
	// Tries is how often a job is tried before it is set aside; 0 means 5. An attempt whose worker
	// died counts. The second try comes 5 seconds after the first one has failed, and each further
	// one after four times the previous delay, up to an hour.
	Tries int
	// Stay keeps waiting for jobs when none is left.
	Stay bool
	// Tell, if not nil, is called with what happens. Calls are not concurrent.
	Tell func(Event)
}

// An Event is what happened to a job, or to the database.
type Event struct {
	What What
	Job  Job
	Err  error // why a job failed or was set aside, or why the database is away
	Took time.Duration
}

// What is the kind of an Event.
type What string

const (
	Started   What = "started"
	Done      What = "done"
	Retried   What = "failed" // it will be tried again
	Dropped   What = "set aside"
	PutOff    What = "put off"    // by Again
	GivenBack What = "given back" // the worker was told to stop
	Cancelled What = "cancelled"
	Away      What = "away" // the database; jobs go on
	Back      What = "back"
)

type againError time.Duration

func (e againError) Error() string { return "again in " + time.Duration(e).String() }

// Again is returned by a job that did not fail, but is to be tried again after a while.
func Again(after time.Duration) error { return againError(max(after, 0)) }

type neverError struct{ error }

func (e neverError) Unwrap() error { return e.error }

// Never is returned by a job that is to be set aside at once.
func Never(err error) error { return neverError{err} }

// cooldown is how long River waits until it looks again, or tells again of new jobs.
const cooldown = 5 * time.Millisecond

// tooLong begins the problem of an attempt that took longer than it may.
const tooLong = "it took longer than "

// limit is how long the next attempt may take: twice as long after each that took too long.
func (a arguments) limit(row *rivertype.JobRow) time.Duration {
	long := min(max(a.Long, time.Millisecond), maxLong)
	for _, e := range row.Errors {
		if strings.HasPrefix(e.Error, tooLong) {
			long = min(2*long, maxLong)
		}
	}
	return long
}

func limitOf(row *rivertype.JobRow) time.Duration {
	var a arguments
	_ = json.Unmarshal(row.EncodedArgs, &a) // River reports it
	return a.limit(row)
}

type worker struct {
	river.WorkerDefaults[arguments]
	q        *Queue
	o        WorkOptions
	do       func(ctx context.Context, j Job) error
	gate     *gate
	stopping context.Context // ends when running jobs are to be given back
	fail     context.CancelCauseFunc

	mu      sync.Mutex
	away    bool
	running sync.WaitGroup
}

// Work does jobs until none is left that is or could become due, in this process or any other, or
// ctx ends. Then running jobs are cancelled and given back: others may have them at once, and it
// does not count as a failure. do must return when its context ends.
//
// If do returns an error, the job is tried again later, and set aside after so many tries; see
// also Again and Never. Errors of a database that is away for a while do not end Work.
func (q *Queue) Work(ctx context.Context, o WorkOptions, do func(ctx context.Context, j Job) error) error {
	o.Workers, o.Tries = max(o.Workers, 1), cmp.Or(max(o.Tries, 0), 5)
	stopping, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	w := &worker{q: q, o: o, do: do, stopping: stopping, fail: fail}
	w.gate = &gate{q: q, kinds: map[string]bool{}, heard: w.heard, free: o.Workers, busy: map[string]int{}, hungry: map[string]hunger{}, until: map[int64]time.Time{}}
	workers := river.NewWorkers()
	for _, kind := range o.Kinds {
		if !kindRE().MatchString(kind) || w.gate.kinds[kind] {
			return q.failed(fmt.Errorf("kinds: expected different kinds of jobs, found %q", o.Kinds))
		}
		w.gate.kinds[kind] = true
		river.AddWorkerArgs(workers, arguments{kind: kind}, w)
	}
	client, err := q.engine.client(&river.Config{
		Logger: q.log, Workers: workers, FetchOnlyKnownKinds: true,
		// River requires a queue to begin with. No plan has this name.
		Queues:        map[string]river.QueueConfig{"none": {MaxWorkers: 1, FetchPollInterval: 24 * time.Hour}},
		FetchCooldown: cooldown, FetchPollInterval: q.poll,
		JobTimeout: -1, RescueStuckJobsAfter: q.grace, // the time of each job decides
		DiscardedJobRetentionPeriod: -1, // what is set aside waits for Retry
		LeaderElectionDisabled:      q.follower,
		Middleware:                  []rivertype.Middleware{river.WorkerMiddlewareFunc(w.release)},
		Test:                        river.TestConfig{Time: ourTime{q}},
	}, func(exec riverdriver.Executor) riverdriver.Executor {
		w.gate.Executor = exec
		return w.gate
	})
	if err != nil {
		return q.failed(err)
	}
	// River gives its jobs back when it is stopped, so its context must not end before that.
	if err := client.Start(context.WithoutCancel(ctx)); err != nil {
		return q.failed(err)
	}
	err = w.follow(stopping, client.Queues())
	fail(err)
	// If the database does not answer now, the jobs are given back by their age.
	patience := 20 * time.Second
	if err != nil {
		patience = time.Second
	}
	soon, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer cancel()
	_ = client.StopAndCancel(soon)
	w.running.Wait()
	return q.failed(err)
}

// follow has River work on the queues that have jobs, until there is none.
func (w *worker) follow(ctx context.Context, queues *river.QueueBundle) error {
	wanted := map[string]bool{}
	for _, plan := range w.o.Plans {
		wanted[w.q.queueOf(plan)] = true
	}
	added := map[string]time.Time{} // and when it last had jobs
	t, read := time.NewTicker(w.q.look), time.Now()
	defer t.Stop()
	for {
		live, err := w.q.live(ctx)
		w.heard(err)
		if err == nil {
			left := false
			for name := range live {
				if len(wanted) > 0 && !wanted[name] {
					continue
				}
				left = true
				if _, there := added[name]; !there {
					if err := queues.Add(name, river.QueueConfig{MaxWorkers: w.o.Workers}); err != nil {
						w.heard(err)
						_ = queues.Remove(ctx, name) // it was added, but not started
						continue
					}
				}
				added[name] = time.Now()
			}
			if !left && !w.o.Stay {
				return nil
			}
			// River looks at each queue from time to time.
			for name, since := range added {
				if !live[name] && time.Since(since) > w.q.idle && w.gate.forget(name) && queues.Remove(ctx, name) == nil {
					delete(added, name)
				}
			}
		}
		if time.Since(read) > time.Minute && w.q.readClock(ctx) == nil {
			read = time.Now()
		}
		select {
		case <-t.C:
		case <-ctx.Done():
			if err := context.Cause(ctx); w.q.engine.lasting(err) {
				return err
			}
			return nil
		}
	}
}

// heard is called with the result of each statement.
func (w *worker) heard(err error) {
	switch {
	case w.stopping.Err() != nil:
	case err != nil && w.q.engine.lasting(err):
		w.fail(err)
	default:
		w.mu.Lock()
		defer w.mu.Unlock()
		if away := err != nil; away != w.away {
			w.away = away
			if w.o.Tell != nil && away {
				w.o.Tell(Event{What: Away, Err: w.q.failed(err)})
			} else if w.o.Tell != nil {
				w.o.Tell(Event{What: Back})
			}
		}
	}
}

func (w *worker) tell(e Event) {
	if w.o.Tell != nil {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.o.Tell(e)
	}
}

// release returns the slot of a job, whatever becomes of it.
func (w *worker) release(ctx context.Context, row *rivertype.JobRow, do func(context.Context) error) error {
	defer w.gate.give(row.Queue, 1)
	w.running.Add(1)
	defer w.running.Done()
	return do(ctx)
}

// Timeout is how old an attempt is when its worker is taken for dead.
func (w *worker) Timeout(job *river.Job[arguments]) time.Duration {
	return job.Args.limit(job.JobRow) + w.q.grace
}

// NextRetry is called after Work, and by River's rescuer.
func (w *worker) NextRetry(job *river.Job[arguments]) time.Time { return w.q.now().Add(job.Args.again) }

func (w *worker) Work(ctx context.Context, job *river.Job[arguments]) (err error) {
	row, j, limit := job.JobRow, job.Args.job(job.JobRow), job.Args.limit(job.JobRow)
	left := row.AttemptedAt.Add(limit).Sub(w.q.now())
	if left <= 0 || w.stopping.Err() != nil {
		return river.JobSnooze(0) // this process slept, or is to stop
	}
	// River sets a job aside when it has no attempt left.
	row.MaxAttempts = max(w.o.Tries, row.Attempt)
	if row.Attempt > w.o.Tries {
		err := fmt.Errorf("expected at most %d attempts, found %d: its workers died", w.o.Tries, row.Attempt-1)
		w.tell(Event{What: Dropped, Job: j, Err: err})
		return err
	}
	job.Args.again = min(w.q.pause<<(2*min(row.Attempt-1, 10)), time.Hour)
	begun := time.Now()
	w.tell(Event{What: Started, Job: j})
	within, cancel := context.WithTimeout(ctx, left)
	defer cancel()
	e := Event{What: Retried, Job: j, Err: w.try(within, j)}
	defer func() {
		e.Took = time.Since(begun)
		w.tell(e)
	}()
	again, isAgain := errors.AsType[againError](e.Err)
	never, isNever := errors.AsType[neverError](e.Err)
	switch {
	case e.Err == nil:
		e.What = Done
	case errors.Is(context.Cause(ctx), rivertype.ErrJobCancelledRemotely):
		e.What = Cancelled
	case errors.Is(ctx.Err(), context.Canceled):
		e.What, e.Err = GivenBack, nil
		return context.Canceled // River makes it available
	case isAgain:
		e.What, e.Err = PutOff, nil
		return river.JobSnooze(time.Duration(again))
	case isNever:
		e.What, e.Err, row.MaxAttempts = Dropped, never.error, row.Attempt
	case within.Err() != nil:
		e.Err = fmt.Errorf(tooLong+"%s: %w", limit, e.Err)
	}
	if e.What == Retried && row.Attempt == row.MaxAttempts {
		e.What = Dropped
	}
	if e.Err == nil {
		return nil
	}
	// PostgreSQL would refuse a NUL, and with it what others report.
	problem := format.Escape(e.Err.Error())
	return errors.New(problem[:min(len(problem), maxName)])
}

// try calls do. A panic is a failure of the job.
func (w *worker) try(ctx context.Context, j Job) (err error) {
	defer func() {
		if p := recover(); p != nil {
			w.q.log.ErrorContext(ctx, "panic", "kind", j.Kind, "job", format.Escape(j.Name), "panic", p, "stack", string(debug.Stack()))
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	return w.do(ctx, j)
}
