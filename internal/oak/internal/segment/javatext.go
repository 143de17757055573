package segment

import (
	"cmp"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// Names are ordered and hashed as Java strings, which are UTF-16. They are stored as UTF-8. Java
// reads each invalid sequence as U+FFFD.

// javaHash is String.hashCode.
func javaHash(s string) int32 {
	var h uint32
	for i := 0; i < len(s); i++ {
		if s[i] >= utf8.RuneSelf {
			return javaHashFrom(h, s[i:])
		}
		h = 31*h + uint32(s[i])
	}
	return int32(h)
}

func javaHashFrom(h uint32, s string) int32 {
	for _, c := range asJava(s) {
		if c >= 0x10000 {
			hi, lo := utf16.EncodeRune(c)
			h, c = 31*h+uint32(hi), lo
		}
		h = 31*h + uint32(c)
	}
	return int32(h)
}

// mapHash returns the hash by which maps order names.
func mapHash(name string) uint32 {
	// The multiplier and increment of Java's random numbers.
	const m, a = 0xDEECE66D, 0xB
	return (uint32(javaHash(name))^m)*m + a
}

// compareUTF16 is String.compareTo. It compares code units of UTF-16, so U+E000 to U+FFFF sort
// after the surrogates of higher code points.
func compareUTF16(a, b string) int {
	a, b = asJava(a), asJava(b)
	n := min(len(a), len(b))
	i := 0
	for i < n && a[i] == b[i] {
		i++
	}
	if i == n {
		return cmp.Compare(len(a), len(b))
	}
	x, y := a[i], b[i]
	// The first bytes of those runes are 0xEE and 0xEF; from 0xF0 are surrogates.
	const private, above = 0xEE, 0xF0
	if x >= private && y >= private && (x >= above) != (y >= above) {
		x, y = y, x
	}
	return cmp.Compare(x, y)
}

// asJava returns s as new String(s, UTF_8) reads it, again in UTF-8.
func asJava(s string) string {
	if utf8.ValidString(s) {
		return s
	}
	var b strings.Builder
	for len(s) > 0 {
		r, n := utf8.DecodeRuneInString(s)
		if r == utf8.RuneError && n == 1 {
			n = faultLen(s)
		}
		b.WriteRune(r)
		s = s[n:]
	}
	return b.String()
}

func continues(s string, i int) bool { return i < len(s) && s[i]&0xC0 == 0x80 }

// faultLen returns how many bytes Java replaces by one U+FFFD: the beginning of a rune that could
// have been continued, or all three bytes of a surrogate.
func faultLen(s string) int {
	second := func(from, to byte) bool { return len(s) > 1 && s[1] >= from && s[1] <= to }
	switch c := s[0]; {
	case c >= 0xE1 && c <= 0xEF:
		switch {
		case !continues(s, 1):
			return 1
		case c == 0xED && s[1] >= 0xA0 && continues(s, 2):
			return 3
		}
		return 2
	case c == 0xE0 && second(0xA0, 0xBF):
		return 2
	case c == 0xF0 && second(0x90, 0xBF), c > 0xF0 && c < 0xF4 && second(0x80, 0xBF), c == 0xF4 && second(0x80, 0x8F):
		if continues(s, 2) {
			return 3
		}
		return 2
	}
	return 1
}
