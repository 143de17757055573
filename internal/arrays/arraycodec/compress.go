package arraycodec

import (
	"bytes"
	"compress/bzip2"
	"encoding/binary"
	"fmt"
	"io"
	"sync"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zlib"
	"github.com/klauspost/compress/zstd"
)

// ReadBounded reads all of r. It returns an error if that is more than most bytes. The first buffer
// has the size that stored bytes usually decode to, not the largest possible size.
func ReadBounded(r io.Reader, stored int, most int64) ([]byte, error) {
	out := make([]byte, 0, min(int64(stored)*4+512, most+1))
	for {
		n, err := r.Read(out[len(out):cap(out)])
		out = out[:len(out)+n]
		switch {
		case int64(len(out)) > most:
			return nil, fmt.Errorf("expected at most %d bytes, found more", most)
		case err == io.EOF:
			return out, nil
		case err == io.ErrUnexpectedEOF:
			return nil, fmt.Errorf("the data end early, after %d bytes", len(out))
		case err != nil:
			return nil, err
		}
		if len(out) == cap(out) {
			grown := make([]byte, len(out), min(2*int64(cap(out)), most+1))
			copy(grown, out)
			out = grown
		}
	}
}

var (
	zlibReaders sync.Pool
	gzipReaders = sync.Pool{New: func() any { return new(gzip.Reader) }}
	zstdReaders = sync.Pool{New: func() any {
		d, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
			zstd.WithDecodeAllCapLimit(true), zstd.WithDecoderMaxWindow(128<<20))
		if err != nil {
			panic(err) // cannot fail: the options are valid
		}
		return d
	}}
)

// withZlib calls fn with a zlib reader of in. It reuses readers, since a new one allocates 40 kB.
func withZlib(in []byte, fn func(io.Reader) error) error {
	src := bytes.NewReader(in)
	z, ok := zlibReaders.Get().(io.ReadCloser)
	var err error
	if ok {
		err = z.(zlib.Resetter).Reset(src, nil)
	} else {
		z, err = zlib.NewReader(src)
	}
	if err != nil {
		return err
	}
	defer zlibReaders.Put(z)
	return fn(z)
}

// Zlib decodes a zlib stream.
func Zlib(in []byte, most int64) (out []byte, err error) {
	err = withZlib(in, func(z io.Reader) error {
		out, err = ReadBounded(z, len(in), most)
		return err
	})
	return out, err
}

func decodeZlibBlock(dst, src []byte) error {
	return withZlib(src, func(z io.Reader) error {
		if n, err := io.ReadFull(z, dst); err != nil {
			return fmt.Errorf("after %d of %d bytes: %v", n, len(dst), err)
		}
		var more [1]byte
		if n, err := z.Read(more[:]); n > 0 || err != io.EOF {
			return fmt.Errorf("expected the end after %d bytes, found more or %v", len(dst), err)
		}
		return nil
	})
}

// Gzip decodes all members. Zeros may follow them: LINDI pads chunks with zeros.
func Gzip(in []byte, most int64) ([]byte, error) {
	src := bytes.NewReader(in)
	z := gzipReaders.Get().(*gzip.Reader)
	defer gzipReaders.Put(z)
	var out []byte
	for {
		if err := z.Reset(src); err != nil {
			return nil, err
		}
		z.Multistream(false)
		part, err := ReadBounded(z, src.Len(), most-int64(len(out)))
		if err != nil {
			return nil, err
		}
		if out == nil {
			out = part
		} else {
			out = append(out, part...)
		}
		rest := bytes.TrimLeft(in[len(in)-src.Len():], "\x00")
		if len(rest) == 0 {
			return out, nil
		}
		src.Reset(rest)
		in = rest
	}
}

// zstdRatio is how many bytes one stored byte can decode to at most: the smallest block has four
// bytes, and repeats one byte 128 Ki times.
const zstdRatio = 1 << 15

// Zstd decodes into memory of the size that the first frame states, or else of growing sizes: a
// streaming decoder would allocate the window that a frame requests.
func Zstd(in []byte, most int64) (out []byte, err error) {
	var h zstd.Header
	if err := h.Decode(in); err != nil {
		return nil, err
	}
	most = min(most, zstdRatio*int64(len(in)))
	size := min(8*int64(len(in)), most)
	if h.HasFCS {
		if h.FrameContentSize > uint64(most) {
			return nil, fmt.Errorf("expected at most %d bytes, found a frame of %d bytes for %d", most, len(in), h.FrameContentSize)
		}
		size = int64(h.FrameContentSize)
	}
	d := zstdReaders.Get().(*zstd.Decoder)
	defer zstdReaders.Put(d)
	for {
		out, err = d.DecodeAll(in, make([]byte, 0, size))
		// A buffer that is too small causes an error too, which looks like damage.
		if err == nil || size >= most {
			return out, err
		}
		size = min(4*size+512, most)
	}
}

func decodeZstdBlock(dst, src []byte) error {
	d := zstdReaders.Get().(*zstd.Decoder)
	defer zstdReaders.Put(d)
	out, err := d.DecodeAll(src, dst[:0])
	if err == nil && len(out) != len(dst) {
		err = fmt.Errorf("expected %d bytes, found %d", len(dst), len(out))
	}
	return err
}

// LZ4 decodes the format of numcodecs: the size as a signed 32-bit number, little endian, and then
// one LZ4 block.
func LZ4(in []byte, most int64) ([]byte, error) {
	if len(in) < 4 {
		return nil, fmt.Errorf("expected a size of 4 bytes, found %d bytes", len(in))
	}
	size, block := int64(binary.LittleEndian.Uint32(in)), in[4:]
	if size > most || size > int64(len(block))*256 {
		return nil, fmt.Errorf("expected at most %d bytes, found %d stored bytes for %d", most, len(block), size)
	}
	out := make([]byte, size)
	if size == 0 {
		return out, nil
	}
	return out, LZ4Block(out, block)
}

// Bzip2 decodes a bzip2 stream.
func Bzip2(in []byte, most int64) ([]byte, error) {
	return ReadBounded(bzip2.NewReader(bytes.NewReader(in)), len(in), most)
}
