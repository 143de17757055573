package hdf5

import (
	"errors"
	"fmt"
)

var (
	// ErrCorrupt is what every error wraps that says that a file breaks the format.
	ErrCorrupt = errors.New("HDF5 file is damaged")
	// ErrChecksum is what errors wrap, besides ErrCorrupt, that tell of a checksum.
	ErrChecksum = errors.New("checksum does not match")
	// ErrLimit is what every error wraps that says that reading would take more
	// memory than File.Limit allows.
	ErrLimit = errors.New("over the memory limit")
	// ErrNotHDF5 is what Open returns for files that have no signature.
	ErrNotHDF5 = errors.New("no HDF5 signature")
)

// An Error says which structure of a file is damaged, or not supported: then it
// wraps errors.ErrUnsupported.
type Error struct {
	File string
	What string // "object header", "chunk"
	Off  int64  // of the structure in the file, -1 if it has no place
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

// marked is an error whose text stands for itself, and which is a kind of others.
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

// ofFile reports whether err is about what a file holds, so that other objects of it
// can be read. Any other error is of the store, or of the context.
func ofFile(err error) bool {
	return errors.Is(err, ErrCorrupt) || errors.Is(err, errors.ErrUnsupported) || errors.Is(err, ErrLimit)
}

// place says where err is from, unless it says so already.
func (f *File) place(what string, off int64, err error) error {
	if err == nil || !ofFile(err) {
		return err
	}
	if e := (*Error)(nil); errors.As(err, &e) {
		return err
	}
	return &Error{File: f.name, What: what, Off: off, Err: err}
}
