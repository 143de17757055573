package salvage

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/holdall/holdall/internal/oak/internal/segment"
)

// ErrMemory means that what is known of records needs more memory than it may take.
var ErrMemory = errors.New("salvage: the store has too many records for the allowed memory")

// marks has a bit for each record that is known.
type marks struct {
	most, used int64 // bytes
	pages      map[segment.ID][]uint64
}

// mostNumber is above the number of any record, because a segment has no room for so many.
const mostNumber = segment.MaxSize / 9

func (m *marks) has(id segment.RecordID) bool {
	p, n := m.pages[id.Segment], int(id.Number)
	return n < 0 || n >= mostNumber || n/64 < len(p) && p[n/64]>>(n%64)&1 != 0
}

// add reports whether a record was not known. Records that cannot exist always are.
func (m *marks) add(id segment.RecordID) (fresh bool, err error) {
	if m.has(id) {
		return false, nil
	}
	const page = 96 // memory of a page in addition to its bits
	p, met := m.pages[id.Segment]
	if !met {
		m.used += page
	}
	was := cap(p)
	if need := int(id.Number)/64 + 1; need > len(p) {
		p = slices.Grow(p, need-len(p))[:need]
	}
	p[id.Number/64] |= 1 << (id.Number % 64)
	m.pages[id.Segment] = p
	if m.used += int64(cap(p)-was) * 8; m.used > m.most {
		err = ErrMemory
	}
	return true, err
}

// Mark makes one record known.
func (v *Salvager) Mark(id segment.RecordID) error {
	_, err := v.known.add(id)
	return err
}

// Know makes a node known, and everything that can be read below it: it has a place in some version
// of the tree.
func (v *Salvager) Know(ctx context.Context, id segment.RecordID) error {
	for stack := []segment.RecordID{id}; len(stack) > 0; {
		last := len(stack) - 1
		id, stack = stack[last], stack[:last]
		fresh, err := v.known.add(id)
		if err != nil {
			return err
		}
		if !fresh {
			continue
		}
		if err := ctx.Err(); err != nil {
			return context.Cause(ctx)
		}
		p, err := v.o.From.Part(ctx, id)
		if err := failure(err); err != nil {
			return err
		}
		for _, e := range p.Named {
			if !v.known.has(e.Value) {
				stack = append(stack, e.Value)
			}
		}
		stack = append(stack, p.Maps...)
	}
	return nil
}

// Find writes the nodes of a segment that are not known, with everything below them that is not
// known, at a path of lost. It calls found with each. Segments must come in the opposite order of
// writing, and after everything that is known.
func (v *Salvager) Find(ctx context.Context, g *segment.Segment, lost []string, found func(segment.Child) error) error {
	v.finding = true
	rows := slices.Collect(g.Records())
	slices.SortStableFunc(rows, func(a, b segment.Row) int { return int(b.Number) - int(a.Number) })
	for _, row := range rows {
		id := segment.RecordID{Segment: g.ID(), Number: row.Number}
		if v.known.has(id) {
			continue
		}
		var c segment.Child
		var ok bool
		var err error
		c.Name = Name(id)
		way := append(slices.Clip(lost), c.Name)
		switch row.Type {
		case segment.NodeRecord:
			c.Node, ok, err = v.node(ctx, []version{{id: id}}, way)
		case segment.Leaf, segment.Branch:
			c.Node, ok, err = v.orphans(ctx, id, way)
		}
		if err == nil && ok {
			err = found(c)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Name returns the name of a found subtree: its record, in a form that names may have.
func Name(id segment.RecordID) string { return fmt.Sprintf("%s.%08x", id.Segment, id.Number) }

// orphans writes a folder with those children in a map that are not known.
func (v *Salvager) orphans(ctx context.Context, id segment.RecordID, way []string) (is segment.RecordID, ok bool, err error) {
	var some []segment.Child
	names := map[string]bool{}
	for maps := []segment.RecordID{id}; len(maps) > 0; {
		last := len(maps) - 1
		id, maps = maps[last], maps[:last]
		fresh, err := v.known.add(id)
		if err != nil {
			return is, false, err
		}
		if !fresh {
			continue
		}
		p, err := v.o.From.Part(ctx, id)
		if err := failure(err); err != nil {
			return is, false, err
		}
		maps = append(maps, p.Maps...)
		for _, e := range p.Named {
			if v.known.has(e.Value) {
				continue
			}
			node, ok, err := v.node(ctx, []version{{id: e.Value}}, append(slices.Clip(way), e.Name))
			if err != nil {
				return is, false, err
			}
			if ok && !taken(names, e.Name) {
				some = append(some, segment.Child{Name: e.Name, Node: node})
			}
		}
	}
	if len(some) == 0 {
		return is, false, nil
	}
	is, err = v.Folder(ctx, some)
	return is, true, err
}

// Folder writes a node for found subtrees.
func (v *Salvager) Folder(ctx context.Context, children []segment.Child) (segment.RecordID, error) {
	v.nodes++
	return v.o.To.Node(ctx, segment.NewNode{Children: children, Properties: unstructured()})
}
