package hdf5

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	h5 "github.com/holdall/holdall/hdf5"
	"github.com/holdall/holdall/zarr"
)

// Types of values that have no dtype.
var (
	textType   = &h5.Datatype{Class: h5.Variable, Size: 16, IsString: true, UTF8: true, Base: numberType('u', 1, false)}
	refType    = &h5.Datatype{Class: h5.Reference, Size: 8}
	regionType = &h5.Datatype{Class: h5.Reference, Size: 12, Ref: h5.RegionRef}
	boolType   = &h5.Datatype{Class: h5.Enum, Size: 1, Base: numberType('i', 1, false), Members: []h5.Member{{Name: "FALSE", Value: []byte{0}}, {Name: "TRUE", Value: []byte{1}}}}
)

// listType returns the type of sequences.
func listType(of *h5.Datatype) *h5.Datatype {
	return &h5.Datatype{Class: h5.Variable, Size: 16, Base: of}
}

// numberType returns the type of integers (i, u) or floats (f).
func numberType(kind byte, size int64, bigEndian bool) *h5.Datatype {
	t := &h5.Datatype{Class: h5.Integer, Size: size, BigEndian: bigEndian, Precision: int(8 * size), Signed: kind == 'i'}
	if kind == 'f' {
		x := ieee[size]
		t.Class, t.Float = h5.Float, &x
	}
	return t
}

// typeOf returns the type of elements whose bytes are the same in Zarr and in HDF5, or nil if there is none.
func typeOf(d zarr.DType) *h5.Datatype {
	switch d.Kind {
	case 'i', 'u', 'f':
		return numberType(d.Kind, d.Size, d.BigEndian)
	case 'b':
		return boolType
	case 'c': // as h5py writes them
		half := numberType('f', d.Size/2, d.BigEndian)
		return &h5.Datatype{Class: h5.Compound, Size: d.Size, Fields: []h5.Field{{Name: "r", Type: half}, {Name: "i", Offset: d.Size / 2, Type: half}}}
	case 'S':
		if d.Size > 0 {
			return &h5.Datatype{Class: h5.String, Size: d.Size, Padding: h5.ZeroPadded}
		}
	case 'M', 'm': // as h5py writes them
		return &h5.Datatype{Class: h5.Opaque, Size: d.Size, Tag: "NUMPY:" + d.Name}
	case 'V':
		if d.Fields == nil && d.Size > 0 {
			return &h5.Datatype{Class: h5.Opaque, Size: d.Size}
		}
		return recordType(d)
	}
	return nil
}

// recordType returns the type of a structured dtype.
func recordType(d zarr.DType) *h5.Datatype {
	t := &h5.Datatype{Class: h5.Compound}
	for _, f := range d.Fields {
		typ := typeOf(f.Type)
		if typ == nil || f.Count == 0 || !isName(f.Name) {
			return nil
		}
		if f.Shape != nil {
			typ = &h5.Datatype{Class: h5.Array, Size: typ.Size * f.Count, Dims: f.Shape, Base: typ}
		}
		t.Fields = append(t.Fields, h5.Field{Name: f.Name, Offset: t.Size, Type: typ})
		t.Size += typ.Size
	}
	if t.Size == 0 {
		return nil
	}
	return t
}

// isName reports whether a text can be the name of a field.
func isName(s string) bool { return s != "" && utf8.ValidString(s) && !strings.Contains(s, "\x00") }

// isText reports whether a text is UTF-8 that ends with its first zero byte, as strings of variable length do.
func isText(s string) bool {
	return utf8.ValidString(s) && !strings.Contains(strings.TrimRight(s, "\x00"), "\x00")
}

