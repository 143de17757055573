package parity

import (
	"bytes"
	"sync/atomic"
	"testing"

	"github.com/holdall/holdall/internal/testkit"
	"github.com/holdall/holdall/store/storetest"
)

// Blocks in which one byte is wrong do not count as lost, however many they are. Others take parity,
// and one more of them than there is parity for cannot be healed.
func TestSingleBytesTakeNoParity(t *testing.T) {
	testkit.Serial(t)
	rnd := testkit.Rand(t)
	for range testkit.Rounds(t, 2) {
		was := testkit.Noise(rnd, 300*minBlock+rnd.IntN(minBlock))
		const groups = 2
		file := encoded(t, groups, 0.05, was, []Object{{Size: int64(len(was))}})
		for _, over := range []int{0, 1} {
			st := &storetest.Mem{}
			st.Put("a.caf"+Suffix, file)
			st.Put("a.caf", was)
			g := seek(t, st, "a.caf")
			block := g.f.h.block
			blocks := rnd.Perm(len(was) / block)
			now := bytes.Clone(was)
			more := groups*g.f.h.parity + groups*over // in each group as many as it has parity, or one more
			for _, k := range blocks[:len(blocks)*2/5] {
				now[k*block+rnd.IntN(block)] ^= byte(1 + rnd.IntN(255))
			}
			left := map[int]int{}
			for _, k := range blocks {
				if group := k % groups; left[group] < more/groups {
					left[group]++
					copy(now[k*block:(k+1)*block], testkit.Noise(rnd, block))
				}
			}
			g.Close()
			st.Put("a.caf", now)
			g = seek(t, st, "a.caf")
			said, err := g.Check(t.Context(), false, nil)
			if err != nil {
				t.Fatal(err)
			}
			r, err := g.Check(t.Context(), true, nil)
			if err != nil || r != said {
				t.Fatalf("said %+v, healed %+v, %v", said, r, err)
			}
			got, err := readAll(g, "a.caf")
			switch {
			case over == 0 && (err != nil || r.Beyond() > 0 || !bytes.Equal(got, was)):
				t.Errorf("%+v: %v", r, err)
			case over == 1 && r.Beyond() != int64(more):
				t.Errorf("%+v, expected %d that cannot be healed", r, more)
			}
			g.Close()
		}
	}
}

// Whatever is tried for a group that cannot be healed is tried once, however many of its blocks are
// read.
func TestAGroupThatCannotBeHealedIsTriedOnce(t *testing.T) {
	testkit.Serial(t)
	rnd := testkit.Rand(t)
	was := testkit.Noise(rnd, 4000*minBlock)
	mem := &storetest.Mem{}
	mem.Put("a.caf"+Suffix, encoded(t, 1, 0.05, was, []Object{{Size: int64(len(was))}}))
	now := bytes.Clone(was)
	copy(now[1000*minBlock:1400*minBlock], testkit.Noise(rnd, 400*minBlock))
	mem.Put("a.caf", now)
	read := int64(0)
	g := seek(t, storetest.Fault(mem, func(op, name string, _, n int64) error {
		if op == "read" && name == "a.caf" {
			atomic.AddInt64(&read, n)
		}
		return nil
	}), "a.caf")
	defer g.Close()
	o, err := g.Store().Open(t.Context(), "a.caf")
	if err != nil {
		t.Fatal(err)
	}
	defer o.Close()
	b := make([]byte, minBlock)
	for i := range 20 {
		if err := o.ReadAt(t.Context(), b, int64(1000+i)*minBlock); err == nil {
			t.Fatalf("block %d is read", 1000+i)
		}
		if i == 0 {
			if atomic.LoadInt64(&read) < int64(len(was)) {
				t.Fatal("reads are not counted")
			}
			atomic.StoreInt64(&read, 0)
		}
	}
	if n := atomic.LoadInt64(&read); n > 19*int64(len(was))/2 { // its neighbours are read each time
		t.Errorf("19 reads of a block read %d blocks of %d", n/minBlock, len(was)/minBlock)
	}
}
