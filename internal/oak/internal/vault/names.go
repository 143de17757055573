package vault

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// PlatformName returns the name of the file or folder for a node or property of the given name.
func PlatformName(name string) string {
	var b strings.Builder
	escapeColon, useUnderscore, underscores := false, false, 0
	for i, c := range name {
		switch c {
		case ':':
			if !escapeColon && i > 0 {
				useUnderscore, underscores = true, 2
				b.WriteByte('_')
			} else {
				b.WriteString("%3a")
			}
			escapeColon = true
		case '_':
			useUnderscore = useUnderscore || i == 0
			underscores++
			escapeColon = true
			b.WriteByte('_')
		case '\\', '<', '>', '|', '"', '/', '?', '%':
			fmt.Fprintf(&b, "%%%02x", c)
		default:
			b.WriteRune(c)
		}
	}
	if useUnderscore && underscores > 1 {
		return "_" + b.String()
	}
	return b.String()
}

// repositoryName is the inverse of PlatformName.
func repositoryName(file string) string {
	var b strings.Builder
	prefix := false
	for i := 0; i < len(file); i++ {
		switch c := file[i]; {
		case c == '%' && i+2 < len(file):
			n, err := strconv.ParseUint(file[i+1:i+3], 16, 8)
			if err != nil {
				b.WriteByte('%')
				break
			}
			b.WriteRune(rune(n))
			i += 2
		case c == '_' && i == 0:
			if prefix = true; len(file) > 1 && file[1] == '_' {
				prefix = false
				b.WriteByte('_')
				i++
			}
		case c == '_' && prefix:
			prefix = false
			b.WriteByte(':')
		default:
			b.WriteByte(c)
		}
	}
	if prefix {
		return "_" + b.String()
	}
	return b.String()
}

// appendXMLName appends a name without a prefix by ISO 9075. Characters that an XML name cannot
// have, and those that are not ASCII, are written as _x and four hex digits, in units of UTF-16.
func appendXMLName(b []byte, name string) []byte {
	for i, c := range name {
		letter := 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || c == '_' && !strings.HasPrefix(name[i+1:], "x")
		digit := '0' <= c && c <= '9' || c == '-' || c == '.'
		// xmlns would be a declaration. Other names with this beginning are reserved.
		reserved := i == 0 && len(name) >= 3 && strings.EqualFold(name[:3], "xml")
		switch {
		case letter && !reserved, digit && i > 0:
			b = append(b, byte(c))
		default:
			for _, unit := range utf16.AppendRune(nil, c) {
				b = fmt.Appendf(b, "_x%04x_", unit)
			}
		}
	}
	return b
}

// readXMLName is the inverse of appendXMLName.
func readXMLName(s string) string {
	if !strings.Contains(s, "_x") {
		return s
	}
	var b strings.Builder
	high := rune(0) // of a pair
	end := func() {
		if high != 0 {
			b.WriteRune(utf8.RuneError)
		}
		high = 0
	}
	for i := 0; i < len(s); {
		unit, ok := xmlEscape(s[i:])
		switch {
		case !ok:
			end()
			b.WriteByte(s[i])
			i++
			continue
		case high != 0 && utf16.DecodeRune(high, unit) != utf8.RuneError:
			b.WriteRune(utf16.DecodeRune(high, unit))
			high = 0
		case utf16.IsSurrogate(unit):
			end()
			high = unit
		default:
			end()
			b.WriteRune(unit)
		}
		i += len("_x0000_")
	}
	end()
	return b.String()
}

func xmlEscape(s string) (rune, bool) {
	if len(s) < 7 || s[:2] != "_x" || s[6] != '_' {
		return 0, false
	}
	n, err := strconv.ParseUint(s[2:6], 16, 16)
	return rune(n), err == nil
}

// cutName splits a name into its prefix and the rest.
func cutName(name string) (prefix, local string) {
	if p, rest, ok := strings.Cut(name, ":"); ok && p != "" {
		return p, rest
	}
	return "", name
}
