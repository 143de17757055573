package newtree

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"iter"
	"strings"

	"github.com/holdall/holdall/format/kit/sorter"
	"github.com/holdall/holdall/internal/base/blake3"
	"github.com/holdall/holdall/internal/oak/internal/segment"
)

// Options of New. Scratch is needed.
type Options struct {
	Scratch func() (sorter.Scratch, error)
	Memory  int64 // for rows; 0 is 32 MiB
	Depth   int   // levels that a path may have; 0 is 1000
	IDs     *IDs  // of the builder, if it has them from here
	// Missing are the properties of nodes that are only implied because others are below them.
	// Each has one value, a text.
	Missing []segment.NewProperty
}

// A Tree receives nodes from one goroutine. It ends with Close or Abort.
type Tree struct {
	b    *segment.Builder
	o    Options
	rows *sorter.Sorter
	bare bool
	told uint64 // rows, so that the last of two can be known
	key  []byte
	head []byte // the beginning of what Read reads
	err  error  // after it, the written records are not a tree
}

// longestPath limits the names of a path, in the form that they have in a key.
const longestPath = 256 << 10

// ErrPath means that a path cannot be in a tree.
var ErrPath = errors.New("not a path of a tree")

// New returns an empty tree, whose records are written to b. The caller must flush b.
func New(b *segment.Builder, o Options) *Tree {
	if o.Depth == 0 {
		o.Depth = 1000
	}
	replace := func([]byte) error { return nil }
	return &Tree{b: b, o: o, rows: sorter.New(sorter.Options{Memory: o.Memory, Scratch: o.Scratch, Duplicate: replace})}
}

// The byte after the path of a node is the kind of a row. All rows of a node precede those of
// what is below it.
const (
	rowFallback = iota // properties that it has if none are set
	rowNode            // followed by its number: the node exists, with some properties
	rowProperty        // followed by the name's key, then rowHead or rowElement
	rowChild           // followed by the name's key: it is about a node below
)

const (
	rowHead    = iota // its number, the property's type and kind, the data of the kind
	rowElement        // followed by a number u64: a value of several
)

// Forms of a value in a row.
const (
	textForm     = iota // its bytes
	recordForm          // segment id, record number u32
	bulkForm            // length, ids of segments
	externalForm        // a name in a data store
)

// A Value is a value of a property, or the data for it.
type Value struct{ b []byte } // form, then its data

// External returns the value of a binary in a data store.
func External(blobID string) Value { return Value{append([]byte{externalForm}, blobID...)} }

// Record returns a value that has been written already.
func Record(id segment.RecordID) Value {
	return Value{binary.BigEndian.AppendUint32(append([]byte{recordForm}, id.Segment[:]...), uint32(id.Number))}
}

// Read adds a value of any length, in memory for one segment. If r fails, nothing refers to what
// has been written, and the tree is unchanged.
func (t *Tree) Read(ctx context.Context, r io.Reader) (Value, error) {
	if t.err != nil {
		return Value{}, t.err
	}
	if t.head == nil {
		t.head = make([]byte, 1+segment.LeastLong)
	}
	head := t.head
	n, err := io.ReadFull(r, head[1:])
	switch err {
	case nil:
		from := &watched{r: r}
		v, err := t.b.Bulk(ctx, io.MultiReader(bytes.NewReader(head[1:]), from))
		_, large := errors.AsType[*segment.Error](err)
		if err != nil && from.err == nil && ctx.Err() == nil && !large {
			t.err = err
		}
		b := binary.BigEndian.AppendUint64([]byte{bulkForm}, uint64(v.Len))
		for _, id := range v.Segments {
			b = append(b, id[:]...)
		}
		return Value{b}, err
	case io.EOF, io.ErrUnexpectedEOF:
		head[0] = textForm
		return Value{bytes.Clone(head[:1+n])}, nil
	}
	return Value{}, err
}

// watched is a reader that distinguishes its own errors from errors of writing.
type watched struct {
	r   io.Reader
	err error
}

func (w *watched) Read(p []byte) (int, error) {
	n, err := w.r.Read(p)
	if err != nil && err != io.EOF {
		w.err = err
	}
	return n, err
}

type Property struct {
	Name string
	Type segment.PropertyType
}

