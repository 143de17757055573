package content

import (
	"context"

	"github.com/zeebo/blake3"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/read/digest"
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

// Sum returns the root of contents.
func (r *Rows) Sum(ctx context.Context) (string, error) {
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
