package oak

import (
	"context"
	"iter"

	"github.com/holdall/holdall/codec"
	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/kit"
	"github.com/holdall/holdall/format/kit/pipe"
	"github.com/holdall/holdall/internal/oak/internal/repo"
	"github.com/holdall/holdall/internal/oak/internal/segment"
	"github.com/holdall/holdall/internal/oak/internal/tarfile"
)

// Regions yields, for each tar, headers and zeros around segments, bytes between segments that
// belong to none, and the parts at the end. A letter that is not used is trash.
func (r *segmentReader) Regions(ctx context.Context) iter.Seq2[format.Region, error] {
	return pipe.Told(func(tell func(format.Region) error) error {
		return r.regions(ctx, tell, func(*segmentTar, tarfile.Entry) bool { return r.trust != asStored })
	})
}

// regions yields everything except segments, and the headers of segments that are read with them.
func (r *repository) regions(ctx context.Context, tell func(format.Region) error, headed func(*segmentTar, tarfile.Entry) bool) error {
	for _, t := range r.tars {
		if err := t.regions(ctx, tell, headed); err != nil {
			return r.storeFault(err)
		}
	}
	for _, t := range r.shadowed {
		if t.Size == 0 || r.list.Blobs.Archive(t.Name) != nil {
			continue
		}
		if err := tell(format.Region{Object: r.list.Path(t.Name), Len: t.Size, Use: format.Trash, Label: "older generation of a tar"}); err != nil {
			return err
		}
	}
	return nil
}

func (t *segmentTar) regions(ctx context.Context, tell func(format.Region) error, headed func(*segmentTar, tarfile.Entry) bool) (err error) {
	if t.blobs != nil {
		return t.blobRegions(tell)
	}
	at := int64(0)
	put := func(to int64, use format.Use, label string) {
		if to = min(to, t.size); to > at && err == nil {
			g := format.Region{Object: t.path, Off: at, Len: to - at, Use: use, Label: label}
			at = to
			err = tell(g)
		}
	}
	padded := func() int64 { return (at + tarfile.BlockSize - 1) / tarfile.BlockSize * tarfile.BlockSize }
	for _, i := range t.ByPosition() {
		e := t.At(int(i))
		if !t.holds(e) {
			continue
		}
		// After a segment are zeros up to a block, and then a header.
		put(min(padded(), e.Pos), format.Padding, "padding to a block")
		put(e.Pos-tarfile.BlockSize, format.Unknown, "outside segments")
		if !headed(t, e) {
			put(e.Pos, format.Header, "tar header")
		}
		if err != nil {
			return err
		}
		at = max(at, e.Pos+int64(e.Len))
	}
	if t.file == nil {
		put(t.size, format.Unknown, "no segment found by the scan")
		return err
	}
	l, err := t.file.Layout(ctx)
	if err != nil {
		return err
	}
	put(padded(), format.Padding, "padding to a block")
	for _, p := range []struct {
		tarfile.Span
		label string
	}{{l.Binaries, "binary references"}, {l.Graph, "graph"}, {l.Index, "index"}} {
		if p.Len > 0 {
			put(p.Off, format.Unknown, "outside segments")
			put(p.Off+p.Len, format.IndexData, p.label)
		}
	}
	put(l.Trailer.Off, format.Unknown, "outside segments")
	put(t.size, format.Padding, "end of the tar")
	return err
}

// Regions of this view are everything that is not a run of a value. Data segments count as index,
// because they contain the nodes, even if they also contain small values. Only a walk through the
// whole tree would show which segments have runs of values.
func (t *treeReader) Regions(ctx context.Context) iter.Seq2[format.Region, error] {
	return pipe.Told(func(tell func(format.Region) error) error {
		used, err := t.used(ctx)
		if err != nil {
			return err
		}
		if err := t.regions(ctx, tell, func(tar *segmentTar, e tarfile.Entry) bool {
			return t.trust != asStored && len(used[tar.path].Gaps(e.Pos-tarfile.BlockSize, e.Pos)) == 0
		}); err != nil {
			return err
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
		for _, tar := range t.tars {
			for _, i := range tar.ByPosition() {
				e := tar.At(int(i))
				if !tar.holds(e) {
					continue
				}
				g := format.Region{Len: int64(e.Len), Use: format.IndexData, Label: "data segment"}
				g.Object, g.Off = tar.lies(e.Pos)
				free := []kit.Range{{From: g.Off, To: g.Off + g.Len}}
				if !e.ID.IsData() {
					g.Use, g.Label = format.Unknown, "bulk segment without a shown value"
					free = used[g.Object].Gaps(g.Off, g.Off+g.Len)
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
func (t *treeReader) used(ctx context.Context) (map[string]kit.Ranges, error) {
	all := map[string]kit.Ranges{}
	held := 0
	for e, err := range t.Entries(ctx) {
		if err != nil {
			return nil, err
		}
		// Shorter values are stored within records.
		if _, ok := e.Ref.(valueRef); !ok || e.Size < segment.BlockSize {
			continue
		}
		for x, err := range t.Extents(ctx, e, 0, e.Size) {
			if err != nil && t.damage(err) == nil {
				return nil, err
			}
			if err != nil || x.Codec != codec.Raw && x.Codec != wholeSegment {
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
