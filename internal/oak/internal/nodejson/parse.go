package nodejson

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// A parser reads a line of JSON. It supports only what an export has: objects and arrays of known
// shapes, strings, counts, and true.
type parser struct {
	b   []byte // UTF-8, with surrogates in pairs
	at  int
	err error // the first; later results are meaningless
}

// peek returns the next byte, or 0 if there is none.
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

func (p *parser) expect(want byte) {
	switch {
	case p.err != nil:
	case p.peek() != want:
		p.wrong("%q", want)
	default:
		p.at++
	}
}

// fail notes an error, unless there is one.
func (p *parser) fail(err error) {
	if p.err == nil {
		p.err = err
	}
}

// wrong reports what was expected and what was found.
func (p *parser) wrong(want string, args ...any) {
	found := "the end"
	if p.peek(); p.at < len(p.b) {
		found = strconv.Quote(string(p.b[p.at:min(p.at+20, len(p.b))]))
	}
	p.fail(fmt.Errorf("at %d: expected %s, found %s", p.at, fmt.Sprintf(want, args...), found))
}

// object calls do with each key of an object, once it is at its value.
func (p *parser) object(do func(key string)) {
	var seen keys
	p.list('{', '}', func() {
		raw := p.raw()
		p.expect(':')
		key := p.unquote(raw)
		if p.err == nil && !seen.add(key) {
			p.err = fmt.Errorf("%.100q: expected once, found again", key)
		}
		if p.err != nil {
			return
		}
		if do(key); p.err != nil {
			p.err = fmt.Errorf("%.100q: %w", key, p.err)
		}
	})
}

// list calls do for each part of an object or an array, once it is there.
func (p *parser) list(begin, end byte, do func()) {
	p.expect(begin)
	for more := p.err == nil && p.peek() != end; more && p.err == nil; {
		do()
		if more = p.err == nil && p.peek() == ','; more {
			p.at++
		}
	}
	p.expect(end)
}

// keys are the keys of an object that were read so far. Nearly all objects have few.
type keys struct {
	few  [8]string
	n    int // of few
	many map[string]bool
}

func (k *keys) add(key string) (added bool) {
	if k.n < len(k.few) {
		added = !slices.Contains(k.few[:k.n], key)
		k.few[k.n] = key
		k.n++
		return added
	}
	if k.many == nil {
		k.many = map[string]bool{}
		for _, other := range k.few {
			k.many[other] = true
		}
	}
	added = !k.many[key]
	k.many[key] = true
	return added
}

// raw returns the bytes between the quotes of a string.
func (p *parser) raw() []byte {
	p.expect('"')
	if p.err != nil {
		return nil
	}
	for from := p.at; ; {
		i := bytes.IndexByte(p.b[p.at:], '"')
		if i < 0 {
			p.at = len(p.b)
			p.wrong("the end of a string")
			return nil
		}
		p.at += i + 1
		// A quote belongs to the string if it follows an odd number of backslashes.
		text := p.b[from : p.at-1]
		if slashes := len(text) - len(bytes.TrimRight(text, `\`)); slashes%2 == 0 {
			return text
		}
	}
}

var errControl = errors.New("string: expected control characters to be escaped")

// unquote converts the bytes between the quotes of a string to the string.
func (p *parser) unquote(raw []byte) string {
	plain := true
	for _, c := range raw {
		if c < ' ' {
			p.fail(errControl)
		}
		plain = plain && c != '\\'
	}
	if plain {
		return string(raw)
	}
	b := make([]byte, 0, len(raw))
	for p.err == nil {
		i := bytes.IndexByte(raw, '\\')
		if i < 0 {
			break
		}
		b = append(b, raw[:i]...)
		b, raw, p.err = escape(b, raw[i+1:]) // never empty: a quote would have been escaped
	}
	return string(append(b, raw...))
}

// escape appends what the bytes after a backslash represent.
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
	n, err := strconv.ParseUint(string(raw[1:5]), 16, 16)
	return rune(n), raw[5:], err == nil
}

// quoted is raw for a value, which may be missing.
func (p *parser) quoted() []byte {
	if p.err == nil && p.peek() != '"' {
		p.wrong("a string")
	}
	return p.raw()
}

func (p *parser) text() string { return p.unquote(p.quoted()) }

func (p *parser) base64() string {
	raw := p.quoted()
	if bytes.ContainsAny(raw, "\\\r\n") {
		p.fail(errors.New("expected base64 as it is"))
	}
	b := make([]byte, base64.StdEncoding.DecodedLen(len(raw)))
	n, err := base64.StdEncoding.Strict().Decode(b, raw)
	p.fail(err)
	return string(b[:n])
}

func (p *parser) number() int64 {
	p.peek()
	end := p.at
	for end < len(p.b) && '0' <= p.b[end] && p.b[end] <= '9' {
		end++
	}
	n, err := strconv.ParseInt(string(p.b[p.at:end]), 10, 64)
	if err != nil || p.b[p.at] == '0' && end > p.at+1 {
		p.wrong("a number of at least 0")
	}
	p.at = end
	return n
}

func (p *parser) yes() {
	p.peek()
	if !bytes.HasPrefix(p.b[p.at:], []byte("true")) {
		p.wrong("true")
		return
	}
	p.at += len("true")
}
