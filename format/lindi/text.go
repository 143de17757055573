package lindi

import (
	"bytes"
	"encoding/hex"
	"strconv"

	"github.com/holdall/holdall/format/kit/jsontext"
	"github.com/holdall/holdall/internal/arrays/pyjson"
)

// scannerOf returns a scanner that parses JSON like Python: NaN, Infinity and -Infinity are values,
// an escaped half of a surrogate pair is a character, and of equal keys the last one counts.
func scannerOf(text []byte, depth int) *jsontext.Scanner {
	return &jsontext.Scanner{Buf: text, Depth: depth, UTF8: true, Python: true}
}

// textError returns an error about all of a text.
func textError(msg string) error { return &jsontext.Error{What: msg} }

// numbers parses an array of integers; other values are -1.
func numbers(s *jsontext.Scanner) (all []int64) {
	for s.Begin('['); s.Next(']'); {
		n, ok := s.Whole()
		if !ok {
			n = -1
		}
		all = append(all, n)
	}
	return all
}

// sums parses a list of digests; other values are "".
func sums(s *jsontext.Scanner) (all []string) {
	for s.Begin('['); s.Next(']'); {
		b, err := hex.DecodeString(string(bytes.Trim(s.Value(), `"`)))
		if err != nil || len(b) != digestLen {
			b = nil
		}
		all = append(all, string(b))
	}
	return all
}

// plain reports whether a string has no escapes, so that its text is what is between the quotes.
func plain(raw []byte) bool { return bytes.IndexByte(raw, '\\') < 0 }

// textOf returns the text of what is between the quotes of a string. Half of a surrogate pair
// becomes three bytes, so that different strings stay different.
func textOf(raw []byte) string {
	if plain(raw) {
		return string(raw)
	}
	return escaped(raw)
}

func escaped(raw []byte) string {
	b, _ := jsontext.AppendText(nil, raw, true)
	return string(b)
}

// str returns the text of a value that is a string.
func str(value []byte) string { return textOf(value[1 : len(value)-1]) }

// dumps appends the next value as Python's json.dumps writes the result of json.loads: ", " and
// ": " as separators, ASCII, numbers as in Python, the last of equal keys in the position of the
// first.
func dumps(s *jsontext.Scanner, p []byte) []byte {
	switch c := s.Space(); c {
	case '{':
		return dumpsObject(s, p)
	case '[':
		p = append(p, '[')
		for s.Begin('['); s.Next(']'); {
			if p[len(p)-1] != '[' {
				p = append(p, ", "...)
			}
			p = dumps(s, p)
		}
		return append(p, ']')
	case '"':
		return pyjson.AppendString(p, textOf(s.String()))
	}
	return appendNumber(p, s.Value())
}

func dumpsObject(s *jsontext.Scanner, p []byte) []byte {
	type member struct{ from, to int }
	seen := map[string]int{}
	var order []member
	var buf []byte
	for s.Begin('{'); s.Next('}'); {
		k := textOf(s.Key())
		m := member{from: len(buf)}
		buf = append(pyjson.AppendString(buf, k), ": "...)
		buf = dumps(s, buf)
		m.to = len(buf)
		if i, twice := seen[k]; twice {
			order[i] = m
		} else {
			seen[k] = len(order)
			order = append(order, m)
		}
	}
	p = append(p, '{')
	for i, m := range order {
		if i > 0 {
			p = append(p, ", "...)
		}
		p = append(p, buf[m.from:m.to]...)
	}
	return append(p, '}')
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
