package zarr

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"github.com/holdall/holdall/internal/testkit"
)

// numbered is an array of numbers that say where they are, uncompressed. Some chunks are missing.
type numbered struct {
	meta   string
	shape  []int64
	chunks map[string][]byte

	mu    sync.Mutex
	asked map[string]bool
}

func (n *numbered) Get(_ context.Context, key string, _ int64) ([]byte, error) {
	if key == ".zarray" {
		return []byte(n.meta), nil
	}
	n.mu.Lock()
	n.asked[key] = true
	n.mu.Unlock()
	if b, ok := n.chunks[key]; ok {
		return b, nil
	}
	return nil, &fs.PathError{Op: "get", Path: key, Err: fs.ErrNotExist}
}

func (n *numbered) GetRange(ctx context.Context, key string, off, size int64) ([]byte, error) {
	b, err := n.Get(ctx, key, 0)
	if err == nil {
		b = b[off : off+size]
	}
	return b, err
}

func newNumbered(rnd *rand.Rand) *numbered {
	n := &numbered{chunks: map[string][]byte{}, asked: map[string]bool{}}
	var chunk []int64
	for range 1 + rnd.IntN(3) {
		n.shape = append(n.shape, 1+rnd.Int64N(9))
		chunk = append(chunk, 1+rnd.Int64N(5))
	}
	list := func(all []int64) string { return strings.ReplaceAll(fmt.Sprint(all), " ", ",") }
	n.meta = fmt.Sprintf(`{"zarr_format":2,"shape":%s,"chunks":%s,"dtype":"|u1","order":%q,"compressor":null,"filters":null,"fill_value":255}`, list(n.shape), list(chunk), []string{"C", "F"}[rnd.IntN(2)])
	order := byte('C')
	if strings.Contains(n.meta, `"F"`) {
		order = 'F'
	}
	grid, size := gridOf(n.shape, chunk), int64(1)
	for _, c := range chunk {
		size *= c
	}
	total, _ := product(grid)
	for i := range total {
		if rnd.IntN(4) == 0 {
			continue
		}
		at, k := make([]int64, len(grid)), i
		for d := len(grid) - 1; d >= 0; d-- {
			at[d], k = k%grid[d], k/grid[d]
		}
		b, str := make([]byte, size), strides(chunk, order)
		for j := range size {
			where, rest, to := int64(0), j, int64(0)
			for d, s := range strides(chunk, 'C') {
				in := rest / s
				rest, to = rest%s, to+in*str[d]
				where = where*10 + at[d]*chunk[d] + in
			}
			b[to] = byte(where % 251)
		}
		words := make([]string, len(at))
		for d, v := range at {
			words[d] = fmt.Sprint(v)
		}
		n.chunks[strings.Join(words, ".")] = b
	}
	return n
}

// A slice is what lies there in the whole array, and only its chunks are read.
func TestASliceIsAPart(t *testing.T) {
	rnd := testkit.Rand(t)
	for range testkit.Rounds(t, 500) {
		n := newNumbered(rnd)
		a, err := Open(t.Context(), n, "")
		if err != nil {
			t.Fatal(err)
		}
		var all, got bytes.Buffer
		if err := a.WriteElements(t.Context(), &all); err != nil {
			t.Fatal(err)
		}
		clear(n.asked)
		var words []string
		from, to := make([]int64, len(n.shape)), append([]int64{}, n.shape...)
		shape := []int64{}
		for d, size := range n.shape[:1+rnd.IntN(len(n.shape))] {
			from[d] = rnd.Int64N(size)
			if rnd.IntN(3) == 0 {
				to[d] = from[d] + 1
				words = append(words, fmt.Sprint(from[d]-size*rnd.Int64N(2)))
				continue
			}
			to[d] = from[d] + rnd.Int64N(size-from[d]+1)
			words = append(words, fmt.Sprintf(" %d:%d", from[d], to[d]))
			shape = append(shape, to[d]-from[d])
		}
		shape = append(shape, n.shape[len(words):]...)
		s, err := a.Slice(strings.Join(words, ","))
		if err != nil {
			t.Fatal(err)
		}
		if fmt.Sprint(s.Shape) != fmt.Sprint(shape) {
			t.Errorf("%v: %v, expected %v", words, s.Shape, shape)
		}
		if err := s.WriteElements(t.Context(), &got); err != nil {
			t.Fatal(err)
		}
		var want []byte
		chunks := map[string]bool{}
		for i, b := range all.Bytes() {
			rest, inside, key := int64(i), true, []string{}
			for d, str := range strides(n.shape, 'C') {
				at := rest / str
				rest %= str
				inside = inside && at >= from[d] && at < to[d]
				key = append(key, fmt.Sprint(at/a.Chunks[d]))
			}
			if inside {
				want = append(want, b)
				chunks[strings.Join(key, ".")] = true
			}
		}
		if !bytes.Equal(got.Bytes(), want) {
			t.Fatalf("%s: %v: %v, expected %v", n.meta, words, got.Bytes(), want)
		}
		if len(n.asked) > len(chunks) {
			t.Errorf("%s: %v: asked for %v, expected %v", n.meta, words, n.asked, chunks)
		}
	}
}

func TestSlicesThatAreNone(t *testing.T) {
	n := newNumbered(testkit.Rand(t))
	n.meta = `{"zarr_format":2,"shape":[5,6],"chunks":[2,2],"dtype":"|u1","order":"C","compressor":null,"filters":null,"fill_value":0}`
	a, err := Open(t.Context(), n, "")
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]string{
		"0,0,0": "it has 3 axes, but the array has 2", "5": "axis 0 has 5 elements", "-6": "axis 0 has 5 elements", "x": "expected numbers", "0:1:2": "expected numbers",
		"0,": "expected numbers", "1.5": "expected numbers", "99999999999999999999": "expected numbers",
	} {
		if _, err := a.Slice(text); err == nil || !strings.Contains(err.Error(), want) || !errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("%s: %v", text, err)
		}
	}
	for text, want := range map[string]string{"": "[5 6]", ":": "[5 6]", "-2:": "[2 6]", ":-1,:2": "[4 2]", "7:9": "[0 6]", "3:1": "[0 6]", "1,-1": "[]", ":100": "[5 6]"} {
		if s, err := a.Slice(text); err != nil || fmt.Sprint(s.Shape) != want {
			t.Errorf("%s: %v, %v", text, s, err)
		}
	}
}
