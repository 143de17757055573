package parity

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"math/bits"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/read/parity/gf16"
	"github.com/holdall/holdall/internal/testkit"
	"github.com/holdall/holdall/store/storekit"
	"github.com/holdall/holdall/store/storetest"
)

// A sample is an archive with its parity file, which others make worse.
type sample struct {
	objects map[string][]byte
	parity  []byte
}

// sampleFiles are of several geometries: one block, a few, several groups, and a set.
func sampleFiles(t testing.TB) (all []sample) {
	rnd := rand.New(rand.NewPCG(2, 2))
	for _, c := range []struct {
		sizes  []int
		groups int64
		loss   float64
	}{
		{[]int{1}, 1, 0.05},
		{[]int{5 * minBlock}, 1, 0.3},
		{[]int{9*minBlock + 17}, 3, 0.1},
		{[]int{3*minBlock - 9, 2 * minBlock, 0, 700}, 2, 0.5},
	} {
		var s sample
		var text []byte
		var objects []Object
		s.objects = map[string][]byte{}
		for i, size := range c.sizes {
			o := Object{Size: int64(size)}
			name := "a.caf"
			if i > 0 {
				name = string(rune('a'+i)) + ".caf"
			}
			if len(c.sizes) > 1 {
				o.Name = name
			}
			b := testkit.Noise(rnd, size)
			s.objects[name] = b
			text = append(text, b...)
			objects = append(objects, o)
		}
		s.parity = encoded(t, c.groups, c.loss, text, objects)
		all = append(all, s)
	}
	return all
}

// encoded is the parity file of text in so many groups.
func encoded(t testing.TB, groups int64, loss float64, text []byte, objects []Object) []byte {
	t.Helper()
	return encodedAs(t, version, groups, loss, text, objects)
}

