package content

import (
	"cmp"
	"context"
	"errors"
	"io"
	"slices"
	"strings"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/base/blake3"
	"github.com/holdall/holdall/internal/read/digest"
	"github.com/holdall/holdall/internal/read/engine"
	"github.com/holdall/holdall/internal/read/kept"
	"github.com/holdall/holdall/store/storekit"
)

// A Sum is the BLAKE3 of bytes, which can stand for them: nobody can find others that have it. The zero value is none.
type Sum = digest.Piece

// sumOf returns the zero value for a digest of another kind.
func sumOf(d format.Digest) (s Sum) {
	if d.Algo == "blake3" && len(d.Sum) == len(s) {
		copy(s[:], d.Sum)
	}
	return s
}

// CopySum copies the n bytes that r has to w, and returns their digest.
func CopySum(w io.Writer, r io.Reader, n int64) (sum Sum, err error) {
	if n <= Small {
		err = Content{Entry: Entry{Size: n}, r: r, vouched: true}.WithSmall(func(b []byte) error {
			sum = blake3.Sum256(b)
			_, err := w.Write(b)
			return err
		})
		return sum, err
	}
	h := blake3.New()
	_, err = io.CopyN(io.MultiWriter(h, w), r, n)
	h.Sum(sum[:0])
	return sum, err
}

// A Range is a run of stored bytes.
type Range struct {
	At     int // number in Layout.Ranges
	Object int // number in Layout.Objects
	Off, N int64
	Sum    Sum // of these bytes
}

// A Layout says what the objects of an archive consist of.
type Layout struct {
	Objects []string // names in the store
	Sizes   []int64
	Ranges  []Range
	Proven  bool // some have a sum

	numbers map[string]int // of Objects
	chunk   int64          // contents are cut in pieces of this length; 0 if they are not
}

func (l *Layout) add(object string, size int64) int {
	l.Objects, l.Sizes = append(l.Objects, object), append(l.Sizes, size)
	l.numbers[object] = len(l.Objects) - 1
	return l.numbers[object]
}

// Layout returns where the archive has which bytes, as far as it or its index says. Ranges of all objects follow each
// other without gaps; what several entries share, or nothing is known of, is in one range each. To find what another
// archive has in common with this one, like is that one's layout: equal bytes are then cut in the same way, and ranges
// may have gaps, or have bytes in common.
func (s *Source) Layout(ctx context.Context, like *Layout) (*Layout, error) {
	x := s.Index()
	l, err := s.layout(ctx, x, like)
	if err != nil && x != nil && x.Spoilt(ctx, err) {
		return s.layout(ctx, nil, like) // the archive itself answers from now on
	}
	return l, err
}

func (s *Source) layout(ctx context.Context, x *kept.Index, like *Layout) (l *Layout, err error) {
	l = &Layout{numbers: map[string]int{}}
	if s.Loose == 0 {
		if l, err = s.objectsOf(ctx); err != nil {
			return nil, err
		}
	}
	switch {
	case like != nil:
		l.chunk = like.chunk
	case x != nil:
		l.chunk = x.Chunk
	}
	var all []Range
	if x != nil {
		for p, err := range x.StoredPieces(ctx) {
			if err != nil {
				return nil, err
			}
			if i, ok := l.numbers[strings.TrimRight(s.Name, "/")+p.Object]; ok {
				all = append(all, Range{Object: i, Off: p.Off, N: p.N, Sum: p.Sum})
			}
		}
	} else if l.chunk > 0 && s.Loose == 0 {
		if all, err = s.cutStored(ctx, l); err != nil {
			return nil, err
		}
	}
	for e, err := range s.Reader.Entries(ctx) {
		if err != nil {
			return nil, err
		}
		run, ok := s.rawContent(ctx, e)
		if !ok {
			continue
		}
		i, known := l.numbers[run.Object]
		if !known && s.Loose > 0 {
			i, known = l.add(run.Object, e.Size), true
		}
		if !known {
			continue
		}
		pieces, err := cutContent(ctx, x, e, l.chunk)
		if err != nil {
			return nil, err
		}
		for _, p := range pieces {
			p.Object, p.Off = i, p.Off+run.Off
			all = append(all, p)
		}
	}
	if l.Ranges = all; like == nil {
		l.fill(all)
	}
	return l, nil
}

