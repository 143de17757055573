package lindi

import (
	"bytes"
	"context"
	"fmt"
	"testing"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/store/storetest"
)

// manyChunks returns an archive of n chunks.
func manyChunks(b *testing.B, n, size int) (*storetest.Mem, string) {
	const name = "x.lindi.tar"
	st := &storetest.Mem{}
	manifest := []format.Entry{{Name: ".zgroup", Size: 18}}
	for i := range n {
		manifest = append(manifest, format.Entry{Name: fmt.Sprintf("x/%d.0", i), Size: int64(size)})
	}
	w, err := create(context.Background(), st, name, format.CreateOptions{Manifest: manifest})
	if err != nil {
		b.Fatal(err)
	}
	content := noise(1, size)
	copy(content, `{"zarr_format": 2}`)
	for _, e := range manifest {
		s := bytes.NewReader(content[:e.Size])
		if err := w.Add(context.Background(), e, s); err != nil {
			b.Fatal(err)
		}
	}
	if _, err := w.Commit(context.Background()); err != nil {
		b.Fatal(err)
	}
	return st, name
}

func BenchmarkOpen(b *testing.B) {
	for _, view := range Format.Views {
		b.Run("lindi/10000 "+view, func(b *testing.B) {
			st, name := manyChunks(b, 10_000, 1000)
			b.ReportAllocs()
			for b.Loop() {
				r, err := Format.Open(b.Context(), st, name, format.OpenOptions{View: view})
				if err != nil {
					b.Fatal(err)
				}
				if _, err := r.Lookup(b.Context(), ".zgroup"); err != nil && view == zarrView {
					b.Fatal(err)
				}
				r.Close()
			}
		})
	}
}

func BenchmarkLookup(b *testing.B) {
	st, name := manyChunks(b, 10_000, 1000)
	r, err := Format.Open(b.Context(), st, name, format.OpenOptions{View: zarrView})
	if err != nil {
		b.Fatal(err)
	}
	defer r.Close()
	i := 0
	b.ReportAllocs()
	for b.Loop() {
		i = (i + 7919) % 10_000
		if _, err := r.Lookup(b.Context(), fmt.Sprintf("x/%d.0", i)); err != nil {
			b.Fatal(err)
		}
	}
}
