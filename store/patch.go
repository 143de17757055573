package store

import "context"

// A Patcher is a Writer that can replace what was written earlier, until Commit.
// One whose PatchLimit is 0 is none.
type Patcher interface {
	// Patch replaces len(p) bytes from off on. It cannot lengthen the object,
	// and reaches no further than PatchLimit. If it fails half way nothing
	// more can be done than to Abort.
	Patch(ctx context.Context, p []byte, off int64) error
	// PatchLimit is how many bytes from the beginning can be replaced: all on a
	// disk, those of its first part in a bucket.
	PatchLimit() int64
}

// PatchLimit returns how many bytes at the beginning w can replace later.
func PatchLimit(w Writer) int64 {
	if p, ok := w.(Patcher); ok {
		return p.PatchLimit()
	}
	return 0
}
