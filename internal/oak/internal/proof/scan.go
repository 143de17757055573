package proof

import (
	"context"
	"slices"
	"sync"

	"github.com/holdall/holdall/internal/oak/internal/segment"
	"github.com/holdall/holdall/internal/pipe"
)

const (
	// someChildren is how many children are held while what is below them is walked.
	someChildren = 1024
	// handful is how many nodes are handed to a goroutine at once.
	handful = 64
)

// A scan finds out whether anything is lost below a node, and marks what is pending
// and what is bad by itself. It goes down the tree alone and gives the properties of
// what it meets to others.
type scan struct {
	p       *Prover
	ctx     context.Context
	above   []segment.RecordID
	damaged bool
	nodes   int64
	fresh   []segment.RecordID // what this scan marked as bad

	hand []segment.Node
	tell func([]segment.Node) error

	mu  sync.Mutex
	bad []segment.RecordID // found by others
}

func (s *scan) run(id segment.RecordID) error {
	hands := pipe.Told(func(tell func([]segment.Node) error) error {
		s.tell = tell
		if err := s.visit(id); err != nil {
			return err
		}
		return tell(s.hand)
	})
	err := pipe.Each(s.ctx, hands, s.p.o.Workers, s.prove)
	s.collect()
	return err
}

// prove proves the properties of nodes.
func (s *scan) prove(ctx context.Context, nodes []segment.Node) error {
	var bad []segment.RecordID
	for _, n := range nodes {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		lost := false
		if err := s.p.own(ctx, n, func(string, *segment.Error) { lost = true }); err != nil {
			return err
		}
		if lost {
			bad = append(bad, n.ID())
		}
	}
	if len(bad) > 0 {
		s.mu.Lock()
		s.bad = append(s.bad, bad...)
		s.mu.Unlock()
	}
	return nil
}

// collect marks what others have found to be bad.
func (s *scan) collect() {
	s.mu.Lock()
	bad := s.bad
	s.bad = nil
	s.mu.Unlock()
	for _, id := range bad {
		s.spoil(id)
	}
}

func (s *scan) spoil(id segment.RecordID) {
	s.damaged = true
	s.p.mark(s.p.nodes, id, bad)
	s.fresh = append(s.fresh, id)
}

// own hands the properties of a node to whoever has time.
func (s *scan) own(n segment.Node) error {
	if len(n.Template().Properties) == 0 {
		return nil
	}
	if s.hand = append(s.hand, n); len(s.hand) < handful {
		return nil
	}
	s.collect()
	full := s.hand
	s.hand = make([]segment.Node, 0, handful)
	return s.tell(full)
}

func (s *scan) visit(id segment.RecordID) error {
	known := s.p.nodes.get(id)
	if known != good && (known != unknown || s.p.nodes.forgot) && slices.Contains(s.above, id) {
		s.damaged = true // it is its own descendant
		return nil
	}
	switch {
	case known == bad:
		s.damaged = true
		return nil
	case known != unknown:
		return nil
	case len(s.above) >= s.p.o.Depth:
		s.damaged = true
		return nil
	}
	n, err := s.p.r.Node(s.ctx, id)
	if err != nil {
		if damage(err) == nil {
			return err
		}
		s.spoil(id)
		return nil
	}
	s.nodes++
	s.p.mark(s.p.nodes, id, pending)
	if err := s.own(n); err != nil {
		return err
	}
	if n.Template().Rule == segment.NoChild {
		return nil
	}
	s.above = append(s.above, id)
	err = s.children(n)
	s.above = s.above[:len(s.above)-1]
	return err
}

// children visits the children of a node. Only if there are many does it hold the
// segments that have their map meanwhile.
func (s *scan) children(n segment.Node) error {
	var some []segment.RecordID
	spoiled := false
	visit := func() error {
		for _, id := range some {
			if err := s.visit(id); err != nil {
				return err
			}
		}
		some = some[:0]
		return s.ctx.Err()
	}
	for e, err := range n.Children(s.ctx) {
		if err != nil {
			if damage(err) == nil {
				return err
			}
			if !spoiled {
				s.spoil(n.ID())
				spoiled = true
			}
			continue
		}
		if some = append(some, e.Value); len(some) == someChildren {
			if err := visit(); err != nil {
				return err
			}
		}
	}
	return visit()
}
