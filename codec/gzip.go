package codec

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"
)

// Gzip is the name of one or more consecutive gzip members.
const Gzip = "gzip"

func init() {
	Register(Codec{Name: Gzip, Sums: true, Decode: decodeGzip, Append: appendBy(decodeGzip, nil), DecodeFrom: decodeGzipFrom, Points: gzipPoints})
}

var (
	errGzipClosed = errors.New("gzip: read after close")
	errGzipHeader = errors.New("gzip: expected the header of a member")
	errGzipPoint  = errors.New("gzip: invalid decoding point")
)

// A GzipMember reads the content of one gzip member. It reads nothing after the member.
type GzipMember struct {
	s       *inflateStream
	r       *bufio.Reader
	err     error
	between func(*GzipMember) error // called between blocks
}

// inflateStreams are unused streams.
var inflateStreams = sync.Pool{New: func() any { return newInflateStream() }}

func newGzipMember(r *bufio.Reader) *GzipMember {
	m := &GzipMember{s: inflateStreams.Get().(*inflateStream), r: r}
	m.s.reset(r)
	return m
}

// NewGzipMember returns the next member in r. The buffer of r must have room for 4 KiB. The
// caller must close the member.
func NewGzipMember(r *bufio.Reader) (*GzipMember, error) {
	m := newGzipMember(r)
	if err := m.begin(); err != nil {
		_ = m.Close()
		return nil, err
	}
	return m, nil
}

// Flags in the header of a member.
const (
	gzipHeaderSum = 1 << 1
	gzipExtra     = 1 << 2
	gzipName      = 1 << 3
	gzipComment   = 1 << 4
)

// begin reads a header:
//
//	1F 8B 08, u8 flags, u32 time, u8, u8 system
//	u16 n, n bytes     if there is an extra field
//	texts with 00      name, comment
//	u16                checksum of the header
func (m *GzipMember) begin() error {
	h, err := m.r.Peek(10)
	if err != nil {
		return unexpectedEnd(err)
	}
	if h[0] != 0x1F || h[1] != 0x8B || h[2] != 8 {
		return errGzipHeader
	}
	flags, taken := h[3], int64(10)
	_, _ = m.r.Discard(10)
	skip := func(n int) error {
		k, err := m.r.Discard(n)
		taken += int64(k)
		return unexpectedEnd(err)
	}
	if flags&gzipExtra != 0 {
		n, err := m.r.Peek(2)
		if err != nil {
			return unexpectedEnd(err)
		}
		if err := skip(2 + int(binary.LittleEndian.Uint16(n))); err != nil {
			return err
		}
	}
	for _, text := range []byte{gzipName, gzipComment} {
		for end := flags&text == 0; !end; taken++ {
			b, err := m.r.ReadByte()
			if err != nil {
				return unexpectedEnd(err)
			}
			end = b == 0
		}
	}
	if flags&gzipHeaderSum != 0 {
		if err := skip(2); err != nil {
			return err
		}
	}
	m.s.read = taken
	return nil
}

// fill decodes until there is unread content. At the end of the content it compares the checksum.
func (m *GzipMember) fill() error {
	for m.err == nil && m.s.given == m.s.d.out {
		if m.between != nil && m.s.block == blockNone {
			if m.err = m.between(m); m.err != nil {
				break
			}
		}
		if m.err = m.s.more(); m.err == io.EOF {
			m.err = m.end()
		}
	}
	return m.err
}

// end reads what follows a member's content: its CRC-32, and its length modulo 2^32.
func (m *GzipMember) end() error {
	b, err := m.r.Peek(8)
	if err != nil {
		return unexpectedEnd(err)
	}
	sum, size := binary.LittleEndian.Uint32(b), binary.LittleEndian.Uint32(b[4:])
	_, _ = m.r.Discard(8)
	m.s.read += 8
	if sum != m.s.crc || size != uint32(m.s.size) {
		return ErrChecksum
	}
	return io.EOF
}

// Read implements [io.Reader]. At the end of the content it compares the checksum, and fails with
// [ErrChecksum] if it is wrong.
func (m *GzipMember) Read(p []byte) (int, error) {
	if err := m.fill(); err != nil {
		return 0, err
	}
	n := copy(p, m.s.rest())
	m.s.given += n
	return n, nil
}

