package sstable

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
)

// Class is the kind of a fault.
type Class uint8

const (
	Corrupt     Class = iota + 1 // bytes that break the format
	Unsupported                  // intact as far as can be determined, but written by another program
	Missing                      // a file that is named and not there
	Limit                        // more than may be trusted or kept in memory
	Torn                         // a log that ends within a record: its writer was cut off
)

// An Error reports which file of the directory violates the format, where, and how. Errors of the
// store are returned unchanged.
//
// An error of a parser has no Object yet, and its Offset is relative to what was parsed, or -1;
// see at.
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

// Unwrap returns fs.ErrNotExist if something is missing, and errors.ErrUnsupported if it is not
// supported.
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

// at adds the object and the place to a parser's error. base is the offset in the object where
// the parsed bytes begin, or -1 if it is not known.
func (e *Error) at(object string, base int64) *Error {
	if e.Object = object; e.Offset > 0 && base >= 0 {
		base += e.Offset
	}
	e.Offset = base
	return e
}

// readError converts an error of the store to one about the directory, if a file is missing or
// shorter than recorded elsewhere.
func readError(object string, off int64, err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return &Error{Class: Missing, Object: object, Offset: -1, What: "there is no such file", Err: err}
	case errors.Is(err, io.ErrUnexpectedEOF):
		return &Error{Class: Corrupt, Object: object, Offset: off, What: "the file ends here", Err: err}
	}
	return err
}
