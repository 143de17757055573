package codec

import (
	"bufio"
	"encoding/binary"
	"hash/crc32"
	"io"
)

// An inflateStream decodes DEFLATE from a reader, with the same loops as inflate. Between two
// blocks it can return everything that is needed to continue from there later.
type inflateStream struct {
	r    *bufio.Reader
	err  error // the error of r, after which no more can be read
	read int64 // bytes read from r since the beginning

	d     inflateState
	z     *inflater
	block blockKind
	codes *inflateTables // tables of the current block, if it is compressed
	plain int            // remaining bytes of a stored block
	last  bool           // the current block is the last
	given int            // bytes of d.dst that have been returned
	size  int64          // size of the decoded content
	crc   uint32         // CRC-32 of the decoded content
}

type blockKind int8

const (
	blockNone blockKind = iota // a header comes next
	blockPlain
	blockCodes
	blockOver // the end of the stream
)

const (
	inflateWindow = 32 << 10  // how far back a stream may refer
	inflateRoomed = 128 << 10 // decoded at a time
	inflateBuffer = 128 << 10 // read at a time
	// headerIn is more than the longest header of a block with its tables: 17 bits, 19 lengths of
	// 3 bits, and 316 of up to 14 bits.
	headerIn = 1 << 10
)

func newInflateStream() *inflateStream {
	return &inflateStream{z: new(inflater), d: inflateState{dst: make([]byte, inflateWindow+inflateRoomed)}}
}

// reset prepares for another stream.
func (s *inflateStream) reset(r *bufio.Reader) {
	*s = inflateStream{r: r, z: s.z, d: inflateState{z: s.z, dst: s.d.dst, stream: true}}
}

// goOn starts in the middle of a stream, after the content that ends with window. The given
// number of bits of the first byte has been used already.
func (s *inflateStream) goOn(bits uint8, window []byte) error {
	s.d.out = copy(s.d.dst, window)
	s.given = s.d.out
	if bits == 0 {
		return nil
	}
	b, err := s.r.ReadByte()
	if err != nil {
		return unexpectedEnd(err)
	}
	s.read++
	s.d.buf, s.d.have = uint64(b>>bits), 8-int(bits)
	return nil
}

// place returns the position of the next bit: the offset of its byte since the beginning, and the
// number of bits of that byte that have been used. It is valid between blocks.
func (s *inflateStream) place() (off int64, bits uint8) {
	if s.d.have == 0 {
		return s.read, 0
	}
	return s.read - 1, uint8(8 - s.d.have)
}

// window returns the content that the next bytes may refer to.
func (s *inflateStream) window() []byte {
	return s.d.dst[max(0, s.d.out-inflateWindow):s.d.out]
}

// rest returns decoded content that has not been returned yet.
func (s *inflateStream) rest() []byte { return s.d.dst[s.given:s.d.out] }

// more decodes until there is content, the next block begins, or the stream ends, which is
// io.EOF. All earlier content must have been returned.
func (s *inflateStream) more() error {
	d := &s.d
	if s.block == blockOver {
		return io.EOF
	}
	if len(d.dst)-d.out < turnOut+leastOut {
		d.out = copy(d.dst, s.window())
		s.given = d.out
	}
	var src []byte
	if s.err == nil && s.r.Buffered() < headerIn {
		src, s.err = s.r.Peek(headerIn)
	}
	if n := s.r.Buffered(); n > len(src) {
		src, _ = s.r.Peek(n)
	}
	d.src, d.in, d.last = src, 0, s.err != nil
	from := d.out
	ok := s.step()
	if d.have < 0 {
		return s.cut()
	}
	d.tidy()
	_, _ = s.r.Discard(d.in) // the bytes are in the buffer
	s.read += int64(d.in)
	s.size += int64(d.out - from)
	s.crc = crc32.Update(s.crc, crc32.IEEETable, d.dst[from:d.out])
	if !ok {
		if d.last && len(src) == d.in {
			return s.cut()
		}
		return errInflate
	}
	return nil
}

// cut returns the error for a stream that ends early.
func (s *inflateStream) cut() error {
	if s.err == nil {
		return errInflate
	}
	return unexpectedEnd(s.err)
}

// step continues the current block, or reads the header of the next one.
func (s *inflateStream) step() bool {
	d := &s.d
	switch s.block {
	case blockNone:
		return s.header()
	case blockPlain:
		n := min(s.plain, len(d.src), len(d.dst)-d.out)
		copy(d.dst[d.out:], d.src[:n])
		d.in, d.out = n, d.out+n
		if s.plain -= n; s.plain == 0 {
			s.ends()
		}
		return n > 0 || s.plain == 0
	}
	switch d.codes(s.codes) {
	case blockBad:
		return false
	case blockEnds:
		s.ends()
	}
	return true
}

func (s *inflateStream) ends() {
	if s.block = blockNone; s.last {
		s.block = blockOver
	}
}

func (s *inflateStream) header() bool {
	d := &s.d
	d.fill()
	s.last = d.buf&1 != 0
	kind := d.buf >> 1 & 3
	d.drop(3)
	switch kind {
	case 0:
		if d.have < 0 {
			return false
		}
		d.tidy()
		d.buf, d.have = 0, 0
		if len(d.src)-d.in < 4 {
			d.in = len(d.src)
			return false
		}
		n, inverse := binary.LittleEndian.Uint16(d.src[d.in:]), binary.LittleEndian.Uint16(d.src[d.in+2:])
		d.in += 4
		s.block, s.plain = blockPlain, int(n)
		if n == 0 {
			s.ends()
		}
		return n == ^inverse
	case 1:
		s.block, s.codes = blockCodes, fixedTables()
		return true
	case 2:
		s.block, s.codes = blockCodes, &s.z.inflateTables
		return d.tables()
	}
	return false
}

func unexpectedEnd(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}
