package codec

import (
	"bufio"
	"bytes"
	"compress/bzip2"
	"encoding/binary"
	"errors"
	"io"

	"github.com/pierrec/lz4/v4"
	"github.com/ulikunitz/xz/lzma"
)

// Bzip2 is the name of one or more bzip2 streams. LZ4 is that of one or more LZ4 frames, with or
// without checksums. LZMA is that of an LZMA stream as zip has it: a version, the length of the
// settings, the settings, and the compressed data.
const (
	Bzip2 = "bzip2"
	LZ4   = "lz4"
	LZMA  = "lzma"
)

func init() {
	register(Bzip2, true, func(r io.Reader, _ int64) (io.Reader, error) { return bzip2.NewReader(r), nil })
	register(LZ4, false, func(r io.Reader, _ int64) (io.Reader, error) { return &lz4Reader{r: bufio.NewReader(r)}, nil })
	register(LZMA, false, decodeLZMA)
}

func decodeLZMA(r io.Reader, most int64) (io.Reader, error) {
	var h [4 + 5]byte
	if _, err := io.ReadFull(r, h[:]); err != nil {
		return nil, unexpectedEnd(err)
	}
	if binary.LittleEndian.Uint16(h[2:]) != 5 {
		return nil, errors.New("lzma: expected settings of 5 bytes")
	}
	dict, err := dictionary(int64(binary.LittleEndian.Uint32(h[5:])), most)
	if err != nil {
		return nil, err
	}
	// This is the header of an LZMA file of unknown length.
	head := binary.LittleEndian.AppendUint32([]byte{h[4]}, uint32(dict))
	head = append(head, bytes.Repeat([]byte{0xff}, 8)...)
	z, err := lzma.NewReader(bufio.NewReader(io.MultiReader(bytes.NewReader(head), r)))
	return &lzmaReader{z, io.EOF}, err
}

// lzmaReader also returns the content that was decoded before a missing end marker. The library
// still has it, and returns it after the error.
type lzmaReader struct {
	z   *lzma.Reader
	end error
}

func (l *lzmaReader) Read(p []byte) (int, error) {
	n, err := l.z.Read(p)
	if err == io.ErrUnexpectedEOF && l.end == io.EOF {
		if l.end = err; n == 0 {
			return l.Read(p)
		}
		err = nil
	}
	if err == io.EOF {
		err = l.end
	}
	return n, err
}

// lz4Reader reads consecutive frames.
type lz4Reader struct {
	r   *bufio.Reader
	z   *lz4.Reader // nil between frames
	any bool
}

func (l *lz4Reader) Read(p []byte) (int, error) {
	for {
		if l.z == nil {
			if _, err := l.r.Peek(1); err == io.EOF && !l.any {
				return 0, io.ErrUnexpectedEOF
			} else if err != nil {
				return 0, err
			}
			l.z, l.any = lz4.NewReader(l.r), true
		}
		n, err := l.z.Read(p)
		if err == io.EOF {
			if l.z, err = nil, nil; n == 0 {
				continue
			}
		}
		return n, err
	}
}
