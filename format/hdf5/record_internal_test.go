package hdf5

import (
	"testing"

	h5 "github.com/holdall/holdall/hdf5"
	"github.com/holdall/holdall/internal/testkit"
)

// A file may claim a record of a billion numbers in a few bytes.
func TestRecordsAreBounded(t *testing.T) {
	for _, dims := range [][]int64{{1 << 30}, {1 << 15, 1 << 15}, {1 << 40, 1 << 40}} {
		field := h5.Field{Name: "a", Type: &h5.Datatype{Class: h5.Array, Size: 1 << 30, Dims: dims, Base: &h5.Datatype{Class: h5.Integer, Size: 1, Precision: 8}}}
		made := testkit.Allocated(func() {
			if _, _, n := recordOf(&h5.Datatype{Class: h5.Compound, Size: 1 << 30, Fields: []h5.Field{field}}); n != 0 {
				t.Errorf("%v: %d bytes", dims, n)
			}
		})
		if made > 1<<20 {
			t.Errorf("%v: made %d bytes", dims, made)
		}
	}
}
