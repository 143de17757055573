package sstable

import (
	"context"
	"testing"

	"github.com/holdall/holdall/store/local"
	"github.com/holdall/holdall/store/storetest"
)

const benchRows = 1_000_000

// written returns a directory on disk of benchRows rows.
func written(b *testing.B) *local.Store {
	st := local.New(b.TempDir())
	st.NoSync = true
	w := NewWriter(st, "index", WriterOptions{})
	writeFiles(b, w, benchRows)
	return st
}

func BenchmarkOpen(b *testing.B) {
	st := written(b)
	b.ReportAllocs()
	for b.Loop() {
		db, err := Open(b.Context(), st, "index", Options{})
		if err != nil {
			b.Fatal(err)
		}
		if _, ok, err := db.Get(b.Context(), fileKey(500, 500)); !ok || err != nil {
			b.Fatal(ok, err)
		}
		db.Close()
	}
}

func BenchmarkGet(b *testing.B) {
	st := written(b)
	for _, c := range []struct {
		name string
		span int   // rows among which to look
		size int64 // of the cache
	}{{"warm", 10_000, 0}, {"all", benchRows, 64 << 20}, {"cold", benchRows, 1}} {
		b.Run(c.name, func(b *testing.B) {
			db, err := Open(b.Context(), st, "index", Options{BlockCache: c.size})
			if err != nil {
				b.Fatal(err)
			}
			defer db.Close()
			i := 0
			b.ReportAllocs()
			for b.Loop() {
				i = (i + 7919) % c.span
				if _, ok, err := db.Get(b.Context(), fileKey(i/1000, i%1000)); !ok || err != nil {
					b.Fatal(i, ok, err)
				}
			}
		})
	}
}

func BenchmarkScan(b *testing.B) {
	st := written(b)
	db, err := Open(b.Context(), st, "index", Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer db.Close()
	b.ReportAllocs()
	for b.Loop() {
		n := 0
		for _, err := range db.Scan(b.Context(), nil, nil) {
			if err != nil {
				b.Fatal(err)
			}
			n++
		}
		if n != benchRows {
			b.Fatal(n)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/benchRows, "ns/row")
}

func BenchmarkCheck(b *testing.B) {
	st := written(b)
	db, err := Open(b.Context(), st, "index", Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer db.Close()
	for b.Loop() {
		if err := db.Check(b.Context(), func(p Problem) { b.Fatal(p.Err) }); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkWrite(b *testing.B) {
	keys, vals := make([][]byte, benchRows), make([][]byte, benchRows)
	for i := range keys {
		keys[i], vals[i] = fileKey(i/1000, i%1000), fileValue(i/1000, i%1000)
	}
	b.ReportAllocs()
	for b.Loop() {
		st := &storetest.Mem{}
		w := NewWriter(st, "index", WriterOptions{})
		for i, k := range keys {
			if err := w.Add(context.Background(), k, vals[i]); err != nil {
				b.Fatal(err)
			}
		}
		if err := w.Commit(context.Background()); err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(float64(len(st.Get("index/000004.sst"))), "bytes")
	}
}
