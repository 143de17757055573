package oak

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"slices"
	"strconv"
	"strings"

	"github.com/holdall/holdall/codec"
	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/oak/internal/segment"
)

// Attributes of properties.
const (
	typeAttr     = "type"     // String, Binary, Long and so on
	multipleAttr = "multiple" // "true" if there may be any number of values
	blobAttr     = "blob"     // the name of content that is in a data store
)

// What the content of an entry is made of. Handles contain names of records, not segments, so
// keeping entries does not keep segments in memory.
type (
	valueRef segment.RecordID // a value in the segments
	blobRef  string           // an object of the data store
	arrayRef struct {         // all values of a property
		node segment.RecordID
		name string
	}
)

// isBinaries reports whether a property is a directory of its values.
func isBinaries(p segment.Property) bool { return p.Multi && p.Type == segment.Binary }

// properties calls do with the entry of each of a node's properties, and with the property.
func (t *treeReader) properties(ctx context.Context, s spot, do func(format.Entry, segment.Property) error) error {
	n, err := t.nodeOf(ctx, s.id)
	if err != nil {
		return t.corrupt(err, s.name)
	}
	guessed := t.guessed(ctx, n)
	for p, lost := range n.Properties(ctx) {
		elem := writeTreeName(p.Name, s.depth == 0)
		_, isNode, _, err := t.childNamed(ctx, n, p.Name)
		if err != nil {
			return err
		}
		if isNode {
			elem += propertyMark
		}
		e, err := t.propertyEntry(ctx, s.under(elem), s.id, p, cmp.Or(guessed, lost))
		if err == nil {
			err = do(e, p)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// propertyEntry returns the entry of a node's property. A single value is a file. Several values,
// of any type, are a file with a JSON array of their texts. Several binaries are a directory.
func (t *treeReader) propertyEntry(ctx context.Context, name string, node segment.RecordID, p segment.Property, lost error) (format.Entry, error) {
	e := format.Entry{Name: name, Kind: format.Property, Attr: map[string]string{typeAttr: p.Type.String()}}
	if p.Multi {
		e.Attr[multipleAttr] = "true"
	}
	if isBinaries(p) {
		e.Kind = format.Dir
	}
	var err error
	switch {
	case lost != nil:
		err = lost
	case isBinaries(p):
	case p.Multi:
		e.Ref = arrayRef{node, p.Name}
		err = t.array(ctx, p, func(b []byte) bool {
			e.Size += int64(len(b))
			return true
		})
	default:
		var v segment.Value
		if v, err = p.At(ctx, 0); err == nil {
			err = t.content(ctx, &e, v)
		}
	}
	err = t.lost(&e, err)
	return e, err
}

// binaries yields the values of a property that is a directory.
func (t *treeReader) binaries(ctx context.Context, dir string, p segment.Property, tell func(format.Entry) error) error {
	i := 0
	for v, err := range p.Values(ctx) {
		e, err := t.binaryEntry(ctx, dir+"/"+strconv.Itoa(i), v, err)
		if err == nil {
			err = tell(e)
		}
		if i++; err != nil {
			return err
		}
	}
	return nil
}

func (t *treeReader) binaryEntry(ctx context.Context, name string, v segment.Value, lost error) (format.Entry, error) {
	e := format.Entry{Name: name, Kind: format.Property, Attr: map[string]string{typeAttr: segment.Binary.String()}}
	if lost == nil {
		lost = t.content(ctx, &e, v)
	}
	lost = t.lost(&e, lost)
	return e, lost
}

// mostBlobID bounds the names of content in data stores, which have a hundred bytes.
const mostBlobID = 64 << 10

func (t *treeReader) content(ctx context.Context, e *format.Entry, v segment.Value) error {
	if !v.External() {
		e.Size, e.Ref = v.Len(), valueRef(v.ID())
		return nil
	}
	id, size, ref, err := t.external(ctx, v)
	if id != "" {
		e.Attr[blobAttr] = id
	}
	if e.Size = size; err == nil {
		e.Ref = ref
	}
	return err
}

// external returns the ID, the size and the place of a value in a data store.
func (t *treeReader) external(ctx context.Context, v segment.Value) (id string, size int64, ref blobRef, err error) {
	id, err = v.BlobID(ctx, mostBlobID)
	if err != nil {
		return "", 0, "", err
	}
	size, object, what := blobPlace(id, IsCloud(t.datastore))
	if t.datastore == "" {
		what = "the content is in a data store, but none is set"
	}
	if what != "" {
		return id, size, "", t.treeFault(externalBlob, v.ID().Segment, -1, "blob %.200q: %s", id, what)
	}
	return id, size, blobRef(strings.TrimSuffix(t.datastore, "/") + "/" + object), nil
}

// Extents yields the extents of a value. They are inline where the value is stored in records,
// which were read to find it, and runs of a tar where it fills segments of its own.
func (t *treeReader) Extents(ctx context.Context, e format.Entry, off, n int64) iter.Seq2[format.Extent, error] {
	return func(yield func(format.Extent, error) bool) {
		off = max(off, 0)
		var err error
		switch ref := e.Ref.(type) {
		case valueRef:
			if n = min(n, e.Size-off); n > 0 {
				err = t.valueExtents(ctx, segment.RecordID(ref), e.Size, off, n, yield)
			}
		case arrayRef:
			if n = min(n, e.Size-off); n > 0 {
				err = t.arrayExtents(ctx, ref, off, off+n, yield)
			}
		case luceneRef:
			if n = min(n, e.Size-off); n > 0 {
				err = t.luceneExtents(ctx, ref, e.Size, off, off+n, yield)
			}
		case blobRef:
			if n > 0 && off < e.Size {
				yield(format.Extent{Size: e.Size, Object: string(ref), External: true, Len: e.Size}, nil)
			}
		default:
			if e.Fault != nil {
				err = &format.CorruptError{Format: "oak", Problem: *e.Fault}
			} else if e.Kind.HasContent() {
				err = &fs.PathError{Op: "read", Path: e.Name, Err: fs.ErrInvalid}
			}
		}
		if err != nil {
			yield(format.Extent{}, t.corrupt(err, e.Name))
		}
	}
}

func (t *treeReader) valueExtents(ctx context.Context, id segment.RecordID, size, off, n int64, yield func(format.Extent, error) bool) error {
	v, err := t.records.Value(ctx, id)
	if err != nil {
		return err
	}
	if v.Len() != size {
		return t.treeFault(badRecord, id.Segment, -1, "value %s: expected %d bytes, found %d", id, size, v.Len())
	}
	for p, err := range v.Pieces(ctx, off, n) {
		x := format.Extent{At: off, Size: int64(p.Len), Len: int64(p.Len)}
		if err == nil {
			err = t.place(ctx, &x, p)
		}
		if err != nil {
			return err
		}
		if off += x.Size; !yield(x, nil) {
			return nil
		}
	}
	return nil
}

// place sets where a piece is stored that a run of content comes from. It is inline if it is
// stored in records, or if there are several copies, because one of them may be damaged.
func (t *treeReader) place(ctx context.Context, x *format.Extent, p segment.Piece) error {
	tar, e, ok := t.locate(p.Segment)
	if !p.Segment.IsData() && !slices.ContainsFunc(t.tars, func(other *segmentTar) bool {
		_, copied := other.Find(p.Segment)
		return copied && other != tar
	}) {
		if !ok || !tar.holds(e) || p.Off+p.Len > e.Len {
			return t.treeFault(badRecord, p.Segment, int64(p.Off), "segment %s: %d bytes expected at offset %d, but no tar has them", p.Segment, p.Len, p.Off)
		}
		object, pos := tar.lies(e.Pos)
		*x = t.extent(object, pos, e.Len, p.Off, p.Len, x.At)
		return nil
	}
	b, err := t.pieceBytes(ctx, p)
	x.Codec, x.Data = codec.Inline, b
	if ok {
		x.Object, x.Off = tar.lies(e.Pos)
		x.Off += int64(p.Off)
	}
	return err
}

// pieceBytes returns the bytes of a piece within records. They must not be changed.
func (t *treeReader) pieceBytes(ctx context.Context, p segment.Piece) ([]byte, error) {
	s, err := t.records.Segment(ctx, p.Segment)
	if err != nil {
		return nil, err
	}
	if p.Off+p.Len > s.Size() {
		return nil, t.treeFault(badRecord, p.Segment, int64(p.Off), "segment %s: expected %d bytes, found %d", p.Segment, p.Off+p.Len, s.Size())
	}
	return s.Slice(p.Off, p.Len)
}

// inlineRun is how many bytes of an array are generated at once.
const inlineRun = 64 << 10

// arrayExtents makes the bytes of an array, and yields those from off to end.
func (t *treeReader) arrayExtents(ctx context.Context, ref arrayRef, off, end int64, yield func(format.Extent, error) bool) error {
	n, err := t.records.Node(ctx, ref.node)
	if err != nil {
		return err
	}
	p, ok, err := n.Property(ctx, ref.name)
	if err != nil {
		return err
	}
	if !ok || !p.Multi {
		return fmt.Errorf("property %.80q: %w", ref.name, fs.ErrInvalid)
	}
	x := format.Extent{At: off, Codec: codec.Inline}
	if tar, e, ok := t.locate(ref.node.Segment); ok {
		x.Object, x.Off = tar.lies(e.Pos)
		x.Len = int64(e.Len)
	}
	at, stopped := int64(0), false
	err = t.array(ctx, p, func(b []byte) bool {
		from, to := min(max(off-at, 0), int64(len(b))), min(end-at, int64(len(b)))
		if at += int64(len(b)); from < to {
			x.Data = append(x.Data, b[from:to]...)
		}
		if x.Size = int64(len(x.Data)); x.Size >= inlineRun || x.Size > 0 && at >= end {
			stopped = !yield(x, nil)
			x.At, x.Data = x.At+x.Size, nil
		}
		return !stopped && at < end
	})
	if err == nil && !stopped && at < end {
		err = errors.New("array: ends early") // as no store that does not change
	}
	return err
}

// array calls do with the parts of a JSON array of a property's values, until it returns false.
// All values are strings with the stored text, because only that is the same in every type. Bytes
// that are not UTF-8 are unchanged.
func (t *treeReader) array(ctx context.Context, p segment.Property, do func([]byte) bool) error {
	before := []byte(`["`)
	i := 0
	for v, err := range p.Values(ctx) {
		if err != nil {
			return fmt.Errorf("value %d: %w", i, err)
		}
		if !do(before) {
			return nil
		}
		for piece, err := range v.Pieces(ctx, 0, v.Len()) {
			var b []byte
			if err == nil {
				b, err = t.pieceBytes(ctx, piece)
			}
			if err != nil {
				return fmt.Errorf("value %d: %w", i, err)
			}
			if !escapeJSON(b, do) {
				return nil
			}
		}
		before = []byte(`","`)
		i++
	}
	if i == 0 {
		do([]byte(`[]`))
	} else {
		do([]byte(`"]`))
	}
	return nil
}

// escapeJSON calls do with the parts of b, escaped for a JSON string.
func escapeJSON(b []byte, do func([]byte) bool) bool {
	for len(b) > 0 {
		i := 0
		for i < len(b) && b[i] >= ' ' && b[i] != '"' && b[i] != '\\' {
			i++
		}
		if i > 0 && !do(b[:i]) {
			return false
		}
		if i == len(b) {
			return true
		}
		if !do(jsonEscape(b[i])) {
			return false
		}
		b = b[i+1:]
	}
	return true
}

func jsonEscape(c byte) []byte {
	switch c {
	case '"', '\\':
		return []byte{'\\', c}
	case '\n':
		return []byte(`\n`)
	case '\r':
		return []byte(`\r`)
	case '\t':
		return []byte(`\t`)
	}
	return fmt.Appendf(nil, `\u%04x`, c)
}
