// Package compact copies the contents of node trees from one Apache Oak segment store to another.
// It does not read files or the journal. Records that are shared stay shared: a tree that was
// copied costs nothing if a checkpoint contains it too. Bulk segments are copied unchanged and
// keep their IDs.
package compact

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"iter"
	"path"
	"slices"

	"github.com/holdall/holdall/internal/oak/internal/segment"
)

// Options of New. The zero value is valid.
type Options struct {
	Depth    int               // maximum depth of a tree; 0 is 1000
	Progress func(nodes int64) // if not nil, is called as nodes are written
	// Shared reports whether records of a segment are in the other store too, and are to be
	// referred to there. If it is nil, none are.
	Shared func(segment.ID) bool
}

// A Copier copies trees, on one goroutine. It must not be used after an error.
type Copier struct {
	from     *segment.Reader
	to       *segment.Builder
	bulk     func(context.Context, segment.ID) error
	depth    int
	known    known
	nodes    int64
	progress func(int64)
	shared   func(segment.ID) bool

	properties []segment.NewProperty // of the node that is written
	values     []segment.NewValue
}

// New returns a Copier. bulk must ensure that a bulk segment is in the new store before data
// segments that are written later. It is called for a segment once for each value in it.
func New(from *segment.Reader, to *segment.Builder, bulk func(context.Context, segment.ID) error, o Options) *Copier {
	if o.Depth == 0 {
		o.Depth = 1000
	}
	if o.Shared == nil {
		o.Shared = func(segment.ID) bool { return false }
	}
	return &Copier{shared: o.Shared, from: from, to: to, bulk: bulk, depth: o.Depth, known: known{limit: mostKnown, m: map[segment.ID][]newRecord{}, index: map[segment.ID]int32{}}, progress: o.Progress}
}

func (c *Copier) Nodes() int64 { return c.nodes }

type Error struct {
	Path string // from the requested node, "" for that node
	Err  error
}

func (e *Error) Error() string { return fmt.Sprintf("/%s: %v", e.Path, e.Err) }
func (e *Error) Unwrap() error { return e.Err }

// Node copies a node and everything below it. If something cannot be read, the error is an
// *[Error].
func (c *Copier) Node(ctx context.Context, id segment.RecordID) (segment.RecordID, error) {
	return c.node(ctx, id, 0)
}

func (c *Copier) node(ctx context.Context, id segment.RecordID, depth int) (segment.RecordID, error) {
	if c.shared(id.Segment) {
		return id, nil
	}
	if is, ok := c.known.get(id); ok {
		return is, nil
	}
	if depth > c.depth {
		return segment.RecordID{}, &Error{Err: fmt.Errorf("tree: expected at most %d levels, found more", c.depth)}
	}
	if err := ctx.Err(); err != nil {
		return segment.RecordID{}, err
	}
	n, err := c.from.Node(ctx, id)
	if err != nil {
		return segment.RecordID{}, &Error{Err: err}
	}
	copied := segment.NewNode{}
	if copied.Written, err = c.to.Children(ctx, c.children(ctx, n, depth+1)); err != nil {
		return segment.RecordID{}, below("", err)
	}
	// The children are done, so nothing else uses these slices.
	c.properties, c.values = c.properties[:0], c.values[:0]
	for p, err := range n.Properties(ctx) {
		q := segment.NewProperty{Name: p.Name, Type: p.Type, Multi: p.Multi}
		if err == nil {
			err = c.property(ctx, &p, &q)
		}
		if err != nil {
			return segment.RecordID{}, below(p.Name, err)
		}
		c.properties = append(c.properties, q)
	}
	copied.Properties = c.properties
	is, err := c.to.Node(ctx, copied)
	if err != nil {
		return segment.RecordID{}, &Error{Err: err}
	}
	const every = 1024
	if c.nodes++; c.progress != nil && c.nodes%every == 0 {
		c.progress(every)
	}
	c.known.put(id, is)
	return is, nil
}

// children copies the children of a node, which are already in the order of maps.
func (c *Copier) children(ctx context.Context, n segment.Node, depth int) iter.Seq2[segment.Child, error] {
	return func(yield func(segment.Child, error) bool) {
		for e, err := range n.Children(ctx) {
			child := segment.Child{Name: e.Name}
			if err == nil {
				child.Node, err = c.node(ctx, e.Value, depth)
			}
			if err != nil {
				err = below(e.Name, err)
			}
			if !yield(child, err) || err != nil {
				return
			}
		}
	}
}

