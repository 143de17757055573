package repo

import "fmt"

// An Error says where a file breaks its format, and how. Errors of the store are
// returned as they come.
type Error struct {
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
