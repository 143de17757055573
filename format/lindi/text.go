package lindi

import (
	"bytes"
	"cmp"
	"encoding/hex"
	"fmt"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/holdall/holdall/format/kit"
	"github.com/holdall/holdall/internal/arrays/pyjson"
)

// textError is the place in a JSON text where it is not valid.
type textError struct {
	off int
	msg string
	cut bool // more text might make it valid
}

func (e *textError) Error() string { return fmt.Sprintf("%s at byte %d of the text", e.msg, e.off) }

// scanner parses JSON like Python: NaN, Infinity and -Infinity are values, blanks may follow the
// text, an escaped half of a surrogate pair is a character, and of equal keys the last one
// counts. It allocates nothing: values are ranges of the text.
//
// A long text is read in blocks. Then more returns the bytes of b that are still needed, with the
// next block after them, or unchanged at the end of the text. Whatever is parsed outside of try
// must be a list.
type scanner struct {
	b     []byte
	i     int
	depth int                            // levels that may still be opened
	base  int64                          // offset of b in the text
	more  func(b []byte) ([]byte, error) // nil if b has the whole text
	held  bool                           // b must not change, because its bytes are in use
}

// longestWord is more than the longest word, escape or character.
const longestWord = 16

// try calls parse, and again with more text if the text ended too early.
func (s *scanner) try(parse func() error) error {
	if s.more == nil || s.held {
		return parse()
	}
	for {
		at, depth := s.i, s.depth
		s.held = true
		err := parse()
		s.held = false
		left := len(s.b) - s.i
		ended := left > 0 || s.i > at && bytes.IndexByte([]byte(`{}[]":,`), s.b[s.i-1]) >= 0
		if left >= longestWord || err == nil && ended {
			return err
		}
		b, merr := s.more(s.b[at:])
		if merr != nil || len(b) == len(s.b)-at {
			return cmp.Or(merr, err)
		}
		s.base += int64(at)
		s.b, s.i, s.depth = b, 0, depth
	}
}

func (s *scanner) fail(msg string, args ...any) error {
	if s.i >= len(s.b) {
		return &textError{int(s.base) + len(s.b), "the text ends too early", true}
	}
	return &textError{int(s.base) + s.i, fmt.Sprintf(msg, args...), false}
}

func (s *scanner) blanks() {
	for s.i < len(s.b) && isBlank[s.b[s.i]] {
		s.i++
	}
}

var isBlank = [256]bool{' ': true, '\n': true, '\r': true, '\t': true}

// isPlain has the bytes that need no escape in a string.
var isPlain = func() (plain [256]bool) {
	for c := byte(' '); c < utf8.RuneSelf; c++ {
		plain[c] = c != '"' && c != '\\'
	}
	return plain
}()

// peek returns the next byte that is not a blank, or 0 at the end.
func (s *scanner) peek() byte {
	s.blanks()
	if s.i < len(s.b) {
		return s.b[s.i]
	}
	return 0
}

func (s *scanner) expect(c byte) error {
	if s.peek() != c || s.i >= len(s.b) {
		return s.fail("expected %q", c)
	}
	s.i++
	return nil
}

// end checks that only blanks follow.
func (s *scanner) end() error {
	if s.blanks(); s.i < len(s.b) {
		return s.fail("more text after the end")
	}
	return nil
}

// members parses an object. It calls each after the colon, and each must parse the value. The key
// is a string token with its quotes.
func (s *scanner) members(each func(key []byte) error) error {
	return s.list('{', '}', func() error {
		var key []byte
		err := s.try(func() (err error) {
			if s.peek() != '"' {
				return s.fail("expected a key")
			}
			if key, err = s.str(); err == nil {
				err = s.expect(':')
			}
			s.blanks()
			return err
		})
		if err == nil {
			err = each(key)
		}
		return err
	})
}

// elements parses an array; each must parse the value.
func (s *scanner) elements(each func() error) error {
	return s.list('[', ']', func() error {
		s.blanks()
		return each()
	})
}

// numbers parses an array of integers; other values are -1.
func (s *scanner) numbers() (all []int64, _ error) {
	err := s.elements(func() error {
		v, err := s.value()
		n, ok := whole(v)
		if !ok {
			n = -1
		}
		all = append(all, n)
		return err
	})
	return all, err
}

