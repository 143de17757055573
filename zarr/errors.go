package zarr

import (
	"errors"
	"fmt"
)

// ErrCorrupt is what every error wraps that says that a hierarchy holds
// something other than it promises.
var ErrCorrupt = errors.New("zarr data is damaged")

// ErrLimit is what every error wraps that says that reading would take more
// memory than Array.Limit allows.
var ErrLimit = errors.New("over the memory limit")

// ErrGroup says that a path leads to a group.
var ErrGroup = errors.New("is a group, not an array")

// A KeyError says what is wrong with the value of one key.
type KeyError struct {
	Key string
	Err error
}

func (e *KeyError) Error() string { return e.Key + ": " + e.Err.Error() }

func (e *KeyError) Unwrap() error { return e.Err }

// A CodecError says that an array uses a codec, or a setting of one, that this
// package does not know. It wraps errors.ErrUnsupported.
type CodecError struct {
	Path  string // of the array
	Codec string
	Why   string // what of the codec is not supported; empty for all of it
}

func (e *CodecError) Error() string {
	s := fmt.Sprintf("codec %q is not supported", e.Codec)
	if e.Why != "" {
		s = fmt.Sprintf("codec %q: %s", e.Codec, e.Why)
	}
	if e.Path != "" {
		s = e.Path + ": " + s
	}
	return s
}

// Unwrap gives errors.ErrUnsupported.
func (e *CodecError) Unwrap() error { return errors.ErrUnsupported }

// marked is an error whose text stands for itself, and which is a kind of another.
type marked struct {
	text string
	kind error
}

func (e *marked) Error() string { return e.text }

func (e *marked) Unwrap() error { return e.kind }

func corrupt(format string, a ...any) error {
	return &marked{fmt.Sprintf(format, a...), ErrCorrupt}
}

func unsupported(format string, a ...any) error {
	return &marked{fmt.Sprintf(format, a...), errors.ErrUnsupported}
}

func overLimit(what string, need, limit int64) error {
	return &marked{fmt.Sprintf("%s takes %d bytes, more than the limit of %d", what, need, limit), ErrLimit}
}
