package sync

import (
	"cmp"
	"context"
	"iter"
	"sort"
	"sync"

	"github.com/holdall/holdall/internal/read/content"
)

// A spot is a place in an old archive where bytes of the new one may be. What is said of it is only a hint: what
// is read there is compared.
type spot struct {
	old    int // number of the archive
	object int
	at     int64
}

const (
	nowhere = -1 - iota
	resumed // what an earlier sync has written of the same object
)

// A finder knows what old archives have.
type finder struct {
	algos   [3]bool // of the new archive, by the first byte of a sum
	olds    []*content.Source
	layouts []*content.Layout

	mu     sync.Mutex
	bySum  map[content.Sum]spot
	byName map[uint64]spot  // of contents
	bySize map[int64][]spot // whose digest is not known yet
}

func newFinder(l *content.Layout) *finder {
	f := &finder{bySum: map[content.Sum]spot{}, byName: map[uint64]spot{}, bySize: map[int64][]spot{}}
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
	for _, r := range l.Ranges {
		at := spot{len(f.olds), r.Object, r.Off}
		if r.Sum[0] == 0 || !f.algos[r.Sum[0]] {
			f.bySize[r.N] = append(f.bySize[r.N], at)
		} else if _, known := f.bySum[r.Sum]; !known {
			f.bySum[r.Sum] = at
		}
		if _, known := f.byName[r.Of]; r.Of != 0 && r.At == 0 && !known {
			f.byName[r.Of] = at
		}
	}
	f.olds, f.layouts = append(f.olds, from), append(f.layouts, l)
	return nil
}

// candidates yields where a range may be. last is the spot after the range before it.
func (f *finder) candidates(r content.Range, last spot) iter.Seq[spot] {
	return func(yield func(spot) bool) {
		f.mu.Lock()
		same, ok := f.bySum[r.Sum]
		f.mu.Unlock()
		if ok && !yield(same) {
			return
		}
		if last.old >= 0 && (!ok || last != same) && f.may(r, last) && !yield(last) {
			return
		}
		named, known := f.byName[r.Of]
		if named.at += r.At; known && (!ok || named != same) && named != last && f.may(r, named) && !yield(named) {
			return
		}
		for {
			f.mu.Lock()
			all := f.bySize[r.N]
			if len(all) > 0 {
				f.bySize[r.N] = all[1:] // each is read once, and then known by its digest
			}
			f.mu.Unlock()
			if len(all) == 0 || !yield(all[0]) {
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
	f.mu.Lock()
	defer f.mu.Unlock()
	at, ok := f.bySum[r.Sum]
	if !ok {
		at, ok = f.byName[r.Of]
		at.at += r.At
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
	if _, known := f.bySum[sum]; !known && sum != (content.Sum{}) {
		f.bySum[sum] = at
	}
}

func (f *finder) readAt(ctx context.Context, at spot, p []byte, off int64) error {
	o, err := f.olds[at.old].Object(ctx, f.layouts[at.old].Objects[at.object])
	if err != nil {
		return err
	}
	return o.ReadAt(ctx, p, off)
}
