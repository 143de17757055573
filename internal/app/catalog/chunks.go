package catalog

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/holdall/holdall/format"
)

// A Plan is a set of objects that a fleet is to pack, divided into chunks.
type Plan struct {
	ID       int64
	Name     string
	Format   string
	Target   string
	Settings []byte // the format is the fleet's
	Created  time.Time
	// Cancelled reports that no more chunks of the plan are to be packed.
	Cancelled bool
}

// A Member is a source object that was planned.
type Member struct {
	Path    string // in the archive, byte for byte
	Origin  int    // which of the plan's sources it is from
	Size    int64
	Version string // as listed; any bytes
	Outcome Outcome
	Note    string // the reason, for people
	// Modified is when the object was written, as listed or as packed, and Headers
	// is the length of the text of its headers. They are zero if that is not known,
	// and are not stored.
	Modified time.Time
	Headers  int
	// Proof names the checksum that it was compared with when it was packed; empty
	// means the first of Chunk.Proven.
	Proof string
}

// An Outcome is the result for a member.
type Outcome uint8

const (
	Pending  Outcome = iota
	Packed           // it is in the chunk's archive
	Vanished         // it was not there any more
	Changed          // it differs from the planned version, and is not packed
	SetAside         // it could not be read
	Damaged          // its bytes differ from the checksum of its service
	outcomes
)

func (o Outcome) String() string {
	if o < outcomes {
		return [...]string{"pending", "packed", "vanished", "changed", "set aside", "damaged"}[o]
	}
	return fmt.Sprintf("outcome %d", uint8(o))
}

// A ChunkState is the progress of a chunk.
type ChunkState uint8

const (
	ChunkPlanned ChunkState = iota
	ChunkLeased             // a worker is packing it, or was until the lease ended
	ChunkDone
	ChunkSetAside // no worker tries it again before RetryPlan
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
	Name string // the address of the archive to write; unique in a plan
	// Part reports that the chunk writes a part, not an archive. The archive of
	// the Last chunk contains the parts.
	Part bool
	// Last reports that the chunk can be claimed only when all chunks before it
	// are done. Its archive has its own members and those of the parts before it.
	Last bool
	// Rewrites reports that the members are in archives of the plan already, and
	// are packed from there: an archive that has more than its visible files is
	// rewritten.
	Rewrites bool
	// Repairs reports that the chunk rewrites damaged or lost archives, from
	// originals where these still exist.
	Repairs bool
	Members iter.Seq2[Member, error] // in byte order, each path once; nil means no members
}

// A Chunk is a chunk of a plan. A Chunk returned by Claim is also the right to
// pack it.
type Chunk struct {
	ID, Plan   int64
	Number     int // within the plan, from 0 on
	Name       string
	Part, Last bool
	Rewrites   bool
	Repairs    bool // then Rewrites is set, too
	State      ChunkState
	Objects    int64 // members, and their bytes, as planned
	Bytes      int64
	Left       Left
	Attempts   int    // claims
	Failures   int    // of these, the number that Release got a problem for
	Owner      string // the worker that holds or held it
	// Fence grows with each claim. A result with an older fence is rejected.
	Fence      int64
	LeaseUntil time.Time // zero if it is not leased
	NotBefore  time.Time // zero if it is not planned, or is due
	Started    time.Time // when it was last claimed
	Finished   time.Time
	BytesDone  int64
	Problem    string // the last problem given to Release
	// Proven counts the packed members by the checksum that they were compared
	// with, the most frequent first: "md5:57 nothing:2".
	Proven  string
	Archive int64 // Archive.ID, 0 before it is recorded

	first, last string // paths
}

// Left counts the members of a chunk that were not packed.
type Left struct{ Vanished, Changed, SetAside, Damaged int64 }

func (l Left) sum() int64 { return l.Vanished + l.Changed + l.SetAside + l.Damaged }

func (l Left) of(o Outcome) int64 {
	switch o {
	case Vanished:
		return l.Vanished
	case Changed:
		return l.Changed
	case SetAside:
		return l.SetAside
	case Damaged:
		return l.Damaged
	}
	return 0
}

