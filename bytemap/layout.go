package bytemap

import (
	"cmp"
	"iter"
	"math/bits"
	"slices"
)

// A picture lays a volume out in rows, like text. All volumes have the same
// scale, so that their sizes can be compared.
type layout struct {
	m       *Map
	shown   []*VolumeMap // the first of them, as many as fit a picture
	rowSize int64        // bytes a row stands for

	// big are the largest spans of each shown volume, by offset.
	big map[*VolumeMap][]Run
}

const (
	maxVolumes = 200 // shown in a picture
	maxRows    = 40  // of all volumes, unless they are more
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

// roundUp returns the least number that is n or more and has four significant
// bits, so that rows begin at numbers that can be read: by an eighth more at
// most.
func roundUp(n int64) int64 {
	shift := max(0, bits.Len64(uint64(n))-4)
	up := (uint64(n-1)>>shift + 1) << shift
	return int64(min(up, 1<<63-1))
}

// An exact span is drawn by itself, where it begins and ends, since it is wide
// enough to be seen.
type exact struct {
	Run
	from  int64 // what lies before is covered by another
	shade swatch
}

// exacts yields the spans of v that have at least size bytes to themselves, by
// offset. Every second entry has the lighter shade of content, the others the
// darker; what is too small, and drawn by cells, has the one between. All
// together they are no longer than the volume, however many overlap.
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

// A piece is the part of a run of bytes that lies in one row.
type piece struct {
	row      int
	from, to int64 // from the row's beginning
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

// columns divides the part of a row that the volume fills into columns of
// width pixels and yields where each begins, in pixels, and the bytes it
// stands for.
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
				to = v.Size // beyond the largest number
			}
			// A row of fewer bytes than columns shows a byte in several.
			if !yield(x, [2]int64{from, max(to, from+1)}) {
				return
			}
		}
	}
}

// scale returns n*a/b, whose product may have no number.
func scale(n int64, a, b int) int64 {
	hi, lo := bits.Mul64(uint64(n), uint64(a))
	q, _ := bits.Div64(hi, lo, uint64(b))
	return int64(q)
}

// levels rounds shares to n levels that sum up to n.
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

// drawn is the order in which uses are stacked in a column and listed in a
// legend: what was wanted first, what nobody wanted last.
var drawn = [...]Use{Content, Header, IndexData, Journal, Padding, Trash, Unknown, Gap}
