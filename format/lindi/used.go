package lindi

import (
	"cmp"
	"context"
	"slices"
)

// A run is stored bytes.
type run struct{ off, n int64 }

// runs are stored bytes that keys lead to, in order, without overlaps.
type runs []run

// used returns what of the tar its keys lead to.
func (k *keys) used(ctx context.Context) (runs, error) {
	var list runs
	for e, err := range k.Entries(ctx) {
		if err != nil {
			return nil, err
		}
		if p, ok := e.Ref.(place); ok && p.value == nil && !p.external && e.Fault == nil && p.n > 0 {
			list = append(list, run{p.off, p.n})
		}
	}
	slices.SortFunc(list, func(a, b run) int { return cmp.Compare(a.off, b.off) })
	out := list[:0]
	for _, r := range list {
		if n := len(out); n > 0 && r.off <= out[n-1].off+out[n-1].n {
			out[n-1].n = max(out[n-1].n, r.off+r.n-out[n-1].off)
			continue
		}
		out = append(out, r)
	}
	return out, nil
}

// gaps returns the parts of a member's content that no run covers.
func (l runs) gaps(r row) (gaps []run) {
	at, end := r.d, r.d+r.s
	i, _ := slices.BinarySearchFunc(l, r.d, func(x run, off int64) int { return cmp.Compare(x.off+x.n, off+1) })
	for ; i < len(l) && l[i].off < end; i++ {
		if l[i].off > at {
			gaps = append(gaps, run{at, l[i].off - at})
		}
		at = max(at, l[i].off+l[i].n)
	}
	if at < end {
		gaps = append(gaps, run{at, end - at})
	}
	return gaps
}
