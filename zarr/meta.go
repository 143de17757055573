package zarr

import (
	"math"
	"math/bits"
	"slices"
	"strconv"
	"strings"
)

const (
	metaLimit = 4 << 20  // largest size of a .zarray
	attrLimit = 64 << 20 // largest size of a .zattrs
	jsonRoom  = 16       // memory for the values of JSON, as a multiple of its length
	maxDims   = 64       // the limit of NumPy
)

// Meta is the metadata of an array, from a .zarray or a zarr.json.
type Meta struct {
	Shape  []int64
	Chunks []int64 // shape of a chunk; as long as Shape
	// Shard is set if chunks are stored in shards. ChunkKey then returns the key of a shard.
	Shard *Shard
	DType DType
	// Order is 'C' or 'F', the order of the elements in a chunk.
	Order byte
	// Separator separates the numbers in the key of a chunk: "." or "/".
	Separator string
	// Prefix is the beginning of the key of a chunk, followed by a separator: "c" or empty.
	Prefix string
	// Fill is the JSON of fill_value: nil, bool, json.Number, string, []any or map[string]any.
	// Numbers may be NaN, Infinity and -Infinity.
	Fill any
	// Filters are applied in this order when chunks are written, followed by the Compressor.
	Filters    []Codec
	Compressor *Codec

	version int   // version of Zarr, or 0 for version 2
	axes    []int // order of the axes in a stored chunk, if it is neither C nor F
}

// A Codec is a step of encoding chunks, as described in the metadata.
type Codec struct {
	ID     string
	Config map[string]any // the whole description, including "id"; values as in Meta.Fill
}

// ParseMeta parses a .zarray. It accepts unknown codecs and types; reading the elements then
// fails.
func ParseMeta(zarray []byte) (*Meta, error) {
	if len(zarray) > metaLimit {
		return nil, overLimit(".zarray", int64(len(zarray)), metaLimit)
	}
	room := jsonRoom*int64(len(zarray)) + 4096
	v, err := parseJSON(zarray, &room)
	if err != nil {
		return nil, err
	}
	o, ok := v.(map[string]any)
	if !ok {
		return nil, corrupt("expected a JSON object, found %s", brief(v))
	}
	if n, ok := asInt(o["zarr_format"]); !ok {
		return nil, corrupt("zarr_format: expected 2, found %s", brief(o["zarr_format"]))
	} else if n != 2 {
		return nil, unsupported("zarr_format %d is not supported, only 2", n)
	}
	m := &Meta{Fill: o["fill_value"], Separator: "."}
	if m.Shape, err = parseLengths(o["shape"]); err != nil {
		return nil, corrupt("shape: %v", err)
	}
	if m.Chunks, err = parseLengths(o["chunks"]); err != nil {
		return nil, corrupt("chunks: %v", err)
	}
	if err := m.checkShape(); err != nil {
		return nil, err
	}
	if m.DType, err = parseDType(o["dtype"], 0); err != nil {
		return nil, err
	}
	order, _ := o["order"].(string)
	if order != "C" && order != "F" {
		return nil, corrupt(`order: expected "C" or "F", found %s`, brief(o["order"]))
	}
	m.Order = order[0]
	if s := o["dimension_separator"]; s == "." || s == "/" {
		m.Separator = s.(string)
	} else if s != nil {
		return nil, corrupt(`dimension_separator: expected "." or "/", found %s`, brief(s))
	}
	if m.Compressor, err = parseCodec(o["compressor"]); err != nil {
		return nil, corrupt("compressor: %v", err)
	}
	filters, ok := o["filters"].([]any)
	if !ok && o["filters"] != nil {
		return nil, corrupt("filters: expected a list or null, found %s", brief(o["filters"]))
	}
	if len(filters) > maxFilters {
		return nil, corrupt("filters: expected at most %d, found %d", maxFilters, len(filters))
	}
	for i, f := range filters {
		c, err := parseCodec(f)
		if err != nil || c == nil {
			return nil, corrupt("filters: number %d: expected an object with an id, found %s", i, brief(f))
		}
		m.Filters = append(m.Filters, *c)
	}
	return m, nil
}

