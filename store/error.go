package store

import (
	"fmt"
	"net/url"
)

// An Error describes a request to a store that failed.
type Error struct {
	Op   string // such as "read", "tail", "create", "commit"
	Name string // name of the object, or its address without secrets
	Off  int64  // offset of the range; -1 if the request has none
	Len  int64
	Err  error

	// Retry means that the same request may succeed later, as after a broken connection or if the
	// server is busy.
	Retry bool
}

func (e *Error) Error() string {
	op := e.Op
	switch op {
	case "head":
		op = "read the beginning of"
	case "tail":
		op = "read the end of"
	}
	s := op + " " + e.Name
	if e.Off >= 0 {
		s += fmt.Sprintf(" %d bytes at %d", e.Len, e.Off)
	}
	return s + ": " + e.Err.Error()
}

func (e *Error) Unwrap() error { return e.Err }

// Redact returns address in a form that may be printed: user names and queries of remote
// addresses are removed, because they may contain tokens and signatures.
func Redact(address string) string {
	if layer, below := CutLayer(address); layer != "" {
		return layer + Redact(below)
	}
	if Scheme(address) == "" || Scheme(address) == "file" {
		return address
	}
	u, err := url.Parse(address)
	if err != nil {
		return Scheme(address) + "://…"
	}
	s := (&url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path, RawPath: u.RawPath}).String()
	if u.User != nil {
		s = u.Scheme + "://…@" + u.Host + u.EscapedPath()
	}
	if u.RawQuery != "" {
		s += "?…"
	}
	return s
}
