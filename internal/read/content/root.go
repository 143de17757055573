package content

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/base/blake3"
	"github.com/holdall/holdall/internal/read/digest"
	"github.com/holdall/holdall/internal/read/listing"
	"github.com/holdall/holdall/internal/read/root"
)

// Rows collects what the root of an archive's contents is computed of.
type Rows struct {
	*root.Rows
	s     *Source
	links []Entry
	holes int // contents without a digest, since they are damaged
}

// NewRows returns no rows. They must be closed.
func (s *Source) NewRows() *Rows { return &Rows{Rows: root.NewRows(), s: s} }

// Add adds an entry. sum is the BLAKE3 of its content, if it has any.
func (r *Rows) Add(e Entry, sum digest.Piece) error {
	switch {
	case e.Internal: // it belongs to the format
		return nil
	case e.Fault != nil:
		r.holes++
		return nil
	case e.Kind == format.HardLink:
		r.links = append(r.links, Entry{Name: e.Name, Kind: e.Kind, Link: e.Link})
		return nil
	}
	return r.Rows.Add(e, sum)
}

// Sum returns the root of contents. It is empty if there is damage.
func (r *Rows) Sum(ctx context.Context) (string, error) {
	if r.holes > 0 {
		return "", nil
	}
	for _, e := range r.links {
		to, err := r.s.Reader.Lookup(ctx, e.Link)
		if err != nil || to.Kind != format.File || to.Fault != nil { // it leads nowhere
			if err := r.Rows.Add(e, digest.Piece{}); err != nil {
				return "", err
			}
			continue
		}
		var sum digest.Piece
		if copy(sum[:], to.Digest.Sum); to.Digest.Algo != "blake3" {
			h := blake3.New()
			if err := r.s.Copy(ctx, h, to); err != nil {
				return "", err
			}
			h.Sum(sum[:0])
		}
		to.Name = e.Name
		if err := r.Rows.Add(to, sum); err != nil {
			return "", err
		}
	}
	r.links = nil
	return r.Rows.Sum()
}

// ListedRoot returns the root of the contents that the reader lists, without reading contents. Each must have a
// BLAKE3.
func (s *Source) ListedRoot(ctx context.Context) (string, error) {
	rows := s.NewRows()
	defer rows.Close()
	for e, err := range s.Packed(ctx) {
		if err == nil {
			err = s.Fault(e)
		}
		if err != nil {
			return "", err
		}
		sum := blake3.Sum256(nil)
		if e.Kind == format.HardLink || e.Kind.HasContent() && e.Size > 0 && e.Digest.Algo != "blake3" {
			return "", fmt.Errorf("%s has no BLAKE3 of its own: an index with digests must be signed, and lie beside the archive", format.Escape(e.Name))
		}
		if e.Kind.HasContent() && e.Size > 0 {
			copy(sum[:], e.Digest.Sum)
		}
		if err := rows.Add(e, sum); err != nil {
			return "", err
		}
	}
	return rows.Sum(ctx)
}

// CoveredBy compares the root of an archive's contents with the list that its reader shows. What is read later
// is compared with the digests in that list, and what these do not cover is not shown: modes, owners and times.
func (s *Source) CoveredBy(ctx context.Context, want string) error {
	got, err := s.ListedRoot(ctx)
	if err == nil && got != want {
		err = errors.New("its contents are not those that were signed")
	}
	s.Read(s.Format, covered{s.Reader})
	return err
}

// covered is a reader that shows what the root of contents covers.
type covered struct{ format.Reader }

func cover(e Entry) Entry {
	e.HasMode, e.Mode, e.Owner, e.Group, e.Attr = false, 0, "", "", nil
	e.ModTime = Entry{}.ModTime
	return e
}

func covers(entries iter.Seq2[Entry, error]) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		for e, err := range listing.Only(entries, func(e Entry) bool { return !e.Internal }) {
			if !yield(cover(e), err) {
				return
			}
		}
	}
}

func (c covered) Entries(ctx context.Context) iter.Seq2[Entry, error] {
	return covers(c.Reader.Entries(ctx))
}

func (c covered) ReadDir(ctx context.Context, dir string) iter.Seq2[Entry, error] {
	return covers(c.Reader.ReadDir(ctx, dir))
}

func (c covered) Lookup(ctx context.Context, name string) (Entry, error) {
	e, err := c.Reader.Lookup(ctx, name)
	if err == nil && e.Internal {
		return Entry{}, &fs.PathError{Op: "lookup", Path: name, Err: fs.ErrNotExist}
	}
	return cover(e), err
}

// Can leaves out what would show entries that are not covered.
func (c covered) Can() format.Abilities {
	can := c.Reader.Can()
	can.EntriesBelow, can.EntriesFrom, can.ReadDirFrom = nil, nil, nil
	return can
}
