package catalog

import (
	"flag"
	"fmt"
	"iter"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

var (
	benchRows    = flag.Int("rows", 1_000_000, "locations of the benchmarks' catalogue")
	benchMixed   = flag.Bool("mixed", false, "each archive has paths from everywhere, not its own stretch of them")
	benchArchive = flag.Int("archive-rows", 100_000, "locations of one archive")
)

// benchPath is the i-th path in byte order: 49 bytes, a hundred files a folder.
func benchPath(i int) string {
	return fmt.Sprintf("data/set-%04d/part-%04d/object-%08d-2026.json", i/10_000, i/100%100, i)
}

// fill adds archives until there are benchRows locations, in an order that is not
// that of their paths, as workers finish them.
func fill(b *testing.B, c *Catalog) {
	n := max(1, *benchRows / *benchArchive)
	start := time.Now()
	for _, k := range rand.New(rand.NewPCG(1, 2)).Perm(n) {
		add(b, c, Archive{Address: fmt.Sprintf("s3://out/chunk-%05d.caf", k), Format: "caf", Size: 1 << 40}, benchRowsOf(k, n))
	}
	rate := float64(n**benchArchive) / time.Since(start).Seconds()
	b.Logf("%d rows: %.0f rows/s, %.0f B a row", n**benchArchive, rate, float64(sizeOf(b, c))/float64(n**benchArchive))
	b.ReportMetric(rate, "rows/s")
	logSizes(b, c, n**benchArchive)
}

// logSizes logs the sizes of PostgreSQL's tables and indexes for a number of
// rows.
func logSizes(b *testing.B, c *Catalog, rows int) {
	db, ok := c.db.(*postgresDB)
	if !ok {
		return
	}
	all, err := db.pool.Query(b.Context(), "SELECT relname, pg_relation_size(oid) FROM pg_class WHERE relnamespace = current_schema()::regnamespace AND (relname LIKE 'locations%' OR relname LIKE 'members%') ORDER BY 1")
	if err != nil {
		b.Fatal(err)
	}
	var name string
	var size int64
	if _, err := pgx.ForEachRow(all, []any{&name, &size}, func() error {
		b.Logf("%s: %.1f B a row", name, float64(size)/float64(rows))
		return nil
	}); err != nil {
		b.Fatal(err)
	}
}

func benchRowsOf(k, n int) iter.Seq2[Location, error] {
	sum := string(make([]byte, 32))
	return func(yield func(Location, error) bool) {
		for i := range *benchArchive {
			at := k**benchArchive + i
			if *benchMixed {
				at = i*n + k
			}
			l := Location{Path: benchPath(at), Size: 10_000, Raw: true, Off: int64(i) * 10_000}
			l.Digest.Algo, l.Digest.Sum = "blake3", sum
			if !yield(l, nil) {
				return
			}
		}
	}
}

// sizeOf returns the size of a catalogue on disk.
func sizeOf(b *testing.B, c *Catalog) (n int64) {
	switch db := c.db.(type) {
	case *sqliteDB:
		info, err := os.Stat(db.name)
		if err != nil {
			b.Fatal(err)
		}
		return info.Size()
	case *postgresDB:
		if err := db.pool.QueryRow(b.Context(), "SELECT pg_database_size(current_database())").Scan(&n); err != nil {
			b.Fatal(err)
		}
	}
	return n
}

// benchEach runs a benchmark on an empty catalogue of each kind.
func benchEach(b *testing.B, run func(b *testing.B, empty func() *Catalog)) {
	for kind, address := range databases {
		b.Run(kind, func(b *testing.B) {
			run(b, func() *Catalog {
				at := address(b)
				if err := Create(b.Context(), at); err != nil {
					b.Fatal(err)
				}
				return open(b, at)
			})
		})
	}
}

// BenchmarkAdd adds all archives, one transaction each.
func BenchmarkAdd(b *testing.B) {
	benchEach(b, func(b *testing.B, empty func() *Catalog) {
		for b.Loop() {
			fill(b, empty())
		}
	})
}

// BenchmarkAddChunks plans chunks of as many members as archives have rows.
func BenchmarkAddChunks(b *testing.B) {
	benchEach(b, func(b *testing.B, empty func() *Catalog) {
		for b.Loop() {
			c := empty()
			p := newPlan(b, c, "bench")
			n := max(1, *benchRows / *benchArchive)
			before, start := sizeOf(b, c), time.Now()
			for k := range n {
				addChunks(b, c, p, NewChunk{Name: fmt.Sprint(k), Members: func(yield func(Member, error) bool) {
					for i := range *benchArchive {
						if !yield(Member{Path: benchPath(k**benchArchive + i), Size: 10_000, Version: "\"d41d8cd98f00b204e9800998ecf8427e\""}, nil) {
							return
						}
					}
				}})
			}
			b.ReportMetric(float64(n**benchArchive)/time.Since(start).Seconds(), "rows/s")
			b.ReportMetric(float64(sizeOf(b, c)-before)/float64(n**benchArchive), "B/row")
			logSizes(b, c, n**benchArchive)
		}
	})
}

// BenchmarkFinish finishes chunks of as many members as archives have rows, and reads them as
// planning again does.
func BenchmarkFinish(b *testing.B) {
	const etag = "\"d41d8cd98f00b204e9800998ecf8427e\""
	benchEach(b, func(b *testing.B, empty func() *Catalog) {
		for b.Loop() {
			c := empty()
			p := newPlan(b, c, "bench")
			n := max(1, *benchRows / *benchArchive)
			before := sizeOf(b, c)
			for k := range n {
				addChunks(b, c, p, NewChunk{Name: fmt.Sprint(k), Members: func(yield func(Member, error) bool) {
					for l := range benchRowsOf(k, n) {
						if !yield(Member{Path: l.Path, Size: l.Size, Version: etag}, nil) {
							return
						}
					}
				}})
			}
			if db, ok := c.db.(*postgresDB); ok {
				if _, err := db.pool.Exec(b.Context(), "ANALYZE members"); err != nil {
					b.Fatal(err)
				}
			}
			start := time.Now()
			for range n {
				k := claim(b, c, Request{})
				if _, err := c.Finish(b.Context(), k, &Addition{Archive: Archive{Address: k.Name, Format: "caf", Size: 1 << 40, Roots: RootsOf([]Root{{"", "s3://from/"}})},
					Rows: func(yield func(Location, error) bool) {
						for l, err := range benchRowsOf(k.Number, n) {
							if l.ETag, l.Modified = etag, start.Truncate(time.Second); !yield(l, err) {
								return
							}
						}
					}}, nil); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(n**benchArchive)/time.Since(start).Seconds(), "rows/s")
			if db, ok := c.db.(*postgresDB); ok {
				if _, err := db.pool.Exec(b.Context(), "VACUUM ANALYZE locations, members"); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(sizeOf(b, c)-before)/float64(n**benchArchive), "B/row")
			logSizes(b, c, n**benchArchive)
			start = time.Now()
			if got := len(gather(b, c.Planned(b.Context(), p.ID))); got != n**benchArchive {
				b.Fatal(got)
			}
			b.ReportMetric(float64(n**benchArchive)/time.Since(start).Seconds(), "planned/s")
		}
	})
}

// BenchmarkRead looks up random paths, and lists folders of ever fewer files.
func BenchmarkRead(b *testing.B) {
	benchEach(b, func(b *testing.B, empty func() *Catalog) {
		c := empty()
		fill(b, c)
		benchRead(b, c)
	})
}

func benchRead(b *testing.B, c *Catalog) {
	b.Run("newest", func(b *testing.B) {
		rnd := rand.New(rand.NewPCG(3, 4))
		var took []time.Duration
		for b.Loop() {
			path := benchPath(rnd.IntN(*benchRows))
			start := time.Now()
			if _, err := c.Newest(b.Context(), path); err != nil {
				b.Fatal(err)
			}
			took = append(took, time.Since(start))
		}
		slices.Sort(took)
		b.ReportMetric(float64(took[len(took)/2].Nanoseconds())/1000, "p50-µs")
		b.ReportMetric(float64(took[len(took)*99/100].Nanoseconds())/1000, "p99-µs")
	})
	for _, prefix := range []string{"", "data/", "data/set-0000/", "data/set-0000/part-0000/"} {
		b.Run(fmt.Sprintf("list=%q", prefix), func(b *testing.B) {
			n := 0
			for b.Loop() {
				n = len(list(b, c, prefix))
			}
			b.ReportMetric(float64(n), "shown")
		})
	}
}
