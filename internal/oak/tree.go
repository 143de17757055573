package oak

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/oak/internal/repo"
	"github.com/holdall/holdall/internal/oak/internal/segment"
)

// treeReader shows a revision as a tree: nodes are directories, properties are in them
// as files of kind Property. Names are as tree_names.go has it, content as
// tree_value.go.
//
// Nothing of the tree is held but the segments read last.
type treeReader struct {
	*repository
	source     *parsed
	records    *segment.Reader
	shown      repo.Entry
	super      segment.RecordID
	top        segment.RecordID // shown as "."
	checkpoint string           // that it is of, or empty
	depth      int
	datastore  string // or empty
	// paths is the same for who follows a path: it reads parts of segments, where
	// that costs less.
	paths *treeReader
}

func (t *treeReader) Close() error { return t.close() }

// A spot is a node and where it is in the tree.
type spot struct {
	name  string // path, "." at the top
	id    segment.RecordID
	depth int
	lost  error // why it is not known which node it is
}

// under is the path of what a node has by a name that is written.
func (s spot) under(elem string) string {
	if s.depth == 0 {
		return elem
	}
	return s.name + "/" + elem
}

// mostPath bounds the paths that a damaged store could make.
const mostPath = 1 << 20

// node opens the node of a spot.
func (t *treeReader) node(ctx context.Context, s spot) (segment.Node, error) {
	switch {
	case s.lost != nil:
		return segment.Node{}, s.lost
	case s.depth > t.depth:
		return segment.Node{}, t.treeFault(treeLimit, s.id.Segment, -1, "tree: expected at most %d levels, found more", t.depth)
	case len(s.name) > mostPath:
		return segment.Node{}, t.treeFault(treeLimit, s.id.Segment, -1, "path: expected at most %d bytes, found %d", mostPath, len(s.name))
	}
	return t.records.Node(ctx, s.id)
}

// nodeEntry is the entry of a node. One that cannot be read has a fault.
func (t *treeReader) nodeEntry(ctx context.Context, s spot) (format.Entry, error) {
	e := format.Entry{Name: s.name, Kind: format.Dir}
	n, err := t.node(ctx, s)
	if err != nil {
		return e, t.lost(&e, err)
	}
	e.ModTime, err = t.modTime(ctx, n)
	return e, err
}

const (
	lastModified = "jcr:lastModified"
	created      = "jcr:created"
	jcrContent   = "jcr:content"
	fileType     = "nt:file"
)

// modTime is when a node changed, if it says so: of a file its content says it, which
// is read if that costs no other segment.
func (t *treeReader) modTime(ctx context.Context, n segment.Node) (time.Time, error) {
	at, err := t.date(ctx, n, lastModified)
	if !at.IsZero() || err != nil {
		return at, err
	}
	shape := n.Template()
	if shape.Primary != nil && shape.Primary.Text == fileType && shape.Rule == segment.OneChild && shape.Child == jcrContent {
		id, _, err := n.Child(ctx, jcrContent)
		if err == nil && id.Segment == n.ID().Segment {
			var c segment.Node
			if c, err = t.records.Node(ctx, id); err == nil {
				at, err = t.date(ctx, c, lastModified)
			}
		}
		if err != nil && t.damage(err) == nil || !at.IsZero() {
			return at, err
		}
	}
	return t.date(ctx, n, created)
}

// date is the time that a property says, zero if there is none that can be read.
func (t *treeReader) date(ctx context.Context, n segment.Node, name string) (time.Time, error) {
	const longest = 64
	for _, known := range n.Template().Properties {
		if known.Name != name || known.Type != segment.Date || known.Multi {
			continue
		}
		text, err := textProperty(ctx, n, name, longest)
		at, _ := time.Parse(time.RFC3339, text)
		return at, t.unlessDamage(err)
	}
	return time.Time{}, nil
}

// textProperty is the text of a property of one value, empty if there is none.
func textProperty(ctx context.Context, n segment.Node, name string, longest int) (string, error) {
	p, ok, err := n.Property(ctx, name)
	if err != nil || !ok || p.Multi {
		return "", err
	}
	v, err := p.At(ctx, 0)
	if err != nil {
		return "", err
	}
	return v.Text(ctx, longest)
}

