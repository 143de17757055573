package caf

import (
	"bytes"
	"fmt"
	"sync"
	"testing"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/testkit"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storetest"
)

const manyRows = 1_000_000

// million is an archive of a million files of a kilobyte, as the reference
// writes it and as we do; contents are left out, for nothing here reads them.
var million = sync.OnceValue(func() map[string]store.Store {
	all := map[string]store.Store{}
	for _, plain := range []bool{true, false} {
		b := appendHead(nil, "", plain)
		digest := ""
		for i := range manyRows {
			if i > 0 {
				b = append(b, ',')
			}
			if !plain {
				digest = fmt.Sprintf("%032d", i)
			}
			b = appendRow(b, fmt.Sprintf("shard-%03d/object-%07d.json", i/1000, i), int64(i)<<10, int64(i+1)<<10, digest, "", nil)
		}
		b = ended(b, plain)
		name := "digests"
		if plain {
			name = "plain"
		}
		all[name] = &sparse{size: manyRows<<10 + int64(len(b)), end: b}
	}
	return all
})

func indexLen(st store.Store) int64 { return int64(len(st.(*sparse).end)) - footerLen }

func eachMillion(b *testing.B, run func(b *testing.B, st store.Store)) {
	for _, name := range []string{"plain", "digests"} {
		st := million()[name]
		b.Run(name, func(b *testing.B) {
			b.SetBytes(indexLen(st))
			b.ReportAllocs()
			run(b, st)
		})
	}
}

func BenchmarkScan(b *testing.B) {
	eachMillion(b, func(b *testing.B, st store.Store) {
		index := st.(*sparse).end[:indexLen(st)]
		for b.Loop() {
			n := 0
			s := scanBytes(index, 0, (format.Limits{}).OrDefault().Depth, func(*row) error { n++; return nil })
			if err := s.scan(); err != nil || n != manyRows {
				b.Fatal(n, err)
			}
		}
	})
}

// BenchmarkSearch finds one name of a million without keeping the others.
func BenchmarkSearch(b *testing.B) {
	eachMillion(b, func(b *testing.B, st store.Store) {
		for b.Loop() {
			r, err := open(b.Context(), st, "x.caf", format.OpenOptions{FewLookups: true})
			if err != nil {
				b.Fatal(err)
			}
			if e, err := r.Lookup(b.Context(), "shard-500/object-0500000.json"); err != nil || e.Size != 1<<10 {
				b.Fatal(e, err)
			}
			r.Close()
		}
	})
}

// BenchmarkLoad opens all of a million and reports what stays in memory.
func BenchmarkLoad(b *testing.B) {
	eachMillion(b, func(b *testing.B, st store.Store) {
		var held uint64
		for b.Loop() {
			b.StopTimer()
			before := testkit.Live()
			b.StartTimer()
			r, err := open(b.Context(), st, "x.caf", format.OpenOptions{})
			if err != nil {
				b.Fatal(err)
			}
			b.StopTimer()
			held = testkit.Live() - before
			b.StartTimer()
			r.Close()
		}
		b.ReportMetric(float64(held)/manyRows, "live-B/entry")
	})
}

// BenchmarkLookup looks up one name after another in an open archive.
func BenchmarkLookup(b *testing.B) {
	r, err := open(b.Context(), million()["plain"], "x.caf", format.OpenOptions{})
	if err != nil {
		b.Fatal(err)
	}
	defer r.Close()
	i := 0
	for b.Loop() {
		i = (i + 7919) % manyRows
		if _, err := r.Lookup(b.Context(), fmt.Sprintf("shard-%03d/object-%07d.json", i/1000, i)); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkWrite adds small files, with digests and without.
func BenchmarkWrite(b *testing.B) {
	for _, plain := range []bool{true, false} {
		b.Run(fmt.Sprintf("plain=%v", plain), func(b *testing.B) {
			const files, size = 10_000, 4096
			content := make([]byte, size)
			names := make([]string, files)
			for i := range names {
				names[i] = fmt.Sprintf("folder-%03d/file-%05d", i/100, i)
			}
			b.SetBytes(files * size)
			b.ReportAllocs()
			for b.Loop() {
				w, err := create(b.Context(), &storetest.Mem{}, "x.caf", format.CreateOptions{NoDigests: plain})
				if err != nil {
					b.Fatal(err)
				}
				for _, n := range names {
					if err := w.Add(b.Context(), format.Entry{Name: n, Size: size}, bytes.NewReader(content)); err != nil {
						b.Fatal(err)
					}
				}
				if _, err := w.Commit(b.Context()); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
