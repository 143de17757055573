package zarr

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io/fs"
	"maps"
	"math"
	"path"
	"slices"
	"strconv"
	"strings"
)

// A Version3 is an array of version 2 translated into version 3. Its chunks are those of version
// 2 with the same keys, or are encoded anew, with keys that version 2 does not use.
type Version3 struct {
	*Meta // of version 2

	Anew bool  // chunks are encoded anew by Chunk
	Size int64 // size of such a chunk; -1 if it is known only after encoding

	head   head3   // of zarr.json
	attrs  []byte  // the text of the attributes there
	text   []byte  // zarr.json
	pipe   *reader // set if Anew
	fields *DType  // type of objects that become structured elements
	bytes  bool    // objects are byte strings
}

// Version3 translates an array into version 3. If zarr-python from 3.1 on cannot read a property
// of it in version 3, the error wraps [errors.ErrUnsupported] and names the property. attrs is
// the text of the attributes and may be nil. A chunk that is encoded anew may take up to limit
// bytes.
func (m *Meta) Version3(attrs []byte, limit int64) (*Version3, error) {
	a := &Array{Meta: *m, Limit: limit}
	var err error
	if a.Attrs, err = parseObject(attrs); err != nil {
		return nil, err
	}
	t := &Version3{Meta: m}
	codecs, err := t.codecs(a)
	if err != nil {
		return nil, err
	}
	if a.Attrs[markScalar] == true && len(m.Shape) == 1 && m.Shape[0] == 1 && m.Chunks[0] == 1 { // it needs no dimension
		scalar := *m
		scalar.Shape, scalar.Chunks = nil, nil
		m, t.Meta = &scalar, &scalar
		delete(a.Attrs, markScalar)
		attrs = appendJSON(nil, a.Attrs)
	}
	d := t.dtype()
	kind, err := d.version3()
	if err != nil {
		return nil, err
	}
	if t.bytes {
		kind = "variable_length_bytes"
	}
	fill, err := t.fill(d)
	if err != nil {
		return nil, err
	}
	keys := named3{"v2", map[string]any{"separator": m.Separator}}
	if t.Anew {
		keys = named3{"default", map[string]any{"separator": "."}}
	}
	chunks := append([]int64{}, m.Chunks...)
	for i := range chunks {
		chunks[i] = max(chunks[i], 1) // this may be 0 along an axis without elements
	}
	t.head = head3{3, "array", append([]int64{}, m.Shape...), kind, named3{"regular", map[string]any{"chunk_shape": chunks}}, keys, fill, codecs, a.dimensions()}
	if a.dimensions() != nil {
		delete(a.Attrs, dimensionsMark) // this attribute is xarray's
		if delete(a.Attrs, maskMark); m.Fill != nil {
			if v := t.mask(d); v != nil {
				a.Attrs[maskMark] = v
			}
		}
		attrs = appendJSON(nil, a.Attrs)
	}
	t.attrs = attrs
	if t.text, err = t.head.text(attrs); err != nil {
		return nil, corrupt("%v", err)
	}
	return t, nil
}

// head3 is the zarr.json of an array without its attributes.
type head3 struct {
	Format int             `json:"zarr_format"`
	Node   string          `json:"node_type"`
	Shape  []int64         `json:"shape"`
	Type   any             `json:"data_type"`
	Grid   named3          `json:"chunk_grid"`
	Keys   named3          `json:"chunk_key_encoding"`
	Fill   json.RawMessage `json:"fill_value"`
	Codecs []named3        `json:"codecs"`
	Names  []any           `json:"dimension_names,omitempty"`
}

func (h head3) text(attrs []byte) ([]byte, error) {
	text, err := json.Marshal(h)
	if err != nil {
		return nil, err
	}
	return withAttributes(text, attrs), nil
}

// named3 is a name with a configuration.
type named3 struct {
	Name   string         `json:"name"`
	Config map[string]any `json:"configuration,omitzero"`
}

// withAttributes adds attributes to the text of an object, unchanged.
func withAttributes(text, attrs []byte) []byte {
	if len(attrs) == 0 {
		attrs = []byte("{}")
	}
	text = append(text[:len(text)-1], `,"attributes":`...)
	return append(append(text, attrs...), '}')
}

// group3 returns the zarr.json of a group.
func group3(attrs []byte) []byte {
	return withAttributes([]byte(`{"zarr_format":3,"node_type":"group"}`), attrs)
}

