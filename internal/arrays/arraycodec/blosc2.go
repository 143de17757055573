package arraycodec

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
)

// A Blosc-2 chunk has the header of Blosc 1 and 16 bytes more: filters of a pipeline (6 bytes), two bytes of the codec,
// a parameter of each filter (6 bytes), and two bytes of flags.
const (
	blosc2Header = 32
	blosc2Flags  = 31 // the position of: a dictionary (bit 0), a longer header (1), another codec (2), a special value (4 to 6)
)

type bloscFilter struct {
	kind byte
	size int64 // of an element
}

// Filters of Blosc 2.
const (
	bloscUnshuffle     = 1
	bloscUnshuffleBits = 2
	bloscDelta         = 3
	bloscTruncated     = 4 // has lost bits, and is not undone
)

// Values of a whole chunk.
const (
	allZero = 1
	allNaN  = 2
	allSame = 3
	allAny  = 4
)

// blosc2Chunk decodes a chunk.
func blosc2Chunk(in []byte, most int64) ([]byte, error) {
	if len(in) < blosc2Header || in[2]&(bloscShuffle|bloscBitShuffle) != bloscShuffle|bloscBitShuffle {
		return nil, fmt.Errorf("expected a header of %d bytes, found %d bytes", blosc2Header, len(in))
	}
	r := &bloscReader{
		in: in, flags: in[2], head: blosc2Header, typeSize: int64(in[3]),
		size:      int64(binary.LittleEndian.Uint32(in[4:])),
		blockSize: int64(binary.LittleEndian.Uint32(in[8:])),
		end:       int64(binary.LittleEndian.Uint32(in[12:])),
	}
	flags := in[blosc2Flags]
	special := flags >> 4 & 7
	switch {
	case r.size > most:
		return nil, fmt.Errorf("expected at most %d bytes, found %d in the header", most, r.size)
	case r.end < blosc2Header || r.end > int64(len(in)):
		return nil, fmt.Errorf("the header has %d bytes, but %d exist", r.end, len(in))
	case flags&0x8f != 0 || in[blosc2Flags-1] != 0:
		return nil, unsupported(fmt.Sprintf("flags %#x and %#x are not supported", flags, in[blosc2Flags-1]))
	case special == allSame:
		return filled(r.size, in[blosc2Header:r.end])
	case special != 0:
		return special2(special, r.size, r.typeSize)
	case r.size == 0 || r.flags&bloscStored != 0:
		return r.decode()
	}
	for i := 5; i >= 0; i-- {
		f := bloscFilter{in[16+i], r.typeSize}
		if f.kind == bloscUnshuffle && in[24+i] != 0 {
			f.size = int64(in[24+i])
		}
		switch {
		case f.kind == 0 || f.kind == bloscTruncated:
		case f.kind > bloscTruncated || len(r.filters) > 0 && r.filters[len(r.filters)-1].kind == bloscDelta:
			return nil, unsupported(fmt.Sprintf("filters %d are not supported", in[16:22]))
		default:
			r.filters = append(r.filters, f)
		}
	}
	if err := r.sizes(); err != nil {
		return nil, err
	}
	return r.decode()
}

// run returns the byte that a stream repeats, if its stored length says so. A negative length is followed by a byte.
func (r *bloscReader) run(length int64, at *int64) (value byte, is bool, err error) {
	switch n := int32(length); {
	case r.head != blosc2Header || n > 0:
		return 0, false, nil
	case n == 0:
		return 0, true, nil
	case *at >= r.end || r.in[*at]&1 == 0 || n < -255:
		return 0, false, fmt.Errorf("stream at offset %d: expected a run of a byte, found length %d", *at, n)
	default:
		*at++
		return byte(-n), true, nil
	}
}

// special2 returns n bytes of a value that is not stored.
func special2(kind byte, n, size int64) ([]byte, error) {
	switch {
	case kind == allZero || kind == allAny:
		return make([]byte, n), nil
	case kind == allNaN && size == 4:
		return filled(n, binary.LittleEndian.AppendUint32(nil, 0x7fc00000))
	case kind == allNaN && size == 8:
		return filled(n, binary.LittleEndian.AppendUint64(nil, 0x7ff8000000000000))
	}
	return nil, unsupported(fmt.Sprintf("special value %d of %d bytes is not supported", kind, size))
}

// filled returns n bytes of a value.
func filled(n int64, value []byte) ([]byte, error) {
	size := int64(len(value))
	if size == 0 || n%size != 0 {
		return nil, fmt.Errorf("%d bytes are not of values of %d", n, size)
	}
	return bytes.Repeat(value, int(n/size)), nil
}

// undoDelta undoes the differences of elements: of the first block, from the element before, and otherwise from that
// of the first block.
func undoDelta(b, first []byte, size int, isFirst bool) {
	if size != 1 && size != 2 && size != 4 && size != 8 {
		if size%8 == 0 {
			size = 8
		} else {
			size = 1
		}
	}
	for i := range b[:len(b)/size*size] {
		if !isFirst {
			b[i] ^= first[i]
		} else if i >= size {
			b[i] ^= b[i-size]
		}
	}
}

