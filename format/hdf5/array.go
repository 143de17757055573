package hdf5

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	h5 "github.com/holdall/holdall/hdf5"
	"github.com/holdall/holdall/internal/arrays/pyjson"
)

// Properties of LINDI's references.
const (
	smallElements = 1000       // an array with fewer elements is stored with its metadata
	splitFrom     = 20_000_000 // size of a run that is divided into chunks of about that size
	maxObjects    = 64 << 20   // size of an array whose elements become JSON
)

// array is a dataset as a Zarr array.
type array struct {
	*h5.Object
	dtype string
	item  int64 // size of an element in a chunk
	shape []int64
	chunk []int64
	count []int64 // number of chunks in each dimension

	how     storing
	scalar  bool
	swapped bool                  // a scalar with the other byte order
	linked  bool                  // its chunks are not listed
	stored  []h5.Chunk            // set if how is decoded
	value   []byte                // set if how is kept: the chunk, when it is known
	err     error                 // why value is not known
	fields  []string              // of a compound: names and types, alternating
	fill    []byte                // JSON
	codecs  [][]byte              // JSON
	json    bool                  // elements are JSON
	list    string                // type of the elements of lists, which elements are
	record  []byte                // JSON of a type with fields
	convert func(to, from []byte) // makes an element of a stored one; nil if it is the same
	names   []string              // of dimensions, if they have any
}

// storing is where the chunks of an array are stored.
type storing uint8

const (
	inFile  storing = iota // chunks in the file
	inRun                  // one run in the file, divided into chunks
	kept                   // one chunk, with the metadata
	decoded                // chunks in the file that are decoded, because Zarr does not have their filters or elements
	made                   // chunks of elements that are read, wherever they are, and made others
)

// newArray describes a dataset as an array, without reading its elements.
func (t *texter) newArray(o *h5.Object) (*array, error) {
	if err := o.Readable(); err != nil {
		return nil, err
	}
	x := &array{Object: o, shape: o.Space.Dims, item: o.Type.Size}
	if o.Space.Null {
		x.shape = []int64{0}
	}
	typ := o.Type
	for typ.Class == h5.Array { // its dimensions are appended
		x.shape, typ = append(x.shape[:len(x.shape):len(x.shape)], typ.Dims...), typ.Base
		x.item = typ.Size
	}
	n := o.Space.Elements()
	var number bool
	if x.dtype, number = dtypeOf(typ); x.dtype == "" {
		var err error
		if number, err = x.other(typ); err != nil {
			return nil, err
		}
	}
	if t.a.scales != nil && len(x.shape) == len(o.Space.Dims) {
		x.names = t.a.scales.of(o)
	}
	if x.scalar = len(x.shape) == 0; x.scalar {
		x.shape = []int64{1}
	}
	switch {
	case n == 0 && (!number || o.Layout.Class != h5.Chunked):
		if x.how = inRun; !number {
			x.how = kept
		}
		x.chunk = make([]int64, len(x.shape))
		for i := range x.chunk {
			if x.chunk[i] = 1; !number {
				x.chunk[i] = max(1, x.shape[i])
			}
		}
	case n > 0 && (x.scalar || x.json || x.list != "" || n < smallElements):
		x.how, x.chunk = kept, x.shape
	case o.Layout.Class == h5.Chunked:
		x.chunk = append(o.Layout.Chunk[:len(o.Layout.Chunk):len(o.Layout.Chunk)], x.shape[len(o.Space.Dims):]...)
		if x.how = x.filters(); x.convert != nil {
			x.how, x.codecs = decoded, nil
		}
	default:
		x.how, x.chunk = inRun, x.shape
		if x.convert != nil || o.Layout.Class == h5.External || o.Layout.Class == h5.Virtual {
			x.how = made
		}
		if o.Bytes() > splitFrom && number && o.Layout.Class != h5.Compact {
			x.divide(splitFrom)
		}
	}
	if o.Layout.Class == h5.Compact && (x.how == inRun || x.how == made) && n > 0 {
		x.how = kept
	}
	if x.scalar && number && x.dtype[0] == '>' { // LINDI stores them in the usual order
		x.dtype, x.swapped = "<"+x.dtype[1:], true
	}
	x.grid()
	var err error
	x.fill, err = x.fillValue(t, typ)
	return x, err
}

