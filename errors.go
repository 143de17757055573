package holdall

import (
	"errors"
	"fmt"
	"strings"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/content"
	"github.com/holdall/holdall/internal/digest"
	"github.com/holdall/holdall/internal/outside"
)

// ErrDamaged is what errors about damaged archives and contents wrap.
var ErrDamaged = format.ErrCorrupt

// ErrImmutable means that archives of a format cannot be changed in place. It is
// an errors.ErrUnsupported.
var ErrImmutable error = immutable{}

type immutable struct{}

func (immutable) Error() string        { return "immutable format" }
func (immutable) Is(target error) bool { return target == errors.ErrUnsupported }

type (
	// A DigestError means that the content of Entry is not what its archive says it is:
	// Want and Got are the digests. Bit is the only wrong bit, where flipping it makes the
	// content right; -1 where that is not so or was not tried.
	DigestError = digest.Error

	// A ProofError means that a piece of the content of Entry, from Off on and Len bytes
	// long, is not what the Index of the archive has the digest of. Nothing of the piece
	// was handed out.
	ProofError = content.ProofError

	// A ProofLostError means that an index was to prove what is read, and is damaged
	// itself. Nothing is read without proof because of that.
	ProofLostError = content.ProofLostError

	// An ExternalError means that an archive leads to an Address which it may not lead to:
	// see OpenOptions.External.
	ExternalError = outside.Error
)

// A ViewError says that an archive has no such view.
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
