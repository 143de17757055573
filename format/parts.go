package format

import (
	"context"

	"github.com/holdall/holdall/store"
)

// Parts is for a format whose archives can be written in parts, each by a program of
// its own and in any order, and made one archive when all are there. It keeps nothing
// between its calls but what is in the store.
//
// A part is there when its object is. Before that object, its writer leaves a list of
// what is in it, under names that readers of the format pass over; each [Part.Try]
// leaves its own, so that those who write one part at the same time, which nobody can
// keep them from for certain, do not mix theirs. Whose object it is that is there,
// Open tells.
//
// No archive is there before Merge has made its last object, and whatever dies at any
// time can be done again.
type Parts struct {
	// Most is how many parts an archive may have.
	Most int

	// Object is what the object of a part is called, and Decides that with whose
	// appearance the parts are an archive.
	Object  func(archive string, number int) string
	Decides func(archive string) string

	// Create begins a part. Its Commit creates the list, and then the object, which
	// should be created once: see [store.Wishes].
	Create func(ctx context.Context, st store.Store, p Part, o CreateOptions) (Writer, error)

	// Tries finds those that left a list of a part, the latest first; the list need
	// not be whole.
	Tries func(ctx context.Context, st store.Store, archive string, number int) ([]Part, error)

	// Open reads a part by the list of a try. Where the part is not there, the list
	// is not whole or it is certain that it is of another try's object, the error
	// wraps fs.ErrNotExist.
	Open func(ctx context.Context, st store.Store, p Part, o OpenOptions) (Reader, error)

	// Merge makes the parts an archive. They are numbered from 0 on and come in that
	// order; of what is in several, that of the last counts. The options are those
	// that the parts were made with. An archive that is there is not replaced: the
	// error wraps fs.ErrExist.
	Merge func(ctx context.Context, st store.Store, archive string, parts []Part, o CreateOptions) (Summary, error)

	// Clear takes the lists away. What they are of is no archive without them, if it
	// is none yet.
	Clear func(ctx context.Context, st store.Store, archive string) error
}

// A Part is one of those that an archive is written in.
type Part struct {
	Archive string
	Number  int
	// Try tells those who write the part from each other. The later has the greater
	// one; it is not negative.
	Try int64
}
