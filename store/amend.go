package store

import (
	"context"
	"time"
)

// An Amendment is an object open for changes in place. While it is open, another Amend of the
// object fails with a [*LockedError] that says who has it. An Amendment must not be used by
// several goroutines at once.
//
// If the process is killed, all changes up to some moment have been made, in order; of the last
// write, only the first bytes may have been made.
//
// If the power fails, all changes before the last Sync that returned nil have been made. Of the
// later changes any may have been made, in any order: each truncation or not, and each write
// completely, partly or not at all, with zeros for what is missing where it extended the object.
//
// In both cases, a write within one sector of 512 bytes, counted from the start of the object, is
// made completely or not at all. The sector must be within the object's size at the last Sync.
type Amendment interface {
	// Size returns the current size of the object.
	Size() int64
	// ReadAt is like [Object].ReadAt, and returns what was written.
	ReadAt(ctx context.Context, p []byte, off int64) error
	// WriteAt writes all of p at offset off. It may extend the object, but if off is beyond the
	// end, it returns an error.
	WriteAt(ctx context.Context, p []byte, off int64) error
	// Truncate shortens the object.
	Truncate(ctx context.Context, size int64) error
	// Sync is a barrier: everything written before it becomes durable before anything written
	// after it. If Sync fails, the state of the object is unknown, and the caller can only call
	// Close.
	Sync(ctx context.Context) error
	// Close releases the object for others. It does not call Sync.
	Close() error
}

// A LockedError means that another program is changing the object.
type LockedError struct {
	Name   string
	Holder string    // such as "process 123 on host (holdall add)"; may be incomplete
	Since  time.Time // zero if not known
}

func (e *LockedError) Error() string {
	s := e.Name + ": locked by "
	if e.Holder == "" {
		s += "another process"
	} else {
		s += e.Holder
	}
	if !e.Since.IsZero() {
		s += " since " + e.Since.Format("2006-01-02 15:04:05")
	}
	return s
}
