package hdf5

import (
	"bytes"
	"math"
)

// undefined is the address of something that does not exist.
const undefined = -1

// cursor reads consecutive little-endian numbers. Beyond the end it returns zeros; err reports
// that after everything has been read.
type cursor struct {
	f     *File // determines the sizes of addresses and lengths
	b     []byte
	at    int
	short bool
}

func (f *File) cursor(b []byte) *cursor { return &cursor{f: f, b: b} }

func (c *cursor) left() int { return len(c.b) - c.at }

func (c *cursor) err() error {
	if c.short {
		return corrupt("it ends early, after %d bytes", len(c.b))
	}
	return nil
}

// take returns the next n bytes, or nil if there are fewer.
func (c *cursor) take(n int64) []byte {
	if n < 0 || n > int64(c.left()) {
		c.short, c.at = true, len(c.b)
		return nil
	}
	b := c.b[c.at : c.at+int(n) : c.at+int(n)]
	c.at += int(n)
	return b
}

func (c *cursor) skip(n int64) { c.take(n) }

// uint reads a number of up to 8 bytes.
func (c *cursor) uint(size int) uint64 {
	var v uint64
	for i, b := range c.take(int64(size)) {
		v |= uint64(b) << (8 * i)
	}
	return v
}

func (c *cursor) u8() byte    { return byte(c.uint(1)) }
func (c *cursor) u16() uint16 { return uint16(c.uint(2)) }
func (c *cursor) u32() uint32 { return uint32(c.uint(4)) }

// size reads a size or a count. A value that is too large becomes the largest int64.
func (c *cursor) size(n int) int64 { return int64(min(c.uint(n), math.MaxInt64)) }

func (c *cursor) length() int64 { return c.size(c.f.lengths) }

// addr reads an address and converts it to an offset from the start of the file.
func (c *cursor) addr() int64 {
	v := c.uint(c.f.offsets)
	switch {
	case v == math.MaxUint64>>(64-8*c.f.offsets):
		return undefined
	case v > uint64(math.MaxInt64-c.f.Base):
		return math.MaxInt64
	}
	return int64(v) + c.f.Base
}

// text reads a string that a zero byte ends, and skips padding to a multiple of pad bytes.
func (c *cursor) text(pad int) string {
	n := bytes.IndexByte(c.b[c.at:], 0)
	if n < 0 {
		c.short, c.at = true, len(c.b)
		return ""
	}
	s := string(c.b[c.at : c.at+n])
	c.skip(int64(padded(n+1, pad)))
	return s
}

func padded(n, to int) int { return (n + to - 1) / to * to }

// sign checks the four letters and the version that a structure begins with.
func (c *cursor) sign(letters string, version byte) error {
	if b := c.take(4); string(b) != letters {
		return corrupt("expected %q, found %q", letters, b)
	}
	if v := c.u8(); v != version && !c.short {
		return unsupported("version %d of %q is not supported", v, letters)
	}
	return c.err()
}

// noSize is larger than any file.
const noSize = 1 << 62

// multiply returns the product of sizes. It reports false if the product is too large.
func multiply(a ...int64) (int64, bool) {
	n := int64(1)
	for _, x := range a {
		if x == 0 {
			return 0, true
		}
	}
	for _, x := range a {
		if x < 0 || n > math.MaxInt64/x {
			return 0, false
		}
		n *= x
	}
	return n, true
}