// dimensionsMark is the attribute with the names of the axes that xarray writes in version 2.
const dimensionsMark = "_ARRAY_DIMENSIONS"

// maskMark is the attribute with the value that no element has, as xarray writes it in version 3. In version 2 it takes
// the fill value for it.
const maskMark = "_FillValue"

// mask returns the value of that attribute, or nil.
func (t *Version3) mask(d DType) any {
	b, err := t.fillElement()
	if err != nil {
		return nil
	}
	switch t.little(d, b); d.Kind {
	case 'f':
		d.BigEndian = d.BigEndian && !t.Anew
		return base64.StdEncoding.EncodeToString(binary.LittleEndian.AppendUint64(nil, math.Float64bits(d.float(b))))
	case 'i', 'u', 'b':
		return t.Fill
	}
	return nil
}

// dimensions returns the names of the axes, if they are known.
func (a *Array) dimensions() []any {
	list, _ := a.Attrs[dimensionsMark].([]any)
	if len(list) != len(a.Shape) || slices.ContainsFunc(list, func(v any) bool { _, ok := v.(string); return !ok }) {
		return nil
	}
	return list
}

// dtype returns the type of the elements in version 3.
func (t *Version3) dtype() DType {
	if t.fields != nil {
		return *t.fields
	}
	return t.DType
}

// byBytes are the codecs from bytes to bytes that zarr-python supports in version 3, with its
// names for them.
var byBytes = map[string]string{
	"blosc": "numcodecs.blosc", "zlib": "numcodecs.zlib", "gzip": "numcodecs.gzip", "zstd": "numcodecs.zstd", "lz4": "numcodecs.lz4", "bz2": "numcodecs.bz2", "lzma": "numcodecs.lzma",
	"shuffle": "numcodecs.shuffle", "fletcher32": "numcodecs.fletcher32", "crc32": "numcodecs.crc32", "crc32c": "numcodecs.crc32c", "adler32": "numcodecs.adler32",
}

// byElements are the codecs that change elements. For other such codecs, chunks are encoded anew
// without them.
var byElements = map[string]bool{"delta": true, "fixedscaleoffset": true, "astype": true}

// codecs returns the codecs in version 3. It decides whether chunks must be encoded anew.
func (t *Version3) codecs(a *Array) ([]named3, error) {
	var first, last []named3
	if t.Order == 'F' && len(t.Shape) > 1 {
		order := make([]int, len(t.Shape))
		for i := range order {
			order[i] = len(order) - 1 - i
		}
		first = append(first, named3{"transpose", map[string]any{"order": order}})
	}
	bytes := named3{Name: "bytes", Config: map[string]any{"endian": "little"}}
	filters := t.Filters
	if t.Compressor != nil {
		filters = append(filters[:len(filters):len(filters)], *t.Compressor)
	}
	if t.DType.Kind == 'O' && len(filters) > 0 {
		switch id := filters[0].ID; id {
		case "vlen-utf8", "vlen-bytes", "vlen-array": // version 3 has no lists, but their bytes
			bytes = named3{Name: id}
			if id != "vlen-utf8" {
				bytes.Name, t.bytes = "vlen-bytes", true
			}
			filters = filters[1:]
		default: // json2, or an unknown codec
			bytes = named3{Name: "vlen-utf8"}
			t.Anew = true
			if t.fields = a.compound(); t.fields != nil {
				bytes = named3{Name: "bytes"}
			}
		}
	} else if t.DType.BigEndian {
		bytes.Config["endian"] = "big"
	}
	t.Anew = t.Anew || t.DType.mixed()
	for _, c := range filters {
		name, ok := byBytes[c.ID]
		switch config := maps.Clone(c.Config); {
		case ok && !t.Anew:
			delete(config, "id")
			last = append(last, native(name, config, t.DType.Size))
		case c.ID == "bitround": // nothing needs to be undone
		case byElements[c.ID] && len(last) == 0 && !t.DType.BigEndian && t.DType.Kind != 'O':
			delete(config, "id")
			first = append(first, named3{"numcodecs." + c.ID, config})
		default:
			t.Anew = true
		}
	}
	if !t.Anew {
		return append(append(first, bytes), last...), nil
	}
	r, err := a.newReader()
	if err != nil {
		return nil, errors.Join(unsupported("its chunks cannot be encoded again"), err)
	}
	t.pipe, t.Size = r, -1
	d := t.dtype()
	if d.Kind != 'O' {
		n, _ := product(r.chunks)
		if t.Size, _ = multiply(n, d.Size); t.Size > a.Limit {
			return nil, errors.Join(unsupported("its chunks cannot be encoded again"), overLimit("a chunk", t.Size, a.Limit))
		}
		bytes = named3{Name: "bytes", Config: map[string]any{"endian": "little"}}
	}
	first = slices.DeleteFunc(first, func(c named3) bool { return c.Name != "transpose" })
	return append(first, bytes), nil
}

