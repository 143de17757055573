package zarr

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"github.com/holdall/holdall/internal/arrays/zarrkey"
)

// MetaName is the key with the metadata of a group or an array in version 3 of Zarr.
const MetaName = "zarr.json"

// A Shard describes how several chunks are stored in one value.
type Shard struct {
	Chunks  []int64 // shape of a shard, a multiple of Meta.Chunks along each axis
	AtStart bool    // the index is before the chunks, not after them
	Summed  bool    // the index has a CRC-32C at its end
}

// MetaOf returns the path of the array whose metadata has the given key, the function that parses
// the metadata, and its largest size. If key is not one of metadata, parse is nil. If parse
// returns [ErrGroup], the metadata is that of a group.
func MetaOf(key string) (at string, parse func(text []byte) (*Meta, error), limit int64) {
	at, last := zarrkey.Split(key)
	switch last {
	case ".zarray":
		return at, ParseMeta, metaLimit
	case MetaName: // a group may include the metadata of everything below it
		return at, ParseArray, attrLimit
	}
	return at, nil, 0
}

// node is the contents of a zarr.json.
type node struct {
	array *Meta // nil for a group
	attrs map[string]any
}

// ParseArray parses the zarr.json of an array of version 3, as [ParseMeta] does a .zarray. For a
// group it returns [ErrGroup].
func ParseArray(text []byte) (*Meta, error) {
	n, err := parseNode(text)
	if err == nil && n.array == nil {
		err = ErrGroup
	}
	return n.array, err
}

func parseNode(text []byte) (n node, err error) {
	if len(text) > attrLimit {
		return n, overLimit(MetaName, int64(len(text)), attrLimit)
	}
	room := jsonRoom*int64(len(text)) + 4096
	v, err := parseJSON(text, &room)
	if err != nil {
		return n, err
	}
	o, ok := v.(map[string]any)
	if !ok {
		return n, corrupt("expected a JSON object, found %s", brief(v))
	}
	if version, ok := asInt(o["zarr_format"]); !ok {
		return n, corrupt("zarr_format: expected 3, found %s", brief(o["zarr_format"]))
	} else if version != 3 {
		return n, unsupported("zarr_format %d is not supported in %s, only 3", version, MetaName)
	}
	if n.attrs, ok = o["attributes"].(map[string]any); !ok && o["attributes"] != nil {
		return n, corrupt("attributes: expected a JSON object, found %s", brief(o["attributes"]))
	}
	switch o["node_type"] {
	case "group":
	case "array":
		n.array, err = parseArray(o)
	default:
		err = corrupt(`node_type: expected "array" or "group", found %s`, brief(o["node_type"]))
	}
	return n, err
}

// known are the fields of an array that this package knows. Any other field must say that it need
// not be understood.
var known = []string{"zarr_format", "node_type", "attributes", "shape", "data_type", "chunk_grid", "chunk_key_encoding", "fill_value", "codecs", "dimension_names", "storage_transformers"}

func parseArray(o map[string]any) (*Meta, error) {
	for key, v := range o {
		if extra, _ := v.(map[string]any); !slices.Contains(known, key) && extra["must_understand"] != false {
			return nil, unsupported("%s is not supported", clip(key))
		}
	}
	if t, ok := o["storage_transformers"].([]any); o["storage_transformers"] != nil && (!ok || len(t) > 0) {
		return nil, unsupported("storage_transformers are not supported")
	}
	m := &Meta{Order: 'C', version: 3}
	var err error
	if m.Shape, err = parseLengths(o["shape"]); err != nil {
		return nil, corrupt("shape: %v", err)
	}
	if m.Chunks, err = parseGrid(o["chunk_grid"], m.Shape); err != nil {
		return nil, err
	}
	if err := m.parseKeys(o["chunk_key_encoding"]); err != nil {
		return nil, err
	}
	if m.DType, err = parseDType3(o["data_type"], 0); err != nil {
		return nil, err
	}
	codecs, ok := o["codecs"].([]any)
	if !ok {
		return nil, corrupt("codecs: expected a list, found %s", brief(o["codecs"]))
	}
	if err := m.parseCodecs(codecs, false); err != nil {
		return nil, err
	}
	m.Fill = fill3(m.DType, o["fill_value"])
	return m, m.checkShape()
}

