package zarr

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"maps"
	"math"
	"slices"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// printer writes elements until there is an error.
type printer struct {
	out []byte
	err error
}

// cell writes an element as in WriteText.
func (p *printer) cell(d DType, b []byte) {
	switch {
	case d.Kind == 'S' || d.Kind == 'U':
		p.out = appendCell(p.out, p.str(d, b))
	case d.Kind == 'V' && d.Fields == nil:
		p.out = hex.AppendEncode(p.out, b)
	case d.Kind == 'M' || d.Kind == 'm':
		p.out = appendTime(p.out, int64(d.whole(b)), d.Kind, d.Unit)
	case d.Kind == 'c':
		half := d.half()
		p.out = appendFloat(p.out, half.bits(b), half.Size)
		at := len(p.out)
		p.out = appendFloat(p.out, half.bits(b[half.Size:]), half.Size)
		if p.out[at] != '-' {
			p.out = slices.Insert(p.out, at, '+')
		}
		p.out = append(p.out, 'j')
	default:
		p.element(d, b)
	}
}

// value returns an element as a Go value.
func (d DType) value(b []byte) (any, error) {
	switch {
	case d.Kind == 'b':
		return b[0] != 0, nil
	case d.Kind == 'S' || d.Kind == 'U':
		return d.text(b)
	case d.Kind == 'V' && d.Fields == nil:
		return b, nil
	case d.Kind == 'M' || d.Kind == 'm':
		return string(appendTime(nil, int64(d.whole(b)), d.Kind, d.Unit)), nil
	case d.Kind == 'c':
		p := printer{}
		p.cell(d, b)
		return string(p.out), p.err
	case d.Fields != nil:
		list := make([]any, 0, len(d.Fields))
		for _, f := range d.Fields {
			size := f.Count * f.Type.Size
			v, err := f.Type.nested(b[:size], f.Shape)
			if err != nil {
				return nil, err
			}
			list, b = append(list, v), b[size:]
		}
		return list, nil
	}
	p := printer{}
	p.element(d, b)
	return json.Number(p.out), p.err
}

// nested returns a field that is an array as nested lists.
func (d DType) nested(b []byte, shape []int64) (any, error) {
	if len(shape) == 0 {
		return d.value(b)
	}
	list := []any{}
	if shape[0] > 0 && len(b) > 0 {
		step := int64(len(b)) / shape[0]
		for i := range shape[0] {
			v, err := d.nested(b[i*step:(i+1)*step], shape[1:])
			if err != nil {
				return nil, err
			}
			list = append(list, v)
		}
	}
	return list, nil
}

// half returns the type of the two parts of a complex number.
func (d DType) half() DType { return DType{Kind: 'f', BigEndian: d.BigEndian, Size: d.Size / 2} }

// element writes an element as JSON, with NaN and infinities.
func (p *printer) element(d DType, b []byte) {
	switch {
	case d.Kind == 'b':
		p.out = strconv.AppendBool(p.out, b[0] != 0)
	case d.Kind == 'i':
		p.out = strconv.AppendInt(p.out, int64(d.whole(b)), 10)
	case d.Kind == 'u':
		p.out = strconv.AppendUint(p.out, d.whole(b), 10)
	case d.Kind == 'f':
		p.out = appendFloat(p.out, d.bits(b), d.Size)
	case d.Kind == 'c':
		half := d.half()
		p.out = appendFloat(append(p.out, '['), half.bits(b), half.Size)
		p.out = appendFloat(append(p.out, ','), half.bits(b[half.Size:]), half.Size)
		p.out = append(p.out, ']')
	case d.Kind == 'S' || d.Kind == 'U':
		p.out = appendJSON(p.out, p.str(d, b))
	case d.Kind == 'M' || d.Kind == 'm':
		p.out = appendTime(append(p.out, '"'), int64(d.whole(b)), d.Kind, d.Unit)
		p.out = append(p.out, '"')
	case d.Fields == nil:
		p.out = append(hex.AppendEncode(append(p.out, '"'), b), '"')
	default:
		p.out = append(p.out, '[')
		for i, f := range d.Fields {
			if i > 0 {
				p.out = append(p.out, ',')
			}
			size := f.Count * f.Type.Size
			p.nested(f.Type, b[:size], f.Shape)
			b = b[size:]
		}
		p.out = append(p.out, ']')
	}
}

// nested writes a field that is an array as nested lists.
func (p *printer) nested(d DType, b []byte, shape []int64) {
	if len(shape) == 0 {
		p.element(d, b)
		return
	}
	p.out = append(p.out, '[')
	if shape[0] > 0 && len(b) > 0 {
		step := int64(len(b)) / shape[0]
		for i := range shape[0] {
			if i > 0 {
				p.out = append(p.out, ',')
			}
			p.nested(d, b[i*step:(i+1)*step], shape[1:])
		}
	}
	p.out = append(p.out, ']')
}

