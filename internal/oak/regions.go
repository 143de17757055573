package oak

import (
	"context"
	"iter"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/oak/internal/tarfile"
	"github.com/holdall/holdall/internal/pipe"
)

// Regions are, in each tar, headers and zeros around segments, what is between them
// and of nobody, and the parts at the end. A letter that does not count is trash.
func (r *segmentReader) Regions(ctx context.Context) iter.Seq2[format.Region, error] {
	return pipe.Told(func(tell func(format.Region) error) error {
		for _, t := range r.tars {
			if err := t.regions(ctx, tell); err != nil {
				return r.storeFault(err)
			}
		}
		for _, t := range r.shadowed {
			if t.Size == 0 {
				continue
			}
			if err := tell(format.Region{Object: r.list.Path(t.Name), Len: t.Size, Use: format.Trash, Label: "a letter that does not count"}); err != nil {
				return err
			}
		}
		return nil
	})
}

func (t *segmentTar) regions(ctx context.Context, tell func(format.Region) error) (err error) {
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
		// Behind a segment are zeros up to a block, and then a header.
		put(min(padded(), e.Pos), format.Padding, "up to a block")
		put(e.Pos-tarfile.BlockSize, format.Unknown, "of no segment")
		put(e.Pos, format.Header, "tar header")
		if err != nil {
			return err
		}
		at = max(at, e.Pos+int64(e.Len))
	}
	if t.file == nil {
		put(t.size, format.Unknown, "of no segment that a scan could find")
		return err
	}
	l, err := t.file.Layout(ctx)
	if err != nil {
		return err
	}
	put(padded(), format.Padding, "up to a block")
	for _, p := range []struct {
		tarfile.Span
		label string
	}{{l.Binaries, "binary references"}, {l.Graph, "graph"}, {l.Index, "index"}} {
		if p.Len > 0 {
			put(p.Off, format.Unknown, "of no segment")
			put(p.Off+p.Len, format.IndexData, p.label)
		}
	}
	put(l.Trailer.Off, format.Unknown, "of no segment")
	put(t.size, format.Padding, "end of the tar")
	return err
}
