package store

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// An Amendment is an object open for changing. While it is open nobody else's
// Amend of the object succeeds: a *LockedError says who has it. It belongs to
// one goroutine.
//
// When the process is killed, what it did is there, in order, up to some moment;
// of the last write there may be only the first bytes. When the power fails, what
// came before the last Sync that returned nil is there, and of what came after it
// anything may be, in any order: each truncation or not, each write whole, in
// part or not at all, with zeros for what is missing where it lengthened the
// object. In both cases a write that stays within one sector of 512 bytes, as
// counted from the object's beginning, and within what the object was at the last
// Sync, is whole or not at all.
type Amendment interface {
	// Size is the object's length as it is now.
	Size() int64
	// ReadAt is as of an Object, and sees what was written.
	ReadAt(ctx context.Context, p []byte, off int64) error
	// WriteAt writes all of p. It may lengthen the object, but never leaves a
	// hole: an off beyond the end is an error.
	WriteAt(ctx context.Context, p []byte, off int64) error
	// Truncate shortens the object.
	Truncate(ctx context.Context, size int64) error
	// Sync is a barrier: what was written before it is there for good before
	// anything that is written after it. If it fails nobody knows what is
	// there, and nothing more can be done than to Close.
	Sync(ctx context.Context) error
	// Close lets others in. It does not sync.
	Close() error
}

// Amend opens an object of st for changing.
func Amend(ctx context.Context, st Store, name string) (Amendment, error) {
	if amend := st.Can().Amend; amend != nil {
		return amend(ctx, name)
	}
	return nil, fmt.Errorf("change %q: objects of this store cannot be changed in place: %w", name, errors.ErrUnsupported)
}

// A LockedError means that somebody else is changing an object.
type LockedError struct {
	Name   string
	Holder string    // "process 123 on host (holdall add)", as far as it is known
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
