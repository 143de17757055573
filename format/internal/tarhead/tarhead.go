// Package tarhead reads fields of tar headers, for the formats that are tars.
package tarhead

import (
	"bytes"
	"encoding/binary"
	"math"
)

// Sum is the checksum of a tar header, of 512 bytes: the sum of all of them, with its own
// bytes counted as spaces.
func Sum(b []byte) int64 {
	// Even and odd bytes are added in lanes of 16 bits, which have room for the sum of 128 bytes.
	const half = 0x00ff00ff00ff00ff
	var even, odd uint64
	for p := b[:512]; len(p) >= 16; p = p[16:] {
		x, y := binary.LittleEndian.Uint64(p), binary.LittleEndian.Uint64(p[8:])
		even += x&half + y&half
		odd += x>>8&half + y>>8&half
	}
	sums := even + odd
	sum := int64(sums&0xffff + sums>>16&0xffff + sums>>32&0xffff + sums>>48)
	for _, c := range b[148:156] {
		sum += ' ' - int64(c)
	}
	return sum
}

// Text is a field of a tar header up to its NUL.
func Text(b []byte) []byte {
	if i := bytes.IndexByte(b, 0); i >= 0 {
		return b[:i]
	}
	return b
}

// Number reads a field: octal digits, or if its first bit is set, a number in base 256, which is
// negative if its second bit is set.
func Number(b []byte) (int64, bool) {
	if b[0]&0x80 == 0 {
		return Octal(b)
	}
	var invert byte
	if b[0]&0x40 != 0 {
		invert = 0xff
	}
	var x uint64
	for i, c := range b {
		c ^= invert
		if i == 0 {
			c &= 0x7f
		}
		if x>>56 > 0 {
			return 0, false
		}
		x = x<<8 | uint64(c)
	}
	if x > math.MaxInt64 {
		return 0, false
	}
	if invert != 0 {
		return ^int64(x), true
	}
	return int64(x), true
}

// Octal reads digits among NULs and spaces. An empty field is 0.
func Octal(b []byte) (n int64, ok bool) {
	// Nearly all are digits up to a NUL.
	for i, c := range b {
		if d := c - '0'; d <= 7 {
			n = n<<3 | int64(d)
		} else if c == 0 && i > 0 {
			return n, true
		} else {
			break
		}
	}
	n = 0
	for len(b) > 0 && (b[0] == ' ' || b[0] == 0) {
		b = b[1:]
	}
	for len(b) > 0 && (b[len(b)-1] == ' ' || b[len(b)-1] == 0) {
		b = b[:len(b)-1]
	}
	for _, c := range b {
		if c == 0 {
			break
		}
		if c -= '0'; c > 7 {
			return 0, false
		}
		n = n<<3 | int64(c)
	}
	return n, true
}
