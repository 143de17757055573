package fleet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/holdall/holdall"
	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/app/catalog"
	"github.com/holdall/holdall/internal/base/meter"
)

// WorkOptions are options for a worker; the zero value suits most callers.
type WorkOptions struct {
	// Plan is the name of the only plan to work on; empty means all plans.
	Plan string
	// Workers is how many chunks are packed at once; 0 means 1.
	Workers int
	// Jobs is how many objects of a chunk are read at once; 0 means 16.
	Jobs int
	// Owner is the name under which chunks are claimed; empty means the machine's
	// name and the process.
	Owner string
	// Lease is how long a claim lasts if it is not renewed; 0 means 45 seconds.
	Lease time.Duration
	// Tries is how often a chunk may fail before it is set aside; 0 means 5. If
	// one object cannot be read, only that object is set aside, and the others are
	// packed. The second try comes after Pause, and each further one after four
	// times the previous delay. A Pause of 0 means 5 seconds.
	Tries int
	Pause time.Duration
	// Stay keeps looking for chunks when none is left.
	Stay bool
	// Look is how often to look for chunks, and to retry when waiting; 0 means 2
	// seconds, or 5 with a Feed.
	Look time.Duration
	// Feed, if not nil, announces chunks that are due.
	Feed Feed
	// Tell, if not nil, is called with the outcomes of chunks. Calls are not
	// concurrent.
	Tell func(Event)
	// Meter counts what is packed.
	Meter *holdall.Meter
	// NoVerify turns off the comparison of objects with the checksums of their
	// service.
	NoVerify bool
	// NoCopy reads all objects. Otherwise the service itself copies large objects,
	// which are then not compared and have no digest.
	NoCopy bool
}

// An Event is the outcome of a claimed chunk.
type Event struct {
	Chunk  catalog.Chunk
	What   What
	Err    error // why the chunk failed, was lost or was set aside
	Took   time.Duration
	Bytes  int64 // packed
	Resent int64 // bytes that the store still had from an earlier try
	Left   []catalog.Member
}

// What is the kind of an Event.
type What string

const (
	Claimed  What = "claimed"
	Done     What = "done"
	Failed   What = "failed"    // it will be tried again
	Lost     What = "lost"      // another worker has it
	SetAside What = "set aside" // it will not be tried again
	Stopped  What = "stopped"   // the worker was told to stop
)

// Worked counts the outcomes of the chunks that a worker claimed.
type Worked struct {
	Done     int   `json:"done"`
	Failed   int   `json:"failed"`
	Lost     int   `json:"lost"`
	SetAside int   `json:"set_aside"`
	Objects  int64 `json:"objects"` // of those done
	Bytes    int64 `json:"bytes"`
}

type worker struct {
	c    *catalog.Catalog
	o    WorkOptions
	plan int64 // 0 means any

	offers chan *offer     // from the feed to idle goroutines
	over   context.Context // ends when no goroutine takes offers any more

	mu     sync.Mutex
	jobs   map[int64]*job
	sum    Worked
	patrol time.Time // when to look for chunks whose lease has ended
}

// Work claims chunks and packs them, until no chunk is left that any worker
// could pack, or ctx ends. Failed chunks do not make Work fail.
func Work(ctx context.Context, c *catalog.Catalog, o WorkOptions) (Worked, error) {
	w := &worker{c: c, o: o, jobs: map[int64]*job{}}
	if o.Plan != "" {
		p, err := c.Plan(ctx, o.Plan)
		if err != nil {
			return Worked{}, err
		}
		w.plan = p.ID
	}
	host, _ := os.Hostname()
	look := 2 * time.Second
	if o.Feed != nil {
		look = 5 * time.Second
	}
	w.o.Lease = cmp.Or(max(o.Lease, 0), 45*time.Second)
	w.o.Pause = cmp.Or(max(o.Pause, 0), 5*time.Second)
	w.o.Look = cmp.Or(max(o.Look, 0), look)
	w.o.Tries = cmp.Or(max(o.Tries, 0), 5)
	w.o.Owner = cmp.Or(o.Owner, fmt.Sprintf("%s/%d", host, os.Getpid()))
	var wg sync.WaitGroup
	errs := make([]error, max(o.Workers, 1))
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if o.Feed != nil {
		w.offers = make(chan *offer)
		over, done := context.WithCancel(context.WithoutCancel(ctx))
		defer done()
		w.over = over
		stop, err := o.Feed.Feed(ctx, w.plan, len(errs), w.offered)
		if err != nil {
			return Worked{}, err
		}
		defer func() {
			done()
			stop()
		}()
	}
	for i := range errs {
		wg.Go(func() {
			if errs[i] = w.loop(ctx, fmt.Sprintf("%s/%d", w.o.Owner, i+1)); errs[i] != nil {
				cancel(errs[i])
			}
		})
	}
	wg.Wait()
	return w.sum, errors.Join(errs...)
}

