// Package tarhead reads fields of tar headers, for the formats that are tars.
package tarhead

import (
	"bytes"
	"context"
	"encoding/binary"
	"math"
)

// Len is the length of a header, which the content of a file is padded to.
const Len = 512

const magicAt = 257

// In returns where the first block of b begins that has the magic number of a header and is accepted,
// at any offset, or -1.
func In(b []byte, accept func(i int) bool) int {
	for i := 0; i+Len <= len(b); i++ {
		n := bytes.Index(b[i+magicAt:], []byte("ustar"))
		if i += max(n, 0); n < 0 || i+Len > len(b) {
			break
		}
		if accept(i) {
			return i
		}
	}
	return -1
}

type object interface {
	ReadAt(ctx context.Context, p []byte, off int64) error
}

// Find returns where the first header begins that is accepted, at any offset from from on and before
// to, or -1. Bytes before it may have been inserted or lost.
func Find(ctx context.Context, obj object, size, from, to int64, accept func(b []byte, at int64) bool) (int64, error) {
	const window = 256 << 10
	buf := make([]byte, window+Len-1)
	for ; from < min(to, size-Len+1); from += window {
		if ctx.Err() != nil {
			return -1, context.Cause(ctx)
		}
		b := buf[:min(int64(len(buf)), size-from)]
		if err := obj.ReadAt(ctx, b, from); err != nil {
			return -1, err
		}
		i := In(b, func(i int) bool { return from+int64(i) < to && accept(b[i:i+Len], from+int64(i)) })
		if i >= 0 {
			return from + int64(i), nil
		}
	}
	return -1, nil
}

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

// Octal reads digits among spaces, up to a NUL. One NUL may be in front of them, as old programs have
// it. After two of them, other programs read nothing more, so neither does this. An empty field is 0.
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
	if len(b) > 0 && b[0] == 0 {
		b = b[1:]
	}
	for _, c := range bytes.Trim(Text(b), " ") {
		if c -= '0'; c > 7 {
			return 0, false
		}
		n = n<<3 | int64(c)
	}
	return n, true
}
