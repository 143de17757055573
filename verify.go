package holdall

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"sync/atomic"

	"github.com/holdall/holdall/codec"
	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/cache"
	"github.com/holdall/holdall/store"
)

// VerifyOptions are wishes for a check. An index serves for its digests of pieces, if
// it has any: then damage is told by its place.
type VerifyOptions struct {
	OpenOptions
	// Quick checks the structure and leaves contents alone.
	Quick bool `json:"quick,omitempty"`
	// Meter counts.
	Meter *Meter `json:"-"`
}

// Verified says what a check looked at and how much it found.
type Verified struct {
	Format   string `json:"format"`
	Entries  int64  `json:"entries"`
	Bytes    int64  `json:"bytes"` // content read and compared
	Errors   int64  `json:"errors"`
	Warnings int64  `json:"warnings"`
	// Unproven counts files whose content nothing vouches for: the archive
	// records no digest of them.
	Unproven int64 `json:"unproven"`
}

// Verify checks an archive and reports all that is wrong with it; report is
// called by one goroutine at a time. An error means that the check could not be
// carried out, not that something was found.
func Verify(ctx context.Context, st store.Store, name string, o VerifyOptions, report func(Problem)) (Verified, error) {
	var sum Verified
	told := map[Problem]bool{} // of no entry
	tell := func(p Problem) {
		if !p.HasEntry {
			told[p] = true
		}
		switch p.Severity {
		case format.Error:
			sum.Errors++
		case format.Warning:
			sum.Warnings++
		}
		report(p)
	}
	if !store.IsNear(st) {
		st = cache.Wrap(st, cmp.Or(o.CacheBytes, defaultCache)) // for the structure and the contents alike
	}
	var by *Archive
	if !o.Quick {
		if by = proofIn(ctx, st, name, o.OpenOptions); by != nil {
			defer by.Close()
		}
	}
	o.Index = UseIndex{} // what is looked at is the archive
	a, err := OpenStore(ctx, st, name, o.OpenOptions)
	f := (*format.Format)(nil)
	if a != nil {
		defer a.Close()
		f = a.f
	} else if f = formatOfBroken(name, o.OpenOptions, err); f == nil {
		return sum, err
	}
	sum.Format = f.Name
	if f.Verify != nil {
		inner := o.inner()
		inner.Quick = o.Quick
		if err := f.Verify(ctx, st, name, inner, tell); err != nil {
			return sum, err
		}
	}
	if a == nil {
		// It does not open. If the check saw nothing wrong, the error tells.
		if sum.Errors == 0 {
			c, ok := errors.AsType[*format.CorruptError](err)
			if !ok {
				return sum, err
			}
			tell(c.Problem)
		}
		return sum, nil
	}
	if by != nil {
		return sum, checkByIndex(ctx, by, o, &sum, tell)
	}
	err = checkContents(ctx, a, o, &sum, tell)
	if c, ok := errors.AsType[*format.CorruptError](err); ok {
		// The index cannot be read on: entries behind that are not known.
		if !told[c.Problem] {
			tell(c.Problem)
		}
		return sum, nil
	}
	return sum, err
}

// formatOfBroken says what an archive that does not open should have been.
func formatOfBroken(name string, o OpenOptions, err error) *format.Format {
	if c, ok := errors.AsType[*format.CorruptError](err); ok {
		return format.ByName(o.formats(), c.Format)
	}
	return nil
}

// checkContents compares contents with their digests, and decodes those that
// have none but would show damage in decoding.
func checkContents(ctx context.Context, a *Archive, o VerifyOptions, sum *Verified, tell func(Problem)) error {
	err := a.expect(ctx, o.Meter, func(e Entry) bool { return !o.Quick && e.Fault == nil && e.Digest.Algo != "" })
	if err != nil {
		return err
	}
	entries := func(yield func(Entry, error) bool) {
		for e, err := range a.Entries(ctx) {
			if err != nil {
				yield(e, err)
				return
			}
			sum.Entries++
			if !e.Kind.HasContent() || e.Fault != nil {
				continue
			}
			if a.f.ReadsAll {
				if !o.Quick {
					sum.Bytes += e.Size
				}
				continue
			}
			proven := canHash(e.Digest.Algo)
			if !proven {
				sum.Unproven++
			}
			if o.Quick || !proven && !a.coded(ctx, e) {
				continue
			}
			if !yield(e, nil) {
				return
			}
		}
	}
	var read atomic.Int64
	found := make(chan Problem, 16)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for p := range found {
			tell(p)
		}
	}()
	err = a.sweep(ctx, iter.Seq2[Entry, error](entries), false, func(it sweepItem, content io.Reader, err error) error {
		if err == nil {
			err = copyChecked(ctx, io.Discard, it.Entry, content, o.Meter)
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err != nil {
			if store.Temporary(err) || errors.Is(err, store.ErrChanged) {
				return fmt.Errorf("%s: %w", format.Escape(it.Entry.Name), err)
			}
			found <- problemOf(a, it.Entry, err)
			return nil
		}
		read.Add(it.Entry.Size)
		o.Meter.Add(1, 0)
		return nil
	})
	close(found)
	<-done
	sum.Bytes += read.Load()
	return err
}

// coded reports whether reading e's content takes more than copying bytes.
func (a *Archive) coded(ctx context.Context, e Entry) bool {
	for x, err := range a.Extents(ctx, e) {
		if err != nil || x.Codec != codec.Raw && x.Codec != codec.Inline && x.Codec != codec.Zero {
			return true
		}
	}
	return false
}
