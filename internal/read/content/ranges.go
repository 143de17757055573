package content

import (
	"cmp"
	"context"
	"errors"
	"hash/maphash"
	"io"
	"slices"
	"strings"

	"github.com/zeebo/blake3"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/read/digest"
	"github.com/holdall/holdall/internal/read/engine"
	"github.com/holdall/holdall/internal/read/kept"
	"github.com/holdall/holdall/store/storekit"
)

// A Sum is a digest that can stand for bytes: nobody can find others that have it. The zero value is none.
type Sum [1 + kept.DigestLen]byte

// strong are the algorithms of a Sum. Its first byte is the number of one, from 1.
var strong = []string{"blake3", "sha256"}

// SumOf returns the zero value for a digest that only detects accidents.
func SumOf(d format.Digest) (s Sum) {
	if i := slices.Index(strong, d.Algo); i >= 0 && len(d.Sum) == kept.DigestLen {
		s[0] = byte(i + 1)
		copy(s[1:], d.Sum)
	}
	return s
}

func blake3Sum(d [kept.DigestLen]byte) Sum {
	return SumOf(format.Digest{Algo: "blake3", Sum: string(d[:])})
}

// Algo returns the algorithm, or "" for none.
func (s Sum) Algo() string {
	if s[0] == 0 {
		return ""
	}
	return strong[s[0]-1]
}

// A Range is a run of stored bytes.
type Range struct {
	Object int // number in Layout.Objects
	Off, N int64
	Sum    Sum // of these bytes
	// Of is a number for the name and the size of the entry whose content this is, and At is where in the
	// content it begins. For other bytes, Of is 0.
	Of uint64
	At int64
}

func (r Range) end() int64 { return r.Off + r.N }

// A Layout says what the objects of an archive consist of.
type Layout struct {
	Objects []string // names in the store
	Sizes   []int64
	Ranges  []Range // of all objects, in order, without gaps
	Proven  bool    // some have a sum
}

// seed is for Range.Of, which is compared among archives.
var seed = maphash.MakeSeed()

type nameAndSize struct {
	name string
	size int64
}

// Layout returns where the archive has which bytes, as far as it or its index says. Bytes that several
// entries share, or that nothing is known of, are in one range each.
func (s *Source) Layout(ctx context.Context) (*Layout, error) {
	x := s.Index()
	l, err := s.layout(ctx, x)
	if err != nil && x != nil && x.Spoilt(ctx, err) {
		return s.layout(ctx, nil) // the archive itself answers from now on
	}
	return l, err
}