// compoundType returns the type of a compound of which LINDI stores elements as JSON, or nil if there is none.
func compoundType(fields []zarr.CompoundField) *h5.Datatype {
	t := &h5.Datatype{Class: h5.Compound}
	for _, f := range fields {
		typ := wordType(f.Type)
		if typ == nil || !isName(f.Name) {
			return nil
		}
		t.Fields = append(t.Fields, h5.Field{Name: f.Name, Offset: t.Size, Type: typ})
		t.Size += typ.Size
	}
	if t.Size == 0 {
		return nil
	}
	return t
}

// wordType returns the type of a word of _COMPOUND_DTYPE; see fieldType.
func wordType(word string) *h5.Datatype {
	switch word {
	case "<REFERENCE>":
		return refType
	case "object":
		return textType
	case "bool":
		return boolType
	}
	if digits := strings.TrimLeft(word, "uintfloa"); digits != word { // int32
		n, _ := strconv.Atoi(digits)
		word = fmt.Sprintf("<%c%d", word[0], n/8)
	}
	m, err := zarr.ParseMeta([]byte(`{"zarr_format":2,"shape":[],"chunks":[],"order":"C","fill_value":null,"filters":null,"compressor":null,"dtype":` + strconv.Quote(word) + `}`))
	if err != nil {
		return nil
	}
	return typeOf(m.DType)
}

// A place is the address of something in the file, when it is known.
type place struct{ addr int64 }

// A fix is an address within some bytes, which is written when it is known.
type fix struct {
	at int
	to *place
}

// A block is bytes that are written when the addresses in them are known.
type block struct {
	place
	data   []byte
	fixes  []fix
	values [][]byte // of a heap that is still open: data is made of them
}

// apply writes the addresses.
func (b *block) apply() {
	for _, f := range b.fixes {
		binary.LittleEndian.PutUint64(b.data[f.at:], uint64(f.to.addr))
	}
}

// errValue means that a value has no type in HDF5.
var errValue = unsupported("HDF5 has no type for it")

// put puts an element into a block, whose bytes are zeros there. v is a value of package zarr, or the node that a
// reference leads to.
func (w *writer) put(b *block, at int, t *h5.Datatype, v any) error {
	to := b.data[at : at+int(t.Size)]
	text, given := v.(string)
	if raw, ok := v.([]byte); ok {
		text, given = string(raw), true
	}
	list, isList := v.([]any)
	switch {
	case t.Class == h5.Integer || t.Class == h5.Float:
		return putNumber(to, t, v)
	case t.Class == h5.Enum:
		if on, ok := v.(bool); ok {
			to[0] = map[bool]byte{true: 1}[on]
			return nil
		}
	case t.Class == h5.String && given && len(text) <= len(to):
		copy(to, text)
		return nil
	case v == nil && (t.Class == h5.Variable || t.Class == h5.Reference):
		return nil
	case t.Class == h5.Variable && t.IsString && given:
		if !isText(text) {
			return unsupported("%.60q is no text that ends with its first zero byte", text)
		}
		if text != "" {
			w.refer(b, at+4, []byte(text), nil)
			binary.LittleEndian.PutUint32(to, uint32(len(text)))
		}
		return nil
	case t.Class == h5.Variable && !t.IsString && (isList || given):
		in := &block{data: []byte(text)}
		if isList {
			in.data = make([]byte, int64(len(list))*t.Base.Size)
		}
		for i, v := range list {
			if err := w.put(in, i*int(t.Base.Size), t.Base, v); err != nil {
				return err
			}
		}
		if len(in.data) > 0 {
			w.refer(b, at+4, in.data, in.fixes)
			binary.LittleEndian.PutUint32(to, uint32(int64(len(in.data))/t.Base.Size))
		}
		return nil
	case t.Class == h5.Compound && isList && len(list) == len(t.Fields):
		for i, f := range t.Fields {
			if err := w.put(b, at+int(f.Offset), f.Type, list[i]); err != nil {
				return err
			}
		}
		return nil
	case t.Class == h5.Reference:
		return w.putReference(b, at, t, v)
	}
	return errValue
}

