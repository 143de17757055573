package catalog

import (
	"cmp"
	"container/heap"
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/holdall/holdall/format"
)

// A Plan is what a fleet is to pack, cut into chunks.
type Plan struct {
	ID       int64
	Name     string
	Format   string
	Target   string
	Settings []byte // the fleet's own
	Created  time.Time
	// Cancelled says that nothing of it shall be packed any more.
	Cancelled bool
}

// A Member is a source object that was planned.
type Member struct {
	Path    string // in the archive, byte for byte
	Origin  int    // which of the plan's sources it is from
	Size    int64
	Version string // as it was listed; any bytes
	Outcome Outcome
	Note    string // says why, for people
}

// An Outcome is what became of a member.
type Outcome uint8

const (
	Pending  Outcome = iota
	Packed           // it is in the chunk's archive
	Vanished         // it was not there any more
	Changed          // it was another than was planned, and is not packed
	SetAside         // it could not be read
	outcomes
)

func (o Outcome) String() string {
	if o < outcomes {
		return [...]string{"pending", "packed", "vanished", "changed", "set aside"}[o]
	}
	return fmt.Sprintf("outcome %d", uint8(o))
}

// A ChunkState says how far a chunk is.
type ChunkState uint8

const (
	ChunkPlanned ChunkState = iota
	ChunkLeased             // somebody packs it, or did until the lease ended
	ChunkDone
	ChunkSetAside // nobody shall try again before RetryPlan
	ChunkCancelled
	chunkStates
)

func (s ChunkState) String() string {
	if s < chunkStates {
		return [...]string{"planned", "leased", "done", "set aside", "cancelled"}[s]
	}
	return fmt.Sprintf("state %d", uint8(s))
}

// A NewChunk is a chunk to be planned.
type NewChunk struct {
	Name string // the address of what is to be written; another for each chunk of a plan
	// Part says that what is written is no archive: that of a Last chunk has
	// what it holds.
	Part bool
	// Last says that it can be claimed only when all chunks before it are done.
	// Its archive has its own members and those of the parts before it.
	Last    bool
	Members iter.Seq2[Member, error] // in byte order, each path once; nil is none
}

// A Chunk is a chunk of a plan. One that Claim returned is the right to pack it.
type Chunk struct {
	ID, Plan   int64
	Number     int // within the plan, from 0 on
	Name       string
	Part, Last bool
	State      ChunkState
	Objects    int64 // members, and their bytes, as planned
	Bytes      int64
	Left       Left
	Attempts   int    // claims
	Failures   int    // of these, how many Release was told a problem of
	Owner      string // who has or had it
	// Fence grows with each claim: what is not of the newest is too late.
	Fence      int64
	LeaseUntil time.Time // zero if it is not leased
	NotBefore  time.Time // zero if it is not planned, or is due
	Started    time.Time // when it was last claimed
	Finished   time.Time
	BytesDone  int64
	Problem    string // what Release was told last
	Archive    int64  // Archive.ID, 0 before it is recorded

	first, last string // paths
}

// Left counts the members of a chunk that were not packed.
type Left struct{ Vanished, Changed, SetAside int64 }

func (l Left) sum() int64 { return l.Vanished + l.Changed + l.SetAside }

// A Request says what to claim.
type Request struct {
	Owner string
	Lease time.Duration
	Plan  int64 // 0 is any
	Chunk int64 // 0 is any
	// Lapsed means only what somebody had whose lease has ended.
	Lapsed bool
}

// A Tally counts chunks and what was planned of them.
type Tally struct{ Chunks, Objects, Bytes int64 }

// Totals says how far a plan is.
type Totals struct {
	States    [chunkStates]Tally // by ChunkState
	Outcomes  [outcomes]int64    // members, by Outcome
	BytesDone int64              // of the chunks that are leased
}

// ErrNone means that there is no chunk to be claimed now.
var ErrNone = errors.New("no chunk is due")

// ErrLost means that a claim does not hold any more: its lease ended and another
// has the chunk, or the plan was cancelled. Nothing was recorded.
var ErrLost = errors.New("the chunk is not ours any more")

// ErrCancelled means that a plan was cancelled.
var ErrCancelled = errors.New("the plan is cancelled")

