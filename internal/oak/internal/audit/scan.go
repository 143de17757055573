package audit

import (
	"cmp"
	"context"
	"slices"

	"github.com/holdall/holdall/internal/oak/internal/tarfile"
)

// found is what is known of a tar without an index.
type found struct {
	segments []foundSegment // by id
	refs     tarfile.IDs    // of all
}

type foundSegment struct {
	tarfile.Entry
	from, to int // of refs
}

// scan looks for the segments of a tar that a recovery would find.
func (x *unit) scan(ctx context.Context, t *teller, newest bool) error {
	f := &found{}
	report := func(p tarfile.Problem) {
		s := Error
		if newest && p.Class == tarfile.Truncated {
			s = Warning // what was just being written; if a revision needs it, Across tells
		}
		x.pass(t, Unrecoverable, s, p)
	}
	size, err := x.obj.Info(ctx)
	if err != nil {
		return x.changed(t, 0, err)
	}
	for s, err := range tarfile.Scan(ctx, x.obj, size.Size, tarfile.ScanOptions{}, report) {
		if err != nil {
			return x.changed(t, s.DataPos, err)
		}
		g := foundSegment{tarfile.Entry{ID: s.ID, Pos: s.DataPos, Len: s.Len}, len(f.refs), len(f.refs)}
		if s.ID.IsData() {
			h, ok := tarfile.ParseSegmentHead(s.Data)
			if !ok {
				t.of(BadSegment, Error, x.Name, s.DataPos, s.ID, "segment: begins with %x, expected the header of a data segment; with it Oak recovers nothing of this tar", s.Data[:min(len(s.Data), 4)])
			}
			f.refs = append(f.refs, h.Refs...)
			g.Generation, g.to = h.Generation, len(f.refs)
		}
		f.segments = append(f.segments, g)
	}
	if len(f.segments) == 0 && x.Size > 2*tarfile.BlockSize {
		t.about(EmptyTar, Error, x.Name, 0, "file: %d bytes, expected a segment", x.Size)
	}
	// Of two with one id a recovery takes the later.
	slices.SortStableFunc(f.segments, func(a, b foundSegment) int {
		return cmp.Or(a.ID.Compare(b.ID), cmp.Compare(b.Pos, a.Pos))
	})
	f.segments = slices.CompactFunc(f.segments, func(a, b foundSegment) bool { return a.ID == b.ID })
	x.found = f
	return nil
}

func (f *found) targets(i int) tarfile.IDs { return f.refs[f.segments[i].from:f.segments[i].to] }
