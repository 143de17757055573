package zarr

import (
	"encoding/base64"
	"encoding/binary"
	"hash/crc32"

	"github.com/holdall/holdall/internal/arrays/arraycodec"
)

func shuffleStage(c Codec) (stage, error) {
	size := c.number("elementsize", 4)
	if size < 1 || size > maxItem {
		return stage{}, corrupt("elementsize: expected a size, found %d", size)
	}
	return stage{bound: same, decode: func(in []byte, _ int64) ([]byte, error) {
		if size == 1 || int64(len(in)) < size {
			return in, nil
		}
		out := make([]byte, len(in))
		arraycodec.Unshuffle(out, in, int(size))
		return out, nil
	}}, nil
}

// identity is for codecs that lose information when they write and change nothing when they are
// read.
func identity(in []byte, _ int64) ([]byte, error) { return in, nil }

// unpackBits unpacks booleans, eight to a byte, the highest bit first. The first byte is the
// number of unused bits in the last byte.
func unpackBits(in []byte, most int64) ([]byte, error) {
	if len(in) == 0 || in[0] > 7 || len(in) == 1 && in[0] > 0 {
		return nil, corrupt("expected a count of unused bits from 0 to 7 and the bits")
	}
	n := 8*(len(in)-1) - int(in[0])
	if int64(n) > most {
		return nil, corrupt("expected at most %d bits, found %d", most, n)
	}
	out := make([]byte, n)
	for i := range out {
		out[i] = in[1+i/8] >> (7 - i%8) & 1
	}
	return out, nil
}

func decodeBase64(in []byte, _ int64) ([]byte, error) {
	out := make([]byte, base64.StdEncoding.DecodedLen(len(in)))
	n, err := base64.StdEncoding.Decode(out, in)
	return out[:n], err
}

// checksumStage returns the stage of a codec that adds a checksum of four little-endian bytes,
// before the data or after it.
func checksumStage(sum func([]byte) uint32, before bool) func(Codec) (stage, error) {
	return func(c Codec) (stage, error) {
		before := before
		switch where := c.Config["location"]; where {
		case nil:
		case "start", "end":
			before = where == "start"
		default:
			return stage{}, corrupt(`location: expected "start" or "end", found %s`, brief(where))
		}
		return stage{
			bound: func(n int64) int64 { return addSize(n, 4) },
			decode: func(in []byte, _ int64) ([]byte, error) {
				if len(in) < 4 {
					return nil, corrupt("expected a checksum of 4 bytes, found %d bytes", len(in))
				}
				out, stored := in[:len(in)-4], in[len(in)-4:]
				if before {
					stored, out = in[:4], in[4:]
				}
				if want, got := binary.LittleEndian.Uint32(stored), sum(out); want != got {
					return nil, corrupt("checksum: expected %08x, found %08x", want, got)
				}
				return out, nil
			},
		}, nil
	}
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)
