package audit

import (
	"bytes"
	"context"

	"github.com/holdall/holdall/internal/oak/internal/segment"
	"github.com/holdall/holdall/internal/oak/internal/tarfile"
)

// scan looks for the segments of a tar that a recovery would find.
func (x *unit) scan(ctx context.Context, t *teller, newest bool) error {
	var found []tarfile.Entry
	refs := map[tarfile.ID]tarfile.IDs{}
	report := func(p tarfile.Problem) {
		s := Error
		if newest && p.Class == tarfile.Truncated {
			s = Warning // what was just being written; if a revision needs it, Across tells
		}
		x.pass(t, Unrecoverable, s, p)
	}
	info, err := x.obj.Info(ctx)
	if err != nil {
		return x.changed(t, 0, err)
	}
	for s, err := range tarfile.Scan(ctx, x.obj, info.Size, report) {
		if err != nil {
			return x.changed(t, s.DataPos, err)
		}
		e := tarfile.Entry{ID: s.ID, Pos: s.DataPos, Len: s.Len}
		if s.ID.IsData() {
			h, ok := segment.ParseHead(s.Data)
			if !ok {
				t.of(BadSegment, Error, x.Name, s.DataPos, s.ID, "segment: begins with %x, expected the header of a data segment; with it Oak recovers nothing of this tar", s.Data[:min(len(s.Data), 4)])
			}
			e.Generation, refs[s.ID] = h.Generation, bytes.Clone(h.Refs)
		}
		found = append(found, e)
	}
	if len(found) == 0 && x.Size > 2*tarfile.BlockSize {
		t.about(EmptyTar, Error, x.Name, 0, "file: %d bytes, expected a segment", x.Size)
	}
	x.Index, x.refs = tarfile.NewIndex(found), refs
	return nil
}
