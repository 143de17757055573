// Package pyjson writes JSON as Python does.
package pyjson

import (
	"bytes"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// AppendString appends s as a JSON string of ASCII, as Python's json.dumps does.
// Three bytes that are half a surrogate pair become its escape again.
func AppendString(p []byte, s string) []byte {
	const hex = "0123456789abcdef"
	u := func(r rune) {
		p = append(p, '\\', 'u', hex[r>>12&15], hex[r>>8&15], hex[r>>4&15], hex[r&15])
	}
	p = append(p, '"')
	for i := 0; i < len(s); {
		c := s[i]
		switch {
		case c == '"' || c == '\\':
			p = append(p, '\\', c)
		case c >= ' ' && c <= 0x7f:
			p = append(p, c) // Python leaves DEL alone, too
		case c >= '\b' && c <= '\r' && c != '\v':
			p = append(p, '\\', "btn\vfr"[c-'\b'])
		case c < ' ':
			u(rune(c))
		default:
			r, n := utf8.DecodeRuneInString(s[i:])
			if n == 1 && i+2 < len(s) && c == 0xed {
				r, n = rune(c&15)<<12|rune(s[i+1]&63)<<6|rune(s[i+2]&63), 3
			}
			if r >= 0x10000 {
				high, low := utf16.EncodeRune(r)
				u(high)
				u(low)
			} else {
				u(r)
			}
			i += n
			continue
		}
		i++
	}
	return append(p, '"')
}

// AppendFloat writes f as Python's repr does: an exponent of two digits at least
// where it is below -4 or above 15, a point otherwise.
func AppendFloat(p []byte, f float64) []byte {
	var e [32]byte
	b := strconv.AppendFloat(e[:0], f, 'e', -1, 64)
	exp, _ := strconv.Atoi(string(b[bytes.IndexByte(b, 'e')+1:]))
	if exp < -4 || exp >= 16 {
		return append(p, b...)
	}
	at := len(p)
	p = strconv.AppendFloat(p, f, 'f', -1, 64)
	if bytes.IndexByte(p[at:], '.') >= 0 {
		return p
	}
	return append(p, ".0"...)
}
