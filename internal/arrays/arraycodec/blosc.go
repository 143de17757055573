package arraycodec

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/klauspost/compress/snappy"
	"github.com/pierrec/lz4/v4"
)

// A Blosc-1 container: a header of 16 bytes, then for each block the offset of
// its streams (u32), then the streams. All numbers are little endian.
//
//	0   version of the format: 1 or 2
//	1   version of the inner codec's format
//	2   flags
//	3   size of an element
//	4   bytes decoded       u32
//	8   bytes in a block    u32
//	12  bytes of the whole  u32
//
// A block is one stream, or one stream for each byte of an element, all of the same decoded length.
// A stream is its stored length (u32) and its data. If the stored length equals the decoded length,
// the data is not compressed.
const (
	bloscHeader     = 16
	bloscShuffle    = 1 << 0
	bloscStored     = 1 << 1 // uncompressed data follows the header
	bloscBitShuffle = 1 << 2
	bloscOneStream  = 1 << 4
	bloscCodecShift = 5

	// Limits of Blosc's encoder for splitting blocks. The container does not store them.
	bloscMaxSplits = 16
	bloscMinSplit  = 128
)

// A bloscCodec decodes a stream that fills dst. ratio is how many bytes one stored byte can decode
// to at most. A stream that claims more is refused before dst is allocated.
type bloscCodec struct {
	name   string
	ratio  int64
	decode func(dst, src []byte) error
}

var bloscCodecs = [8]bloscCodec{
	0: {"blosclz", 256, decodeBloscLZ},
	1: {"lz4", 256, LZ4Block},
	2: {"snappy", 64, decodeSnappyBlock},
	3: {"zlib", 1032, decodeZlibBlock},
	4: {"zstd", zstdRatio, decodeZstdBlock},
}

type bloscReader struct {
	in                   []byte
	flags                byte
	head                 int64 // bytes of the header
	typeSize             int64
	size, blockSize, end int64
	codec                bloscCodec
	filters              []bloscFilter // those to be undone, in that order
}

// Blosc decodes a Blosc-1 container.
func Blosc(in []byte, most int64) ([]byte, error) {
	r, err := openBlosc(in, most)
	if err != nil || r.size == 0 {
		return nil, err
	}
	return r.decode()
}

func (r *bloscReader) decode() ([]byte, error) {
	if r.flags&bloscStored != 0 {
		if r.end-r.head < r.size {
			return nil, fmt.Errorf("expected %d stored bytes, found %d", r.size, r.end-r.head)
		}
		return r.in[r.head : r.head+r.size], nil
	}
	blocks := (r.size-1)/r.blockSize + 1
	if table := r.head + 4*blocks; table > r.end {
		return nil, fmt.Errorf("%d blocks do not fit into %d bytes", blocks, r.end)
	}
	if err := r.plausible(blocks); err != nil {
		return nil, err
	}
	out := make([]byte, r.size)
	var spare []byte
	if len(r.filters) > 0 {
		spare = make([]byte, min(r.blockSize, r.size))
	}
	for i := range blocks {
		if err := r.block(i, out, spare); err != nil {
			return nil, fmt.Errorf("block %d of %d: %v", i, blocks, err)
		}
	}
	return out, nil
}

func openBlosc(in []byte, most int64) (*bloscReader, error) {
	if len(in) < bloscHeader {
		return nil, fmt.Errorf("expected a header of %d bytes, found %d bytes", bloscHeader, len(in))
	}
	r := &bloscReader{
		in: in, flags: in[2], head: bloscHeader, typeSize: int64(in[3]),
		size:      int64(binary.LittleEndian.Uint32(in[4:])),
		blockSize: int64(binary.LittleEndian.Uint32(in[8:])),
		end:       int64(binary.LittleEndian.Uint32(in[12:])),
	}
	switch {
	case in[0] == 0 || in[0] > 2:
		return nil, fmt.Errorf("expected version 1 or 2, found %d", in[0])
	case r.size > most:
		return nil, fmt.Errorf("expected at most %d bytes, found %d in the header", most, r.size)
	case r.end < bloscHeader || r.end > int64(len(in)):
		return nil, fmt.Errorf("the header has %d bytes, but %d exist", r.end, len(in))
	case r.size == 0 || r.flags&bloscStored != 0:
		return r, nil
	}
	switch {
	case r.flags&bloscShuffle != 0 && r.typeSize > 1:
		r.filters = []bloscFilter{{bloscUnshuffle, r.typeSize}}
	case r.flags&bloscBitShuffle != 0:
		r.filters = []bloscFilter{{bloscUnshuffleBits, r.typeSize}}
	}
	return r, r.sizes()
}

