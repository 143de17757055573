// Package scan parses numbers and texts in bytes that may say anything.
package scan

import (
	"encoding/binary"
	"math"
)

// A Scanner parses bytes. What it returns after an error is undefined.
type Scanner struct {
	B   []byte
	At  int
	Bad bool // an error
}

// Must makes the scan fail unless is is true.
func (c *Scanner) Must(is bool) { c.Bad = c.Bad || !is }

func (c *Scanner) Byte() byte {
	if c.At >= len(c.B) {
		c.Bad = true
		return 0
	}
	c.At++
	return c.B[c.At-1]
}

func (c *Scanner) Uvarint() uint64 {
	if c.At < len(c.B) && c.B[c.At] < 0x80 {
		c.At++
		return uint64(c.B[c.At-1])
	}
	v, n := binary.Uvarint(c.B[min(c.At, len(c.B)):])
	if n <= 0 {
		c.Bad = true
		return 0
	}
	c.At += n
	return v
}

func (c *Scanner) Varint() int64 {
	u := c.Uvarint()
	return int64(u>>1) ^ -int64(u&1)
}

// Size reads a number that is not negative.
func (c *Scanner) Size() int64 {
	v := c.Uvarint()
	c.Must(v <= math.MaxInt64)
	return int64(v & math.MaxInt64)
}

// Count reads the number of things of which each takes at least one byte.
func (c *Scanner) Count() int {
	n := c.Uvarint()
	if n > uint64(len(c.B)-c.At) {
		c.Bad = true
		return 0
	}
	return int(n)
}

func (c *Scanner) Bytes(n uint64) []byte {
	if c.Bad || n > uint64(len(c.B)-c.At) {
		c.Bad = true
		return nil
	}
	c.At += int(n)
	return c.B[c.At-int(n) : c.At]
}

// Text reads what AppendText has appended.
func (c *Scanner) Text() []byte { return c.Bytes(c.Uvarint()) }

// AppendText appends the length of a text, and the text.
func AppendText(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}
