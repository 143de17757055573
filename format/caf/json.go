package caf

import (
	"unicode/utf16"
	"unicode/utf8"

	"github.com/holdall/holdall/format/kit"
)

// str reads a string and returns it without escapes, and what is unusual about it. The string is
// valid until the next call.
func (s *scanner) str() (_ []byte, odd oddity) {
	s.want('"')
	s.scratch = s.scratch[:0]
	for s.err == nil {
		if s.r >= len(s.buf) {
			s.peek()
			continue
		}
		n, _ := plainPrefix(s.buf[s.r:])
		s.scratch = append(s.scratch, s.buf[s.r:s.r+n]...)
		s.r += n
		switch {
		case len(s.scratch) > s.maxRow:
			s.fail("index-size", "a string is longer than %d bytes", s.maxRow)
		case s.r >= len(s.buf):
		case s.buf[s.r] == '"':
			s.r++
			return s.scratch, odd | oddName(s.scratch)
		case s.buf[s.r] == '\\':
			s.r++
			odd |= s.escape()
		default:
			s.badJSON("control character %#02x in a string", s.buf[s.r])
		}
	}
	return nil, 0
}

// escape reads what follows a backslash.
func (s *scanner) escape() oddity {
	c := s.peek()
	if s.err == nil {
		s.r++
	}
	if c == 'u' {
		return s.unicodeEscape()
	}
	b, ok := kit.Unescaped(c)
	if !ok {
		s.badJSON("bad escape \\%c", c)
	}
	s.scratch = append(s.scratch, b)
	return 0
}

func (s *scanner) unicodeEscape() (odd oddity) {
	hi := s.hex4()
	for utf16.IsSurrogate(hi) {
		// The second half of a pair must follow directly. Otherwise the first half stands alone
		// and means U+FFFD, and what follows is parsed separately.
		var lo rune = -1
		if s.peek() == '\\' && hi < 0xdc00 {
			s.r++
			if s.peek() != 'u' {
				s.scratch = utf8.AppendRune(s.scratch, utf8.RuneError)
				return odd | loneSurrogate | s.escape()
			}
			s.r++
			lo = s.hex4()
			if r := utf16.DecodeRune(hi, lo); r != utf8.RuneError {
				s.scratch = utf8.AppendRune(s.scratch, r)
				return odd
			}
		}
		odd |= loneSurrogate
		s.scratch = utf8.AppendRune(s.scratch, utf8.RuneError)
		if lo < 0 {
			return odd
		}
		hi = lo
	}
	s.scratch = utf8.AppendRune(s.scratch, hi)
	return odd
}

func (s *scanner) hex4() (r rune) {
	for range 4 {
		switch c := s.peek(); {
		case '0' <= c && c <= '9':
			r = r<<4 | rune(c-'0')
		case 'a' <= c|0x20 && c|0x20 <= 'f':
			r = r<<4 | rune(c|0x20-'a'+10)
		default:
			s.badJSON("%q in a \\u escape", c)
			return 0
		}
		s.r++
	}
	return r
}

// mostDigits is the number of characters of a number that are kept: more than any number of 63
// bits has.
const mostDigits = 64

// number reads a number of any length and returns its text, up to mostDigits characters. The text
// is valid until the next call.
func (s *scanner) number() []byte {
	s.scratch = s.scratch[:0]
	take := func() {
		if len(s.scratch) < mostDigits {
			s.scratch = append(s.scratch, s.buf[s.r])
		}
		s.r++
	}
	// next returns the current byte, or 0 at the end of the input.
	next := func() byte {
		if !s.fill() {
			return 0
		}
		return s.buf[s.r]
	}
	digitsHere := func(zeroFirst bool) {
		c, n := next(), 0
		zero := c == '0'
		for ; '0' <= c && c <= '9'; c = next() {
			take()
			n++
		}
		if n == 0 || n > 1 && zero && !zeroFirst {
			s.badJSON("bad number")
		}
	}
	if next() == '-' {
		take()
	}
	digitsHere(false)
	if next() == '.' {
		take()
		digitsHere(true)
	}
	if next()|0x20 == 'e' {
		take()
		if c := next(); c == '+' || c == '-' {
			take()
		}
		digitsHere(true)
	}
	return s.scratch
}

// skipValue skips a value of any kind at the given depth. It keeps its own stack, so that the
// input cannot determine the depth of the call stack.
func (s *scanner) skipValue(depth int) {
	var open []byte // closing characters of the current arrays and objects
	key := false    // a name must come next
	for s.err == nil {
		switch c := s.space(); {
		case key:
			if c != '"' {
				s.badJSON("expected a name, found %q", c)
			}
			s.str()
			s.want(':')
			key = false
			continue
		case c == '{' || c == '[':
			if depth+len(open) > s.maxDepth {
				s.fail("index-depth", "more than %d levels deep", s.maxDepth)
				return
			}
			s.r++
			closing := c + 2 // ASCII: '{' '}' and '[' ']' are two apart
			open = append(open, closing)
			if s.space() != closing {
				key = closing == '}'
				continue
			}
			s.r++
			open = open[:len(open)-1]
		case c == '"':
			s.str()
		case c == '-' || '0' <= c && c <= '9':
			s.number()
		default:
			s.literal(c)
		}
		// After a value, it reads closing characters, or continues with the next value.
		for len(open) > 0 {
			closing := open[len(open)-1]
			if s.comma(closing) {
				if s.space() != closing {
					key = closing == '}'
					break
				}
				s.trailingComma()
				s.r++
			}
			open = open[:len(open)-1]
		}
		if len(open) == 0 {
			return
		}
	}
}

func (s *scanner) literal(c byte) {
	for _, lit := range []string{"true", "false", "null"} {
		if lit[0] != c {
			continue
		}
		for i := range len(lit) {
			if got := s.peek(); got != lit[i] {
				s.badJSON("%q in a literal", got)
				return
			}
			s.r++
		}
		return
	}
	s.badJSON("expected a value, found %q", c)
}
