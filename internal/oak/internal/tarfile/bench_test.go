package tarfile

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/local"
)

// benchTar writes a tar of some 250 MB in the sizes of real ones, and opens it.
func benchTar(b *testing.B) (*Tar, store.Object) {
	b.Helper()
	dir := b.TempDir()
	f, err := os.Create(filepath.Join(dir, "data00000a.tar"))
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	r := rand.New(rand.NewPCG(1, 1))
	w := NewWriter(f, "data00000a.tar", someTime)
	noise := randomSegment(r, ID{}, Generation{}, MaxSegment)
	var before []ID
	for !w.Full(250 << 20) {
		id := randomID(r, r.IntN(3) > 0)
		n := 16 * (64 + r.IntN(MaxSegment/16-64))
		data := append([]byte(nil), noise[:n]...)
		var refs []ID
		if id.IsData() {
			refs = before[max(0, len(before)-20):]
			copy(data, randomSegment(r, id, Generation{}, 1024, refs...))
		}
		if err := w.Add(id, Generation{}, data, pack(refs...), nil); err != nil {
			b.Fatal(err)
		}
		before = append(before, id)
	}
	if err := w.Close(); err != nil {
		b.Fatal(err)
	}
	obj, err := local.New(dir).Open(b.Context(), "data00000a.tar")
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { obj.Close() })
	t, err := Open(b.Context(), obj, "data00000a.tar", Options{})
	if err != nil {
		b.Fatal(err)
	}
	return t, obj
}

func BenchmarkOpen(b *testing.B) {
	_, obj := benchTar(b)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Open(b.Context(), obj, "t", Options{}); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkGraph(b *testing.B) {
	t, _ := benchTar(b)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := t.Graph(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkRead compares segments that are read by id with plain reads of the same
// ranges.
func BenchmarkRead(b *testing.B) {
	t, obj := benchTar(b)
	all := entries(t.Index())
	rand.New(rand.NewPCG(2, 2)).Shuffle(len(all), func(i, k int) { all[i], all[k] = all[k], all[i] })
	buf := make([]byte, MaxSegment)
	for _, c := range []struct {
		name string
		read func(e Entry) error
	}{
		{"find", func(e Entry) error {
			if _, ok := t.Index().Find(e.ID); !ok {
				b.Fatal(e.ID)
			}
			return nil
		}},
		{"plain", func(e Entry) error { return obj.ReadAt(b.Context(), buf[:e.Len], e.Pos) }},
		{"by id", func(e Entry) error {
			i, ok := t.Index().Find(e.ID)
			if !ok {
				b.Fatal(e.ID)
			}
			return second(t.Read(b.Context(), i, buf))
		}},
		{"plain 4 KiB", func(e Entry) error { return obj.ReadAt(b.Context(), buf[:min(e.Len, 4096)], e.Pos) }},
	} {
		b.Run(c.name, func(b *testing.B) {
			i := 0
			b.ReportAllocs()
			for b.Loop() {
				if err := c.read(all[i%len(all)]); err != nil {
					b.Fatal(err)
				}
				i++
			}
		})
	}
}

func BenchmarkCheckEntries(b *testing.B) {
	t, _ := benchTar(b)
	order := t.Index().ByPosition()
	b.SetBytes(t.Size())
	b.ReportAllocs()
	var buf []byte
	for b.Loop() {
		for _, i := range order {
			at := t.Index().At(int(i)).Whole()
			buf = slices.Grow(buf[:0], int(at.Len))[:at.Len]
			if err := t.obj.ReadAt(b.Context(), buf, at.Off); err != nil {
				b.Fatal(err)
			}
			t.CheckBytes(int(i), buf, func(p Problem) { b.Fatal(p) })
		}
	}
}

func BenchmarkScan(b *testing.B) {
	t, obj := benchTar(b)
	b.SetBytes(t.Size())
	b.ReportAllocs()
	for b.Loop() {
		n := 0
		for _, err := range Scan(b.Context(), obj, t.Size(), func(p Problem) { b.Fatal(p) }) {
			if err != nil {
				b.Fatal(err)
			}
			n++
		}
		if n != t.Index().Len() {
			b.Fatal(n)
		}
	}
}
