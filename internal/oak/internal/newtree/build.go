package newtree

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"iter"
	"slices"

	"github.com/holdall/holdall/format/kit/sorter"
	"github.com/holdall/holdall/internal/oak/internal/segment"
)

// A build reads the rows of a tree once. After an error there are no more rows.
type build struct {
	*Tree
	next  func() (sorter.Row, error, bool)
	row   sorter.Row // not yet used; good until the next
	more  bool
	read  int
	err   error // the first
	depth int
	nodes int64
}

func (w *build) whole(ctx context.Context) (segment.RecordID, error) {
	w.advance(ctx)
	root := w.node(ctx, nil)
	if w.more {
		w.fail(fmt.Errorf("new tree: row %d: expected one below the root, found %.40x", w.read, w.row.Key))
	}
	return root, w.err
}

func (w *build) fail(err error) {
	if w.err == nil && err != nil {
		w.err, w.more = err, false
	}
}

func (w *build) damaged() {
	w.fail(fmt.Errorf("new tree: row %d: expected what was written, found %.40x", w.read, w.row.Key))
}

func (w *build) advance(ctx context.Context) {
	if w.err != nil {
		return
	}
	var err error
	w.row, err, w.more = w.next()
	if w.read++; w.read%4096 == 0 && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	w.fail(err)
}

// at reports whether a prefix begins the row's key, but is not the whole key.
func (w *build) at(prefix []byte) bool {
	return w.more && len(w.row.Key) > len(prefix) && bytes.HasPrefix(w.row.Key, prefix)
}

// node writes the node of a path, whose rows are next, with everything below it.
func (w *build) node(ctx context.Context, path []byte) segment.RecordID {
	var p gathered
	known := len(path) == 0 // the root is in no folder: it is bare
	for ; w.at(path) && w.row.Key[len(path)] != rowChild && len(p.all) <= mostProperties; known = true {
		switch kind := w.row.Key[len(path)]; {
		case kind == rowProperty:
			w.property(ctx, path, &p)
		case kind == rowFallback && len(w.row.Key) == len(path)+1, kind == rowNode && len(w.row.Key) == len(path)+9:
			texts, ok := readTexts(w.row.Value)
			if !ok {
				w.damaged()
				break
			}
			if kind == rowFallback {
				p.fallback = texts
			} else {
				told := binary.BigEndian.Uint64(w.row.Key[len(path)+1:])
				for _, text := range texts {
					p.add(text, told)
				}
			}
			w.advance(ctx)
		default:
			w.damaged()
		}
	}
	if len(p.all) > mostProperties {
		w.fail(fmt.Errorf("new tree: node: expected at most %d properties, found more", mostProperties))
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
		first := w.child(ctx, path)
		if n.Children = []segment.Child{first}; w.at(path) {
			var err error
			n.Children = nil
			n.Written, err = w.b.Children(ctx, w.children(ctx, path, first))
			w.fail(err)
		}
	}
	if w.err != nil {
		return segment.RecordID{}
	}
	w.nodes++
	id, err := w.b.Node(ctx, n)
	w.fail(err)
	return id
}

func (w *build) child(ctx context.Context, path []byte) (c segment.Child) {
	name, rest, ok := segment.CutMapKey(w.row.Key[len(path)+1:])
	if !ok || w.depth == w.o.Depth {
		w.damaged()
		return c
	}
	w.depth++
	defer func() { w.depth-- }()
	return segment.Child{Name: name, Node: w.node(ctx, bytes.Clone(w.row.Key[:len(w.row.Key)-len(rest)]))}
}

// children yields first and the children after it, in the order of the node's map.
func (w *build) children(ctx context.Context, path []byte, first segment.Child) iter.Seq2[segment.Child, error] {
	return func(yield func(segment.Child, error) bool) {
		for c := first; yield(c, w.err) && w.at(path); {
			c = w.child(ctx, path)
		}
	}
}

// gathered are the properties of a node that have been read.
type gathered struct {
	fallback []segment.NewProperty
	all      []segment.NewProperty
	told     []uint64       // when, by place in all
	places   map[string]int // in all
}

