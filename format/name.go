package format

import (
	"fmt"
	"path"
	"path/filepath"
	"strings"
)

// Limits of Linux and most other systems for a path and for an element of it. Longer names are
// not extracted.
const (
	maxPathLen    = 4095
	maxElementLen = 255
)

// ValidPath reports whether name is a valid path within an archive. It is like [fs.ValidPath],
// but allows names that are not UTF-8.
func ValidPath(name string) bool {
	if name == "." {
		return true
	}
	from := 0 // of an element
	for i := 0; i <= len(name); i++ {
		if i < len(name) && name[i] != '/' {
			continue
		}
		switch name[from:i] {
		case "", ".", "..":
			return false
		}
		from = i + 1
	}
	return true
}

// NameFault returns why an entry called name must not be extracted, as a word such as
// "name-traversal", or "" if it may be. The name is also checked with backslashes as separators,
// so that an archive is equally safe on systems that use them. A drive letter without a backslash,
// as in "a:b", is one only on Windows.
func NameFault(name string) string { return nameFaultOn(filepath.Separator == '\\', name) }

func nameFaultOn(windows bool, name string) string {
	if fault := nameFault(name); fault != "" {
		return fault
	}
	if len(name) >= 2 && name[1] == ':' && isLetter(name[0]) && (windows || strings.HasPrefix(name[2:], `\`)) {
		return "name-drive"
	}
	if strings.IndexByte(name, '\\') >= 0 {
		if fault := nameFault(strings.ReplaceAll(name, `\`, "/")); fault != "" {
			return fault
		}
	}
	if len(name) > maxPathLen {
		return "name-too-long"
	}
	for rest, more := name, true; more; {
		var elem string
		elem, rest, more = strings.Cut(rest, "/")
		if len(elem) > maxElementLen {
			return "name-too-long"
		}
	}
	return ""
}

func nameFault(name string) string {
	switch {
	case name == "" || name == ".":
		return "name-empty"
	case strings.IndexByte(name, 0) >= 0:
		return "name-nul"
	case hasDotDot(name):
		return "name-traversal"
	case name[0] == '/':
		return "name-absolute"
	case path.Clean(name) != name:
		return "name-unclean"
	}
	return ""
}

func hasDotDot(name string) bool {
	if !strings.Contains(name, "..") {
		return false
	}
	for elem := range strings.SplitSeq(name, "/") {
		if elem == ".." {
			return true
		}
	}
	return false
}

func isLetter(c byte) bool { return 'a' <= c|0x20 && c|0x20 <= 'z' }

// NameAdvice returns a phrase that explains a word returned by [NameFault].
func NameAdvice(fault string) string {
	switch fault {
	case "name-empty":
		return "it is empty"
	case "name-nul":
		return "it contains a NUL byte"
	case "name-absolute":
		return "it is absolute"
	case "name-traversal":
		return "it contains .."
	case "name-drive":
		return "it begins with a drive letter"
	case "name-unclean":
		return "it has empty or . elements"
	case "name-too-long":
		return "it or one of its elements is too long for file systems"
	case "name-conflict":
		return "it conflicts with another entry"
	}
	return "it is not safe on this system"
}

// Escape returns name in a form that is safe on a terminal and in JSON. Bytes that are not UTF-8,
// control characters, and backslashes that could be mistaken for an escape become \xNN.
// [Unescape] is the inverse.
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

// Unescape is the inverse of [Escape].
func Unescape(s string) string {
	if !strings.Contains(s, `\x`) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) && s[i+1] == 'x' && isHex(s[i+2]) && isHex(s[i+3]) {
			b.WriteByte(unhex(s[i+2])<<4 | unhex(s[i+3]))
			i += 3
			continue
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

func isHex(c byte) bool { return '0' <= c && c <= '9' || 'a' <= c && c <= 'f' }

func unhex(c byte) byte {
	if c >= 'a' {
		return c - 'a' + 10
	}
	return c - '0'
}