// named parses an extension of version 3: a name alone, or one with a configuration.
func named(v any) (name string, config map[string]any, err error) {
	switch v := v.(type) {
	case string:
		return v, nil, nil
	case map[string]any:
		config, ok := v["configuration"].(map[string]any)
		if name, _ := v["name"].(string); name != "" && (ok || v["configuration"] == nil) {
			return name, config, nil
		}
	}
	return "", nil, corrupt("expected a name with a configuration, found %s", brief(v))
}

func parseGrid(v any, shape []int64) ([]int64, error) {
	name, config, err := named(v)
	if err != nil {
		return nil, corrupt("chunk_grid: %v", err)
	}
	if name != "regular" {
		return nil, unsupported("chunk_grid %q is not supported, only regular ones", clip(name))
	}
	chunks, err := parseLengths(config["chunk_shape"])
	if err != nil {
		return nil, corrupt("chunk_grid: %v", err)
	}
	for i, n := range chunks {
		switch {
		case n > 0 || i >= len(shape):
		case shape[i] > 0:
			return nil, corrupt("chunk_grid: expected a length above 0 for axis %d, found 0", i)
		default:
			chunks[i] = 1
		}
	}
	return chunks, nil
}

func (m *Meta) parseKeys(v any) error {
	name, config, err := named(v)
	if err != nil {
		return corrupt("chunk_key_encoding: %v", err)
	}
	switch name {
	case "default":
		m.Prefix, m.Separator = "c", "/"
	case "v2":
		m.Separator = "."
	default:
		return unsupported("chunk_key_encoding %q is not supported", clip(name))
	}
	if s := config["separator"]; s == "." || s == "/" {
		m.Separator = s.(string)
	} else if s != nil {
		return corrupt(`chunk_key_encoding: separator: expected "." or "/", found %s`, brief(s))
	}
	return nil
}

var types3 = map[string]string{
	"bool": "|b1", "int8": "<i1", "int16": "<i2", "int32": "<i4", "int64": "<i8", "uint8": "<u1", "uint16": "<u2", "uint32": "<u4", "uint64": "<u8",
	"float16": "<f2", "float32": "<f4", "float64": "<f8", "complex64": "<c8", "complex128": "<c16",
	"string": "|O", "variable_length_bytes": "|O", "bytes": "|O",
}

// parseDType3 parses a data_type. Unknown types have Kind 0.
func parseDType3(v any, depth int) (DType, error) {
	name, config, err := named(v)
	if err != nil {
		return DType{}, corrupt("data_type: %v", err)
	}
	unknown := DType{Name: name}
	simple := func(kind string, n int64) (DType, error) {
		return parseSimple(kind + strconv.FormatInt(n, 10)), nil
	}
	length, isLength := asInt(config["length_bytes"])
	isLength = isLength && length > 0
	switch {
	case types3[name] != "":
		return parseSimple(types3[name]), nil
	case name == "null_terminated_bytes" && isLength:
		return simple("|S", length)
	case name == "raw_bytes" && isLength:
		return simple("|V", length)
	case name == "fixed_length_utf32" && isLength && length%4 == 0:
		return simple("<U", length/4)
	case name == "numpy.datetime64" || name == "numpy.timedelta64":
		letter := map[string]string{"numpy.datetime64": "<M8", "numpy.timedelta64": "<m8"}[name]
		unit, _ := config["unit"].(string)
		scale, ok := asInt(config["scale_factor"])
		switch {
		case !ok || scale < 1:
			return unknown, nil
		case unit == "generic":
			return parseSimple(letter), nil
		case scale > 1:
			unit = strconv.FormatInt(scale, 10) + unit
		}
		return parseSimple(letter + "[" + strings.ReplaceAll(unit, "μ", "u") + "]"), nil
	case name == "structured" || name == "struct":
		return parseFields3(config["fields"], depth)
	}
	if bits, err := strconv.ParseUint(strings.TrimPrefix(name, "r"), 10, 31); strings.HasPrefix(name, "r") && err == nil && bits > 0 && bits%8 == 0 {
		return simple("|V", int64(bits)/8)
	}
	return unknown, nil
}

