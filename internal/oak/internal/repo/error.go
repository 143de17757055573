package repo

import (
	"fmt"

	"github.com/holdall/holdall/internal/oak/internal/segment"
)

// Class is the kind of a thing that is wrong.
type Class uint8

const (
	BadLine     Class = iota + 1 // a line of journal or log that cannot be read
	BadManifest                  // a manifest with which Oak does not open the store
	TooNew                       // a store of a version that nobody knows
	NoHead                       // no line of the journal leads to a segment that is there
	Limit                        // more than may be believed
)

func (c Class) String() string {
	return segment.Word("Class", c, "", "line", "manifest", "too-new", "no-head", "limit")
}

// An Error says where a file breaks its format, and how. Errors of the store are
// returned as they come.
type Error struct {
	Class  Class
	Object string
	Offset int64 // -1 if it has no place
	What   string
	Text   string // the line, if it is one, as far as 4096 bytes
}

func (e *Error) Error() string {
	if e.Offset < 0 {
		return e.Object + ": " + e.What
	}
	return fmt.Sprintf("%s at %d: %s", e.Object, e.Offset, e.What)
}