// Node adds a node. Properties of several calls are combined; if a property occurs several times,
// the last one counts.
func (t *Tree) Node(ctx context.Context, path []string, properties []segment.NewProperty) error {
	var texts []segment.NewProperty
	room := mostTexts
	for _, p := range properties {
		isText := p.Type >= segment.String && p.Type <= segment.Decimal && p.Type != segment.Binary &&
			!p.Multi && len(p.Values) == 1 && !p.Values[0].IsID
		if isText && len(p.Values[0].Text) <= room {
			room -= len(p.Values[0].Text)
			texts = append(texts, p)
		} else if err := t.property(ctx, path, p); err != nil {
			return err
		}
	}
	return t.add(path, rowNode, binary.BigEndian.AppendUint64(nil, t.told), appendTexts(nil, texts))
}

// mostTexts limits how much of a node's properties is kept to be written together with it.
const mostTexts = 16 << 10

func (t *Tree) property(ctx context.Context, path []string, p segment.NewProperty) error {
	of := Property{p.Name, p.Type}
	if p.List != (segment.RecordID{}) {
		return t.setHead(path, of, listHead, Record(p.List).b)
	}
	if !p.Multi && len(p.Values) != 1 {
		return fmt.Errorf("new tree: property %.100q: expected one value, found %d", p.Name, len(p.Values))
	}
	for i, nv := range p.Values {
		v := Record(nv.Record)
		if !nv.IsID {
			var err error
			if v, err = t.Read(ctx, strings.NewReader(nv.Text)); err != nil {
				return err
			}
		}
		if !p.Multi {
			return t.Set(path, of, v)
		}
		if err := t.SetElement(path, of.Name, i, v); err != nil {
			return err
		}
	}
	return t.SetElements(path, of, len(p.Values))
}

// Kinds of a property, in its head.
const (
	singleHead = iota // the value follows
	multiHead         // how many values count follows, u64
	listHead          // the list of them follows, a value of recordForm
)

func (t *Tree) Set(path []string, p Property, v Value) error {
	return t.setHead(path, p, singleHead, v.b)
}

// SetElement sets one of the values of a property, which may have any number of them. They may be
// set in any order. Without [Tree.SetElements] they are ignored.
func (t *Tree) SetElement(path []string, name string, i int, v Value) error {
	key := append(segment.AppendMapKey(nil, name), rowElement)
	return t.add(path, rowProperty, binary.BigEndian.AppendUint64(key, uint64(i)), v.b)
}

// All, passed to [Tree.SetElements], means all values that were set.
const All = 1<<63 - 1

// SetElements makes a property of a node of the first n of its elements.
func (t *Tree) SetElements(path []string, p Property, n int) error {
	return t.setHead(path, p, multiHead, binary.BigEndian.AppendUint64(nil, uint64(n)))
}

func (t *Tree) setHead(path []string, p Property, kind byte, rest []byte) error {
	if p.Type < segment.String || p.Type > segment.Decimal {
		return fmt.Errorf("new tree: property %.100q: expected a type, found %d", p.Name, p.Type)
	}
	value := append(binary.BigEndian.AppendUint64(nil, t.told), byte(p.Type), kind)
	return t.add(path, rowProperty, append(segment.AppendMapKey(nil, p.Name), rowHead), append(value, rest...))
}

// Fallback adds a node with properties that it has if no others are set, each with one value, a
// text. See [Tree.Bare].
func (t *Tree) Fallback(path []string, properties []segment.NewProperty) error {
	return t.add(path, rowFallback, nil, appendTexts(nil, properties))
}

// Bare makes nodes for which no property was set have none, without a fallback.
func (t *Tree) Bare() { t.bare = true }

// appendTexts appends properties that are one text each.
func appendTexts(b []byte, properties []segment.NewProperty) []byte {
	for _, p := range properties {
		b = append(b, byte(p.Type))
		for _, s := range []string{p.Name, p.Values[0].Text} {
			b = append(binary.AppendUvarint(b, uint64(len(s))), s...)
		}
	}
	return b
}

// readTexts reads what appendTexts wrote. It returns false for anything else.
func readTexts(b []byte) (all []segment.NewProperty, ok bool) {
	for len(b) > 0 {
		p := segment.NewProperty{Type: segment.PropertyType(b[0]), Values: make([]segment.NewValue, 1)}
		b = b[1:]
		for _, to := range []*string{&p.Name, &p.Values[0].Text} {
			n, k := binary.Uvarint(b)
			if k <= 0 || n > uint64(len(b)-k) {
				return nil, false
			}
			*to, b = string(b[k:][:n]), b[k+int(n):]
		}
		all = append(all, p)
	}
	return all, true
}