// putNumber puts a number, in the order of its bytes.
func putNumber(to []byte, t *h5.Datatype, v any) error {
	if s, ok := v.(string); ok && isFloatWord(s) {
		v = json.Number(s)
	}
	n, ok := v.(json.Number)
	if !ok {
		return errValue
	}
	size := int(t.Size)
	var raw []byte
	switch f, err := strconv.ParseFloat(string(n), 64); {
	case t.Class == h5.Float && err == nil:
		if g, err := strconv.ParseFloat(string(n), 32); size == 4 && err == nil {
			f = g // rounded once
		}
		raw = appendNumber(nil, f, t.Size)
	case t.Class == h5.Integer && t.Signed:
		i, err := strconv.ParseInt(string(n), 10, 8*size)
		if err != nil {
			return unsupported("%.60s is no integer of %d bits", n, 8*size)
		}
		raw = appendNumber(nil, i, t.Size)
	case t.Class == h5.Integer:
		u, err := strconv.ParseUint(string(n), 10, 8*size)
		if err != nil {
			return unsupported("%.60s is no unsigned integer of %d bits", n, 8*size)
		}
		raw = appendNumber(nil, u, t.Size)
	default:
		return errValue
	}
	if t.BigEndian {
		slices.Reverse(raw)
	}
	copy(to, raw)
	return nil
}

// isFloatWord reports whether a string stands for a float that JSON lacks.
func isFloatWord(s string) bool { return s == "NaN" || s == "Infinity" || s == "-Infinity" }

// putReference puts a reference to an object, or to a part of one.
func (w *writer) putReference(b *block, at int, t *h5.Datatype, v any) error {
	if n, ok := v.(*outNode); ok {
		b.fixes = append(b.fixes, fix{at, &n.place})
		return nil
	}
	m, _ := v.(map[string]any)
	ref, ok := m["_REFERENCE"].(map[string]any)
	if !ok {
		return errValue
	}
	target, ok := ref["path"].(string)
	if ref["path"] == nil {
		return nil
	}
	n := w.nodes[strings.Trim(target, "/")]
	if !ok || n == nil || n.refused {
		w.dangling = append(w.dangling, target)
		return nil
	}
	if t.Ref == h5.ObjectRef {
		b.fixes = append(b.fixes, fix{at, &n.place})
		return nil
	}
	return w.putRegion(b, at, n, m["_REGION"])
}

// putRegion puts a reference to a part of a dataset: blocks, each with the first and the last element (excluded) along
// each axis. Axes that are not there, because they were in the type of an element, are complete.
func (w *writer) putRegion(b *block, at int, n *outNode, v any) error {
	blocks, _ := v.([]any)
	if n.in == nil || len(blocks) == 0 {
		return errValue
	}
	const slabs, all, version = 2, 3, 1
	p := make([]byte, 8, 32) // the address
	add := func(all ...int64) {
		for _, v := range all {
			p = binary.LittleEndian.AppendUint32(p, uint32(v))
		}
	}
	rank := int64(len(n.in.Shape))
	if first, ok := blocks[0].([]any); ok && len(first) == 0 { // of a scalar
		add(all, version, 0, 0)
		blocks = nil
	} else {
		add(slabs, version, 0, 8+int64(len(blocks))*8*rank, rank, int64(len(blocks)))
	}
	for _, v := range blocks {
		axes, ok := v.([]any)
		var from, last []int64
		for d, size := range n.in.Shape {
			pair := []any{json.Number("0"), json.Number(strconv.FormatInt(size, 10))}
			if d < len(axes) {
				pair, _ = axes[d].([]any)
			}
			for i, v := range pair[:min(2, len(pair))] {
				number, _ := v.(json.Number)
				x, err := strconv.ParseInt(string(number), 10, 64)
				if ok = ok && err == nil && x >= 0 && x <= math.MaxUint32 && len(pair) == 2; i == 0 {
					from = append(from, x)
				} else {
					last = append(last, x-1)
				}
			}
			if !ok || len(last) != len(from) || len(from) != d+1 || last[d] < from[d] {
				return errValue
			}
		}
		if len(axes) > len(n.in.Shape) {
			return errValue
		}
		add(from...)
		add(last...)
	}
	w.refer(b, at, p, []fix{{0, &n.place}})
	return nil
}

