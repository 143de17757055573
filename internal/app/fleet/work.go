package fleet

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"

	"github.com/holdall/holdall"
	"github.com/holdall/holdall/internal/app/fleet/queue"
)

// The kinds of jobs.
const (
	packKind   = "pack"
	retireKind = "retire"
	listKind   = "list"
)

// WorkOptions are options for a worker; the zero value suits most callers.
type WorkOptions struct {
	// Plan is the name of the only plan to work on; empty means all plans.
	Plan string
	// Workers is how many jobs are done at once; 0 means 1.
	Workers int
	// Jobs is how many objects of a chunk are read at once; 0 means 16.
	Jobs int
	// Tries is how often a job may fail before it is set aside; 0 means 5. If one object cannot be read, only
	// that object is set aside, and the others are packed.
	Tries int
	// Stay waits for more when nothing is left.
	Stay bool
	// Tell, if not nil, is called with what happens to jobs. Calls are not concurrent.
	Tell func(Event)
	// Meter counts what is packed.
	Meter *holdall.Meter
	// NoVerify turns off the comparison of objects with the checksums of their service.
	NoVerify bool
	// NoCopy reads all objects. Otherwise the service itself copies large objects, which are then not
	// compared and have no digest.
	NoCopy bool

	again bool // every job counts as one that was tried before
}

// An Event is what happened to a job.
type Event struct {
	queue.Event
	Chunk Chunk // of a job that packs
}

// A Chunk is what became of a chunk that was packed.
type Chunk struct {
	Archive string // its address, or that of a part
	Objects int64  // packed
	Bytes   int64
	Resent  int64 // bytes that the store still had from an earlier try
	Left    []Member
	Planned Planned // by a job that lists, which has nothing else of these
}

// Worked counts what a worker has done.
type Worked struct {
	Done     int   `json:"done"`
	Failed   int   `json:"failed"`
	SetAside int   `json:"set_aside"`
	Objects  int64 `json:"objects"`
	Bytes    int64 `json:"bytes"`
	Left     int64 `json:"left"` // objects that could not be packed
}

type worker struct {
	Fleet
	o WorkOptions

	mu    sync.Mutex
	jobs  map[string]*job
	sum   Worked
	packs map[string]Chunk // of jobs that are about to be told
}

// Work does jobs until none is left that any worker could do, or ctx ends. Jobs that fail do not make Work
// fail.
func Work(ctx context.Context, f Fleet, o WorkOptions) (Worked, error) {
	w := newWorker(f, o)
	of := queue.WorkOptions{Kinds: []string{packKind, rewriteKind, retireKind, listKind}, Workers: o.Workers, Tries: w.o.Tries, Stay: o.Stay, Tell: w.told}
	if o.Plan != "" {
		of.Plans = []string{o.Plan}
	}
	err := f.Queue.Work(ctx, of, w.do)
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.sum, err
}

func newWorker(f Fleet, o WorkOptions) *worker {
	o.Tries = cmp.Or(max(o.Tries, 0), 5)
	return &worker{Fleet: f, o: o, jobs: map[string]*job{}, packs: map[string]Chunk{}}
}

func (w *worker) do(ctx context.Context, k queue.Job) error {
	j, err := w.job(ctx, k.Plan)
	if err != nil {
		return err
	}
	if w.o.again {
		k.Attempt++
	}
	switch k.Kind {
	case packKind:
		var c chunk
		if err := json.Unmarshal(k.Args, &c); err != nil || c.name() != k.Name {
			return queue.Never(fmt.Errorf("job %s: not that of a chunk", k.Name))
		}
		err = w.pack(ctx, j, c, k.Attempt)
	case rewriteKind:
		var r rewriting
		if err := json.Unmarshal(k.Args, &r); err != nil || r.name() != k.Name || len(r.Archives) == 0 {
			return queue.Never(fmt.Errorf("job %s: not that of a rewrite", k.Name))
		}
		err = w.remake(ctx, j, r, k)
	case retireKind:
		err = w.retire(ctx, j, k)
	case listKind:
		err = w.list(ctx, j, k)
	default:
		err = queue.Never(fmt.Errorf("job %s: of an unknown kind", k.Name))
	}
	if errors.Is(err, errGone) { // another has done it, or its plan was cancelled
		err = nil
	}
	return err
}

// job opens a plan, once for all its jobs.
func (w *worker) job(ctx context.Context, plan string) (*job, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if j := w.jobs[plan]; j != nil {
		return j, nil
	}
	p, err := PlanNamed(ctx, w.Book, plan)
	if err != nil {
		return nil, err
	}
	j, err := open(ctx, p)
	if err == nil {
		w.jobs[plan] = j
	}
	return j, err
}

// became notes what became of a chunk, for told.
func (w *worker) became(plan, job string, c Chunk) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.packs[plan+"\x00"+job] = c
}

// told counts what happened to a job, and passes it on.
func (w *worker) told(e queue.Event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	key := e.Job.Plan + "\x00" + e.Job.Name
	x := Event{Event: e, Chunk: w.packs[key]}
	delete(w.packs, key)
	switch e.What {
	case queue.Done:
		w.sum.Done++
		w.sum.Objects += x.Chunk.Objects
		w.sum.Bytes += x.Chunk.Bytes
		w.sum.Left += int64(len(x.Chunk.Left))
	case queue.Retried:
		w.sum.Failed++
	case queue.Dropped:
		w.sum.SetAside++
	}
	if w.o.Tell != nil {
		w.o.Tell(x)
	}
}

// Cancel ends the work on a plan: what waits is not packed. Archives that are complete stay. It returns how
// many jobs there were.
func Cancel(ctx context.Context, f Fleet, p Plan) (n int, err error) {
	j, err := open(ctx, p)
	if err != nil {
		return 0, err
	}
	if n, err = f.Queue.Cancel(ctx, p.Name); err != nil {
		return n, err
	}
	all, err := f.waiting(ctx, j)
	for _, k := range all {
		if err == nil {
			err = f.drop(ctx, j, k)
		}
	}
	if err == nil {
		err = j.sweep(ctx)
	}
	return n, err
}
