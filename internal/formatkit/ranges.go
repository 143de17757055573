package formatkit

import (
	"cmp"
	"slices"
	"sort"
)

// A Range is the bytes from one place to before another.
type Range struct{ From, To int64 }

// Ranges are some bytes of many, added in any order. Once they are joined they are in
// order and do not touch.
type Ranges []Range

// Add adds bytes. They nearly always come in order, so that it is the last range that
// grows.
func (r *Ranges) Add(from, to int64) {
	if n := len(*r); n > 0 && (*r)[n-1].From <= from && from <= (*r)[n-1].To {
		(*r)[n-1].To = max((*r)[n-1].To, to)
		return
	}
	if from >= to {
		return
	}
	if *r = append(*r, Range{from, to}); len(*r)&0xffff == 0 {
		r.Join()
	}
}

// Join sorts the ranges, and joins those that touch.
func (r *Ranges) Join() {
	slices.SortFunc(*r, func(a, b Range) int { return cmp.Compare(a.From, b.From) })
	kept := (*r)[:0]
	for _, x := range *r {
		if n := len(kept); n > 0 && x.From <= kept[n-1].To {
			kept[n-1].To = max(kept[n-1].To, x.To)
			continue
		}
		kept = append(kept, x)
	}
	*r = kept
}

// first is the first range that ends behind a place.
func (r Ranges) first(at int64) int {
	return sort.Search(len(r), func(i int) bool { return r[i].To > at })
}

// Touches reports whether joined ranges have any of the bytes.
func (r Ranges) Touches(from, to int64) bool {
	i := r.first(from)
	return i < len(r) && r[i].From < to
}

// Gaps are those of the bytes that no range has of joined ones.
func (r Ranges) Gaps(from, to int64) (gaps Ranges) {
	for i := r.first(from); i < len(r) && r[i].From < to; i++ {
		gaps.Add(from, r[i].From)
		from = r[i].To
	}
	gaps.Add(from, to)
	return gaps
}