// cutContent returns e's content as ranges with digests, as far as e and an index have them. Their offsets are in the
// content.
func cutContent(ctx context.Context, x *kept.Index, e Entry, chunk int64) (all []Range, err error) {
	if own := sumOf(e.Digest); e.Size > 0 && (chunk == 0 || e.Size <= chunk && own != Sum{}) {
		return []Range{{N: e.Size, Sum: own}}, nil
	}
	for at := int64(0); at < e.Size; at += chunk {
		all = append(all, Range{Off: at, N: min(chunk, e.Size-at)})
	}
	if x == nil || x.Chunk != chunk {
		return all, nil
	}
	sums, err := x.Digests(ctx, e, 0, int64(len(all)))
	for i, sum := range sums {
		all[i].Sum = sum // none of what was damaged
	}
	return all, err
}

// Is reports whether r, which has as many bytes as e, has e's content, as digests show that can stand for it.
func (s *Source) Is(ctx context.Context, e Entry, r io.Reader) bool {
	if k, ok := s.Reader.(*kept.Reader); ok && k.Index().Copied || s.Vouched() != nil {
		return false // the digest may be that of another version
	}
	x, chunk := s.Index(), int64(0)
	if x != nil {
		chunk = x.Chunk
	}
	pieces, err := cutContent(ctx, x, e, chunk)
	for _, p := range pieces {
		if got, cerr := CopySum(io.Discard, r, p.N); cerr != nil || got != p.Sum {
			return false
		}
	}
	return err == nil
}

// rawContent returns the run of stored bytes that e's content is.
func (s *Source) rawContent(ctx context.Context, e Entry) (run Extent, ok bool) {
	if !e.Kind.HasContent() || e.Size <= 0 || e.Fault != nil {
		return run, false
	}
	run, ok = s.rawRun(ctx, e, false)
	run.Off += run.Skip
	return run, ok && !run.External && run.Size == e.Size
}

// objectsOf returns a layout with the objects of the archive. A list of a folder has all of them.
func (s *Source) objectsOf(ctx context.Context) (*Layout, error) {
	l := &Layout{numbers: map[string]int{}}
	_, err := s.Object(ctx, s.Name)
	for info, lerr := range storekit.List(ctx, s.Store, strings.TrimSuffix(s.Name, "/")+"/") {
		if err == nil || errors.Is(lerr, errors.ErrUnsupported) {
			break // it is no folder, or nobody knows what is in it
		}
		if lerr != nil {
			return nil, lerr
		}
		l.add(info.Name, info.Size)
	}
	if len(l.Objects) > 0 {
		return l, nil
	}
	names, err := s.Volumes(ctx)
	for _, name := range names {
		n, err := s.VolumeSize(ctx, name)
		if err != nil {
			return nil, err
		}
		l.add(name, n)
	}
	return l, err
}

// fill sets the ranges to all, without overlaps and gaps. Of two that overlap, the first counts.
func (l *Layout) fill(all []Range) {
	slices.SortStableFunc(all, func(a, b Range) int { return cmp.Or(a.Object-b.Object, cmp.Compare(a.Off, b.Off)) })
	l.Ranges = make([]Range, 0, len(all)+len(l.Sizes))
	for i, size := range l.Sizes {
		end := int64(0)
		add := func(r Range) {
			if r.At = len(l.Ranges); r.N > 0 {
				l.Ranges, end = append(l.Ranges, r), r.Off+r.N
			}
		}
		for ; len(all) > 0 && all[0].Object == i; all = all[1:] {
			if r := all[0]; r.Off >= end && r.N <= size-r.Off {
				l.Proven = l.Proven || r.Sum != Sum{}
				add(Range{Object: i, Off: end, N: r.Off - end})
				add(r)
			}
		}
		add(Range{Object: i, Off: end, N: size - end})
	}
}

// Requests returns how many requests Fetch joins ranges to.
func (s *Source) Requests(l *Layout, want []Range) int64 {
	var xs []Extent
	for _, r := range want {
		xs = append(xs, l.extent(r))
	}
	return s.engine.Requests(xs)
}

func (l *Layout) extent(r Range) Extent {
	return Extent{Size: r.N, Object: l.Objects[r.Object], Off: r.Off, Len: r.N}
}

// Fetch reads ranges, with joined requests and several of them at once. It calls each with what it has read, or why
// that is impossible, from several goroutines.
func (s *Source) Fetch(ctx context.Context, l *Layout, want []Range, each func(Range, io.Reader, error) error) error {
	items := func(yield func(engine.Item, error) bool) {
		for _, r := range want {
			x := func(yield func(Extent, error) bool) { yield(l.extent(r), nil) }
			if !yield(engine.Item{Entry: Entry{Size: r.N, Ref: r}, Extents: x}, nil) {
				return
			}
		}
	}
	return s.engine.Sweep(ctx, items, false, func(it engine.Item, r io.Reader, err error) error {
		return each(it.Entry.Ref.(Range), r, err)
	})
}