func (s *Source) layout(ctx context.Context, x *kept.Index) (*Layout, error) {
	l := &Layout{}
	if s.Loose == 0 {
		if err := s.sizes(ctx, l); err != nil {
			return nil, err
		}
	}
	numbers := make(map[string]int, len(l.Objects))
	for i, name := range l.Objects {
		numbers[name] = i
	}
	var all []Range
	if x != nil {
		for p, err := range x.StoredPieces(ctx) {
			if err != nil {
				return nil, err
			}
			if i, ok := numbers[strings.TrimRight(s.Name, "/")+p.Object]; ok {
				all = append(all, Range{Object: i, Off: p.Off, N: p.N, Sum: blake3Sum(p.Sum)})
			}
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
		i, known := numbers[run.Object]
		if !known && s.Loose > 0 {
			i, known = len(l.Objects), true
			l.Objects, l.Sizes, numbers[run.Object] = append(l.Objects, run.Object), append(l.Sizes, e.Size), i
		}
		if !known {
			continue
		}
		r := Range{Object: i, Off: run.Off, N: e.Size, Sum: SumOf(e.Digest), Of: maphash.Comparable(seed, nameAndSize{e.Name, e.Size})}
		if x == nil || e.Size <= x.Chunk && r.Sum != (Sum{}) {
			all = append(all, r)
			continue
		}
		sums, err := x.Digests(ctx, e, 0, kept.Pieces(&e, x.Chunk))
		if err != nil {
			return nil, err
		}
		for at, sum := range sums {
			p := r
			p.At = int64(at) * x.Chunk
			p.Off, p.N, p.Sum = r.Off+p.At, min(x.Chunk, e.Size-p.At), Sum{}
			if sum != (digest.Piece{}) { // it was not damaged
				p.Sum = blake3Sum(sum)
			}
			all = append(all, p)
		}
	}
	l.fill(all)
	return l, nil
}

// Is reports whether r, which has as many bytes as e, has e's content, as digests show that can stand for it.
func (s *Source) Is(ctx context.Context, e Entry, r io.Reader) bool {
	if k, ok := s.Reader.(*kept.Reader); ok && k.Index().Copied || s.Vouched() != nil {
		return false // the digest may be that of another version
	}
	if want := SumOf(e.Digest); want != (Sum{}) {
		sums := digest.NewReader(r, want.Algo())
		_, err := io.Copy(io.Discard, sums)
		return err == nil && SumOf(sums.Sum()) == want
	}
	x := s.Index()
	if x == nil || e.Size == 0 {
		return e.Size == 0
	}
	sums, err := x.Digests(ctx, e, 0, kept.Pieces(&e, x.Chunk))
	for at := int64(0); err == nil && at < e.Size; at, sums = at+x.Chunk, sums[1:] {
		h := blake3.New()
		if _, err = io.CopyN(h, r, min(x.Chunk, e.Size-at)); err == nil && digest.Piece(h.Sum(nil)) != sums[0] {
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

// sizes sets the objects of the archive. A list of a folder has all of them.
func (s *Source) sizes(ctx context.Context, l *Layout) error {
	_, err := s.Object(ctx, s.Name)
	for info, lerr := range storekit.List(ctx, s.Store, strings.TrimSuffix(s.Name, "/")+"/") {
		if err == nil || errors.Is(lerr, errors.ErrUnsupported) {
			break // it is no folder, or nobody knows what is in it
		}
		if lerr != nil {
			return lerr
		}
		l.Objects, l.Sizes = append(l.Objects, info.Name), append(l.Sizes, info.Size)
	}
	if len(l.Objects) > 0 {
		return nil
	}
	if l.Objects, err = s.Volumes(ctx); err != nil {
		return err
	}
	for _, name := range l.Objects {
		n, err := s.VolumeSize(ctx, name)
		if err != nil {
			return err
		}
		l.Sizes = append(l.Sizes, n)
	}
	return nil
}

// fill sets the ranges to all, in their place in memory, without overlaps and gaps. Of two that overlap, the first counts.
func (l *Layout) fill(all []Range) {
	inOrder := func(a, b Range) int { return cmp.Or(a.Object-b.Object, cmp.Compare(a.Off, b.Off)) }
	slices.SortStableFunc(all, inOrder)
	l.Ranges = all[:0]
	var gaps []Range
	for i, size := range l.Sizes {
		at := int64(0)
		gap := func(to int64) {
			if to > at {
				gaps = append(gaps, Range{Object: i, Off: at, N: to - at})
			}
		}
		for ; len(all) > 0 && all[0].Object == i; all = all[1:] {
			r := all[0]
			if r.Off < at || r.N <= 0 || r.N > size-r.Off {
				continue
			}
			gap(r.Off)
			l.Proven = l.Proven || r.Sum != Sum{}
			l.Ranges, at = append(l.Ranges, r), r.end()
		}
		gap(size)
	}
	l.Ranges = append(l.Ranges, gaps...)
	slices.SortFunc(l.Ranges, inOrder)
}

// Requests returns how many requests Fetch joins ranges to.
func (s *Source) Requests(l *Layout, want []Range) int64 {
	xs := make([]Extent, len(want))
	for i, r := range want {
		xs[i] = l.extent(r)
	}
	return s.engine.Requests(xs)
}

func (l *Layout) extent(r Range) Extent {
	return Extent{Size: r.N, Object: l.Objects[r.Object], Off: r.Off, Len: r.N}
}

// mostAtOnce is how much of a range without a sum is fetched at once.
const mostAtOnce = 1 << 20

// Fetch reads ranges, with joined requests and several of them at once. It calls each with what it has read, or why
// that is impossible, from several goroutines. Long ranges without a sum arrive in parts.
func (s *Source) Fetch(ctx context.Context, l *Layout, want []Range, each func(Range, io.Reader, error) error) error {
	items := func(yield func(engine.Item, error) bool) {
		for _, r := range want {
			step := r.N
			if r.Sum == (Sum{}) {
				step = mostAtOnce
			}
			for p := r; p.Off < r.end(); p.Off += step {
				p.N = min(step, r.end()-p.Off)
				x := l.extent(p)
				if !yield(engine.Item{Entry: Entry{Size: p.N, Ref: p}, Extents: func(yield func(Extent, error) bool) { yield(x, nil) }}, nil) {
					return
				}
			}
		}
	}
	return s.engine.Sweep(ctx, items, false, func(it engine.Item, r io.Reader, err error) error {
		return each(it.Entry.Ref.(Range), r, err)
	})
}
