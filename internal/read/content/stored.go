package content

import (
	"cmp"
	"context"
	"hash/fnv"
	"io"
	"iter"
	"slices"
	"strings"

	"github.com/holdall/holdall/codec"
	"github.com/holdall/holdall/internal/read/engine"
	"github.com/holdall/holdall/internal/read/kept"
)

const (
	// leastRun is the length from which stored content has pieces of its own. What is shorter shares pieces with what
	// is around it.
	leastRun = 4 << 10
	// mostShared is the longest piece of several.
	mostShared = 64 << 10
	// mostPiece is the longest piece.
	mostPiece = 256 << 10
)

// A storedRun is stored bytes of contents.
type storedRun struct {
	object int
	off, n int64
	known  bool // an index has digests of these bytes
	ends   bool // a piece ends here
}

// cutStored returns pieces of all stored bytes of which an index has no digests otherwise. They are cut where contents
// are, by the names of these. So what is inserted or changed leaves other pieces as they are.
func (s *Source) cutStored(ctx context.Context, l *Layout) ([]Range, error) {
	var runs []storedRun
	for e, err := range s.Reader.Entries(ctx) {
		if err != nil {
			return nil, err
		}
		if !e.Kind.HasContent() || e.Size <= 0 || e.Fault != nil {
			continue
		}
		h := fnv.New32a()
		io.WriteString(h, e.Name)
		ends := h.Sum32()&3 == 0
		run, raw := s.rawContent(ctx, e)
		if i, ok := l.numbers[run.Object]; raw && ok {
			runs = append(runs, storedRun{i, run.Off, e.Size, true, ends})
			continue
		}
		for x, err := range s.Extents(ctx, e) {
			if err != nil {
				break // the content has no digests
			}
			i, ok := l.numbers[x.Object]
			if !ok || x.External || x.Len <= 0 || x.Codec != codec.Raw && !engine.Coded(x) {
				continue
			}
			r := storedRun{i, x.Off, x.Len, false, ends}
			if len(runs) == 0 || runs[len(runs)-1].off != r.off || runs[len(runs)-1].object != i {
				runs = append(runs, r)
			}
		}
	}
	slices.SortStableFunc(runs, func(a, b storedRun) int { return cmp.Or(a.object-b.object, cmp.Compare(a.off, b.off)) })
	var all []Range
	for i, size := range l.Sizes {
		at := int64(0)
		cut := func(to int64) {
			for ; at < to; at += mostPiece {
				all = append(all, Range{Object: i, Off: at, N: min(mostPiece, to-at), At: len(all)})
			}
			at = to
		}
		for ; len(runs) > 0 && runs[0].object == i; runs = runs[1:] {
			r := runs[0]
			switch {
			case r.off < at || r.n > size-r.off:
			case r.n >= leastRun || r.known && r.off == at:
				if cut(r.off); r.known {
					at = r.off + r.n
				}
				cut(r.off + r.n)
			case r.ends || r.off+r.n-at >= mostShared:
				cut(r.off + r.n)
			}
		}
		cut(size)
	}
	return all, nil
}

// storedPieces yields the pieces of cutStored with their digests. Bytes that cannot be read are in none.
func (s *Source) storedPieces(ctx context.Context) iter.Seq2[kept.Piece, error] {
	return func(yield func(kept.Piece, error) bool) {
		l, err := s.objectsOf(ctx)
		var all []Range
		if err == nil {
			all, err = s.cutStored(ctx, l)
		}
		if err == nil {
			err = s.Fetch(ctx, l, all, func(r Range, from io.Reader, err error) error {
				if err == nil {
					r.Sum, err = CopySum(io.Discard, from, r.N)
				}
				if err == nil {
					all[r.At].Sum = r.Sum
				}
				return Passing(Entry{Name: l.Objects[r.Object]}, err)
			})
		}
		if err != nil {
			yield(kept.Piece{}, err)
			return
		}
		for _, r := range all {
			object := strings.TrimPrefix(l.Objects[r.Object], strings.TrimRight(s.Name, "/"))
			if r.Sum != (Sum{}) && !yield(kept.Piece{Object: object, Off: r.Off, N: r.N, Sum: r.Sum}, nil) {
				return
			}
		}
	}
}
