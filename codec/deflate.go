package codec

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/klauspost/compress/flate"
	"github.com/klauspost/compress/zlib"
)

// Deflate is the name of a raw DEFLATE stream, as zip has it.
const Deflate = "deflate"

func init() {
	Register(Codec{Name: Deflate, Decode: flaters.open, Append: appendBy(flaters.open, inflate)})
}

// spareReaders are unused readers of klauspost's packages.
type spareReaders struct {
	sync.Pool
	name  string
	begin func(io.Reader) (io.ReadCloser, error)
	again func(old io.ReadCloser, r io.Reader) error
}

var flaters = spareReaders{
	name:  Deflate,
	begin: func(r io.Reader) (io.ReadCloser, error) { return flate.NewReader(r), nil },
	again: func(old io.ReadCloser, r io.Reader) error { return old.(flate.Resetter).Reset(r, nil) },
}

// open returns a reader that is reused after it is closed.
func (s *spareReaders) open(r io.Reader) (io.ReadCloser, error) {
	old, _ := s.Get().(io.ReadCloser)
	if old == nil {
		z, err := s.begin(r)
		if err != nil {
			return nil, err
		}
		return &spareReader{z, s}, nil
	}
	if err := s.again(old, r); err != nil {
		s.Put(old)
		return nil, err
	}
	return &spareReader{old, s}, nil
}

// spareReader is a reader of spareReaders that is in use.
type spareReader struct {
	io.ReadCloser
	of *spareReaders
}

func (s *spareReader) Read(p []byte) (int, error) {
	if s.ReadCloser == nil {
		return 0, errors.New(s.of.name + ": read after close")
	}
	n, err := s.ReadCloser.Read(p)
	if errors.Is(err, zlib.ErrChecksum) {
		err = ErrChecksum // the same error as in other codecs
	}
	return n, err
}

func (s *spareReader) Close() error {
	if s.ReadCloser != nil {
		s.of.Put(s.ReadCloser)
		s.ReadCloser = nil
	}
	return nil
}

// appendBy returns the Append function of a codec that decodes from a reader. It uses inflate
// instead, which decodes a whole unit at once, if that succeeds.
func appendBy(decode func(io.Reader) (io.ReadCloser, error), inflate func(dst, src []byte) (int, error)) func(dst, stored []byte, size int) ([]byte, error) {
	return func(dst, stored []byte, size int) ([]byte, error) {
		dst, room, err := makeRoom(dst, size)
		if err != nil {
			return dst, err
		}
		if inflate != nil {
			if _, err := inflate(room, stored); err == nil {
				return dst[:len(dst)+size], nil
			}
		}
		d, err := decode(bytes.NewReader(stored))
		if err != nil {
			return dst, err
		}
		defer d.Close()
		return endUnit(dst, d, room)
	}
}

// endUnit fills room, which is the space after dst, with the content of d. The content must have
// exactly that size.
func endUnit(dst []byte, d io.Reader, room []byte) ([]byte, error) {
	switch n, err := io.ReadFull(d, room); err {
	case nil:
	case io.EOF, io.ErrUnexpectedEOF:
		return dst, fmt.Errorf("unit size: expected %d, found %d", len(room), n)
	default:
		return dst, err
	}
	// The checksum is compared at the end of the stream.
	var more [1]byte
	switch k, err := io.ReadFull(d, more[:]); {
	case k > 0:
		return dst, fmt.Errorf("unit size: expected %d, found more", len(room))
	case err != io.EOF:
		return dst, err
	}
	return dst[:len(dst)+len(room)], nil
}
