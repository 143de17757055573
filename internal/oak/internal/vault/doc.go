// Package vault reads and writes the contents of Apache Jackrabbit FileVault packages: names of
// files, the XML of nodes, the filter, and a reader that reports nodes like an export does. It
// uses neither stores nor zip archives.
package vault

import "fmt"

// Places in a package.
const (
	Root       = "jcr_root"
	ContentXML = ".content.xml"
	FilterXML  = "META-INF/vault/filter.xml"
	NodeTypes  = "META-INF/vault/nodetypes.cnd"

	binaryEnd = ".binary"
	dirEnd    = ".dir"
	xmlEnd    = ".xml"
)

// An Error reports where a package is not valid, and why.
type Error struct {
	Package string
	Entry   string
	Line    int // from 1, or 0
	What    string
	Err     error // cause, if any
}

func (e *Error) Error() string {
	s := fmt.Sprintf("%s: %s", e.Package, e.Entry)
	if e.Line > 0 {
		s += fmt.Sprintf(": line %d", e.Line)
	}
	if s += ": " + e.What; e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

func (e *Error) Unwrap() error { return e.Err }
