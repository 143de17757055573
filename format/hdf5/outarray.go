package hdf5

import (
	"bytes"
	"compress/zlib"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/holdall/holdall/format"
	h5 "github.com/holdall/holdall/hdf5"
	"github.com/holdall/holdall/internal/arrays/zarr3"
	"github.com/holdall/holdall/zarr"
)

// outArray is an array that becomes a dataset.
type outArray struct {
	*zarr.Array
	src     zarr3.Values // .zarray, and the chunk that is decoded
	attrs   map[string]any
	planned bool
	filled  bool // chunks of text that never come are made
	how     outStoring
	anew    bool         // decoded chunks are compressed
	grid    []int64      // number of chunks in each dimension
	chunks  []chunkPlace // by number
}

type chunkPlace struct {
	addr, size int64
	in         *block
}

// outStoring is what becomes of chunks.
type outStoring uint8

const (
	asIs   outStoring = iota // chunks are copied
	inOne                    // the chunk is all elements, and copied
	remade                   // elements are made of chunks
)

const (
	mostChunks = 1 << 24   // of all arrays
	mostFilled = 1 << 24   // texts of an array that were never written
	mostRemade = 1 << 30   // bytes of a chunk that is decoded
	most32     = 1<<32 - 1 // bytes of a chunk of HDF5
)

// addArray adds an array, whose attributes are not known yet.
func (w *writer) addArray(at string, text []byte) (err error) {
	if at == "" {
		return unsupported("the root of an HDF5 file is a group, not an array")
	}
	if n := w.nodes[at]; n != nil {
		return unsupported("there is a group, too")
	}
	n, err := w.node(at)
	if err != nil {
		return err
	}
	n.refused = true
	x := &outArray{src: zarr3.Values{".zarray": text}, attrs: map[string]any{}}
	if x.Array, err = zarr.Open(context.Background(), x.src, ""); err != nil {
		return err
	}
	n.in, n.obj.Kind = x, h5.Dataset
	if n.obj.Type, err = x.elementType(); err != nil {
		return err
	}
	x.grid = x.Grid()
	if len(x.Shape) > h5.MaxRank {
		return unsupported("it has %d dimensions; HDF5 allows at most %d", len(x.Shape), h5.MaxRank)
	}
	if n := x.NumChunks(); n > mostChunks-w.chunks {
		return unsupported("with its %d chunks there are more than the %d that holdall writes into an HDF5 file", n, int64(mostChunks))
	}
	w.chunks += x.NumChunks()
	if fill, err := x.fill(); err != nil {
		return err
	} else if !x.varies() {
		n.obj.Fill = fill
	}
	if err := n.fits(); err != nil {
		return err
	}
	n.refused = false
	return nil
}

// varies reports whether elements have no fixed size in Zarr, or are strings of a fixed number of characters, which
// vary in HDF5.
func (x *outArray) varies() bool { return x.DType.Kind == 'O' || x.DType.Kind == 'U' }

// elementType returns the type of elements, or nil if attributes or the elements show it.
func (x *outArray) elementType() (t *h5.Datatype, err error) {
	of := x.DType.Name
	switch {
	case x.DType.Kind == 'U':
		return textType, nil
	case x.DType.Kind != 'O':
		t = typeOf(x.DType)
	case len(x.Filters) > 0:
		switch first := x.Filters[0]; first.ID {
		case "vlen-array":
			if of, _ = first.Config["dtype"].(string); wordType(of) != nil {
				t = listType(wordType(of))
			}
		case "vlen-bytes":
			t = listType(numberType('u', 1, false))
		case "vlen-utf8":
			t = textType
		default:
			return nil, nil
		}
	default:
		return nil, nil
	}
	if t == nil {
		err = unsupported("HDF5 has no type for elements of type %.60s", of)
	}
	return t, err
}