// A ledger is what the catalogue asks of a database for chunks in progress.
type ledger interface {
	addPlan(ctx context.Context, p Plan) (Plan, error)
	plans(ctx context.Context, name string) ([]Plan, error) // empty is all
	addChunks(ctx context.Context, plan int64, all []NewChunk) ([]Chunk, error)
	chunk(ctx context.Context, id int64) ([]Chunk, error) // none if it is not there
	chunks(ctx context.Context, plan int64) iter.Seq2[Chunk, error]
	// members yields those of a chunk with paths from one on.
	members(ctx context.Context, chunk int64, from string) iter.Seq2[Member, error]
	claim(ctx context.Context, r Request) (Chunk, error)
	renew(ctx context.Context, claim Chunk, lease time.Duration, bytesDone int64) error
	finish(ctx context.Context, claim Chunk, a *Addition, left iter.Seq2[Member, error]) (Added, error)
	releaseChunk(ctx context.Context, claim Chunk, problem string, again time.Duration, setAside bool) error
	cancelPlan(ctx context.Context, plan int64) error
	retryPlan(ctx context.Context, plan int64) (int, error)
	totals(ctx context.Context, plan int64) (Totals, error)
}

// AddPlan records a new plan, and returns it with what was added. A name that is
// taken is an error that wraps fs.ErrExist.
func (c *Catalog) AddPlan(ctx context.Context, p Plan) (Plan, error) {
	if p.Name == "" || p.Name != words(p.Name) || p.Format != words(p.Format) {
		return Plan{}, fmt.Errorf("plan %q of format %q: expected names of UTF-8", p.Name, p.Format)
	}
	if p.Settings == nil {
		p.Settings = []byte{} // as it comes back
	}
	return c.db.addPlan(ctx, p)
}

// Plan returns the plan of a name, or an error that wraps fs.ErrNotExist.
func (c *Catalog) Plan(ctx context.Context, name string) (Plan, error) {
	if name == "" || name != words(name) {
		return Plan{}, absent(name)
	}
	all, err := c.db.plans(ctx, name)
	if err == nil && len(all) == 0 {
		err = absent(name)
	}
	if err != nil {
		return Plan{}, err
	}
	return all[0], nil
}

// Plans returns all plans, the oldest first.
func (c *Catalog) Plans(ctx context.Context) ([]Plan, error) { return c.db.plans(ctx, "") }

// AddChunks adds chunks to a plan, all or none. Their numbers go on from the
// plan's last.
func (c *Catalog) AddChunks(ctx context.Context, plan int64, all []NewChunk) ([]Chunk, error) {
	all = slices.Clone(all)
	for i, n := range all {
		switch {
		case n.Name == "":
			return nil, fmt.Errorf("chunk %d of %d: expected a name", i+1, len(all))
		case n.Part && n.Last:
			return nil, fmt.Errorf("%s: expected a part, or the last: found both", format.Escape(n.Name))
		}
		all[i].Members = n.checked
	}
	return c.db.addChunks(ctx, plan, all)
}

// checked yields the members, and what is wrong with them.
func (n NewChunk) checked(yield func(Member, error) bool) {
	if n.Members == nil {
		return
	}
	first, last, bytes := true, "", int64(0)
	for m, err := range n.Members {
		switch {
		case err != nil:
		case !first && m.Path <= last:
			err = fmt.Errorf("%s: %s: expected a path after %s", format.Escape(n.Name), format.Escape(m.Path), format.Escape(last))
		case m.Size < 0 || m.Size > math.MaxInt64-bytes:
			err = fmt.Errorf("%s: %s: expected a size, found %d after %d bytes", format.Escape(n.Name), format.Escape(m.Path), m.Size, bytes)
		case m.Origin < 0 || m.Origin > math.MaxInt32:
			err = fmt.Errorf("%s: %s: expected the number of a source, found %d", format.Escape(n.Name), format.Escape(m.Path), m.Origin)
		}
		first, last, bytes = false, m.Path, bytes+m.Size
		if !yield(m, err) || err != nil {
			return
		}
	}
}

// Chunk returns a chunk as it is now, or an error that wraps fs.ErrNotExist.
func (c *Catalog) Chunk(ctx context.Context, id int64) (Chunk, error) {
	all, err := c.db.chunk(ctx, id)
	if err == nil && len(all) == 0 {
		err = absent(fmt.Sprintf("chunk %d", id))
	}
	if err != nil {
		return Chunk{}, err
	}
	return all[0], nil
}

// Chunks yields the chunks of a plan, by number.
func (c *Catalog) Chunks(ctx context.Context, plan int64) iter.Seq2[Chunk, error] {
	return c.db.chunks(ctx, plan)
}

