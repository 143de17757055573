package vault

import (
	"fmt"
	"io"
	"strings"
)

// mostNodeTypes bounds the definitions of node types, which are in memory.
const mostNodeTypes = 4 << 20

// orderable reports whether children are ordered, for the types of nodes that every repository has,
// and for the most frequent types of Sling and CQ.
var orderable = map[string]bool{
	"nt:unstructured": true, "nt:frozenNode": true, "rep:ACL": true, "rep:Members": true, "rep:system": true,
	"sling:OrderedFolder": true, "cq:Page": true, "cq:PageContent": true,
	"sling:Folder": false, "dam:Asset": false,
}

// Orderable reports whether nodes of a type have ordered children. Unknown types do, so that the
// order is not lost.
func Orderable(name string, defined map[string]bool) bool {
	if is, ok := defined[name]; ok {
		return is
	}
	if is, ok := orderable[name]; ok {
		return is
	}
	return !BuiltIn(name)
}

// BuiltIn reports whether every repository has a type of nodes.
func BuiltIn(name string) bool {
	prefix, _ := cutName(name)
	return prefix == "nt" || prefix == "rep" || prefix == "oak" || prefix == "mix"
}

// readNodeTypes returns the types that a CND defines, and whether the children of their nodes are
// ordered.
func readNodeTypes(r io.Reader) (map[string]bool, error) {
	b, err := io.ReadAll(io.LimitReader(r, mostNodeTypes+1))
	if err != nil {
		return nil, err
	}
	if len(b) > mostNodeTypes {
		return nil, fmt.Errorf("expected at most %d bytes, found more", mostNodeTypes)
	}
	defined := map[string]bool{}
	name, options := "", false // options of that type follow
	for rest := string(b); rest != ""; {
		var word string
		word, rest = cndWord(rest)
		switch {
		case word == "[":
			name, rest = cndWord(rest)
			name, options = strings.Trim(name, `'"`), true
			defined[name] = false
		case word == "-" || word == "+":
			options = false
		case options && (word == "orderable" || word == "ord" || word == "o"):
			defined[name] = true
		}
	}
	return defined, nil
}

// cndWord cuts off the first word of a CND, or mark.
func cndWord(s string) (word, rest string) {
	for {
		s = strings.TrimLeft(s, " \t\r\n")
		switch {
		case strings.HasPrefix(s, "//"):
			_, s, _ = strings.Cut(s, "\n")
			continue
		case strings.HasPrefix(s, "/*"):
			_, s, _ = strings.Cut(s, "*/")
			continue
		case s == "":
			return "", ""
		case s[0] == '\'' || s[0] == '"':
			if end := strings.IndexByte(s[1:], s[0]); end >= 0 {
				return s[:end+2], s[end+2:]
			}
			return s, ""
		}
		n := strings.IndexAny(s, " \t\r\n[]<>=,()'\"")
		if n < 0 {
			return s, ""
		}
		n = max(n, 1)
		return s[:n], s[n:]
	}
}
