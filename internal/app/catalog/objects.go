package catalog

import (
	"encoding/json"
	"strings"

	"github.com/holdall/holdall/format/kit"
)

// A Root maps the paths that begin with Prefix to the objects that they were
// packed from, which are at Address followed by the rest of the path.
type Root struct{ Prefix, Address string }

// Roots are the roots of an archive in a canonical text form.
type Roots string

func RootsOf(all []Root) Roots {
	b, err := json.Marshal(all)
	if err != nil { // of strings
		panic(err)
	}
	return Roots(b)
}

// All returns the roots, or none if they are not known.
func (r Roots) All() (all []Root) {
	if json.Unmarshal([]byte(r), &all) != nil {
		return nil
	}
	return all
}

// HeaderText returns headers in the form of Location.HeaderText: equal headers
// have equal texts.
func HeaderText(headers map[string]string) string {
	if len(headers) == 0 {
		return ""
	}
	b, err := json.Marshal(headers) // by name
	if err != nil {                 // of strings
		panic(err)
	}
	return string(b)
}

// NWB is the kind of facts that files of NWB have. It is no name of a header.
const NWB = "nwb"

// FactsAt returns Archive.Facts for a path.
func FactsAt(path string) string { return NWB + ":" + path }

// FactsPath returns the path of an archive that is recorded as one file. ok is false if the kind of its facts is
// not known.
func (a Archive) FactsPath() (path string, ok bool) { return strings.CutPrefix(a.Facts, FactsAt("")) }

// FactsText returns facts as Location.HeaderText. They have the place of headers, which such a file has not.
func FactsText(facts string) string { return HeaderText(map[string]string{NWB: facts}) }

// HasFacts reports whether HeaderText has facts, and no headers.
func (l Location) HasFacts() bool { return strings.HasPrefix(l.HeaderText, `{"`+NWB+`":`) }

// Attributes returns the attributes of a location for Entry.Attr: it adds to
// the given headers.
func (l Location) Attributes(headers map[string]string) map[string]string {
	if l.ETag == "" {
		return headers
	}
	if headers == nil {
		headers = map[string]string{}
	}
	headers[kit.ETagAttr] = l.ETag
	return headers
}