// patience is how long a database may be unavailable before a worker gives up.
const patience = 2 * time.Minute

func (w *worker) loop(ctx context.Context, owner string) error {
	var failing time.Time // since when
	for ctx.Err() == nil {
		k, o, err := w.next(ctx, owner)
		if err == nil {
			failing = time.Time{}
			o.end(0, w.chunk(ctx, k))
			continue
		}
		if ctx.Err() != nil {
			return nil
		}
		if errors.Is(err, catalog.ErrNone) {
			failing = time.Time{}
			more, err := w.more(ctx)
			if err == nil && !more && !w.o.Stay {
				w.sweep(ctx)
				return nil
			}
			if w.o.Feed != nil {
				continue // which is waited for
			}
		} else if failing.IsZero() {
			failing = time.Now()
		} else if time.Since(failing) > patience {
			return err
		}
		w.sleep(ctx, w.later())
	}
	return nil
}

// later returns a random delay, so that workers do not all look at the same
// time.
func (w *worker) later() time.Duration { return w.o.Look/2 + rand.N(w.o.Look) }

func (w *worker) sleep(ctx context.Context, d time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	<-ctx.Done()
}

// sweep cleans up after workers that died between their last two steps. It is
// optional: nothing depends on it.
func (w *worker) sweep(ctx context.Context) {
	plans, err := w.plans(ctx)
	if err != nil {
		return
	}
	for _, p := range plans {
		if j, err := w.job(ctx, p.ID); err == nil {
			_, _ = j.sweep(ctx, w.c)
		}
	}
}

// plans returns the plans to work on.
func (w *worker) plans(ctx context.Context) ([]catalog.Plan, error) {
	all, err := w.c.Plans(ctx)
	return slices.DeleteFunc(all, func(p catalog.Plan) bool { return w.plan != 0 && w.plan != p.ID }), err
}

// more reports whether there are chunks that are neither done nor given up.
// Other workers may have them, and die.
func (w *worker) more(ctx context.Context) (bool, error) {
	plans, err := w.plans(ctx)
	if err != nil {
		return false, err
	}
	for _, p := range plans {
		t, err := w.c.Totals(ctx, p.ID)
		if err != nil {
			return false, err
		}
		if t.States[catalog.ChunkPlanned].Chunks+t.States[catalog.ChunkLeased].Chunks == 0 {
			continue
		}
		if t.States[catalog.ChunkSetAside].Chunks == 0 {
			return true, nil
		}
		if some, err := w.unblocked(ctx, p.ID); some || err != nil {
			return some, err
		}
	}
	return false, nil
}

// unblocked reports whether a plan has chunks that do not wait for one that
// was set aside.
func (w *worker) unblocked(ctx context.Context, plan int64) (bool, error) {
	aside := false
	for k, err := range w.c.Chunks(ctx, plan) {
		if err != nil {
			return false, err
		}
		switch k.State {
		case catalog.ChunkSetAside:
			aside = true
		case catalog.ChunkPlanned, catalog.ChunkLeased:
			if !k.Last || !aside {
				return true, nil
			}
		}
	}
	return false, nil
}

// job opens the plan of a chunk, once for all its chunks.
func (w *worker) job(ctx context.Context, plan int64) (*job, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if j := w.jobs[plan]; j != nil {
		return j, nil
	}
	plans, err := w.plans(ctx)
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(plans, func(p catalog.Plan) bool { return p.ID == plan })
	if i < 0 {
		return nil, fmt.Errorf("plan %d: %w", plan, fs.ErrNotExist)
	}
	j, err := open(ctx, plans[i])
	if err == nil {
		w.jobs[plan] = j
	}
	return j, err
}

func (w *worker) tell(e Event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch e.What {
	case Done:
		w.sum.Done++
		w.sum.Objects += e.Chunk.Objects - int64(len(e.Left))
		w.sum.Bytes += e.Bytes
	case Failed:
		w.sum.Failed++
	case Lost:
		w.sum.Lost++
	case SetAside:
		w.sum.SetAside++
	}
	if w.o.Tell != nil {
		w.o.Tell(e)
	}
}