// parseFields3 parses the fields of a structured type: [name, type], or an object with both.
func parseFields3(v any, depth int) (DType, error) {
	list, _ := v.([]any)
	if depth >= maxFieldDepth {
		return DType{}, corrupt("data_type: structured types are nested more than %d deep", maxFieldDepth)
	}
	fields := make([]Field, 0, min(len(list), 1024))
	for i, v := range list {
		pair, _ := v.([]any)
		if o, ok := v.(map[string]any); ok {
			pair = []any{o["name"], o["data_type"]}
		}
		if len(pair) != 2 {
			return DType{}, corrupt("data_type: field %d: expected a name and a type, found %s", i, brief(v))
		}
		f := Field{Count: 1}
		var ok bool
		if f.Name, ok = pair[0].(string); !ok {
			return DType{}, corrupt("data_type: field %d: expected a name, found %s", i, brief(pair[0]))
		}
		var err error
		if f.Type, err = parseDType3(pair[1], depth+1); err != nil {
			return DType{}, err
		}
		fields = append(fields, f)
	}
	return structured(string(appendJSON(nil, v)), fields)
}

// parseCodecs sets Order, the byte order of the type, and Filters. A codec that has no place
// there becomes an unknown filter, so that reading the elements fails.
func (m *Meta) parseCodecs(codecs []any, inner bool) error {
	if len(codecs) > maxFilters {
		return corrupt("codecs: expected at most %d, found %d", maxFilters, len(codecs))
	}
	// These are set by previous codecs: one from elements to bytes, one that changes elements, an
	// unknown one.
	toBytes, changed, strange := false, false, false
	for _, v := range codecs {
		name, config, err := named(v)
		if err != nil {
			return corrupt("codecs: %v", err)
		}
		id := strings.TrimPrefix(name, "numcodecs.")
		c := Codec{ID: id, Config: config}
		_, objects := objectBuilders[id]
		elementwise := id == "delta" || id == "astype" || id == "quantize" || id == "fixedscaleoffset" || id == "bitround" || id == "packbits"
		switch {
		case name == "transpose":
			if err := m.transpose(config["order"]); err != nil {
				return err
			}
			if toBytes || changed {
				m.Filters = append(m.Filters, c)
			}
		case name == "bytes" || name == "endian":
			if toBytes || m.DType.Kind == 'O' || config["endian"] == "big" && changed {
				m.Filters = append(m.Filters, c)
			}
			toBytes = true
			m.DType = m.DType.ordered(config["endian"] == "big")
		case name == "sharding_indexed":
			if inner || toBytes || changed || len(codecs) != 1 {
				m.Filters = append(m.Filters, c)
			} else if err := m.parseShard(config); err != nil {
				return err
			}
			toBytes = true
		default:
			if builders[id] == nil && !objects {
				strange = true
			} else if !strange && toBytes == (objects || elementwise) {
				return corrupt("codecs: %q is in the wrong position", clip(name))
			}
			toBytes, changed = toBytes || objects, changed || elementwise
			if c.Config == nil {
				c.Config = map[string]any{}
			}
			// Without this setting, zarr-python uses the size of the array's type.
			if _, said := c.Config["elementsize"]; !said && id == "shuffle" {
				c.Config["elementsize"] = json.Number(strconv.FormatInt(m.DType.Size, 10))
			}
			if _, said := c.Config["dtype"]; !said && (id == "fixedscaleoffset" || id == "quantize") {
				c.Config["dtype"] = m.DType.plain()
			}
			m.Filters = append(m.Filters, c)
		}
	}
	if !toBytes && !strange {
		return corrupt("codecs: expected one that turns elements into bytes, found none")
	}
	return nil
}

// ordered returns the type with the given byte order, if it has one. Fields of structured types
// are always little endian.
func (d DType) ordered(big bool) DType {
	if big && !d.bytewise() && len(d.Fields) == 0 && d.Kind != 0 {
		d.BigEndian = true
		d.Name = d.plain()
	}
	return d
}

