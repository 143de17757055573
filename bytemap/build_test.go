package bytemap

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/holdall/holdall/internal/testkit"
)

func TestMain(m *testing.M) { testkit.SerialPackage(m) }

// check fails unless the map's numbers agree with each other.
func check(t *testing.T, m *Map) {
	t.Helper()
	var all Totals
	for _, v := range m.Volumes {
		var sums, length [useCount]int64
		var cells int64
		for i, c := range v.Cells {
			n := v.length(i)
			if n <= 0 {
				t.Fatalf("%s: cell %d of %d is empty", v.Name, i, len(v.Cells))
			}
			cells += n
			var covered int64
			for u, bytes := range c.Bytes {
				if bytes < 0 {
					t.Fatalf("%s: cell %d has %d bytes of %s", v.Name, i, bytes, Use(u))
				}
				sums[u] += bytes
				covered += bytes
			}
			if got := covered - c.Bytes[Overlap]; got != n {
				t.Fatalf("%s: cell %d of %d bytes accounts for %d: %v", v.Name, i, n, got, c)
			}
			length = sums
		}
		if cells != v.Size || len(v.Cells) > maxCells {
			t.Fatalf("%s: expected at most %d cells of %d bytes, found %d of %d", v.Name, maxCells, v.Size, len(v.Cells), cells)
		}
		for u := range length {
			if length[u] != v.Totals[u].Bytes {
				t.Fatalf("%s: %s: cells sum up to %d bytes, the total is %d", v.Name, Use(u), length[u], v.Totals[u].Bytes)
			}
			all[u].Bytes += v.Totals[u].Bytes
			all[u].Spans += v.Totals[u].Spans
		}
	}
	if all != m.Totals {
		t.Fatalf("volumes sum up to %v, the totals are %v", all, m.Totals)
	}
}

// naive says byte by byte what spans cover.
func naive(size int64, spans []Span) (want Totals) {
	covered := make([]int64, size)
	came := map[Span]bool{}
	for _, s := range spans {
		if s.Label = ""; s.Use == Content && came[s] {
			continue // several files share it
		}
		came[s] = true
		for at := max(s.Off, 0); at < min(s.Off+s.Len, size); at++ {
			if covered[at]++; covered[at] == 1 {
				want[s.Use].Bytes++
			}
		}
	}
	for _, n := range covered {
		if n == 0 {
			want[Gap].Bytes++
		} else {
			want[Overlap].Bytes += n - 1
		}
	}
	return want
}

func TestBytesInCellsSumUpToTotals(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	for range 200 {
		size := int64(1 + r.IntN(30_000))
		var spans []Span
		for range r.IntN(60) {
			off := r.Int64N(size)
			spans = append(spans, Span{"v", off, r.Int64N(min(size-off, 1+r.Int64N(size)) + 1), Use(r.IntN(int(Gap))), ""})
		}
		sorted := r.IntN(2) == 0
		if sorted {
			slices.SortFunc(spans, func(a, b Span) int { return int(a.Off - b.Off) })
		}
		m := Build([]Volume{{"v", size}}, slices.Values(spans))
		check(t, m)
		got, want := m.Totals, naive(size, spans)
		for u := range got {
			got[u].Spans = 0
			if !m.Volumes[0].Exact {
				got[u], want[u] = Share{}, Share{} // check has looked at the sum
			}
		}
		if got != want {
			t.Fatalf("size %d, sorted %v: expected %v, found %v", size, sorted, want, got)
		}
		if sorted && !m.Volumes[0].Exact {
			t.Error("sorted spans: expected exact totals")
		}
	}
}

func TestGapsAreExactInAnyOrderWithoutOverlaps(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	var spans []Span
	var size, gaps int64
	for i := range 20_000 {
		gap := int64(r.IntN(3)) * r.Int64N(50)
		n := r.Int64N(5000)
		spans = append(spans, Span{"v", size + gap, n, Use(i % 3), ""})
		size += gap + n
		gaps += gap
	}
	r.Shuffle(len(spans), func(i, j int) { spans[i], spans[j] = spans[j], spans[i] })
	m := Build([]Volume{{"v", size}}, slices.Values(spans))
	check(t, m)
	if got := m.Totals[Gap].Bytes; got != gaps {
		t.Errorf("expected gaps of %d bytes, found %d", gaps, got)
	}
	if got := m.Totals[Overlap].Bytes; got != 0 {
		t.Errorf("expected no overlaps, found %d bytes", got)
	}
}

