package kept

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/kit"
	"github.com/holdall/holdall/internal/testkit"
)

// ask asks an index all that can be asked, which may be damaged in any way.
func ask(t *testing.T, x *Index) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	var names []string
	n := int64(0)
	for e, err := range x.Entries(ctx) {
		if err != nil {
			typed(t, err)
			break
		}
		if n++; n > x.count() {
			t.Fatalf("%d entries in %d rows", n, x.count())
		}
		if len(names) < 10 {
			names = append(names, e.Name)
		}
		for v, err := range x.Extents(ctx, e, 0, e.Size) {
			if _, bad := errors.AsType[*Error](err); err != nil && !bad && !errors.Is(err, ErrElsewhere) {
				t.Fatal(err)
			}
			if err == nil && min(v.Off, v.Len, v.Size, v.At) < 0 {
				t.Fatalf("%+v", v)
			}
			if at := x.Before(ctx, v); err == nil && at != 0 {
				if _, err := x.Point(ctx, v, at); err != nil {
					typed(t, err)
				}
			}
		}
		if _, err := x.Digests(ctx, e, 0, min(Pieces(&e, x.Chunk), 3)); err != nil {
			typed(t, err)
		}
	}
	for _, name := range append(names, ".", "a", "nothing") {
		_, err := x.Lookup(ctx, name)
		if err != nil {
			typed(t, err)
		}
		for _, seq := range []func(func(format.Entry, error) bool){x.ReadDir(ctx, name), x.EntriesBelow(ctx, name), x.EntriesFrom(ctx, name)} {
			k := int64(0)
			for _, err := range seq {
				if err != nil {
					typed(t, err)
					break
				}
				if k++; k > x.count() {
					t.Fatal("no end")
				}
			}
		}
	}
}

// typed is the check of an error: it is about the index, or says what is not there.
func typed(t *testing.T, err error) {
	t.Helper()
	if errors.Is(err, context.DeadlineExceeded) {
		t.Fatal("an index that takes for ever")
	}
}

func FuzzOpen(f *testing.F) {
	testkit.Serial(f)
	rnd := rand.New(rand.NewPCG(3, 4))
	for _, n := range []int{0, 3, 40} {
		entries, xs := anyEntries(rnd, n)
		l := &listed{kit.NewIndex(kit.Entries(entries)), xs}
		b, _ := build(f, l, Head{Format: "list"}, Options{})
		f.Add(b)
		b, _ = build(f, l, Head{Format: "list", Chunk: MinChunk}, Options{Digests: func(yield func([DigestLen]byte, error) bool) {
			for e := range l.Entries(f.Context()) {
				for range Pieces(&e, MinChunk) {
					if !yield([DigestLen]byte{1}, nil) {
						return
					}
				}
			}
		}})
		f.Add(b)
	}
	l, stored, _ := solid(f)
	b, _ := build(f, l, Head{Format: "list"}, Options{Stored: storedIn(stored)})
	f.Add(b)
	f.Fuzz(func(t *testing.T, b []byte) {
		x, err := openBytes(t.Context(), b, true)
		if err != nil {
			return
		}
		defer x.Close()
		ask(t, x)
	})
}

// FuzzRows has what checksums keep from FuzzOpen: pages of rows and nodes.
func FuzzRows(f *testing.F) {
	rnd := rand.New(rand.NewPCG(3, 4))
	for _, n := range []int{1, 3, 40} {
		entries, xs := anyEntries(rnd, n)
		l := &listed{kit.NewIndex(kit.Entries(entries)), xs}
		b, _ := build(f, l, Head{Format: "list"}, Options{})
		x, err := openBytes(f.Context(), b, false)
		if err != nil {
			f.Fatal(err)
		}
		top := x.rows.t.Top.ref()
		node, err := x.page(f.Context(), &top, nil)
		if err != nil {
			f.Fatal(err)
		}
		refs, err := decodeNode(node, false)
		if err != nil {
			f.Fatal(err)
		}
		page, err := x.page(f.Context(), &refs[0], nil)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(page, node, uint8(len(x.Volumes)))
	}
	f.Fuzz(func(t *testing.T, page, node []byte, volumes uint8) {
		x := &Index{}
		x.Volumes = make([]Volume, volumes)
		if refs, err := decodeNode(node, volumes%2 == 1); err == nil {
			for i := range refs {
				if refs[i].items <= 0 || refs[i].stored > maxPage || i > 0 && refs[i].from != refs[i-1].from+refs[i-1].items {
					t.Fatalf("%+v", refs)
				}
			}
		}
		for n := range int64(50) {
			tryPage(t, x, page, n)
		}
	})
}

