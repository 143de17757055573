package fleet

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/kit/pipe"
	"github.com/holdall/holdall/internal/app/catalog"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storekit"
)

// Planned is the result of Plan.
type Planned struct {
	Plan    catalog.Plan `json:"-"`
	Chunks  int          `json:"chunks"`  // that are new
	Objects int64        `json:"objects"` // in them
	Bytes   int64        `json:"bytes"`
	Known   int64        `json:"known"` // objects that were planned before
	Skipped              // objects that are not to be packed
}

// Skipped counts the listed objects that are not planned.
type Skipped struct {
	Archives int64 `json:"archives"`          // objects of archives that the catalogue records, or that a plan makes
	Markers  int64 `json:"markers"`           // empty objects that represent folders
	Refused  int64 `json:"refused,omitempty"` // objects to which access is refused, or whose keys cannot be requested

	// These are only counted for lists.
	Vanished int64 `json:"vanished,omitempty"` // objects that do not exist
	Outside  int64 `json:"outside,omitempty"`  // objects outside the source
	Deleted  int64 `json:"deleted,omitempty"`  // delete markers
	Older    int64 `json:"older,omitempty"`    // versions that are not the newest
	Doubles  int64 `json:"doubles,omitempty"`  // further entries of the same name: the last one counts
}

// batch is how many members of small chunks are written in one transaction,
// and held in memory until then. A larger chunk gets a transaction of its own,
// and is listed while it is written.
const batch = 100_000

// Plan lists the sources and records their chunks. If the plan exists already,
// Plan adds only new objects, in chunks of their own: objects that did not
// exist, that have another version, or that could not be packed. If making a
// plan was interrupted, calling Plan again continues it.
//
// If progress is not nil, it is called now and then with what has been listed
// so far.
func Plan(ctx context.Context, c *catalog.Catalog, s Spec, progress func(Planned)) (Planned, error) {
	r, err := ready(ctx, c, s)
	p := Planned{Plan: r.wish}
	if err != nil {
		return p, err
	}
	l, err := r.takeList(ctx, s, &p.Skipped)
	if err != nil {
		return p, err
	}
	defer l.close()
	if !r.there {
		if r.plan, err = c.AddPlan(ctx, r.wish); err != nil {
			return p, err
		}
	}
	p.Plan = r.plan
	pl, stop, err := r.planner(ctx, c, &p)
	if err != nil {
		return p, err
	}
	defer stop()
	if progress != nil {
		pl.progress = progress
	}
	err = pl.run(ctx)
	return p, err
}

// A readiness is a plan that can be made, or planned again.
type readiness struct {
	*job
	wish   catalog.Plan
	there  bool // the plan is in the catalogue
	number int  // of the next chunk
}

// ready reads the existing state of a plan, and returns an error if the plan
// cannot be made. Without a catalogue, the plan does not exist yet.
func ready(ctx context.Context, c *catalog.Catalog, s Spec) (r readiness, err error) {
	if r.wish, err = s.planned(); err != nil {
		return r, err
	}
	if r.job, err = open(ctx, r.wish); err != nil {
		return r, err
	}
	r.tell = s.Tell
	is, err := catalog.Plan{}, fs.ErrNotExist
	if c != nil {
		is, err = c.Plan(ctx, r.wish.Name)
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		// Otherwise a mistyped name would make an empty plan.
		for _, o := range r.origins {
			if s.listed() {
				break // each object is requested, and the user may not be allowed to list
			}
			if err := o.reachable(ctx); err != nil {
				return r, err
			}
		}
		return r, nil
	case err != nil:
		return r, err
	case is.Cancelled:
		return r, fmt.Errorf("%s: %w", format.Escape(is.Name), catalog.ErrCancelled)
	}
	if what := differs(is, r.wish); what != "" {
		return r, &DiffersError{r.wish.Name, what}
	}
	for k, err := range c.Chunks(ctx, is.ID) {
		if err != nil {
			return r, err
		}
		r.number = max(r.number, k.Number+1)
	}
	r.plan, r.there = is, true
	return r, nil
}

// planner returns a planner, which cuts new objects into chunks. Without a
// catalogue all objects are new.
func (r *readiness) planner(ctx context.Context, c *catalog.Catalog, p *Planned) (pl *planner, stop func(), err error) {
	begin := seat{name: r.whole(0)}
	made, planned := archives{}, pipe.All[catalog.Member](nil)
	if r.there {
		planned = c.Planned(ctx, r.plan.ID)
		begin, err = r.seatOf(ctx, c, r.number)
	}
	if err == nil {
		err = r.vacant(ctx, r.number, begin)
	}
	if err == nil && c != nil {
		made, err = r.made(ctx, c)
	}
	if err != nil {
		return nil, nil, err
	}
	pl = &planner{c: c, j: r.job, p: p, number: r.number, archive: begin.archive, parts: len(begin.parts), progress: func(Planned) {}}
	pl.next, stop = iter.Pull2(fresh(r.listed(ctx, made, &p.Skipped), planned, &p.Known))
	return pl, stop, nil
}

// vacant returns an error if archives could not be written: if there is no
// place for them, or if another archive is there already.
func (j *job) vacant(ctx context.Context, number int, s seat) error {
	if j.format.Parts != nil {
		return j.vacantSeat(ctx, s)
	}
	head, _ := j.around()
	for info, err := range storekit.List(ctx, j.target, head) {
		if errors.Is(err, errors.ErrUnsupported) {
			break
		}
		if err != nil {
			return err
		}
		if j.number(info.Name) >= number {
			return fmt.Errorf("%s: exists already, and is not part of this plan: %w", format.Escape(storekit.AddressOf(j.target, info.Name)), fs.ErrExist)
		}
	}
	w, err := storekit.CreateAs(ctx, j.target, j.chunk(number), store.Wishes{Once: true})
	if err == nil {
		err = w.Abort()
	}
	return err
}

