package codec

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"hash/crc32"
	"hash/crc64"
	"io"
	"math"
	"slices"

	"github.com/ulikunitz/xz/lzma"
)

// XZ is the name of one or more xz streams in which each block has a checksum. XZPlain is that of
// streams whose blocks may have none.
const (
	XZ      = "xz"
	XZPlain = "xz-plain"
)

func init() {
	register(XZ, true, func(r io.Reader, most int64) (io.Reader, error) {
		return &xzReader{in: counted{r: bufio.NewReader(r)}, most: most, sums: true}, nil
	})
	register(XZPlain, false, func(r io.Reader, most int64) (io.Reader, error) { return NewXZ(r, most), nil })
}

// register registers a codec. Its decoder gets the largest possible size of the content, and need
// not remember more than that.
func register(name string, sums bool, decode func(io.Reader, int64) (io.Reader, error)) {
	told := func(most int64) func(io.Reader) (io.ReadCloser, error) {
		return func(r io.Reader) (io.ReadCloser, error) {
			d, err := decode(r, most)
			return io.NopCloser(d), err
		}
	}
	Register(Codec{Name: name, Sums: sums, Decode: told(math.MaxInt64), Append: func(dst, stored []byte, size int) ([]byte, error) {
		return appendBy(told(int64(size)), nil)(dst, stored, size)
	}})
}

// dictionary returns the size of the dictionary of an LZMA decoder.
func dictionary(asked, most int64) (int, error) {
	if asked = min(asked, most); asked > maxWindow {
		return 0, ErrWindow
	}
	return int(max(asked, lzma.MinDictCap)), nil
}

// NewXZ returns a reader of the content of xz streams, which must have at most that many bytes.
// If a filter or checksum is not supported, the error of its Read wraps [errors.ErrUnsupported].
func NewXZ(r io.Reader, most int64) io.Reader {
	return &xzReader{in: counted{r: bufio.NewReader(r)}, most: most}
}

// counted counts the bytes that are read.
type counted struct {
	r   *bufio.Reader
	n   int64
	sum hash.Hash32 // of bytes read by ReadByte, unless it is nil
}

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n += int64(n)
	return n, err
}

func (c *counted) ReadByte() (byte, error) {
	b, err := c.r.ReadByte()
	if err == nil {
		c.n++
		if c.sum != nil {
			_, _ = c.sum.Write([]byte{b})
		}
	}
	return b, err
}

// take returns the next n bytes.
func (c *counted) take(n int) ([]byte, error) {
	b := make([]byte, n)
	_, err := io.ReadFull(c, b)
	return b, unexpectedEnd(err)
}

var (
	xzMagic = []byte("\xfd7zXZ\x00")
	xzSums  = map[byte]func() hash.Hash{
		0:  func() hash.Hash { return nil },
		1:  func() hash.Hash { return crc32.NewIEEE() },
		4:  func() hash.Hash { return crc64.New(crc64.MakeTable(crc64.ECMA)) },
		10: sha256.New,
	}
)

// xzReader reads streams. It parses the container itself, because the library allocates whatever
// dictionary a block requests.
type xzReader struct {
	in    counted
	most  int64
	sums  bool // checksums are required
	flags [2]byte
	some  bool // a stream has been read
	open  bool // within a stream
	block *lzma.Reader2
	begun int64 // where the content of the block begins
	sum   hash.Hash
	err   error
}

func (x *xzReader) Read(p []byte) (n int, err error) {
	for x.err == nil && n == 0 && len(p) > 0 {
		switch {
		case !x.open:
			x.err = x.begin()
		case x.block == nil:
			x.err = x.next()
		default:
			n, err = x.block.Read(p)
			if x.sum != nil {
				x.sum.Write(p[:n])
			}
			if x.err = unexpectedEnd(err); err == io.EOF && x.block.EOS() {
				x.err = x.end()
			}
		}
	}
	if n > 0 {
		return n, nil
	}
	return 0, x.err
}