// Close releases the member.
func (m *GzipMember) Close() error {
	if m.s == nil {
		return nil
	}
	m.s.reset(nil)
	inflateStreams.Put(m.s)
	*m = GzipMember{err: errGzipClosed}
	return nil
}

// gzipStream reads members. It reads nothing before the first call of Read.
type gzipStream struct {
	from  io.Reader
	point *Point // where to begin; nil for the beginning
	r     *bufio.Reader
	m     *GzipMember
	err   error

	before int64 // bytes read of members that have ended
	at     int64 // content of these members
	found  func(*gzipStream) error
}

// gzipBuffers are unused buffered readers.
var gzipBuffers = sync.Pool{New: func() any { return bufio.NewReaderSize(nil, inflateBuffer) }}

func decodeGzip(r io.Reader) (io.ReadCloser, error) { return &gzipStream{from: r}, nil }

func decodeGzipFrom(r io.Reader, p Point) (io.ReadCloser, error) {
	return &gzipStream{from: r, point: &p}, nil
}

func (s *gzipStream) Read(p []byte) (int, error) {
	for s.err == nil {
		if s.m == nil {
			if s.err = s.begin(); s.err != nil {
				break
			}
		}
		n, err := s.m.Read(p)
		if n > 0 || err == nil {
			return n, nil
		}
		if err != io.EOF {
			s.err = err
			break
		}
		s.before, s.at = s.before+s.m.s.read, s.at+s.m.s.size
		_ = s.m.Close()
		s.m = nil
		if _, err := s.r.Peek(1); err != nil {
			s.err = err // the stream may end where a member ends
		}
	}
	return 0, s.err
}

// begin begins a member, or continues one at a point.
func (s *gzipStream) begin() (err error) {
	if s.r == nil {
		s.r = gzipBuffers.Get().(*bufio.Reader)
		s.r.Reset(s.from)
		if s.point != nil {
			s.m, err = gzipMemberFrom(s.r, s.point)
			return err
		}
	}
	s.m, err = NewGzipMember(s.r)
	if err == nil && s.found != nil {
		s.m.between = func(*GzipMember) error { return s.found(s) }
	}
	return err
}

func (s *gzipStream) Close() error {
	if s.m != nil {
		_ = s.m.Close()
	}
	if s.r != nil {
		s.r.Reset(nil)
		gzipBuffers.Put(s.r)
	}
	*s = gzipStream{err: errGzipClosed}
	return nil
}

// The state of a point of gzip is
//
//	u8 bits of the first byte that are used, u32 CRC-32 of the member's content before
//	it, u64 the length of that content, at most 32 KiB of its end
const gzipStateLen = 1 + 4 + 8

func (s *inflateStream) state() []byte {
	_, bits := s.place()
	b := binary.LittleEndian.AppendUint32([]byte{bits}, s.crc)
	b = binary.LittleEndian.AppendUint64(b, uint64(s.size))
	return append(b, s.window()...)
}

func gzipMemberFrom(r *bufio.Reader, p *Point) (*GzipMember, error) {
	b := p.State
	if len(b) < gzipStateLen || len(b) > gzipStateLen+inflateWindow || b[0] > 7 {
		return nil, errGzipPoint
	}
	m := newGzipMember(r)
	m.s.crc, m.s.size = binary.LittleEndian.Uint32(b[1:]), int64(binary.LittleEndian.Uint64(b[5:])&(1<<62-1))
	return m, m.s.goOn(b[0], b[gzipStateLen:])
}

// gzipPoints finds points between blocks.
func gzipPoints(r io.Reader, every int64, found func(Point) error) (int64, error) {
	s := &gzipStream{from: r}
	defer s.Close()
	next := every
	s.found = func(s *gzipStream) error {
		at := s.at + s.m.s.size
		if at < next {
			return nil
		}
		next = at + every
		off, _ := s.m.s.place()
		return found(Point{At: at, Off: s.before + off, State: s.m.s.state()})
	}
	n, err := io.Copy(io.Discard, struct{ io.Reader }{s})
	if err != nil {
		return n, fmt.Errorf("after %d bytes: %w", n, err)
	}
	return n, nil
}