// add adds a property with the number of its row, unless there is a later one.
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
func (w *build) property(ctx context.Context, path []byte, to *gathered) {
	name, rest, ok := segment.CutMapKey(w.row.Key[len(path)+1:])
	if !ok || len(rest) == 0 || rest[0] == rowHead && len(w.row.Value) < 10 {
		w.damaged()
		return
	}
	key := bytes.Clone(w.row.Key[:len(w.row.Key)-len(rest)])
	if rest[0] == rowHead {
		told := binary.BigEndian.Uint64(w.row.Value)
		to.add(w.head(ctx, name, key), told)
	}
	for w.at(key) { // elements that do not count
		w.advance(ctx)
	}
}

const (
	primaryType = "jcr:primaryType"
	mixinTypes  = "jcr:mixinTypes"
	// What a node's shape has room for.
	mostProperties = 1<<18 - 1
	mostMixins     = 1<<10 - 1
)

// head reads the property whose head is next. Its values become records at once, so that they are
// stored beside their node. Types are an exception: they are part of a node's shape, where they
// must be known.
func (w *build) head(ctx context.Context, name string, key []byte) segment.NewProperty {
	kind, rest := w.row.Value[9], w.row.Value[10:]
	p := segment.NewProperty{Name: name, Type: segment.PropertyType(w.row.Value[8]), Multi: kind != singleHead}
	switch {
	case kind == singleHead:
		p.Values = []segment.NewValue{w.value(ctx, p, rest, name == primaryType && p.Type == segment.Name)}
		w.advance(ctx)
		return p
	case kind == listHead:
		p.List = w.value(ctx, p, rest, false).Record
		w.advance(ctx)
		return p
	case len(rest) != 8:
		w.damaged()
		return p
	}
	most := binary.BigEndian.Uint64(rest)
	w.advance(ctx)
	if name == mixinTypes && p.Type == segment.Name && most <= mostMixins {
		p.Values = slices.Collect(w.elements(ctx, p, key, most, true))
		return p
	}
	var err error
	p.List, err = w.b.ValuesOf(ctx, func(yield func(segment.RecordID, error) bool) {
		for v := range w.elements(ctx, p, key, most, false) {
			if !yield(v.Record, nil) {
				return
			}
		}
		if w.err != nil {
			yield(segment.RecordID{}, w.err)
		}
	})
	w.fail(err)
	return p
}

// elements yields the values of a property. None may be missing.
func (w *build) elements(ctx context.Context, p segment.NewProperty, key []byte, most uint64, asText bool) iter.Seq[segment.NewValue] {
	return func(yield func(segment.NewValue) bool) {
		i := uint64(0)
		for ; i < most && w.at(key); i++ {
			if at := w.row.Key[len(key):]; len(at) != 9 || binary.BigEndian.Uint64(at[1:]) != i {
				break
			}
			v := w.value(ctx, p, w.row.Value, asText)
			if w.err != nil || !yield(v) {
				return
			}
			w.advance(ctx)
		}
		if most != All && i < most || most == All && w.at(key) {
			w.fail(fmt.Errorf("new tree: property %.100q: expected a value %d, found none", p.Name, i))
		}
	}
}

// value makes of a value in a row one for a node: a record, or a text.
func (w *build) value(ctx context.Context, p segment.NewProperty, b []byte, asText bool) segment.NewValue {
	if len(b) == 0 {
		w.damaged()
		return segment.NewValue{}
	}
	form, b := b[0], b[1:]
	var id segment.RecordID
	var err error
	switch {
	case form == textForm && asText:
		return segment.NewValue{Text: string(b)}
	case form == textForm && p.Type == segment.Binary:
		id, err = w.b.ShortBinary(ctx, b)
	case form == textForm:
		id, err = w.b.Text(ctx, string(b))
	case form == externalForm:
		id, err = w.b.External(ctx, string(b))
	case form == recordForm && len(b) == 20:
		id = segment.RecordID{Segment: segment.ID(b[:16]), Number: int32(binary.BigEndian.Uint32(b[16:]))}
	case form == bulkForm && len(b)%16 == 8:
		bulk := segment.Bulk{Len: int64(binary.BigEndian.Uint64(b))}
		for b = b[8:]; len(b) > 0; b = b[16:] {
			bulk.Segments = append(bulk.Segments, segment.ID(b[:16]))
		}
		id, err = w.b.BulkValue(ctx, bulk)
	default:
		w.damaged()
	}
	w.fail(err)
	return segment.NewValue{Record: id, IsID: true}
}
