package sweep

import (
	"context"
	"io/fs"

	"github.com/holdall/holdall/internal/oak/internal/segment"
)

// sourceCache is how many segments a source keeps: ids of binaries that are strings
// of their own are seldom far away.
const sourceCache = 16

// A source has the segments of all tars, from the newest that has one. It belongs to
// one goroutine.
type source struct {
	tars []TarPlan
	kept [sourceCache]*segment.Segment
	next int
}

func (s *source) Segment(ctx context.Context, id segment.ID) (*segment.Segment, error) {
	for _, seg := range s.kept {
		if seg != nil && seg.ID() == id {
			return seg, nil
		}
	}
	for i := range s.tars {
		t := &s.tars[i]
		k, ok := t.Index().Find(id)
		if !ok {
			continue
		}
		b, err := t.Tar.Read(ctx, k, nil)
		if err != nil {
			return nil, err
		}
		seg, err := segment.Parse(id, b)
		if err != nil {
			return nil, err
		}
		s.kept[s.next] = seg
		s.next = (s.next + 1) % sourceCache
		return seg, nil
	}
	return nil, fs.ErrNotExist
}
