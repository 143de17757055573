package arraycodec

import (
	"encoding/binary"
	"fmt"
)

// Bitshuffle decodes the filter bitshuffle of HDF5. values are two numbers of a version, bytes of an element, elements
// in a block, and a codec: 0, 2 for LZ4, or 3 for zstd. With a codec, the data begin with their decoded size (u64) and
// the bytes of a block (u32), and each block with its stored size (u32), all big endian. Less than eight elements at
// the end are neither shuffled nor compressed.
func Bitshuffle(in []byte, values []uint32, most int64) ([]byte, error) {
	if len(values) < 3 || values[2] == 0 {
		return nil, errParameters
	}
	item, block, kind := int64(values[2]), int64(0), uint32(0)
	if len(values) > 3 {
		block = int64(values[3])
	}
	if len(values) > 4 {
		kind = values[4]
	}
	codecs := map[uint32]bloscCodec{2: bloscCodecs[1], 3: bloscCodecs[4]}
	c, packed := codecs[kind]
	size := int64(len(in))
	switch {
	case kind != 0 && !packed:
		return nil, unsupported(fmt.Sprintf("codec %d is not supported", kind))
	case packed:
		if len(in) < 12 {
			return nil, fmt.Errorf("expected a header of 12 bytes, found %d bytes", len(in))
		}
		n := binary.BigEndian.Uint64(in)
		block = int64(binary.BigEndian.Uint32(in[8:])) / item
		if in = in[12:]; n > uint64(most) || n > uint64(len(in))*uint64(c.ratio) {
			return nil, fmt.Errorf("expected at most %d bytes, found %d stored bytes for %d", most, len(in), n)
		}
		size = int64(n)
	}
	if block == 0 {
		block = max(8192/item&^7, 128)
	}
	if block%8 != 0 || size%item != 0 {
		return nil, fmt.Errorf("expected blocks of 8, 16 and so on elements, found %d of %d bytes for %d", block, item, size)
	}
	out := make([]byte, size)
	spare := make([]byte, min(block*item, size))
	whole := size / item &^ 7 * item
	for at := int64(0); at < whole; at += block * item {
		to := out[at:min(at+block*item, whole)]
		from := spare[:len(to)]
		n := len(to)
		if packed {
			if len(in) < 4 {
				return nil, errShort
			}
			n = int(binary.BigEndian.Uint32(in))
			in = in[4:]
		}
		if n > len(in) {
			return nil, fmt.Errorf("at %d of %d: expected a block of %d bytes, found %d", at, size, n, len(in))
		}
		if !packed {
			copy(from, in)
		} else if err := c.decode(from, in[:n:n]); err != nil {
			return nil, fmt.Errorf("at %d of %d: %s: %w", at, size, c.name, err)
		}
		in = in[n:]
		unshuffleBits(to, from, int(item))
	}
	if rest := out[whole:]; copy(rest, in) < len(rest) {
		return nil, errShort
	}
	return out, nil
}