// dtypeOf returns NumPy's name for a type whose elements have the same bytes in Zarr, or "" if
// there is none.
func dtypeOf(t *h5.Datatype) (name string, number bool) {
	order := byte('<')
	if t.BigEndian {
		order = '>'
	}
	of := func(kind byte, size int64) string {
		if size == 1 {
			order = '|'
		}
		return string(order) + string(kind) + strconv.FormatInt(size, 10)
	}
	size := t.Size
	switch t.Class {
	case h5.Integer, h5.BitField:
		if t.BitOffset != 0 || int64(t.Precision) != 8*size || size != 1 && size != 2 && size != 4 && size != 8 {
			return "", false
		}
		if t.Signed {
			return of('i', size), true
		}
		return of('u', size), true
	case h5.Float:
		if size > 8 || *t.Float != ieee[size] {
			return "", false
		}
		return of('f', size), true
	case h5.Complex:
		if name, _ := dtypeOf(t.Base); name == "" || t.Base.Class != h5.Float || t.Base.Size < 4 {
			return "", false
		}
		if t.Base.BigEndian {
			order = '>'
		}
		return of('c', size), false
	case h5.Compound: // as h5py writes complex numbers
		if len(t.Fields) == 2 && t.Fields[0].Name == "r" && t.Fields[1].Name == "i" {
			half := t.Fields[0].Type
			a, _ := dtypeOf(half)
			b, _ := dtypeOf(t.Fields[1].Type)
			if a != "" && a == b && half.Class == h5.Float && half.Size >= 4 && t.Fields[0].Offset == 0 && t.Fields[1].Offset == half.Size && size == 2*half.Size {
				return a[:1] + "c" + strconv.FormatInt(size, 10), false
			}
		}
	case h5.Enum:
		if t.Bool() {
			return "|b1", false
		}
		return dtypeOf(t.Base)
	case h5.String:
		if size > 0 && t.Padding != h5.SpacePadded {
			return "|S" + strconv.FormatInt(size, 10), false
		}
	case h5.Opaque:
		if size > 0 {
			return "|V" + strconv.FormatInt(size, 10), false
		}
	}
	return "", false
}

// ieee are the floats of NumPy.
var ieee = map[int64]h5.FloatFormat{
	2: {Sign: 15, ExponentAt: 10, ExponentBits: 5, MantissaBits: 10, Bias: 15, Implied: true},
	4: {Sign: 31, ExponentAt: 23, ExponentBits: 8, MantissaBits: 23, Bias: 127, Implied: true},
	8: {Sign: 63, ExponentAt: 52, ExponentBits: 11, MantissaBits: 52, Bias: 1023, Implied: true},
}

// divide makes chunks of rows, of up to most bytes if a row has less.
func (x *array) divide(most int64) {
	x.chunk = append([]int64{min(max(1, most/(x.Bytes()/x.shape[0])), x.shape[0])}, x.shape[1:]...)
}

func (x *array) grid() {
	x.count = make([]int64, len(x.shape))
	for i, d := range x.shape {
		x.count[i] = (d + x.chunk[i] - 1) / x.chunk[i]
	}
}

// asJSON makes the elements JSON, if that is possible.
func (x *array) asJSON(t *h5.Datatype) error {
	switch {
	case len(x.shape) == 0 && t.Class == h5.Variable && t.IsString:
		x.dtype = "<U" // the number of characters follows when it is known
		return nil
	case len(x.shape) == 0 && t.Class != h5.Compound && t.Class != h5.Reference:
	case t.Class == h5.Variable && t.IsString, t.Class == h5.Reference && t.Ref <= h5.RegionRef, t.Class == h5.String:
		x.json = true
	case t.Class == h5.Compound:
		for _, f := range t.Fields {
			if _, err := name(nil, f.Name); err != nil {
				return err
			}
			word := fieldType(f.Type)
			if word == "" {
				return unsupported("elements of type %v are not supported as Zarr", t)
			}
			x.fields = append(x.fields, f.Name, word)
		}
		x.json = true
	}
	if !x.json {
		return unsupported("elements of type %v are not supported as Zarr", t)
	}
	if n := x.Bytes(); n < 0 || n > maxObjects {
		return unsupported("%d bytes of elements of type %v are too many to be shown as JSON", n, t)
	}
	x.dtype = "|O"
	return nil
}

