package bucket

import (
	"errors"
	"io"
	"io/fs"
	"net/url"

	"github.com/holdall/holdall/store"
)

// unaddressed takes the address off a transport's error: the request's name is said
// by the error around it, and an upload's address is nothing to show. What is left
// may pass by itself.
func unaddressed(err error) error {
	sent := false
	for {
		ue, ok := errors.AsType[*url.Error](err)
		if !ok {
			break
		}
		err, sent = ue.Err, true
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		err = errDropped
	}
	if sent && !errors.Is(err, fs.ErrPermission) {
		return &passing{err}
	}
	return err
}

var errDropped = errors.New("connection closed before an answer")

// fail makes err the error of a request for the named object.
func (st *Store) fail(op, name string, err error) error {
	e := &store.Error{Op: op, Name: st.Address(name), Off: -1, Err: err}
	if p, ok := errors.AsType[*passing](err); ok {
		e.Err, e.Retry = p.err, true
	}
	return e
}

// named gives an error of package web, which speaks of addresses of servers, the
// address that the object was asked for by.
func (st *Store) named(name string, err error) error {
	if e, ok := errors.AsType[*store.Error](err); ok {
		e.Name = st.Address(name)
	}
	return err
}
