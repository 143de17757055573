package hdf5

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/holdall/holdall/internal/arrays/arraycodec"
)

// Filters of the library, and those of h5py and hdf5plugin that are supported.
const (
	filterDeflate    = 1
	filterShuffle    = 2
	filterFletcher32 = 3
	filterSzip       = 4
	filterNbit       = 5
	filterScale      = 6
	filterBzip2      = 307
	filterLZF        = 32000
	filterBlosc      = 32001
	filterLZ4        = 32004
	filterBitshuffle = 32008
	filterZstd       = 32015
	filterBlosc2     = 32026
)

// filterNames also has filters that are not supported.
var filterNames = map[int]string{
	filterDeflate: "deflate", filterShuffle: "shuffle", filterFletcher32: "fletcher32", filterSzip: "szip", filterNbit: "nbit", filterScale: "scaleoffset",
	filterBzip2: "bzip2", filterLZF: "lzf", filterBlosc: "blosc", filterLZ4: "lz4", filterZstd: "zstd",
	filterBitshuffle: "bitshuffle", filterBlosc2: "blosc2", 32013: "zfp", 32017: "sz", 32018: "fcidecomp", 32019: "jpeg", 32024: "sz3", 32028: "sperr", 32033: "htj2k",
}

func filterName(id int) string {
	if name, ok := filterNames[id]; ok {
		return name
	}
	return fmt.Sprintf("filter %d", id)
}

// decoders undo filters. They return at most most bytes.
var decoders = map[int]func(in []byte, values []uint32, most int64) ([]byte, error){
	filterDeflate:    simple(arraycodec.Zlib),
	filterShuffle:    undoShuffle,
	filterFletcher32: simple(checkFletcher32),
	filterSzip:       arraycodec.Szip,
	filterNbit:       arraycodec.Nbit,
	filterScale:      arraycodec.ScaleOffset,
	filterBzip2:      simple(arraycodec.Bzip2),
	filterLZF:        simple(decodeLZF),
	filterBlosc:      simple(arraycodec.Blosc),
	filterLZ4:        simple(decodeLZ4),
	filterBitshuffle: arraycodec.Bitshuffle,
	filterZstd:       simple(arraycodec.Zstd),
	filterBlosc2:     simple(arraycodec.Blosc2),
}

// simple is a decoder that needs no parameters.
func simple(decode func(in []byte, most int64) ([]byte, error)) func([]byte, []uint32, int64) ([]byte, error) {
	return func(in []byte, _ []uint32, most int64) ([]byte, error) { return decode(in, most) }
}

// checkFilters returns an error that names the first filter that is not supported.
func checkFilters(all []Filter) error {
	for _, x := range all {
		if decoders[x.ID] == nil {
			return unsupported("filter %d (%s) is not supported", x.ID, filterName(x.ID))
		}
	}
	return nil
}

// unfilter undoes the filters of a chunk, which then has size bytes. It may return b itself.
func unfilter(all []Filter, mask uint32, b []byte, size int64) ([]byte, error) {
	// The input of a filter before the last one may be longer than the chunk.
	most := size + size/4 + 64<<10
	for i := len(all) - 1; i >= 0; i-- {
		if mask&(1<<i) != 0 {
			continue
		}
		x := all[i]
		var err error
		if decode := decoders[x.ID]; decode == nil {
			err = unsupported("not supported")
		} else {
			b, err = decode(b, x.Values, most)
		}
		if err != nil {
			if !ofFile(err) {
				err = corrupt("%v", err)
			}
			return nil, &stepError{x, err}
		}
	}
	if int64(len(b)) != size {
		return nil, corrupt("expected a chunk of %d bytes, found %d", size, len(b))
	}
	return b, nil
}

// stepError says which filter failed.
type stepError struct {
	filter Filter
	err    error
}

func (e *stepError) Error() string {
	return fmt.Sprintf("filter %d (%s): %v", e.filter.ID, filterName(e.filter.ID), e.err)
}