// fits returns an error if a dataset is too large for HDF5.
func (n *outNode) fits() error {
	x, o := n.in, h5.Object{Kind: h5.Dataset, Type: n.obj.Type, Space: h5.Space{Dims: n.in.Shape}, Fill: n.obj.Fill, Layout: h5.Layout{Class: h5.Contiguous}}
	if o.Type == nil {
		o.Type = textType // the largest that it may become
	}
	one := bytesOf(x.Chunks, o.Type.Size)
	switch {
	case bytesOf(x.Shape, o.Type.Size) < 0:
		return unsupported("%v elements of %d bytes are too many", x.Shape, o.Type.Size)
	case (one < 0 || one > most32) && (x.NumChunks() > 1 || !x.plain()):
		return unsupported("chunks of %v elements are larger than those of HDF5, of 4 GiB", x.Chunks)
	}
	_, err := o.Encode(nil)
	return err
}

// plain reports whether chunks are elements as they are.
func (x *outArray) plain() bool { return x.Compressor == nil && len(x.Filters) == 0 }

// bytesOf returns the size of elements, or -1 if that is too large.
func bytesOf(shape []int64, size int64) int64 {
	n := size
	for _, d := range shape {
		if d > 0 && n > (1<<62)/d {
			return -1
		}
		n *= d
	}
	return n
}

// fill returns the bytes of an element that was never written, or nil if they are zeros. Types of variable length have
// no fill value: if it is not nothing, it must be a text, which is then written; see missing.
func (x *outArray) fill() ([]byte, error) {
	if x.varies() {
		text, is := x.Fill.(string)
		if _, wrong := x.Fill.(json.Number); x.Fill == nil || text == "" && is || wrong && x.DType.Kind == 'O' {
			return nil, nil
		}
		if !is || !isText(text) || x.DType.Kind == 'O' && (len(x.Filters) == 0 || x.Filters[0].ID != "vlen-utf8") || x.Elements() > mostFilled {
			return nil, unsupported("HDF5 cannot have this fill value for elements of variable length")
		}
		x.filled = true
		return nil, nil
	}
	one := *x.Array
	one.Shape = slices.Repeat([]int64{1}, len(x.Shape))
	one.Chunks = one.Shape
	var b bytes.Buffer
	if err := one.WriteElements(context.Background(), &b); err != nil || len(bytes.Trim(b.Bytes(), "\x00")) == 0 {
		return nil, err
	}
	return b.Bytes(), nil
}

// plan decides how an array is stored, when its attributes are known.
func (n *outNode) plan() {
	x, o := n.in, &n.obj
	if x.planned {
		return
	}
	x.planned = true
	o.Space = h5.Space{Dims: x.Shape}
	scalar := x.attrs["_SCALAR"] == true && x.Elements() == 1
	if scalar {
		o.Space.Dims = nil
	}
	o.Space.Null = x.attrs["_EMPTY_DATASPACE"] == true && x.Elements() == 0
	chunks := x.NumChunks()
	if x.Elements() == 0 {
		chunks = 0
	}
	x.chunks = make([]chunkPlace, chunks)
	for i := range x.chunks {
		x.chunks[i].addr = -1
	}
	filters, ok := filtersOf(x.Meta)
	scalar = scalar || len(x.Shape) == 0
	switch whole := slices.Equal(x.Chunks, x.Shape); {
	case x.varies() || x.Order != 'C' && len(x.Shape) > 1 || !ok || chunks == 0:
		x.how = remade
	case x.plain() && whole:
		x.how = inOne
	case chunks == 1 && (scalar || x.plain() || x.Compressor != nil && x.Compressor.ID == "blosc" && x.Elements() < smallElements):
		x.how = remade
	}
	if x.how != asIs && chunks <= 1 {
		o.Layout.Class = h5.Contiguous // see places
		return
	}
	x.anew = x.how == remade && !x.plain() && !x.varies()
	if o.Layout = (h5.Layout{Class: h5.Chunked, Chunk: x.Chunks}); x.how == asIs {
		o.Filters = filters
	} else if x.anew {
		o.Filters = []h5.Filter{{ID: deflate, Optional: true, Values: []uint32{deflateLevel}}}
	}
	o.Space.Max = slices.Clone(x.Shape)
	for i, c := range x.Chunks {
		o.Space.Max[i] = max(x.Shape[i], min(c, (x.Shape[i]-1)/c*c+c))
	}
}

