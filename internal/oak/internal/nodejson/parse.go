package nodejson

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// A parser reads a line of JSON, as much of JSON as an export has: objects and arrays
// of known shapes, strings, numbers that count, and true.
type parser struct {
	b  []byte // UTF-8, with surrogates in pairs
	at int
}

// peek returns the byte that is next, 0 if there is none.
func (p *parser) peek() byte {
	for ; p.at < len(p.b); p.at++ {
		switch c := p.b[p.at]; c {
		case ' ', '\t', '\r', '\n':
		default:
			return c
		}
	}
	return 0
}

func (p *parser) expect(want byte) error {
	if p.peek() != want {
		return p.wrong("%q", want)
	}
	p.at++
	return nil
}

// wrong says what was expected, and what is there.
func (p *parser) wrong(want string, args ...any) error {
	found := "the end"
	if p.peek(); p.at < len(p.b) {
		found = strconv.Quote(string(p.b[p.at:min(p.at+20, len(p.b))]))
	}
	return fmt.Errorf("at %d: expected %s, found %s", p.at, fmt.Sprintf(want, args...), found)
}

// object calls do with each key of an object, once it is at its value.
func (p *parser) object(do func(key string) error) error {
	if err := p.expect('{'); err != nil {
		return err
	}
	var seen keys
	for more := p.peek() != '}'; more; {
		raw, err := p.raw()
		if err == nil {
			err = p.expect(':')
		}
		if err != nil {
			return err
		}
		key, err := unquote(raw)
		if err != nil {
			return err
		}
		if !seen.add(key) {
			return fmt.Errorf("%.100q: expected once, found again", key)
		}
		if err := do(key); err != nil {
			return fmt.Errorf("%.100q: %w", key, err)
		}
		if more = p.peek() == ','; more {
			p.at++
		}
	}
	return p.expect('}')
}

// array calls do for each value of an array, once it is there.
func (p *parser) array(do func() error) error {
	if err := p.expect('['); err != nil {
		return err
	}
	for more := p.peek() != ']'; more; {
		if err := do(); err != nil {
			return err
		}
		if more = p.peek() == ','; more {
			p.at++
		}
	}
	return p.expect(']')
}

// keys are those of an object so far. Nearly all objects have few.
type keys struct {
	few  []string
	many map[string]bool
	room [8]string
}

func (k *keys) add(key string) bool {
	if k.many != nil {
		if k.many[key] {
			return false
		}
		k.many[key] = true
		return true
	}
	if k.few == nil {
		k.few = k.room[:0]
	}
	for _, other := range k.few {
		if other == key {
			return false
		}
	}
	if k.few = append(k.few, key); len(k.few) > len(k.room) {
		k.many = map[string]bool{}
		for _, other := range k.few {
			k.many[other] = true
		}
	}
	return true
}

// raw returns what is between the quotes of a string.
func (p *parser) raw() ([]byte, error) {
	if err := p.expect('"'); err != nil {
		return nil, err
	}
	from := p.at
	for {
		i := bytes.IndexByte(p.b[p.at:], '"')
		if i < 0 {
			p.at = len(p.b)
			return nil, p.wrong("the end of a string")
		}
		p.at += i + 1
		// A quote belongs to the string behind an odd number of backslashes.
		slashes := 0
		for at := p.at - 2; at >= from && p.b[at] == '\\'; at-- {
			slashes++
		}
		if slashes%2 == 0 {
			return p.b[from : p.at-1], nil
		}
	}
}

var errControl = errors.New("string: expected control characters to be escaped")

// unquote makes a string of what is between its quotes.
func unquote(raw []byte) (string, error) {
	plain := true
	for _, c := range raw {
		if c < ' ' {
			return "", errControl
		}
		plain = plain && c != '\\'
	}
	if plain {
		return string(raw), nil
	}
	b := make([]byte, 0, len(raw))
	for len(raw) > 0 {
		i := bytes.IndexByte(raw, '\\')
		if i < 0 {
			break
		}
		b = append(b, raw[:i]...)
		raw = raw[i+1:] // never empty: a quote would have been escaped
		var err error
		if b, raw, err = escape(b, raw); err != nil {
			return "", err
		}
	}
	return string(append(b, raw...)), nil
}

// escape appends what stands behind a backslash.
func escape(b, raw []byte) (_, rest []byte, err error) {
	const letters, means = `"\/bfnrt`, "\"\\/\b\f\n\r\t"
	if i := bytes.IndexByte([]byte(letters), raw[0]); i >= 0 {
		return append(b, means[i]), raw[1:], nil
	}
	r, rest, ok := codeUnit(raw)
	if ok && utf16.IsSurrogate(r) {
		var low rune
		if ok = len(rest) > 0 && rest[0] == '\\'; ok {
			low, rest, ok = codeUnit(rest[1:])
			r = utf16.DecodeRune(r, low)
		}
	}
	if !ok {
		return b, raw, fmt.Errorf("string: expected an escape, found %.12q", raw)
	}
	return utf8.AppendRune(b, r), rest, nil
}

// codeUnit reads a code unit of UTF-16 as a u and four hex digits.
func codeUnit(raw []byte) (r rune, rest []byte, ok bool) {
	if len(raw) < 5 || raw[0] != 'u' {
		return 0, raw, false
	}
	for _, c := range raw[1:5] {
		d := bytes.IndexByte([]byte("0123456789abcdef"), c|0x20)
		if c < '0' || c > '9' && c|0x20 < 'a' || d < 0 {
			return 0, raw, false
		}
		r = r<<4 | rune(d)
	}
	return r, raw[5:], true
}

func (p *parser) text(to *string) error {
	if p.peek() != '"' {
		return p.wrong("a string")
	}
	raw, err := p.raw()
	if err == nil {
		*to, err = unquote(raw)
	}
	return err
}

func (p *parser) base64(to *string) error {
	if p.peek() != '"' {
		return p.wrong("a string")
	}
	raw, err := p.raw()
	if err != nil {
		return err
	}
	if bytes.IndexByte(raw, '\\') >= 0 || bytes.ContainsAny(raw, "\r\n") {
		return errors.New("expected base64 as it is")
	}
	b := make([]byte, base64.StdEncoding.DecodedLen(len(raw)))
	n, err := base64.StdEncoding.Strict().Decode(b, raw)
	*to = string(b[:n])
	return err
}

func (p *parser) number(to *int64) error {
	p.peek()
	end := p.at
	for end < len(p.b) && '0' <= p.b[end] && p.b[end] <= '9' {
		end++
	}
	n, err := strconv.ParseInt(string(p.b[p.at:end]), 10, 64)
	if err != nil || p.b[p.at] == '0' && end > p.at+1 {
		return p.wrong("a number of at least 0")
	}
	*to, p.at = n, end
	return nil
}

func (p *parser) yes() error {
	p.peek()
	if !bytes.HasPrefix(p.b[p.at:], []byte("true")) {
		return p.wrong("true")
	}
	p.at += len("true")
	return nil
}
