package format

import (
	"context"

	"github.com/holdall/holdall/store"
)

// Parts has the functions of a format whose archives can be written in parts. Separate programs
// write the parts, in any order; when all parts exist, Merge makes them one archive. Parts keeps
// no state between its calls except in the store.
//
// A part exists when its object exists. Before that object, its writer stores a list of its
// entries, under a name that readers of the format ignore. Several programs may write the same
// part at the same time, which cannot be prevented reliably. So each [Part.Try] stores a list of
// its own, and Open finds out which try wrote the object.
//
// The archive does not exist before Merge has written its last object. Every step can be repeated
// after a failure at any time.
type Parts struct {
	// Most is the largest number of parts of an archive.
	Most int

	// Object returns the name of the object of a part. Decides returns the name of the object
	// whose appearance makes the parts an archive.
	Object  func(archive string, number int) string
	Decides func(archive string) string

	// Create begins a part. Its Commit stores the list and then the object, which should be
	// created only once; see [store.Wishes].
	Create func(ctx context.Context, st store.Store, p Part, o CreateOptions) (Writer, error)

	// Tries returns the tries that stored a list of a part, the latest first. The list may be
	// incomplete.
	Tries func(ctx context.Context, st store.Store, archive string, number int) ([]Part, error)

	// Open reads a part by the list of a try. The error wraps [fs.ErrNotExist] if the part does
	// not exist, if the list is incomplete, or if it certainly belongs to the object of another
	// try.
	Open func(ctx context.Context, st store.Store, p Part, o OpenOptions) (Reader, error)

	// Merge makes the parts an archive. They are numbered from 0 and must be in order. If several
	// parts have an entry of the same name, the last one counts. The options must be those that
	// the parts were made with. An existing archive is not replaced: the error wraps
	// [fs.ErrExist].
	Merge func(ctx context.Context, st store.Store, archive string, parts []Part, o CreateOptions) (Summary, error)

	// Clear removes the lists. If the parts have not been merged yet, they can then no longer
	// become an archive.
	Clear func(ctx context.Context, st store.Store, archive string) error
}

// A Part is one part of an archive that is written in parts.
type Part struct {
	Archive string
	Number  int
	// Try distinguishes programs that write the same part. It is not negative, and greater for a
	// later program.
	Try int64
}
