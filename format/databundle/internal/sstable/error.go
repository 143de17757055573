package sstable

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
)

// Class is the kind of a thing that is wrong.
type Class uint8

const (
	Corrupt     Class = iota + 1 // bytes that break the format
	Unsupported                  // sound, as far as can be told, but of another program
	Missing                      // a file that is named and not there
	Limit                        // more than may be believed or held in memory
	Torn                         // a log that ends within a record: its writer was cut off
)

// An Error says which file of the directory breaks the format, where, and how.
// Errors of the store are returned as they come.
//
// What a parser finds has no Object yet, and its Offset is one within what was
// parsed, or -1; see at.
type Error struct {
	Class  Class
	Object string // the name in the store
	Offset int64  // -1 if it has no place
	What   string
	Err    error // cause, if any
}

func (e *Error) Error() string {
	s := e.Object
	if e.Offset >= 0 {
		s += fmt.Sprintf(" at %d", e.Offset)
	}
	s += ": " + e.What
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

// Unwrap makes what is missing an fs.ErrNotExist, and what is not supported an
// errors.ErrUnsupported.
func (e *Error) Unwrap() []error {
	var all []error
	if e.Err != nil {
		all = append(all, e.Err)
	}
	switch e.Class {
	case Unsupported:
		all = append(all, errors.ErrUnsupported)
	case Missing:
		all = append(all, fs.ErrNotExist)
	}
	return all
}

func faultf(c Class, off int64, format string, a ...any) *Error {
	return &Error{Class: c, Offset: off, What: fmt.Sprintf(format, a...)}
}

func corruptf(off int64, format string, a ...any) *Error { return faultf(Corrupt, off, format, a...) }

func unsupportedf(off int64, format string, a ...any) *Error {
	return faultf(Unsupported, off, format, a...)
}

// at gives what a parser found its object and place: base is where in the object
// what was parsed begins, -1 if that is not known.
func (e *Error) at(object string, base int64) *Error {
	if e.Object = object; e.Offset > 0 && base >= 0 {
		base += e.Offset
	}
	e.Offset = base
	return e
}

// readError makes of an error of the store what it means for the directory: a
// file that is not there, or shorter than is said elsewhere.
func readError(object string, off int64, err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return &Error{Class: Missing, Object: object, Offset: -1, What: "there is no such file", Err: err}
	case errors.Is(err, io.ErrUnexpectedEOF):
		return &Error{Class: Corrupt, Object: object, Offset: off, What: "the file ends here", Err: err}
	}
	return err
}