// Limits of a collection of a heap, after which another one is begun.
const (
	mostHeap   = 64 << 10 // bytes
	mostValues = 1 << 12
)

// refer puts bytes into a heap, and its address and the number there into a block.
func (w *writer) refer(b *block, at int, p []byte, fixes []fix) {
	if h := w.heap; h == nil || len(h.values) >= mostValues || w.inHeap > mostHeap {
		w.heap, w.inHeap = &block{}, 16
		w.later = append(w.later, w.heap)
	}
	for _, f := range fixes {
		w.heap.fixes = append(w.heap.fixes, fix{w.inHeap + 16 + f.at, f.to})
	}
	w.heap.values = append(w.heap.values, p)
	w.inHeap += 16 + (len(p)+7)/8*8
	w.waiting += int64(len(p)) + 24
	b.fixes = append(b.fixes, fix{at, &w.heap.place})
	binary.LittleEndian.PutUint32(b.data[at+8:], uint32(len(w.heap.values)))
}

// infer returns the type of JSON values, their shape, and the values in order. Lists must be those of an array.
func infer(v any) (t *h5.Datatype, dims []int64, all []any, err error) {
	all = []any{v}
	for {
		list, ok := all[0].([]any)
		if !ok {
			break
		}
		dims = append(dims, int64(len(list)))
		flat := make([]any, 0, len(all)*len(list))
		for _, v := range all {
			in, ok := v.([]any)
			if !ok || len(in) != len(list) {
				return nil, nil, nil, unsupported("its lists are not those of an array")
			}
			flat = append(flat, in...)
		}
		if all = flat; len(all) == 0 {
			return numberType('f', 8, false), dims, nil, nil
		}
	}
	if len(dims) > h5.MaxRank {
		return nil, nil, nil, unsupported("it has %d dimensions; HDF5 allows at most %d", len(dims), h5.MaxRank)
	}
	var kinds [kindCount]bool
	for _, v := range all {
		kinds[kindOf(v)] = true
	}
	only := func(some ...int) bool {
		for k, is := range kinds {
			if is && !slices.Contains(some, k) {
				return false
			}
		}
		return true
	}
	switch {
	case only(isBool):
		t = boolType
	case only(isWhole):
		t = numberType('i', 8, false)
	case only(isWhole, isLarge):
		t = numberType('u', 8, false)
	case only(isWhole, isLarge, isFloat, isWord):
		t = numberType('f', 8, false)
	case only(isString, isWord):
		t = textType
	case only(isRef, isNull):
		t = refType
	case only(isRegion, isNull):
		t = regionType
	default:
		err = errValue
	}
	return t, dims, all, err
}

// Kinds of JSON values.
const (
	isOther = iota
	isNull
	isBool
	isWhole
	isLarge // more than an int64
	isFloat
	isWord // a string that stands for a float
	isString
	isRef
	isRegion
	kindCount
)

func kindOf(v any) int {
	switch v := v.(type) {
	case nil:
		return isNull
	case bool:
		return isBool
	case json.Number:
		if strings.ContainsAny(string(v), ".eENI") {
			return isFloat
		}
		if _, err := strconv.ParseInt(string(v), 10, 64); err == nil {
			return isWhole
		}
		if u, err := strconv.ParseUint(string(v), 10, 64); err == nil && u > math.MaxInt64 {
			return isLarge
		}
	case string:
		if isFloatWord(v) {
			return isWord
		}
		return isString
	case map[string]any:
		if _, ok := v["_REGION"].([]any); ok {
			return isRegion
		}
		if _, ok := v["_REFERENCE"].(map[string]any); ok {
			return isRef
		}
	}
	return isOther
}
