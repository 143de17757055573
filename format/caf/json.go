package caf

import (
	"fmt"
	"io"
	"unicode/utf16"
	"unicode/utf8"
)

// str reads a string and returns it without its escapes, valid until the next
// call, and what is odd about it.
func (s *scanner) str() (_ []byte, odd oddity, _ error) {
	if err := s.want('"'); err != nil {
		return nil, 0, err
	}
	s.scratch = s.scratch[:0]
	for {
		if s.r >= len(s.buf) {
			if _, err := s.peek(); err != nil {
				return nil, 0, err
			}
		}
		n, _ := plainPrefix(s.buf[s.r:])
		s.scratch = append(s.scratch, s.buf[s.r:s.r+n]...)
		s.r += n
		if len(s.scratch) > s.maxRow {
			return nil, 0, &fault{"index-size", s.at(), fmt.Sprintf("index: a string is longer than %d bytes", s.maxRow)}
		}
		if s.r >= len(s.buf) {
			continue
		}
		switch c := s.buf[s.r]; c {
		case '"':
			s.r++
			return s.scratch, odd | oddName(s.scratch), nil
		case '\\':
			s.r++
			o, err := s.escape()
			if err != nil {
				return nil, 0, err
			}
			odd |= o
		default:
			return nil, 0, s.badJSON("control character %#02x in a string", c)
		}
	}
}

// escape reads what follows a backslash.
func (s *scanner) escape() (odd oddity, _ error) {
	c, err := s.peek()
	if err != nil {
		return 0, err
	}
	s.r++
	switch c {
	case '"', '\\', '/':
	case 'b':
		c = '\b'
	case 'f':
		c = '\f'
	case 'n':
		c = '\n'
	case 'r':
		c = '\r'
	case 't':
		c = '\t'
	case 'u':
		return s.unicodeEscape()
	default:
		return 0, s.badJSON("bad escape \\%c", c)
	}
	s.scratch = append(s.scratch, c)
	return 0, nil
}

func (s *scanner) unicodeEscape() (odd oddity, _ error) {
	hi, err := s.hex4()
	if err != nil {
		return 0, err
	}
	for utf16.IsSurrogate(hi) {
		// A pair needs its second half at once; else it is one alone, which
		// means U+FFFD, and what follows is judged for itself.
		var lo rune = -1
		if c, err := s.peek(); err == nil && c == '\\' && hi < 0xdc00 {
			s.r++
			if c, err = s.peek(); err != nil {
				return 0, err
			}
			if c != 'u' {
				s.scratch = utf8.AppendRune(s.scratch, utf8.RuneError)
				o, err := s.escape()
				return odd | loneSurrogate | o, err
			}
			s.r++
			if lo, err = s.hex4(); err != nil {
				return 0, err
			}
			if r := utf16.DecodeRune(hi, lo); r != utf8.RuneError {
				s.scratch = utf8.AppendRune(s.scratch, r)
				return odd, nil
			}
		}
		odd |= loneSurrogate
		s.scratch = utf8.AppendRune(s.scratch, utf8.RuneError)
		if lo < 0 {
			return odd, nil
		}
		hi = lo
	}
	s.scratch = utf8.AppendRune(s.scratch, hi)
	return odd, nil
}

func (s *scanner) hex4() (rune, error) {
	var r rune
	for range 4 {
		c, err := s.peek()
		if err != nil {
			return 0, err
		}
		switch {
		case '0' <= c && c <= '9':
			r = r<<4 | rune(c-'0')
		case 'a' <= c|0x20 && c|0x20 <= 'f':
			r = r<<4 | rune(c|0x20-'a'+10)
		default:
			return 0, s.badJSON("%q in a \\u escape", c)
		}
		s.r++
	}
	return r, nil
}

