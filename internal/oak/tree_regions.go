package oak

import (
	"context"
	"iter"

	"github.com/holdall/holdall/codec"
	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/formatkit"
	"github.com/holdall/holdall/internal/oak/internal/repo"
	"github.com/holdall/holdall/internal/oak/internal/segment"
	"github.com/holdall/holdall/internal/pipe"
)

// Regions of this view are all that is no value's run: data segments count as index,
// for they hold the nodes, whatever small values they hold too. Which segments have
// runs of values only a walk of the whole tree tells.
func (t *treeReader) Regions(ctx context.Context) iter.Seq2[format.Region, error] {
	return pipe.Told(func(tell func(format.Region) error) error {
		for g, err := range (&segmentReader{repository: t.repository}).Regions(ctx) {
			if err == nil {
				err = tell(g)
			}
			if err != nil {
				return err
			}
		}
		if err := t.beside(ctx); err != nil {
			return err
		}
		for _, f := range t.files() {
			g := format.Region{Object: t.list.Path(f.Name), Len: f.Size, Use: format.Journal, Label: f.Name}
			if f.Name == repo.Manifest {
				g.Use = format.Header
			}
			if f.Size == 0 {
				continue
			}
			if err := tell(g); err != nil {
				return err
			}
		}
		used, err := t.used(ctx)
		if err != nil {
			return err
		}
		for _, tar := range t.tars {
			for _, i := range tar.ByPosition() {
				e := tar.At(int(i))
				if !tar.holds(e) {
					continue
				}
				g := format.Region{Object: tar.path, Off: e.Pos, Len: int64(e.Len), Use: format.IndexData, Label: "data segment"}
				free := []formatkit.Range{{From: g.Off, To: g.Off + g.Len}}
				if !e.ID.IsData() {
					g.Use, g.Label = format.Unknown, "bulk segment of no value that is shown"
					free = used[tar.path].Gaps(g.Off, g.Off+g.Len)
				}
				for _, gap := range free {
					g.Off, g.Len = gap.From, gap.To-gap.From
					if err := tell(g); err != nil {
						return err
					}
				}
			}
		}
		return nil
	})
}

// used walks the tree for the runs of its values, by tar.
func (t *treeReader) used(ctx context.Context) (map[string]formatkit.Ranges, error) {
	all := map[string]formatkit.Ranges{}
	held := 0
	for e, err := range t.Entries(ctx) {
		if err != nil {
			return nil, err
		}
		// Shorter values lie among records.
		if _, ok := e.Ref.(valueRef); !ok || e.Size < segment.BlockSize {
			continue
		}
		for x, err := range t.Extents(ctx, e, 0, e.Size) {
			if err != nil && t.damage(err) == nil {
				return nil, err
			}
			if err != nil || x.Codec != codec.Raw {
				continue
			}
			to := all[x.Object]
			before := len(to.All)
			to.Add(x.Off, x.Off+x.Len)
			all[x.Object] = to
			if held += len(to.All) - before; int64(held)*16 > t.limits.Index {
				return nil, t.treeFault(treeLimit, t.top.Segment, -1, "runs of values: expected at most %d bytes of them, found more", t.limits.Index)
			}
		}
	}
	for name, r := range all {
		r.Join()
		all[name] = r
	}
	return all, nil
}
