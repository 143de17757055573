package parity

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/holdall/holdall/internal/testkit"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storekit"
	"github.com/holdall/holdall/store/storetest"
)

const allOver = "wrong bytes all over"

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
	allOver: func(rnd *rand.Rand, b []byte) []byte {
		b = bytes.Clone(b)
		for range 1 + rnd.IntN(len(b)/minBlock) {
			b[rnd.IntN(len(b))] ^= byte(1 + rnd.IntN(255))
		}
		return b
	},
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
			if healed == 0 && kind != allOver { // blocks with one wrong byte count as absent
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

// An archive that is sound as it is stays, however its length and its order differ from those that
// the parity has.
func TestSoundArchiveIsNotReplaced(t *testing.T) {
	rnd := testkit.Rand(t)
	was := testkit.Noise(rnd, 50*minBlock+700)
	st := &storetest.Mem{}
	st.Put("a.caf", was)
	protect(t, st, 0.1, "a.caf")
	other := testkit.Noise(rnd, 3*minBlock)
	for what, now := range map[string][]byte{
		"a byte more at the end":    slices.Concat(was, other[:1]),
		"more at the end":           slices.Concat(was, other),
		"a byte more in the middle": slices.Concat(was[:80000], other[:1], was[80000:]),
		"more in front":             slices.Concat(other, was),
		"twice":                     slices.Concat(was, was),
		"other order":               slices.Concat(was[80000:], was[:80000]),
		"less in two places":        slices.Concat(was[:40000], was[41000:130000], was[140000:]),
	} {
		st.Put("a.caf", now)
		asked := 0
		for _, damaged := range []bool{false, true} {
			g, err := Seek(t.Context(), st, "a.caf", "", func(context.Context) bool { asked++; return damaged })
			if err != nil {
				t.Fatal(err)
			}
			if (g.Suits == nil) != damaged {
				t.Errorf("%s, damaged: %v: %v", what, damaged, g.Suits)
			}
			if g.searches > 0 && !damaged {
				t.Errorf("%s: there was a search", what)
			}
			g.Close()
		}
		if asked != 2 {
			t.Errorf("%s: it was asked %d times whether there is damage", what, asked)
		}
	}
	st.Put("a.caf", slices.Concat(was, other))
	if g, err := Seek(t.Context(), st, "a.caf", "", nil); err != nil || g.Suits == nil {
		t.Errorf("nothing says that there is damage: %v", err)
	}
}

// Parity of version 1 has no rolling hashes. It heals blocks in their places, and nothing is
// searched.
func TestVersion1(t *testing.T) {
	rnd := testkit.Rand(t)
	was := testkit.Noise(rnd, 50*minBlock+700)
	st := &storetest.Mem{}
	st.Put("a.caf"+Suffix, encodedAs(t, 1, 2, 0.1, was, []Object{{Size: int64(len(was))}}))
	for what, now := range map[string][]byte{
		"wrong bytes":      slices.Concat(was[:9000], testkit.Noise(rnd, 5000), was[14000:]),
		"a cut head":       was[5000:],
		"a missing middle": slices.Concat(was[:90000], was[91000:]),
	} {
		st.Put("a.caf", now)
		g := seek(t, st, "a.caf")
		if got, err := readAll(g, "a.caf"); err != nil || !bytes.Equal(got, was) {
			t.Errorf("%s: %v, %v", what, g.Suits, err)
		}
		g.Close()
	}
	st.Put("a.caf", slices.Concat(was[:90000], []byte{1}, was[90000:]))
	g := seek(t, st, "a.caf")
	if g.Suits == nil {
		t.Error("blocks were found without rolling hashes")
	}
	g.Close()
	// A change makes it a file of the current version.
	st.Put("a.tar", was)
	st.Put("a.tar"+Suffix, encodedAs(t, 1, 2, 0.1, was, []Object{{Size: int64(len(was)), Modified: mustInfo(t, st, "a.tar").ModTime, Version: mustInfo(t, st, "a.tar").Version}}))
	k, err := Keep(t.Context(), st, "a.tar")
	if err == nil {
		err = change(rnd, k.Store())
	}
	if err == nil {
		_, err = k.Update(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	k.Close()
	if st.Get("a.tar" + Suffix)[4] != version {
		t.Error("it is still of version 1")
	}
	wantHealed(t, rnd, st, "of version 1 before")
}

func mustInfo(t *testing.T, st store.Store, name string) store.Info {
	t.Helper()
	info, err := storekit.Briefly(st, name).Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return info
}

// If an archive has more blocks than are looked for at every byte, the neighbours of these are found.
func TestBlocksAroundThoseThatAreTried(t *testing.T) {
	rnd := testkit.Rand(t)
	for range testkit.Rounds(t, 10) {
		was := testkit.Noise(rnd, 200*minBlock+rnd.IntN(100*minBlock))
		st := &storetest.Mem{}
		st.Put("a.caf", was)
		protect(t, st, 0.05, "a.caf")
		cut, more := 30*minBlock+rnd.IntN(150*minBlock), testkit.Noise(rnd, 1+rnd.IntN(9000))
		st.Put("a.caf", slices.Concat(more, was[cut:], more, was[:cut]))
		g, err := Locate(t.Context(), st, "a.caf", "")
		if err != nil {
			t.Fatal(err)
		}
		g.Unsound = func(context.Context) bool { return true }
		g.mostWanted = 12
		if err := g.Look(t.Context()); err != nil || g.found() < g.f.h.blocks-1 {
			t.Errorf("%d of %d blocks were found: %v", g.found(), g.f.h.blocks, err)
		}
		if got, err := readAll(g, "a.caf"); err != nil || !bytes.Equal(got, was) {
			t.Errorf("not what it was: %v", err)
		}
		g.Close()
	}
}

// Rolling hashes that were forged to be found everywhere do not make a search slow.
func TestForgedRollingHashes(t *testing.T) {
	was := testkit.Noise(testkit.Rand(t), 9*minBlock)
	st := &storetest.Mem{}
	st.Put("a.caf", was)
	protect(t, st, 0.5, "a.caf")
	g := seek(t, st, "a.caf")
	defer g.Close()
	zeros := make([]byte, minBlock)
	for _, jumps := range []bool{true, false} {
		s := search{g: g, block: minBlock, blocks: 9, jumps: jumps, places: &places{stream: &stream{}}}
		for i := range int64(9) {
			s.wanted.all = append(s.wanted.all, want{block: i, hash: rollOf(zeros), digest: uint64(i)})
		}
		s.wanted.sort()
		s.wanted.patience = 5
		for range 100 {
			if next, err := s.try(t.Context(), rollOf(zeros), 100, zeros); next != 0 || err != nil {
				t.Fatal(next, err)
			}
		}
		if n := s.wanted.all[0].tries; n != 5 || s.places.found > 0 {
			t.Errorf("%d blocks were compared, and %d found", n, s.places.found)
		}
	}
}

// The last block is shorter than the others, and found wherever it is.
func TestLastBlockIsFound(t *testing.T) {
	rnd := testkit.Rand(t)
	for _, n := range []int{1, 2, 7, 8, 9, 700, minBlock - 1} {
		was := testkit.Noise(rnd, 40*minBlock+n)
		st := &storetest.Mem{}
		st.Put("a.caf", was)
		protect(t, st, 0.1, "a.caf")
		g := seek(t, st, "a.caf")
		lost := int(g.f.h.parity) * minBlock // as much as can be lost besides
		g.Close()
		rest, last := was[:40*minBlock-lost], was[40*minBlock:]
		st.Put("a.caf", slices.Concat(rest, testkit.Noise(rnd, 3), last, testkit.Noise(rnd, 5000)))
		g = seek(t, st, "a.caf")
		if got, err := readAll(g, "a.caf"); err != nil || !bytes.Equal(got, was) {
			t.Errorf("%d bytes: %v, %v", n, g.Suits, err)
		}
		g.Close()
	}
}
