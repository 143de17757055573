package kept

import (
	"bytes"
	"context"
	"errors"
	"hash/crc32"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/zeebo/blake3"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/kit"
	"github.com/holdall/holdall/format/kit/sorter"
	"github.com/holdall/holdall/internal/testkit"
)

// withCRC changes 4 bytes of b from at on, so that its CRC-32 is sum. Each bit of b turns a fixed set of
// bits of the CRC, so 32 of them can make any.
func withCRC(b []byte, at int, sum uint32) {
	var turns, by [32]uint32 // what bits turn of the CRC, in order of their highest bit, and which bits these are
	base := crc32.ChecksumIEEE(b)
	for i := range 32 {
		b[at+i/8] ^= 1 << (i % 8)
		v, of := crc32.ChecksumIEEE(b)^base, uint32(1)<<i
		b[at+i/8] ^= 1 << (i % 8)
		for k := 31; k >= 0 && v != 0; k-- {
			if v>>k&1 == 0 {
				continue
			}
			if turns[k] == 0 {
				turns[k], by[k] = v, of
				break
			}
			v, of = v^turns[k], of^by[k]
		}
	}
	flip := uint32(0)
	for k, v := 31, base^sum; k >= 0; k-- {
		if v>>k&1 != 0 {
			v, flip = v^turns[k], flip^by[k]
		}
	}
	for i := range 32 {
		b[at+i/8] ^= byte(flip>>i&1) << (i % 8)
	}
}

// TestForgedPagesAreRefused changes pages and nodes so that their CRC-32 stay right, and so does whoever
// forges an index. With a signed root, each answer is an error or what it was.
func TestForgedPagesAreRefused(t *testing.T) {
	rnd := testkit.Rand(t)
	var entries []format.Entry
	for i := range 3000 {
		e := format.Entry{Name: countedName(i), Size: int64(1 + rnd.IntN(300_000)), Ref: i}
		if i%2 == 0 && e.Size <= 64<<10 {
			sum := blake3.Sum256([]byte(e.Name))
			e.Digest = format.Digest{Algo: "blake3", Sum: string(sum[:])}
		}
		entries = append(entries, e)
	}
	var b bytes.Buffer
	digests := func(yield func([DigestLen]byte, error) bool) {
		for _, e := range entries {
			for range Pieces(&e, 64<<10) {
				if !yield(blake3.Sum256([]byte(e.Name)), nil) {
					return
				}
			}
		}
	}
	list := &listed{kit.NewIndex(kit.Entries(slices.Clone(entries))), nil}
	head, err := Build(t.Context(), &b, list, "dir/x", Head{Format: "list", Chunk: 64 << 10}, Options{Scratch: sorter.TempFile, Digests: digests})
	if err != nil || head.Root == "" {
		t.Fatal(head, err)
	}
	sound := b.Bytes()
	open := func(file []byte, trusted bool) (*Index, error) {
		x, err := openBytes(t.Context(), file, false)
		if err == nil && trusted && x.Root != head.Root {
			err = errors.New("another root")
		}
		if err == nil && trusted {
			x.trust()
		}
		return x, err
	}
	type answer struct {
		entry format.Entry
		sums  [][DigestLen]byte
	}
	ask := func(x *Index, e *format.Entry) (a answer, err error) {
		if a.entry, err = x.Lookup(context.Background(), e.Name); err == nil {
			if a.sums, err = x.Digests(context.Background(), a.entry, 0, Pieces(&a.entry, x.Chunk)); err == nil {
				a.entry.Ref = *a.entry.Ref.(*handle)
			}
		}
		return a, err
	}
	x, err := open(sound, true)
	if err != nil {
		t.Fatal(err)
	}
	right := map[string]answer{}
	for i := range entries {
		a, err := ask(x, &entries[i])
		if err != nil {
			t.Fatal(err)
		}
		right[entries[i].Name] = a
	}
	var all []ref // pages and nodes
	for _, s := range []*shelf{&x.rows, &x.proofs} {
		refs := []ref{s.t.Top.ref()}
		for range s.t.Depth {
			all = append(all, refs...)
			var below []ref
			for i := range refs {
				nodes, err := s.node(t.Context(), &refs[i])
				if err != nil {
					t.Fatal(err)
				}
				below = append(below, nodes...)
			}
			refs = below
		}
		all = append(all, refs...)
	}
	wrong, refused := 0, 0
	testkit.Serial(t)
	rounds := testkit.Rounds(t, 10_000)
	for range rounds {
		r := all[rnd.IntN(len(all))]
		file := bytes.Clone(sound)
		page := file[r.off:][:r.stored]
		page[rnd.IntN(len(page))] ^= byte(1 + rnd.IntN(255))
		withCRC(page, rnd.IntN(len(page)-4), crc32.ChecksumIEEE(sound[r.off:][:r.stored]))
		if bytes.Equal(file, sound) {
			continue
		}
		for _, trusted := range []bool{true, false} {
			x, err := open(file, trusted)
			if err != nil {
				refused++
				continue
			}
			for range 8 {
				e := &entries[rnd.IntN(len(entries))]
				a, err := ask(x, e)
				same := err != nil || reflect.DeepEqual(a, right[e.Name])
				switch {
				case trusted && !same:
					t.Fatalf("%s: %+v, expected %+v", e.Name, a, right[e.Name])
				case trusted && err != nil && !strings.Contains(err.Error(), "not what was signed"):
					t.Fatal(err)
				case trusted && err != nil:
					refused++
				case !same:
					wrong++
				}
			}
			x.Close()
		}
	}
	if refused < rounds/10 || wrong < rounds/1000 {
		t.Errorf("%d answers were refused, and without a root %d are wrong, of %d forgeries", refused, wrong, rounds)
	}
}