// CheckPath returns an error, an [ErrPath], if no node can have a path.
func (t *Tree) CheckPath(path []string) error {
	if len(path) > t.o.Depth {
		return fmt.Errorf("%w: expected at most %d levels, found %d", ErrPath, t.o.Depth, len(path))
	}
	n := 0
	for _, name := range path {
		if name == "" || strings.Contains(name, "/") {
			return fmt.Errorf("%w: expected names without a slash, found %.100q", ErrPath, name)
		}
		n += len(name)
	}
	if n > longestPath {
		return fmt.Errorf("%w: expected at most %d bytes, found %d", ErrPath, longestPath, n)
	}
	return nil
}

func (t *Tree) add(path []string, kind byte, key, value []byte) error {
	if t.err != nil {
		return t.err
	}
	if err := t.CheckPath(path); err != nil {
		return err
	}
	t.key = t.key[:0]
	for _, name := range path {
		t.key = segment.AppendMapKey(append(t.key, rowChild), name)
	}
	t.key = append(append(t.key, kind), key...)
	if t.o.IDs != nil {
		t.o.IDs.Input(t.key, value)
	}
	t.told++
	t.err = t.rows.Add(t.key, value)
	return t.err
}

func (t *Tree) Abort() error {
	if t.err == nil {
		t.err = errors.New("new tree: aborted")
	}
	return t.rows.Close()
}

// Close writes the tree, the root last. It returns how many nodes there are.
func (t *Tree) Close(ctx context.Context) (root segment.RecordID, nodes int64, err error) {
	if t.err != nil {
		return root, 0, t.err
	}
	next, stop := iter.Pull2(t.rows.Sorted())
	w := &build{Tree: t, next: next}
	root, err = w.whole(ctx)
	stop()
	if t.err = errors.New("new tree: closed"); err != nil {
		t.err = err
	}
	return root, w.nodes, errors.Join(err, t.rows.Close())
}

// SuperRoot writes the node above a root, as the journal names it, and checkpoints. Without any it
// still has the child checkpoints, by which the reference finds a lost head.
func SuperRoot(ctx context.Context, b *segment.Builder, root segment.RecordID, all ...segment.Child) (segment.RecordID, error) {
	checkpoints, err := b.Node(ctx, segment.NewNode{Children: all})
	if err != nil {
		return segment.RecordID{}, err
	}
	return b.Node(ctx, segment.NewNode{Children: []segment.Child{{Name: "root", Node: root}, {Name: "checkpoints", Node: checkpoints}}})
}

// layout changes whenever the same input makes other segments, for other names.
const layout = "holdall tree 1"

// IDs derives segment IDs from the input, so that the same input makes the same store, and
// another input makes no segment with the same ID. The content of a data segment is not known
// when its ID is needed, but everything that the tree is made of is known before the first one is
// begun.
type IDs struct {
	input *blake3.Hasher
	made  uint64
}

// NewIDs returns names for one store.
func NewIDs() *IDs {
	s := &IDs{input: blake3.New()}
	s.Input([]byte(layout))
	return s
}

// Input adds to what the IDs are derived from.
func (s *IDs) Input(parts ...[]byte) {
	var n [8]byte
	for _, p := range parts {
		binary.BigEndian.PutUint64(n[:], uint64(len(p)))
		s.input.Write(n[:])
		s.input.Write(p)
	}
}

// Data names a data segment: it is a BuilderOptions.NewID.
func (s *IDs) Data() [16]byte { return s.name(s.input.Sum(nil)) }

// Bulk names a bulk segment: it is a BuilderOptions.BulkID.
func (s *IDs) Bulk(content []byte) [16]byte {
	sum := blake3.Sum256(content)
	s.Input(sum[:])
	return s.name(sum[:])
}

// name returns a different ID each time, so two segments with the same content have two IDs.
func (s *IDs) name(of []byte) [16]byte {
	s.made++
	sum := blake3.Sum256(binary.BigEndian.AppendUint64(of, s.made))
	return [16]byte(sum[:])
}
