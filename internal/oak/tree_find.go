package oak

import (
	"cmp"
	"context"
	"fmt"
	"io/fs"
	"iter"
	"strings"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/kit/pipe"
	"github.com/holdall/holdall/internal/oak/internal/segment"
)

// A target is what a path leads to: a node, a property, or one of a property's values.
type target struct {
	spot     // of the node
	name     string
	prop     *segment.Property
	propLost error // why its values cannot be found
	value    int   // -1 for all values
}

func (t *treeReader) find(ctx context.Context, name string) (target, error) {
	at := spot{name: ".", id: t.top}
	more := name != "."
	for rest := name; more; {
		var elem string
		elem, rest, more = strings.Cut(rest, "/")
		said, ok := readTreeName(elem, at.depth == 0)
		if !ok {
			return target{}, fs.ErrNotExist
		}
		n, err := t.node(ctx, at)
		if err != nil {
			return target{}, t.corrupt(err, at.name)
		}
		if said.lost > 0 {
			if at, err = t.lostChild(ctx, at, elem); err != nil {
				return target{}, err
			}
			continue
		}
		id, isNode, lost, err := t.childNamed(ctx, n, said.name)
		if err != nil {
			return target{}, err
		}
		if isNode && !said.property {
			at = spot{at.under(elem), id, at.depth + 1, lost}
			continue
		}
		if said.property && !isNode {
			return target{}, fs.ErrNotExist
		}
		x, err := t.findProperty(ctx, n, target{spot: at, name: at.under(elem), value: -1}, said.name, rest, more)
		if err != fs.ErrNotExist {
			return x, err
		}
		if lost != nil {
			return x, t.corrupt(lost, at.name)
		}
		c, ok, err := t.misnamed(ctx, n, said.name)
		if err != nil || !ok {
			return x, cmp.Or[error](err, fs.ErrNotExist)
		}
		at = spot{at.under(elem), c, at.depth + 1, nil}
	}
	return target{spot: at, name: at.name}, nil
}

// mostMisnamed limits how much misnamed examines, because names that do not exist are often
// looked up.
const mostMisnamed = 1024

// misnamed finds a child by a damaged name, which is listed, but not where its hash belongs.
func (t *treeReader) misnamed(ctx context.Context, n segment.Node, name string) (segment.RecordID, bool, error) {
	n, err := t.shape.Node(ctx, n.ID())
	if err != nil {
		return segment.RecordID{}, false, t.unlessDamage(err)
	}
	if count, err := n.ChildCount(ctx); err != nil || count > mostMisnamed {
		return segment.RecordID{}, false, t.unlessDamage(err)
	}
	for c, err := range n.Children(ctx) {
		if err := t.unlessDamage(err); err != nil {
			return segment.RecordID{}, false, err
		}
		if err == nil && c.Name == name {
			return c.Value, true, nil
		}
	}
	return segment.RecordID{}, false, nil
}

// unlessDamage returns nil for errors that only report damage.
func (t *treeReader) unlessDamage(err error) error {
	if err != nil && t.damage(err) != nil {
		return nil
	}
	return err
}

// lostChild finds a child whose name is lost.
func (t *treeReader) lostChild(ctx context.Context, s spot, elem string) (spot, error) {
	want := s.under(elem)
	for c, err := range t.children(ctx, s) {
		if err != nil {
			return spot{}, t.corrupt(err, s.name)
		}
		if c.lost != nil && c.name == want {
			return c, nil
		}
	}
	return spot{}, fs.ErrNotExist
}

// findProperty finds a property of a node, or one of its values if more of the path follows. If
// there is none, the error is fs.ErrNotExist itself.
func (t *treeReader) findProperty(ctx context.Context, n segment.Node, x target, name, rest string, more bool) (target, error) {
	p, ok, lost, err := t.property(ctx, n, name)
	if err != nil {
		return target{}, err
	}
	if !ok {
		return target{}, fs.ErrNotExist
	}
	x.prop, x.propLost = &p, lost
	if !more {
		return x, nil
	}
	i, ok := readIndex(rest)
	if !ok || !isBinaries(p) {
		return target{}, fs.ErrNotExist
	}
	if lost != nil {
		return target{}, t.corrupt(lost, x.name)
	}
	if i >= p.Len() {
		return target{}, fs.ErrNotExist
	}
	x.name, x.value = x.name+"/"+rest, i
	return x, nil
}

// property finds a property, even if its values cannot be found: then lost is the reason.
func (t *treeReader) property(ctx context.Context, n segment.Node, name string) (p segment.Property, ok bool, lost, err error) {
	guessed := t.guessed(ctx, n)
	p, ok, err = n.Property(ctx, name)
	if guessed == nil && (err == nil || t.damage(err) == nil) {
		return p, ok, nil, err
	}
	for p, lost := range n.Properties(ctx) {
		if p.Name == name {
			return p, true, cmp.Or(guessed, lost), nil
		}
	}
	return p, false, nil, nil
}

// Lookup reads only the nodes on the path, and no lists of children.
func (t *treeReader) Lookup(ctx context.Context, name string) (format.Entry, error) {
	t = t.paths
	x, err := t.find(ctx, name)
	switch {
	case err == fs.ErrNotExist:
		return format.Entry{}, &fs.PathError{Op: "lookup", Path: name, Err: err}
	case err != nil:
		return format.Entry{}, err
	case x.prop == nil:
		return t.nodeEntry(ctx, x.spot)
	case x.value < 0:
		return t.propertyEntry(ctx, x.name, x.id, *x.prop, x.propLost)
	}
	v, err := x.prop.At(ctx, x.value)
	return t.binaryEntry(ctx, x.name, v, err)
}

// ReadDir yields a node's properties, then its children; or the values of a property.
func (t *treeReader) ReadDir(ctx context.Context, dir string) iter.Seq2[format.Entry, error] {
	return t.listed(ctx, dir, false)
}

// EntriesBelow walks everything below a node, or yields the values of a property.
func (t *treeReader) EntriesBelow(ctx context.Context, dir string) iter.Seq2[format.Entry, error] {
	return t.listed(ctx, dir, true)
}

func (t *treeReader) Can() format.Abilities {
	return format.Abilities{EntriesBelow: t.EntriesBelow, Doubt: t.doubt.Load, Object: t.objectNamed, Certain: func() { t.certain.Store(true) }, Compares: func(e format.Entry) format.Proof {
		_, external := e.Ref.(blobRef)
		if x, ok := e.Ref.(luceneRef); ok {
			external = x.away
		}
		if t.trust == asStored || t.list.Blobs != nil || e.Ref == nil || external || t.guesses() {
			return format.Unproven
		}
		return format.Summed
	}}
}

// listed yields what is in a directory and, if on is set, everything below it.
func (t *treeReader) listed(ctx context.Context, dir string, on bool) iter.Seq2[format.Entry, error] {
	return pipe.Told(func(tell func(format.Entry) error) error {
		x, err := t.paths.find(ctx, dir)
		switch {
		case err != nil:
		case x.prop != nil && (x.value >= 0 || !isBinaries(*x.prop)):
			err = fmt.Errorf("not a directory: %w", fs.ErrNotExist)
		case x.propLost != nil:
			err = t.corrupt(x.propLost, x.name)
		case x.prop != nil:
			return t.binaries(ctx, x.name, *x.prop, tell)
		case !on: // walk reports it itself
			_, err = t.node(ctx, x.spot)
			err = t.corrupt(err, x.name)
		}
		if err != nil {
			return &fs.PathError{Op: "readdir", Path: dir, Err: err}
		}
		return t.walk(ctx, x.spot, nil, on, tell)
	})
}
