package bytemap

import (
	"iter"
	"math"
	"math/bits"
)

const (
	// A volume has at most maxCells cells, more than a screen shows. If there are many volumes,
	// they get fewer cells, so that the total stays near cellBudget.
	maxCells   = 4096
	minCells   = 16
	cellBudget = 1 << 16

	// maxLargest is the number of spans that are kept individually. A picture of 6,500 pixels has
	// room for about as many that are wider than 3 pixels.
	maxLargest = 2048
)

// Build returns a Map of the given spans, which may be in any order. Its memory depends only on
// the volumes: the spans of a volume are added up in at most 4096 cells.
//
// Parts of spans outside their volume are omitted and counted. If two volumes have the same name,
// the spans are assigned to the first.
func Build(volumes []Volume, spans iter.Seq[Span]) *Map {
	cells := min(maxCells, max(minCells, cellBudget/max(1, len(volumes))))
	bins := make([]bin, len(volumes))
	byName := make(map[string]*bin, len(volumes))
	for i, v := range volumes {
		bins[i] = newBin(v, cells)
		if byName[v.Name] == nil {
			byName[v.Name] = &bins[i]
		}
	}
	m := &Map{}
	top := largest{keep: maxLargest}
	shared := sharing{of: map[run]*Run{}, done: func(s Run) {
		if s.Files > 0 {
			m.Shared, m.SharedBy = m.Shared+1, m.SharedBy+s.Files
		}
		top.add(s)
	}}
	for s := range spans {
		if s.Use > Unknown {
			s.Use = Unknown // a use that this package does not know
		}
		b := byName[s.Volume]
		if b == nil || s.Off < 0 || s.Len < 0 || s.Off > b.v.Size || s.Len > b.v.Size-s.Off {
			m.Outside++
			if b == nil || s.Len < 0 || s.Off >= b.v.Size {
				continue
			}
			if s.Off < 0 {
				if s.Len <= -(s.Off + 1) { // -s.Off may overflow
					continue
				}
				s.Off, s.Len = 0, s.Len+s.Off
			}
			s.Len = min(s.Len, b.v.Size-s.Off)
		}
		b.v.Totals[s.Use].Spans++
		switch {
		case s.Len == 0:
		case s.Use == Content && shared.again(b, s):
			b.touch(s.Off, s.Off+s.Len)
		default:
			if b.add(s.Use, s.Off, s.Off+s.Len); s.Use != Content {
				top.add(Run{Span: s})
			}
		}
	}
	shared.flush()
	m.Largest = top.sorted()
	for i := range bins {
		v := bins[i].finish()
		m.Volumes = append(m.Volumes, v)
		for u, share := range v.Totals {
			m.Totals[u].Bytes = plus(m.Totals[u].Bytes, share.Bytes)
			m.Totals[u].Spans += share.Spans
		}
	}
	return m
}

// sharing finds runs of content that occur several times. It remembers the last few thousand,
// because spans that share a run are close together in stored order.
type sharing struct {
	of    map[run]*Run
	order []run // in order of arrival
	done  func(Run)
}

type run struct {
	b      *bin
	off, n int64
}

const mostShared = 4096

// again reports whether a span of content is a run that occurred before.
func (h *sharing) again(b *bin, s Span) bool {
	r := run{b, s.Off, s.Len}
	if had := h.of[r]; had != nil {
		had.Files = max(had.Files, 1) + 1
		return true
	}
	if len(h.order) == mostShared {
		h.flush()
	}
	h.of[r], h.order = &Run{Span: s}, append(h.order, r)
	return false
}

// flush forgets all runs.
func (h *sharing) flush() {
	for _, r := range h.order {
		h.done(*h.of[r])
	}
	clear(h.of)
	h.order = h.order[:0]
}

// bin adds up the spans of one volume. The ends of a span are added to their cells directly. Of
// the cells that a span fills, only the first and the one after the last are recorded, so that a
// span costs the same whatever its length.
type bin struct {
	v    VolumeMap
	fill []fill

	sorted bool  // all spans so far were sorted
	last   int64 // where the last span began
	end    int64 // end of the part without unknown gaps
}