func (m *Meta) checkShape() error {
	if len(m.Chunks) != len(m.Shape) {
		return corrupt("chunks: expected %d lengths like shape, found %d", len(m.Shape), len(m.Chunks))
	}
	for i, n := range m.Chunks {
		// The reference writes chunks of length 0 along axes of length 0.
		if n == 0 && m.Shape[i] > 0 {
			return corrupt("chunks: expected a length above 0 for axis %d, found 0", i)
		}
	}
	if _, ok := product(m.Shape); !ok {
		return corrupt("shape: %v has more elements than can be counted", m.Shape)
	}
	if _, ok := product(m.Chunks); !ok {
		return corrupt("chunks: %v has more elements than can be counted", m.Chunks)
	}
	if _, ok := product(m.Grid()); !ok {
		return corrupt("shape: %v has more chunks than can be counted", m.Shape)
	}
	return nil
}

func parseLengths(v any) ([]int64, error) {
	list, ok := v.([]any)
	if !ok {
		return nil, corrupt("expected a list of lengths, found %s", brief(v))
	}
	if len(list) > maxDims {
		return nil, corrupt("expected at most %d axes, found %d", maxDims, len(list))
	}
	out := make([]int64, len(list))
	for i, v := range list {
		n, ok := asInt(v)
		if !ok || n < 0 {
			return nil, corrupt("axis %d: expected a length, found %s", i, brief(v))
		}
		out[i] = n
	}
	return out, nil
}

func parseCodec(v any) (*Codec, error) {
	if v == nil {
		return nil, nil
	}
	o, _ := v.(map[string]any)
	id, _ := o["id"].(string)
	if id == "" {
		return nil, corrupt("expected an object with an id, found %s", brief(v))
	}
	return &Codec{ID: id, Config: o}, nil
}

// multiply returns a*b for numbers that are not negative, and whether it fits in an int64.
func multiply(a, b int64) (int64, bool) {
	high, low := bits.Mul64(uint64(a), uint64(b))
	return int64(low), high == 0 && low <= math.MaxInt64
}

// product returns the product of lengths. It reports false if the product does not fit, even
// without its zeros, because strides computed from the lengths must not overflow either.
func product(lengths []int64) (int64, bool) {
	n, zero := int64(1), false
	for _, l := range lengths {
		if l == 0 {
			zero = true
			continue
		}
		var ok bool
		if n, ok = multiply(n, l); !ok {
			return 0, false
		}
	}
	if zero {
		return 0, true
	}
	return n, true
}

// Elements returns the number of elements of the array.
func (m *Meta) Elements() int64 {
	n, _ := product(m.Shape)
	return n
}

// Bytes returns the size of all elements in bytes. It returns 0 for object arrays, and false if
// the size does not fit in an int64.
func (m *Meta) Bytes() (int64, bool) { return multiply(m.Elements(), m.DType.Size) }

// Filled returns the size of a chunk if stored chunks may be shorter and are filled up with
// zeros. These are chunks of numbers without compressor and filters. For other arrays it returns
// 0.
func (m *Meta) Filled() int64 {
	if kind := m.DType.Kind; m.version == 3 || kind != 'i' && kind != 'u' && kind != 'f' {
		return 0
	}
	return max(m.Whole(), 0)
}

// Whole returns the size of a chunk that has neither compressor nor filters: it is stored as its
// elements. For other arrays it returns -1.
func (m *Meta) Whole() int64 {
	if m.Compressor != nil || len(m.Filters) > 0 || m.DType.Kind == 'O' {
		return -1
	}
	n, err := m.chunkBytes(maxSize)
	if err != nil {
		return -1
	}
	return n
}

// Grid returns the number of chunks along each axis.
func (m *Meta) Grid() []int64 { return gridOf(m.Shape, m.Chunks) }