// Members yields the members of a chunk, in byte order.
// The database is asked for some of them at a time, so that who takes hours for them
// holds nothing up.
func (c *Catalog) Members(ctx context.Context, chunk int64) iter.Seq2[Member, error] {
	return func(yield func(Member, error) bool) {
		r := &run{chunk: Chunk{ID: chunk}}
		for {
			more, err := r.fill(ctx, c.db, pageOf(1))
			if err != nil {
				yield(Member{}, err)
				return
			}
			for _, m := range r.page {
				if !yield(m, nil) {
					return
				}
			}
			if !more {
				return
			}
		}
	}
}

// Claim leases the oldest chunk that is due, or whose lease has ended; ErrNone if
// there is none. No two claims that hold are of the same chunk.
func (c *Catalog) Claim(ctx context.Context, r Request) (Chunk, error) {
	r.Owner = words(r.Owner)
	return c.db.claim(ctx, r)
}

// Renew makes a claim last for lease from now, and records how far its chunk is.
// A claim whose lease has ended can be renewed as long as nobody else has it.
func (c *Catalog) Renew(ctx context.Context, claim Chunk, lease time.Duration, bytesDone int64) error {
	return c.db.renew(ctx, claim, lease, bytesDone)
}

// Finish records at once that a chunk is done, the archive that it became and what
// is in it, and what became of its members. left yields those that were not packed,
// with their Outcome and Note; those that were packed in another version than was
// planned may be among them, as Packed, with the Size and Version that they have. All others
// are packed: each must be in the archive, and nothing else may be. A chunk of which
// nothing was packed has no archive, nor has a part: then a is nil.
//
// If anything is wrong, nothing is recorded. A claim that was finished already
// returns what was recorded then: so a Finish whose answer was lost may be tried again.
func (c *Catalog) Finish(ctx context.Context, claim Chunk, a *Addition, left iter.Seq2[Member, error]) (Added, error) {
	if a != nil {
		checked, err := a.checked()
		if err != nil {
			return Added{}, err
		}
		a = &checked
	}
	if left == nil {
		left = func(func(Member, error) bool) {}
	}
	return c.db.finish(ctx, claim, a, func(yield func(Member, error) bool) {
		for m, err := range left {
			if err == nil && (m.Outcome == Pending || m.Outcome >= outcomes || m.Size < 0) {
				err = fmt.Errorf("%s: expected an outcome and a size, found %v and %d", format.Escape(m.Path), m.Outcome, m.Size)
			}
			m.Note = words(m.Note)
			if !yield(m, err) || err != nil {
				return
			}
		}
	})
}

// Release gives a claim back: the chunk is due again after a while, or is set aside.
func (c *Catalog) Release(ctx context.Context, claim Chunk, problem string, again time.Duration, setAside bool) error {
	return c.db.releaseChunk(ctx, claim, words(problem), again, setAside)
}

// CancelPlan ends the work on a plan: what is not done is cancelled, and no claim
// of it holds any more.
func (c *Catalog) CancelPlan(ctx context.Context, plan int64) error {
	return c.db.cancelPlan(ctx, plan)
}

// RetryPlan makes chunks that were set aside or cancelled due again, as if they
// were new, and returns their number.
func (c *Catalog) RetryPlan(ctx context.Context, plan int64) (int, error) {
	return c.db.retryPlan(ctx, plan)
}

// Totals says how far a plan is.
func (c *Catalog) Totals(ctx context.Context, plan int64) (Totals, error) {
	return c.db.totals(ctx, plan)
}

// claimed returns why a claim does not hold of a chunk as the database has it, and
// whether it was finished by that claim.
func (c Chunk) claimed(claim Chunk) (finished bool, err error) {
	switch {
	case c.Fence == claim.Fence && c.State == ChunkLeased:
		return false, nil
	case c.Fence == claim.Fence && c.State == ChunkDone:
		return true, nil
	}
	return false, lost(claim)
}

func lost(claim Chunk) error { return fmt.Errorf("%s: %w", format.Escape(claim.Name), ErrLost) }

// noPlan is the error for a plan that is not there.
func noPlan(id int64) error { return absent(fmt.Sprintf("plan %d", id)) }

// noMember is the error for a path that was not planned.
func noMember(chunk, path string) error {
	return fmt.Errorf("%s: %s: expected a member of the chunk, found none of that path", format.Escape(chunk), format.Escape(path))
}

