package caf

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"math/bits"
	"unicode/utf8"
)

var (
	rowStart  = []byte(`:{"start_byte":`)
	rowEnd    = []byte(`,"end_byte":`)
	rowBlake3 = []byte(`,"blake3":"`)
)

// fastRow reads a row that is completely in the buffer and written as known writers do. Otherwise
// it returns false and reads nothing.
func (s *scanner) fastRow() bool {
	b := s.buf[s.r:]
	if len(b) < 2 || b[0] != '"' {
		return false
	}
	n, high := plainPrefix(b[1:])
	if 1+n >= len(b) || b[1+n] != '"' {
		return false
	}
	name := b[1 : 1+n]
	b = b[n+2:]
	if len(b) < len(rowStart) || !bytes.Equal(b[:len(rowStart)], rowStart) {
		return false
	}
	b = b[len(rowStart):]
	start, k := digits(b)
	if k == 0 {
		return false
	}
	b = b[k:]
	if len(b) < len(rowEnd) || !bytes.Equal(b[:len(rowEnd)], rowEnd) {
		return false
	}
	b = b[len(rowEnd):]
	end, k := digits(b)
	if k == 0 || k >= len(b) {
		return false
	}
	b = b[k:]
	var digest []byte
	if b[0] == ',' && !bytes.HasPrefix(b, rowObject) {
		const long = 11 + 2*digestLen + 2
		if len(b) < long || !bytes.Equal(b[:len(rowBlake3)], rowBlake3) || b[long-2] != '"' {
			return false
		}
		if _, err := hex.Decode(s.digest[:], b[len(rowBlake3):len(rowBlake3)+2*digestLen]); err != nil {
			return false
		}
		digest = s.digest[:]
		b = b[long-1:]
	}
	var x object
	if b[0] == ',' && bytes.HasPrefix(b, rowObject) {
		b = b[len(rowObject):]
		if k, s.etag = x.objectIn(b, s.etag); k == 0 || k >= len(b) {
			return false
		}
		b = b[k:]
	}
	if b[0] != '}' {
		return false
	}
	var odd oddity
	if high {
		odd = oddName(name)
	}
	s.row = row{name: name, start: start, end: end, off: s.at(), odd: odd, digest: digest, object: x}
	s.r = len(s.buf) - len(b) + 1
	return true
}

// plainPrefix returns the number of bytes of b before the first quote, backslash or control
// character, and whether any of them is not ASCII. It tests eight bytes at a time.
func plainPrefix(b []byte) (n int, high bool) {
	const ones, tops = 0x0101010101010101, 0x8080808080808080
	zero := func(x uint64) uint64 { return (x - ones) &^ x & tops }
	var highs uint64
	for ; n+8 <= len(b); n += 8 {
		x := binary.LittleEndian.Uint64(b[n:])
		if stop := zero(x^ones*'"') | zero(x^ones*'\\') | (x-ones*0x20)&^x&tops; stop != 0 {
			k := bits.TrailingZeros64(stop) / 8
			highs |= x & (1<<(8*k) - 1)
			return n + k, highs&tops != 0
		}
		highs |= x
	}
	for ; n < len(b); n++ {
		c := b[n]
		if c == '"' || c == '\\' || c < 0x20 {
			break
		}
		highs |= uint64(c)
	}
	return n, highs&tops != 0
}

// digits parses an integer of at most 18 digits. If k is 0, the value must be parsed in another
// way. Offsets usually have at least eight digits, and eight are parsed at a time.
func digits(b []byte) (v int64, k int) {
	if len(b) < 24 {
		return fewDigits(b)
	}
	x := binary.LittleEndian.Uint64(b)
	n := leadingDigits(x)
	v, k = int64(eightDigits(x<<(64-8*n))), n
	if n == 0 {
		return 0, 0
	}
	if n == 8 {
		for k < 19 {
			c := b[k] - '0'
			if c > 9 {
				break
			}
			v = v*10 + int64(c)
			k++
		}
	}
	if k == 19 || k > 1 && b[0] == '0' {
		return 0, 0
	}
	return v, k
}

// leadingDigits counts the digits at the beginning of the eight bytes of x.
func leadingDigits(x uint64) int {
	const each = 0x0101010101010101
	// The top bit of a byte is set if the byte is below '0' or above '9'.
	other := ((x - each*'0') | (x + each*(0x7f-'9')) | x) & (each * 0x80)
	return bits.TrailingZeros64(other) / 8
}

// eightDigits returns the number with the digits in x, the first digit in the lowest byte. Zero
// bytes count as leading zeros.
func eightDigits(x uint64) uint64 {
	x &= 0x0f0f0f0f0f0f0f0f
	x = x*10 + x>>8 // pairs, in every second byte
	return ((x&0x000000ff000000ff)*(100+(1000000<<32)) + (x>>16&0x000000ff000000ff)*(1+(10000<<32))) >> 32
}

func fewDigits(b []byte) (v int64, k int) {
	for k < len(b) && k < 19 {
		c := b[k] - '0'
		if c > 9 {
			break
		}
		v = v*10 + int64(c)
		k++
	}
	if k == 19 || k == len(b) || k > 1 && b[0] == '0' {
		return 0, 0
	}
	return v, k
}

func oddName(name []byte) (odd oddity) {
	if !utf8.Valid(name) {
		odd |= notUTF8
	}
	if bytes.Contains(name, []byte("�")) {
		odd |= replaced
	}
	return odd
}
