package oak

import (
	"cmp"
	"context"
	"iter"
	"slices"

	"github.com/holdall/holdall/codec"
	"github.com/holdall/holdall/format"
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
				free := []run{{g.Off, g.Off + g.Len}}
				if !e.ID.IsData() {
					g.Use, g.Label = format.Unknown, "bulk segment of no value that is shown"
					free = used[tar.path].gaps(g.Off, g.Off+g.Len)
				}
				for _, gap := range free {
					g.Off, g.Len = gap.from, gap.to-gap.from
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
func (t *treeReader) used(ctx context.Context) (map[string]*runs, error) {
	all := map[string]*runs{}
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
			if to == nil {
				to = &runs{}
				all[x.Object] = to
			}
			if held += to.add(run{x.Off, x.Off + x.Len}); int64(held)*16 > t.limits.Index {
				return nil, t.treeFault(treeLimit, t.top.Segment, -1, "runs of values: expected at most %d bytes of them, found more", t.limits.Index)
			}
		}
	}
	for _, r := range all {
		r.settle()
	}
	return all, nil
}

// runs are parts of an object. A value that many nodes have is met again and again,
// so they are put in order now and then.
type runs struct {
	all     []run
	settled int
}

type run struct{ from, to int64 }

// add returns by how many more runs are held.
func (r *runs) add(x run) int {
	before := len(r.all)
	if r.all = append(r.all, x); len(r.all) > 2*r.settled+1024 {
		r.settle()
	}
	return len(r.all) - before
}

// settle sorts the runs, and joins those that touch.
func (r *runs) settle() {
	slices.SortFunc(r.all, func(a, b run) int { return cmp.Compare(a.from, b.from) })
	kept := r.all[:0]
	for _, x := range r.all {
		if n := len(kept); n > 0 && x.from <= kept[n-1].to {
			kept[n-1].to = max(kept[n-1].to, x.to)
			continue
		}
		kept = append(kept, x)
	}
	r.all, r.settled = kept, len(kept)
}

// gaps are what no run has of the bytes from from to to.
func (r *runs) gaps(from, to int64) (free []run) {
	if r != nil {
		i, _ := slices.BinarySearchFunc(r.all, from, func(x run, from int64) int { return cmp.Compare(x.to, from) })
		for ; i < len(r.all) && r.all[i].from < to; i++ {
			if x := r.all[i]; x.from > from {
				free = append(free, run{from, x.from})
			}
			from = max(from, r.all[i].to)
		}
	}
	if from < to {
		free = append(free, run{from, to})
	}
	return free
}
