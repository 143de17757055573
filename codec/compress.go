package codec

import (
	"bufio"
	"errors"
	"io"
)

// Compress is the name of what the Unix command compress makes, in files that end with .Z: LZW without
// a checksum and without a mark at its end, so that an end too early may go unnoticed.
const Compress = "compress"

func init() {
	register(Compress, false, func(r io.Reader, _ int64) (io.Reader, error) { return newLZW(bufio.NewReader(r)) })
}

const (
	lzwLeast = 9 // bits of the first codes
	lzwMost  = 16
	lzwClear = 256 // in block mode, empties the table
)

var errLZW = errors.New("compress: a code that does not exist yet")

// lzw decodes. A code below 256 is a byte; each other code is that of an earlier one and a byte more.
// Codes become longer as the table grows. Eight codes of the same length are a group, and when the
// length changes, the rest of the group is skipped.
type lzw struct {
	r      *bufio.Reader
	most   uint // bits of the longest code
	block  bool
	bits   uint // of the next code
	buf    uint32
	have   uint // bits in buf
	group  int  // codes read of the group
	next   int  // code that is added next
	last   int  // the last code, or -1
	first  byte // of what the last code stands for
	before [1 << lzwMost]uint16
	add    [1 << lzwMost]byte
	out    []byte // in reverse order
	err    error
}

func newLZW(r *bufio.Reader) (*lzw, error) {
	var h [3]byte
	if _, err := io.ReadFull(r, h[:]); err != nil {
		return nil, unexpectedEnd(err)
	}
	l := &lzw{r: r, most: uint(h[2] & 0x1f), block: h[2]&0x80 != 0, bits: lzwLeast, next: lzwClear, last: -1}
	if h[0] != 0x1f || h[1] != 0x9d || h[2]&0x60 != 0 || l.most < lzwLeast || l.most > lzwMost {
		return nil, errors.New("compress: not its header")
	}
	if l.block {
		l.next++
	}
	return l, nil
}

func (l *lzw) Read(p []byte) (n int, err error) {
	for n < len(p) {
		if len(l.out) == 0 {
			if l.err == nil {
				l.err = l.decode()
			}
			if l.err != nil && n == 0 {
				return 0, l.err
			} else if l.err != nil {
				break
			}
		}
		for n < len(p) && len(l.out) > 0 {
			p[n] = l.out[len(l.out)-1]
			l.out = l.out[:len(l.out)-1]
			n++
		}
	}
	return n, nil
}

// code reads the next code.
func (l *lzw) code() (int, error) {
	for l.have < l.bits {
		b, err := l.r.ReadByte()
		if err != nil {
			return 0, err // fewer bits than a code are padding
		}
		l.buf |= uint32(b) << l.have
		l.have += 8
	}
	c := l.buf & (1<<l.bits - 1)
	l.buf, l.have, l.group = l.buf>>l.bits, l.have-l.bits, (l.group+1)%8
	return int(c), nil
}

// resize makes the following codes as long as that.
func (l *lzw) resize(bits uint) error {
	for l.group != 0 {
		if _, err := l.code(); err != nil {
			return err
		}
	}
	l.bits = bits
	return nil
}

// decode makes what the next code stands for.
func (l *lzw) decode() error {
	if l.next >= 1<<l.bits && l.bits < l.most {
		if err := l.resize(l.bits + 1); err != nil {
			return err
		}
	}
	c, err := l.code()
	if err != nil {
		return err
	}
	if c == lzwClear && l.block {
		l.next = lzwClear // the next code adds one that is not used
		return l.resize(lzwLeast)
	}
	l.out = l.out[:0]
	at := c
	switch {
	case c >= lzwClear && (l.last < 0 || c > l.next):
		return errLZW
	case c >= lzwClear && c == l.next: // what the last one stands for, and its first byte again
		l.out = append(l.out, l.first)
		at = l.last
	}
	for at >= lzwClear {
		l.out = append(l.out, l.add[at])
		at = int(l.before[at])
	}
	l.first = byte(at)
	l.out = append(l.out, l.first)
	if l.last >= 0 && l.next < 1<<l.most {
		l.before[l.next], l.add[l.next] = uint16(l.last), l.first
		l.next++
	}
	l.last = c
	return nil
}