func gridOf(shape, chunks []int64) []int64 {
	g := make([]int64, len(shape))
	for i, n := range shape {
		if n > 0 {
			g[i] = (n-1)/chunks[i] + 1
		}
	}
	return g
}

// NumChunks returns the number of chunks of the array, including missing ones.
func (m *Meta) NumChunks() int64 {
	n, _ := product(m.Grid())
	return n
}

// NumKeys returns the number of keys of the chunks. A shard has one key.
func (m *Meta) NumKeys() int64 {
	if m.Shard == nil {
		return m.NumChunks()
	}
	n, _ := product(gridOf(m.Shape, m.Shard.Chunks))
	return n
}

// ChunkKey returns the key of a chunk or a shard at a position in the grid, relative to the
// array's path.
func (m *Meta) ChunkKey(index ...int64) string {
	b := []byte(m.Prefix)
	if len(index) == 0 && m.Prefix == "" {
		b = append(b, '0')
	}
	for i, n := range index {
		if i > 0 || m.Prefix != "" {
			b = append(b, m.Separator...)
		}
		b = strconv.AppendInt(b, n, 10)
	}
	return string(b)
}

// ChunkAt returns the position in the grid of the chunk with a key, relative to the array's path. It reports false if
// there is no such chunk in an array of this number of dimensions.
func (m *Meta) ChunkAt(key string) (index []int64, ok bool) {
	if len(m.Shape) == 0 {
		return nil, key == m.ChunkKey()
	}
	numbers := strings.Split(strings.TrimPrefix(key, m.Prefix), m.Separator)
	if m.Prefix != "" {
		numbers = numbers[1:]
	}
	if len(numbers) != len(m.Shape) {
		return nil, false
	}
	index = make([]int64, len(numbers))
	for i, n := range numbers {
		var err error
		if index[i], err = strconv.ParseInt(n, 10, 64); err != nil || index[i] < 0 {
			return nil, false
		}
	}
	return index, m.ChunkKey(index...) == key
}

// chunkStrides returns the distance between elements of a chunk along each axis.
func (m *Meta) chunkStrides(chunks []int64) []int64 {
	if m.axes == nil || len(m.axes) != len(chunks) {
		return strides(chunks, m.Order)
	}
	s := make([]int64, len(chunks))
	n := int64(1)
	for _, axis := range slices.Backward(m.axes) {
		s[axis] = n
		n *= chunks[axis]
	}
	return s
}

// Codecs returns a short text that says how chunks are stored, in the order of writing, such as
// "blosc(lz4,shuffle)", "shuffle + zlib" or "none".
func (m *Meta) Codecs() string {
	var words []string
	for _, c := range m.Filters {
		words = append(words, c.String())
	}
	if m.Compressor != nil {
		words = append(words, m.Compressor.String())
	}
	all := "none"
	if len(words) > 0 {
		all = strings.Join(words, " + ")
	}
	if m.Shard != nil {
		all += ", in shards"
	}
	return all
}

// String returns the codec as a short text, such as "zlib" or "blosc(zstd,bitshuffle)".
func (c Codec) String() string {
	if c.ID != "blosc" {
		return c.ID
	}
	words := []string{}
	if name, ok := c.Config["cname"].(string); ok {
		words = append(words, name)
	}
	n, _ := asInt(c.Config["shuffle"])
	switch named, _ := c.Config["shuffle"].(string); {
	case n == 1:
		words = append(words, "shuffle")
	case n == 2:
		words = append(words, "bitshuffle")
	case n == -1:
		words = append(words, "autoshuffle")
	case named == "shuffle" || named == "bitshuffle":
		words = append(words, named)
	}
	return "blosc(" + strings.Join(words, ",") + ")"
}

func (c Codec) number(name string, otherwise int64) int64 {
	if n, ok := asInt(c.Config[name]); ok {
		return n
	}
	return otherwise
}
