package newtree

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"iter"

	"github.com/holdall/holdall/internal/oak/internal/segment"
	"github.com/holdall/holdall/internal/sorter"
)

// A build goes through the rows of a tree once.
type build struct {
	*Tree
	next  func() (sorter.Row, error, bool)
	row   sorter.Row // not yet used; good until the next
	more  bool
	read  int
	err   error // of the rows
	depth int
	nodes int64
}

func (w *build) whole(ctx context.Context) (segment.RecordID, error) {
	w.advance(ctx)
	root, err := w.node(ctx, nil)
	if err == nil {
		err = w.err
	}
	if err == nil && w.more {
		err = fmt.Errorf("new tree: row %d: expected one below the root, found %.40x", w.read, w.row.Key)
	}
	return root, err
}

// advance goes on to the next row. An error is for who asks last.
func (w *build) advance(ctx context.Context) {
	w.row, w.err, w.more = w.next()
	if w.read++; w.read%4096 == 0 && ctx.Err() != nil {
		w.err = context.Cause(ctx)
	}
	if w.err != nil {
		w.more = false
	}
}

// at reports whether the row is one of what begins with a prefix, which is not all of
// its key.
func (w *build) at(prefix []byte) bool {
	return w.more && len(w.row.Key) > len(prefix) && bytes.HasPrefix(w.row.Key, prefix)
}

// node writes the node of a path, whose rows are next, with all below it. It goes no
// deeper than paths may be.
func (w *build) node(ctx context.Context, path []byte) (segment.RecordID, error) {
	var p gathered
	known := len(path) == 0 // the root is nobody's folder: it is bare
	for ; w.at(path) && w.row.Key[len(path)] != rowChild && len(p.all) <= mostProperties; known = true {
		switch kind := w.row.Key[len(path)]; {
		case kind == rowProperty:
			if err := w.property(ctx, path, &p); err != nil {
				return segment.RecordID{}, err
			}
		case kind == rowFallback && len(w.row.Key) == len(path)+1, kind == rowNode && len(w.row.Key) == len(path)+9:
			texts, ok := readTexts(w.row.Value)
			if !ok {
				return segment.RecordID{}, w.damaged()
			}
			p.take(texts, w.row.Key[len(path)+1:])
			w.advance(ctx)
		default:
			return segment.RecordID{}, w.damaged()
		}
	}
	if len(p.all) > mostProperties {
		return segment.RecordID{}, fmt.Errorf("new tree: node: expected at most %d properties, found more", mostProperties)
	}
	n := segment.NewNode{Properties: p.all}
	switch {
	case len(p.all) > 0:
	case w.bare:
	case known:
		n.Properties = p.fallback
	default:
		n.Properties = w.o.Missing
	}
	if w.at(path) {
		first, err := w.child(ctx, path)
		if err == nil && w.at(path) {
			n.Written, err = w.b.Children(ctx, w.children(ctx, path, first))
		} else {
			n.Children = []segment.Child{first}
		}
		if err != nil {
			return segment.RecordID{}, err
		}
	}
	if w.err != nil {
		return segment.RecordID{}, w.err
	}
	w.nodes++
	return w.b.Node(ctx, n)
}

// child writes what is next below a node.
func (w *build) child(ctx context.Context, path []byte) (c segment.Child, err error) {
	name, rest, ok := segment.CutMapKey(w.row.Key[len(path)+1:])
	if !ok {
		return c, w.damaged()
	}
	if w.depth == w.o.Depth {
		return c, w.damaged()
	}
	w.depth++
	defer func() { w.depth-- }()
	c.Name = name
	c.Node, err = w.node(ctx, bytes.Clone(w.row.Key[:len(w.row.Key)-len(rest)]))
	return c, err
}

// children goes on behind the first child, in the order of the node's map.
func (w *build) children(ctx context.Context, path []byte, first segment.Child) iter.Seq2[segment.Child, error] {
	return func(yield func(segment.Child, error) bool) {
		for c, err := first, error(nil); yield(c, err) && err == nil && w.at(path); {
			c, err = w.child(ctx, path)
		}
	}
}

func (w *build) damaged() error {
	return fmt.Errorf("new tree: row %d: expected what was written, found %.40x", w.read, w.row.Key)
}

// gathered are the properties of a node, as they come.
type gathered struct {
	fallback []segment.NewProperty
	all      []segment.NewProperty
	told     []uint64       // when, by place in all
	places   map[string]int // in all
}

// take takes texts that were told at a time, or no time: these are the fallback.
func (g *gathered) take(texts []segment.NewProperty, told []byte) {
	if len(told) == 0 {
		g.fallback = texts
		return
	}
	for _, p := range texts {
		g.add(p, binary.BigEndian.Uint64(told))
	}
}

