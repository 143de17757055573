package oak

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"math"
	"strconv"
	"strings"

	"github.com/holdall/holdall/format/kit/pipe"
	"github.com/holdall/holdall/internal/oak/internal/nodejson"
	"github.com/holdall/holdall/internal/oak/internal/segment"
)

// Kinds of a Change.
const (
	NodeAdded   = "added"
	NodeRemoved = "removed"
	NodeChanged = "changed"
	NodeLost    = "lost" // damage keeps it from being compared
)

// A Change is a difference between two trees: a node that only one of them has, with everything
// below it, or a property.
type Change struct {
	Kind     string          `json:"change"`
	Path     string          `json:"path"`               // of the node
	Property string          `json:"property,omitempty"` // empty if it is the node itself
	Before   json.RawMessage `json:"before,omitempty"`   // of a property, in the form of an export
	After    json.RawMessage `json:"after,omitempty"`
	Lost     string          `json:"lost,omitempty"`
	Segment  string          `json:"segment,omitempty"`
	Tar      string          `json:"tar,omitempty"`
}

// TreeNamed chooses a tree: a revision, a time, "head", or "checkpoint:" and its name.
func (s *Store) TreeNamed(ctx context.Context, said string) (*Tree, error) {
	param := map[string]string{}
	if id, ok := strings.CutPrefix(said, "checkpoint:"); ok {
		param[checkpointParam] = id
	} else if said != "head" {
		param[revisionParam] = said
	}
	return s.Tree(ctx, param)
}

type ChangesOptions struct {
	// Depth is how many levels of nodes are compared; 0 or less is all. A deeper node that differs
	// is reported as one change without a property and without details.
	Depth int
}

// Changes yields the differences of a node and everything below it between two trees of the same
// store. Parts that both trees share are not read.
func (t *Tree) Changes(ctx context.Context, to *Tree, name string, o ChangesOptions) iter.Seq2[Change, error] {
	return pipe.Told(func(tell func(Change) error) error {
		name = nodePath(name)
		before, was, err := t.t.nodeIfThere(ctx, name)
		if err != nil {
			return err
		}
		after, is, err := to.t.nodeIfThere(ctx, name)
		switch {
		case err != nil:
			return err
		case !was && !is:
			return &fs.PathError{Op: "lookup", Path: shownPath(name), Err: fs.ErrNotExist}
		case !was:
			return tell(Change{Kind: NodeAdded, Path: shownPath(name)})
		case !is:
			return tell(Change{Kind: NodeRemoved, Path: shownPath(name)})
		}
		d := &difference{ctx: ctx, t: t.t, tell: tell, above: map[[2]segment.RecordID]bool{}, end: math.MaxInt}
		if o.Depth > 0 {
			d.end = lastLevel(after.depth, o.Depth)
		}
		return d.nodes(before, after)
	})
}

type difference struct {
	ctx   context.Context
	t     *treeReader
	tell  func(Change) error
	above map[[2]segment.RecordID]bool // pairs being compared, to stop at a node below itself
	end   int                          // nodes of this depth are not compared any more
}

// lost reports damage, and returns other errors.
func (d *difference) lost(c Change, err error) error {
	l, ok := d.t.lostAsJSON(err)
	if !ok {
		return err
	}
	c.Kind, c.Lost, c.Segment, c.Tar = NodeLost, l.What, l.Segment, l.Tar
	return d.tell(c)
}

func (d *difference) nodes(before, after spot) error {
	pair := [2]segment.RecordID{before.id, after.id}
	if d.above[pair] {
		return nil
	}
	path := shownPath(after.name)
	same, err := d.t.sameNode(d.ctx, before, after)
	if err != nil {
		return d.lost(Change{Path: path}, err)
	}
	if same {
		return nil
	}
	if after.depth >= d.end {
		return d.tell(Change{Kind: NodeChanged, Path: path})
	}
	d.above[pair] = true
	defer delete(d.above, pair)
	changes, err := d.t.propertyChanges(d.ctx, pair)
	if err != nil {
		err = d.lost(Change{Path: path}, err)
	}
	for _, p := range changes {
		if err == nil {
			err = d.property(path, p)
		}
	}
	if err != nil {
		return err
	}
	return d.children(before, after)
}

// sameNode reports whether nodes are equal by their records' names.
func (t *treeReader) sameNode(ctx context.Context, a, b spot) (bool, error) {
	if a.id == b.id {
		return true, nil
	}
	x, err := t.node(ctx, a)
	if err != nil {
		return false, err
	}
	y, err := t.node(ctx, b)
	if err != nil {
		return false, err
	}
	// Where damage hides one, the nodes are compared.
	first, err := x.StableID(ctx)
	if err != nil {
		return false, t.unlessDamage(err)
	}
	second, err := y.StableID(ctx)
	return err == nil && first == second, t.unlessDamage(err)
}

// A propertyChange is a property before and after; one of them may be missing.
type propertyChange struct {
	name          string
	before, after *segment.Property
	lost          error // why it is not known whether they differ
}