func TestSpansOutsideTheirVolumeAreCutAndCounted(t *testing.T) {
	spans := []Span{
		{"v", 0, 10, Content, "inside"},
		{"v", 90, 20, Content, "over the end"},
		{"v", -5, 10, Content, "over the front"},
		{"v", -5, 3, Content, "before"},
		{"v", 100, 1, Content, "behind"},
		{"v", 5, -1, Content, "negative"},
		{"v", math.MaxInt64, math.MaxInt64, Content, "far"},
		{"v", math.MinInt64, math.MaxInt64, Content, "far before"},
		{"v", -1, math.MaxInt64, Content, "around"},
		{"other", 0, 1, Content, "of no volume"},
		{"v", 100, 0, Content, "empty at the end"},
	}
	m := Build([]Volume{{"v", 100}, {"v", 50}}, slices.Values(spans))
	check(t, m)
	if m.Outside != 9 {
		t.Errorf("expected 9 spans to stick out, found %d", m.Outside)
	}
	if got, want := m.Totals[Content], (Share{100, 5}); got != want {
		t.Errorf("content: expected %v, found %v", want, got)
	}
	if got := m.Volumes[1].Totals[Gap].Bytes; got != 50 {
		t.Errorf("second volume of the name: expected a gap of 50 bytes, found %d", got)
	}
	if m.Largest[0].Label != "around" || m.Largest[0].Len != 100 || m.Largest[0].Off != 0 {
		t.Errorf("largest: expected the one around everything, cut, found %+v", m.Largest[0])
	}
}

func TestCellsSayWhatLiesWhere(t *testing.T) {
	const size = 4096 * 10
	m := Build([]Volume{{"v", size}}, slices.Values([]Span{
		{"v", 0, 5, Header, ""},
		{"v", 5, 20, Content, "a"},    // the rest of cell 0, all of 1, half of 2
		{"v", 22, 3, Trash, "b"},      // the second time
		{"v", 100, 1000, Content, ""}, // cells 10 to 109
	}))
	check(t, m)
	v := m.Volumes[0]
	for i, want := range map[int]Cell{
		0:   {Bytes: [useCount]int64{Header: 5, Content: 5}, Spans: 2},
		1:   {Bytes: [useCount]int64{Content: 10}, Spans: 1},
		2:   {Bytes: [useCount]int64{Content: 5, Gap: 5, Overlap: 3}, Spans: 2},
		3:   {Bytes: [useCount]int64{Gap: 10}},
		10:  {Bytes: [useCount]int64{Content: 10}, Spans: 1},
		60:  {Bytes: [useCount]int64{Content: 10}, Spans: 1},
		109: {Bytes: [useCount]int64{Content: 10}, Spans: 1},
		110: {Bytes: [useCount]int64{Gap: 10}},
	} {
		if v.Cells[i] != want {
			t.Errorf("cell %d: expected %v, found %v", i, want, v.Cells[i])
		}
	}
}

func TestLargestSpansAreKeptWhateverTheirOrder(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	var spans []Span
	for i := range 5000 {
		spans = append(spans, Span{"v", int64(i % 2), int64(i/2 + 1), Content, fmt.Sprint(i)})
	}
	r.Shuffle(len(spans), func(i, j int) { spans[i], spans[j] = spans[j], spans[i] })
	m := Build([]Volume{{"v", 10_000}}, slices.Values(spans))
	slices.SortStableFunc(spans, func(a, b Span) int { return int(b.Len - a.Len) })
	if !slices.EqualFunc(m.Largest, spans[:maxLargest], func(r Run, s Span) bool { return r.Span == s }) {
		t.Errorf("expected the %d largest, of equal ones the first; found others, beginning with %v", maxLargest, m.Largest[:3])
	}
}

