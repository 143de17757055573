package store

import (
	"errors"
	"fmt"
	"net/url"
)

// An Error says which request to a store went wrong, and where.
type Error struct {
	Op   string // "read", "tail", "create", "commit"
	Name string // the object, or its redacted address
	Off  int64  // of the range, -1 if the request has none
	Len  int64
	Err  error

	// Retry says that the same request may succeed later: a broken
	// connection, a busy server.
	Retry bool
}

func (e *Error) Error() string {
	s := e.Op + " " + e.Name
	if e.Off >= 0 {
		s += fmt.Sprintf(" %d bytes at %d", e.Len, e.Off)
	}
	return s + ": " + e.Err.Error()
}

func (e *Error) Unwrap() error { return e.Err }

// Temporary reports whether the request that failed may succeed later.
func Temporary(err error) bool {
	e, ok := errors.AsType[*Error](err)
	return ok && e.Retry
}

// Redact returns address as it may be printed: without the user and the query of
// a remote one, since tokens and signatures travel there.
func Redact(address string) string {
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