// tryPage asks a page of n rows, which may be damaged in any way, all that can be asked.
func tryPage(t *testing.T, x *Index, page []byte, n int64) {
	t.Helper()
	h, err := x.newSheet(page, &ref{items: n})
	if err != nil {
		return
	}
	p, err := x.decodeRows(h, 0, int(n))
	for i := range h.keys {
		name := h.keys[i]
		if f, ok, err := x.rowCalled(h, []byte(name), name, false); ok && (err != nil || f.entry.Size < 0) {
			t.Fatalf("%q is %+v, %v", name, f, err)
		}
	}
	if err != nil {
		return
	}
	for i := range p.entries {
		one, err := x.decodeRows(h, i, 1)
		if err != nil || one.entries[0].Name != p.entries[i].Name || one.entries[0].Size != p.entries[i].Size || one.place(0) != p.place(i) || one.ranks[0] != p.ranks[i] {
			t.Fatalf("row %d of %d: %+v, %v, expected %+v", i, n, one, err, p.entries[i])
		}
		name := p.entries[i].Name
		if p.marks[i].implied {
			name += "/"
		}
		key := p.place(i).appendKey(nil)
		if f, ok, err := x.rowCalled(h, key, name, p.marks[i].whole); ok && (err != nil || f.entry.Size < 0) {
			t.Fatalf("%q is %+v, %v", name, f, err)
		}
		if k, err := x.firstFrom(h, key); err != nil || k < 0 || k > int(n) {
			t.Fatal(k, err)
		}
		if e := p.entries[i]; e.Size < 0 {
			t.Fatalf("%+v", e)
		}
		for v, err := range x.Extents(t.Context(), p.entries[i], 0, p.entries[i].Size) {
			if err == nil && min(v.Off, v.Len, v.Size, v.At) < 0 {
				t.Fatalf("%+v", v)
			}
		}
	}
}

// firstPage returns the first page of rows of an index, and how many rows it has.
func firstPage(t testing.TB, x *Index) ([]byte, int64) {
	t.Helper()
	steps, err := x.rows.findItem(t.Context(), 0)
	if err != nil || steps == nil {
		t.Fatal(err)
	}
	b, err := x.page(t.Context(), leaf(steps), nil)
	if err != nil {
		t.Fatal(err)
	}
	return b, leaf(steps).items
}

// TestForgedRowsLeadNowhere changes pages of rows as one can who knows how they are checked.
func TestForgedRowsLeadNowhere(t *testing.T) {
	testkit.Serial(t)
	rnd := testkit.Rand(t)
	entries, xs := anyEntries(rnd, 150)
	for _, chunk := range []int64{0, MinChunk} {
		l := &listed{kit.NewIndex(kit.Entries(entries)), xs}
		b, _ := build(t, l, Head{Format: "list", Chunk: chunk}, Options{Digests: piecesOf(t, l)})
		x := opened(t, b)
		good, n := firstPage(t, x)
		for range testkit.Rounds(t, 400) {
			page := slices.Clone(good)
			for range 1 + rnd.IntN(3) {
				page[rnd.IntN(len(page))] = []byte{0, 1, 7, 0x7f, 0x80, 0xff, byte(rnd.Uint32())}[rnd.IntN(7)]
			}
			tryPage(t, x, page, n)
		}
	}
}

// FuzzEdition2 has what checksums keep from FuzzOpen: pages of rows of edition 2.
func FuzzEdition2(f *testing.F) {
	for _, name := range []string{"kinds", "codecs", "listed", "regular"} {
		b, err := os.ReadFile(filepath.Join("testdata", "edition2", name+Suffix))
		if err != nil {
			f.Fatal(err)
		}
		x, err := openBytes(f.Context(), b, false)
		if err != nil {
			f.Fatal(err)
		}
		page, n := firstPage(f, x)
		f.Add(page, uint16(n), x.Chunk > 0)
	}
	f.Fuzz(func(t *testing.T, old []byte, n uint16, proven bool) {
		x := &Index{}
		if x.Volumes = make([]Volume, 3); proven {
			x.Chunk = MinChunk
		}
		page, err := x.renewed(old, &ref{items: int64(n)})
		if err == nil {
			tryPage(t, x, page, int64(n))
		}
	})
}
