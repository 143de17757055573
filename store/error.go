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
		s += fmt.Sprintf(" bytes %d-%d", e.Off, e.Off+e.Len)
	}
	return s + ": " + e.Err.Error()
}

func (e *Error) Unwrap() error { return e.Err }

// Temporary reports whether the request that failed may succeed later.
func Temporary(err error) bool {
	e, ok := errors.AsType[*Error](err)
	return ok && e.Retry
}

// Redact returns address as it may be printed: no password, and of a query
// only the names, since signed addresses carry their secret there.
func Redact(address string) string {
	u, err := url.Parse(address)
	if err != nil || u.Scheme == "" {
		return address
	}
	if _, has := u.User.Password(); has {
		u.User = url.UserPassword(u.User.Username(), "xxxxx")
	}
	if u.RawQuery != "" {
		u.RawQuery = "…"
	}
	u.Fragment, u.RawFragment = "", ""
	s := u.String()
	return s
}
