package holdall

import (
	"context"
	"errors"
	"fmt"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/read/kept"
	"github.com/holdall/holdall/internal/read/root"
	"github.com/holdall/holdall/store"
)

// An UntrustedError means that OpenOptions.Trusted is set, and no signature by one of the keys covers what
// would be read.
type UntrustedError struct {
	Archive string
	Err     error
}

func (e *UntrustedError) Error() string {
	return fmt.Sprintf("%s: not trusted: %v", format.Escape(e.Archive), e.Err)
}

func (e *UntrustedError) Unwrap() error { return e.Err }

// A Statement has the roots of an archive in hex; see [Archive.Roots].
type Statement = root.Statement

// Roots returns the roots that stand for the archive. That of its contents is the same in every format. If
// the archive is not opened by an index with digests, files without a BLAKE3 are read, and there is no
// root of the archive.
func (a *Archive) Roots(ctx context.Context, m *Meter) (s Statement, err error) {
	if s := a.indexed(); s.Contents != "" {
		return s, nil
	}
	if err := a.src.Vouched(); err != nil {
		return s, err
	}
	rows := a.src.NewRows()
	defer rows.Close()
	for e, err := range a.src.Packed(ctx) {
		if err == nil && !e.Kind.HasContent() {
			err = rows.Add(e, [32]byte{})
		}
		if err != nil {
			return s, err
		}
	}
	err = a.Sums(ctx, "blake3", m, func(e Entry, d format.Digest, err error) error {
		if err != nil {
			return err
		}
		var sum [32]byte
		copy(sum[:], d.Sum)
		return rows.Add(e, sum)
	})
	if err == nil {
		s.Contents, err = rows.Sum(ctx)
	}
	if err == nil && s.Contents == "" {
		err = fmt.Errorf("%s: %w: some of its entries cannot be read", format.Escape(a.Name()), ErrDamaged)
	}
	return s, err
}

// indexed returns the roots that the index says, if the archive is opened by one with digests.
func (a *Archive) indexed() (s Statement) {
	if x := a.src.Index(); x != nil && !x.Copied {
		s = Statement{Contents: x.Contents, Archive: x.Root}
	}
	return s
}

// SignedBy returns the ID of the key that has signed the archive; it is empty without OpenOptions.Trusted.
func (a *Archive) SignedBy() string { return a.signedBy }

// untrusting returns an error for what reads an archive without signatures, if they are asked for.
func (o OpenOptions) untrusting(address string) error {
	if len(o.Trusted) == 0 {
		return nil
	}
	return &UntrustedError{store.Redact(address), errNotCovered}
}

var errNotCovered = errors.New("no signed root covers it")

// trust opens the archive by what is signed: by the index whose root that is, or by a list of which the
// root of contents is.
func (p opening) trust(ctx context.Context, by store.Store, a *Archive) error {
	o := p.o
	if o.NoVerify || o.Index.sizeOnly {
		return errors.New("contents are not compared")
	}
	s, id, _, err := root.Signed(ctx, p.st, p.name, o.Trusted)
	if err != nil {
		return err
	}
	a.signedBy = id
	a.src.Trust()
	if s.Archive != "" && o.Password == "" {
		u := kept.Use{At: o.Index.At, Beside: true, Root: s.Archive}
		if p.indexed(ctx, a, u, func(context.Context, *format.Format) (format.Reader, error) {
			return nil, &UntrustedError{p.name, errNotCovered}
		}) {
			return nil
		}
	}
	o.FewLookups, o.once, o.linked = false, false, nil
	f, r, err := recognise(ctx, by, p.name, o)
	if err != nil {
		return err
	}
	a.src.Read(f, r)
	if at := r.Can().Root; at != "" && at == s.Archive {
		return nil
	}
	if err = a.src.CoveredBy(ctx, s.Contents); err != nil && a.index.Why != nil {
		err = fmt.Errorf("%w; its index %s is not used: %w", err, format.Escape(a.index.Ignored), a.index.Why)
	}
	return err
}
