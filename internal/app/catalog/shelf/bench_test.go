package shelf_test

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/holdall/holdall"
	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/app/catalog"
	"github.com/holdall/holdall/internal/app/catalog/book"
	"github.com/holdall/holdall/internal/app/catalog/shelf"
	"github.com/holdall/holdall/store"
)

var benchArchives = flag.Int("archives", 1000, "archives of the benchmarks' catalogue, of a thousand files each")

const perArchive = 1000

// benchName is the i-th name in byte order: a thousand in a folder.
func benchName(i int) string { return fmt.Sprintf("set-%05d/object-%08d-2026.json", i/perArchive, i) }

// far is a store of archives that are a while away.
type far struct{ away time.Duration }

func (f far) Can() store.Abilities { return store.Abilities{} }

func (f far) Open(_ context.Context, name string) (store.Object, error) {
	return farObject{f, name}, nil
}

// A farObject is a remote object whose size and version come with its first
// response.
type farObject struct {
	far
	name string
}

func (o farObject) Info(context.Context) (store.Info, error) {
	return store.Info{Name: o.name, Size: perArchive * 10_000, Version: "v"}, nil
}

func (o farObject) ReadAt(_ context.Context, p []byte, _ int64) error {
	time.Sleep(o.away)
	clear(p)
	return nil
}

func (o farObject) Close() error               { return nil }
func (o farObject) Can() store.ObjectAbilities { return store.ObjectAbilities{} }

// BenchmarkShelf opens a catalogue as one archive, lists a folder, looks names up, and reads 300
// files that are 20 ms away, 16 at a time.
func BenchmarkShelf(b *testing.B) {
	ctx := b.Context()
	st, name, err := store.OpenAddress(ctx, filepath.Join(b.TempDir(), "photos.catalog"))
	if err != nil {
		b.Fatal(err)
	}
	c, err := book.Create(ctx, st, name)
	if err != nil {
		b.Fatal(err)
	}
	for k := range *benchArchives {
		if _, err := c.Add(ctx, catalog.Addition{Archive: catalog.Archive{Address: fmt.Sprintf("s3://out/%05d.caf", k), Format: "caf", Size: perArchive * 10_000, Version: "v"},
			Rows: func(yield func(catalog.Location, error) bool) {
				for i := range perArchive {
					if !yield(catalog.Location{Path: benchName(k*perArchive + i), Size: 10_000, Raw: true, Off: int64(i) * 10_000}, nil) {
						return
					}
				}
			}}); err != nil {
			b.Fatal(err)
		}
	}
	if err := c.Close(); err != nil {
		b.Fatal(err)
	}
	ms := func(since time.Time) float64 { return float64(time.Since(since).Microseconds()) / 1000 }
	rnd := rand.New(rand.NewPCG(1, 2))
	for b.Loop() {
		start := time.Now()
		c, err := book.Open(ctx, st, name, book.Options{})
		if err != nil {
			b.Fatal(err)
		}
		sh, err := shelf.New(ctx, c, shelf.Options{Open: func(_ context.Context, address string) (store.Store, string, error) {
			return far{20 * time.Millisecond}, address, nil
		}})
		if err != nil {
			b.Fatal(err)
		}
		in, err := holdall.Open(ctx, shelf.Tree, holdall.OpenOptions{Store: sh, Formats: []*format.Format{shelf.Format}})
		if err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(ms(start), "ready-ms")
		start = time.Now()
		n := 0
		for _, err := range in.ReadDir(ctx, fmt.Sprintf("set-%05d", rnd.IntN(*benchArchives))) {
			if err != nil {
				b.Fatal(err)
			}
			n++
		}
		if b.ReportMetric(ms(start), "ls-ms"); n != perArchive {
			b.Fatal(n)
		}
		start = time.Now()
		for range 100 {
			if _, err := in.Lookup(ctx, benchName(rnd.IntN(*benchArchives*perArchive))); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(ms(start)/100, "lookup-ms")
		start = time.Now()
		names := make(chan string)
		var wg sync.WaitGroup
		for range 16 {
			wg.Go(func() {
				for name := range names {
					e, err := in.Lookup(ctx, name)
					if err == nil {
						_, err = in.ReadAt(ctx, e, make([]byte, e.Size), 0)
					}
					if err != nil {
						b.Error(err)
					}
				}
			})
		}
		for range 300 {
			names <- benchName(rnd.IntN(*benchArchives * perArchive))
		}
		close(names)
		wg.Wait()
		b.ReportMetric(ms(start), "reads-ms")
		if err := in.Close(); err != nil {
			b.Fatal(err)
		}
		if err := sh.Close(); err != nil {
			b.Fatal(err)
		}
		if err := c.Close(); err != nil {
			b.Fatal(err)
		}
	}
}