// filtersOf returns the filters of HDF5 that chunks have gone through. It reports false if HDF5 does not have them.
func filtersOf(m zarr.Meta) (all []h5.Filter, ok bool) {
	codecs := slices.Clip(m.Filters)
	if m.Compressor != nil {
		codecs = append(codecs, *m.Compressor)
	}
	number := func(c zarr.Codec, name string, otherwise int64) uint32 {
		n, err := strconv.ParseInt(fmt.Sprint(c.Config[name]), 10, 32)
		if err != nil {
			n = otherwise
		}
		return uint32(n)
	}
	for _, c := range codecs {
		f := h5.Filter{}
		switch c.ID {
		case "shuffle":
			f = h5.Filter{ID: shuffle, Optional: true, Values: []uint32{number(c, "elementsize", 4)}}
		case "zlib":
			f = h5.Filter{ID: deflate, Optional: true, Values: []uint32{min(number(c, "level", 1), 9)}}
		case "fletcher32":
			f = h5.Filter{ID: fletcher32}
		case "zstd":
			f = h5.Filter{ID: zstd, Values: []uint32{number(c, "level", 3)}}
		case "blosc":
			size := m.DType.Size
			if size > 255 {
				size = 1
			}
			name, _ := c.Config["cname"].(string)
			f = h5.Filter{ID: bloscFilter, Values: []uint32{2, 2, uint32(size), uint32(bytesOf(m.Chunks, m.DType.Size)),
				number(c, "clevel", 5), min(number(c, "shuffle", 1), 2), uint32(max(slices.Index(bloscNames, name), 0))}}
		default:
			return nil, false
		}
		all = append(all, f)
	}
	return all, true
}

var bloscNames = []string{"blosclz", "lz4", "lz4hc", "snappy", "zlib", "zstd"}

const deflateLevel = 4

// addChunk adds a chunk of an array.
func (w *writer) addChunk(ctx context.Context, e format.Entry, r io.Reader) error {
	at, listed := w.listed.Within(e.Name)
	n := w.nodes[at]
	switch {
	case listed == nil || at == "":
		return unsupported("it is not part of an array")
	case n == nil || n.in == nil || n.refused:
		return nil // that has been reported
	}
	x := n.in
	if n.plan(); x.Elements() == 0 {
		return nil
	}
	i, ok := x.number(strings.TrimPrefix(e.Name, at+"/"))
	switch {
	case !ok:
		return unsupported("it is no chunk of the array")
	case x.chunks[i].addr >= 0 || x.chunks[i].in != nil:
		return unsupported("the file already has this chunk")
	}
	if x.how == remade {
		stored, err := zarr3.ReadKey(ctx, e, r, w.buf, mostRemade)
		if err == nil {
			err = w.remake(ctx, n, i, stored)
		}
		return err
	}
	if x.how == asIs && e.Size > most32 {
		return unsupported("a chunk of %d bytes is larger than those of HDF5", e.Size)
	}
	start := w.Pos
	if err := zarr3.CopyChunk(ctx, &w.Appender, &x.Meta, e, r, w.buf); err != nil {
		return err
	}
	x.chunks[i] = chunkPlace{addr: start, size: w.Pos - start}
	return nil
}

// give gives an array up, which is then not in the file.
func (w *writer) give(n *outNode, err error) error {
	n.refused = true
	return err
}

// number returns the number of a chunk by its key in the array.
func (x *outArray) number(key string) (i int64, ok bool) {
	index, ok := x.ChunkAt(key)
	for d, n := range index {
		ok = ok && n < x.grid[d]
		i = i*x.grid[d] + n
	}
	return i, ok && i < int64(len(x.chunks))
}

