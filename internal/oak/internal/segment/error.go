package segment

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
)

type Class uint8

const (
	Missing Class = iota + 1 // a segment, or a record, that is referred to and not there
	Corrupt                  // bytes that break the format
	Limit                    // too large for untrusted data, or for memory
	Altered                  // bytes that are not those that were written
)

func (c Class) String() string { return Word("Class", c, "", "missing", "corrupt", "limit", "altered") }

// Word returns the name of a value of an enumeration. names has "" for values without a meaning.
func Word[T ~uint8](of string, v T, names ...string) string {
	if int(v) < len(names) && names[v] != "" {
		return names[v]
	}
	return fmt.Sprintf("%s(%d)", of, uint8(v))
}

// An Error reports which record violates the format, where, and how.
type Error struct {
	Class   Class
	Segment ID
	Record  int32 // -1 if it does not concern one record
	Off     int64 // in the segment, -1 if it has no place
	What    string
	Err     error // cause, if any
}

func (e *Error) Error() string {
	s := "segment " + e.Segment.String()
	if e.Record >= 0 {
		s += fmt.Sprintf(" record %d", e.Record)
	}
	if e.Off >= 0 {
		s += fmt.Sprintf(" at %d", e.Off)
	}
	s += ": " + e.What
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

// Unwrap returns fs.ErrNotExist if something is missing.
func (e *Error) Unwrap() []error {
	var all []error
	if e.Err != nil {
		all = append(all, e.Err)
	}
	if e.Class == Missing {
		all = append(all, fs.ErrNotExist)
	}
	return all
}

// sourceError converts an error of the source to one about the record to be read.
func sourceError(id RecordID, err error) error {
	if e, _ := errors.AsType[*Error](err); e == nil && errors.Is(err, fs.ErrNotExist) &&
		!errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded) {
		return &Error{Class: Missing, Segment: id.Segment, Record: id.Number, Off: -1, What: "no such segment", Err: err}
	}
	return err
}
