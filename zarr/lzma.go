package zarr

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"hash/crc32"
	"hash/crc64"
	"io"

	"github.com/ulikunitz/xz/lzma"
)

// What numcodecs calls lzma is Python's lzma module; these are its formats.
const (
	lzmaAuto  = 0
	lzmaXZ    = 1
	lzmaAlone = 2
	lzmaRaw   = 3

	lzma2Filter    = 0x21
	lzmaPresetDict = 64 << 20 // the largest of all presets
)

var xzMagic = []byte("\xfd7zXZ\x00")

func lzmaStage(c Codec) (stage, error) {
	s := stage{bound: compressedBound}
	switch f := c.number("format", lzmaXZ); f {
	case lzmaAuto:
		s.decode = func(in []byte, most int64) ([]byte, error) {
			if bytes.HasPrefix(in, xzMagic) {
				return decodeXZ(in, most)
			}
			return decodeLZMA(in, most)
		}
	case lzmaXZ:
		s.decode = decodeXZ
	case lzmaAlone:
		s.decode = decodeLZMA
	case lzmaRaw:
		var filter map[string]any
		if filters, _ := c.Config["filters"].([]any); len(filters) == 1 {
			filter, _ = filters[0].(map[string]any)
		}
		if id, _ := asInt(filter["id"]); id != lzma2Filter {
			return s, &CodecError{Codec: c.ID, Why: "of raw data, only LZMA2 alone is supported"}
		}
		dict, ok := asInt(filter["dict_size"])
		if !ok {
			dict = lzmaPresetDict
		}
		s.decode = func(in []byte, most int64) ([]byte, error) {
			return decodeLZMA2(bytes.NewReader(in), dict, most)
		}
	default:
		return s, corrupt("format: expected 0 to 3, found %d", f)
	}
	return s, nil
}

// window is the dictionary a decoder needs: what the data ask for, but no match
// can reach farther back than all there is.
func window(dict, most int64) int { return int(max(min(dict, most, lzma.MaxDictCap), lzma.MinDictCap)) }

func decodeLZMA2(in *bytes.Reader, dict, most int64) ([]byte, error) {
	r, err := lzma.Reader2Config{DictCap: window(dict, most)}.NewReader2(in)
	if err != nil {
		return nil, err
	}
	return readBounded(r, in.Len(), most)
}

func decodeLZMA(in []byte, most int64) ([]byte, error) {
	if len(in) < lzma.HeaderLen {
		return nil, corrupt("expected a header of %d bytes, found %d bytes", lzma.HeaderLen, len(in))
	}
	// The header says how large a dictionary is: byte 1 on.
	in = bytes.Clone(in)
	dict := window(int64(binary.LittleEndian.Uint32(in[1:])), most)
	binary.LittleEndian.PutUint32(in[1:], uint32(dict))
	r, err := lzma.ReaderConfig{DictCap: dict}.NewReader(bytes.NewReader(in))
	if err != nil {
		return nil, err
	}
	return readBounded(r, len(in), most)
}

// decodeXZ reads one .xz stream: a header of 12 bytes, blocks, an index that
// begins with a zero where a block would have its header's length. The
// container is read here because the library's reader makes whatever
// dictionary a block asks for. The index only repeats lengths and is not read.
func decodeXZ(in []byte, most int64) ([]byte, error) {
	if len(in) < 12 || !bytes.HasPrefix(in, xzMagic) {
		return nil, corrupt("not an xz stream")
	}
	if in[6] != 0 || crc32.ChecksumIEEE(in[6:8]) != binary.LittleEndian.Uint32(in[8:]) {
		return nil, corrupt("its header is damaged")
	}
	sum, sumSize := xzCheck(in[7])
	if sumSize < 0 {
		return nil, unsupported("check %d of xz is not supported", in[7])
	}
	out := []byte{}
	for at := 12; ; {
		if at >= len(in) {
			return nil, corrupt("xz: offset %d: expected a block or the index, found the end", at)
		}
		if in[at] == 0 {
			return out, nil
		}
		head := 4 * (int(in[at]) + 1)
		if head > len(in)-at {
			return nil, corrupt("xz: offset %d: the data end within a block's header", at)
		}
		dict, err := xzDictionary(in[at : at+head])
		if err != nil {
			return nil, err
		}
		body := bytes.NewReader(in[at+head:])
		part, err := decodeLZMA2(body, dict, most-int64(len(out)))
		if err != nil {
			return nil, err
		}
		used := len(in) - at - head - body.Len()
		at += head + (used+3)&^3
		if len(in)-at < sumSize {
			return nil, corrupt("xz: offset %d: the data end before a block's checksum", at)
		}
		if sum != nil && !bytes.Equal(sum(part), in[at:at+sumSize]) {
			return nil, corrupt("xz: offset %d: the block's checksum does not match", at)
		}
		at += sumSize
		if len(out) == 0 {
			out = part
		} else {
			out = append(out, part...)
		}
	}
}

// xzDictionary reads a block's header, which must name LZMA2 and nothing else:
// its length, flags, two lengths if the flags say so, filters, zeros and a CRC.
// A filter is its number, the length of its settings (1), and the dictionary's size.
func xzDictionary(head []byte) (int64, error) {
	body := head[:len(head)-4]
	damaged := corrupt("xz: a block's header is damaged")
	if crc32.ChecksumIEEE(body) != binary.LittleEndian.Uint32(head[len(body):]) {
		return 0, damaged
	}
	flags, r := body[1], bytes.NewReader(body[2:])
	var fault error
	next := func() uint64 {
		n, err := binary.ReadUvarint(r)
		fault = cmp.Or(fault, err)
		return n
	}
	for _, has := range []byte{0x40, 0x80} {
		if flags&has != 0 {
			next()
		}
	}
	if fault != nil {
		return 0, damaged
	}
	if id := next(); fault != nil || flags&3 != 0 || id != lzma2Filter {
		return 0, unsupported("xz filters other than LZMA2 are not supported")
	}
	settings := next()
	size, err := r.ReadByte()
	dict, derr := lzma.DecodeDictCap(size)
	if cmp.Or(fault, err, derr) != nil || settings != 1 {
		return 0, damaged
	}
	return dict, nil
}

// xzCheck gives a checksum by its number in the stream header; its size is -1
// where it is unknown, and the sum nil where there is none.
func xzCheck(id byte) (func([]byte) []byte, int) {
	switch id {
	case 0:
		return nil, 0
	case 1:
		return func(b []byte) []byte { return binary.LittleEndian.AppendUint32(nil, crc32.ChecksumIEEE(b)) }, 4
	case 4:
		return func(b []byte) []byte { return binary.LittleEndian.AppendUint64(nil, crc64.Checksum(b, ecma)) }, 8
	case 10:
		return func(b []byte) []byte { s := sha256.Sum256(b); return s[:] }, 32
	}
	return nil, -1
}

var ecma = crc64.MakeTable(crc64.ECMA)

var _ io.ByteReader = (*bytes.Reader)(nil) // else LZMA2 would read beyond its end
