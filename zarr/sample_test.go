package zarr

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"testing"
	"testing/fstest"
)

func TestSampleGivesWhatLiesThere(t *testing.T) {
	for _, order := range []string{"C", "F"} {
		src := fstest.MapFS{"a/.zarray": {Data: fmt.Appendf(nil, `{"zarr_format":2,"shape":[7,5],"chunks":[3,2],"dtype":"<i2","order":%q,"fill_value":-9,"filters":null,"compressor":null}`, order)}}
		for r := range int64(3) {
			for c := range int64(3) {
				if r == 1 && c == 1 {
					continue // it is not there: the fill value
				}
				chunk := make([]byte, 12)
				for i := range int64(3) {
					for k := range int64(2) {
						at := i*2 + k
						if order == "F" {
							at = k*3 + i
						}
						chunk[2*at] = byte(10*(3*r+i) + 2*c + k)
					}
				}
				src[fmt.Sprintf("a/%d.%d", r, c)] = &fstest.MapFile{Data: chunk}
			}
		}
		a, err := Open(t.Context(), Files(src), "a")
		if err != nil {
			t.Fatal(err)
		}
		for _, w := range [][3][]int64{{{0, 0}, {7, 5}, {1, 1}}, {{1, 1}, {3, 2}, {2, 3}}, {{6, 4}, {1, 1}, {9, 9}}, {{0, 4}, {2, 1}, {6, 1}}} {
			from, count, step := w[0], w[1], w[2]
			got, err := a.Sample(t.Context(), from, count, step)
			if err != nil {
				t.Fatal(err)
			}
			for i, v := range got {
				r, c := from[0]+int64(i)/count[1]*step[0], from[1]+int64(i)%count[1]*step[1]
				want := float64(10*r + c)
				if r/3 == 1 && c/2 == 1 {
					want = -9
				}
				if v != want {
					t.Errorf("%s %v: [%d, %d] is %v, expected %v", order, w, r, c, v, want)
				}
			}
		}
		for _, w := range [][3][]int64{{{0}, {1}, {1}}, {{7, 0}, {1, 1}, {1, 1}}, {{0, 0}, {8, 1}, {1, 1}}, {{0, 0}, {4, 1}, {3, 1}}, {{0, 0}, {0, 1}, {1, 1}}, {{0, 0}, {1, 1}, {0, 1}}, {{-1, 0}, {1, 1}, {1, 1}}, {{0, 0}, {math.MaxInt64, 1}, {math.MaxInt64, 1}}} {
			if _, err := a.Sample(t.Context(), w[0], w[1], w[2]); !errors.Is(err, ErrCorrupt) {
				t.Errorf("%v is %v", w, err)
			}
		}
	}
}

func TestSampleOfMomentsAndText(t *testing.T) {
	src := fstest.MapFS{
		"m/.zarray": {Data: []byte(`{"zarr_format":2,"shape":[2],"chunks":[2],"dtype":"<M8[s]","order":"C","fill_value":null,"filters":null,"compressor":null}`)},
		"m/0":       {Data: []byte{5, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x80}},
		"s/.zarray": {Data: []byte(`{"zarr_format":2,"shape":[2],"chunks":[2],"dtype":"|S2","order":"C","fill_value":"","filters":null,"compressor":null}`)},
	}
	a, err := Open(t.Context(), Files(fs.FS(src)), "m")
	if err != nil {
		t.Fatal(err)
	}
	v, err := a.Sample(t.Context(), []int64{0}, []int64{2}, []int64{1})
	if err != nil || v[0] != 5 || !math.IsNaN(v[1]) {
		t.Errorf("moments are %v, %v", v, err)
	}
	if a, err = Open(t.Context(), Files(src), "s"); err != nil || a.Numeric() {
		t.Fatal(a, err)
	}
	if _, err := a.Sample(t.Context(), []int64{0}, []int64{1}, []int64{1}); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("text is %v", err)
	}
}