// fieldType returns NumPy's long name for a type, as LINDI uses it for fields.
func fieldType(t *h5.Datatype) string {
	name, _ := dtypeOf(t)
	switch {
	case t.Class == h5.Reference && t.Ref == h5.ObjectRef:
		return "<REFERENCE>"
	case t.Class == h5.Variable && t.IsString:
		return "object"
	case t.Class == h5.String:
		return "|S" + strconv.FormatInt(t.Size, 10)
	case len(name) < 3 || name[1] == 'V' || name[1] == 'c':
		return ""
	case name == "|b1":
		return "bool"
	case name[0] == '>':
		return name
	}
	word := map[byte]string{'i': "int", 'u': "uint", 'f': "float"}[name[1]]
	return word + strconv.FormatInt(8*t.Size, 10)
}

// filters converts a pipeline to codecs, and decides whether the chunks of the file can be used.
func (x *array) filters() storing {
	if x.Layout.PlainEdges && len(x.Filters) > 0 {
		return decoded
	}
	add := func(text string, a ...any) { x.codecs = append(x.codecs, fmt.Appendf(nil, text, a...)) }
	for _, f := range x.Filters { // LINDI puts it before all others
		if f.ID == shuffle {
			add(`{"elementsize":%d,"id":"shuffle"}`, x.item)
		}
	}
	at := func(f h5.Filter, i int) uint32 {
		if i < len(f.Values) {
			return f.Values[i]
		}
		return 0
	}
	for i, f := range x.Filters {
		switch f.ID {
		case shuffle:
			if i != 0 {
				x.codecs = nil
				return decoded
			}
		case deflate:
			add(`{"id":"zlib","level":%d}`, at(f, 0))
		case fletcher32:
			add(`{"id":"fletcher32"}`)
		case zstd:
			add(`{"checksum":false,"id":"zstd","level":%d}`, int32(at(f, 0)))
		case bloscFilter:
			name := bloscNames[0]
			if n := at(f, 6); int(n) < len(bloscNames) {
				name = bloscNames[n]
			}
			add(`{"blocksize":%d,"clevel":%d,"cname":%q,"id":"blosc","shuffle":%d}`, at(f, 3), at(f, 4), name, at(f, 5))
		default:
			x.codecs = nil
			return decoded
		}
	}
	return inFile
}

// chunks returns the number of chunks in the grid, at most most.
func (x *array) chunks(most int64) int64 {
	all := int64(1)
	for _, c := range x.count {
		if c > 0 && all > most/c {
			return most
		}
		all *= c
	}
	return all
}

// Filters that Zarr has too.
const (
	deflate     = 1
	shuffle     = 2
	fletcher32  = 3
	bloscFilter = 32001
	zstd        = 32015
)

const (
	jsonFilter = `{"allow_nan":true,"check_circular":true,"encoding":"utf-8","ensure_ascii":true,"id":"json2","indent":null,"separators":[",",":"],"skipkeys":false,"sort_keys":true,"strict":true}`
	bloscCodec = `{"blocksize":0,"clevel":5,"cname":"lz4","id":"blosc","shuffle":1}`
)

func lengths(p []byte, all []int64) []byte {
	p = append(p, '[')
	for i, n := range all {
		if i > 0 {
			p = append(p, ',')
		}
		p = strconv.AppendInt(p, n, 10)
	}
	return append(p, ']')
}

// meta returns the text of .zarray.
func (x *array) meta() []byte {
	chunk, shape := x.chunk, x.shape
	if x.scalar && x.names != nil {
		chunk, shape = nil, nil
	}
	p := lengths([]byte(`{"chunks":`), chunk)
	compressor, filters := "null", "null"
	if x.how == kept {
		compressor = bloscCodec
	}
	if x.json {
		filters = "[" + jsonFilter + "]"
	}
	if x.texts() {
		filters = `[{"id":"vlen-utf8"}]`
	}
	if x.list != "" {
		filters = fmt.Sprintf(`[{"dtype":%q,"id":"vlen-array"}]`, x.list)
	}
	dtype := x.record
	if dtype == nil {
		dtype = strconv.AppendQuote(nil, x.dtype)
	}
	for i, c := range x.codecs {
		if i == 0 {
			filters = "[" + string(c)
		} else {
			filters += "," + string(c)
		}
		if i == len(x.codecs)-1 {
			filters += "]"
		}
	}
	p = fmt.Appendf(p, `,"compressor":%s,"dtype":%s,"fill_value":%s,"filters":%s,"order":"C","shape":`, compressor, dtype, x.fill, filters)
	return append(lengths(p, shape), `,"zarr_format":2}`...)
}

