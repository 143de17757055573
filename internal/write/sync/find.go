package sync

import (
	"bytes"
	"cmp"
	"context"
	"iter"
	"slices"
	"sort"
	"sync"

	"github.com/holdall/holdall/internal/read/content"
)

// A spot is a place in an old archive where bytes of the new one may be. It is only a hint: whatever is read there
// is compared.
type spot struct {
	old    int // number of the archive
	object int
	at     int64
}

const (
	nowhere = -1 - iota
	resumed // what an earlier sync has written of the same object
)

// A finder knows what old archives have. Its lists are sorted, since maps would take more memory than the ranges.
type finder struct {
	algos   [3]bool // of the new archive, by the first byte of a sum
	olds    []*content.Source
	layouts []*content.Layout
	bySum   []ref // with a digest of these algorithms
	bySize  []ref // all others
	byName  []ref // beginnings of contents

	mu      sync.Mutex
	read    map[int64]int // how many of bySize were read, by their size
	learned map[content.Sum]spot
}

// A ref is the number of an archive and of a range in it.
type ref struct{ old, i int32 }

func newFinder(l *content.Layout) *finder {
	f := &finder{read: map[int64]int{}, learned: map[content.Sum]spot{}}
	for _, r := range l.Ranges {
		f.algos[r.Sum[0]] = true
	}
	return f
}

// add adds what an archive has.
func (f *finder) add(ctx context.Context, from *content.Source) error {
	l, err := from.Layout(ctx)
	if err != nil {
		return err
	}
	for i, r := range l.Ranges {
		at := ref{int32(len(f.olds)), int32(i)}
		if r.Sum[0] == 0 || !f.algos[r.Sum[0]] {
			f.bySize = append(f.bySize, at)
		} else {
			f.bySum = append(f.bySum, at)
		}
		if r.Of != 0 && r.At == 0 {
			f.byName = append(f.byName, at)
		}
	}
	f.olds, f.layouts = append(f.olds, from), append(f.layouts, l)
	return nil
}

func (f *finder) of(r ref) *content.Range { return &f.layouts[r.old].Ranges[r.i] }

// Comparisons of what refs stand for with a range.
func compareSum(a, b *content.Range) int  { return bytes.Compare(a.Sum[:], b.Sum[:]) }
func compareSize(a, b *content.Range) int { return cmp.Compare(a.N, b.N) }
func compareName(a, b *content.Range) int { return cmp.Compare(a.Of, b.Of) }

// sort makes the finder ready.
func (f *finder) sort() {
	by := func(all []ref, compare func(a, b *content.Range) int) {
		slices.SortStableFunc(all, func(a, b ref) int { return compare(f.of(a), f.of(b)) })
	}
	by(f.bySum, compareSum)
	by(f.bySize, compareSize)
	by(f.byName, compareName)
}

// first returns the spot of ref number n of those that are like r, if there are so many.
func (f *finder) first(all []ref, r *content.Range, n int, compare func(a, b *content.Range) int) (spot, bool) {
	i, _ := slices.BinarySearchFunc(all, r, func(a ref, r *content.Range) int { return compare(f.of(a), r) })
	if i += n; i >= len(all) || compare(f.of(all[i]), r) != 0 {
		return spot{}, false
	}
	at := f.of(all[i])
	return spot{int(all[i].old), at.Object, at.Off}, true
}

// known returns where an archive says, or was found to have, the bytes of r.
func (f *finder) known(r *content.Range) (spot, bool) {
	if at, ok := f.first(f.bySum, r, 0, compareSum); ok {
		return at, true
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	at, ok := f.learned[r.Sum]
	return at, ok
}

// named returns where an archive has content of the same name and size.
func (f *finder) named(r *content.Range) (at spot, ok bool) {
	if r.Of == 0 {
		return at, false
	}
	at, ok = f.first(f.byName, r, 0, compareName)
	at.at += r.At
	return at, ok
}

// candidates yields where a range may be. last is the spot after the range before it.
func (f *finder) candidates(r content.Range, last spot) iter.Seq[spot] {
	return func(yield func(spot) bool) {
		same, ok := f.known(&r)
		if ok && !yield(same) {
			return
		}
		if last.old >= 0 && (!ok || last != same) && f.may(r, last) && !yield(last) {
			return
		}
		if named, is := f.named(&r); is && (!ok || named != same) && named != last && f.may(r, named) && !yield(named) {
			return
		}
		for {
			f.mu.Lock()
			n := f.read[r.N]
			f.read[r.N] = n + 1 // each is read once, and then known by its digest
			f.mu.Unlock()
			at, ok := f.first(f.bySize, &r, n, compareSize)
			if !ok || !yield(at) {
				return
			}
		}
	}
}

// may reports whether a range may be at a spot, as far as the old archive says. Many bytes are only looked for where
// as many have a beginning.
func (f *finder) may(r content.Range, at spot) bool {
	all := f.layouts[at.old].Ranges
	i := sort.Search(len(all), func(i int) bool {
		return cmp.Or(all[i].Object-at.object, cmp.Compare(all[i].Off, at.at)) >= 0
	})
	if i == len(all) || all[i].Object != at.object || all[i].Off != at.at || all[i].N != r.N {
		return r.N <= block
	}
	return all[i].Sum[0] != r.Sum[0]
}

// after guesses the spot after a range that another goroutine looks for. If nothing is known, it is the same place.
func (f *finder) after(r content.Range) spot {
	at, ok := f.known(&r)
	if !ok {
		at, ok = f.named(&r)
	}
	if !ok && (len(f.olds) == 0 || r.Object >= len(f.layouts[0].Objects)) {
		return spot{old: nowhere}
	} else if !ok {
		at = spot{0, r.Object, r.Off}
	}
	at.at += r.N
	return at
}

// learn notes the digest of what was read at a spot.
func (f *finder) learn(sum content.Sum, at spot) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, known := f.learned[sum]; !known && sum != (content.Sum{}) {
		f.learned[sum] = at
	}
}

func (f *finder) readAt(ctx context.Context, at spot, p []byte, off int64) error {
	o, err := f.olds[at.old].Object(ctx, f.layouts[at.old].Objects[at.object])
	if err != nil {
		return err
	}
	return o.ReadAt(ctx, p, off)
}