// number reads a number and returns it as it is written, valid until the next
// call.
func (s *scanner) number() ([]byte, error) {
	s.scratch = s.scratch[:0]
	take := func() { s.scratch = append(s.scratch, s.buf[s.r]); s.r++ }
	// next is the byte at hand, 0 where the input ends.
	next := func() (byte, error) {
		for s.r >= len(s.buf) {
			if err := s.more(); err == io.EOF {
				return 0, nil
			} else if err != nil {
				return 0, err
			}
		}
		if len(s.scratch) > 4096 {
			return 0, s.badJSON("a number of over 4096 digits")
		}
		return s.buf[s.r], nil
	}
	digitsHere := func() (n int, _ error) {
		for ; ; n++ {
			c, err := next()
			if err != nil || c < '0' || c > '9' {
				return n, err
			}
			take()
		}
	}
	c, err := next()
	if err != nil {
		return nil, err
	}
	if c == '-' {
		take()
	}
	first := len(s.scratch)
	n, err := digitsHere()
	if err != nil {
		return nil, err
	}
	if n == 0 || n > 1 && s.scratch[first] == '0' {
		return nil, s.badJSON("bad number")
	}
	if c, err = next(); err != nil {
		return nil, err
	}
	if c == '.' {
		take()
		if n, err = digitsHere(); err != nil {
			return nil, err
		} else if n == 0 {
			return nil, s.badJSON("bad number")
		}
		if c, err = next(); err != nil {
			return nil, err
		}
	}
	if c|0x20 == 'e' {
		take()
		if c, err = next(); err != nil {
			return nil, err
		}
		if c == '+' || c == '-' {
			take()
		}
		if n, err = digitsHere(); err != nil {
			return nil, err
		} else if n == 0 {
			return nil, s.badJSON("bad number")
		}
	}
	return s.scratch, nil
}

// skipValue reads over a value of any kind that lies depth levels down. It
// keeps its own stack: the input must not choose how deep ours gets.
func (s *scanner) skipValue(depth int) error {
	var open []byte // what closes the arrays and objects we are in
	key := false    // a name must come next
	for {
		c, err := s.space()
		if err != nil {
			return err
		}
		switch {
		case key:
			if c != '"' {
				return s.badJSON("expected a name, found %q", c)
			}
			if _, _, err := s.str(); err != nil {
				return err
			}
			if err := s.want(':'); err != nil {
				return err
			}
			key = false
			continue
		case c == '{' || c == '[':
			if depth+len(open) > s.maxDepth {
				return &fault{"index-depth", s.at(), fmt.Sprintf("index: more than %d levels deep", s.maxDepth)}
			}
			s.r++
			closing := c + 2 // ASCII: '{' '}' and '[' ']' are two apart
			open = append(open, closing)
			if c, err = s.space(); err != nil {
				return err
			}
			if c != closing {
				key = closing == '}'
				continue
			}
			s.r++
			open = open[:len(open)-1]
		case c == '"':
			if _, _, err := s.str(); err != nil {
				return err
			}
		case c == '-' || '0' <= c && c <= '9':
			if _, err := s.number(); err != nil {
				return err
			}
		default:
			if err := s.literal(c); err != nil {
				return err
			}
		}
		// After a value: close what closes, or go on with the next.
		for len(open) > 0 {
			closing := open[len(open)-1]
			more, err := s.comma(closing)
			if err != nil {
				return err
			}
			if more {
				if c, err = s.space(); err != nil {
					return err
				}
				if c != closing {
					key = closing == '}'
					break
				}
				s.trailingComma()
				s.r++
			}
			open = open[:len(open)-1]
		}
		if len(open) == 0 {
			return nil
		}
	}
}

func (s *scanner) literal(c byte) error {
	for _, lit := range []string{"true", "false", "null"} {
		if lit[0] != c {
			continue
		}
		for i := range len(lit) {
			got, err := s.peek()
			if err != nil {
				return err
			}
			if got != lit[i] {
				return s.badJSON("%q in a literal", got)
			}
			s.r++
		}
		return nil
	}
	return s.badJSON("expected a value, found %q", c)
}
