package zarr

import (
	"encoding/json"
	"errors"
	"math"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/holdall/holdall/format/kit/jsontext"
)

// Python writes NaN, Infinity and -Infinity without quotes, which encoding/json refuses, and lone
// surrogates, which it replaces. So this package makes values itself: nil, bool, string, json.Number
// (including these three), []any and map[string]any. A lone surrogate becomes the three bytes that
// UTF-8 would have for it.

const jsonDepth = 200

// jsonReader makes the values of a text.
type jsonReader struct {
	jsontext.Scanner
	room *int64 // bytes that values may still take
}

// parseJSON parses in, which must be a single value and white space. It subtracts the memory of
// the values from room, and fails when room is used up.
func parseJSON(in []byte, room *int64) (any, error) {
	r := &jsonReader{jsontext.Scanner{Buf: in, Depth: jsonDepth, UTF8: true, Python: true}, room}
	v := r.value()
	r.End()
	if e, ok := errors.AsType[*jsontext.Error](r.Err); ok {
		return v, corrupt("json: offset %d: %s", e.Off, e.What)
	}
	return v, r.Err
}

// take subtracts memory that is about to be used from room.
func (r *jsonReader) take(n int) bool {
	if *r.room -= int64(n); *r.room < 0 {
		r.Stop(&marked{"json: its values take more memory than the limit", ErrLimit})
	}
	return r.Err == nil
}

func (r *jsonReader) value() any {
	c := r.Space()
	if c != 0 && !r.take(16) {
		return nil
	}
	switch {
	case c == '"':
		return r.str(r.String())
	case c == '{':
		r.take(48)
		m := map[string]any{}
		for r.Begin('{'); r.Next('}'); {
			name := r.str(r.Key())
			if v := r.value(); r.take(64) { // a slot of a map, half of which are empty
				m[name] = v // like Python, this keeps the last of equal names
			}
		}
		return m
	case c == '[':
		r.take(40)
		list := []any{}
		for r.Begin('['); r.Next(']'); {
			if v := r.value(); r.take(16) { // append doubles its memory
				list = append(list, v)
			}
		}
		return list
	case c == '-' || '0' <= c && c <= '9':
		if text := r.Number(); r.take(24 + len(text)) {
			return json.Number(text)
		}
		return nil
	}
	switch w := r.Word(); w {
	case "true", "false":
		return w == "true"
	case "NaN", "Infinity":
		return json.Number(w)
	}
	return nil
}

// str returns the text of a string that was read.
func (r *jsonReader) str(raw []byte) string {
	if !r.take(32 + len(raw)) {
		return ""
	}
	if r.Escaped {
		raw, _ = jsontext.AppendText(nil, raw, true)
	}
	return string(raw)
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