type Request struct {
	Owner string
	Lease time.Duration
	Plan  int64 // 0 means any
	Chunk int64 // 0 means any
	// Lapsed selects only chunks whose lease has ended.
	Lapsed bool
}

type Tally struct {
	Chunks  int64 `json:"chunks"`
	Objects int64 `json:"objects"`
	Bytes   int64 `json:"bytes"`
}

type Totals struct {
	States    [chunkStates]Tally // by ChunkState
	Outcomes  [outcomes]int64    // members, by Outcome
	BytesDone int64              // of the chunks that are leased
}

// ErrNone reports that no chunk can be claimed now.
var ErrNone = errors.New("no chunk is due")

// ErrLost reports that a claim is no longer valid: its lease ended and another
// worker has the chunk, or the plan was cancelled. Nothing was recorded.
var ErrLost = errors.New("another worker has the chunk")

var ErrCancelled = errors.New("the plan is cancelled")

// ErrOpen reports that a plan has chunks that are still to be packed.
var ErrOpen = errors.New("the plan has unfinished chunks: cancel it first")

// claimed returns why a claim is not valid for a chunk read from the database,
// and whether that claim has finished the chunk.
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

func noPlan(id int64) error { return Absent(fmt.Sprintf("plan %d", id)) }

// words converts any bytes to text, because not every database can store all
// bytes as text. The text is for people only, so it may be shortened.
func words(s string) string {
	const most = 4 << 10
	return strings.ToValidUTF8(strings.ReplaceAll(s[:min(len(s), most)], "\x00", "\ufffd"), "\ufffd")
}

// pageOf returns how many members of a chunk are read at a time if n chunks
// are read in parallel, so that all of them fit in memory.
func pageOf(n int) int { return min(max(1<<16/max(n, 1), 64), 4096) }

// Planned yields all members of a plan in byte order. If a path was planned
// several times, it yields the latest.
func (c *Catalog) Planned(ctx context.Context, plan int64) iter.Seq2[Member, error] {
	return func(yield func(Member, error) bool) {
		var all []Chunk
		for k, err := range c.Chunks(ctx, plan) {
			if err != nil {
				yield(Member{}, err)
				return
			}
			if k.Objects > 0 {
				all = append(all, k)
			}
		}
		slices.SortFunc(all, func(a, b Chunk) int { return cmp.Compare(a.first, b.first) })
		// The chunks of one listing follow each other, and those of later listings lie
		// among them. So only chunks whose range includes the current path are open.
		var open []*run // by the paths of their heads; for equal paths, the newest first
		last, any := "", false
		for len(all) > 0 || len(open) > 0 {
			var r *run
			if len(all) > 0 && (len(open) == 0 || all[0].first <= open[0].head().Path) {
				r, all = &run{chunk: all[0], next: all[0].first}, all[1:]
			} else {
				r, open = open[0], open[1:]
				m := r.head()
				r.at++
				if !any || m.Path != last { // otherwise it is from an older chunk
					if last, any = m.Path, true; !yield(m, nil) {
						return
					}
				}
			}
			if r.at == len(r.page) {
				more, err := r.fill(ctx, c, pageOf(len(open)+1))
				if err != nil {
					yield(Member{}, err)
					return
				}
				if !more {
					continue
				}
			}
			at, _ := slices.BinarySearchFunc(open, r, (*run).compare)
			open = slices.Insert(open, at, r)
		}
	}
}

// A run is the remaining members of one chunk, some of them already read.
type run struct {
	chunk Chunk
	page  []Member
	at    int
	next  string // the first path that is not read
	done  bool
}

func (r *run) head() Member { return r.page[r.at] }

func (r *run) compare(s *run) int {
	return cmp.Or(strings.Compare(r.head().Path, s.head().Path), cmp.Compare(s.chunk.Number, r.chunk.Number))
}

func (r *run) fill(ctx context.Context, c *Catalog, n int) (bool, error) {
	r.page, r.at = nil, 0
	if r.done {
		return false, nil
	}
	r.done = true
	var err error
	if r.page, err = c.members(ctx, r.chunk.ID, r.next, n); len(r.page) == n {
		r.next, r.done = r.page[n-1].Path+"\x00", false
	}
	return len(r.page) > 0, err
}