// remake decodes a chunk and writes its elements. If it is nil, it was never written.
func (w *writer) remake(ctx context.Context, n *outNode, i int64, stored []byte) error {
	x, o := n.in, &n.obj
	one := *x.Array
	if o.Layout.Class == h5.Chunked {
		one.Shape = one.Chunks
	}
	if key := x.ChunkKey(make([]int64, len(x.Shape))...); stored != nil {
		x.src[key] = stored
		defer delete(x.src, key)
	}
	if x.varies() {
		return w.remakeValues(ctx, n, i, &one)
	}
	var b bytes.Buffer
	if err := one.WriteElements(ctx, &b); err != nil {
		return err
	}
	if x.anew {
		plain := bytes.Clone(b.Bytes())
		b.Reset()
		z, err := zlib.NewWriterLevel(&b, deflateLevel)
		if err != nil {
			return err
		}
		z.Write(plain) // a buffer takes all
		z.Close()
	}
	x.chunks[i] = chunkPlace{addr: w.Pos, size: int64(b.Len())}
	return w.Append(b.Bytes())
}

// missing makes the chunks of text that never came.
func (w *writer) missing(ctx context.Context, n *outNode) error {
	x := n.in
	for i := 0; x.filled && i < len(x.chunks); i++ {
		if x.chunks[i] == (chunkPlace{addr: -1}) {
			if err := w.remake(ctx, n, int64(i), nil); err != nil {
				return err
			}
		}
	}
	return nil
}

// remakeValues writes the elements of a chunk of objects.
func (w *writer) remakeValues(ctx context.Context, n *outNode, i int64, one *zarr.Array) error {
	x := n.in
	values, err := one.Values(ctx)
	if err != nil {
		return err
	}
	if n.obj.Type == nil {
		if err := n.settleType(values); err != nil {
			return w.give(n, err)
		}
	}
	t := n.obj.Type
	size := bytesOf([]int64{int64(len(values))}, t.Size)
	if size < 0 || size > mostWaiting-w.waiting {
		return unsupported("%d elements of %d bytes, with others that wait for addresses, are too many", len(values), t.Size)
	}
	b := &block{data: make([]byte, size)}
	for k, v := range values {
		if x.isFill(v) {
			continue
		}
		if err := w.put(b, k*int(t.Size), t, v); err != nil {
			return fmt.Errorf("element %d: %w", k, err)
		}
	}
	x.chunks[i] = chunkPlace{addr: -1, size: size, in: b}
	w.later, w.waiting = append(w.later, b), w.waiting+size
	return w.settle(flushWaiting)
}

// isFill reports whether a value of an array of several chunks is the one of elements that were never written. They
// are empty in HDF5.
func (x *outArray) isFill(v any) bool {
	return len(x.chunks) > 1 && (v == nil || kindOf(v) == isWhole && v == x.Fill)
}

// settleType sets the type of objects that are strings or references, by the values.
func (n *outNode) settleType(values []any) error {
	kinds := map[int]bool{}
	for _, v := range values {
		if k := kindOf(v); k == isWord {
			kinds[isString] = true
		} else if k == isNull || !n.in.isFill(v) {
			kinds[k] = true
		}
	}
	null := kinds[isNull]
	delete(kinds, isNull)
	switch {
	case len(kinds) > 1:
		return unsupported("its elements are of several kinds")
	case kinds[isRegion]:
		n.obj.Type = regionType
	case kinds[isRef] || null && len(kinds) == 0:
		n.obj.Type = refType
	case kinds[isString] || len(kinds) == 0:
		n.obj.Type = textType
	default:
		return unsupported("HDF5 has no type for elements that are JSON and neither strings nor references")
	}
	return nil
}

// places returns the places of chunks, and sets the layout of other datasets.
func (x *outArray) places(o *h5.Object) []h5.Chunk {
	if o.Type == nil {
		o.Type = textType // nothing says what its elements would be
	}
	for i := range x.chunks {
		if c := &x.chunks[i]; c.in != nil {
			c.addr = c.in.addr
		}
	}
	if o.Layout.Class == h5.Contiguous {
		if o.Layout.Addr, o.Layout.Size = -1, bytesOf(x.Shape, o.Type.Size); len(x.chunks) == 1 {
			o.Layout.Addr = x.chunks[0].addr
		}
		return nil
	}
	all := make([]h5.Chunk, len(x.chunks))
	for i, c := range x.chunks {
		all[i] = h5.Chunk{Addr: c.addr, Size: c.size}
	}
	return all
}