// fill is the difference to the previous cell of how many spans fill this cell and touch it.
type fill struct {
	full  [useCount]int64
	touch int64
}

func newBin(v Volume, cells int) bin {
	v.Size = max(0, v.Size)
	size := (v.Size-1)/int64(cells) + 1 // 1 for an empty volume
	n := 0
	if v.Size > 0 {
		n = int((v.Size-1)/size) + 1
	}
	return bin{
		v:      VolumeMap{Volume: v, CellSize: size, Cells: make([]Cell, n)},
		fill:   make([]fill, n+1),
		sorted: true,
	}
}

// add adds bytes [from, to), which must be in the volume and not empty.
func (b *bin) add(u Use, from, to int64) {
	b.touch(from, to)
	if b.sorted = b.sorted && from >= b.last; !b.sorted {
		b.put(u, from, to)
		return
	}
	b.last = from
	if from > b.end {
		b.count(Gap, b.end, from)
	}
	b.count(Overlap, from, min(to, b.end))
	b.count(u, max(from, b.end), to)
	b.end = max(b.end, to)
}

func (b *bin) touch(from, to int64) {
	b.fill[from/b.v.CellSize].touch++
	b.fill[(to-1)/b.v.CellSize+1].touch--
}

func (b *bin) count(u Use, from, to int64) {
	if from < to {
		b.put(u, from, to)
		b.v.Totals[u].Bytes = plus(b.v.Totals[u].Bytes, to-from)
	}
}

func (b *bin) put(u Use, from, to int64) {
	size := b.v.CellSize
	first, last := from/size, (to-1)/size
	at := &b.v.Cells[first].Bytes[u]
	if first == last {
		*at = plus(*at, to-from)
		return
	}
	*at = plus(*at, (first+1)*size-from)
	at = &b.v.Cells[last].Bytes[u]
	*at = plus(*at, to-last*size)
	b.fill[first+1].full[u]++
	b.fill[last].full[u]--
}

func (b *bin) finish() VolumeMap {
	v := &b.v
	if b.sorted && b.end < v.Size {
		b.count(Gap, b.end, v.Size)
	}
	v.Exact = b.sorted
	if !b.sorted {
		for u := range v.Totals {
			v.Totals[u].Bytes = 0
		}
	}
	var run fill
	for i := range v.Cells {
		c, n := &v.Cells[i], v.length(i)
		run.touch += b.fill[i].touch
		c.Spans = run.touch
		for u := range c.Bytes {
			run.full[u] += b.fill[i].full[u]
			c.Bytes[u] = plus(c.Bytes[u], times(run.full[u], n))
		}
		if !b.sorted {
			c.settle(n)
			for u, bytes := range c.Bytes {
				v.Totals[u].Bytes = plus(v.Totals[u].Bytes, bytes)
			}
		}
	}
	return *v
}

// settle derives gap and overlap from how much of n bytes is covered. Bytes that are covered
// twice are subtracted from contents first.
func (c *Cell) settle(n int64) {
	c.Bytes[Gap] = 0
	var sum int64
	for u := Content; u < Gap; u++ {
		sum = plus(sum, c.Bytes[u])
	}
	if sum <= n {
		c.Bytes[Gap] = n - sum
		return
	}
	c.Bytes[Overlap] = plus(c.Bytes[Overlap], sum-n)
	for u := Gap - 1; ; u-- {
		c.Bytes[u] = min(c.Bytes[u], n)
		if n -= c.Bytes[u]; u == Content {
			return
		}
	}
}

// plus and times saturate, because an index may claim the same bytes so often that their sum
// overflows.
func plus(a, b int64) int64 {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}

func times(a, b int64) int64 {
	hi, lo := bits.Mul64(uint64(a), uint64(b))
	if hi != 0 || lo > math.MaxInt64 {
		return math.MaxInt64
	}
	return int64(lo)
}
