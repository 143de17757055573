package proof

import (
	"context"
	"fmt"
	"slices"

	"github.com/holdall/holdall/internal/oak/internal/segment"
)

const (
	mostPlaces = 10_000
	mostPath   = 1 << 20 // bytes
)

// An account visits what a scan did not find intact, in the order of the tree. It reports what is
// lost, and marks what is pending as good or bad. Pending nodes are then intact, except for what
// is below them.
type account struct {
	p      *Prover
	ctx    context.Context
	report bool
	above  []segment.RecordID
	met    *marks // bad: the scan has just found it so; pending: accounted for

	places map[weakness]int // in losses
	owners map[segment.RecordID]lossRange
	losses []Loss
	lost   int64
}

// A lossRange is the range of losses that belong to properties of one node.
type lossRange struct{ from, to int }

// A damage is where something is damaged.
type weakness struct {
	segment segment.ID
	record  int32
	off     int64
	what    string
}

func (a *account) node(id segment.RecordID, path string) error {
	known := a.p.nodes.get(id)
	if known == good {
		return nil
	}
	fault := func(path string, class segment.Class, format string, args ...any) error {
		a.add(Loss{Path: path, Err: &segment.Error{Class: class, Segment: id.Segment, Record: id.Number, Off: -1, What: fmt.Sprintf(format, args...)}})
		return nil
	}
	was := a.met.get(id)
	switch {
	case slices.Contains(a.above, id):
		return fault(path, segment.Corrupt, "node: expected a new one, found an ancestor of itself")
	case was == pending: // it was already reached by another path
		own := a.owners[id]
		for i := own.from; i < own.to; i++ {
			a.losses[i].Others++
		}
		return nil
	case known == bad && was != bad && !a.report:
		return nil
	case len(a.above) >= a.p.o.Depth:
		return fault(path, segment.Limit, "tree: expected at most %d levels, found more", a.p.o.Depth)
	case len(path) > mostPath:
		return fault(path[:mostPath], segment.Limit, "path: expected at most %d bytes, found more", mostPath)
	}
	n, err := a.p.r.Node(a.ctx, id)
	if err != nil {
		return a.spoil(id, Loss{Path: path}, err)
	}
	a.p.mark(a.met, id, pending)
	lost := known == bad && was == bad
	if known != pending && (a.report || known == unknown) {
		from := len(a.losses)
		err := a.p.Own(a.ctx, n, func(property string, e *segment.Error) {
			lost = true
			a.add(Loss{Path: path, Property: property, Err: e})
		})
		if err != nil {
			return err
		}
		if to := len(a.losses); to > from {
			a.owners[id] = lossRange{from, to}
		}
	}
	below, err := a.below(n, path)
	if err != nil {
		return err
	}
	s := good
	if lost || below {
		s = bad
	}
	a.p.mark(a.p.nodes, id, s)
	return nil
}

// spoil accounts for a node that cannot be read completely.
func (a *account) spoil(id segment.RecordID, l Loss, err error) error {
	if l.Err = Damage(err); l.Err == nil {
		return err
	}
	a.p.mark(a.p.nodes, id, bad)
	a.add(l)
	return nil
}

// below accounts for the children of a node, and reports whether any of them are damaged.
func (a *account) below(n segment.Node, path string) (lost bool, err error) {
	if n.Template().Rule == segment.NoChild {
		return false, nil
	}
	id := n.ID()
	a.above = append(a.above, id)
	defer func() { a.above = a.above[:len(a.above)-1] }()
	var some []segment.Entry
	visit := func() error {
		for _, e := range some {
			if a.p.nodes.get(e.Value) == good {
				continue
			}
			if err := a.node(e.Value, a.under(path, e.Name)); err != nil {
				return err
			}
			// What is still pending is its own ancestor, or too deep.
			lost = lost || a.p.nodes.get(e.Value) != good
		}
		some = some[:0]
		return a.ctx.Err()
	}
	for e, err := range a.p.children(a.ctx, n) {
		if err != nil {
			if err := a.spoil(id, Loss{Path: path, Children: true}, err); err != nil {
				return lost, err
			}
			lost = true
			continue
		}
		if some = append(some, e); len(some) == someChildren {
			if err := visit(); err != nil {
				return lost, err
			}
		}
	}
	return lost, visit()
}

func (a *account) under(path, name string) string {
	if !a.report {
		return ""
	}
	if path == "" || path == "/" {
		return "/" + a.p.o.Name(name, true)
	}
	return path + "/" + a.p.o.Name(name, false)
}

// add notes a loss, unless the place is known.
func (a *account) add(l Loss) {
	if !a.report {
		return
	}
	where := weakness{l.Err.Segment, l.Err.Record, l.Err.Off, l.Err.What}
	if i, ok := a.places[where]; ok && !a.p.o.Each {
		a.losses[i].Others++
		return
	}
	if a.lost++; len(a.losses) < mostPlaces {
		a.places[where] = len(a.losses)
		a.losses = append(a.losses, l)
	}
}
