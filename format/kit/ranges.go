package kit

import (
	"cmp"
	"slices"
	"sort"
)

// A Range is the bytes from From to before To.
type Range struct{ From, To int64 }

// Ranges are a set of bytes. They are added in any order and often more than once, so they are
// joined now and then. After Join they are in order and do not touch.
type Ranges struct {
	All    []Range
	joined int // how many were left after Join
}

// Add adds bytes. Bytes nearly always come in order, so usually the last range grows.
func (r *Ranges) Add(from, to int64) {
	if n := len(r.All); n > 0 && r.All[n-1].From <= from && from <= r.All[n-1].To {
		r.All[n-1].To = max(r.All[n-1].To, to)
		return
	}
	if from >= to {
		return
	}
	if r.All = append(r.All, Range{from, to}); len(r.All) > 2*r.joined+1024 {
		r.Join()
	}
}

// Join sorts the ranges, and joins those that touch.
func (r *Ranges) Join() {
	slices.SortFunc(r.All, func(a, b Range) int { return cmp.Compare(a.From, b.From) })
	kept := r.All[:0]
	for _, x := range r.All {
		if n := len(kept); n > 0 && x.From <= kept[n-1].To {
			kept[n-1].To = max(kept[n-1].To, x.To)
			continue
		}
		kept = append(kept, x)
	}
	r.All, r.joined = kept, len(kept)
}

// first returns the index of the first range that ends after a position.
func (r Ranges) first(at int64) int {
	return sort.Search(len(r.All), func(i int) bool { return r.All[i].To > at })
}

// Touches reports whether the ranges have any of the bytes. They must be joined.
func (r Ranges) Touches(from, to int64) bool {
	i := r.first(from)
	return i < len(r.All) && r.All[i].From < to
}

// Gaps returns those of the bytes that no range has. The ranges must be joined.
func (r Ranges) Gaps(from, to int64) []Range {
	var gaps Ranges
	for i := r.first(from); i < len(r.All) && r.All[i].From < to; i++ {
		gaps.Add(from, r.All[i].From)
		from = r.All[i].To
	}
	gaps.Add(from, to)
	return gaps.All
}
