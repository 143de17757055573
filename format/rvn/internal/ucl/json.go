package ucl

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"
)

// MarshalJSON writes v as JSON, with keys in order. A byte of a string or key that is not UTF-8
// becomes the four characters \xNN, and the backslash of an existing \x becomes \x5c, so that the
// conversion can be undone.
func (v Value) MarshalJSON() ([]byte, error) { return v.appendJSON(nil) }

func (v Value) appendJSON(dst []byte) ([]byte, error) {
	var err error
	switch x := v.v.(type) {
	case bool:
		return strconv.AppendBool(dst, x), nil
	case int64:
		return strconv.AppendInt(dst, x, 10), nil
	case float64:
		if math.IsInf(x, 0) || math.IsNaN(x) {
			return nil, fmt.Errorf("metadata as json: expected a finite number, found %v", x)
		}
		return appendFloat(dst, x), nil
	case string:
		return appendJSONString(dst, x), nil
	case []Value:
		dst = append(dst, '[')
		for i, e := range x {
			if i > 0 {
				dst = append(dst, ',')
			}
			if dst, err = e.appendJSON(dst); err != nil {
				return nil, err
			}
		}
		return append(dst, ']'), nil
	case []Member:
		dst = append(dst, '{')
		for i, m := range x {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = append(appendJSONString(dst, m.Key), ':')
			if dst, err = m.Value.appendJSON(dst); err != nil {
				return nil, err
			}
		}
		return append(dst, '}'), nil
	}
	return append(dst, "null"...), nil
}

func appendJSONString(dst []byte, s string) []byte {
	dst = append(dst, '"')
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == utf8.RuneError && n == 1:
			dst = fmt.Appendf(dst, `\\x%02x`, s[i])
		case strings.HasPrefix(s[i:], `\x`):
			dst = append(dst, `\\x5c`...)
		case r == '"' || r == '\\':
			dst = append(dst, '\\', s[i])
		case r == '\n':
			dst = append(dst, `\n`...)
		case r == '\t':
			dst = append(dst, `\t`...)
		case r < ' ':
			dst = fmt.Appendf(dst, `\u%04x`, r)
		default:
			dst = append(dst, s[i:i+n]...)
		}
		i += n
	}
	return append(dst, '"')
}
