package kit_test

import (
	"slices"
	"testing"

	"github.com/holdall/holdall/format/kit"
)

func TestRangesHaveGaps(t *testing.T) {
	var r kit.Ranges
	for _, x := range []kit.Range{{10, 20}, {20, 25}, {22, 24}, {5, 5}, {40, 50}, {30, 41}, {60, 70}} {
		r.Add(x.From, x.To)
	}
	r.Join()
	if want := []kit.Range{{10, 25}, {30, 50}, {60, 70}}; !slices.Equal(r.All, want) {
		t.Errorf("%v, expected %v", r.All, want)
	}
	for _, c := range []struct {
		from, to int64
		gaps     []kit.Range
	}{
		{0, 80, []kit.Range{{0, 10}, {25, 30}, {50, 60}, {70, 80}}},
		{10, 70, []kit.Range{{25, 30}, {50, 60}}},
		{12, 62, []kit.Range{{25, 30}, {50, 60}}},
		{26, 28, []kit.Range{{26, 28}}},
		{35, 40, nil},
		{90, 80, nil},
	} {
		gaps := r.Gaps(c.from, c.to)
		if !slices.Equal(gaps, c.gaps) {
			t.Errorf("gaps of %d to %d: %v, expected %v", c.from, c.to, gaps, c.gaps)
		}
		if whole := c.to > c.from && slices.Equal(gaps, []kit.Range{{c.from, c.to}}); r.Touches(c.from, c.to) == whole && c.to > c.from {
			t.Errorf("touches %d to %d: %v", c.from, c.to, !whole)
		}
	}
}
