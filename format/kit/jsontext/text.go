package jsontext

import (
	"bytes"
	"encoding/binary"
	"math/bits"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// String reads a string and returns what is between its quotes: its text if Escaped is false.
// AppendText makes the text of any.
func (s *Scanner) String() []byte {
	if s.Space() != '"' {
		s.Escaped, s.High = false, false
		s.Want("a string")
		return nil
	}
	return s.str()
}

// str is String at a quote.
func (s *Scanner) str() []byte {
	s.Escaped, s.High = false, false
	n, high := Plain(s.Buf[s.At+1:])
	if end := s.At + 1 + n; end < len(s.Buf) && s.Buf[end] == '"' && !high { // as nearly always
		text := s.Buf[s.At+1 : end]
		s.At = end + 1
		return text
	}
	from := s.Mark()
	for s.At++; ; {
		n, high := Plain(s.Buf[s.At:])
		s.High = s.High || high
		s.At += n
		if s.At >= len(s.Buf) && !s.Ensure(1) {
			s.Fail("")
			return nil
		}
		switch c := s.Buf[s.At]; {
		case c == '"':
			text := s.Since(from)[1:]
			if s.UTF8 && s.High && !utf8.Valid(text) {
				s.notUTF8(text)
				return nil
			}
			s.At++
			s.Release()
			return text
		case c == '\\':
			s.escape()
		case c < ' ':
			s.Want("control characters to be escaped")
		}
	}
}

// notUTF8 fails at the first byte of a string that is not UTF-8.
func (s *Scanner) notUTF8(text []byte) {
	i := 0
	for {
		r, n := utf8.DecodeRune(text[i:])
		if r == utf8.RuneError && n == 1 {
			break
		}
		i += n
	}
	s.At -= len(text) - i
	s.Want("UTF-8")
}

func (s *Scanner) escape() {
	s.Escaped = true
	if s.Ensure(2) && s.Buf[s.At+1] == 'u' && !s.Ensure(6) || len(s.Buf)-s.At < 2 {
		s.At = len(s.Buf)
		s.Fail("")
		return
	}
	n := escapeLen(s.Buf[s.At:])
	if n == 0 {
		s.Want("an escape")
	}
	s.At += n
}

// escapeLen returns the length of the escape at the beginning of b, or 0 if it is not valid.
func escapeLen(b []byte) int {
	if b[1] == 'u' {
		if _, ok := unit(b[2:6]); ok {
			return 6
		}
	} else if _, ok := Unescaped(b[1]); ok {
		return 2
	}
	return 0
}

// unit returns the unit of UTF-16 that four hexadecimal digits are.
func unit(b []byte) (r rune, ok bool) {
	for _, c := range b {
		i := strings.IndexByte("0123456789abcdef", c|0x20)
		if i < 0 || c < '0' || c > '9' && c < 'A' {
			return 0, false
		}
		r = r<<4 | rune(i)
	}
	return r, true
}

// Unescaped returns the meaning of a letter after a backslash in a string, if it means a single
// byte.
func Unescaped(c byte) (byte, bool) {
	i := strings.IndexByte(`"\/bfnrt`, c)
	if i < 0 {
		return 0, false
	}
	return "\"\\/\b\f\n\r\t"[i], true
}

// AppendText appends the text of a string that String returned. half tells that it has the escape
// of half a surrogate pair, which means no character. If keep is true, it becomes the three bytes
// that UTF-8 would have for it, so that different strings stay different; otherwise U+FFFD.
func AppendText(p, raw []byte, keep bool) (_ []byte, half bool) {
	for {
		i := bytes.IndexByte(raw, '\\')
		if i < 0 {
			return append(p, raw...), half
		}
		p, raw = append(p, raw[:i]...), raw[i:]
		if raw[1] != 'u' {
			c, _ := Unescaped(raw[1])
			p, raw = append(p, c), raw[2:]
			continue
		}
		r, _ := unit(raw[2:6])
		raw = raw[6:]
		if utf16.IsSurrogate(r) {
			if len(raw) >= 6 && raw[0] == '\\' && raw[1] == 'u' {
				low, _ := unit(raw[2:6])
				if both := utf16.DecodeRune(r, low); both != utf8.RuneError {
					p, raw = utf8.AppendRune(p, both), raw[6:]
					continue
				}
			}
			if half = true; keep {
				p = append(p, 0xe0|byte(r>>12), 0x80|byte(r>>6)&0xbf, 0x80|byte(r)&0xbf)
				continue
			}
		}
		p = utf8.AppendRune(p, r) // U+FFFD for half a pair
	}
}

// Plain returns the number of bytes of b before the first quote, backslash or control character,
// and whether any of them is not ASCII. It tests eight bytes at a time.
func Plain(b []byte) (n int, high bool) {
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

// Number reads a number and returns its text.
func (s *Scanner) Number() []byte {
	s.Space()
	return s.number()
}

// number is Number after white space.
func (s *Scanner) number() []byte {
	i := s.At
	for i < len(s.Buf) && s.Buf[i]-'0' <= 9 {
		i++
	}
	if i < len(s.Buf) && i > s.At && (s.Buf[s.At] != '0' || i == s.At+1) && s.Buf[i] != '.' && s.Buf[i]|0x20 != 'e' { // as nearly always
		from := s.At
		s.At = i
		return s.Buf[from:i]
	}
	from := s.Mark()
	if minus := s.is('-'); minus && s.Python && s.Ensure(1) && s.Buf[s.At] == 'I' {
		s.Word()
	} else {
		if !s.is('0') {
			s.digits(minus)
		}
		if s.is('.') {
			s.digits(true)
		}
		if s.is('e') || s.is('E') {
			if !s.is('+') {
				s.is('-')
			}
			s.digits(true)
		}
	}
	s.Release()
	return s.Since(from)
}

// Whole reads any value. It reports true if that is an integer from 0 to 18 digits 9.
func (s *Scanner) Whole() (n int64, ok bool) {
	s.Space()
	n, k := Digits(s.Buf[s.At:])
	if k == 0 || s.Buf[s.At+k]|0x20 == 'e' || s.Buf[s.At+k] == '.' {
		return ParseWhole(s.Value())
	}
	s.At += k
	return n, true
}

// ParseWhole is Whole for a text.
func ParseWhole(b []byte) (n int64, ok bool) {
	if len(b) == 0 || len(b) > 18 || len(b) > 1 && b[0] == '0' {
		return 0, false
	}
	for _, c := range b {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = n*10 + int64(c-'0')
	}
	return n, true
}

// is reads the next byte if it is c.
func (s *Scanner) is(c byte) bool {
	if (s.At < len(s.Buf) || s.Ensure(1)) && s.Buf[s.At] == c {
		s.At++
		return true
	}
	return false
}

// digits reads one or more digits. If it is inside, a number has already begun.
func (s *Scanner) digits(inside bool) {
	for any := false; ; any = true {
		if s.At >= len(s.Buf) && !s.Ensure(1) || s.Buf[s.At]-'0' > 9 {
			switch {
			case any:
			case inside:
				s.Want("a digit")
			default:
				s.Want("a value")
			}
			return
		}
		s.At++
	}
}

// Word reads a value that is a word: true, false, null, or one of Python's numbers.
func (s *Scanner) Word() string {
	c := s.Space()
	words := [...]string{"true", "false", "null", "NaN", "Infinity"}
	known := words[:3]
	if s.Python {
		known = words[:]
	}
	for _, w := range known {
		if w[0] != c {
			continue
		}
		s.Ensure(len(w))
		found := s.Buf[s.At:min(s.At+len(w), len(s.Buf))]
		if string(found) == w {
			s.At += len(w)
			return w
		}
		if len(found) < len(w) && w[:len(found)] == string(found) {
			s.At = len(s.Buf)
		}
	}
	s.Want("a value")
	return ""
}

// Digits returns an integer of at most 18 digits at the beginning of b, and their number. It is 0
// if b does not begin with such an integer, or may not have all of it.
func Digits(b []byte) (v int64, k int) {
	if len(b) >= 24 { // most offsets have eight digits or more, and eight are parsed at a time
		x := binary.LittleEndian.Uint64(b)
		k = leadingDigits(x)
		v = int64(eightDigits(x << (64 - 8*k)))
	}
	if k&7 == 0 {
		for ; k < len(b) && k < 19; k++ {
			c := b[k] - '0'
			if c > 9 {
				break
			}
			v = v*10 + int64(c)
		}
	}
	if k == 19 || k == len(b) || k > 1 && b[0] == '0' {
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