// sums parses a list of digests; other values are "".
func (s *scanner) sums() (all []string, _ error) {
	err := s.elements(func() error {
		v, err := s.value()
		b, herr := hex.DecodeString(string(bytes.Trim(v, `"`)))
		if herr != nil || len(b) != digestLen {
			b = nil
		}
		all = append(all, string(b))
		return err
	})
	return all, err
}

// list parses values that are separated by commas.
func (s *scanner) list(open, closing byte, each func() error) error {
	if err := s.try(func() error { return s.expect(open) }); err != nil {
		return err
	}
	if s.depth--; s.depth < 0 {
		return s.fail("nested too deeply")
	}
	defer func() { s.depth++ }()
	empty := false
	if err := s.try(func() error {
		if empty = s.peek() == closing; empty {
			s.i++
		}
		return nil
	}); err != nil || empty {
		return err
	}
	for {
		if err := each(); err != nil {
			return err
		}
		if s.i < len(s.b) && s.b[s.i] == ',' { // as nearly always
			s.i++
			continue
		}
		last := false
		if err := s.try(func() error {
			if last = s.peek() != ','; last {
				return s.expect(closing)
			}
			s.i++
			return nil
		}); err != nil || last {
			return err
		}
	}
}

// value parses any value and returns its text.
func (s *scanner) value() ([]byte, error) {
	s.blanks()
	at := s.i
	err := s.skip()
	return s.b[at:s.i], err
}

func (s *scanner) skip() error {
	switch c := s.peek(); {
	case c == '{':
		return s.members(func([]byte) error { return s.skip() })
	case c == '[':
		return s.elements(s.skip)
	case c == '"':
		_, err := s.str()
		return err
	case c == '-' || c >= '0' && c <= '9':
		return s.number()
	default:
		for _, w := range [...]string{"true", "false", "null", "NaN", "Infinity"} {
			if s.word(w) {
				return nil
			}
		}
		return s.fail("expected a value")
	}
}

func (s *scanner) word(w string) bool {
	if len(s.b)-s.i >= len(w) && string(s.b[s.i:s.i+len(w)]) == w {
		s.i += len(w)
		return true
	}
	return false
}

func (s *scanner) digits() bool {
	at := s.i
	for s.i < len(s.b) && s.b[s.i] >= '0' && s.b[s.i] <= '9' {
		s.i++
	}
	return s.i > at
}

func (s *scanner) number() error {
	if s.b[s.i] == '-' {
		if s.i++; s.word("Infinity") {
			return nil
		}
	}
	if s.i < len(s.b) && s.b[s.i] == '0' {
		s.i++
	} else if !s.digits() {
		return s.fail("expected a digit")
	}
	if s.i < len(s.b) && s.b[s.i] == '.' {
		if s.i++; !s.digits() {
			return s.fail("expected a digit")
		}
	}
	if s.i < len(s.b) && (s.b[s.i] == 'e' || s.b[s.i] == 'E') {
		if s.i++; s.i < len(s.b) && (s.b[s.i] == '-' || s.b[s.i] == '+') {
			s.i++
		}
		if !s.digits() {
			return s.fail("expected a digit")
		}
	}
	return nil
}

// str parses a string and returns its token with quotes.
func (s *scanner) str() ([]byte, error) {
	at := s.i
	s.i++
	for {
		for s.i < len(s.b) && isPlain[s.b[s.i]] {
			s.i++
		}
		if s.i == len(s.b) {
			return nil, s.fail("")
		}
		switch c := s.b[s.i]; {
		case c == '"':
			s.i++
			return s.b[at:s.i], nil
		case c == '\\':
			if err := s.escape(); err != nil {
				return nil, err
			}
		case c < ' ':
			return nil, s.fail("control character in a string")
		default:
			r, n := utf8.DecodeRune(s.b[s.i:])
			if r == utf8.RuneError && n == 1 {
				return nil, s.fail("a byte that is not UTF-8")
			}
			s.i += n
		}
	}
}

func (s *scanner) escape() error {
	if s.i+1 >= len(s.b) {
		s.i = len(s.b)
		return s.fail("")
	}
	switch s.b[s.i+1] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		s.i += 2
		return nil
	case 'u':
		if s.i+6 > len(s.b) {
			s.i = len(s.b)
			return s.fail("")
		}
		if _, ok := hex4(s.b[s.i+2:]); ok {
			s.i += 6
			return nil
		}
	}
	return s.fail("unknown escape")
}