// transpose records the order in which the axes of a chunk are stored; the last one varies
// fastest.
func (m *Meta) transpose(v any) error {
	order, ok := v.([]any)
	if !ok || len(order) != len(m.Shape) || len(m.Chunks) != len(m.Shape) {
		return corrupt("codecs: transpose: expected an order of %d axes, found %s", len(m.Shape), brief(v))
	}
	axes := make([]int, len(order))
	for i, v := range order {
		n, ok := asInt(v)
		if !ok || n < 0 || n >= int64(len(order)) || slices.Contains(axes[:i], int(n)) {
			return corrupt("codecs: transpose: expected an order of %d axes, found %s", len(order), brief(order))
		}
		axes[i] = int(n)
	}
	if m.axes != nil { // apply one after the other
		for i, a := range axes {
			axes[i] = m.axes[a]
		}
	}
	m.axes = axes
	return nil
}

func (m *Meta) parseShard(config map[string]any) error {
	s := &Shard{Chunks: m.Chunks}
	chunks, err := parseLengths(config["chunk_shape"])
	if err != nil || len(chunks) != len(s.Chunks) {
		return corrupt("codecs: sharding_indexed: expected a chunk_shape of %d axes, found %s", len(s.Chunks), brief(config["chunk_shape"]))
	}
	for i, n := range chunks {
		if n == 0 || s.Chunks[i]%n != 0 {
			return corrupt("codecs: sharding_indexed: shards of shape %v cannot be split into chunks of shape %v", s.Chunks, chunks)
		}
	}
	switch where := config["index_location"]; where {
	case "start":
		s.AtStart = true
	case "end", nil:
	default:
		return corrupt(`codecs: sharding_indexed: index_location: expected "start" or "end", found %s`, brief(where))
	}
	list, _ := config["index_codecs"].([]any)
	for i, v := range list {
		name, with, err := named(v)
		switch {
		case err != nil:
			return corrupt("codecs: sharding_indexed: index_codecs: %v", err)
		case i == 0 && name == "bytes" && with["endian"] == "little":
		case i == 1 && name == "crc32c":
			s.Summed = true
		default:
			return unsupported("codecs: sharding_indexed: index_codecs: %s is not supported", brief(config["index_codecs"]))
		}
	}
	inner, ok := config["codecs"].([]any)
	if !ok || len(list) == 0 {
		return corrupt("codecs: sharding_indexed: expected codecs and index_codecs")
	}
	m.Shard, m.Chunks = s, chunks
	if _, ok := product(s.perShard(chunks)); !ok {
		return corrupt("codecs: sharding_indexed: shards of shape %v have more chunks than can be counted", s.Chunks)
	}
	return m.parseCodecs(inner, true)
}

// perShard returns the number of chunks of a shard along each axis.
func (s *Shard) perShard(chunks []int64) []int64 {
	n := make([]int64, len(chunks))
	for i := range n {
		n[i] = s.Chunks[i] / chunks[i]
	}
	return n
}

// fill3 converts a fill_value to that of version 2.
func fill3(d DType, v any) any {
	switch d.Kind {
	case 'f', 'c':
		if pair, ok := v.([]any); ok && len(pair) == 2 && d.Kind == 'c' {
			return []any{fill3(d.half(), pair[0]), fill3(d.half(), pair[1])}
		}
		// These are the bits of a NaN, or of any other float.
		s, _ := v.(string)
		if bits, err := hex.DecodeString(strings.TrimPrefix(s, "0x")); strings.HasPrefix(s, "0x") && err == nil && int64(len(bits)) == d.Size && d.Kind == 'f' {
			n := uint64(0)
			for _, b := range bits {
				n = n<<8 | uint64(b)
			}
			return json.Number(appendFloat(nil, n, d.Size))
		}
	case 'V':
		if list, ok := v.([]any); ok && len(d.Fields) == 0 {
			b := make([]byte, 0, len(list))
			for _, v := range list {
				n, ok := asInt(v)
				if !ok || n < 0 || n > 255 {
					return v
				}
				b = append(b, byte(n))
			}
			return base64.StdEncoding.EncodeToString(b)
		}
	case 'O':
		if v == nil {
			return ""
		}
	}
	return v
}