// native returns the name of a codec in version 3 itself, if it has one.
func native(name string, config map[string]any, size int64) named3 {
	level, hasLevel := asInt(config["level"])
	switch name {
	case "numcodecs.gzip":
		if hasLevel && level >= 0 && level <= 9 {
			return named3{"gzip", map[string]any{"level": level}}
		}
	case "numcodecs.zstd":
		if hasLevel {
			return named3{"zstd", map[string]any{"level": level, "checksum": config["checksum"] == true}}
		}
	case "numcodecs.crc32c":
		if where := config["location"]; where == nil || where == "end" {
			return named3{Name: "crc32c"}
		}
	case "numcodecs.blosc":
		shuffle, _ := asInt(config["shuffle"])
		clevel, _ := asInt(config["clevel"])
		blocks, _ := asInt(config["blocksize"])
		cname, _ := config["cname"].(string)
		if shuffle >= 0 && shuffle <= 2 && clevel >= 0 && clevel <= 9 && blocks >= 0 && slices.Contains([]string{"lz4", "lz4hc", "blosclz", "zstd", "zlib", "snappy"}, cname) {
			return named3{"blosc", map[string]any{"typesize": min(max(size, 1), 255), "cname": cname, "clevel": clevel, "shuffle": []string{"noshuffle", "shuffle", "bitshuffle"}[shuffle], "blocksize": blocks}}
		}
	}
	return named3{name, config}
}

// compound returns the type of elements that represent a compound dataset of numbers, or nil for
// any other elements.
func (a *Array) compound() *DType {
	var fields []Field
	for _, f := range a.Compound() {
		name := f.Type
		if types3[name] != "" {
			name = types3[name]
		}
		d := parseSimple(name)
		if !strings.ContainsRune("biuf", rune(d.Kind)) || d.Kind == 0 {
			return nil
		}
		d.BigEndian = false // chunks that are encoded anew are little endian
		fields = append(fields, Field{Name: f.Name, Type: d, Count: 1})
	}
	if len(fields) == 0 {
		return nil
	}
	d, err := structured("", fields)
	if err != nil {
		return nil
	}
	return &d
}

// mixed reports whether a structured type has big-endian numbers, which version 3 cannot
// represent.
func (d DType) mixed() bool {
	return slices.ContainsFunc(d.Fields, func(f Field) bool { return f.Type.BigEndian || f.Type.mixed() })
}

var names3 = func() map[string]string {
	names := map[string]string{}
	for name, short := range types3 {
		if short != "|O" {
			names[parseSimple(short).plain()] = name
		}
	}
	return names
}()

// version3 returns the data_type.
func (d DType) version3() (any, error) {
	length := func(name string, n int64) (any, error) {
		if n == 0 {
			return nil, unsupported("dtype %s has elements of 0 bytes", clip(d.Name))
		}
		return named3{name, map[string]any{"length_bytes": n}}, nil
	}
	switch {
	case len(d.Fields) > 0:
		fields := make([]any, len(d.Fields))
		for i, f := range d.Fields {
			if f.Shape != nil {
				return nil, unsupported("dtype %s has a field that is an array", clip(d.Name))
			}
			t, err := f.Type.version3()
			if err != nil {
				return nil, err
			}
			fields[i] = []any{f.Name, t}
		}
		return named3{"structured", map[string]any{"fields": fields}}, nil
	case d.Kind == 'O':
		return "string", nil
	case d.Kind == 'S':
		return length("null_terminated_bytes", d.Size)
	case d.Kind == 'V':
		return length("raw_bytes", d.Size)
	case d.Kind == 'U':
		return length("fixed_length_utf32", d.Size)
	case d.Kind == 'M' || d.Kind == 'm':
		scale, unit := splitUnit(d.Unit)
		if unit == "" {
			unit = "generic"
		}
		return named3{map[byte]string{'M': "numpy.datetime64", 'm': "numpy.timedelta64"}[d.Kind], map[string]any{"unit": unit, "scale_factor": scale}}, nil
	}
	d.BigEndian = false
	if name := names3[d.plain()]; d.Kind != 0 && name != "" {
		return name, nil
	}
	return nil, unsupported("dtype %s does not exist in version 3", clip(d.Name))
}

