package holdall

import (
	"fmt"
	"strings"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/read/content"
	"github.com/holdall/holdall/internal/read/digest"
	"github.com/holdall/holdall/internal/read/outside"
	"github.com/holdall/holdall/internal/write/pack"
)

// ErrDamaged is wrapped by all errors that report a damaged archive or damaged content.
var ErrDamaged = format.ErrCorrupt

// ErrNothing means that [Pack] had nothing to pack, or [Convert] nothing that was selected. No
// archive is written, and none is replaced.
var ErrNothing = pack.ErrNothing

type (

	// A DigestError means that the content of Entry does not match its digest: Want is the digest
	// in the archive, Got that of the content. If flipping a single bit makes the content match,
	// Bit is the number of that bit. It is -1 if there is no such bit or if none was searched
	// for.
	DigestError = digest.Error

	// A ProofError means that a piece of the content of Entry, Len bytes at offset Off, does not
	// match its digest in Index. No byte of the piece was returned.
	ProofError = content.ProofError

	// A ProofLostError means that content could not be compared because the index with its
	// digests cannot be read. The content is not returned.
	ProofLostError = content.ProofLostError

	// An ExternalError means that an archive refers to an Address that OpenOptions.External does
	// not allow.
	ExternalError = outside.Error
)

// A ViewError means that a format does not have the requested view.
type ViewError struct {
	Format, View string
	Has          []string
}

func (e *ViewError) Error() string {
	if len(e.Has) == 0 {
		return fmt.Sprintf("%s has one view only, not %q", e.Format, e.View)
	}
	return fmt.Sprintf("%s has no view %q: it has %s", e.Format, e.View, strings.Join(e.Has, ", "))
}
