package kit

import (
	"context"
	"fmt"
	"io"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/store"
)

// A SizeError means that the size of a content differs from that of its entry. Said is the size
// of the entry, Found the size of the content.
type SizeError struct {
	Name        string
	Said, Found int64
}

func (e *SizeError) Error() string {
	if e.Found > e.Said {
		return fmt.Sprintf("%s: longer than the %d bytes that were listed", e.Name, e.Said)
	}
	return fmt.Sprintf("%s: %d bytes, but %d were listed", e.Name, e.Found, e.Said)
}

// Create begins an archive with f.Create, or f.FromZarr. Its Writer refuses what f does not hold, and what
// f.Refuses refuses, with a [*RefusedError].
func Create(ctx context.Context, f *format.Format, st store.Store, name string, o format.CreateOptions) (format.Writer, error) {
	create := f.Create
	if create == nil {
		create = f.FromZarr
	}
	w, err := create(ctx, st, name, o)
	if err != nil {
		return nil, err
	}
	return limited{w, f}, nil
}

type limited struct {
	format.Writer
	f *format.Format
}

func (w limited) Add(ctx context.Context, e format.Entry, r io.Reader) error {
	if !w.f.Holds(e.Kind) {
		return Refuse(e.Name, "a %s cannot be stored", e.Kind)
	}
	if w.f.Refuses != nil {
		if why := w.f.Refuses(e); why != "" {
			return Refuse(e.Name, "%s", why)
		}
	}
	return w.Writer.Add(ctx, e, r)
}

// An EntryError means that a Writer cannot store an entry. The rest of the archive is not
// affected.
type EntryError interface {
	error
	EntryName() string
}

// A RefusedError is an [EntryError] with its reason.
type RefusedError struct{ Name, Why string }

// Refuse returns a RefusedError.
func Refuse(name, why string, args ...any) *RefusedError {
	return &RefusedError{Name: name, Why: fmt.Sprintf(why, args...)}
}

func (e *RefusedError) Error() string { return format.Escape(e.Name) + ": " + e.Why }

// EntryName implements EntryError.
func (e *RefusedError) EntryName() string { return e.Name }
