package holdall

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/store"
)

// Sums calls each, one by one, with the digest of every file by an algorithm, "sha256"
// or "blake3": one that the archive records is believed, and for the others contents are
// read and compared with what digests they have. Those come behind those. What cannot be
// read, or is damaged, comes with an error.
func (a *Archive) Sums(ctx context.Context, algo string, m *Meter, each func(e Entry, d Digest, err error) error) error {
	if algo != "sha256" && algo != "blake3" {
		return fmt.Errorf("digests by %q: %w", algo, errors.ErrUnsupported)
	}
	wanted := func(e Entry) bool { return e.Kind.HasContent() && !e.Internal }
	known := func(e Entry) bool { return e.Fault == nil && e.Digest.Algo == algo }
	unknown := false
	for e, err := range a.Entries(ctx) {
		if err != nil {
			return err
		}
		switch {
		case !wanted(e):
		case known(e):
			if err := each(e, e.Digest, nil); err != nil {
				return err
			}
		case e.Fault != nil:
			if err := each(e, Digest{}, &format.CorruptError{Format: a.f.Name, Problem: *e.Fault}); err != nil {
				return err
			}
		default:
			unknown = true
		}
	}
	if !unknown {
		return nil
	}
	rest := func(e Entry) bool { return wanted(e) && e.Fault == nil && !known(e) }
	if err := a.expect(ctx, m, rest); err != nil {
		return err
	}
	var entries iter.Seq2[Entry, error] = func(yield func(Entry, error) bool) {
		for e, err := range a.Entries(ctx) {
			if (err != nil || rest(e)) && !yield(e, err) || err != nil {
				return
			}
		}
	}
	return a.sweep(ctx, entries, true, func(it sweepItem, content io.Reader, err error) error {
		e, h := it.Entry, newHash(algo)
		if err == nil {
			err = copyChecked(ctx, h, e, content, m)
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if store.Temporary(err) || errors.Is(err, store.ErrChanged) {
			return fmt.Errorf("%s: %w", format.Escape(e.Name), err)
		}
		m.Add(1, 0)
		if err != nil {
			return each(e, Digest{}, err)
		}
		return each(e, Digest{Algo: algo, Sum: string(h.Sum(nil))}, nil)
	})
}
