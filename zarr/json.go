package zarr

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// Python writes NaN, Infinity and -Infinity without quotes, which encoding/json refuses, and lone
// surrogates, which it replaces. So this package has a JSON reader of its own. Its values are
// nil, bool, string, json.Number (including these three), []any and map[string]any. A lone
// surrogate becomes the three bytes that UTF-8 would have for it.

const jsonDepth = 200

// jsonReader parses in once. After the first error it is at the end.
type jsonReader struct {
	in   []byte
	at   int
	room *int64 // bytes that values may still take
	err  error
}

// parseJSON parses in, which must be a single value and white space. It subtracts the memory of
// the values from room, and fails when room is used up.
func parseJSON(in []byte, room *int64) (any, error) {
	if !utf8.Valid(in) {
		return nil, corrupt("json: expected UTF-8")
	}
	r := &jsonReader{in: in, room: room}
	v := r.value(0)
	if r.space(); r.at != len(in) {
		r.wrong("the end")
	}
	return v, r.err
}

func (r *jsonReader) fail(err error) {
	if r.err == nil {
		r.err, r.at = err, len(r.in)
	}
}

func (r *jsonReader) wrong(expected string) {
	found := "the end"
	if r.at < len(r.in) {
		found = fmt.Sprintf("%q", r.in[r.at])
	}
	r.fail(corrupt("json: offset %d: expected %s, found %s", r.at, expected, found))
}

// take subtracts memory that is about to be used from room.
func (r *jsonReader) take(n int) bool {
	if *r.room -= int64(n); *r.room < 0 {
		r.fail(&marked{"json: its values take more memory than the limit", ErrLimit})
	}
	return r.err == nil
}

// peek returns the next byte, or 0 at the end.
func (r *jsonReader) peek() byte {
	if r.at < len(r.in) {
		return r.in[r.at]
	}
	return 0
}

func (r *jsonReader) space() {
	for c := r.peek(); c == ' ' || c == '\t' || c == '\n' || c == '\r'; c = r.peek() {
		r.at++
	}
}

func (r *jsonReader) word(w string) bool {
	if len(r.in)-r.at >= len(w) && string(r.in[r.at:r.at+len(w)]) == w {
		r.at += len(w)
		return true
	}
	return false
}

func (r *jsonReader) value(depth int) any {
	if depth > jsonDepth {
		r.fail(corrupt("json: offset %d: nested more than %d deep", r.at, jsonDepth))
	}
	if r.space(); r.at < len(r.in) && !r.take(16) {
		return nil
	}
	switch c := r.peek(); {
	case c == '"':
		return r.str()
	case c == '-' || '0' <= c && c <= '9':
		return r.number()
	case r.word("{"):
		return r.object(depth)
	case r.word("["):
		return r.list(depth)
	case r.word("null"):
		return nil
	case r.word("true"):
		return true
	case r.word("false"):
		return false
	case r.word("NaN"):
		return json.Number("NaN")
	case r.word("Infinity"):
		return json.Number("Infinity")
	}
	r.wrong("a value")
	return nil
}

// items calls one for each of the items that are separated by commas and ended by closing.
func (r *jsonReader) items(closing string, one func()) {
	if r.space(); r.word(closing) {
		return
	}
	for r.err == nil {
		one()
		if r.space(); r.word(closing) {
			return
		}
		if !r.word(",") {
			r.wrong("a comma or " + closing)
		}
	}
}

func (r *jsonReader) list(depth int) any {
	r.take(40)
	list := []any{}
	r.items("]", func() {
		if v := r.value(depth + 1); r.take(16) { // append doubles its memory
			list = append(list, v)
		}
	})
	return list
}

func (r *jsonReader) object(depth int) any {
	r.take(48)
	m := map[string]any{}
	r.items("}", func() {
		if r.space(); r.peek() != '"' {
			r.wrong("a name in quotes")
			return
		}
		name := r.str()
		if r.space(); !r.word(":") {
			r.wrong("a colon")
		}
		if v := r.value(depth + 1); r.take(64) { // a slot of a map, half of which are empty
			m[name] = v // like Python, this keeps the last of equal names
		}
	})
	return m
}

