package oak

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/kit/pipe"
	"github.com/holdall/holdall/internal/oak/internal/repo"
	"github.com/holdall/holdall/internal/oak/internal/segment"
)

// treeReader presents a revision as a tree. Nodes are directories; their properties are files of
// kind Property in them. tree_names.go defines the names, tree_value.go the contents.
//
// Only the segments that were read last are kept in memory.
type treeReader struct {
	*repository
	records    *segment.Reader
	shown      repo.Entry
	super      segment.RecordID
	top        segment.RecordID // shown as "."
	checkpoint string           // name of the checkpoint shown, or empty
	depth      int
	datastore  string // or empty
	// shape reads nodes for names and places, but not for values. It is records, or a guesser for
	// those who make nothing of the tree that lasts.
	shape *segment.Reader
	// paths is the same reader for following a path. It reads parts of segments if that costs
	// less.
	paths *treeReader
}

func (t *treeReader) Close() error { return t.close() }

// A spot is a node and its place in the tree.
type spot struct {
	name  string // path, "." at the top
	id    segment.RecordID
	depth int
	lost  error // why it is not known which node it is
}

// under returns the path of a child or property whose name is already escaped.
func (s spot) under(elem string) string {
	if s.depth == 0 {
		return elem
	}
	return s.name + "/" + elem
}

// mostPath bounds the paths that a damaged store could make.
const mostPath = 1 << 20

func (t *treeReader) node(ctx context.Context, s spot) (segment.Node, error) {
	switch {
	case s.lost != nil:
		return segment.Node{}, s.lost
	case s.depth > t.depth:
		return segment.Node{}, t.treeFault(treeLimit, s.id.Segment, -1, "tree: expected at most %d levels, found more", t.depth)
	case len(s.name) > mostPath:
		return segment.Node{}, t.treeFault(treeLimit, s.id.Segment, -1, "path: expected at most %d bytes, found %d", mostPath, len(s.name))
	}
	return t.nodeOf(ctx, s.id)
}

// nodeOf reads a node, or guesses it if it is in a damaged segment.
func (t *treeReader) nodeOf(ctx context.Context, id segment.RecordID) (segment.Node, error) {
	n, err := t.records.Node(ctx, id)
	if t.shape != t.records && isAltered(err) {
		if guess, bad := t.shape.Node(ctx, id); bad == nil {
			return guess, nil
		}
	}
	return n, err
}

// guessed returns why a node is a guess, or nil if it is not. The values of a guess are not to be
// read.
func (t *treeReader) guessed(ctx context.Context, n segment.Node) (err error) {
	if n.By() != t.records {
		_, err = t.records.Node(ctx, n.ID())
	}
	return err
}

// unprovenAttr is "true" for a node in a damaged segment.
const unprovenAttr = "unproven"

// nodeBelow is node for descending. A node that is below itself is damage.
func (t *treeReader) nodeBelow(ctx context.Context, s spot, above map[segment.RecordID]bool) (segment.Node, error) {
	n, err := t.node(ctx, s)
	if err == nil && above[s.id] {
		err = t.treeFault(badRecord, s.id.Segment, -1, "node %s: contains itself", s.id)
	}
	return n, err
}