// fillValue returns the JSON of the value of elements that were never written.
func (x *array) fillValue(t *texter, typ *h5.Datatype) ([]byte, error) {
	fill := x.Fill
	if x.how == kept || int64(len(fill)) < typ.Size {
		fill = make([]byte, typ.Size)
	}
	fill = fill[:typ.Size] // of an array, only the first
	if x.record != nil || x.dtype[1] == 'S' {
		fill = x.change(fill)
	}
	switch kind := x.dtype[1]; kind {
	case 'O':
		if x.list != "" {
			return []byte("null"), nil
		}
		return []byte("0"), nil
	case 'U':
		return []byte(`""`), nil
	case 'S', 'V':
		n := len(fill)
		for kind == 'S' && n > 0 && fill[n-1] == 0 {
			n--
		}
		return strconv.AppendQuote(nil, base64.StdEncoding.EncodeToString(fill[:n])), nil
	}
	v, err := t.a.f.Values(context.Background(), typ, fill) // none of it is in a heap
	if err != nil {
		return nil, err
	}
	return t.value(nil, typ, v[0])
}

// chunkOf makes the chunk of an array that is stored with its metadata, in the form in which
// Blosc stores incompressible bytes.
func (x *array) chunkOf(t *texter, e h5.Elements) error {
	data, item := x.change(e.Data), x.item
	n, isText := longest(e.Values)
	switch {
	case x.fromValues() && x.fields == nil && !isText: // as bytes of a fixed size
		if n > maxObjects/int64(len(e.Values)) {
			return unsupported("%d strings of up to %d bytes that are not UTF-8 are too many", len(e.Values), n)
		}
		data, item = make([]byte, n*int64(len(e.Values))), n
		for i, v := range e.Values {
			copy(data[int64(i)*n:], v.(string))
		}
		x.json, x.dtype, x.fill = false, "|S"+strconv.FormatInt(n, 10), []byte(`""`)
	case x.list != "":
		data, item = binary.LittleEndian.AppendUint32(nil, uint32(len(e.Values))), 1
		for _, v := range e.Values {
			list, _ := v.([]any)
			data = binary.LittleEndian.AppendUint32(data, uint32(int64(len(list))*size(x.list)))
			for _, v := range list {
				data = appendNumber(data, v, size(x.list))
			}
		}
	case x.texts():
		data, item = binary.LittleEndian.AppendUint32(nil, uint32(len(e.Values))), 1
		for _, v := range e.Values {
			s, _ := v.(string)
			data = append(binary.LittleEndian.AppendUint32(data, uint32(len(s))), s...)
		}
	case x.json:
		elements := *t
		elements.bare = true
		dims := x.Space.Dims
		if x.scalar {
			dims = x.shape
		}
		p, err := elements.array(nil, x.Type, dims, e.Values)
		if err != nil {
			return err
		}
		p = append(p[:len(p)-1], `,"|O",[`...)
		for i, n := range x.shape {
			if i > 0 {
				p = append(p, ',')
			}
			p = strconv.AppendInt(p, n, 10)
		}
		data, item = append(p, "]]"...), 1
	case x.dtype == "<U":
		s, _ := e.Values[0].(string)
		n := max(1, utf8.RuneCountInString(s))
		data, item = make([]byte, 0, 4*n), int64(4*n)
		for _, r := range s {
			data = binary.LittleEndian.AppendUint32(data, uint32(r))
		}
		data = append(data, make([]byte, 4*n-len(data))...)
		x.dtype = "<U" + strconv.Itoa(n)
	case x.swapped:
		data = bytes.Clone(data)
		slices.Reverse(data)
	case x.scalar && x.dtype[1] == 'S': // as long as the string
		n := len(data)
		for n > 1 && data[n-1] == 0 {
			n--
		}
		data, item = data[:n], int64(n)
		x.dtype = "|S" + strconv.Itoa(n)
	}
	x.value = blosc(data, item)
	return nil
}

// texts reports whether elements are strings that xarray is to read.
func (x *array) texts() bool { return x.json && x.names != nil && x.Type.Class == h5.Variable }

