package oak

import (
	"bufio"
	"fmt"
	"io"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/holdall/holdall/format/kit/jsontext"
)

// An arrayReader parses a JSON array of strings, without keeping any of them in memory. After
// next, it reads the string. Bytes that are not UTF-8 are unchanged.
type arrayReader struct {
	in     *bufio.Reader
	at     int64
	begun  bool
	inside bool // of a string
	left   []byte
	err    error
}

func (a *arrayReader) byte() byte {
	if a.err != nil {
		return 0
	}
	c, err := a.in.ReadByte()
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	a.err = err
	a.at++
	return c
}

// token returns the next byte that is not white space.
func (a *arrayReader) token() byte {
	for {
		switch c := a.byte(); c {
		case ' ', '\t', '\n', '\r':
		default:
			return c
		}
	}
}

func (a *arrayReader) fail(expected string, found byte) {
	if a.err == nil {
		a.err = fmt.Errorf("array at %d: expected %s, found %q", a.at-1, expected, found)
	}
}

// next moves to the next string. It returns false at the end, which must be the end of the
// content.
func (a *arrayReader) next() bool {
	first := !a.begun
	if first {
		a.begun = true
		if c := a.token(); c != '[' {
			a.fail("a [", c)
		}
	}
	c := a.token()
	if c == ',' && !first {
		if c = a.token(); c == ']' {
			a.fail("a string", c)
		}
	} else if c != ']' && !first {
		a.fail("a comma", c)
	}
	switch {
	case a.err != nil:
	case c == '"':
		a.inside = true
	case c == ']':
		a.end()
	default:
		a.fail("a string", c)
	}
	return a.err == nil && a.inside
}

func (a *arrayReader) end() {
	for a.err == nil {
		c, err := a.in.ReadByte()
		a.at++
		switch {
		case err == io.EOF:
			return
		case err != nil:
			a.err = err
		case c != ' ' && c != '\t' && c != '\n' && c != '\r':
			a.fail("the end", c)
		}
	}
}

func (a *arrayReader) Read(p []byte) (n int, err error) {
	for n < len(p) {
		if len(a.left) > 0 {
			k := copy(p[n:], a.left)
			n, a.left = n+k, a.left[k:]
			continue
		}
		if !a.inside || a.err != nil {
			break
		}
		switch c := a.byte(); {
		case a.err != nil:
		case c == '"':
			a.inside = false
		case c == '\\':
			a.escape()
		case c < ' ':
			a.fail("no control character", c)
		default:
			p[n] = c
			n++
		}
	}
	switch {
	case n > 0 || len(p) == 0:
		return n, nil
	case a.err != nil:
		return 0, fmt.Errorf("a JSON array: %w", a.err)
	}
	return 0, io.EOF
}

func (a *arrayReader) escape() {
	c := a.byte()
	b, ok := jsontext.Unescaped(c)
	switch {
	case ok:
		a.left = append(a.left[:0], b)
		return
	case c != 'u':
		a.fail("an escape", c)
		return
	}
	r := a.unit()
	if utf16.IsSurrogate(r) {
		if c := a.byte(); c != '\\' {
			a.fail("the other half of a surrogate pair", c)
		}
		if c := a.byte(); c != 'u' {
			a.fail("the other half of a surrogate pair", c)
		}
		if r = utf16.DecodeRune(r, a.unit()); r == utf8.RuneError {
			a.fail("a surrogate pair", 'u')
		}
	}
	if a.err == nil {
		a.left = utf8.AppendRune(a.left[:0], r)
	}
}

func (a *arrayReader) unit() rune {
	var digits [4]byte
	for i := range digits {
		digits[i] = a.byte()
	}
	n, err := strconv.ParseUint(string(digits[:]), 16, 16)
	if err != nil {
		a.fail("four digits", digits[3])
	}
	return rune(n)
}
