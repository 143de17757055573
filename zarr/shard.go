package zarr

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io/fs"
	"math"
	"sync"
)

// A shard has chunks one after the other, and an index of their places: for each chunk in C order
// a u64 offset from the start of the shard and a u64 length, little endian. A missing chunk has
// all bits set. A CRC-32C may follow.

const (
	indexRow   = 16
	indexLimit = 64 << 20 // of the indexes in memory
)

// shards reads chunks of shards. It keeps indexes that were read.
type shards struct {
	m   *Meta
	per []int64 // chunks of a shard along each axis
	len int64   // length of an index

	mu    sync.Mutex
	held  map[string]*shardIndex
	bytes int64
}

type shardIndex struct {
	once sync.Once
	rows []byte // nil if the shard is missing
	err  error
}

func newShards(m *Meta) (*shards, error) {
	s := &shards{m: m, per: m.Shard.perShard(m.Chunks), held: map[string]*shardIndex{}}
	n, _ := product(s.per)
	if n > indexLimit/indexRow {
		return nil, overLimit("the index of a shard", addSize(0, n), indexLimit/indexRow)
	}
	s.len = n * indexRow
	if m.Shard.Summed {
		s.len += crc32.Size
	}
	return s, nil
}

// InShard returns the position of the shard of a chunk in the grid of shards, and the number of the chunk in the shard.
// A shard has per chunks along each axis.
func InShard(per, index []int64) (shard []int64, n int64) {
	shard = make([]int64, len(index))
	for i, at := range index {
		shard[i] = at / per[i]
		n = n*per[i] + at%per[i]
	}
	return shard, n
}

// A ShardIndex is the index of a shard that is written. It belongs after the chunks.
type ShardIndex []byte

// NewShardIndex returns the index of a shard in which n chunks are missing.
func NewShardIndex(n int64) ShardIndex { return bytes.Repeat([]byte{0xff}, int(n*indexRow+crc32.Size)) }

// Missing reports whether a chunk has no place.
func (x ShardIndex) Missing(n int64) bool {
	return binary.LittleEndian.Uint64(x[n*indexRow:]) == math.MaxUint64
}

// Set sets the place of a chunk.
func (x ShardIndex) Set(n, off, size int64) {
	binary.LittleEndian.PutUint64(x[n*indexRow:], uint64(off))
	binary.LittleEndian.PutUint64(x[n*indexRow+8:], uint64(size))
}

// Sealed returns the bytes of the index, with their checksum.
func (x ShardIndex) Sealed() []byte {
	rows := x[:len(x)-crc32.Size]
	binary.LittleEndian.PutUint32(x[len(rows):], crc32.Checksum(rows, castagnoli))
	return x
}

// InShards returns the zarr.json of the array with its chunks in shards, which have per chunks along each axis, and a
// [ShardIndex] each. If that is one chunk, there are no shards. It is an error if the array cannot have such shards. The key of a chunk or a shard is that of ShardKey.
func (t *Version3) InShards(per []int64) ([]byte, error) {
	h := t.head
	if n, _ := product(per); n > 1 && t.dtype().Kind == 'V' {
		return nil, unsupported("zarr-python does not read shards of dtype %s", clip(t.dtype().Name))
	}
	h.Keys = named3{"default", map[string]any{"separator": "/"}}
	if n, _ := product(per); n > 1 {
		inner := h.Grid.Config["chunk_shape"].([]int64)
		outer := make([]int64, len(per))
		for i, n := range per {
			outer[i], _ = multiply(inner[i], n)
		}
		if _, ok := product(outer); !ok {
			return nil, corrupt("a shard of %v chunks has more elements than can be counted", per)
		}
		sum := []named3{{Name: "bytes", Config: map[string]any{"endian": "little"}}, {Name: "crc32c"}}
		h.Grid.Config = map[string]any{"chunk_shape": outer}
		h.Codecs = []named3{{"sharding_indexed", map[string]any{"chunk_shape": inner, "codecs": h.Codecs, "index_codecs": sum, "index_location": "end"}}}
	}
	return h.text(t.attrs)
}

// ShardKey returns the key of a chunk or a shard at a position in the grid, relative to the array's path.
func ShardKey(index ...int64) string { return (&Meta{Prefix: "c", Separator: "/"}).ChunkKey(index...) }

// get reads a stored chunk, if it exists.
func (s *shards) get(ctx context.Context, src Source, key string, index []int64, limit int64) ([]byte, bool, error) {
	x := s.of(key)
	x.once.Do(func() { x.rows, x.err = s.read(ctx, src, key) })
	if x.err != nil || x.rows == nil {
		return nil, false, x.err
	}
	_, n := InShard(s.per, index)
	off, size, ok, err := s.row(x.rows, n)
	if err == nil && size > limit {
		err = overLimit("a chunk of the shard", size, limit)
	}
	if err != nil {
		return nil, false, &KeyError{key, err}
	}
	if !ok {
		return nil, false, nil
	}
	b, err := src.GetRange(ctx, key, off, size)
	if err != nil {
		return nil, false, &KeyError{key, err}
	}
	return b, true, nil
}

// of returns the index of a shard, which may not have been read yet.
func (s *shards) of(key string) *shardIndex {
	s.mu.Lock()
	defer s.mu.Unlock()
	x := s.held[key]
	if x == nil {
		if s.bytes += s.len + int64(len(key)) + 128; s.bytes > indexLimit {
			clear(s.held)
			s.bytes = 0
		}
		x = &shardIndex{}
		s.held[key] = x
	}
	return x
}

// read reads the index of a shard; nil if the shard is missing.
func (s *shards) read(ctx context.Context, src Source, key string) ([]byte, error) {
	off := -s.len
	if s.m.Shard.AtStart {
		off = 0
	}
	b, err := src.GetRange(ctx, key, off, s.len)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err == nil {
		b, err = s.check(b)
	}
	if err != nil {
		return nil, &KeyError{key, err}
	}
	return b, nil
}

// check compares an index with its checksum and returns its rows.
func (s *shards) check(b []byte) ([]byte, error) {
	if int64(len(b)) != s.len {
		return nil, corrupt("the index of the shard: expected %d bytes, found %d", s.len, len(b))
	}
	if !s.m.Shard.Summed {
		return b, nil
	}
	rows, sum := b[:len(b)-crc32.Size], binary.LittleEndian.Uint32(b[len(b)-crc32.Size:])
	if found := crc32.Checksum(rows, castagnoli); found != sum {
		return nil, corrupt("the index of the shard: expected a checksum of %08x, found %08x", sum, found)
	}
	return rows, nil
}

// row returns where a chunk is; ok is false if it is missing.
func (s *shards) row(rows []byte, n int64) (off, size int64, ok bool, err error) {
	o, l := binary.LittleEndian.Uint64(rows[n*indexRow:]), binary.LittleEndian.Uint64(rows[n*indexRow+8:])
	switch {
	case o == math.MaxUint64 && l == math.MaxUint64:
		return 0, 0, false, nil
	case o > math.MaxInt64 || l > math.MaxInt64-o:
		return 0, 0, false, corrupt("the index of the shard: chunk %d: invalid range of %d bytes at %d", n, l, o)
	}
	return int64(o), int64(l), true, nil
}