func (e *stepError) Unwrap() error { return e.err }

func undoShuffle(b []byte, values []uint32, _ int64) ([]byte, error) {
	if len(values) == 0 || values[0] == 0 {
		return nil, corrupt("expected the size of an element")
	}
	size := int64(values[0])
	if size == 1 || size > int64(len(b)) {
		return b, nil
	}
	out := make([]byte, len(b))
	arraycodec.Unshuffle(out, b, int(size))
	return out, nil
}

// checkFletcher32 removes the checksum and compares it. On little-endian machines, old versions
// of the library wrote it with swapped bytes in each half.
func checkFletcher32(in []byte, _ int64) ([]byte, error) {
	n := len(in) - 4
	if n < 0 {
		return nil, corrupt("expected a checksum of 4 bytes, found %d bytes", len(in))
	}
	want, got := binary.LittleEndian.Uint32(in[n:]), arraycodec.Fletcher32(in[:n])
	if old := got&0x00ff00ff<<8 | got>>8&0x00ff00ff; want != got && want != old {
		return nil, badSum(want, got)
	}
	return in[:n], nil
}

// decodeLZF decodes LibLZF. Each step begins with a byte c:
//
//	c < 32   c+1 literal bytes follow
//	else     a match: its length is (c>>5)+2, and if c>>5 is 7, a byte follows that adds to
//	         it; its distance is (c&31)<<8 plus the next byte plus 1
func decodeLZF(in []byte, most int64) ([]byte, error) {
	short := errors.New("the data end within a step")
	// Three bytes decode to at most 264.
	out := make([]byte, 0, min(most, 4*int64(len(in))))
	for at := 0; at < len(in); {
		c := int(in[at])
		at++
		if c < 32 {
			c++
			if c > len(in)-at {
				return nil, short
			}
			out = append(out, in[at:at+c]...)
			at += c
		} else {
			n := c>>5 + 2
			if n == 9 {
				if at == len(in) {
					return nil, short
				}
				n += int(in[at])
				at++
			}
			if at == len(in) {
				return nil, short
			}
			from := len(out) - (c&31)<<8 - int(in[at]) - 1
			at++
			if from < 0 {
				return nil, fmt.Errorf("a match %d bytes before the beginning", -from)
			}
			for ; n > 0; n-- {
				out = append(out, out[from])
				from++
			}
		}
		if int64(len(out)) > most {
			return nil, fmt.Errorf("expected at most %d bytes, found more", most)
		}
	}
	return out, nil
}

// decodeLZ4 decodes the format of hdf5plugin, which is big endian: the decoded size (u64), the
// size of a block (u32), and for each block its stored size (u32) and an LZ4 block. If the stored
// size is the size of the block, the bytes are not compressed.
func decodeLZ4(in []byte, most int64) ([]byte, error) {
	if len(in) < 12 {
		return nil, fmt.Errorf("expected a header of 12 bytes, found %d bytes", len(in))
	}
	total, block := binary.BigEndian.Uint64(in), int64(binary.BigEndian.Uint32(in[8:]))
	if in = in[12:]; total > uint64(most) || total > 256*uint64(len(in)) || block == 0 && total > 0 {
		return nil, fmt.Errorf("expected at most %d bytes, found %d stored bytes for %d in blocks of %d", most, len(in), total, block)
	}
	out := make([]byte, total)
	for rest := out; len(rest) > 0; {
		if len(in) < 4 {
			return nil, errors.New("the data end early")
		}
		n := int64(binary.BigEndian.Uint32(in))
		if in = in[4:]; n > int64(len(in)) {
			return nil, fmt.Errorf("expected a block of %d bytes, found %d", n, len(in))
		}
		to := rest[:min(block, int64(len(rest)))]
		if n == int64(len(to)) {
			copy(to, in)
		} else if err := arraycodec.LZ4Block(to, in[:n]); err != nil {
			return nil, err
		}
		rest, in = rest[len(to):], in[n:]
	}
	return out, nil
}
