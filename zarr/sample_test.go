package zarr

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"slices"
	"strings"
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

// ranged counts what is read of a source, and how.
type ranged struct {
	Source
	whole, parts int
}

func (r *ranged) Get(ctx context.Context, key string, limit int64) ([]byte, error) {
	if !strings.Contains(key, "/.z") {
		r.whole++
	}
	return r.Source.Get(ctx, key, limit)
}

func (r *ranged) GetRange(ctx context.Context, key string, off, n int64) ([]byte, error) {
	r.parts += int(n)
	return r.Source.GetRange(ctx, key, off, n)
}

// Of a large chunk that is stored as it is, only what is wanted is read.
func TestSampleReadsPartsOfLargeChunks(t *testing.T) {
	const rows, cols = 400, 300
	for _, order := range []string{"C", "F"} {
		chunk := make([]byte, 2*rows*cols)
		for r := range rows {
			for c := range cols {
				at := r*cols + c
				if order == "F" {
					at = c*rows + r
				}
				binary.LittleEndian.PutUint16(chunk[2*at:], uint16(100*r+c))
			}
		}
		src := &ranged{Source: Files(fstest.MapFS{
			"a/.zarray": {Data: fmt.Appendf(nil, `{"zarr_format":2,"shape":[800,600],"chunks":[400,300],"dtype":"<u2","order":%q,"fill_value":7,"filters":null,"compressor":null}`, order)},
			"a/0.0":     {Data: chunk},
			"a/1.0":     {Data: chunk[:2*rows*cols/2]}, // its end is missing, and is zeros
		})}
		a, err := Open(t.Context(), src, "a")
		if err != nil {
			t.Fatal(err)
		}
		read := func(r, c, n int64) []float64 {
			src.whole, src.parts = 0, 0
			v, err := a.Sample(t.Context(), []int64{r, c}, []int64{n, n}, []int64{2, 3})
			if err != nil {
				t.Fatal(err)
			}
			return v
		}
		for _, at := range [][2]int64{{0, 0}, {17, 120}, {399, 299}} {
			if v := read(at[0], at[1], 1); v[0] != float64(uint16(100*at[0]+at[1])) || src.whole != 0 || src.parts != 2 {
				t.Errorf("%s: %v is %v; %d whole, %d bytes", order, at, v, src.whole, src.parts)
			}
		}
		for i, v := range read(10, 10, 5) {
			if want := float64(100*(10+i/5*2) + 10 + i%5*3); v != want || src.whole != 0 || src.parts > 10_000 {
				t.Errorf("%s: element %d is %v, expected %v; %d whole, %d bytes", order, i, v, want, src.whole, src.parts)
			}
		}
		if read(0, 0, 150); src.whole != 2 && src.whole != 3 {
			t.Errorf("%s: most of chunks was read in parts", order)
		}
		if v := read(799, 299, 1); v[0] != 0 || src.whole != 1 {
			t.Errorf("%s: what is missing is %v", order, v)
		}
		if v := read(0, 300, 1); v[0] != 7 {
			t.Errorf("%s: a chunk that is not there is %v", order, v)
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

// A window is what WriteText writes of its elements.
func TestAWindowIsWhatTheTextSays(t *testing.T) {
	kinds := map[byte]int{}
	for name, g := range goldens(t) {
		a, err := Open(t.Context(), g.Keys, "")
		if err != nil || a.Elements() == 0 || a.Elements() > 10_000 {
			continue
		}
		var text strings.Builder
		if err := a.WriteText(t.Context(), &text); err != nil {
			continue
		}
		all := strings.TrimSuffix(text.String(), "\n")
		if len(a.Shape) > 2 {
			all = strings.ReplaceAll(all, "\n\n", "\n")
		}
		said := strings.Split(strings.ReplaceAll(all, "\t", "\n"), "\n")
		if len(said) != int(a.Elements()) {
			t.Errorf("%s: %d elements are written as %d", name, a.Elements(), len(said))
			continue
		}
		shape := a.Shape
		if len(shape) == 0 {
			shape = []int64{1}
		}
		in := strides(shape, 'C')
		for part := range int64(3) {
			from, count := make([]int64, len(shape)), make([]int64, len(shape))
			for i, n := range shape {
				from[i] = min(part, n-1)
				count[i] = max(1, (n-from[i])/(part+1))
			}
			got, err := a.Window(t.Context(), from, count)
			if err != nil {
				t.Errorf("%s: %v", name, err)
				break
			}
			at := 0
			var each func(axis int, place int64)
			each = func(axis int, place int64) {
				if axis < len(shape) {
					for k := range count[axis] {
						each(axis+1, place+(from[axis]+k)*in[axis])
					}
					return
				}
				if v := told(a, got[at]); v != said[place] {
					t.Errorf("%s: element %d is %s, expected %s", name, place, v, said[place])
				}
				at++
			}
			each(0, 0)
			kinds[a.DType.Kind]++
		}
		for _, w := range [][2]int64{{0, shape[0] + 1}, {shape[0], 1}, {-1, 1}, {0, 0}, {0, math.MaxInt64}} {
			from, count := make([]int64, len(shape)), slices.Repeat([]int64{1}, len(shape))
			from[0], count[0] = w[0], w[1]
			if _, err := a.Window(t.Context(), from, count); len(a.Shape) > 0 && !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrLimit) {
				t.Errorf("%s: a window %v is %v", name, w, err)
			}
		}
	}
	for _, k := range "biufSUMO" {
		if kinds[byte(k)] == 0 {
			t.Errorf("no array of kind %c was compared", k)
		}
	}
}

// told is a value as WriteText shows it.
func told(a *Array, v any) string {
	b, raw := v.([]byte)
	_, text := v.(string)
	switch {
	case raw && a.DType.Kind == 'V':
		return fmt.Sprintf("%x", b)
	case text && a.DType.Kind == 'O' && a.Filters[0].ID != "vlen-utf8":
		return string(appendJSON(nil, v))
	case text || raw:
		return string(appendCell(nil, v))
	}
	return string(appendJSON(nil, v))
}
