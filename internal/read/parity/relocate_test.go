package parity

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/holdall/holdall/internal/testkit"
	"github.com/holdall/holdall/store/storetest"
)

// moves are kinds of damage after which bytes are no longer where they were.
var moves = map[string]func(rnd *rand.Rand, b []byte) []byte{
	"inserted": func(rnd *rand.Rand, b []byte) []byte {
		at := rnd.IntN(len(b) + 1)
		return slices.Concat(b[:at], testkit.Noise(rnd, 1+rnd.IntN(50)), b[at:])
	},
	"deleted": func(rnd *rand.Rand, b []byte) []byte {
		at := rnd.IntN(len(b))
		return slices.Concat(b[:at], b[min(len(b), at+1+rnd.IntN(50)):])
	},
	"swapped halves": func(rnd *rand.Rand, b []byte) []byte {
		at := rnd.IntN(len(b))
		return slices.Concat(b[at:], b[:at])
	},
	"doubled part": func(rnd *rand.Rand, b []byte) []byte {
		from := rnd.IntN(len(b))
		end := from + rnd.IntN(len(b)-from)
		at := rnd.IntN(len(b) + 1)
		if rnd.IntN(2) == 0 {
			at = end
		}
		return slices.Concat(b[:at], b[from:end], b[at:])
	},
	"part copied over another": func(rnd *rand.Rand, b []byte) []byte {
		n := rnd.IntN(min(len(b)/2, 10*minBlock))
		b = bytes.Clone(b)
		copy(b[rnd.IntN(len(b)-n):], bytes.Clone(b[rnd.IntN(len(b)-n):][:n]))
		return b
	},
	"bytes in front": func(rnd *rand.Rand, b []byte) []byte {
		return slices.Concat(testkit.Noise(rnd, 1+rnd.IntN(10000)), b)
	},
	"cut head": func(rnd *rand.Rand, b []byte) []byte { return b[1+rnd.IntN(min(len(b)/8, 4*minBlock)):] },
	"wrong bits": func(rnd *rand.Rand, b []byte) []byte {
		b = bytes.Clone(b)
		b[rnd.IntN(len(b))] ^= 1 << rnd.IntN(8)
		return b
	},
}

// content is an archive's bytes: noise, and perhaps long runs of zeros, and parts that repeat at
// another place in their blocks.
func content(rnd *rand.Rand, size int) []byte {
	b := testkit.Noise(rnd, size)
	for range rnd.IntN(3) {
		n := rnd.IntN(size / 3)
		clear(b[rnd.IntN(size-n):][:n])
	}
	for range rnd.IntN(3) {
		n := rnd.IntN(size / 3)
		copy(b[rnd.IntN(size-n):], bytes.Clone(b[rnd.IntN(size-n):][:n]))
	}
	return b
}

// absent returns how many blocks of each group are nowhere in what is left, and how many in all.
func absent(was, left []byte, block int, groups int64) (n []int64, all int64) {
	n = make([]int64, groups)
	left = append(bytes.Clone(left), make([]byte, block)...)
	for i := 0; i*block < len(was); i++ {
		if !bytes.Contains(left, was[i*block:min((i+1)*block, len(was))]) {
			n[int64(i)%groups]++
			all++
		}
	}
	return n, all
}

// TestMovedBlocksAreFound moves the bytes of an archive in several ways. What is healed is exact,
// and it is healed whenever half of its blocks are left and no group has lost more than it has
// parity, counting only blocks that are nowhere in what is left.
func TestMovedBlocksAreFound(t *testing.T) {
	kinds := slices.Sorted(func(yield func(string) bool) {
		for kind := range moves {
			if !yield(kind) {
				return
			}
		}
	})
	for _, kind := range append(slices.Clone(kinds), "mixed") {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			rnd := testkit.Rand(t)
			healed, beyond := 0, 0
			rounds := testkit.Rounds(t, 24)
			for round := range rounds {
				was := content(rnd, 20*minBlock+rnd.IntN(250*minBlock))
				groups := int64(1 + rnd.IntN(3))
				st := &storetest.Mem{}
				st.Put("a.caf", was)
				st.Put("a.caf"+Suffix, encoded(t, groups, 0.02+rnd.Float64()*0.1, was, []Object{{Size: int64(len(was))}}))
				now := was
				what := fmt.Sprintf("round %d: %d bytes", round, len(was))
				for range 1 + rnd.IntN(8) {
					k := kind
					if k == "mixed" {
						k = kinds[rnd.IntN(len(kinds))]
					}
					if len(now) < 3*len(was) && len(now) > minBlock {
						now = moves[k](rnd, now)
						what += ", " + k
					}
				}
				st.Put("a.caf", now)
				g := seek(t, st, "a.caf")
				n, all := absent(was, now, g.f.h.block, groups)
				within := slices.Max(n) <= int64(g.f.h.parity) && 2*all <= g.f.h.blocks
				what = fmt.Sprintf("%s; of %d blocks are absent %d, of a parity of %d", what, g.f.h.blocks, n, g.f.h.parity)
				if within {
					healed++
				} else {
					beyond++
				}
				if g.Suits != nil {
					if within {
						t.Fatalf("%s: %v", what, g.Suits)
					}
					g.Close()
					continue
				}
				said, err := g.Check(t.Context(), false, nil)
				if err != nil || within && said.Beyond() > 0 {
					t.Fatalf("%s: %+v %v", what, said, err)
				}
				r, err := g.Check(t.Context(), true, nil)
				if err != nil || r != said {
					t.Fatalf("%s: said %+v, healed %+v, %v", what, said, r, err)
				}
				if r.Beyond() == 0 {
					if got, err := readAll(g, "a.caf"); err != nil || !bytes.Equal(got, was) {
						t.Fatalf("%s: not what it was: %v", what, err)
					}
				}
				if err := g.WriteBack(t.Context()); err != nil {
					t.Fatalf("%s: %v", what, err)
				}
				if r.Beyond() == 0 && !bytes.Equal(st.Get("a.caf"), was) {
					t.Fatalf("%s: not what it was in its place", what)
				}
				g.Close()
			}
			if healed == 0 {
				t.Error("no round was within the parity")
			}
			t.Logf("%d rounds within the parity, %d beyond it", healed, beyond)
		})
	}
}

func readAll(g *Guard, name string) ([]byte, error) {
	ctx := context.Background()
	o, err := g.Store().Open(ctx, name)
	if err != nil {
		return nil, err
	}
	defer o.Close()
	info, err := o.Info(ctx)
	if err != nil {
		return nil, err
	}
	b := make([]byte, info.Size)
	return b, o.ReadAt(ctx, b, 0)
}
