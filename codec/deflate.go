package codec

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/klauspost/compress/flate"
)

// Deflate content is a DEFLATE stream without anything around it, as zip has it.
const Deflate = "deflate"

func init() {
	Register(Codec{Name: Deflate, Decode: decodeDeflate, Append: appendDeflate})
}

// flaters are readers that nobody uses.
var flaters sync.Pool

func decodeDeflate(r io.Reader) (io.ReadCloser, error) {
	if f, _ := flaters.Get().(io.ReadCloser); f != nil {
		return &flateStream{f}, f.(flate.Resetter).Reset(r, nil)
	}
	return &flateStream{flate.NewReader(r)}, nil
}

type flateStream struct{ f io.ReadCloser }

func (s *flateStream) Read(p []byte) (int, error) {
	if s.f == nil {
		return 0, errors.New("deflate: read after close")
	}
	return s.f.Read(p)
}

func (s *flateStream) Close() error {
	if s.f != nil {
		flaters.Put(s.f)
		s.f = nil
	}
	return nil
}

func appendDeflate(dst, stored []byte, size int) ([]byte, error) {
	dst, room, err := makeRoom(dst, size)
	if err != nil {
		return dst, err
	}
	if _, err := inflate(room, stored); err == nil {
		return dst[:len(dst)+size], nil
	}
	d, err := decodeDeflate(bytes.NewReader(stored))
	if err != nil {
		return dst, err
	}
	defer d.Close()
	return endUnit(dst, d, room)
}

// endUnit fills room, which is behind dst, with what d has, which must be as much.
func endUnit(dst []byte, d io.Reader, room []byte) ([]byte, error) {
	switch n, err := io.ReadFull(d, room); err {
	case nil:
	case io.EOF, io.ErrUnexpectedEOF:
		return dst, fmt.Errorf("unit size: expected %d, found %d", len(room), n)
	default:
		return dst, err
	}
	// A checksum is looked at where the stream ends.
	var more [1]byte
	switch k, err := io.ReadFull(d, more[:]); {
	case k > 0:
		return dst, fmt.Errorf("unit size: expected %d, found more", len(room))
	case err != io.EOF:
		return dst, err
	}
	return dst[:len(dst)+len(room)], nil
}
