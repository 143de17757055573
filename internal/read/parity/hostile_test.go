package parity

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/testkit"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storetest"
)

// ends are the first and the last record of a forged parity file: all that is between them is
// not there.
func ends(g geometry, text string) []byte {
	h := header{geometry: g, kind: kindEnd}
	end := make([]byte, headerLen)
	h.put(end)
	h.kind, h.number = kindDirectory, g.directory-1
	last := make([]byte, g.stride())
	copy(last[headerLen+g.blocks*digestLen%int64(g.block):], text)
	h.put(last)
	return slices.Concat(end, last, end)
}

// Numbers in a header are only used as far as the length of the file allows.
func TestClaimsAreNotAllocated(t *testing.T) {
	const size = maxBlocks * minBlock
	one := fmt.Sprintf(`{"objects":[{"size":%d}]}`, size)
	shapes := map[string]geometry{
		"many groups":   {minBlock, shape{maxBlocks, 4 << 20, 16, 16}, 0, version},
		"one group":     {maxBlock, shape{maxBlocks / 256, maxBlocks / 256 / 65000, 16, 16}, 0, version},
		"usual":         {minBlock, shape{maxBlocks, 1966561, 8192, 8192}, 0, version},
		"big directory": {minBlock, shape{60000, 2, 1024, 1024}, 16000, version},
	}
	for name, g := range shapes {
		t.Run(name, func(t *testing.T) {
			if g.directory == 0 {
				g.directory = g.blocks*digestLen/int64(g.block) + 1
			}
			if err := g.check(); err != nil {
				t.Fatal(err)
			}
			st := &storetest.Mem{}
			st.Put("a.caf", make([]byte, 5000))
			st.Put("a.caf"+Suffix, ends(g, one))
			ctx := context.Background()
			n := testkit.Allocated(func() {
				guard, err := Seek(ctx, st, "a.caf", "", nil)
				if _, ok := errors.AsType[*format.CorruptError](err); !ok || guard != nil {
					t.Errorf("expected a *format.CorruptError, found %v", err)
				}
			})
			if n > 4<<20 {
				t.Errorf("%d bytes were allocated for a file of %d", n, 2*headerLen+g.stride())
			}
		})
	}
}

// A file that is nothing but beginnings of long records is read twice at most.
func TestBeginningsWithoutRecords(t *testing.T) {
	h := header{geometry: geometry{maxBlock, shape{10, 1, 4, 3}, 1, version}, kind: kindParity}
	one := make([]byte, headerLen)
	h.put(one)
	one[60] ^= 1
	b := bytes.Repeat(one, 16<<10)
	b = append(b, make([]byte, 2*maxBlock)...)
	mem := &storetest.Mem{}
	mem.Put("a.caf", make([]byte, 5000))
	mem.Put("a.caf"+Suffix, b)
	var read atomic.Int64
	st := storetest.Fault(mem, func(op, _ string, _, n int64) error { read.Add(n); return nil })
	_, err := Seek(t.Context(), st, "a.caf", "", nil)
	if _, ok := errors.AsType[*format.CorruptError](err); !ok {
		t.Errorf("expected a *format.CorruptError, found %v", err)
	}
	if limit := int64(2*len(b) + 1<<20); read.Load() > limit {
		t.Errorf("%d bytes were read of %d", read.Load(), len(b))
	}
}

// Objects take no more memory than their names.
func TestObjectsWithoutNames(t *testing.T) {
	text := []byte(`{"objects":[{}` + strings.Repeat(",{}", 1<<20) + `]}`)
	var a about
	n := testkit.Allocated(func() {
		if err := a.Objects.UnmarshalJSON(text[11 : len(text)-1]); err == nil {
			t.Error("expected an error")
		}
	})
	if n > 1<<20 {
		t.Errorf("%d bytes were allocated for a text of %d", n, len(text))
	}
}

// Parity of a different archive is not used, even if the length is the same.
func TestParityOfAnother(t *testing.T) {
	rnd := testkit.Rand(t)
	was := testkit.Noise(rnd, 100*minBlock)
	for name, now := range map[string][]byte{
		"of the same length": testkit.Noise(rnd, len(was)),
		"half of it new":     slices.Concat(was[:40*minBlock], testkit.Noise(rnd, 60*minBlock)),
	} {
		t.Run(name, func(t *testing.T) {
			st := &storetest.Mem{}
			st.Put("a.caf", was)
			protect(t, st, 0.1, "a.caf")
			st.Put("a.caf", now)
			g := seek(t, st, "a.caf")
			defer g.Close()
			if g.Suits == nil {
				t.Error("it suits")
			}
		})
	}
	t.Run("of other names", func(t *testing.T) {
		st := &storetest.Mem{}
		st.Put("a.caf", was)
		st.Put("b.caf", was)
		protect(t, st, 0.1, "a.caf", "b.caf")
		st.Put("c.caf", was)
		st.Put("c.caf"+Suffix, st.Get("a.caf"+Suffix))
		if g, _ := Seek(t.Context(), st, "c.caf", "", nil); g != nil {
			t.Error("it is used")
		}
	})
}

