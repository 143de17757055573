package zarr

import (
	"errors"
	"fmt"
)

// ErrCorrupt is wrapped by all errors that report data that is not what the metadata says.
var ErrCorrupt = errors.New("zarr data is damaged")

// ErrLimit is wrapped by errors that say that reading would take more memory than Array.Limit
// allows.
var ErrLimit = errors.New("over the memory limit")

// ErrGroup means that there is a group at a path, not an array.
var ErrGroup = errors.New("is a group, not an array")

// A KeyError says what is wrong with the value of a key.
type KeyError struct {
	Key string
	Err error
}

func (e *KeyError) Error() string { return e.Key + ": " + e.Err.Error() }

func (e *KeyError) Unwrap() error { return e.Err }

// A CodecError means that an array uses a codec, or a setting of a codec, that this package does
// not support. It wraps [errors.ErrUnsupported].
type CodecError struct {
	Path  string // of the array
	Codec string
	Why   string // what is not supported; empty if it is the whole codec
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

// Unwrap returns [errors.ErrUnsupported].
func (e *CodecError) Unwrap() error { return errors.ErrUnsupported }

// marked is an error with a text of its own that wraps another error.
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
