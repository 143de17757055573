package vault

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/holdall/holdall/internal/oak/internal/segment"
)

// An attribute is the value of an attribute, which represents a property.
type attribute struct {
	Type      segment.PropertyType // 0 if it is not given
	Multi     bool
	Reference bool // the values name binaries that the repository has
	Values    []string
}

const binaryReference = "BinaryRef"

// parseAttribute parses the XML form of a property: [{Type}](value | [value,..]).
func parseAttribute(s string) (a attribute, err error) {
	if rest, ok := strings.CutPrefix(s, "{"); ok {
		name, rest, ok := strings.Cut(rest, "}")
		if !ok {
			return a, fmt.Errorf("expected a } after the type, found %.60q", s)
		}
		a.Type, a.Reference = segment.TypeNamed(name), name == binaryReference
		switch {
		case a.Reference:
			a.Type = segment.Binary
		case a.Type == 0 && name != "undefined":
			return a, fmt.Errorf("expected a type, found %.60q", name)
		}
		s = rest
	}
	s, a.Multi = strings.CutPrefix(s, "[")
	var b []byte
	some := false // there is a value, which may be empty
	for i := 0; i < len(s); {
		switch c := s[i]; {
		case c == '\\':
			var empty bool
			var n int
			if b, n, empty, err = appendEscape(b, s[i:]); err != nil {
				return a, err
			}
			some = some || empty
			i += n
			continue
		case c == ',' && a.Multi:
			a.Values = append(a.Values, string(b))
			b, some = b[:0], true
		case c == ']' && a.Multi && i == len(s)-1:
		default:
			b = append(b, c)
		}
		i++
	}
	if !a.Multi || some || len(b) > 0 {
		a.Values = append(a.Values, string(b))
	}
	return a, nil
}

// appendEscape reads an escape that begins with a backslash. \0 adds nothing, but is a value.
func appendEscape(b []byte, s string) (_ []byte, n int, empty bool, err error) {
	if len(s) < 2 {
		return b, len(s), false, nil
	}
	switch s[1] {
	case '0':
		return b, 2, true, nil
	case 'u':
		r, ok := unicodeEscape(s)
		n = 6
		if ok && utf16.IsSurrogate(r) {
			low, _ := unicodeEscape(s[n:])
			if r = utf16.DecodeRune(r, low); r == utf8.RuneError {
				ok = false
			}
			n = 12
		}
		if !ok {
			return b, 0, false, fmt.Errorf("expected four hex digits after \\u, surrogates in pairs, found %.12q", s)
		}
		return utf8.AppendRune(b, r), n, false, nil
	}
	_, n = utf8.DecodeRuneInString(s[1:])
	return append(b, s[1:1+n]...), 1 + n, false, nil
}

func unicodeEscape(s string) (rune, bool) {
	if len(s) < 6 || s[:2] != `\u` {
		return 0, false
	}
	n, err := strconv.ParseUint(s[2:6], 16, 16)
	return rune(n), err == nil
}

// appendText appends a part of a value, escaped for an attribute. first reports whether the part
// begins the value.
func appendText(b []byte, s string, first, multi bool) []byte {
	for i, c := range s {
		switch {
		case c == '\\':
			b = append(b, `\\`...)
		case c == ',' && multi:
			b = append(b, `\,`...)
		case (c == '[' || c == '{') && first && i == 0 && !multi:
			b = append(b, '\\', byte(c))
		case c == '&':
			b = append(b, "&amp;"...)
		case c == '<':
			b = append(b, "&lt;"...)
		case c == '>':
			b = append(b, "&gt;"...)
		case c == '"':
			b = append(b, "&quot;"...)
		case c == '\t' || c == '\n' || c == '\r':
			b = fmt.Appendf(b, "&#x%x;", c)
		case c < ' ' || c == 0xFFFE || c == 0xFFFF:
			b = fmt.Appendf(b, `\u%04x`, c)
		default:
			b = utf8.AppendRune(b, c)
		}
	}
	return b
}

func AppendXML(b []byte, s string) []byte {
	for _, c := range s {
		if c == '\\' {
			b = append(b, '\\')
			continue
		}
		b = appendText(b, string(c), false, false)
	}
	return b
}