// Names in a parity file lead nowhere else, and name one object once.
func TestNamesInParity(t *testing.T) {
	b := testkit.Noise(rand.New(rand.NewPCG(1, 1)), minBlock)
	for _, names := range [][]string{{"../a"}, {"/../a"}, {"x/a"}, {"."}, {"/"}, {"b", "b"}, {"", "a.caf"}, {"//a"}, {"a\x00\xff"}} {
		var objects []Object
		for _, name := range names {
			objects = append(objects, Object{Name: name, Size: int64(minBlock / len(names))})
		}
		st := &storetest.Mem{}
		st.Put("a.caf", b)
		st.Put("a.caf"+Suffix, encoded(t, 1, 0.5, b, objects))
		if guard, _ := Seek(t.Context(), st, "a.caf", "", nil); guard != nil {
			guard.Close()
			t.Errorf("%q: it is used", names)
		}
	}
}

// An object without content that is lost takes nothing with it.
func TestEmptyObjectIsLost(t *testing.T) {
	st := &storetest.Mem{}
	rnd := testkit.Rand(t)
	for _, name := range []string{"a.caf", "b.caf", "c.caf"} {
		st.Put(name, testkit.Noise(rnd, 1000))
	}
	st.Put("b.caf", nil)
	protect(t, st, 0.1, "a.caf", "b.caf", "c.caf")
	st.Remove(t.Context(), "b.caf")
	g := seek(t, st, "a.caf")
	defer g.Close()
	r, err := g.Check(t.Context(), false, nil)
	if err != nil || r.Damaged != 0 {
		t.Errorf("%d blocks are damaged, %v", r.Damaged, err)
	}
	if _, err := g.Store().Open(t.Context(), "b.caf"); err != nil {
		t.Error(err)
	}
}

// counted counts the objects that are open.
type counted struct {
	*storetest.Mem
	mu         sync.Mutex
	open, most int
}

type countedObject struct {
	store.Object
	in *counted
}

func (c *counted) Open(ctx context.Context, name string) (store.Object, error) {
	o, err := c.Mem.Open(ctx, name)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.open++
	c.most = max(c.most, c.open)
	return countedObject{o, c}, nil
}

func (o countedObject) Close() error {
	o.in.mu.Lock()
	defer o.in.mu.Unlock()
	o.in.open--
	return o.Object.Close()
}

// Of a folder of many objects few are open at once.
func TestFewObjectsAreOpen(t *testing.T) {
	testkit.Serial(t)
	st := &counted{Mem: &storetest.Mem{}}
	was := map[string][]byte{}
	for i := range 300 {
		name := fmt.Sprintf("a/%03d", i)
		was[name] = testkit.Noise(testkit.Rand(t), 500)
		st.Put(name, was[name])
	}
	protect(t, st.Mem, 0.1, "a")
	for name, b := range was {
		if name > "a/280" {
			b = append([]byte{b[0] + 1}, b[1:]...)
		}
		st.Put(name, b)
	}
	g := seek(t, st, "a")
	for name, want := range was {
		o, err := g.Store().Open(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		got := make([]byte, len(want))
		if err := o.ReadAt(t.Context(), got, 0); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s: %v", name, err)
		}
		o.Close()
	}
	g.Close()
	if st.most > maxOpen+20 || st.open != 0 {
		t.Errorf("%d objects were open at once, and %d still are", st.most, st.open)
	}
}

// Every share can be asked for of every size.
func TestPlans(t *testing.T) {
	for _, loss := range []float64{MinLoss, 0.0003, 0.0005, 0.001, 0.01, 0.05, 0.3, MaxLoss} {
		for size := int64(1); size < 60<<40; size *= 5 {
			g, err := plan(size, loss)
			if err != nil {
				t.Errorf("%v of %d bytes: %v", loss, size, err)
			}
			if need := int64(loss * float64(size)); g.all()*int64(g.block) < need {
				t.Errorf("%v of %d bytes: %d blocks of %d", loss, size, g.all(), g.block)
			}
		}
	}
}

// What a disk cannot read of a parity file is as what is damaged.
func TestParityThatCannotBeRead(t *testing.T) {
	mem := &storetest.Mem{}
	mem.Put("a.caf", testkit.Noise(testkit.Rand(t), 60*minBlock))
	protect(t, mem, 0.3, "a.caf")
	size := int64(len(mem.Get("a.caf" + Suffix)))
	for _, bad := range []int64{0, size / 2, size - 1} {
		st := storetest.Fault(mem, func(op, name string, off, n int64) error {
			if op == "read" && name == "a.caf"+Suffix && off <= bad && bad < off+n || op == "tail" && name == "a.caf"+Suffix && bad >= size-n {
				return errors.New("the disk cannot read it")
			}
			return nil
		})
		g, err := Seek(t.Context(), st, "a.caf", "", nil)
		if err != nil {
			t.Errorf("byte %d: %v", bad, err)
			continue
		}
		r, err := g.Check(t.Context(), true, nil)
		if err != nil || r.Damaged != 0 || r.ParityBroken > 1 {
			t.Errorf("byte %d: %d blocks are damaged, %d records of parity, %v", bad, r.Damaged, r.ParityBroken, err)
		}
		g.Close()
	}
}