// propertyChanges returns the properties that differ between two nodes.
func (t *treeReader) propertyChanges(ctx context.Context, pair [2]segment.RecordID) (all []propertyChange, err error) {
	type found struct {
		p    segment.Property
		lost error
	}
	old := map[string]found{}
	var order []string
	n, err := t.records.Node(ctx, pair[0])
	if err != nil {
		return nil, err
	}
	for p, lost := range n.Properties(ctx) {
		old[p.Name] = found{p, lost}
		order = append(order, p.Name)
	}
	if n, err = t.records.Node(ctx, pair[1]); err != nil {
		return nil, err
	}
	for p, lost := range n.Properties(ctx) {
		was, ok := old[p.Name]
		delete(old, p.Name)
		switch {
		case !ok:
			all = append(all, propertyChange{name: p.Name, after: &p})
		case was.lost != nil || lost != nil:
			all = append(all, propertyChange{p.Name, &was.p, &p, errors.Join(was.lost, lost)})
		default:
			same, err := t.sameProperty(ctx, was.p, p)
			if t.unlessDamage(err) != nil {
				return nil, err
			}
			if !same {
				all = append(all, propertyChange{p.Name, &was.p, &p, err})
			}
		}
	}
	for _, name := range order {
		if was, ok := old[name]; ok {
			all = append(all, propertyChange{name: name, before: &was.p})
		}
	}
	return all, nil
}

// shownOfChange limits the length of a value that is shown with a change.
const shownOfChange = 4096

func (d *difference) property(path string, p propertyChange) error {
	c := Change{Path: path, Property: writeTreeName(p.name, false)}
	if p.lost != nil {
		return d.lost(c, p.lost)
	}
	c.Kind = p.kind()
	o := d.t.jsonOptions()
	o.Limit = shownOfChange
	for _, side := range []struct {
		p  *segment.Property
		to *json.RawMessage
	}{{p.before, &c.Before}, {p.after, &c.After}} {
		if side.p == nil {
			continue
		}
		b, _, err := nodejson.AppendProperty(d.ctx, nil, *side.p, nil, o)
		if err != nil {
			return d.lost(c, err)
		}
		*side.to = b
	}
	return d.tell(c)
}

func (p propertyChange) kind() string {
	switch {
	case p.before == nil:
		return NodeAdded
	case p.after == nil:
		return NodeRemoved
	}
	return NodeChanged
}

func (d *difference) children(before, after spot) error {
	for c, err := range d.t.records.ChildChanges(d.ctx, before.id, after.id) {
		name := after.under(writeTreeName(c.Name, after.depth == 0))
		switch none := (segment.RecordID{}); {
		case err != nil:
			err = d.lost(Change{Path: shownPath(after.name)}, err)
		case c.Before == none:
			err = d.tell(Change{Kind: NodeAdded, Path: shownPath(name)})
		case c.After == none:
			err = d.tell(Change{Kind: NodeRemoved, Path: shownPath(name)})
		default:
			err = d.nodes(spot{name, c.Before, after.depth + 1, nil}, spot{name, c.After, after.depth + 1, nil})
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// sameProperty reports whether two properties of one name have the same values.
func (t *treeReader) sameProperty(ctx context.Context, a, b segment.Property) (bool, error) {
	if a.Same(b) {
		return true, nil
	}
	if a.Type != b.Type || a.Multi != b.Multi || a.Len() != b.Len() {
		return false, nil
	}
	for i := range a.Len() {
		v, err := a.At(ctx, i)
		if err != nil {
			return false, err
		}
		w, err := b.At(ctx, i)
		if err != nil {
			return false, err
		}
		if same, err := sameValue(ctx, v, w); !same || err != nil {
			return false, err
		}
	}
	return true, ctx.Err()
}

func sameValue(ctx context.Context, v, w segment.Value) (bool, error) {
	switch {
	case v.ID() == w.ID():
		return true, nil
	case v.External() != w.External() || v.Len() != w.Len():
		return false, nil
	case v.External():
		a, err := v.BlobID(ctx, mostBlobID)
		if err != nil {
			return false, err
		}
		b, err := w.BlobID(ctx, mostBlobID)
		return a == b, err
	}
	size := min(v.Len(), inlineRun)
	a, b := make([]byte, size), make([]byte, size)
	for off := int64(0); off < v.Len(); off += size {
		n := min(size, v.Len()-off)
		if err := v.ReadAt(ctx, a[:n], off); err != nil {
			return false, err
		}
		if err := w.ReadAt(ctx, b[:n], off); err != nil {
			return false, err
		}
		if !bytes.Equal(a[:n], b[:n]) {
			return false, ctx.Err()
		}
	}
	return true, ctx.Err()
}

func (c Change) String() string {
	mark := map[string]string{NodeAdded: "+", NodeRemoved: "-", NodeChanged: "~", NodeLost: "?"}[c.Kind]
	s := mark + " " + c.Path
	if c.Property != "" {
		s += " " + c.Property
	}
	switch {
	case c.Lost != "":
		return s + " (" + c.Lost + ")"
	case c.Before != nil && c.After != nil:
		return s + ": " + shownValue(c.Before) + " -> " + shownValue(c.After)
	case c.Before != nil:
		return s + ": " + shownValue(c.Before)
	case c.After != nil:
		return s + ": " + shownValue(c.After)
	}
	return s
}

func shownValue(b json.RawMessage) string {
	const most = 60
	var p struct {
		Type   string
		Value  *string
		Values []json.RawMessage
		Count  int
		Length *int64
		Blob   string
		Lost   string
	}
	if err := json.Unmarshal(b, &p); err != nil {
		return string(b)
	}
	s := ""
	switch {
	case p.Value != nil:
		s = strconv.Quote(*p.Value)
	case p.Blob != "":
		s = "blob " + p.Blob
	case p.Length != nil:
		s = fmt.Sprintf("%s of %d bytes", p.Type, *p.Length)
	case p.Count > 0:
		s = fmt.Sprintf("%d values", p.Count)
	case p.Lost != "":
		s = "lost: " + p.Lost
	default:
		all := make([]string, len(p.Values))
		for i, v := range p.Values {
			all[i] = string(v)
		}
		s = "[" + strings.Join(all, ", ") + "]"
	}
	if r := []rune(s); len(r) > most {
		s = string(r[:most]) + "…"
	}
	return s
}