// fill returns the JSON of fill_value, which version 3 requires.
func (t *Version3) fill(d DType) (json.RawMessage, error) {
	switch {
	case t.fields != nil:
		return appendQuoted(nil, base64.StdEncoding.EncodeToString(make([]byte, d.Size))), nil
	case d.Kind == 'O':
		s, ok := t.Fill.(string)
		switch {
		case t.bytes:
			s = ""
		case !ok && t.Anew && t.Fill != nil: // the same as in chunks
			s = string(appendJSON(nil, t.Fill))
		}
		return appendQuoted(nil, s), nil
	}
	b, err := t.fillElement()
	if err != nil {
		return nil, err
	}
	t.little(d, b)
	if d.Kind != 'V' {
		d.BigEndian = d.BigEndian && !t.Anew
	}
	return d.fill3(b)
}

// fill3 converts an element to a fill_value.
func (d DType) fill3(b []byte) (json.RawMessage, error) {
	switch d.Kind {
	case 'b':
		return strconv.AppendBool(nil, b[0] != 0), nil
	case 'i', 'M', 'm':
		return strconv.AppendInt(nil, int64(d.whole(b)), 10), nil
	case 'u':
		return strconv.AppendUint(nil, d.whole(b), 10), nil
	case 'f':
		return float3(d.bits(b), d.Size), nil
	case 'c':
		half := d.half()
		out := append([]byte{'['}, float3(half.bits(b[:half.Size]), half.Size)...)
		return append(append(append(out, ','), float3(half.bits(b[half.Size:]), half.Size)...), ']'), nil
	case 'U':
		v, err := d.text(b)
		s, ok := v.(string)
		if err != nil || !ok {
			return nil, corrupt("fill_value is not text")
		}
		return appendQuoted(nil, s), nil
	case 'S':
		b = []byte(strings.TrimRight(string(b), "\x00"))
	}
	return appendQuoted(nil, base64.StdEncoding.EncodeToString(b)), nil
}

// float3 returns a float as JSON, or as a string if JSON cannot represent it.
func float3(bits uint64, size int64) []byte {
	out := appendFloat(nil, bits, size)
	if c := out[len(out)-1]; c == 'N' || c == 'y' {
		return appendQuoted(nil, string(out))
	}
	return out
}

// little swaps the bytes of big-endian elements that version 3 cannot represent.
func (t *Version3) little(d DType, b []byte) {
	switch {
	case len(d.Fields) > 0:
		for len(b) >= int(d.Size) && d.Size > 0 && d.mixed() {
			at := int64(0)
			for _, f := range d.Fields {
				t.little(f.Type, b[at:at+f.Type.Size])
				at += f.Type.Size
			}
			b = b[d.Size:]
		}
	case d.BigEndian && t.Anew:
		unit := int(d.Size)
		switch d.Kind {
		case 'U':
			unit = 4
		case 'c':
			unit /= 2
		}
		for ; len(b) >= unit; b = b[unit:] {
			slices.Reverse(b[:unit])
		}
	}
}

// StoredLimit returns the largest stored chunk that Chunk accepts.
func (t *Version3) StoredLimit() int64 {
	if t.pipe == nil {
		return 0
	}
	return t.pipe.pipe.stored
}

// Chunk encodes a stored chunk anew.
func (t *Version3) Chunk(stored []byte) ([]byte, error) {
	r := t.pipe
	if int64(len(stored)) > r.pipe.stored {
		return nil, corrupt("expected at most %d stored bytes, found %d", r.pipe.stored, len(stored))
	}
	raw, err := r.decode(stored)
	if err != nil {
		return nil, err
	}
	if t.DType.Kind != 'O' {
		raw = slices.Clone(raw) // it may be stored itself
		t.little(t.DType, raw)
		return raw, nil
	}
	room := r.a.Limit
	values, err := r.pipe.objects(raw, r.chunks, &room)
	if err != nil {
		return nil, err
	}
	if t.fields != nil {
		return t.structure(values)
	}
	out := binary.LittleEndian.AppendUint32(nil, uint32(len(values)))
	for _, v := range values {
		var text []byte
		switch v := v.(type) {
		case nil:
		case string:
			text = []byte(strings.ToValidUTF8(v, "\uFFFD")) // lone surrogates are not valid
		case []byte:
			text = v
		default:
			text = appendJSON(nil, v)
		}
		out = append(binary.LittleEndian.AppendUint32(out, uint32(len(text))), text...)
	}
	return out, nil
}