// Blosc2 decodes a contiguous frame of Blosc 2 with one chunk, as a filter of HDF5 stores it. The header of the frame is
// big endian:
//
//	2   "b2frame" and 0       30  bytes decoded    u64
//	11  bytes of it     u32   39  bytes of chunks  u64
//	16  bytes of all    u64   48  bytes of an element  u32
//
// Chunks follow, then a chunk with the place of each chunk (u64, little endian). "b2nd" names the shapes of an array
// whose chunk consists of smaller arrays.
func Blosc2(in []byte, most int64) ([]byte, error) {
	const (
		head   = 87
		padded = 16 // how many times larger an array of whole pieces may be
	)
	if len(in) < head || string(in[2:10]) != "b2frame\x00" {
		return nil, errors.New("no frame of Blosc 2")
	}
	be := binary.BigEndian
	start, all := int64(be.Uint32(in[11:])), be.Uint64(in[16:])
	size, stored := be.Uint64(in[30:]), be.Uint64(in[39:])
	if start < head || all > uint64(len(in)) || stored > all || uint64(start) > all-stored || size > uint64(most)*padded {
		return nil, fmt.Errorf("expected up to %d bytes in a frame of %d, found %d in %d, with %d from %d on", most, len(in), size, all, stored, start)
	}
	in = in[:all]
	shapes, err := shapesOf(in[:start])
	if err != nil || size == 0 && shapes == nil {
		return nil, err
	}
	places, err := blosc2Chunk(in[start+int64(stored):], 1<<16)
	if err != nil {
		return nil, fmt.Errorf("places of chunks: %w", err)
	}
	if len(places) != 8 {
		return nil, unsupported(fmt.Sprintf("%d chunks are not supported", len(places)/8))
	}
	var out []byte
	if at := binary.LittleEndian.Uint64(places); at >= 1<<63 {
		out, err = special2(byte(at>>56)&7, int64(size), int64(be.Uint32(in[48:])))
	} else if at >= stored {
		err = fmt.Errorf("expected a chunk in %d bytes, found it at %d", stored, at)
	} else {
		out, err = blosc2Chunk(in[start+int64(at):start+int64(stored)], int64(size))
	}
	if err == nil && shapes == nil && int64(len(out)) > most {
		err = fmt.Errorf("expected at most %d bytes, found %d", most, len(out))
	}
	if err != nil || shapes == nil {
		return out, err
	}
	return shapes.join(out, int64(be.Uint32(in[48:])), most)
}

// A shapes has the sizes of an array, and of the smaller ones of which it consists.
type shapes struct{ array, block []int64 }

// shapesOf returns those that a header names, or nil.
func shapesOf(head []byte) (*shapes, error) {
	for _, name := range []string{"b2nd", "caterva"} {
		key := append([]byte{0xa0 + byte(len(name))}, name...)
		i := bytes.Index(head, append(key, 0xd2))
		if i < 0 {
			continue
		}
		i += len(key) + 1
		bad := fmt.Errorf("%q: its header is damaged", name)
		if i+4 > len(head) {
			return nil, bad
		}
		at := int64(binary.BigEndian.Uint32(head[i:]))
		if at > int64(len(head))-8 || head[at] != 0xc6 {
			return nil, bad
		}
		b := head[at+5:] // an array of a version, the number of dimensions, and arrays of them
		if len(b) < 3 || b[2] == 0 {
			return nil, bad
		}
		n := int(b[2])
		b = b[3:]
		var all [3][]int64
		for k, wide := range []int{8, 4, 4} {
			if len(b) < 1+n*(1+wide) {
				return nil, bad
			}
			b = b[1:]
			for range n {
				v := uint64(0)
				for _, x := range b[1 : 1+wide] {
					v = v<<8 | uint64(x)
				}
				if v == 0 || v > math.MaxInt32 {
					return nil, bad
				}
				all[k], b = append(all[k], int64(v)), b[1+wide:]
			}
		}
		if !slices.Equal(all[0], all[1]) {
			return nil, unsupported(fmt.Sprintf("an array of %d in chunks of %d is not supported", all[0], all[1]))
		}
		return &shapes{all[0], all[2]}, nil
	}
	return nil, nil
}

// join makes an array of the smaller ones, in whose order b is. They go beyond its end.
func (s *shapes) join(b []byte, item, most int64) ([]byte, error) {
	size, whole, block := item, item, item
	count := make([]int64, len(s.array)) // of blocks
	for i, n := range s.array {
		count[i] = (n + s.block[i] - 1) / s.block[i]
		size, whole, block = size*n, whole*count[i]*s.block[i], block*s.block[i]
		if item == 0 || size > most || whole > int64(len(b)) {
			return nil, fmt.Errorf("an array of %d elements of %d bytes, in pieces of %d, is not of %d bytes", s.array, item, s.block, len(b))
		}
	}
	if whole != int64(len(b)) {
		return nil, fmt.Errorf("expected %d bytes of pieces, found %d", whole, len(b))
	}
	out := make([]byte, size)
	last := len(count) - 1
	row := s.block[last]
	at := make([]int64, len(count)) // of a row, in the array
	for from := int64(0); from < whole; from += row * item {
		// The row's block, and its place there, give its place in the array.
		number, in := from/block, from%block/item/row
		to, inside, step := int64(0), true, int64(1)
		for i := last; i >= 0; i-- {
			at[i] = number % count[i] * s.block[i]
			if number /= count[i]; i < last {
				at[i] += in % s.block[i]
				in /= s.block[i]
			}
			inside = inside && at[i] < s.array[i]
			to += at[i] * step
			step *= s.array[i]
		}
		if inside {
			copy(out[to*item:][:min(row, s.array[last]-at[last])*item], b[from:])
		}
	}
	return out, nil
}
