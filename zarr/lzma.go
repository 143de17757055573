package zarr

import (
	"bytes"
	"encoding/binary"
	"io"

	"github.com/ulikunitz/xz/lzma"

	"github.com/holdall/holdall/codec"
	"github.com/holdall/holdall/internal/arrays/arraycodec"
)

// The codec lzma of numcodecs is Python's lzma module. These are its formats.
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

// window returns the size of the dictionary of a decoder. It need not be larger than the data,
// because no match can refer further back.
func window(dict, most int64) int { return int(max(min(dict, most, lzma.MaxDictCap), lzma.MinDictCap)) }

func decodeLZMA2(in *bytes.Reader, dict, most int64) ([]byte, error) {
	r, err := lzma.Reader2Config{DictCap: window(dict, most)}.NewReader2(in)
	if err != nil {
		return nil, err
	}
	return arraycodec.ReadBounded(r, in.Len(), most)
}

func decodeLZMA(in []byte, most int64) ([]byte, error) {
	if len(in) < lzma.HeaderLen {
		return nil, corrupt("expected a header of %d bytes, found %d bytes", lzma.HeaderLen, len(in))
	}
	// The header has the size of the dictionary, from byte 1.
	in = bytes.Clone(in)
	dict := window(int64(binary.LittleEndian.Uint32(in[1:])), most)
	binary.LittleEndian.PutUint32(in[1:], uint32(dict))
	r, err := lzma.ReaderConfig{DictCap: dict}.NewReader(bytes.NewReader(in))
	if err != nil {
		return nil, err
	}
	return arraycodec.ReadBounded(r, len(in), most)
}

func decodeXZ(in []byte, most int64) ([]byte, error) {
	return arraycodec.ReadBounded(codec.NewXZ(bytes.NewReader(in), most), len(in), most)
}

var _ io.ByteReader = (*bytes.Reader)(nil) // otherwise LZMA2 would read beyond its end