// structure converts lists of numbers to structured elements.
func (t *Version3) structure(values []any) ([]byte, error) {
	out := make([]byte, t.Size)
	for i, v := range values {
		list, ok := v.([]any)
		if !ok || len(list) != len(t.fields.Fields) {
			return nil, corrupt("element %d: expected a list of %d fields, found %s", i, len(t.fields.Fields), brief(v))
		}
		at := int64(i) * t.fields.Size
		for j, f := range t.fields.Fields {
			if !f.Type.encode(out[at:at+f.Type.Size], list[j]) {
				return nil, corrupt("element %d: field %q: %s is not a value of dtype %s", i, f.Name, brief(list[j]), f.Type)
			}
			at += f.Type.Size
		}
	}
	return out, nil
}

// Text returns the zarr.json of the array.
func (t *Version3) Text() []byte { return t.text }

// Key returns the key of a chunk in version 3, relative to the array's path. It is the key in
// version 2, unless chunks are encoded anew.
func (t *Version3) Key(old string) string {
	if !t.Anew {
		return old
	}
	if len(t.Shape) == 0 {
		return "c"
	}
	return "c." + strings.ReplaceAll(old, t.Separator, ".")
}

// OldKey returns the key in version 2 for a result of Key. It reports false if Key never returns
// that key.
func (t *Version3) OldKey(key string) (old string, ok bool) {
	switch {
	case !t.Anew:
		return key, true
	case len(t.Shape) == 0:
		return "0", key == "c"
	}
	numbers, ok := strings.CutPrefix(key, "c.")
	return strings.ReplaceAll(numbers, ".", t.Separator), ok && t.IsChunk(strings.ReplaceAll(numbers, ".", t.Separator))
}

// IsChunk reports whether key, relative to the array's path, can be that of a chunk.
func (m *Meta) IsChunk(key string) bool {
	_, ok := m.ChunkAt(key)
	return ok
}

// Node3 returns the zarr.json of a group or an array of version 2 at a path, following soft
// links. For an array it also returns the translation. If there is neither, the error wraps
// [fs.ErrNotExist].
func Node3(ctx context.Context, src Source, at string, limit int64) (text []byte, _ *Version3, _ error) {
	for range maxLinks + 1 {
		raw, isArray, err := get(ctx, src, path.Join(at, ".zarray"), metaLimit)
		if err != nil {
			return nil, nil, err
		}
		_, isGroup, err := get(ctx, src, path.Join(at, ".zgroup"), metaLimit)
		if err != nil {
			return nil, nil, err
		}
		attrs, _, err := get(ctx, src, path.Join(at, ".zattrs"), attrLimit)
		if err != nil {
			return nil, nil, err
		}
		if !isArray && !isGroup || strings.Contains(string(attrs), markSoftLink) {
			next, err := follow(ctx, src, at)
			if err != nil {
				return nil, nil, err
			}
			if next != nil {
				at = *next
				continue
			}
		}
		if isArray {
			t, err := version3Of(raw, attrs, limit)
			if err != nil {
				return nil, nil, &KeyError{path.Join(at, ".zarray"), err}
			}
			return t.text, t, nil
		}
		if !isGroup {
			break
		}
		if _, err := parseObject(attrs); err != nil {
			return nil, nil, &KeyError{path.Join(at, ".zattrs"), err}
		}
		return group3(attrs), nil, nil
	}
	return nil, nil, &fs.PathError{Op: "open node", Path: at, Err: fs.ErrNotExist}
}

func version3Of(zarray, attrs []byte, limit int64) (*Version3, error) {
	m, err := ParseMeta(zarray)
	if err != nil {
		return nil, err
	}
	return m.Version3(attrs, limit)
}

// parseObject parses a text that is a JSON object or empty.
func parseObject(text []byte) (map[string]any, error) {
	if len(text) == 0 {
		return nil, nil
	}
	room := int64(DefaultLimit)
	v, err := parseJSON(text, &room)
	o, ok := v.(map[string]any)
	if err == nil && !ok {
		err = corrupt("expected a JSON object, found %s", brief(v))
	}
	return o, err
}