// miscounted is the error for an archive that has more than was planned.
func miscounted(chunk string, expected, found int64, path string) error {
	if path != "" {
		return fmt.Errorf("%s: %s: expected %d planned paths in its archive, found %d, and this is none of them", format.Escape(chunk), format.Escape(path), expected, found)
	}
	return fmt.Errorf("%s: expected %d planned paths in its archive, found %d", format.Escape(chunk), expected, found)
}

// unpacked is the error for a member that is not in the archive.
func unpacked(chunk, path string) error {
	return fmt.Errorf("%s: %s: expected it in the archive or an outcome, found neither", format.Escape(chunk), format.Escape(path))
}

// words makes text of what may be none, since not every database keeps all bytes
// as text. It is for people, so it may as well end.
func words(s string) string {
	const most = 4 << 10
	return strings.ToValidUTF8(strings.ReplaceAll(s[:min(len(s), most)], "\x00", "\ufffd"), "\ufffd")
}

// pageOf is how many members of a chunk are read at a time where n chunks are
// read in parallel: few enough to hold them all.
func pageOf(n int) int { return min(max(1<<16/max(n, 1), 64), 4096) }

// Planned yields all members of a plan in byte order, of several of one path the
// one that was planned last.
func (c *Catalog) Planned(ctx context.Context, plan int64) iter.Seq2[Member, error] {
	return func(yield func(Member, error) bool) {
		var all []Chunk
		for k, err := range c.db.chunks(ctx, plan) {
			if err != nil {
				yield(Member{}, err)
				return
			}
			if k.Objects > 0 {
				all = append(all, k)
			}
		}
		slices.SortFunc(all, func(a, b Chunk) int { return cmp.Compare(a.first, b.first) })
		// Chunks of one listing lie one behind the other, those of later ones among
		// them: only those that have the path in question are open.
		var open runs
		last, any := "", false
		for len(all) > 0 || len(open) > 0 {
			for len(all) > 0 && (len(open) == 0 || all[0].first <= open[0].head().Path) {
				r := &run{chunk: all[0], next: all[0].first}
				all = all[1:]
				if more, err := r.fill(ctx, c.db, pageOf(len(open)+1)); err != nil {
					yield(Member{}, err)
					return
				} else if more {
					heap.Push(&open, r)
				}
			}
			if len(open) == 0 {
				continue
			}
			r := open[0]
			m := r.head()
			if r.at++; r.at < len(r.page) {
				heap.Fix(&open, 0)
			} else if more, err := r.fill(ctx, c.db, pageOf(len(open))); err != nil {
				yield(Member{}, err)
				return
			} else if more {
				heap.Fix(&open, 0)
			} else {
				heap.Pop(&open)
			}
			if any && m.Path == last { // of an older chunk
				continue
			}
			last, any = m.Path, true
			if !yield(m, nil) {
				return
			}
		}
	}
}

// A run is the members of one chunk that are yet to come, some of them read.
type run struct {
	chunk Chunk
	page  []Member
	at    int
	next  string // the first path that is not read
	done  bool
}

func (r *run) head() Member { return r.page[r.at] }

// fill reads the next members, and reports whether there are any.
func (r *run) fill(ctx context.Context, db ledger, n int) (bool, error) {
	r.page, r.at = r.page[:0], 0
	if r.done {
		return false, nil
	}
	r.done = true
	for m, err := range db.members(ctx, r.chunk.ID, r.next) {
		if err != nil {
			return false, err
		}
		if r.page = append(r.page, m); len(r.page) == n {
			r.next, r.done = m.Path+"\x00", false
			break
		}
	}
	return len(r.page) > 0, nil
}

// runs is a heap: what is on top has the first path, the newest of several.
type runs []*run

func (r runs) Len() int      { return len(r) }
func (r runs) Swap(i, k int) { r[i], r[k] = r[k], r[i] }
func (r runs) Less(i, k int) bool {
	return cmp.Or(strings.Compare(r[i].head().Path, r[k].head().Path), cmp.Compare(r[k].chunk.Number, r[i].chunk.Number)) < 0
}
func (r *runs) Push(x any) { *r = append(*r, x.(*run)) }
func (r *runs) Pop() any {
	old := *r
	x := old[len(old)-1]
	old[len(old)-1] = nil
	*r = old[:len(old)-1]
	return x
}
