package format

import (
	"fmt"
	"strings"
)

// Escape returns name in a form that is safe on a terminal and in JSON. Bytes that are not UTF-8,
// control characters, and backslashes that could be mistaken for an escape become \xNN.
// [naming.Unescape] is the inverse.
func Escape(name string) string {
	clean := true
	for i := 0; i < len(name); i++ {
		if c := name[i]; c < 0x20 || c >= 0x7f || c == '\\' {
			clean = false
			break
		}
	}
	if clean {
		return name
	}
	var b strings.Builder
	for i, r := range name {
		switch {
		case r == '�' && !strings.HasPrefix(name[i:], "�"):
			fmt.Fprintf(&b, `\x%02x`, name[i])
		case r < 0x20 || r == 0x7f:
			fmt.Fprintf(&b, `\x%02x`, r)
		case 0x80 <= r && r < 0xa0, r == '\u2028', r == '\u2029', isBidi(r): // would reorder or break a line
			for _, c := range []byte(string(r)) {
				fmt.Fprintf(&b, `\x%02x`, c)
			}
		case r == '\\' && strings.HasPrefix(name[i+1:], "x"):
			b.WriteString(`\x5c`)
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

func isBidi(r rune) bool {
	return '\u202a' <= r && r <= '\u202e' || '\u2066' <= r && r <= '\u2069' || r == '\u200e' || r == '\u200f'
}