// Without copies a node and everything below it, with an empty node in place of the child called
// name.
func (c *Copier) Without(ctx context.Context, id segment.RecordID, name string) (segment.RecordID, error) {
	empty, err := c.to.Node(ctx, segment.NewNode{})
	if err != nil {
		return empty, err
	}
	n, err := c.from.Node(ctx, id)
	if err != nil {
		return empty, &Error{Err: err}
	}
	left, ok, err := n.Child(ctx, name)
	if err != nil {
		return empty, &Error{Path: name, Err: err}
	}
	if ok {
		c.known.put(left, empty)
	}
	return c.Node(ctx, id)
}

// below adds the path of a part to its error.
func below(name string, err error) error {
	e, ok := err.(*Error)
	if !ok {
		return &Error{Path: name, Err: err}
	}
	e.Path = path.Join(name, e.Path)
	return e
}

// Property copies a property of a node.
func (c *Copier) Property(ctx context.Context, p segment.Property) (segment.NewProperty, error) {
	to := segment.NewProperty{Name: p.Name, Type: p.Type, Multi: p.Multi}
	c.values = nil
	err := c.property(ctx, &p, &to)
	c.values = nil // they belong to the result now
	return to, err
}

// mostHeld is how many values of a property are kept in memory. Others are written one by one.
const mostHeld = 1024

func (c *Copier) property(ctx context.Context, p *segment.Property, to *segment.NewProperty) (err error) {
	first := len(c.values)
	switch {
	case !p.Multi:
		v, err := p.At(ctx, 0)
		if err := c.add(ctx, p.Type, v, err); err != nil {
			return err
		}
	case p.Len() > mostHeld:
		to.List, err = c.to.ValuesOf(ctx, c.valueRecords(ctx, *p))
		return err
	default:
		for v, err := range p.Values(ctx) {
			if err := c.add(ctx, p.Type, v, err); err != nil {
				return err
			}
		}
	}
	to.Values = c.values[first:len(c.values):len(c.values)]
	return nil
}

func (c *Copier) add(ctx context.Context, t segment.PropertyType, v segment.Value, err error) error {
	var is segment.NewValue
	if err == nil {
		is, err = c.value(ctx, t, v)
	}
	if err == nil {
		c.values = append(c.values, is)
	}
	return err
}

func (c *Copier) valueRecords(ctx context.Context, p segment.Property) iter.Seq2[segment.RecordID, error] {
	return func(yield func(segment.RecordID, error) bool) {
		for v, err := range p.Values(ctx) {
			var is segment.NewValue
			if err == nil {
				is, err = c.value(ctx, p.Type, v)
			}
			if err == nil && !is.IsID {
				is.Record, err = c.to.Text(ctx, is.Text)
			}
			if !yield(is.Record, err) || err != nil {
				return
			}
		}
	}
}

// mostBlobID bounds the names of content in data stores.
const mostBlobID = 64 << 10

func (c *Copier) value(ctx context.Context, t segment.PropertyType, v segment.Value) (segment.NewValue, error) {
	const inRecord = 16 << 10
	if t != segment.Binary && v.Kind() != segment.Long {
		text, err := v.Text(ctx, 2*inRecord)
		return segment.NewValue{Text: text}, err
	}
	if v.Kind() == segment.Long && t == segment.Binary {
		text, err := endsInRecord(ctx, v)
		if err == nil && text {
			var is segment.RecordID
			is, err = c.to.Binary(ctx, io.NewSectionReader(content{ctx, v}, 0, v.Len()))
			return segment.NewValue{Record: is, IsID: true}, err
		}
		if err != nil {
			return segment.NewValue{}, err
		}
	}
	is, ok := c.known.get(v.ID())
	if ok {
		return segment.NewValue{Record: is, IsID: true}, nil
	}
	var err error
	switch v.Kind() {
	case segment.Long: // blocks in bulk segments stay where they are
		var blocks segment.List
		if blocks, err = v.Blocks(); err == nil {
			is, err = c.to.LongValue(ctx, v.Len(), c.blocks(ctx, blocks, v.Len()))
		}
	case segment.External, segment.ExternalLong:
		var name string
		if name, err = v.BlobID(ctx, mostBlobID); err == nil {
			is, err = c.to.External(ctx, name)
		}
	default:
		b := make([]byte, v.Len())
		if err = v.ReadAt(ctx, b, 0); err == nil {
			is, err = c.to.Binary(ctx, bytes.NewReader(b))
		}
	}
	if err == nil {
		c.known.put(v.ID(), is)
	}
	return segment.NewValue{Record: is, IsID: true}, err
}