// nodeEntry returns the entry of a node. If the node cannot be read, the entry has a fault.
func (t *treeReader) nodeEntry(ctx context.Context, s spot) (format.Entry, error) {
	e := format.Entry{Name: s.name, Kind: format.Dir}
	n, err := t.node(ctx, s)
	if err != nil {
		return e, t.lost(&e, err)
	}
	if t.guessed(ctx, n) != nil {
		e.Attr = map[string]string{unprovenAttr: "true"}
		return e, nil
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

// modTime returns when a node changed, if that is recorded. For a file it is recorded in the
// content node, which is only read if no other segment is needed.
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

// date returns the time in a property, zero if none can be read.
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

// textProperty returns the text of a property with one value, or "" if there is none.
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

// Limits of the children of a node that are kept in memory while the nodes below them are shown.
const (
	batchChildren = 256
	batchBytes    = 64 << 10 // of names
)

// children yields the children of a node. It keeps no segment in memory between them, so the
// memory that a walk needs does not grow with the depth. If the name of a child is lost, the spot
// has a number as its name.
func (t *treeReader) children(ctx context.Context, s spot) iter.Seq2[spot, error] {
	return pipe.Told(func(tell func(spot) error) error {
		var at segment.Place
		lost := 0
		for more := true; more; {
			n, err := t.shape.Node(ctx, s.id)
			if err != nil {
				return err
			}
			var some []spot
			bytes := 0
			more = false
			for c, err := range n.ChildrenFrom(ctx, &at) {
				if t.unlessDamage(err) != nil {
					return err
				}
				elem := writeTreeName(c.Name, s.depth == 0)
				if err != nil && c.Name == "" {
					lost++
					elem = fmt.Sprint(lostMark, lost)
				}
				some = append(some, spot{s.under(elem), c.Value, s.depth + 1, err})
				bytes += len(c.Name)
				if more = len(some) == batchChildren || bytes >= batchBytes; more {
					break
				}
			}
			if err := tellAll(ctx, some, tell); err != nil {
				return err
			}
		}
		return nil
	})
}

func tellAll(ctx context.Context, some []spot, tell func(spot) error) error {
	for _, c := range some {
		err := ctx.Err()
		if err == nil {
			err = tell(c)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// childNamed finds a child. If some of the children are lost, it may not be known whether the
// child exists; then lost is the reason.
func (t *treeReader) childNamed(ctx context.Context, n segment.Node, name string) (id segment.RecordID, ok bool, lost, err error) {
	if id, ok, err = n.Child(ctx, name); isAltered(err) {
		if guess, bad := t.shape.Node(ctx, n.ID()); bad == nil {
			id, ok, err = guess.Child(ctx, name)
		}
	}
	if err != nil && t.damage(err) != nil {
		shape := n.Template()
		return id, shape.Rule == segment.OneChild && shape.Child == name, err, nil
	}
	return id, ok, nil, err
}

// Entries walks the tree in the reference's order: a node, its properties, its children. An entry
// that cannot be read has a fault, and its siblings follow.
func (t *treeReader) Entries(ctx context.Context) iter.Seq2[format.Entry, error] {
	return pipe.Told(func(tell func(format.Entry) error) error {
		top := spot{name: ".", id: t.top}
		e, err := t.nodeEntry(ctx, top)
		switch {
		case err != nil:
			return err
		case e.Fault != nil:
			return tell(e)
		}
		return t.walk(ctx, top, nil, true, tell)
	})
}

// walk yields the contents of a node at s, whose ancestors are above: properties, then children. If
// on is set, it also yields the contents of the children.
func (t *treeReader) walk(ctx context.Context, s spot, above []segment.RecordID, on bool, tell func(format.Entry) error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	err := t.properties(ctx, s, func(e format.Entry, p segment.Property) error {
		err := tell(e)
		if err == nil && on && e.Kind == format.Dir && e.Fault == nil {
			err = t.binaries(ctx, e.Name, p, tell)
		}
		return err
	})
	if err != nil {
		return err
	}
	if on {
		above = append(above, s.id)
	}
	for c, err := range t.children(ctx, s) {
		if err == nil && c.lost == nil && slices.Contains(above, c.id) {
			c.lost = belowItself(c.id)
		}
		var e format.Entry
		if err == nil {
			e, err = t.nodeEntry(ctx, c)
		}
		if err == nil {
			err = tell(e)
		}
		if err == nil && on && e.Fault == nil {
			err = t.walk(ctx, c, above, true, tell)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func belowItself(id segment.RecordID) error {
	return &segment.Error{Class: segment.Corrupt, Segment: id.Segment, Record: id.Number, Off: -1, What: "node: expected a new one, found an ancestor of itself"}
}

// recordSet is a set of records: a bit for each, in pages, because the numbers in a damaged
// segment can be far apart.
type recordSet map[recordPage][pageWords]uint64

type recordPage struct {
	segment segment.ID
	n       int32
}

const pageWords = 8

// add adds a record. It returns false if that was there.
func (s recordSet) add(id segment.RecordID) bool {
	at := recordPage{id.Segment, id.Number / (64 * pageWords)}
	page := s[at]
	word, bit := &page[id.Number/64%pageWords], uint64(1)<<(id.Number%64)
	if *word&bit != 0 {
		return false
	}
	*word |= bit
	s[at] = page
	return true
}

// A walker walks trees and visits each node once, by the first path that leads to it. Trees of
// one store share most of their nodes.
type walker struct {
	t     *treeReader
	seen  recordSet
	visit func(context.Context, spot, segment.Node) error
	lost  int64
}

// all walks the tree that is shown. If that is the content of a revision, it then walks
// everything else in the revision, whose paths begin with superName.
func (w *walker) all(ctx context.Context) error {
	w.seen = recordSet{}
	if err := w.walk(ctx, spot{name: ".", id: w.t.top}); err != nil || w.t.checkpoint != "" || w.t.top == w.t.super {
		return err
	}
	return w.walk(ctx, spot{name: superName, id: w.t.super, depth: 1})
}

const superName = "%super"

func (w *walker) walk(ctx context.Context, s spot) error {
	n, err := w.t.node(ctx, s)
	if err != nil {
		w.lost++
		return w.t.unlessDamage(err)
	}
	if !w.seen.add(s.id) {
		return nil
	}
	if err := w.visit(ctx, s, n); err != nil {
		return err
	}
	for c, err := range w.t.children(ctx, s) {
		if err == nil {
			err = w.walk(ctx, c)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