func hex4(b []byte) (r rune, ok bool) {
	n, err := strconv.ParseUint(string(b[:4]), 16, 16)
	return rune(n), err == nil
}

// plain reports whether a string token has no escapes, so that its text is what is between the
// quotes.
func plain(token []byte) bool { return bytes.IndexByte(token, '\\') < 0 }

// appendString appends the string for a token. Half of a surrogate pair becomes three bytes, as
// UTF-8 would encode it, so that different strings stay different.
func appendString(p, token []byte) []byte {
	b := token[1 : len(token)-1]
	for i := 0; i < len(b); {
		if b[i] != '\\' {
			p = append(p, b[i])
			i++
			continue
		}
		switch c := b[i+1]; c {
		case 'u':
			r, _ := hex4(b[i+2:])
			i += 6
			if utf16.IsSurrogate(r) {
				if i+6 <= len(b) && b[i] == '\\' && b[i+1] == 'u' {
					low, _ := hex4(b[i+2:])
					if pair := utf16.DecodeRune(r, low); pair != utf8.RuneError {
						p, i = utf8.AppendRune(p, pair), i+6
						continue
					}
				}
				p = append(p, 0xe0|byte(r>>12), 0x80|byte(r>>6)&0xbf, 0x80|byte(r)&0xbf)
				continue
			}
			p = utf8.AppendRune(p, r)
		default:
			c, _ = kit.Unescaped(c)
			p = append(p, c)
			i += 2
		}
	}
	return p
}

// str returns the string for a token.
func str(token []byte) string {
	if plain(token) {
		return string(token[1 : len(token)-1])
	}
	return string(appendString(nil, token))
}

// whole parses a non-negative integer.
func whole(b []byte) (int64, bool) {
	if len(b) == 0 || len(b) > 18 || len(b) > 1 && b[0] == '0' {
		return 0, false
	}
	var n int64
	for _, c := range b {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = n*10 + int64(c-'0')
	}
	return n, true
}

// dumps appends the value at the scanner as Python's json.dumps writes the result of json.loads:
// ", " and ": " as separators, ASCII, numbers as in Python, the last of equal keys in the
// position of the first.
func (s *scanner) dumps(p []byte) ([]byte, error) {
	var err error
	switch c := s.peek(); {
	case c == '{':
		return s.dumpsObject(p)
	case c == '[':
		p = append(p, '[')
		err = s.elements(func() (err error) {
			if p[len(p)-1] != '[' {
				p = append(p, ", "...)
			}
			p, err = s.dumps(p)
			return err
		})
		return append(p, ']'), err
	case c == '"':
		token, err := s.str()
		if err != nil {
			return p, err
		}
		return pyjson.AppendString(p, str(token)), nil
	}
	v, err := s.value()
	if err != nil {
		return p, err
	}
	return appendNumber(p, v), nil
}

func (s *scanner) dumpsObject(p []byte) ([]byte, error) {
	type member struct{ from, to int }
	seen := map[string]int{}
	var order []member
	var buf []byte
	err := s.members(func(key []byte) error {
		k := str(key)
		m := member{from: len(buf)}
		buf = pyjson.AppendString(buf, k)
		buf = append(buf, ": "...)
		var err error
		buf, err = s.dumps(buf)
		m.to = len(buf)
		if i, twice := seen[k]; twice {
			order[i] = m
		} else {
			seen[k] = len(order)
			order = append(order, m)
		}
		return err
	})
	p = append(p, '{')
	for i, m := range order {
		if i > 0 {
			p = append(p, ", "...)
		}
		p = append(p, buf[m.from:m.to]...)
	}
	return append(p, '}'), err
}

// appendNumber appends a number, or a word, as Python would print it: integers are unchanged, and
// anything else is a double in its shortest form.
func appendNumber(p, v []byte) []byte {
	integer := true
	for i, c := range v {
		if (c < '0' || c > '9') && (c != '-' || i > 0) {
			integer = false
		}
	}
	if integer {
		if string(v) == "-0" {
			v = v[1:]
		}
		return append(p, v...)
	}
	if c := v[len(v)-1]; c < '0' || c > '9' {
		return append(p, v...) // true, false, null, NaN, Infinity
	}
	f, err := strconv.ParseFloat(string(v), 64)
	if err != nil && f != 0 { // out of range: infinite in Python
		if f < 0 {
			return append(p, "-Infinity"...)
		}
		return append(p, "Infinity"...)
	}
	return pyjson.AppendFloat(p, f)
}
