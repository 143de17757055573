package codec

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
	"math/bits"

	"github.com/ulikunitz/xz/lzma"
)

// Lzip is the name of one or more members of lzip, and LZMAFile that of the older format of LZMA, in
// files that end with .lzma.
const (
	Lzip     = "lzip"
	LZMAFile = "lzma-file"
)

func init() {
	register(Lzip, true, func(r io.Reader, most int64) (io.Reader, error) {
		return &lzipReader{in: counted{r: bufio.NewReader(r)}, most: most}, nil
	})
	register(LZMAFile, false, decodeLZMAFile)
}

// decodeLZMAFile reads a file of LZMA: a byte of settings, u32 the dictionary, u64 the size or FFFFFFFFFFFFFFFF
// if there is a mark at the end, and the compressed data.
func decodeLZMAFile(r io.Reader, most int64) (io.Reader, error) {
	var h [lzma.HeaderLen]byte
	if _, err := io.ReadFull(r, h[:]); err != nil {
		return nil, unexpectedEnd(err)
	}
	return newLZMA(bufio.NewReader(r), h, most)
}

// newLZMA reads a file of LZMA after its header.
func newLZMA(r io.ByteReader, head [lzma.HeaderLen]byte, most int64) (io.Reader, error) {
	dict, err := dictionary(int64(binary.LittleEndian.Uint32(head[1:])), most)
	if err != nil {
		return nil, err
	}
	binary.LittleEndian.PutUint32(head[1:], uint32(dict))
	z, err := lzma.NewReader(&afterHeader{bytes.NewReader(head[:]), r})
	return &lzmaReader{z, io.EOF}, err
}

// IsLZMAFile reports whether b begins like a file of LZMA. There is no magic number; as in other
// programs, the dictionary must have a usual size, and the content at most 256 GiB.
func IsLZMAFile(b []byte) bool {
	if len(b) < lzma.HeaderLen || b[0] >= 9*5*5 {
		return false
	}
	dict, size := binary.LittleEndian.Uint32(b[1:]), binary.LittleEndian.Uint64(b[5:])
	top := uint32(1) << (bits.Len32(dict|1) - 1)
	return dict >= lzma.MinDictCap && (dict == top || dict == top|top>>1) && (size < 1<<38 || size == 1<<64-1)
}

// lzipReader reads members:
//
//	"LZIP", u8 1, u8 the dictionary
//	a stream of LZMA with a mark at its end
//	u32 CRC-32, u64 size of the content, u64 size of the member
type lzipReader struct {
	in    counted
	most  int64
	z     io.Reader // nil between members
	begun int64     // where the member begins
	sum   uint32
	size  uint64
	err   error
}

const lzipMagic = "LZIP"

func (l *lzipReader) Read(p []byte) (n int, err error) {
	for l.err == nil && n == 0 && len(p) > 0 {
		if l.z == nil {
			l.err = l.begin()
			continue
		}
		n, err = l.z.Read(p)
		l.sum, l.size = crc32.Update(l.sum, crc32.IEEETable, p[:n]), l.size+uint64(n)
		if l.err = unexpectedEnd(err); err == io.EOF {
			l.err = l.end()
		}
	}
	if n > 0 {
		return n, nil
	}
	return 0, l.err
}

// begin reads the header of a member. Anything else after a member is ignored, as lzip does, unless it
// may be a damaged header.
func (l *lzipReader) begin() error {
	l.begun = l.in.n
	h, err := l.in.r.Peek(6)
	if l.begun > 0 && (len(h) == 0 || alike(h, lzipMagic) < 2) {
		if err == nil {
			err = io.EOF
		}
		return err
	}
	if err != nil {
		return unexpectedEnd(err)
	}
	if h, err = l.in.take(6); err != nil {
		return err
	}
	dict := int64(1) << (h[5] & 31)
	dict -= dict / 16 * int64(h[5]>>5)
	if string(h[:4]) != lzipMagic || h[4] != 1 || dict < lzma.MinDictCap {
		return errors.New("lzip: not the header of a member")
	}
	l.sum, l.size = 0, 0
	head := [lzma.HeaderLen]byte{lzma.Properties{LC: 3, PB: 2}.Code(), 5: 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}
	binary.LittleEndian.PutUint32(head[1:], uint32(dict))
	l.z, err = newLZMA(&l.in, head, l.most)
	return unexpectedEnd(err)
}

// alike returns how many bytes are the same.
func alike(b []byte, want string) (n int) {
	for i := range min(len(b), len(want)) {
		if b[i] == want[i] {
			n++
		}
	}
	return n
}

// end compares what follows a member.
func (l *lzipReader) end() error {
	l.z = nil
	b, err := l.in.take(20)
	if err != nil {
		return err
	}
	le := binary.LittleEndian
	if le.Uint32(b) != l.sum || le.Uint64(b[4:]) != l.size || le.Uint64(b[12:]) != uint64(l.in.n-l.begun) {
		return ErrChecksum
	}
	return nil
}

// afterHeader reads a header, and then exactly the bytes that are decoded.
type afterHeader struct {
	head *bytes.Reader
	r    io.ByteReader
}

func (a *afterHeader) Read(p []byte) (int, error) { return a.head.Read(p) }

func (a *afterHeader) ReadByte() (byte, error) { return a.r.ReadByte() }
