package hdf5

import (
	"errors"
	"fmt"
)

var (
	// ErrCorrupt is wrapped by all errors that report a file that violates the format.
	ErrCorrupt = errors.New("HDF5 file is damaged")
	// ErrChecksum is wrapped by errors about a checksum, which also wrap ErrCorrupt.
	ErrChecksum = errors.New("checksum does not match")
	// ErrLimit is wrapped by errors that say that reading would take more memory than File.Limit
	// allows.
	ErrLimit = errors.New("over the memory limit")
	// ErrNotHDF5 is returned by Open for files without a signature.
	ErrNotHDF5 = errors.New("no HDF5 signature")
)

// An Error describes a structure of a file that is damaged or not supported. If it is not
// supported, the error wraps [errors.ErrUnsupported].
type Error struct {
	File string
	What string // such as "object header" or "chunk"
	Off  int64  // offset of the structure in the file; -1 if it has none
	Err  error
}

func (e *Error) Error() string {
	s := e.File + ": " + e.What
	if e.Off >= 0 {
		s += fmt.Sprintf(" at byte %d", e.Off)
	}
	return s + ": " + e.Err.Error()
}

func (e *Error) Unwrap() error { return e.Err }

// marked is an error with a text of its own that wraps other errors.
type marked struct {
	text  string
	kinds []error
}

func (e *marked) Error() string { return e.text }

func (e *marked) Unwrap() []error { return e.kinds }

func corrupt(format string, a ...any) error {
	return &marked{fmt.Sprintf(format, a...), []error{ErrCorrupt}}
}

func unsupported(format string, a ...any) error {
	return &marked{fmt.Sprintf(format, a...), []error{errors.ErrUnsupported}}
}

func overLimit(what string, need, limit int64) error {
	return &marked{fmt.Sprintf("%s takes %d bytes, more than the limit of %d", what, need, limit), []error{ErrLimit}}
}

func badSum(want, got uint32) error {
	return &marked{fmt.Sprintf("checksum: expected %08x, found %08x", want, got), []error{ErrCorrupt, ErrChecksum}}
}

// ofFile reports whether err concerns the contents of a file, so that its other objects can be
// read. Any other error comes from the store or the context.
func ofFile(err error) bool {
	return errors.Is(err, ErrCorrupt) || errors.Is(err, errors.ErrUnsupported) || errors.Is(err, ErrLimit)
}

// place adds the structure and its offset to err, unless err has them.
func (f *File) place(what string, off int64, err error) error {
	if err == nil || !ofFile(err) {
		return err
	}
	if e := (*Error)(nil); errors.As(err, &e) {
		return err
	}
	return &Error{File: f.name, What: what, Off: off, Err: err}
}