// mask makes the fill value what xarray takes it for: a value that no element has. netCDF has an attribute for it. What
// was never written needs one nevertheless.
func (x *array) mask(t *texter, chunks int64) error {
	if x.names == nil {
		return nil
	}
	written := x.how == kept || chunks == x.chunks(chunks+1)
	all, fill := values(x.Object, "_FillValue"), []byte("null")
	if len(all) > 0 && strings.IndexByte("iufb", x.dtype[1]) >= 0 {
		var err error
		if fill, err = t.value(nil, x.Type, all[0]); err != nil {
			return err
		}
	}
	if written || len(all) > 0 && bytes.Equal(fill, x.fill) {
		x.fill = fill
	}
	return nil
}

// longest returns the size of the longest string, and whether all values are UTF-8 or no strings.
func longest(values []any) (n int64, isText bool) {
	isText = true
	for _, v := range values {
		s, _ := v.(string)
		n, isText = max(n, int64(len(s))), isText && utf8.ValidString(s)
	}
	return n, isText
}

const bloscHead = 16

// blosc returns the form in which Blosc stores incompressible bytes.
func blosc(data []byte, item int64) []byte {
	const version, lz4Version, stored = 2, 1, 0x33 // not compressed, LZ4, blocks in one piece, shuffled
	if item > 255 {
		item = 1
	}
	p := append(make([]byte, 0, bloscHead+len(data)), version, lz4Version, stored, byte(item))
	p = binary.LittleEndian.AppendUint32(p, uint32(len(data)))
	p = binary.LittleEndian.AppendUint32(p, uint32(len(data)))
	p = binary.LittleEndian.AppendUint32(p, uint32(bloscHead+len(data)))
	return append(p, data...)
}

// fromValues reports whether a chunk is made from values instead of stored elements.
func (x *array) fromValues() bool { return x.json || x.list != "" || x.dtype == "<U" }

// isOpen reports whether the metadata depends on the elements.
func (x *array) isOpen() bool { return x.fromValues() || x.scalar && x.dtype[1] == 'S' }

// attributes returns the text of .zattrs, or nil if there is none.
func (t *texter) attributes(o *h5.Object, x *array, link string) []byte {
	p := []byte{'{'}
	put := func(word string) (err error) {
		if len(p) > 1 {
			p = append(p, ',')
		}
		p, err = name(p, word)
		p = append(p, ':')
		return err
	}
	for i := range o.Attributes {
		at, n := &o.Attributes[i], len(p)
		if t.a.scales.says(o, at.Name) {
			continue
		}
		err := put(at.Name)
		if err == nil {
			p, err = t.attribute(p, at)
		}
		if err != nil {
			p = p[:n]
			if at.Err == nil { // otherwise it has been noted
				t.a.notes = append(t.a.notes, t.a.problem(o.Path, fmt.Errorf("attribute %q: %w", at.Name, err)))
			}
		}
	}
	if x != nil && o.Space.Null {
		put("_EMPTY_DATASPACE")
		p = append(p, "true"...)
	}
	if x != nil && x.names != nil {
		put("_ARRAY_DIMENSIONS")
		p = append(p, '[')
		for i, s := range x.names {
			if i > 0 {
				p = append(p, ',')
			}
			p = pyjson.AppendString(p, s)
		}
		p = append(p, ']')
	} else if x != nil && x.scalar {
		put("_SCALAR")
		p = append(p, "true"...)
	}
	if x != nil && x.fields != nil {
		put("_COMPOUND_DTYPE")
		for i := 0; i < len(x.fields); i += 2 {
			p = append(p, "[,"[min(i, 1)])
			p = pyjson.AppendString(append(p, '['), x.fields[i])
			p = pyjson.AppendString(append(p, ','), x.fields[i+1])
			p = append(p, ']')
		}
		p = append(p, ']')
	}
	if link != "" {
		put("_EXTERNAL_ARRAY_LINK")
		p = append(p, link...)
	}
	if len(p) == 1 {
		return nil
	}
	return append(p, '}')
}

// elements reads arrays that are stored with their metadata, and makes their chunks.
func (t *texter) elements(ctx context.Context, all []*array) error {
	for _, values := range []bool{false, true} {
		var some []*array
		var objects []*h5.Object
		for _, x := range all {
			if x.value == nil && x.err == nil && x.fromValues() == values {
				some, objects = append(some, x), append(objects, x.Object)
			}
		}
		found, err := t.a.f.Elements(ctx, objects, values)
		if err != nil {
			return err
		}
		for i, x := range some {
			if x.err = found[i].Err; x.err == nil {
				x.err = x.chunkOf(t, found[i])
			}
		}
	}
	return nil
}
