package proof

import (
	"bytes"
	"context"
	"fmt"
	"iter"
	"slices"
	"sync"

	"github.com/holdall/holdall/format/kit/pipe"
	"github.com/holdall/holdall/internal/oak/internal/segment"
)

const (
	// someChildren is how many children are kept while the nodes below them are visited.
	someChildren = 1024
	// From leastHand to mostHand nodes are passed to a goroutine at once: a small tree keeps all
	// goroutines busy, and in a large one they do not wait for each other often.
	leastHand = 64
	mostHand  = 1024
)

// A scan finds out whether anything is lost below a node. It marks what is pending and what is
// damaged itself. One goroutine descends the tree; others verify the properties of the nodes that
// it visits.
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
		if err := s.p.Own(ctx, n, func(string, *segment.Error) { lost = true }); err != nil {
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

// collect marks what other goroutines have found to be damaged.
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

// own passes the properties of a node to an idle goroutine.
func (s *scan) own(n segment.Node) error {
	if len(n.Template().Properties) == 0 {
		return nil
	}
	if s.hand = append(s.hand, n); len(s.hand) < cap(s.hand) {
		return nil
	}
	s.collect()
	full := s.hand
	s.hand = make([]segment.Node, 0, min(max(s.nodes/leastHand, leastHand), mostHand))
	return s.tell(full)
}

func (s *scan) visit(id segment.RecordID) error {
	known := s.p.nodes.get(id)
	if known != good && (known != unknown || s.p.nodes.forgot) && slices.Contains(s.above, id) {
		s.damaged = true // the node is its own descendant
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
		if Damage(err) == nil {
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

// children visits the children of a node. It keeps the segments with their map in memory
// meanwhile only if there are many children.
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
	for e, err := range s.p.children(s.ctx, n) {
		if err != nil {
			if Damage(err) == nil {
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

// children yields the children of a node. If it is to be copied, one that is not in the order of
// maps is an error in its place.
func (p *Prover) children(ctx context.Context, n segment.Node) iter.Seq2[segment.Entry, error] {
	if !p.o.Copy {
		return n.Children(ctx)
	}
	return func(yield func(segment.Entry, error) bool) {
		var last, key []byte
		for e, err := range n.Children(ctx) {
			if err == nil {
				if key = segment.AppendMapKey(key[:0], e.Name); last != nil && bytes.Compare(last, key) >= 0 {
					err = fault(n, "map: expected names in order, found %.100q", e.Name)
				} else {
					last, key = key, last
				}
			}
			if !yield(e, err) {
				return
			}
		}
	}
}

func fault(n segment.Node, format string, args ...any) *segment.Error {
	return &segment.Error{Class: segment.Corrupt, Segment: n.ID().Segment, Record: n.ID().Number, Off: -1, What: fmt.Sprintf(format, args...)}
}

const (
	mostBlobID = 64 << 10 // bytes
	shortArray = 255      // values of an array that is not worth remembering
)

// Own verifies a node except for its children. It returns an error only for a failure that is not
// damage.
func (p *Prover) Own(ctx context.Context, n segment.Node, lost func(property string, e *segment.Error)) error {
	// What a template has in the place of values was read with it.
	if len(n.Template().Properties) == 0 {
		return nil
	}
	primary := n.Template().Primary
	var names map[string]bool
	if p.o.Copy {
		names = map[string]bool{}
	}
	for prop, err := range n.Properties(ctx) {
		if err == nil && (primary == nil || prop.Multi || prop.ID() != primary.ID) {
			err = p.Property(ctx, prop)
		}
		if p.o.Copy {
			key := string(segment.AppendMapKey(nil, prop.Name))
			if err == nil && names[key] {
				err = fault(n, "node: expected each property once, found %.100q twice", prop.Name)
			}
			names[key] = true
		}
		if err == nil {
			continue
		}
		e := Damage(err)
		if e == nil {
			return err
		}
		lost(prop.Name, e)
	}
	return nil
}

// Property verifies the values of a property. The error is the first damage.
func (p *Prover) Property(ctx context.Context, prop segment.Property) error {
	if !prop.Multi {
		v, err := prop.At(ctx, 0)
		if err == nil {
			err = p.value(ctx, v, prop.Type == segment.Binary)
		}
		return err
	}
	long := prop.Len() > shortArray
	if long && p.proved(prop.ID()) {
		return nil
	}
	for v, err := range prop.Values(ctx) {
		if err == nil {
			err = p.value(ctx, v, prop.Type == segment.Binary)
		}
		if err != nil {
			return err
		}
	}
	if long {
		p.remember(prop.ID())
	}
	return nil
}

func (p *Prover) value(ctx context.Context, v segment.Value, binary bool) error {
	switch {
	case v.External():
		_, err := v.BlobID(ctx, mostBlobID)
		return err
	case v.Kind() != segment.Long || p.proved(v.ID()):
		return nil
	}
	for piece, err := range v.Pieces(ctx, 0, v.Len()) {
		if err == nil && (p.o.Binaries || !binary) {
			err = p.piece(ctx, piece)
		}
		if err != nil {
			return err
		}
	}
	p.remember(v.ID())
	return nil
}

// piece proves a part of a value. Blocks of data segments were proven when found.
func (p *Prover) piece(ctx context.Context, piece segment.Piece) error {
	if piece.Segment.IsData() {
		return nil
	}
	p.mu.Lock()
	_, known := p.bulk[piece.Segment]
	p.mu.Unlock()
	if known {
		return nil
	}
	if err := p.o.Bulk(ctx, piece.Segment); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.bulk) >= p.o.Memory/8/32 {
		clear(p.bulk)
	}
	p.bulk[piece.Segment] = struct{}{}
	return nil
}

func (p *Prover) proved(id segment.RecordID) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.values.get(id) == good
}

func (p *Prover) remember(id segment.RecordID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mark(p.values, id, good)
}