func (p *printer) str(d DType, b []byte) any {
	v, err := d.text(b)
	p.err = cmp.Or(p.err, err)
	return v
}

// text returns a string element without its padding of zeros. If it is not UTF-8, it returns the
// bytes.
func (d DType) text(b []byte) (any, error) {
	if d.Kind == 'S' {
		if b = bytes.TrimRight(b, "\x00"); !utf8.Valid(b) {
			return b, nil
		}
		return string(b), nil
	}
	var s []byte
	for n := len(b); n > 0 && d.order().Uint32(b[n-4:]) == 0; n -= 4 {
		b = b[:n-4]
	}
	for ; len(b) > 0; b = b[4:] {
		c := d.order().Uint32(b)
		if c > utf8.MaxRune {
			return nil, corrupt("expected a character, found %#x", c)
		}
		s = appendRune(s, rune(c))
	}
	return string(s), nil
}

// appendFloat appends the shortest number that reads back as the same float of that size.
func appendFloat(out []byte, bits uint64, size int64) []byte {
	v := floatOf(bits, size)
	switch {
	case math.IsNaN(v):
		return append(out, "NaN"...)
	case math.IsInf(v, 1):
		return append(out, "Infinity"...)
	case math.IsInf(v, -1):
		return append(out, "-Infinity"...)
	}
	form := byte('f')
	if a := math.Abs(v); a != 0 && (a < 1e-6 || a >= 1e21) {
		form = 'e'
	}
	if size != 2 {
		return strconv.AppendFloat(out, v, form, -1, int(8*size))
	}
	for digits := range 6 {
		s := strconv.FormatFloat(v, 'e', digits, 64)
		if short, err := strconv.ParseFloat(s, 64); err == nil && uint64(toHalf(short)) == bits {
			return strconv.AppendFloat(out, short, form, -1, 64)
		}
	}
	return strconv.AppendFloat(out, v, form, -1, 64)
}

// appendCell appends a string unchanged, or quoted if it could be misread.
func appendCell(out []byte, v any) []byte {
	s, ok := v.(string)
	if b, isBytes := v.([]byte); isBytes && utf8.Valid(b) {
		s, ok = string(b), true
	}
	if !ok {
		return appendJSON(out, v)
	}
	if s != "" && s[0] == '"' {
		return appendQuoted(out, s)
	}
	for i, c := range s {
		if control(c) || c == utf8.RuneError && !utf8.FullRuneInString(s[i:]) || c == utf8.RuneError && s[i] != 0xef {
			return appendQuoted(out, s)
		}
	}
	return append(out, s...)
}

// control reports whether a character could affect a terminal.
func control(c rune) bool { return c < ' ' || c >= 0x7f && c <= 0x9f }

// appendJSON appends a value as compact JSON with sorted names.
func appendJSON(out []byte, v any) []byte {
	switch v := v.(type) {
	case nil:
		return append(out, "null"...)
	case bool:
		return strconv.AppendBool(out, v)
	case json.Number:
		return append(out, v...)
	case string:
		return appendQuoted(out, v)
	case []byte:
		if utf8.Valid(v) {
			return appendQuoted(out, string(v))
		}
		out = append(out, `{"base64":"`...)
		return append(base64.StdEncoding.AppendEncode(out, v), `"}`...)
	case []any:
		out = append(out, '[')
		for i, e := range v {
			if i > 0 {
				out = append(out, ',')
			}
			out = appendJSON(out, e)
		}
		return append(out, ']')
	case map[string]any:
		out = append(out, '{')
		for i, name := range slices.Sorted(maps.Keys(v)) {
			if i > 0 {
				out = append(out, ',')
			}
			out = append(appendQuoted(out, name), ':')
			out = appendJSON(out, v[name])
		}
		return append(out, '}')
	}
	panic("zarr: a value that no reader makes")
}

func appendQuoted(out []byte, s string) []byte {
	out = append(out, '"')
	for len(s) > 0 {
		c, n := utf8.DecodeRuneInString(s)
		if c == utf8.RuneError && n == 1 && len(s) >= 3 && s[0] == 0xed {
			// This is a lone surrogate, as encoded by appendRune.
			c, n = 0xd000|rune(s[1]&0x3f)<<6|rune(s[2]&0x3f), 3
		}
		switch {
		case c == '"' || c == '\\':
			out = append(out, '\\', byte(c))
		case c == '\n':
			out = append(out, `\n`...)
		case c == '\r':
			out = append(out, `\r`...)
		case c == '\t':
			out = append(out, `\t`...)
		case control(c) || utf16.IsSurrogate(c):
			out = append(out, `\u`...)
			for shift := 12; shift >= 0; shift -= 4 {
				out = append(out, "0123456789abcdef"[c>>shift&15])
			}
		default:
			out = utf8.AppendRune(out, c)
		}
		s = s[n:]
	}
	return append(out, '"')
}
