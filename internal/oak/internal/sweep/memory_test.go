package sweep

import (
	"context"
	"io"
	"math/rand/v2"
	"runtime"
	"testing"

	"github.com/holdall/holdall/internal/oak/internal/tarfile"
	"github.com/holdall/holdall/internal/testkit"
	"github.com/holdall/holdall/store"
)

// A hollow is a tar that has nothing but its tail: segments are zeros.
type hollow struct {
	size int64
	tail []byte
}

func (h *hollow) Info(context.Context) (store.Info, error) { return store.Info{Size: h.size}, nil }
func (h *hollow) Can() store.ObjectAbilities               { return store.ObjectAbilities{} }
func (h *hollow) Close() error                             { return nil }

func (h *hollow) ReadAt(_ context.Context, p []byte, off int64) error {
	if off < 0 || off+int64(len(p)) > h.size {
		return io.ErrUnexpectedEOF
	}
	clear(p)
	from := h.size - int64(len(h.tail))
	if end := off + int64(len(p)); end > from {
		copy(p[max(0, from-off):], h.tail[max(0, off-from):])
	}
	return nil
}

// hollowTar has n segments; each third is a data segment that refers to the last three.
func hollowTar(t testing.TB, r *rand.Rand, number, n int, gen tarfile.Generation) (Tar, tarfile.ID) {
	t.Helper()
	var tail tarfile.Tail
	var last [3]tarfile.ID
	for i := range n {
		id := randomID(r, i%3 == 2)
		e := tarfile.Entry{ID: id, Pos: int64(i)*1024 + tarfile.BlockSize, Len: 300}
		var refs tarfile.IDs
		if id.IsData() {
			e.Generation = gen
			for _, to := range last {
				refs = append(refs, to[:]...)
			}
		}
		if err := tail.Add(e, refs, nil); err != nil {
			t.Fatal(err)
		}
		last[i%3] = id
	}
	name := tarfile.Name(number, 'a')
	b, err := tail.Append(nil, name, someTime)
	if err != nil {
		t.Fatal(err)
	}
	o := &hollow{int64(n)*1024 + int64(len(b)), b}
	x, err := tarfile.Open(t.Context(), o, name, tarfile.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return Tar{name, number, 'a', o, x}, last[2]
}

// A store of 10,000,000 segments must not take gigabytes: all that is allocated,
// kept or not, is counted for each segment.
func TestMarkTakesFewBytesForASegment(t *testing.T) {
	const n = 60_000
	r := testkit.Rand(t)
	var tars []Tar
	var head tarfile.ID
	graphs := 0
	for number := range 4 {
		x, last := hollowTar(t, r, number, n, at(int32(number/2), int32(number/2), false))
		tars, head = append([]Tar{x}, tars...), last
		graphs += n / 3 * (20 + 3*16 + 4) // the bytes of the file, and four for each list
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	p, err := Mark(t.Context(), tars, Head{head, at(1, 1, false)}, Options{})
	runtime.ReadMemStats(&after)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []Action{Keep, Keep, Drop, Drop} {
		if x := p.Tars[i]; x.Action != want {
			t.Errorf("%s: %v, expected %v", x.Name, x.Action, want)
		}
	}
	each := (float64(after.TotalAlloc-before.TotalAlloc) - float64(graphs)) / float64(4*n)
	t.Logf("%.1f bytes for each segment, besides the graphs", each)
	if each > 32 {
		t.Errorf("%.1f bytes for each segment, expected at most 32", each)
	}
}
