package bytemap

import (
	"cmp"
	"container/heap"
	"slices"
)

// largest keeps the longest spans; of equally long spans, the first ones.
type largest struct {
	keep int
	seen int64
	heap spanHeap
}

type rankedSpan struct {
	Run
	came int64
}

func (a rankedSpan) compare(b rankedSpan) int {
	return cmp.Or(cmp.Compare(a.Len, b.Len), cmp.Compare(b.came, a.came))
}

func (l *largest) add(s Run) {
	l.seen++
	r := rankedSpan{s, l.seen}
	switch {
	case len(l.heap) < l.keep:
		heap.Push(&l.heap, r)
	case r.compare(l.heap[0]) > 0:
		l.heap[0] = r
		heap.Fix(&l.heap, 0)
	}
}

// sorted returns the spans, longest first.
func (l *largest) sorted() []Run {
	slices.SortFunc(l.heap, func(a, b rankedSpan) int { return b.compare(a) })
	spans := make([]Run, len(l.heap))
	for i, r := range l.heap {
		spans[i] = r.Run
	}
	return spans
}

// spanHeap has the shortest span at the top.
type spanHeap []rankedSpan

func (h spanHeap) Len() int           { return len(h) }
func (h spanHeap) Less(i, j int) bool { return h[i].compare(h[j]) < 0 }
func (h spanHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *spanHeap) Push(x any)        { *h = append(*h, x.(rankedSpan)) }
func (h *spanHeap) Pop() any {
	last := len(*h) - 1
	x := (*h)[last]
	*h = (*h)[:last]
	return x
}
