package queue

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver"
	"github.com/riverqueue/river/rivertype"
)

// newClient returns a client whose statements go through wrap.
func newClient[T any](d riverdriver.Driver[T], c *river.Config, wrap func(riverdriver.Executor) riverdriver.Executor) (client, error) {
	if wrap != nil {
		d = wrapped[T]{d, wrap(d.GetExecutor())}
	}
	return river.NewClient(d, c)
}

type wrapped[T any] struct {
	riverdriver.Driver[T]
	exec riverdriver.Executor
}

func (w wrapped[T]) GetExecutor() riverdriver.Executor { return w.exec }

// A gate is between River and the database, and adds what River lacks:
//   - all plans of a worker share its slots;
//   - how old a running job is does not depend on this machine's clock;
//   - a worker that comes late does not change a job that another one may have;
//   - errors that remain are noticed.
type gate struct {
	riverdriver.Executor
	q     *Queue
	kinds map[string]bool
	heard func(error) // called with the result of each statement

	mu     sync.Mutex
	free   int
	busy   map[string]int      // slots that are in use, by queue
	hungry map[string]hunger   // of queues that found no slot
	until  map[int64]time.Time // by when the outcome of a job must be reported
}

type hunger struct{ since, asked time.Time }

// turn is how long a plan waits for a slot until those that wait for less leave one for it.
const turn = 10 * time.Second

func (g *gate) take(queue string, most int) (n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	now, kept := time.Now(), 0
	mine, waits := g.hungry[queue]
	for other, h := range g.hungry {
		// A queue that someone has paused asks no more.
		if other != queue && now.Sub(h.since) > turn && now.Sub(h.asked) < turn && (!waits || h.since.Before(mine.since)) {
			kept++
		}
	}
	if n = max(min(g.free-kept, most), 0); n > 0 {
		delete(g.hungry, queue)
	} else if waits {
		g.hungry[queue] = hunger{mine.since, now}
	} else {
		g.hungry[queue] = hunger{now, now}
	}
	g.free -= n
	g.busy[queue] += n
	return n
}

func (g *gate) give(queue string, n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.free += n
	if g.busy[queue] -= n; g.busy[queue] == 0 {
		delete(g.busy, queue)
	}
}

// forget is called for a queue that is no longer looked at. It reports whether none of its jobs
// is running here.
func (g *gate) forget(queue string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.hungry, queue)
	return g.busy[queue] == 0
}

func (g *gate) JobGetAvailable(ctx context.Context, p *riverdriver.JobGetAvailableParams) (*riverdriver.JobGetAvailableResult, error) {
	n := g.take(p.Queue, p.MaxToLock)
	if n == 0 {
		return &riverdriver.JobGetAvailableResult{}, nil
	}
	p.MaxToLock = n
	r, err := g.Executor.JobGetAvailable(ctx, p)
	g.heard(err)
	if err != nil {
		g.give(p.Queue, n)
		return nil, err
	}
	g.give(p.Queue, n-len(r.Jobs)+len(r.DecodeErrors)) // what cannot be decoded is not worked on
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, row := range r.Jobs {
		if row.AttemptedAt != nil {
			g.until[row.ID] = row.AttemptedAt.Add(limitOf(row) + g.q.grace/2)
		}
	}
	return r, nil
}

// ahead is by how much this machine's clock, which River compares with the times of running
// jobs, is ahead of the database's.
func (g *gate) ahead() time.Duration { return time.Since(g.q.now()) }

func (g *gate) JobGetStuck(ctx context.Context, p *riverdriver.JobGetStuckParams) ([]*rivertype.JobRow, error) {
	ahead := g.ahead()
	p.StuckHorizon = p.StuckHorizon.Add(-ahead)
	rows, err := g.Executor.JobGetStuck(ctx, p)
	for _, row := range rows {
		if row.AttemptedAt != nil {
			at := row.AttemptedAt.Add(ahead)
			row.AttemptedAt = &at
		}
	}
	// River would discard a job of a kind that a newer holdall has added.
	return slices.DeleteFunc(rows, func(row *rivertype.JobRow) bool { return !g.kinds[row.Kind] }), err
}

func (g *gate) JobRescueMany(ctx context.Context, p *riverdriver.JobRescueManyParams) (*struct{}, error) {
	p.StuckHorizon = p.StuckHorizon.Add(-g.ahead())
	return g.Executor.JobRescueMany(ctx, p)
}

// JobSetStateIfRunningMany records how jobs ended. River does not compare attempts: the failure of
// a late worker would make a job available that another worker has. That a job is done holds,
// whoever says so.
func (g *gate) JobSetStateIfRunningMany(ctx context.Context, p *riverdriver.JobSetStateIfRunningManyParams) ([]*rivertype.JobRow, error) {
	now, before := g.q.now(), map[int64]time.Time{}
	g.mu.Lock()
	for i, id := range p.ID {
		until, there := g.until[id]
		if there && now.After(until) && p.State[i] != rivertype.JobStateCompleted {
			p.ID[i] = 0 // which no job has; the rescuer cares for this one
		} else if there {
			before[id] = until
		}
		delete(g.until, id) // the next attempt may be fetched before this returns
	}
	g.mu.Unlock()
	rows, err := g.Executor.JobSetStateIfRunningMany(ctx, p)
	g.heard(err)
	if err != nil { // River repeats it
		g.mu.Lock()
		defer g.mu.Unlock()
		maps.Copy(g.until, before)
	}
	return rows, err
}