// endsInRecord reports whether a long value is stored as a text, with its end in a data segment. Oak's
// compaction keeps the blocks of a binary where they are, because it stores them in bulk segments, and
// its cleanup removes the data segment. The values of a node without a template, which may be texts,
// are shown as binaries.
func endsInRecord(ctx context.Context, v segment.Value) (bool, error) {
	blocks, err := v.Blocks()
	if err != nil || blocks.Len() == 0 {
		return false, err
	}
	last, err := blocks.At(ctx, blocks.Len()-1)
	return last.Segment.IsData(), err
}

// content is that of a value.
type content struct {
	ctx context.Context
	v   segment.Value
}

func (c content) ReadAt(p []byte, off int64) (int, error) { return len(p), c.v.ReadAt(c.ctx, p, off) }

func (c *Copier) blocks(ctx context.Context, blocks segment.List, left int64) iter.Seq2[segment.RecordID, error] {
	return func(yield func(segment.RecordID, error) bool) {
		var last segment.ID
		for id, err := range blocks.All(ctx) {
			n := int(min(left, segment.BlockSize))
			left -= int64(n)
			switch {
			case err != nil:
			case id.Segment.IsData():
				var b []byte
				if b, err = c.from.BlockBytes(ctx, id, n); err == nil {
					id, err = c.to.Block(ctx, b)
				}
			case id.Segment != last:
				if err = c.bulk(ctx, id.Segment); err == nil {
					last = id.Segment
				}
			}
			if !yield(id, err) || err != nil {
				return
			}
		}
	}
}

// mostKnown is how many copied records are remembered, in 8 bytes each.
const mostKnown = 4 << 20

// mostNumber is above the number of any record, because a segment has no room for so many.
const mostNumber = segment.MaxSize / 9

// known maps records to their copies, by the segments that they were in. Above its limit it
// removes the segments that it saw first; what they share with others is then written twice.
type known struct {
	limit, n int // in places, those between records that are known too
	m        map[segment.ID][]newRecord
	order    []segment.ID // of m
	made     []segment.ID // new segments, by their number in a place
	index    map[segment.ID]int32
}

// A newRecord is a record of the new store. It is zero if the record is not known.
type newRecord struct {
	segment int32 // in made, from 1
	record  int32
}

func (k *known) get(id segment.RecordID) (segment.RecordID, bool) {
	places := k.m[id.Segment]
	if id.Number < 0 || int(id.Number) >= len(places) || places[id.Number].segment == 0 {
		return segment.RecordID{}, false
	}
	p := places[id.Number]
	return segment.RecordID{Segment: k.made[p.segment-1], Number: p.record}, true
}

func (k *known) put(id, is segment.RecordID) {
	if id.Number < 0 || id.Number >= mostNumber {
		return // it is not remembered, so it is read again
	}
	number, ok := k.index[is.Segment]
	if !ok {
		k.made = append(k.made, is.Segment)
		number = int32(len(k.made))
		k.index[is.Segment] = number
	}
	places, met := k.m[id.Segment]
	if !met {
		k.order = append(k.order, id.Segment)
	}
	if n := int(id.Number) + 1 - len(places); n > 0 {
		was := cap(places)
		places = slices.Grow(places, n)[:len(places)+n]
		k.m[id.Segment] = places
		k.n += cap(places) - was
	}
	places[id.Number] = newRecord{number, is.Number}
	for k.n > k.limit && len(k.order) > 1 {
		k.n -= cap(k.m[k.order[0]])
		delete(k.m, k.order[0])
		k.order = k.order[1:]
	}
}
