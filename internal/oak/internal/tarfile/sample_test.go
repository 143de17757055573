package tarfile

import (
	"bytes"
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// randomID returns the id of a data segment, or of a bulk segment.
func randomID(r *rand.Rand, data bool) (id ID) {
	for i := range id {
		id[i] = byte(r.Uint32())
	}
	id[6] = id[6]&15 | 0x40
	id[8] = id[8]&15 | 0xb0
	if data {
		id[8] = id[8]&15 | 0xa0
	}
	return id
}

// randomSegment returns random bytes, of a data segment with a sound header.
func randomSegment(r *rand.Rand, id ID, gen Generation, n int, refs ...ID) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	if !id.IsData() {
		return b
	}
	clear(b[:refsAt])
	copy(b, "0aK\x0d")
	full := uint32(gen.Full)
	if gen.Compacted {
		full |= 1 << 31
	}
	for at, v := range map[int]uint32{fullAt: full, generationAt: uint32(gen.Gen), refCountAt: uint32(len(refs))} {
		copy(b[at:], []byte{byte(v >> 24), byte(v >> 16), byte(v >> 8), byte(v)})
	}
	for i, to := range refs {
		copy(b[refsAt+i*len(to):], to[:])
	}
	return b
}

// Fields of a data segment.
const (
	fullAt       = 4
	generationAt = 10
	refCountAt   = 14
	refsAt       = 32
)

func pack(ids ...ID) (l IDs) {
	for _, id := range ids {
		l = append(l, id[:]...)
	}
	return l
}

func someTime() time.Time { return time.Unix(1_700_000_000, 0) }

// small returns a tar of a few small segments, and its content.
func small(t testing.TB, r *rand.Rand) ([]byte, map[ID][]byte) {
	t.Helper()
	var buf bytes.Buffer
	w := NewWriter(&buf, "data00000a.tar", someTime)
	all := map[ID][]byte{}
	var before []ID
	for i, n := range []int{700, 512, 208, 1024, 1, 1600, 96} {
		id := randomID(r, n%16 == 0)
		gen := Generation{}
		var refs []ID
		var binaries []string
		if id.IsData() {
			gen = Generation{Gen: int32(i / 3), Full: 1, Compacted: i == 5}
			refs = before[:min(len(before), 4)]
			if i > 2 {
				binaries = []string{fmt.Sprintf("binary-%d#100", i), "binary#0"}
			}
		}
		all[id] = randomSegment(r, id, gen, n, refs...)
		if err := w.Add(id, gen, all[id], pack(refs...), binaries); err != nil {
			t.Fatal(err)
		}
		before = append(before, id)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if int64(buf.Len()) != w.Size() {
		t.Fatalf("size %d, expected %d", w.Size(), buf.Len())
	}
	return buf.Bytes(), all
}

// sound returns the problems of a tar: there should be none.
func problemsOf(t testing.TB, x *Tar) (all []Problem) {
	t.Helper()
	report := func(p Problem) { all = append(all, p) }
	if _, err := x.CheckLayout(t.Context(), report); err != nil {
		t.Fatal(err)
	}
	for i, e := range x.Index().All() {
		at := e.Whole()
		if at.Off < 0 || e.Len > MaxSegment || at.end() > x.Size() {
			continue // as CheckLayout tells
		}
		b := make([]byte, at.Len)
		if err := x.obj.ReadAt(t.Context(), b, at.Off); err != nil {
			t.Fatal(err)
		}
		x.CheckBytes(i, b, report)
	}
	slices.SortStableFunc(all, func(a, b Problem) int { return cmp.Compare(a.Off, b.Off) })
	return all
}