// chunk packs a claimed chunk, and settles the claim. It returns why the chunk
// is not done.
func (w *worker) chunk(ctx context.Context, k claim) error {
	w.tell(Event{Chunk: k.Chunk, What: Claimed})
	begun := time.Now()
	e := Event{Chunk: k.Chunk}
	lease := w.hold(ctx, k)
	e.What, e.Err = Done, w.pack(lease.ctx, k.Chunk, &e, lease.meter)
	lease.end()
	e.Took = time.Since(begun)
	if e.Err != nil {
		if cause := context.Cause(lease.ctx); cause != nil && !errors.Is(cause, errEnded) {
			e.Err = cause
		}
		e.What = w.release(ctx, k.Chunk, e.Err)
	}
	if e.What == Lost {
		w.lost(ctx, k.Chunk)
	}
	w.tell(e)
	return e.Err
}

// release gives back a claim that was not finished, and returns the outcome
// for the chunk.
func (w *worker) release(ctx context.Context, k catalog.Chunk, err error) What {
	if errors.Is(err, catalog.ErrLost) {
		return Lost
	}
	what, problem, again := Failed, err.Error(), time.Duration(0)
	switch {
	case ctx.Err() != nil:
		what, problem = Stopped, "" // this is not a failure
	case k.Failures+1 >= w.o.Tries:
		what = SetAside
	default:
		again = w.o.Pause << (2 * min(k.Failures, 10))
	}
	// A worker that is told to stop still has to do this.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	if rerr := w.c.Release(ctx, k, format.Escape(problem), again, what == SetAside); errors.Is(rerr, catalog.ErrLost) {
		return Lost
	}
	return what // if the release failed, the lease ends by itself
}

// lost handles the uploads of a chunk whose claim was lost. The new owner
// continues with them. If the plan was cancelled there is none, so they are
// removed.
func (w *worker) lost(ctx context.Context, k catalog.Chunk) {
	j, err := w.job(ctx, k.Plan)
	if err != nil {
		return
	}
	if p, err := w.c.Plan(ctx, j.plan.Name); err == nil && p.Cancelled {
		if j.format.Parts != nil {
			_, _ = j.sweep(ctx, w.c)
		} else {
			j.tidy(ctx, j.chunk(k.Number))
		}
	}
}

// A lease is a claim that is renewed until it ends.
type lease struct {
	ctx   context.Context // ends with the claim
	meter *holdall.Meter
	end   func()
}

var errEnded = errors.New("done with the chunk")

// A claim is a chunk that this worker holds at least until a given time, and
// longer if the claim is renewed.
type claim struct {
	catalog.Chunk
	until time.Time
}

func (w *worker) claim(ctx context.Context, r catalog.Request) (claim, error) {
	asked := time.Now()
	k, err := w.c.Claim(ctx, r)
	return claim{k, asked.Add(w.o.Lease)}, err
}

// hold renews a claim. If it cannot be renewed, the work on it ends before
// another worker may have it.
func (w *worker) hold(ctx context.Context, k claim) *lease {
	ctx, cancel := context.WithCancelCause(ctx)
	l := &lease{ctx: ctx, meter: &holdall.Meter{}}
	var wg sync.WaitGroup
	wg.Go(func() {
		t := time.NewTicker(max(w.o.Lease/5, time.Millisecond))
		defer t.Stop()
		var told meter.Progress
		count := func() meter.Progress {
			now := l.meter.Snapshot()
			w.o.Meter.Add(now.Entries-told.Entries, now.Bytes-told.Bytes)
			told = now
			return now
		}
		defer count()
		for {
			select {
			case <-ctx.Done():
				return
			case <-t.C:
			}
			now, asked := count(), time.Now()
			once, done := context.WithDeadline(ctx, k.until)
			err := w.c.Renew(once, k.Chunk, w.o.Lease, now.Bytes)
			done()
			switch {
			case err == nil:
				k.until = asked.Add(w.o.Lease)
			case errors.Is(err, catalog.ErrLost):
				cancel(err)
				return
			case time.Now().After(k.until):
				cancel(fmt.Errorf("%w: the lease could not be renewed: %w", catalog.ErrLost, err))
				return
			}
		}
	})
	l.end = func() {
		cancel(errEnded)
		wg.Wait()
	}
	return l
}
