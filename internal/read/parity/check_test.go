package parity

import (
	"bytes"
	"slices"
	"testing"

	"github.com/holdall/holdall/internal/testkit"
	"github.com/holdall/holdall/store/storekit"
	"github.com/holdall/holdall/store/storetest"
)

// A check must report as healable exactly what is healed, even if more is damaged than that. What
// it reports as beyond healing stays as it is stored, and the rest is restored.
func TestCheckSaysWhatItHeals(t *testing.T) {
	testkit.Long(t)
	rnd := testkit.Rand(t)
	healed, beyond := 0, 0
	for round := range testkit.Rounds(t, 20) {
		st := &storetest.Mem{}
		was := testkit.Noise(rnd, 1100*minBlock+rnd.IntN(900*minBlock))
		st.Put("a.caf", was)
		protect(t, st, 0.01, "a.caf")
		now := slices.Clone(was)
		blocks := len(was) / minBlock
		spread := 1 + rnd.IntN(blocks) // so that runs of neighbours have none, one or many
		hits := 1 + rnd.IntN(60)
		if round == 0 { // more than the parity can heal
			spread, hits = blocks, 200
		}
		for range hits {
			block, at := rnd.IntN(spread)*minBlock, rnd.IntN(minBlock)
			now[block+at] ^= 1
			if round == 0 { // a single wrong byte is found without parity
				now[block+(at+7)%minBlock] ^= 1
			}
		}
		if rnd.IntN(3) == 0 {
			now = now[:len(now)-rnd.IntN(40*minBlock)]
		}
		st.Put("a.caf", now)
		if rnd.IntN(2) == 0 {
			p := slices.Clone(st.Get("a.caf" + Suffix))
			p[rnd.IntN(len(p))] ^= 1
			st.Put("a.caf"+Suffix, p)
		}
		g := seek(t, st, "a.caf")
		said, err := g.Check(t.Context(), false, nil)
		if err != nil {
			t.Fatal(err)
		}
		r, err := g.Check(t.Context(), true, nil)
		if err != nil || r != said {
			t.Fatalf("%+v, healed %+v, %v", said, r, err)
		}
		o, err := g.Rest().Open(t.Context(), "a.caf")
		if err != nil {
			t.Fatal(err)
		}
		info, err := o.Info(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		got := make([]byte, info.Size)
		if err := o.ReadAt(t.Context(), got, 0); err != nil {
			t.Fatal(err)
		}
		n := int64(0)
		for off := 0; off < len(was); off += minBlock {
			end := min(off+minBlock, len(was))
			lost, err := g.Beyond("a.caf", int64(off), int64(end-off))
			if err != nil {
				t.Fatal(err)
			}
			want := was[off:end]
			if lost {
				n++
				want = make([]byte, min(end, len(got))-min(off, len(got)))
				copy(want, now[min(off, len(now)):])
			}
			if !bytes.Equal(got[min(off, len(got)):min(end, len(got))], want) {
				t.Fatalf("block at %d of %d, beyond the parity: %v: not what is to be read", off, len(was), lost)
			}
		}
		if n != r.Beyond() {
			t.Fatalf("%d blocks are said to be beyond the parity, %+v", n, r)
		}
		// In its place the archive becomes the same.
		if err := g.WriteBack(t.Context()); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(st.Get("a.caf"), got) {
			t.Fatalf("in place it has %d bytes, expected %d", len(st.Get("a.caf")), len(got))
		}
		if n == 0 && !bytes.Equal(got, was) {
			t.Fatal("it is not what it was")
		}
		healed, beyond = healed+int(r.Healed), beyond+int(n)
		g.Close()
	}
	if healed == 0 || beyond == 0 {
		t.Errorf("%d blocks were healed, %d were not", healed, beyond)
	}
}

// An archive that ends in zeros and lost some of them is damaged, though its blocks can be read.
func TestLostZerosAreDamage(t *testing.T) {
	st := &storetest.Mem{}
	was := append(testkit.Noise(testkit.Rand(t), 20*minBlock), make([]byte, 20*minBlock)...)
	st.Put("a.tar", was)
	protect(t, st, 0.1, "a.tar")
	for _, n := range []int{1, 512, minBlock, 3 * minBlock, 3*minBlock + 1} {
		st.Put("a.tar", was[:len(was)-n])
		g := seek(t, st, "a.tar")
		r, err := g.Check(t.Context(), true, nil)
		if err != nil || r.Damaged == 0 || r.Beyond() != 0 {
			t.Errorf("%d zeros are lost: %+v %v", n, r, err)
		}
		if err := g.WriteBack(t.Context()); err != nil || !bytes.Equal(st.Get("a.tar"), was) {
			t.Errorf("%d zeros are lost: %v, %d bytes after a repair, expected %d", n, err, len(st.Get("a.tar")), len(was))
		}
		g.Close()
	}
}

// A file of a set is checked by itself.
func TestCheckOfOneOfASet(t *testing.T) {
	rnd := testkit.Rand(t)
	st := &storetest.Mem{}
	names := []string{"a-1.caf", "a-2.caf", "a-3.caf"}
	for _, name := range names {
		st.Put(name, testkit.Noise(rnd, 50*minBlock+100))
	}
	protect(t, st, 0.1, names...)
	st.Put("a.caf"+Suffix, st.Get(names[0]+Suffix))
	_ = storekit.Remove(t.Context(), st, names[0]+Suffix)
	b := slices.Clone(st.Get(names[2]))
	b[20*minBlock] ^= 1
	st.Put(names[2], b)
	for i, want := range []Report{{Looked: 51}, {Looked: 51}, {Looked: 151, Damaged: 1, Healed: 1}} {
		g := seek(t, st, names[i])
		r, err := g.Check(t.Context(), false, nil)
		if err != nil || r.Looked != want.Looked || r.Damaged != want.Damaged || r.Healed != want.Healed {
			t.Errorf("%s: %+v %v", names[i], r, err)
		}
		g.Close()
	}
}

// Parity of a file is not that of a folder of the same name, and the reverse.
func TestParityOfAnotherKindOfArchive(t *testing.T) {
	rnd := testkit.Rand(t)
	st := &storetest.Mem{}
	st.Put("file.caf", testkit.Noise(rnd, 5000))
	st.Put("folder.bundle/a", testkit.Noise(rnd, 5000))
	st.Put("folder.bundle/b", testkit.Noise(rnd, 5000))
	protect(t, st, 0.3, "file.caf")
	protect(t, st, 0.3, "folder.bundle")
	ofFile, ofFolder := st.Get("file.caf"+Suffix), st.Get("folder.bundle"+Suffix)
	st.Put("file.caf"+Suffix, ofFolder)
	st.Put("folder.bundle"+Suffix, ofFile)
	for _, name := range []string{"file.caf", "folder.bundle"} {
		if g := seek(t, st, name); g == nil || g.Suits == nil {
			t.Errorf("%s: it is used", name)
		}
	}
	// A folder that is gone is restored.
	st.Put("folder.bundle"+Suffix, ofFolder)
	for _, name := range []string{"folder.bundle/a", "folder.bundle/b"} {
		if err := st.Remove(t.Context(), name); err != nil {
			t.Fatal(err)
		}
	}
	if g := seek(t, st, "folder.bundle"); g.Suits != nil {
		t.Errorf("nothing is left of it: %v", g.Suits)
	}
}
