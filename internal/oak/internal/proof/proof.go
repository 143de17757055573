package proof

import (
	"cmp"
	"context"
	"errors"
	"runtime"
	"sync"

	"github.com/holdall/holdall/internal/oak/internal/segment"
)

type Options struct {
	// Binaries means that each block of a binary is read. Otherwise only the existence of the
	// segments that should contain the blocks is checked.
	Binaries bool
	// Bulk reads a segment of bare bytes, only to verify that it can be read. If it is nil, the
	// Reader does that.
	Bulk func(context.Context, segment.ID) error
	// Copy also verifies what only a writer needs: names that are in order, each once.
	Copy bool
	// Each reports every node and property that leads to a damaged place.
	Each bool
	// Workers is how many goroutines verify properties; 0 is one for each core.
	Workers int
	// Depth is how many levels a tree may have; 0 is 1000.
	Depth int
	// Memory is how many bytes the marks may take; 0 is 64 MiB.
	Memory int
	// Name converts the name of a child to an element of a path; first means that it is the first
	// element. If Name is nil, names are not changed.
	Name func(name string, first bool) string
}

// A Prover verifies trees of one store. It must not be used in parallel.
type Prover struct {
	r     *segment.Reader
	o     Options
	nodes *marks

	mu     sync.Mutex
	values *marks // good or unknown: values in blocks, and long arrays
	bulk   map[segment.ID]struct{}
}

// New returns a Prover for the store of r.
func New(r *segment.Reader, o Options) *Prover {
	o.Depth = cmp.Or(o.Depth, 1000)
	o.Memory = cmp.Or(o.Memory, 64<<20)
	o.Workers = cmp.Or(o.Workers, runtime.GOMAXPROCS(0))
	if o.Name == nil {
		o.Name = func(name string, _ bool) string { return name }
	}
	if o.Bulk == nil {
		o.Bulk = func(ctx context.Context, id segment.ID) error {
			_, err := r.Segment(ctx, id)
			return err
		}
	}
	return &Prover{r: r, o: o, nodes: newMarks(o.Memory / 4 * 3), values: newMarks(o.Memory / 8), bulk: map[segment.ID]struct{}{}}
}

type Result struct {
	Whole bool
	Nodes int64 // that were read, without those known before
	Lost  int64 // places that are damaged, if they were to be reported
}

// A Loss is a damaged place and what is lost because of it.
type Loss struct {
	Path     string // of the node
	Property string // of the node, or empty
	Children bool   // children with unknown names are lost
	Err      *segment.Error
	Others   int // how many other nodes and properties lead to the place
}

// Tree verifies that everything below a node can be read. If report is not nil, it is called with
// each damaged place once, in the order of the tree, with the first path by which it is reached.
// path is the path of the node. Only the first mostPlaces places are recognized when they are
// reached again.
//
// Damage is not an error. Tree returns an error only for a failure of the store or the caller.
func (p *Prover) Tree(ctx context.Context, id segment.RecordID, path string, report func(Loss)) (Result, error) {
	switch s := p.nodes.get(id); {
	case s == good:
		return Result{Whole: true}, nil
	case s == bad && report == nil:
		return Result{}, nil
	}
	s := scan{p: p, ctx: ctx, hand: make([]segment.Node, 0, leastHand)}
	err := s.run(id)
	if err != nil {
		p.nodes.settle(unknown)
		return Result{}, err
	}
	res := Result{Whole: !s.damaged, Nodes: s.nodes}
	if res.Whole {
		p.nodes.settle(good)
		return res, nil
	}
	a := account{p: p, ctx: ctx, met: newMarks(p.o.Memory / 4), places: map[weakness]int{}, owners: map[segment.RecordID]lossRange{}, report: report != nil}
	for _, id := range s.fresh {
		p.mark(a.met, id, bad)
	}
	s.fresh = nil
	err = a.node(id, path)
	p.nodes.settle(unknown)
	if err != nil {
		return Result{}, err
	}
	for _, l := range a.losses {
		report(l)
	}
	res.Lost = a.lost
	return res, nil
}

// mark sets the state of a record, which may not exist.
func (p *Prover) mark(m *marks, id segment.RecordID, s state) {
	if m.page(id.Segment) == nil {
		// The caller has just read the record, if it can be read.
		if seg, err := p.r.Segment(context.Background(), id.Segment); err == nil {
			m.open(id.Segment, seg.RecordCount())
		}
	}
	m.set(id, s)
}

// Damage returns the damage that err reports, nil if it reports something else.
func Damage(err error) *segment.Error {
	e, _ := errors.AsType[*segment.Error](err)
	return e
}