// add adds a property that was told at a time, unless there is a later one.
func (g *gathered) add(p segment.NewProperty, told uint64) {
	i, ok := g.places[p.Name]
	switch {
	case !ok:
		if g.places == nil {
			g.places = map[string]int{}
		}
		g.places[p.Name] = len(g.all)
		g.all, g.told = append(g.all, p), append(g.told, told)
	case told >= g.told[i]:
		g.all[i], g.told[i] = p, told
	}
}

// property reads a property of a node, whose rows are next, and writes its values.
func (w *build) property(ctx context.Context, path []byte, to *gathered) error {
	name, rest, ok := segment.CutMapKey(w.row.Key[len(path)+1:])
	if !ok || len(rest) == 0 {
		return w.damaged()
	}
	key := bytes.Clone(w.row.Key[:len(w.row.Key)-len(rest)])
	if rest[0] == rowHead {
		if len(w.row.Value) < 10 {
			return w.damaged()
		}
		told := binary.BigEndian.Uint64(w.row.Value)
		p, err := w.head(ctx, name, key)
		if err != nil {
			return err
		}
		to.add(p, told)
	}
	for w.at(key) { // elements that do not count
		w.advance(ctx)
	}
	return w.err
}

const (
	primaryType = "jcr:primaryType"
	mixinTypes  = "jcr:mixinTypes"
	// What a node's shape has room for.
	mostProperties = 1<<18 - 1
	mostMixins     = 1<<10 - 1
)

// head reads the property whose head is next. Its values become records at once,
// so that they lie together with their node, but for types: these are part of a
// node's shape, and have to be known there.
func (w *build) head(ctx context.Context, name string, key []byte) (p segment.NewProperty, err error) {
	p = segment.NewProperty{Name: name, Type: segment.PropertyType(w.row.Value[8])}
	kind, rest := w.row.Value[9], w.row.Value[10:]
	if kind == singleHead {
		v, err := w.value(ctx, p, rest, name == primaryType && p.Type == segment.Name)
		p.Values = []segment.NewValue{v}
		w.advance(ctx)
		return p, err
	}
	p.Multi = true
	if kind == listHead {
		v, err := w.value(ctx, p, rest, false)
		p.List = v.Record
		w.advance(ctx)
		return p, err
	}
	if len(rest) != 8 {
		return p, w.damaged()
	}
	most := binary.BigEndian.Uint64(rest)
	w.advance(ctx)
	if name == mixinTypes && p.Type == segment.Name && most <= mostMixins {
		for v, err := range w.elements(ctx, p, key, most, true) {
			if err != nil {
				return p, err
			}
			p.Values = append(p.Values, v)
		}
		return p, nil
	}
	p.List, err = w.b.ValuesOf(ctx, func(yield func(segment.RecordID, error) bool) {
		for v, err := range w.elements(ctx, p, key, most, false) {
			if !yield(v.Record, err) {
				return
			}
		}
	})
	return p, err
}

// elements goes through the values of a property. None may be missing.
func (w *build) elements(ctx context.Context, p segment.NewProperty, key []byte, most uint64, asText bool) iter.Seq2[segment.NewValue, error] {
	return func(yield func(segment.NewValue, error) bool) {
		i := uint64(0)
		for ; i < most && w.at(key); i++ {
			if at := w.row.Key[len(key):]; len(at) != 9 || binary.BigEndian.Uint64(at[1:]) != i {
				break
			}
			v, err := w.value(ctx, p, w.row.Value, asText)
			if !yield(v, err) || err != nil {
				return
			}
			w.advance(ctx)
		}
		if w.err == nil && (most != All && i < most || most == All && w.at(key)) {
			w.err = fmt.Errorf("new tree: property %.100q: expected a value %d, found none", p.Name, i)
		}
		if w.err != nil {
			yield(segment.NewValue{}, w.err)
		}
	}
}

// value makes of a value in a row one for a node: a record, or a text.
func (w *build) value(ctx context.Context, p segment.NewProperty, b []byte, asText bool) (v segment.NewValue, err error) {
	if len(b) == 0 {
		return v, w.damaged()
	}
	form, b := b[0], b[1:]
	v.IsID = true
	switch {
	case form == textForm && asText:
		return segment.NewValue{Text: string(b)}, nil
	case form == textForm && p.Type == segment.Binary:
		v.Record, err = w.b.ShortBinary(ctx, b)
	case form == textForm:
		v.Record, err = w.b.Text(ctx, string(b))
	case form == externalForm:
		v.Record, err = w.b.External(ctx, string(b))
	case form == recordForm && len(b) == 20:
		v.Record = segment.RecordID{Segment: segment.ID(b[:16]), Number: int32(binary.BigEndian.Uint32(b[16:]))}
	case form == bulkForm && len(b)%16 == 8:
		bulk := segment.Bulk{Len: int64(binary.BigEndian.Uint64(b))}
		for b = b[8:]; len(b) > 0; b = b[16:] {
			bulk.Segments = append(bulk.Segments, segment.ID(b[:16]))
		}
		v.Record, err = w.b.BulkValue(ctx, bulk)
	default:
		err = w.damaged()
	}
	return v, err
}