func (r *jsonReader) digits() {
	from := r.at
	for c := r.peek(); '0' <= c && c <= '9'; c = r.peek() {
		r.at++
	}
	if r.at == from {
		r.wrong("a digit")
	}
}

func (r *jsonReader) number() any {
	from := r.at
	if r.word("-"); r.word("Infinity") {
		return json.Number("-Infinity")
	}
	first := r.at
	r.digits()
	if r.err == nil && r.in[first] == '0' && r.at > first+1 {
		r.at = first + 1
		r.wrong("no digit after a leading 0")
	}
	if r.word(".") {
		r.digits()
	}
	if r.word("e") || r.word("E") {
		if !r.word("+") {
			r.word("-")
		}
		r.digits()
	}
	if r.err != nil || !r.take(24+r.at-from) {
		return nil
	}
	return json.Number(r.in[from:r.at])
}

func (r *jsonReader) str() string {
	r.at++
	from := r.at
	var out []byte
	for r.err == nil {
		plain := r.at
		for r.at < len(r.in) && r.in[r.at] != '"' && r.in[r.at] != '\\' && r.in[r.at] >= ' ' {
			r.at++
		}
		text := r.in[plain:r.at]
		switch {
		case r.at == len(r.in):
			r.wrong("a closing quote")
		case r.peek() == '"':
			if r.take(32 + r.at - from) {
				r.at++
				return string(append(out, text...))
			}
		case r.word(`\`):
			out = r.escape(append(out, text...))
		default:
			r.wrong("a control character escaped")
		}
	}
	return ""
}

var escapes = map[byte]byte{'"': '"', '\\': '\\', '/': '/', 'b': '\b', 'f': '\f', 'n': '\n', 'r': '\r', 't': '\t'}

// escape reads what follows a backslash.
func (r *jsonReader) escape(out []byte) []byte {
	if c, ok := escapes[r.peek()]; ok {
		r.at++
		return append(out, c)
	}
	c := r.unit()
	if back := r.at; utf16.IsSurrogate(c) && c < 0xdc00 && r.at+1 < len(r.in) && r.in[r.at] == '\\' && r.in[r.at+1] == 'u' {
		r.at++
		if both := utf16.DecodeRune(c, r.unit()); both != utf8.RuneError || r.err != nil {
			return utf8.AppendRune(out, both)
		}
		r.at = back
	}
	return appendRune(out, c)
}

// unit reads u and four hexadecimal digits.
func (r *jsonReader) unit() rune {
	if !r.word("u") {
		r.wrong("an escape")
	} else if len(r.in)-r.at < 4 {
		r.at = len(r.in)
		r.wrong("four hexadecimal digits")
	}
	var c rune
	for range 4 {
		d := rune(r.peek())
		switch {
		case '0' <= d && d <= '9':
			d -= '0'
		case 'a' <= d|0x20 && d|0x20 <= 'f':
			d = d | 0x20 - 'a' + 10
		default:
			r.wrong("a hexadecimal digit")
			return 0
		}
		c = c<<4 | d
		r.at++
	}
	return c
}

// appendRune is like utf8.AppendRune, but keeps surrogates.
func appendRune(out []byte, c rune) []byte {
	if utf16.IsSurrogate(c) {
		return append(out, 0xed, 0x80|byte(c>>6)&0x3f, 0x80|byte(c)&0x3f)
	}
	return utf8.AppendRune(out, c)
}

// asInt returns the value of a JSON number if it is an integer.
func asInt(v any) (int64, bool) {
	n, ok := v.(json.Number)
	if !ok {
		return 0, false
	}
	i, err := strconv.ParseInt(string(n), 10, 64)
	if err == nil {
		return i, true
	}
	f, err := strconv.ParseFloat(string(n), 64)
	if err != nil || f != math.Trunc(f) || math.Abs(f) > 1<<53 {
		return 0, false
	}
	return int64(f), true
}