// encodedAs is encoded in a version of the format.
func encodedAs(t testing.TB, version byte, groups int64, loss float64, text []byte, objects []Object) []byte {
	t.Helper()
	g, err := plan(int64(len(text)), loss)
	if err != nil {
		t.Fatal(err)
	}
	g.groups, g.version = groups, version
	g.order = gf16.Order(share(g.inGroup(0), groups, loss))
	e := newEncoder(context.Background(), g, loss)
	defer e.Close()
	if _, err := e.Write(text); err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := e.Finish(&b, objects); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func (s sample) store(parity []byte) *storetest.Mem {
	st := &storetest.Mem{}
	for name, b := range s.objects {
		st.Put(name, b)
	}
	st.Put("a.caf"+Suffix, parity)
	return st
}

// fixSums corrects the checksums of all records that have one.
func fixSums(b []byte) {
	for at := 0; at+headerLen <= len(b); {
		i := bytes.Index(b[at:], []byte(magic))
		if i < 0 || at+i+headerLen > len(b) {
			return
		}
		at += i
		h, err := parseHeader(b[at:])
		n := headerLen + h.payload()
		if err == nil && n <= len(b)-at {
			binary.LittleEndian.PutUint64(b[at+56:], h.sum(b[at:at+n]))
			at += n
			continue
		}
		at++
	}
}

// use opens a parity file and does all that can be done with it. Of what it hands out each
// block is what the parity file has the digest of; with trusted, it is what the archive was.
func use(t *testing.T, st *storetest.Mem, s sample, trusted bool) {
	ctx := t.Context()
	f, err := Open(ctx, st, "a.caf"+Suffix, "a.caf"+Suffix)
	if err != nil {
		if _, ok := errors.AsType[*format.CorruptError](err); !ok {
			t.Errorf("expected a *format.CorruptError, found %v", err)
		}
		return
	}
	size := int64(len(st.Get("a.caf" + Suffix)))
	if f.h.blocks > size*512 {
		t.Fatalf("%d blocks by a file of %d bytes", f.h.blocks, size)
	}
	g, err := bind(ctx, f, st, "a.caf")
	if err != nil {
		return
	}
	defer g.Close()
	g.Unsound = func(context.Context) bool { return true }
	if err := g.Look(ctx); err != nil && g.Suits == nil {
		t.Error(err)
	}
	for _, heal := range []bool{false, true} {
		r, err := g.Check(ctx, heal, nil)
		if err != nil {
			t.Errorf("check: %v", err)
		}
		if r.Damaged < r.Healed || r.Damaged > r.Blocks || r.Spare < 0 || r.Parity > r.ParityHad {
			t.Errorf("%d blocks are damaged of %d, %d healed; parity %d of %d, %d to spare", r.Damaged, r.Blocks, r.Healed, r.Parity, r.ParityHad, r.Spare)
		}
	}
	v := g.Store()
	for _, err := range storekit.List(ctx, v, "") {
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, p := range g.objs {
		o, err := v.Open(ctx, p.name)
		if err != nil {
			t.Fatal(err)
		}
		b := make([]byte, 3*minBlock)
		for _, off := range []int64{0, 5000, p.Size/2 - 7, p.Size - int64(len(b)), p.Size - 1} {
			n := min(p.Size-off, int64(len(b)))
			if off < 0 || n <= 0 {
				continue
			}
			got := b[:n]
			if err := o.ReadAt(ctx, got, off); err != nil {
				if _, ok := errors.AsType[*format.CorruptError](err); !ok {
					t.Errorf("%s at %d: expected a *format.CorruptError, found %v", p.name, off, err)
				}
				continue
			}
			if want := s.objects[p.name]; trusted && !bytes.Equal(got, want[off:off+n]) {
				t.Errorf("%s: %d bytes at %d are not what they were", p.name, n, off)
			}
		}
		o.Close()
	}
	// Blocks are what the digests say.
	b := make([]byte, f.h.block)
	for i := range min(f.h.blocks, 20) {
		if (&view{Store: st, g: g}).readBlocks(ctx, b, i) == nil {
			if err := g.right(ctx, i, b); err != nil {
				t.Errorf("block %d is handed out, which is not what the digest says: %v", i, err)
			}
		}
	}
}

// FuzzFile damages an archive and its parity as disks do: what is handed out is the archive.
func FuzzFile(f *testing.F) {
	all := sampleFiles(f)
	for i := range all {
		f.Add(byte(i), []byte(nil), []byte(nil), uint32(0), uint32(0))
		f.Add(byte(i), []byte{0, 0, 70, 1, 0, 16, 3, 255}, []byte{0, 0, 9, 1}, uint32(0), uint32(0))
		f.Add(byte(i), []byte(nil), []byte{0, 0, 0, 1}, uint32(0), uint32(5000))
		f.Add(byte(i), []byte(nil), []byte{0, 0, 0, 1}, uint32(64), uint32(0))
	}
	f.Fuzz(func(t *testing.T, which byte, flips, hurts []byte, front, end uint32) {
		s := all[int(which)%len(all)]
		b := bytes.Clone(s.parity)
		flip(b, flips)
		b = b[min(int(front), len(b)):]
		b = b[:len(b)-min(int(end), len(b))]
		st := s.store(b)
		a := st.Get("a.caf")
		flip(a, hurts)
		st.Put("a.caf", a)
		use(t, st, s, true)
	})
}

// FuzzMoved inserts, removes and copies bytes of an archive: what is handed out is the archive.
func FuzzMoved(f *testing.F) {
	all := sampleFiles(f)
	for i := range all {
		f.Add(byte(i), []byte{0, 1, 0, 0, 7})
		f.Add(byte(i), []byte{1, 30, 0, 1, 0, 2, 1, 0, 16, 0})
	}
	f.Fuzz(func(t *testing.T, which byte, moves []byte) {
		s := all[int(which)%len(all)]
		st := s.store(s.parity)
		b := bytes.Clone(st.Get("a.caf"))
		// Five bytes are a kind, a place and a length.
		for ; len(moves) >= 5 && len(b) < 1<<20; moves = moves[5:] {
			at := int(binary.BigEndian.Uint16(moves[1:])) % (len(b) + 1)
			end := min(len(b), at+int(binary.BigEndian.Uint16(moves[3:])))
			switch moves[0] % 3 {
			case 0:
				b = slices.Concat(b[:at], moves[3:5], b[at:])
			case 1:
				b = slices.Concat(b[:at], b[end:])
			default:
				b = slices.Concat(b, b[at:end])
			}
		}
		st.Put("a.caf", b)
		use(t, st, s, true)
	})
}

// flip changes bytes: each four of flips are a place and what is changed there.
func flip(b, flips []byte) {
	for ; len(flips) >= 4 && len(b) > 0; flips = flips[4:] {
		b[binary.BigEndian.Uint32(flips)>>8%uint32(len(b))] ^= flips[3]
	}
}

// FuzzForged tests parity files written by attackers: all checksums are right.
func FuzzForged(f *testing.F) {
	all := sampleFiles(f)
	for i, s := range all {
		h, err := parseHeader(s.parity)
		if err != nil {
			f.Fatal(err)
		}
		order := byte(bits.TrailingZeros(uint(h.order)))
		f.Add(byte(i), uint64(h.blocks), uint32(h.block), uint32(h.groups), order, uint16(h.parity), uint32(h.directory), []byte(nil), []byte(nil), uint32(0), uint32(0))
		f.Add(byte(i), uint64(maxBlocks), uint32(h.block), uint32(1<<32-1), order, uint16(h.parity), uint32(h.directory), []byte(`{"objects":[{"size":70368744177664}]}`), []byte{0, 0, 0, 1}, uint32(0), uint32(0))
		f.Add(byte(i), uint64(h.blocks), uint32(maxBlock), uint32(1), byte(6), uint16(3), uint32(1), []byte(`{"objects":[{"name":"b.caf","size":9},{"name":"/b/c"}]}`), []byte{0, 0, 0, 1}, uint32(9), uint32(9))
	}
	f.Fuzz(func(t *testing.T, which byte, blocks uint64, block, groups uint32, order byte, parity uint16, directory uint32, text, flips []byte, front, end uint32) {
		s := all[int(which)%len(all)]
		was, err := parseHeader(s.parity)
		if err != nil {
			t.Fatal(err)
		}
		b := bytes.Clone(s.parity)
		flip(b, flips)
		// Records as long as they are, or as the header says.
		var file []byte
		for rest := b; len(rest) >= headerLen; {
			h, err := parseHeader(rest)
			n := headerLen + was.block
			if err == nil {
				n = headerLen + h.payload()
			}
			record := slices.Clone(rest[:min(n, len(rest))])
			rest = rest[len(record):]
			h.geometry = geometry{int(block), shape{int64(blocks & (1<<62 - 1)), int64(groups), 1 << (order & 15), int(parity)}, int64(directory), h.version}
			if n := headerLen + int(block); h.kind != kindEnd && block <= 3*minBlock {
				record = append(record, make([]byte, max(0, n-len(record)))...)[:n]
			}
			if h.kind == kindDirectory && len(text) > 0 {
				// The last record has the text, after so many digests.
				h.number = int64(directory) - 1
				text := append(text, ' ')
				copy(record[headerLen+min(int(blocks*digestLen%uint64(max(block, 1))), len(record)-headerLen):], text)
			}
			h.put(record)
			file = append(file, record...)
		}
		file = file[min(int(front), len(file)):]
		file = file[:len(file)-min(int(end), len(file))]
		fixSums(file)
		st := s.store(file)
		use(t, st, s, false)
	})
}
