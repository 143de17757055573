package bytemap

import (
	"cmp"
	"iter"
	"math/bits"
	"slices"
)

// layout lays volumes out in rows, like text. All volumes have the same scale, so that their
// sizes can be compared.
type layout struct {
	m       *Map
	shown   []*VolumeMap // the first volumes, as many as fit in a picture
	rowSize int64        // bytes in a row

	// big has the largest spans of each shown volume, sorted by offset.
	big map[*VolumeMap][]Run
}

const (
	maxVolumes = 200 // in a picture
	maxRows    = 40  // of all volumes, unless there are more volumes
)

// newLayout divides the largest volume into at most rows rows.
func newLayout(m *Map, rows int) *layout {
	l := &layout{m: m, big: map[*VolumeMap][]Run{}}
	var largest int64
	byName := map[string]*VolumeMap{}
	for i := range m.Volumes[:min(len(m.Volumes), maxVolumes)] {
		v := &m.Volumes[i]
		l.shown = append(l.shown, v)
		largest = max(largest, v.Size)
		if byName[v.Name] == nil {
			byName[v.Name] = v
		}
	}
	for ; ; rows-- {
		l.rowSize = roundUp((max(largest, 1)-1)/int64(rows) + 1)
		all := 0
		for _, v := range l.shown {
			all += l.rows(v)
		}
		if rows == 1 || all <= maxRows {
			break
		}
	}
	for _, s := range m.Largest {
		if v := byName[s.Volume]; v != nil {
			l.big[v] = append(l.big[v], s)
		}
	}
	for _, spans := range l.big {
		slices.SortStableFunc(spans, func(a, b Run) int { return cmp.Compare(a.Off, b.Off) })
	}
	return l
}

func (l *layout) rows(v *VolumeMap) int {
	return int(max(v.Size-1, 0)/l.rowSize) + 1
}

func roundUp(n int64) int64 {
	shift := max(0, bits.Len64(uint64(n))-4)
	up := (uint64(n-1)>>shift + 1) << shift
	return int64(min(up, 1<<63-1))
}

// exact is a span that is wide enough to be drawn individually, with its exact bounds.
type exact struct {
	Run
	from  int64 // bytes before it are covered by another span
	shade swatch
}

// exacts yields the spans of v of which at least size bytes are not covered by others, sorted by
// offset. Entries alternate between the lighter and the darker shade of content. Smaller entries
// are drawn by cells in the shade between them. The total length of the spans is at most that of
// the volume, however many overlap.
func (l *layout) exacts(v *VolumeMap, size int64) iter.Seq[exact] {
	return func(yield func(exact) bool) {
		var end int64
		second := false
		for _, s := range l.big[v] {
			e := exact{s, max(s.Off, end), palette[s.Use]}
			if s.Off+s.Len-e.from < size {
				continue
			}
			end = s.Off + s.Len
			if s.Use == Content {
				e.shade = darker
				if second {
					e.shade = lighter
				}
				second = !second
			}
			if !yield(e) {
				return
			}
		}
	}
}

// piece is the part of a run of bytes in one row.
type piece struct {
	row      int
	from, to int64 // relative to the start of the row
}

func (l *layout) pieces(e exact) iter.Seq[piece] {
	return func(yield func(piece) bool) {
		for off, n := e.from, e.Off+e.Len-e.from; n > 0; {
			row := off / l.rowSize
			from := off - row*l.rowSize
			some := min(n, l.rowSize-from)
			if !yield(piece{int(row), from, from + some}) {
				return
			}
			off, n = off+some, n-some
		}
	}
}

// columns divides the part of a row that the volume fills into columns of width pixels. It yields
// the offset of each column in pixels, and its range of bytes.
func (l *layout) columns(v *VolumeMap, row int, rowPixels, width int) iter.Seq2[int, [2]int64] {
	return func(yield func(int, [2]int64) bool) {
		start := int64(row) * l.rowSize
		for x := 0; x < rowPixels; x += width {
			from := start + scale(l.rowSize, x, rowPixels)
			to := start + scale(l.rowSize, min(x+width, rowPixels), rowPixels)
			if from >= v.Size || from < start {
				return
			}
			if to = min(to, v.Size); to < start {
				to = v.Size // the sum overflowed
			}
			// In a row with fewer bytes than columns, a byte appears in several columns.
			if !yield(x, [2]int64{from, max(to, from+1)}) {
				return
			}
		}
	}
}

// scale returns n*a/b without overflow of the product.
func scale(n int64, a, b int) int64 {
	hi, lo := bits.Mul64(uint64(n), uint64(a))
	q, _ := bits.Div64(hi, lo, uint64(b))
	return int64(q)
}

// levels rounds shares to integers whose sum is n.
func levels(parts mix, n int) (out [useCount]int) {
	rest := n
	for u, part := range parts {
		out[u] = int(part*float64(n) + 0.5)
		rest -= out[u]
	}
	for rest != 0 {
		widest := 0
		for u := range out {
			if out[u] > out[widest] {
				widest = u
			}
		}
		step := 1
		if rest < 0 {
			step = -1
		}
		out[widest] += step
		rest -= step
	}
	return out
}

// drawn is the order of uses in a column and in the legend: the most useful first.
var drawn = [...]Use{Content, Header, IndexData, Journal, Padding, Trash, Unknown, Gap}
