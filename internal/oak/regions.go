package oak

import (
	"context"
	"iter"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/oak/internal/tarfile"
)

// Regions are, in each tar, headers and zeros around segments, what is between them
// and of nobody, and the parts at the end. A letter that does not count is trash.
func (r *segmentReader) Regions(ctx context.Context) iter.Seq2[format.Region, error] {
	return func(yield func(format.Region, error) bool) {
		for _, t := range r.tars {
			if err := t.regions(ctx, func(g format.Region) bool { return yield(g, nil) }); err != nil {
				if err != errStopped {
					yield(format.Region{}, r.storeFault(err))
				}
				return
			}
		}
		for _, t := range r.shadowed {
			if t.Size > 0 && !yield(format.Region{Object: r.list.Path(t.Name), Len: t.Size, Use: format.Trash, Label: "a letter that does not count"}, nil) {
				return
			}
		}
	}
}

// errStopped says that nobody wants more.
var errStopped = context.Canceled

func (t *segmentTar) regions(ctx context.Context, yield func(format.Region) bool) error {
	at := int64(0)
	put := func(to int64, use format.Use, label string) bool {
		if to = min(to, t.size); to <= at {
			return true
		}
		g := format.Region{Object: t.path, Off: at, Len: to - at, Use: use, Label: label}
		at = to
		return yield(g)
	}
	for _, i := range t.byPosition() {
		e := t.at(int(i))
		if !t.holds(e) {
			continue
		}
		// Behind a segment are zeros up to a block, and then a header.
		padded := (at + tarfile.BlockSize - 1) / tarfile.BlockSize * tarfile.BlockSize
		if !put(min(padded, e.Pos), format.Padding, "up to a block") || !put(e.Pos-tarfile.BlockSize, format.Unknown, "of no segment") ||
			!put(e.Pos, format.Header, "tar header") {
			return errStopped
		}
		at = max(at, e.Pos+int64(e.Len))
	}
	if t.file != nil {
		l, err := t.file.Layout(ctx)
		if err != nil {
			return err
		}
		padded := (at + tarfile.BlockSize - 1) / tarfile.BlockSize * tarfile.BlockSize
		if !put(padded, format.Padding, "up to a block") {
			return errStopped
		}
		for _, p := range []struct {
			tarfile.Span
			label string
		}{{l.Binaries, "binary references"}, {l.Graph, "graph"}, {l.Index, "index"}} {
			if p.Len == 0 {
				continue
			}
			if !put(p.Off, format.Unknown, "of no segment") || !put(p.Off+p.Len, format.IndexData, p.label) {
				return errStopped
			}
		}
		if !put(l.Trailer.Off, format.Unknown, "of no segment") || !put(t.size, format.Padding, "end of the tar") {
			return errStopped
		}
		return nil
	}
	if !put(t.size, format.Unknown, "of no segment that a scan could find") {
		return errStopped
	}
	return nil
}
