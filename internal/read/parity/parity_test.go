package parity

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/holdall/holdall/internal/testkit"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storetest"
)

// protect puts the parity of what is called name, or of the names of a set, beside it.
func protect(t testing.TB, st *storetest.Mem, loss float64, names ...string) {
	t.Helper()
	ctx := context.Background()
	objects, err := Find(ctx, st, names[0])
	if len(names) > 1 {
		objects, err = Beside(ctx, st, names)
	}
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if _, err := Protect(ctx, st, names[0], objects, loss, nil, &b); err != nil {
		t.Fatal(err)
	}
	st.Put(names[0]+Suffix, b.Bytes())
}

// seek binds the parity beside what is called name.
func seek(t testing.TB, st store.Store, name string) *Guard {
	t.Helper()
	damaged := func(context.Context) bool { return true }
	g, err := Seek(context.Background(), st, name, "", damaged)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// A shape is a kind of damage: it damages objects and parity by at most so many blocks of a
// length.
type damageShape struct {
	name string
	do   func(rnd *rand.Rand, st *storetest.Mem, names []string, block, blocks int)
}

func hurt(rnd *rand.Rand, b []byte) {
	for i := range b {
		b[i] ^= byte(1 + rnd.IntN(255))
	}
}

var shapes = []damageShape{
	{"random blocks", func(rnd *rand.Rand, st *storetest.Mem, names []string, block, blocks int) {
		b := slices.Clone(st.Get(names[0]))
		for _, i := range rnd.Perm((len(b) + block - 1) / block)[:blocks] {
			p := b[i*block : min((i+1)*block, len(b))]
			at := rnd.IntN(len(p))
			p[at] ^= 1 << rnd.IntN(8)
		}
		st.Put(names[0], b)
	}},
	{"a burst", func(rnd *rand.Rand, st *storetest.Mem, names []string, block, blocks int) {
		b := slices.Clone(st.Get(names[0]))
		at := rnd.IntN(len(b) - blocks*block)
		hurt(rnd, b[at:at+blocks*block])
		st.Put(names[0], b)
	}},
	{"bursts", func(rnd *rand.Rand, st *storetest.Mem, names []string, block, blocks int) {
		b := slices.Clone(st.Get(names[0]))
		for blocks > 0 {
			n := min(1+rnd.IntN(8), blocks)
			at := rnd.IntN(len(b)/block-n) * block
			hurt(rnd, b[at:at+n*block])
			blocks -= n
		}
		st.Put(names[0], b)
	}},
	{"a cut end", func(rnd *rand.Rand, st *storetest.Mem, names []string, block, blocks int) {
		b := st.Get(names[0])
		st.Put(names[0], b[:len(b)-rnd.IntN(blocks*block)])
	}},
	{"a cut front", func(rnd *rand.Rand, st *storetest.Mem, names []string, block, blocks int) {
		b := st.Get(names[0])
		st.Put(names[0], b[rnd.IntN(blocks*block):])
	}},
	{"parity", func(rnd *rand.Rand, st *storetest.Mem, names []string, block, blocks int) {
		p := slices.Clone(st.Get(names[0] + Suffix))
		for range 1 + rnd.IntN(blocks/2) {
			p[rnd.IntN(len(p))] ^= byte(1 + rnd.IntN(255))
		}
		st.Put(names[0]+Suffix, p)
	}},
	{"parity cut", func(rnd *rand.Rand, st *storetest.Mem, names []string, block, blocks int) {
		p := st.Get(names[0] + Suffix)
		if n := len(p) / 4; rnd.IntN(2) == 0 {
			p = p[rnd.IntN(n):]
		} else {
			p = p[:len(p)-rnd.IntN(n)]
		}
		st.Put(names[0]+Suffix, p)
		b := slices.Clone(st.Get(names[0]))
		hurt(rnd, b[:blocks/2*block])
		st.Put(names[0], b)
	}},
	{"both", func(rnd *rand.Rand, st *storetest.Mem, names []string, block, blocks int) {
		b, p := slices.Clone(st.Get(names[0])), slices.Clone(st.Get(names[0]+Suffix))
		n := rnd.IntN(blocks)
		for range n {
			p[rnd.IntN(len(p))] ^= byte(1 + rnd.IntN(255))
		}
		for range blocks - n {
			b[rnd.IntN(len(b))] ^= byte(1 + rnd.IntN(255))
		}
		st.Put(names[0], b)
		st.Put(names[0]+Suffix, p)
	}},
	{"a lost object", func(rnd *rand.Rand, st *storetest.Mem, names []string, block, blocks int) {
		st.Remove(context.Background(), names[1+rnd.IntN(len(names)-1)])
	}},
}

// Anything lost comes back, as long as it is at most what was asked for.
func TestWhatIsLostComesBack(t *testing.T) {
	for _, shape := range shapes {
		t.Run(shape.name, func(t *testing.T) {
			t.Parallel()
			rnd := testkit.Rand(t)
			for i := range testkit.Rounds(t, 12) {
				ctx := context.Background()
				st := &storetest.Mem{}
				size := 400_000 + rnd.IntN(4<<20)
				loss := 0.03 + rnd.Float64()*0.1
				names := []string{"a.caf"}
				st.Put(names[0], testkit.Noise(rnd, size))
				if shape.name == "a lost object" {
					for i := range 2 + rnd.IntN(4) {
						names = append(names, fmt.Sprint(i, ".caf"))
						st.Put(names[i+1], testkit.Noise(rnd, rnd.IntN(int(float64(size)*loss))))
					}
				}
				protect(t, st, loss, names...)
				was := st.Clone()
				whole := seek(t, st, names[0])
				block := whole.f.h.block
				whole.Close()
				blocks := int((loss-0.001)*float64(size)) / block
				shape.do(rnd, st, names, block, blocks)
				what := fmt.Sprintf("round %d: %d bytes, %.1f %% protected, %d blocks of %d damaged", i, size, loss*100, blocks, block)
				g := seek(t, st, names[0])
				if g.Suits != nil {
					t.Fatalf("%s: %v", what, g.Suits)
				}
				r, err := g.Check(ctx, rnd.IntN(2) == 0, nil)
				if err != nil || r.Healed != r.Damaged {
					t.Fatalf("%s: %+v %v", what, r, err)
				}
				for _, name := range names {
					o, err := g.Store().Open(ctx, name)
					if err != nil {
						t.Fatal(what, err)
					}
					want := was.Get(name)
					got := make([]byte, len(want))
					if err := o.ReadAt(ctx, got, 0); err != nil {
						t.Fatal(what, err)
					}
					if !bytes.Equal(got, want) {
						t.Fatalf("%s: not what it was", what)
					}
				}
				g.Close()
			}
		})
	}
}

// What is lost at random of an archive with several groups is not too much for any of them.
func TestLossAtRandomStaysWithinGroups(t *testing.T) {
	rnd := testkit.Rand(t)
	for range testkit.Rounds(t, 40) {
		loss := 0.02 + rnd.Float64()*0.3
		g, err := plan(700<<20+rnd.Int64N(2<<30), loss)
		if err != nil {
			t.Fatal(err)
		}
		if g.groups == 1 {
			continue
		}
		lost := make([]int, g.groups)
		for _, b := range rnd.Perm(int(g.blocks))[:int((loss-0.001)*float64(g.blocks))] {
			if lost[int64(b)%g.groups]++; lost[int64(b)%g.groups] > g.parity {
				t.Fatalf("%+v: a group loses more than its parity", g)
			}
		}
	}
}

// Parity is the same, whether blocks are in memory or on disk, and are added together or alone.
func TestRunsAnywhere(t *testing.T) {
	ctx, rnd := t.Context(), testkit.Rand(t)
	for range 20 {
		const block = minBlock
		groups := 1 + rnd.Int64N(2)
		order, blocks := 1<<(1+rnd.IntN(6)), 3+rnd.IntN(200)
		head := rnd.IntN(blocks)
		near, far := newCoder(block, groups, order), newCoder(block, groups, order)
		far.near, far.done, far.band.limit, far.sums.limit = false, nil, 0, 0
		all := testkit.Noise(rnd, blocks*block)
		for _, c := range []*coder{near, far} {
			n := 0
			for at := 0; at < blocks; at += n { // the beginning comes last
				i := int64(head+at) % int64(blocks)
				if i == 0 && head > 0 {
					if err := c.flush(ctx); err != nil {
						t.Fatal(err)
					}
				}
				b := all[i*block:]
				var err error
				if n = c.together(); n > 1 && i%int64(n) == 0 && len(b) >= n*block && (at == 0 || blocks-at >= n) {
					err = c.addTogether(ctx, i, b[:n*block], make([]byte, block))
				} else {
					n = 1
					err = c.add(ctx, i, b[:block])
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			if err := c.finish(ctx, order); err != nil {
				t.Fatal(err)
			}
		}
		a, b := make([]byte, block), make([]byte, block)
		for i := range groups * int64(order) {
			if err := errors.Join(near.parity(i%groups, int(i/groups), a), far.parity(i%groups, int(i/groups), b)); err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(a, b) {
				t.Fatalf("%d blocks, order %d, from %d on: parity %d differs", blocks, order, head, i)
			}
		}
		near.close()
		far.close()
	}
}

// TestEveryLengthIsHealed damages archives of all lengths as far as protect promises: wrong bits in as many
// blocks as can be lost, and a run of five bytes in a hundred. An archive of one block that has
// other bytes is not the one that the parity belongs to.
func TestEveryLengthIsHealed(t *testing.T) {
	rnd := testkit.Rand(t)
	lengths := []int{1, 2, 3, 20, 100, 4095, 4096, 4097, 8192, 8193, 12289, 20000, 65536, 65537, 70000}
	for n := 1; n < 10_000_000; n = n*3/2 + 1 + rnd.IntN(n) {
		lengths = append(lengths, n)
	}
	ctx := context.Background()
	for _, n := range lengths {
		st := &storetest.Mem{}
		was := testkit.Noise(rnd, n)
		st.Put("a", was)
		protect(t, st, 0.05, "a")
		g := seek(t, st, "a")
		block, lost := int(g.f.h.block), min(int(g.f.h.blocks), int(g.f.h.parity))
		g.Close()
		heals := func(what string, b []byte) {
			t.Helper()
			st.Put("a", b)
			g := seek(t, st, "a")
			defer g.Close()
			if err := g.Look(ctx); err != nil {
				t.Errorf("%d bytes in blocks of %d, %s: %v", n, block, what, err)
				return
			}
			got := make([]byte, n)
			o, err := g.Store().Open(ctx, "a")
			if err == nil {
				err = o.ReadAt(ctx, got, 0)
			}
			if err != nil || !bytes.Equal(got, was) {
				t.Errorf("%d bytes in blocks of %d, %s: not healed: %v", n, block, what, err)
			}
		}
		b := slices.Clone(was)
		for _, i := range rnd.Perm(int(g.f.h.blocks))[:lost] {
			b[i*block+rnd.IntN(min(block, n-i*block))] ^= 1 << rnd.IntN(8)
		}
		heals("wrong bits in as many blocks as can be lost", b)
		b = slices.Clone(was)
		run := n / 20
		at := rnd.IntN(n - run + 1)
		hurt(rnd, b[at:at+run])
		heals("a run", b)
		heals("without its end", was[:n-run])
		heals("without its beginning", was[run:])
		if n > 20 && n <= fewBlocks*block {
			st.Put("a", testkit.Noise(rnd, n))
			g := seek(t, st, "a")
			if g.Look(ctx) == nil {
				t.Errorf("%d bytes: other bytes count as the same archive", n)
			}
			g.Close()
		}
		if n < block { // it may have been changed on purpose
			b[0] ^= 1
			st.Put("a", b)
			if g, err := Seek(ctx, st, "a", "", func(context.Context) bool { return false }); err != nil || g.Suits == nil {
				t.Errorf("%d bytes: a change that is not seen as damage counts as such: %v", n, err)
			}
		}
	}
}