// sizes checks what all blocks depend on.
func (r *bloscReader) sizes() error {
	if r.typeSize == 0 || r.blockSize == 0 {
		return fmt.Errorf("expected sizes above 0, found elements of %d bytes in blocks of %d", r.typeSize, r.blockSize)
	}
	if r.codec = bloscCodecs[r.flags>>bloscCodecShift]; r.codec.decode == nil {
		return unsupported(fmt.Sprintf("inner codec %d is not supported", r.flags>>bloscCodecShift))
	}
	return nil
}

// splits returns the number of streams in a block of n bytes.
func (r *bloscReader) splits(n int64) int64 {
	if r.head == blosc2Header && r.flags&bloscOneStream == 0 && n == r.blockSize && n%r.typeSize == 0 {
		return r.typeSize
	}
	if r.head == blosc2Header || r.flags&bloscOneStream != 0 || n < r.blockSize || r.typeSize > bloscMaxSplits || n/r.typeSize < bloscMinSplit || n%r.typeSize != 0 {
		return 1
	}
	return r.typeSize
}

// streams calls fn with each stored stream of a block whose decoded length is n.
func (r *bloscReader) streams(block, n int64, fn func(stored []byte, from, to int64) error) error {
	at := int64(binary.LittleEndian.Uint32(r.in[r.head+4*block:]))
	k := r.splits(n)
	for i := range k {
		if at < r.head || at > r.end-4 {
			return fmt.Errorf("stream at offset %d, outside of %d bytes", at, r.end)
		}
		length := int64(binary.LittleEndian.Uint32(r.in[at:]))
		at += 4
		if value, is, err := r.run(length, &at); err != nil {
			return err
		} else if is {
			if err := fn(slices.Repeat([]byte{value}, int(n/k)), i*(n/k), (i+1)*(n/k)); err != nil {
				return err
			}
			continue
		}
		if length > r.end-at {
			return fmt.Errorf("stream at offset %d: expected %d bytes, found %d", at, length, r.end-at)
		}
		if err := fn(r.in[at:at+length], i*(n/k), (i+1)*(n/k)); err != nil {
			return fmt.Errorf("stream at offset %d: %s: %v", at, r.codec.name, err)
		}
		at += length
	}
	return nil
}

// plausible refuses sizes that the stored bytes cannot decode to. Without it, a few bytes could
// make the reader allocate a gigabyte.
func (r *bloscReader) plausible(blocks int64) error {
	for i := range blocks {
		err := r.streams(i, min(r.blockSize, r.size-i*r.blockSize), func(stored []byte, from, to int64) error {
			if int64(len(stored))*r.codec.ratio < to-from {
				return fmt.Errorf("%d bytes cannot decode to %d", len(stored), to-from)
			}
			return nil
		})
		if err != nil {
			return fmt.Errorf("block %d of %d: %v", i, blocks, err)
		}
	}
	return nil
}

// block decodes a block to its place in all.
func (r *bloscReader) block(i int64, all, spare []byte) error {
	out := all[i*r.blockSize : min((i+1)*r.blockSize, r.size)]
	n := int64(len(out))
	into, next := out, out
	if len(r.filters) > 0 {
		into = spare[:n]
	}
	err := r.streams(i, n, func(stored []byte, from, to int64) error {
		if int64(len(stored)) == to-from {
			copy(into[from:to], stored)
			return nil
		}
		return r.codec.decode(into[from:to:to], stored)
	})
	if err != nil {
		return err
	}
	for _, f := range r.filters {
		switch f.kind {
		case bloscUnshuffle:
			Unshuffle(next, into, int(f.size))
		case bloscUnshuffleBits:
			whole := n
			if r.head == blosc2Header { // otherwise a block whose number of elements is odd is not shuffled
				whole = n / f.size &^ 7 * f.size
			}
			copy(next[whole:], into[whole:])
			if whole >= f.size {
				unshuffleBits(next[:whole], into[:whole], int(f.size))
			} else {
				copy(next, into)
			}
		case bloscDelta:
			copy(next, into)
			undoDelta(next, all[:min(r.blockSize, r.size)], int(f.size), i == 0)
		}
		into, next = next, into
	}
	if len(r.filters) > 0 {
		copy(out, into)
	}
	return nil
}

// An unsupported error names a codec that this package does not support.
type unsupported string

func (e unsupported) Error() string { return string(e) }

func (e unsupported) Unwrap() error { return errors.ErrUnsupported }

// LZ4Block decodes a block without a frame, which must fill dst.
func LZ4Block(dst, src []byte) error {
	n, err := lz4.UncompressBlock(src, dst)
	if err == nil && n != len(dst) {
		err = fmt.Errorf("expected %d bytes, found %d", len(dst), n)
	}
	return err
}

func decodeSnappyBlock(dst, src []byte) error {
	n, err := snappy.DecodedLen(src)
	if err == nil && n != len(dst) {
		err = fmt.Errorf("expected %d bytes, found %d", len(dst), n)
	}
	if err == nil {
		_, err = snappy.Decode(dst, src)
	}
	return err
}
