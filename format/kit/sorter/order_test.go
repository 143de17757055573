package sorter

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/holdall/holdall/internal/testkit"
)

// Keys that differ in their first, their last or only in their number of zeros are sorted as
// strings.Compare sorts them, and equal ones by row.
func TestOrder(t *testing.T) {
	r := testkit.Rand(t)
	parts := []string{"", "a", "b", "\x00", "\x00\x00\x00\x00", "a\x00", "\xff", "folder/", "a longer folder than a word/", "ä"}
	for range 500 {
		table := make([]string, r.IntN(300))
		most := 1 + r.IntN(12)
		for i := range table {
			for range r.IntN(most) {
				table[i] += parts[r.IntN(len(parts))]
			}
		}
		var rows []uint32
		for i := range table {
			rows = append(rows, uint32(i))
		}
		want := slices.Clone(rows)
		slices.SortStableFunc(want, func(a, b uint32) int { return strings.Compare(table[a], table[b]) })
		for _, room := range []int{len(rows), 20, 1} {
			got := slices.Clone(rows)
			divide(got, func(row uint32) string { return table[row] }, 0, make([]uint64, room))
			if !slices.Equal(got, want) {
				t.Fatalf("%q: %v, expected %v; room for %d", table, got, want, room)
			}
		}
	}
}

func BenchmarkOrder(b *testing.B) {
	const n = 1_000_000
	table := make([]string, n)
	for i, k := range testkit.Rand(b).Perm(n) {
		table[i] = fmt.Sprintf("dir%04d/file%08d.dat", k/1000, k)
	}
	rows := make([]uint32, n)
	b.ReportAllocs()
	for b.Loop() {
		for i := range rows {
			rows[i] = uint32(i)
		}
		Order(rows, func(row uint32) string { return table[row] })
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/n, "ns/row")
}
