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

// BenchmarkParse parses the texts of a large archive as the reference writes them, and as holdall
// does.
func BenchmarkParse(b *testing.B) {
	const rows = 100_000
	ours, theirs, refs := []byte(indexHead), []byte("{\n  \"files\": [\n"), []byte("{\n  \"refs\": {\n")
	for i := range rows {
		if i > 0 {
			ours, theirs, refs = append(ours, ','), append(theirs, ",\n"...), append(refs, ",\n"...)
		}
		r := row{name: fmt.Sprintf("blobs/%032x", i), o: int64(i+3) * 2048, d: int64(i+3)*2048 + 512, s: 1500, sum: fmt.Sprintf("%032d", i)}
		ours = appendRow(ours, r)
		theirs = fmt.Appendf(theirs, "    {\n      \"d\": %d,\n      \"n\": \"%s\",\n      \"o\": %d,\n      \"s\": %d\n    }", r.d, r.name, r.o, r.s)
		refs = fmt.Appendf(refs, "    \"acquisition/series/%d.0\": [\n      \"./%s\",\n      0,\n      1500\n    ]", i, r.name)
	}
	ours, theirs, refs = append(ours, indexTail...), append(theirs, "\n  ]\n}"...), append(refs, "\n  }\n}"...)
	for _, c := range []struct {
		name string
		text []byte
	}{{"our index", ours}, {"their index", theirs}} {
		b.Run(c.name, func(b *testing.B) {
			b.SetBytes(int64(len(c.text)))
			b.ReportAllocs()
			for b.Loop() {
				t := &memberTable{}
				if err := t.parse(scannerOf(c.text, 50)); err != nil || t.Len() != rows {
					b.Fatal(t.Len(), err)
				}
			}
		})
	}
	b.Run("their references", func(b *testing.B) {
		b.SetBytes(int64(len(refs)))
		b.ReportAllocs()
		for b.Loop() {
			if x, err := parseRFS(refs, 50); err != nil || x.Len() != rows {
				b.Fatal(err)
			}
		}
	})
}