// begin reads the header of a stream. Zeros may precede it, except before the first stream.
func (x *xzReader) begin() error {
	for x.some {
		if b, err := x.in.r.Peek(1); err != nil {
			return err
		} else if b[0] != 0 {
			break
		}
		_, _ = x.in.r.Discard(1)
	}
	h, err := x.in.take(12)
	if err != nil {
		return err
	}
	if !bytes.HasPrefix(h, xzMagic) || crc32.ChecksumIEEE(h[6:8]) != binary.LittleEndian.Uint32(h[8:]) {
		return errors.New("xz: not an xz stream")
	}
	x.flags, x.some, x.open = [2]byte(h[6:8]), true, true
	sum, ok := xzSums[h[7]]
	if !ok || x.sums && h[7] == 0 {
		return fmt.Errorf("xz: a checksum of kind %d: %w", h[7], errors.ErrUnsupported)
	}
	x.sum = sum()
	return nil
}

// next begins a block, or reads what follows the last one. The header of a block has its length,
// flags, up to two lengths according to the flags, filters, zeros and a CRC-32.
func (x *xzReader) next() error {
	start := x.in.n
	n, err := x.in.ReadByte()
	if err != nil {
		return unexpectedEnd(err)
	}
	if n == 0 {
		x.open = false
		return x.index(start)
	}
	head, err := x.in.take(4*int(n) + 3)
	if err != nil {
		return err
	}
	head = append([]byte{n}, head...)
	r := bytes.NewReader(head[2 : len(head)-4])
	if crc32.ChecksumIEEE(head[:len(head)-4]) != binary.LittleEndian.Uint32(head[len(head)-4:]) {
		return errors.New("xz: the header of a block is damaged")
	}
	for _, has := range []byte{0x40, 0x80} {
		if head[1]&has != 0 {
			_, err = binary.ReadUvarint(r)
		}
	}
	const lzma2, settings = 0x21, 1
	filter := [3]byte{}
	if _, rerr := io.ReadFull(r, filter[:]); err != nil || rerr != nil || head[1]&3 != 0 || filter[0] != lzma2 || filter[1] != settings {
		return fmt.Errorf("xz: a filter other than LZMA2: %w", errors.ErrUnsupported)
	}
	asked, err := lzma.DecodeDictCap(filter[2])
	if err != nil {
		return err
	}
	dict, err := dictionary(asked, x.most)
	if err != nil {
		return err
	}
	if x.sum != nil {
		x.sum.Reset()
	}
	x.begun = x.in.n
	x.block, err = lzma.Reader2Config{DictCap: dict}.NewReader2(&x.in)
	return err
}

// end reads what follows the content of a block: zeros and its checksum.
func (x *xzReader) end() error {
	x.block = nil
	if _, err := x.in.take(int(-(x.in.n - x.begun) & 3)); err != nil || x.sum == nil {
		return err
	}
	want, err := x.in.take(x.sum.Size())
	if err != nil {
		return err
	}
	got := x.sum.Sum(nil)
	if len(got) < sha256.Size {
		slices.Reverse(got) // CRCs are stored in the other byte order
	}
	if !bytes.Equal(got, want) {
		return ErrChecksum
	}
	return nil
}

// index reads the index, which repeats the lengths of the blocks, and the end of the stream.
func (x *xzReader) index(start int64) error {
	sum := crc32.NewIEEE()
	_, _ = sum.Write([]byte{0})
	x.in.sum = sum
	n, err := binary.ReadUvarint(&x.in)
	for i := uint64(0); err == nil && i < 2*n && n < 1<<62; i++ {
		_, err = binary.ReadUvarint(&x.in)
	}
	for err == nil && (x.in.n-start)&3 != 0 {
		_, err = x.in.ReadByte()
	}
	x.in.sum = nil
	if err != nil {
		return unexpectedEnd(err)
	}
	size := x.in.n - start
	b, err := x.in.take(4 + 12)
	if err != nil {
		return err
	}
	le := binary.LittleEndian
	if le.Uint32(b) != sum.Sum32() || le.Uint32(b[4:]) != crc32.ChecksumIEEE(b[8:14]) || 4*int64(le.Uint32(b[8:])) != size ||
		!bytes.Equal(b[12:14], x.flags[:]) || string(b[14:]) != "YZ" {
		return errors.New("xz: its index or its end is damaged")
	}
	return nil
}
