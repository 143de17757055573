package zarr

import (
	"encoding/json"
	"math"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// Python writes NaN, Infinity and -Infinity bare, which encoding/json refuses,
// and lone surrogates, which it replaces. Hence a reader of our own: values are nil, bool,
// string, json.Number (those three words included), []any and map[string]any.
// A lone surrogate becomes the three bytes UTF-8 would have for it.

const jsonDepth = 200

type jsonReader struct {
	in   []byte
	at   int
	room *int64 // bytes that values may still take
}

// parseJSON reads one value, which must be all of in but for white space.
// What the values take in memory is taken off room, and never more than that.
func parseJSON(in []byte, room *int64) (any, error) {
	if !utf8.Valid(in) {
		return nil, corrupt("json: expected UTF-8")
	}
	r := &jsonReader{in: in, room: room}
	v, err := r.value(0)
	if err != nil {
		return nil, err
	}
	if r.space(); r.at != len(in) {
		return nil, corrupt("json: offset %d: expected the end, found %q", r.at, in[r.at])
	}
	return v, nil
}

func (r *jsonReader) space() {
	for r.at < len(r.in) {
		switch r.in[r.at] {
		case ' ', '\t', '\n', '\r':
			r.at++
		default:
			return
		}
	}
}

func (r *jsonReader) wrong(expected string) error {
	if r.at >= len(r.in) {
		return corrupt("json: offset %d: expected %s, found the end", r.at, expected)
	}
	return corrupt("json: offset %d: expected %s, found %q", r.at, expected, r.in[r.at])
}

// take accounts for memory about to be used.
func (r *jsonReader) take(n int) error {
	if *r.room -= int64(n); *r.room < 0 {
		return &marked{"json: its values take more memory than the limit", ErrLimit}
	}
	return nil
}

func (r *jsonReader) word(w string) bool {
	if len(r.in)-r.at >= len(w) && string(r.in[r.at:r.at+len(w)]) == w {
		r.at += len(w)
		return true
	}
	return false
}

func (r *jsonReader) value(depth int) (any, error) {
	if depth > jsonDepth {
		return nil, corrupt("json: offset %d: nested more than %d deep", r.at, jsonDepth)
	}
	r.space()
	if r.at >= len(r.in) {
		return nil, r.wrong("a value")
	}
	if err := r.take(16); err != nil {
		return nil, err
	}
	switch c := r.in[r.at]; {
	case c == '{':
		return r.object(depth)
	case c == '[':
		return r.list(depth)
	case c == '"':
		return r.str()
	case c == '-' || '0' <= c && c <= '9':
		return r.number()
	}
	switch {
	case r.word("null"):
		return nil, nil
	case r.word("true"):
		return true, nil
	case r.word("false"):
		return false, nil
	case r.word("NaN"):
		return json.Number("NaN"), nil
	case r.word("Infinity"):
		return json.Number("Infinity"), nil
	}
	return nil, r.wrong("a value")
}

func (r *jsonReader) list(depth int) (any, error) {
	r.at++
	if err := r.take(40); err != nil {
		return nil, err
	}
	list := []any{}
	if r.space(); r.word("]") {
		return list, nil
	}
	for {
		v, err := r.value(depth + 1)
		if err != nil {
			return nil, err
		}
		if err := r.take(16); err != nil { // append doubles
			return nil, err
		}
		list = append(list, v)
		if r.space(); r.word("]") {
			return list, nil
		}
		if !r.word(",") {
			return nil, r.wrong("a comma or ]")
		}
	}
}

func (r *jsonReader) object(depth int) (any, error) {
	r.at++
	if err := r.take(48); err != nil {
		return nil, err
	}
	m := map[string]any{}
	if r.space(); r.word("}") {
		return m, nil
	}
	for {
		if r.space(); r.at >= len(r.in) || r.in[r.at] != '"' {
			return nil, r.wrong("a name in quotes")
		}
		name, err := r.str()
		if err != nil {
			return nil, err
		}
		if r.space(); !r.word(":") {
			return nil, r.wrong("a colon")
		}
		v, err := r.value(depth + 1)
		if err != nil {
			return nil, err
		}
		if err := r.take(64); err != nil { // a map's slot, half of them empty
			return nil, err
		}
		m[name] = v // Python, too, keeps the last of two
		if r.space(); r.word("}") {
			return m, nil
		}
		if !r.word(",") {
			return nil, r.wrong("a comma or }")
		}
	}
}

func (r *jsonReader) digits() bool {
	from := r.at
	for r.at < len(r.in) && '0' <= r.in[r.at] && r.in[r.at] <= '9' {
		r.at++
	}
	return r.at > from
}

func (r *jsonReader) number() (any, error) {
	from := r.at
	if r.word("-"); r.word("Infinity") {
		return json.Number("-Infinity"), nil
	}
	first := r.at
	if !r.digits() {
		return nil, r.wrong("a digit")
	}
	if r.in[first] == '0' && r.at > first+1 {
		r.at = first + 1
		return nil, r.wrong("no digit after a leading 0")
	}
	if r.word(".") && !r.digits() {
		return nil, r.wrong("a digit")
	}
	if r.word("e") || r.word("E") {
		if !r.word("+") {
			r.word("-")
		}
		if !r.digits() {
			return nil, r.wrong("a digit")
		}
	}
	if err := r.take(24 + r.at - from); err != nil {
		return nil, err
	}
	return json.Number(r.in[from:r.at]), nil
}

func (r *jsonReader) str() (string, error) {
	r.at++
	from := r.at
	var out []byte
	for {
		plain := r.at
		for r.at < len(r.in) && r.in[r.at] != '"' && r.in[r.at] != '\\' && r.in[r.at] >= ' ' {
			r.at++
		}
		if r.at >= len(r.in) {
			return "", r.wrong("a closing quote")
		}
		switch c := r.in[r.at]; {
		case c == '"':
			if err := r.take(32 + r.at - from); err != nil {
				return "", err
			}
			out = append(out, r.in[plain:r.at]...)
			r.at++
			return string(out), nil
		case c < ' ':
			return "", r.wrong("a control character escaped")
		}
		out = append(out, r.in[plain:r.at]...)
		var err error
		if out, err = r.escape(out); err != nil {
			return "", err
		}
	}
}

var escapes = map[byte]byte{'"': '"', '\\': '\\', '/': '/', 'b': '\b', 'f': '\f', 'n': '\n', 'r': '\r', 't': '\t'}

// escape reads what begins with a backslash.
func (r *jsonReader) escape(out []byte) ([]byte, error) {
	r.at++
	if r.at >= len(r.in) {
		return nil, r.wrong("an escape")
	}
	if c, ok := escapes[r.in[r.at]]; ok {
		r.at++
		return append(out, c), nil
	}
	c, err := r.unit()
	if err != nil {
		return nil, err
	}
	if utf16.IsSurrogate(c) && c < 0xdc00 && r.at+1 < len(r.in) && r.in[r.at] == '\\' && r.in[r.at+1] == 'u' {
		back := r.at
		r.at++
		low, err := r.unit()
		if err != nil {
			return nil, err
		}
		if both := utf16.DecodeRune(c, low); both != utf8.RuneError {
			return utf8.AppendRune(out, both), nil
		}
		r.at = back
	}
	return appendRune(out, c), nil
}

// unit reads u and four hexadecimal digits.
func (r *jsonReader) unit() (rune, error) {
	if r.at >= len(r.in) || r.in[r.at] != 'u' {
		return 0, r.wrong("an escape")
	}
	r.at++
	if len(r.in)-r.at < 4 {
		r.at = len(r.in)
		return 0, r.wrong("four hexadecimal digits")
	}
	var c rune
	for range 4 {
		d := rune(r.in[r.at])
		switch {
		case '0' <= d && d <= '9':
			d -= '0'
		case 'a' <= d|0x20 && d|0x20 <= 'f':
			d = d | 0x20 - 'a' + 10
		default:
			return 0, r.wrong("a hexadecimal digit")
		}
		c = c<<4 | d
		r.at++
	}
	return c, nil
}

// appendRune is utf8.AppendRune that keeps surrogates.
func appendRune(out []byte, c rune) []byte {
	if utf16.IsSurrogate(c) {
		return append(out, 0xed, 0x80|byte(c>>6)&0x3f, 0x80|byte(c)&0x3f)
	}
	return utf8.AppendRune(out, c)
}

// asInt gives a JSON number's whole value.
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
