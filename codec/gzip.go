package codec

import (
	"bytes"
	"errors"
	"io"
	"sync"

	"github.com/klauspost/compress/gzip"
)

// Gzip content is one or more members of gzip, one behind the other.
const Gzip = "gzip"

func init() {
	Register(Codec{Name: Gzip, Decode: decodeGzip, Append: appendGzip})
}

var errGzipClosed = errors.New("gzip: read after close")

// unzippers are readers that nobody uses.
var unzippers sync.Pool

func decodeGzip(r io.Reader) (io.ReadCloser, error) {
	z, _ := unzippers.Get().(*gzip.Reader)
	if z == nil {
		z = new(gzip.Reader)
	}
	return &gzipStream{z: z, from: r}, nil
}

// gzipStream reads nothing before somebody reads from it.
type gzipStream struct {
	z    *gzip.Reader
	from io.Reader
	err  error
}

func (s *gzipStream) Read(p []byte) (int, error) {
	if s.from != nil {
		// A whole header there must be; that it is not there is an early end.
		if s.err = s.z.Reset(s.from); s.err == io.EOF {
			s.err = io.ErrUnexpectedEOF
		}
		s.from = nil
	}
	if s.err != nil {
		return 0, s.err
	}
	return s.z.Read(p)
}

func (s *gzipStream) Close() error {
	if s.z != nil {
		unzippers.Put(s.z)
	}
	s.z, s.from, s.err = nil, nil, errGzipClosed
	return nil
}

func appendGzip(dst, stored []byte, size int) ([]byte, error) {
	dst, room, err := makeRoom(dst, size)
	if err != nil {
		return dst, err
	}
	d, err := decodeGzip(bytes.NewReader(stored))
	if err != nil {
		return dst, err
	}
	defer d.Close()
	return endUnit(dst, d, room)
}