// Bounds of what is held of a node's children while what is below them is shown.
const (
	batchChildren = 256
	batchBytes    = 64 << 10 // of names
)

// children goes through the children of a node. It holds no segment meanwhile, so
// that a walk costs no more memory the deeper it is. Of a child whose name is lost
// the spot has a number for a name.
func (t *treeReader) children(ctx context.Context, s spot) iter.Seq2[spot, error] {
	return func(yield func(spot, error) bool) {
		var at segment.Place
		lost := 0
		for more := true; more; {
			some, goesOn, err := t.batch(ctx, s.id, &at)
			if err != nil {
				yield(spot{}, err)
				return
			}
			for _, c := range some {
				var elem string
				if c.err != nil && c.Name == "" {
					lost++
					elem = fmt.Sprint(lostMark, lost)
				} else {
					elem = writeTreeName(c.Name, s.depth == 0)
				}
				if !yield(spot{s.under(elem), c.Value, s.depth + 1, c.err}, nil) {
					return
				}
			}
			more = goesOn
		}
	}
}

// child is one of a node, or what is lost of them.
type child struct {
	segment.Entry
	err error // damage
}

// batch returns the children of a node from a place on, and whether there may be more.
func (t *treeReader) batch(ctx context.Context, of segment.RecordID, at *segment.Place) (some []child, more bool, err error) {
	n, err := t.records.Node(ctx, of)
	if err != nil {
		return nil, false, err
	}
	bytes := 0
	for e, err := range n.ChildrenFrom(ctx, at) {
		if err := t.unlessDamage(err); err != nil {
			return nil, false, err
		}
		some = append(some, child{e, err})
		if bytes += len(e.Name); len(some) == batchChildren || bytes >= batchBytes {
			return some, true, nil
		}
	}
	return some, false, nil
}

// childNamed finds a child. If a part of the children is lost, it may be that nobody
// knows whether there is one: then lost says why.
func (t *treeReader) childNamed(ctx context.Context, n segment.Node, name string) (id segment.RecordID, ok bool, lost, err error) {
	id, ok, err = n.Child(ctx, name)
	if err != nil && t.damage(err) != nil {
		shape := n.Template()
		return id, shape.Rule == segment.OneChild && shape.Child == name, err, nil
	}
	return id, ok, nil, err
}

// Entries goes down the tree in the reference's order: a node, its properties, its
// children. What cannot be read is an entry with a fault, and what is beside it follows.
func (t *treeReader) Entries(ctx context.Context) iter.Seq2[format.Entry, error] {
	return func(yield func(format.Entry, error) bool) {
		top := spot{name: ".", id: t.top}
		e, err := t.nodeEntry(ctx, top)
		if err != nil || e.Fault != nil {
			yield(e, err)
			return
		}
		t.walk(ctx, top, nil, yield)
	}
}

// walk goes through all below a node, which is below others. It returns false if it is
// over.
func (t *treeReader) walk(ctx context.Context, s spot, above []segment.RecordID, yield func(format.Entry, error) bool) bool {
	if ctx.Err() != nil {
		yield(format.Entry{}, context.Cause(ctx))
		return false
	}
	above = append(above, s.id)
	more := true
	err := t.properties(ctx, s, func(e format.Entry, p segment.Property) bool {
		if more = yield(e, nil); more && e.Kind == format.Dir && e.Fault == nil {
			for e, err := range t.binaries(ctx, e.Name, p) {
				if more = yield(e, err) && err == nil; !more {
					break
				}
			}
		}
		return more
	})
	if err != nil {
		yield(format.Entry{}, err)
		return false
	}
	if !more {
		return false
	}
	for c, err := range t.children(ctx, s) {
		if err == nil && c.lost == nil && slices.Contains(above, c.id) {
			c.lost = &segment.Error{Class: segment.Corrupt, Segment: c.id.Segment, Record: c.id.Number, Off: -1, What: "node: expected a new one, found an ancestor of itself"}
		}
		var e format.Entry
		if err == nil {
			e, err = t.nodeEntry(ctx, c)
		}
		if !yield(e, err) || err != nil {
			return false
		}
		if e.Fault == nil && !t.walk(ctx, c, above, yield) {
			return false
		}
	}
	return true
}
