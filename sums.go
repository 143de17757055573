package holdall

import (
	"context"
	"errors"
	"fmt"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/read/content"
	"github.com/holdall/holdall/internal/read/digest"
	"github.com/holdall/holdall/internal/read/listing"
)

// Sums calls each, one at a time, with the digest of every file, by the algorithm "sha256" or
// "blake3". Digests of that algorithm in the archive are returned first, without reading
// contents. The remaining contents are then read, compared with any digest that they have, and
// hashed. If a content cannot be read or is damaged, each gets the error. For any other algorithm
// the error wraps [errors.ErrUnsupported].
func (a *Archive) Sums(ctx context.Context, algo string, m *Meter, each func(e Entry, d format.Digest, err error) error) error {
	if algo != "sha256" && algo != "blake3" {
		return fmt.Errorf("digest algorithm %q: %w", algo, errors.ErrUnsupported)
	}
	rest := func(e Entry) bool {
		return e.Kind.HasContent() && !e.Internal && e.Fault == nil && e.Digest.Algo != algo
	}
	unknown := false
	for e, err := range a.src.Packed(ctx) {
		switch {
		case err != nil:
			return err
		case !e.Kind.HasContent():
		case rest(e):
			unknown = true
		case e.Fault != nil:
			err = each(e, format.Digest{}, a.src.Fault(e))
		default:
			err = each(e, e.Digest, nil)
		}
		if err != nil {
			return err
		}
	}
	if !unknown {
		return nil
	}
	if err := a.src.Expect(ctx, m, rest); err != nil {
		return err
	}
	return a.src.Sweep(ctx, listing.Only(a.Entries(ctx), rest), content.Compared, func(c content.Content, err error) error {
		e, h := c.Entry, digest.New(algo)
		if err == nil {
			err = c.CopyTo(ctx, h, m)
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err := content.Passing(e, err); err != nil {
			return err
		}
		m.Add(1, 0)
		if err != nil {
			return each(e, format.Digest{}, content.ReadError(e, err))
		}
		return each(e, format.Digest{Algo: algo, Sum: string(h.Sum(nil))}, nil)
	})
}
