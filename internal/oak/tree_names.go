package oak

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Names of nodes and properties are those of the tree, except for those that a path or a file
// system cannot represent. In such a name, bytes are written as % and two upper-case hex digits:
//
//	. and ..             the whole name
//	/ and \              which Oak does not allow, and some systems read as a slash
//	control characters   and bytes that are not UTF-8
//	:                    at the top, after a single letter: it looks like a drive
//	%                    where what follows would make one of these forms
//
// An empty name is written as a single %. Oak allows a property and a child of the same name;
// then the property has propertyMark after its name. A child whose name is lost is called
// lostMark and a number, counted from 1 in the order of the children.
const (
	propertyMark = "%prop"
	lostMark     = "%lost"
)

// treeName is a parsed element of a path.
type treeName struct {
	name     string // in the store
	property bool   // it has the mark of a property
	lost     int    // number of a lost child, else 0
}

// readTreeName is the inverse of writeTreeName and of the marks, and accepts nothing else.
func readTreeName(elem string, top bool) (n treeName, ok bool) {
	if digits, ok := strings.CutPrefix(elem, lostMark); ok {
		n.lost, ok = readIndex(digits)
		return n, ok && n.lost > 0
	}
	text, marked := strings.CutSuffix(elem, propertyMark)
	n.property = marked
	if text != "%" {
		n.name = unescapeName(text)
	}
	return n, writeTreeName(n.name, top) == text
}

// readFileName reads an element of a path of files. It is escaped as in the tree or, if it has a
// % that escapes nothing, the name itself.
func readFileName(elem string, top bool) (treeName, bool) {
	said, ok := readTreeName(elem, top)
	if !ok && strings.ReplaceAll(writeTreeName(elem, top), "%25", "%") == elem {
		return treeName{name: elem}, true
	}
	return said, ok
}

// readIndex reads a number without zeros before it.
func readIndex(s string) (int, bool) {
	i, err := strconv.Atoi(s)
	return i, err == nil && i >= 0 && strconv.Itoa(i) == s
}

// writeTreeName makes an element of a path of a name, at the top the first one.
func writeTreeName(name string, top bool) string {
	switch name {
	case "":
		return "%"
	case ".", "..":
		return strings.Repeat("%2E", len(name))
	}
	for i := 0; i < len(name); i++ {
		if c := name[i]; c < ' ' || c >= 0x7f || c == '%' || c == '/' || c == '\\' || c == ':' && i == 1 && top {
			return escapeName(name, top)
		}
	}
	return name
}

func escapeName(name string, top bool) string {
	var b strings.Builder
	for i := 0; i < len(name); {
		r, n := utf8.DecodeRuneInString(name[i:])
		escape := false
		switch {
		case r == utf8.RuneError && n == 1, r == '/', r == '\\', unicode.IsControl(r):
			escape = true
		case r == '%':
			// Where it would mean something before the rest.
			rest := name[i:]
			_, escape = readEscape(rest[1:])
			escape = escape || strings.HasPrefix(rest, propertyMark) || strings.HasPrefix(rest, lostMark) || name == "%"
		case r == ':':
			escape = top && i == 1 && 'a' <= name[0]|0x20 && name[0]|0x20 <= 'z'
		}
		for _, c := range []byte(name[i : i+n]) {
			if escape {
				fmt.Fprintf(&b, "%%%02X", c)
			} else {
				b.WriteByte(c)
			}
		}
		i += n
	}
	return b.String()
}

// readEscape reads the digits after a % if they represent a byte that names cannot contain.
func readEscape(s string) (c byte, ok bool) {
	if len(s) < 2 || strings.Trim(s[:2], "0123456789ABCDEF") != "" {
		return 0, false
	}
	n, _ := strconv.ParseUint(s[:2], 16, 8)
	c = byte(n)
	return c, c < ' ' || c >= 0x7f || strings.IndexByte(`./\:%`, c) >= 0
}

func unescapeName(s string) string {
	if !strings.Contains(s, "%") {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '%' {
			if c, ok := readEscape(s[i+1:]); ok {
				b.WriteByte(c)
				i += 2
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}
