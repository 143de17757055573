package tarfile

import (
	"errors"
	"fmt"
	"io"

	"github.com/holdall/holdall/internal/oak/internal/segment"
)

type Class uint8

const (
	BadHeader   Class = iota + 1 // of an entry: damaged, or at odds with the index
	BadChecksum                  // a segment does not match its name
	BadSegment                   // the header of a data segment breaks the format, or is at odds with the index
	BadIndex                     // index, or its contents
	BadGraph                     // graph
	BadBinaries                  // binary references
	BadPadding                   // zeros that are not there
	Truncated                    // the file ends too early
	OutOfBounds                  // a place that is not in the file, or not for segments
	Overlap                      // two entries at one place
	Gap                          // bytes that belong to no entry
	Limit                        // too large for untrusted data, or for memory
)

// An Error reports where a tar violates the format, and how. Errors of the store are
// returned as they come.
type Error struct {
	Class  Class
	Object string
	Offset int64
	What   string
	Err    error // cause, if any
}

func (e *Error) Error() string {
	s := fmt.Sprintf("%s at %d: %s", e.Object, e.Offset, e.What)
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

func (e *Error) Unwrap() error { return e.Err }

// A Problem is something that a check or a scan found.
type Problem struct {
	Class      Class
	Off, Len   int64 // the place of the problem; Len is 0 if it is not known
	Segment    ID
	HasSegment bool
	Healed     bool // a single bit is wrong, and a scan yields the segment with it corrected
	What       string
}

// A Reason is why a tar has no index: the first of Oak's conditions that fails.
type Reason uint8

const (
	LengthNotBlocks     Reason = iota + 1 // the file's length is not a multiple of the block size
	TooShort                              // for any tar with an index
	TooLong                               // for Oak, whose positions have 31 bits
	UnknownMagic                          // usually a tar that was not closed
	NoEntries                             // or a negative number
	SizeTooSmall                          // for the number of entries
	SizeNotBlocks                         // the index's size is not a multiple of the block size
	CountTooLarge                         // the file is too short for this many segments
	WrongChecksum                         // of the entries
	WrongOrder                            // of ids, or one twice
	NegativePosition                      // of an entry
	PositionNotAtABlock                   // of an entry
	NoLength                              // an entry has no length, or a negative one
)

// NoIndex means that a tar has no index that Oak would accept, as when its writer was killed.
// [Scan] reads such tars.
type NoIndex struct {
	Object string
	Reason Reason
	Offset int64
	What   string
}

func (e *NoIndex) Error() string {
	return fmt.Sprintf("%s at %d: %s", e.Object, e.Offset, e.What)
}

// readError converts an error of the store. If the object is too short, that is damage.
func readError(object string, off int64, err error) error {
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return &Error{Class: Truncated, Object: object, Offset: off, What: "the file ends here", Err: err}
	}
	return err
}

// IsDamage reports whether an error is of a tar or of a segment, and not of the store.
func IsDamage(err error) bool {
	_, ofTar := errors.AsType[*Error](err)
	_, ofSegment := errors.AsType[*segment.Error](err)
	return ofTar || ofSegment
}
