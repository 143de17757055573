package zarr

import (
	"errors"
	"hash/adler32"
	"hash/crc32"

	"github.com/holdall/holdall/internal/arrays/arraycodec"
)

const maxFilters = 32

// stage undoes one codec. bound returns the largest stored size of n bytes. It is computed in the
// order of writing, so that all sizes are known or limited before the first byte is read.
type stage struct {
	codec  string
	bound  func(n int64) int64
	decode func(in []byte, most int64) ([]byte, error) // returns at most most bytes
}

// pipeline decodes a stored chunk to elements.
type pipeline struct {
	stages  []stage // in the order of reading
	most    []int64 // largest result of each stage
	stored  int64   // largest size of a stored chunk
	objects func(in []byte, shape []int64, room *int64) ([]any, error)
	plain   bool // neither compressor nor filters
}

// builders return the stage for a codec in .zarray. They are only set in the init of this
// package.
var builders = map[string]func(Codec) (stage, error){
	"blosc": fixed(compressedBound, arraycodec.Blosc),
	"zlib":  fixed(compressedBound, arraycodec.Zlib),
	"gzip":  fixed(compressedBound, arraycodec.Gzip),
	"zstd":  fixed(compressedBound, arraycodec.Zstd),
	"lz4":   fixed(compressedBound, arraycodec.LZ4),
	"bz2":   fixed(compressedBound, arraycodec.Bzip2),
	"lzma":  lzmaStage,

	"shuffle":          shuffleStage,
	"delta":            deltaStage,
	"astype":           astypeStage,
	"quantize":         quantizeStage,
	"fixedscaleoffset": scaleStage,
	"bitround":         fixed(same, identity),
	"packbits":         fixed(func(n int64) int64 { return n/8 + 2 }, unpackBits),
	"base64":           fixed(func(n int64) int64 { return addSize(n, n/3+4) }, decodeBase64),

	"fletcher32": checksumStage(arraycodec.Fletcher32, false),
	"crc32":      checksumStage(crc32.ChecksumIEEE, true),
	"crc32c":     checksumStage(func(b []byte) uint32 { return crc32.Checksum(b, castagnoli) }, false),
	"adler32":    checksumStage(adler32.Checksum, true),
}

// objectBuilders are the last steps for arrays of objects.
var objectBuilders = map[string]func(in []byte, shape []int64, room *int64) ([]any, error){
	"json2":      decodeJSON2,
	"vlen-utf8":  decodeVlenUTF8,
	"vlen-bytes": decodeVlenBytes,
}

// fixed is for codecs whose settings do not affect reading.
func fixed(bound func(n int64) int64, decode func(in []byte, most int64) ([]byte, error)) func(Codec) (stage, error) {
	return func(Codec) (stage, error) { return stage{bound: bound, decode: decode}, nil }
}

// compressedBound is generous: compressors store incompressible data with little overhead, but
// bzip2 may add a hundredth, gzip a name, and LINDI zeros.
func compressedBound(n int64) int64 { return addSize(n, n/4+256<<10) }

func same(n int64) int64 { return n }

const maxSize = 1 << 62

// addSize adds sizes; the result is at most maxSize.
func addSize(a, b int64) int64 { return min(min(a, maxSize)+min(b, maxSize-1), maxSize) }

// newPipeline prepares reading the chunks of an array. limit bounds the memory of a chunk of
// objects.
func newPipeline(m *Meta, limit int64) (*pipeline, error) {
	p := &pipeline{plain: m.Compressor == nil && len(m.Filters) == 0}
	size, err := m.chunkBytes(limit)
	if err != nil {
		return nil, err
	}
	filters := m.Filters
	if m.DType.Kind == 'O' {
		if len(filters) == 0 {
			return nil, unsupported("object array without a filter that defines its objects")
		}
		if p.objects = objectBuilders[filters[0].ID]; filters[0].ID == "vlen-array" {
			name, _ := filters[0].Config["dtype"].(string)
			p.objects = vlenArrays(parseSimple(name))
		}
		if p.objects == nil {
			return nil, &CodecError{Codec: filters[0].ID}
		}
		if e, ok := filters[0].Config["encoding"].(string); ok && e != "utf-8" && e != "utf8" && e != "ascii" {
			return nil, &CodecError{Codec: filters[0].ID, Why: "encoding " + e + " is not supported"}
		}
		filters = filters[1:]
		size = limit / 4 // of text; the values are counted when they are made
	}
	all := filters
	if m.Compressor != nil {
		all = append(all[:len(all):len(all)], *m.Compressor)
	}
	for _, c := range all {
		build := builders[c.ID]
		if build == nil {
			return nil, &CodecError{Codec: c.ID}
		}
		s, err := build(c)
		if err != nil {
			if ce := (*CodecError)(nil); !errors.As(err, &ce) {
				err = corrupt("codec %q: %v", c.ID, err)
			}
			return nil, err
		}
		s.codec = c.ID
		p.stages = append([]stage{s}, p.stages...)
		p.most = append([]int64{size}, p.most...)
		size = s.bound(size)
	}
	p.stored = size
	return p, nil
}

// chunkBytes returns the size of a decoded chunk; for objects, that of their references.
func (m *Meta) chunkBytes(limit int64) (int64, error) {
	if m.DType.Kind == 0 {
		return 0, unsupported("dtype %s is not supported", m.DType.Name)
	}
	n, _ := product(m.Chunks)
	size, ok := multiply(n, m.itemSize())
	if !ok || size > limit {
		if !ok {
			size = maxSize
		}
		return 0, overLimit("a chunk", size, limit)
	}
	return size, nil
}

func (m *Meta) itemSize() int64 {
	if m.DType.Kind == 'O' {
		return 16
	}
	return m.DType.Size
}

func (p *pipeline) bytes(in []byte) ([]byte, error) {
	for i, s := range p.stages {
		var err error
		if in, err = s.decode(in, p.most[i]); err != nil {
			if k := kindOf(err); k != nil {
				return nil, &marked{"codec " + s.codec + ": " + err.Error(), k}
			}
			return nil, corrupt("codec %s: %v", s.codec, err)
		}
		if int64(len(in)) > p.most[i] {
			return nil, corrupt("codec %s: expected at most %d bytes, found %d", s.codec, p.most[i], len(in))
		}
	}
	return in, nil
}

// kindOf returns the error of these kinds that err wraps, or nil.
func kindOf(err error) error {
	for _, k := range []error{ErrCorrupt, ErrLimit, errors.ErrUnsupported} {
		if errors.Is(err, k) {
			return k
		}
	}
	return nil
}