func TestManyVolumesShareTheCells(t *testing.T) {
	volumes := make([]Volume, 1000)
	for i := range volumes {
		volumes[i] = Volume{fmt.Sprint(i), int64(i) * 1000}
	}
	m := Build(volumes, slices.Values([]Span{{"999", 0, 999_000, Content, "x"}}))
	check(t, m)
	cells := 0
	for _, v := range m.Volumes {
		cells += len(v.Cells)
	}
	if cells > cellBudget || len(m.Volumes[999].Cells) < minCells {
		t.Errorf("found %d cells, %d of them in the last volume", cells, len(m.Volumes[999].Cells))
	}
}

func TestHugeNumbersDoNotOverflow(t *testing.T) {
	m := Build([]Volume{{"v", math.MaxInt64}, {"w", math.MaxInt64}, {"none", 0}, {"negative", -1}}, func(yield func(Span) bool) {
		for range 5000 {
			if !yield(Span{"v", 0, math.MaxInt64, Content, ""}) || !yield(Span{"w", math.MaxInt64 - 1, 1, Header, ""}) {
				return
			}
		}
	})
	if got := m.Totals[Content].Bytes; got != math.MaxInt64 {
		t.Errorf("content: expected the largest number, found %d", got)
	}
	if got := m.Volumes[1].Totals; got[Header].Bytes != 1 || got[Gap].Bytes != math.MaxInt64-1 || got[Overlap].Bytes != 4999 {
		t.Errorf("w: found %v", got)
	}
	draw(t, m)
}

func FuzzBuild(f *testing.F) {
	f.Add(int64(1000), int64(1), uint16(20))
	f.Add(int64(math.MaxInt64), int64(2), uint16(50))
	f.Add(int64(-1), int64(3), uint16(1))
	f.Fuzz(func(t *testing.T, size, seed int64, n uint16) {
		r := rand.New(rand.NewPCG(uint64(seed), 0))
		wild := func() int64 {
			x := int64(r.Uint64())
			if r.IntN(4) == 0 {
				return x
			}
			return x >> r.IntN(63) // of any magnitude
		}
		if size > 0 {
			wild = func(old func() int64) func() int64 {
				return func() int64 {
					if r.IntN(2) == 0 {
						return r.Int64N(size)
					}
					return old()
				}
			}(wild)
		}
		var spans []Span
		for range n % 500 {
			spans = append(spans, Span{[]string{"v", "w", "x"}[r.IntN(3)], wild(), wild(), Use(r.IntN(12)), "label"})
		}
		m := Build([]Volume{{"v", size}, {"w", 777}}, slices.Values(spans))
		if size < 1<<50 { // else sums may have stopped at the largest number
			check(t, m)
		}
		var covered [777]bool
		for _, s := range spans {
			for at := range covered {
				if s.Volume == "w" && s.Len > 0 && int64(at) >= s.Off && uint64(int64(at)-s.Off) < uint64(s.Len) {
					covered[at] = true
				}
			}
		}
		var want, got int64
		for _, is := range covered {
			if is {
				want++
			}
		}
		for u := Content; u < Gap; u++ {
			got += m.Volumes[1].Totals[u].Bytes
		}
		if got != want { // its cells are of one byte
			t.Errorf("w: expected %d bytes that are for something, found %d", want, got)
		}
		if n%16 == 0 {
			draw(t, m)
		}
	})
}

// TestASharedRunCountsOnce has many files in few sections.
func TestASharedRunCountsOnce(t *testing.T) {
	m := Build([]Volume{{"v", 1000}}, func(yield func(Span) bool) {
		for i := range 90 {
			if !yield(Span{"v", int64(i/30) * 300, 300, Content, fmt.Sprint(i)}) {
				return
			}
		}
		yield(Span{"v", 900, 50, IndexData, "index"})
	})
	check(t, m)
	if got := m.Totals; got[Content] != (Share{900, 90}) || got[Overlap].Bytes != 0 || got[Gap].Bytes != 50 {
		t.Errorf("found %v", got)
	}
	if m.Shared != 3 || m.SharedBy != 90 || m.Largest[0] != (Run{Span{"v", 0, 300, Content, "0"}, 30}) {
		t.Errorf("%d runs shared by %d files, the largest %+v", m.Shared, m.SharedBy, m.Largest[0])
	}
	draw(t, m)
}