// vacantSeat is vacant for the next part of an archive.
func (j *job) vacantSeat(ctx context.Context, s seat) error {
	if len(s.parts) == 0 {
		for info, err := range storekit.List(ctx, j.target, s.name+"/") {
			if errors.Is(err, errors.ErrUnsupported) {
				break
			}
			if err == nil {
				err = fmt.Errorf("%s: exists already, and is not part of this plan: %w", format.Escape(storekit.AddressOf(j.target, info.Name)), fs.ErrExist)
			}
			return err
		}
	}
	once := storekit.NewStage(j.target)
	once.Wishes.Once = true
	w, err := j.format.Parts.Create(ctx, once, s.part(catalog.Chunk{}), j.creating())
	if err == nil {
		err = w.Abort()
	}
	return err
}

type planner struct {
	c        *catalog.Catalog
	j        *job
	p        *Planned
	next     func() (catalog.Member, error, bool)
	held     *catalog.Member // the first of the next chunk
	number   int
	archive  int // the number of the archive that is written in parts, and of its parts
	parts    int
	progress func(Planned)
	kind     catalog.NewChunk // the kind of all its chunks
}

func (pl *planner) chunk() catalog.NewChunk {
	if of := pl.j.format.Parts; of != nil {
		pl.parts++
		return catalog.NewChunk{Part: true, Name: storekit.AddressOf(pl.j.target, of.Object(pl.j.whole(pl.archive), pl.parts-1))}
	}
	pl.number++
	k := pl.kind
	k.Name = storekit.AddressOf(pl.j.target, pl.j.chunk(pl.number-1))
	return k
}

func (pl *planner) last() catalog.NewChunk {
	pl.archive, pl.parts = pl.archive+1, 0
	return catalog.NewChunk{Last: true, Name: storekit.AddressOf(pl.j.target, pl.j.whole(pl.archive-1))}
}

// whole reports whether the current parts must now be merged.
func (pl *planner) whole(end bool) bool {
	return pl.parts > 0 && (end || pl.parts == pl.j.format.Parts.Most)
}

// run records the chunks, several in one transaction.
func (pl *planner) run(ctx context.Context) error {
	var ready []catalog.NewChunk
	members := 0
	flush := func() error {
		if len(ready) == 0 {
			return nil
		}
		done, err := pl.c.AddChunks(ctx, pl.p.Plan.ID, ready)
		if err != nil {
			return err
		}
		for _, k := range done {
			pl.p.Chunks++
			pl.p.Objects += k.Objects
			pl.p.Bytes += k.Bytes
		}
		ready, members = nil, 0
		pl.progress(*pl.p)
		return nil
	}
	for {
		cut := &cutter{pl: pl}
		begun, more, err := cut.take(batch)
		if err != nil {
			return errors.Join(err, flush()) // complete chunks are worth keeping
		}
		if pl.whole(len(begun) == 0) {
			ready = append(ready, pl.last())
		}
		if len(begun) == 0 {
			return flush()
		}
		next := pl.chunk()
		if !more {
			next.Members = pipe.All(begun)
			ready = append(ready, next)
			if members += len(begun); members < batch {
				continue
			}
		} else {
			if err := flush(); err != nil {
				return err
			}
			next.Members = cut.rest(begun)
			ready = append(ready, next)
		}
		if err := flush(); err != nil {
			return err
		}
	}
}

// A cutter yields the members of one chunk. The next chunk begins with the
// object that would make this one too large, unless that is its first object.
type cutter struct {
	pl      *planner
	meet    func(catalog.Member) // called with each, if not nil
	objects int64
	bytes   int64
	index   int64 // bytes of it, if the chunk becomes an archive
}

// one returns the next member of the chunk, if there is one.
func (c *cutter) one() (m catalog.Member, ok bool, err error) {
	if held := c.pl.held; held != nil {
		m, ok = *held, true
		c.pl.held = nil
	} else if m, err, ok = c.pl.next(); err != nil || !ok {
		return m, false, err
	}
	set, row := c.pl.j.set, int64(0)
	if c.pl.j.format.Parts == nil {
		row = indexBytes(m)
	}
	if c.objects > 0 && (c.objects == set.ChunkObjects || m.Size > set.ChunkSize-c.bytes || c.index+row > maxIndex/4*3) {
		c.pl.held = &m
		return m, false, nil
	}
	c.objects++
	c.bytes += m.Size
	c.index += row
	if c.meet != nil {
		c.meet(m)
	}
	return m, true, nil
}

func (c *cutter) take(n int) (some []catalog.Member, more bool, err error) {
	for len(some) < n {
		m, ok, err := c.one()
		if err != nil || !ok {
			return some, false, err
		}
		some = append(some, m)
	}
	return some, true, nil
}

// rest yields the members that were already taken, and then the rest of the
// chunk.
func (c *cutter) rest(begun []catalog.Member) iter.Seq2[catalog.Member, error] {
	return func(yield func(catalog.Member, error) bool) {
		for _, m := range begun {
			if !yield(m, nil) {
				return
			}
		}
		for {
			m, ok, err := c.one()
			if !ok && err == nil || !yield(m, err) || err != nil {
				return
			}
		}
	}
}
