package zarr3

import (
	"cmp"
	"context"
	"slices"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/kit/pipe"
)

const (
	aheadKeys  = 4096     // keys that are read ahead together
	aheadBytes = 32 << 20 // bytes of chunks that are read for them
	aheadRun   = 1 << 20  // bytes of one request
	aheadGap   = 64 << 10 // bytes between chunks that one request reads
	aheadMany  = 16       // requests at a time
)

// A run is a group of chunks that one request reads.
type run struct {
	object   string
	off, end int64
	of       []stretch
	b        []byte // nil if it cannot be read
}

// A stretch is the place of a chunk.
type stretch struct {
	key string
	x   format.Extent
}

// ahead reads chunks whose length in version 3 is only known after reading them: neighbours
// together, several requests at a time. Chunks that it does not read, or cannot read, are read when
// needed.
func (r *reader) ahead(ctx context.Context, entries []format.Entry) (map[string][]byte, error) {
	place := r.src.keys.Can().Run
	if place == nil || r.src.st.Can().Near {
		return nil, nil
	}
	var all []stretch
	room := int64(aheadBytes)
	for _, e := range entries {
		x, ok := place(e)
		if !ok || x.External || x.Skip != 0 || x.Len != e.Size || e.Size > aheadRun || e.Size > room {
			continue
		}
		at, a, err := r.arrayOf(ctx, e.Name)
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if err == nil && a != nil && a.Anew && a.Size < 0 && a.IsChunk(below(at, e.Name)) {
			all = append(all, stretch{e.Name, x})
			room -= e.Size
		}
	}
	slices.SortFunc(all, func(a, b stretch) int {
		return cmp.Or(cmp.Compare(a.x.Object, b.x.Object), cmp.Compare(a.x.Off, b.x.Off))
	})
	var runs []*run
	for _, s := range all {
		end := s.x.Off + s.x.Len
		if n := len(runs); n > 0 && runs[n-1].object == s.x.Object && s.x.Off <= runs[n-1].end+aheadGap && end-runs[n-1].off <= aheadRun {
			runs[n-1].end = max(runs[n-1].end, end)
			runs[n-1].of = append(runs[n-1].of, s)
			continue
		}
		runs = append(runs, &run{object: s.x.Object, off: s.x.Off, end: end, of: []stretch{s}})
	}
	err := pipe.Each(ctx, pipe.All(runs), aheadMany, func(ctx context.Context, g *run) error {
		b := make([]byte, g.end-g.off)
		if r.src.readAt(ctx, g.object, b, g.off) == nil {
			g.b = b
		}
		return ctx.Err()
	})
	found := map[string][]byte{}
	for _, g := range runs {
		for _, s := range g.of {
			if g.b != nil {
				found[s.key] = g.b[s.x.Off-g.off:][:s.x.Len:s.x.Len]
			}
		}
	}
	return found, err
}
