package hdf5

import (
	"bytes"
	"math"
)

// undefined is the address of what is not there.
const undefined = -1

// A cursor reads numbers, which are little endian, one after another. What is
// beyond the end is zeros: err tells of it once all is read.
type cursor struct {
	f     *File // says how long addresses and lengths are
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

// take returns the next n bytes, nil if there are fewer.
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

// size reads a number that counts bytes or things. What is too large for a file is
// the largest number.
func (c *cursor) size(n int) int64 { return int64(min(c.uint(n), math.MaxInt64)) }

func (c *cursor) length() int64 { return c.size(c.f.lengths) }

// addr reads an address and makes it one from the file's first byte on.
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

// text reads up to a zero byte, which it leaves out, and skips what makes the whole a
// multiple of pad.
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

// sign checks the four letters that a structure begins with, and its version.
func (c *cursor) sign(letters string, version byte) error {
	if b := c.take(4); string(b) != letters {
		return corrupt("expected %q, found %q", letters, b)
	}
	if v := c.u8(); v != version && !c.short {
		return unsupported("version %d of %q is not supported", v, letters)
	}
	return c.err()
}

// noSize is more than any file has.
const noSize = 1 << 62

// multiply returns a product of sizes, unless it is too large.
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
