package kept

import (
	"context"
	"fmt"
	"iter"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/kit/sorter"
	"github.com/holdall/holdall/store/local"
)

// counted is an archive of n files in folders of a thousand, which are made up as they
// are asked for. Those that are not plain have times, modes and digests.
type counted struct {
	format.Reader
	n     int
	plain bool
}

func countedName(i int) string { return fmt.Sprintf("data/%05d/member_%08d.txt", i/1000, i) }

func (c counted) Entries(context.Context) iter.Seq2[format.Entry, error] {
	return func(yield func(format.Entry, error) bool) {
		for i := range c.n {
			e := format.Entry{Name: countedName(i), Size: 100, Ref: i}
			if !c.plain {
				e.HasMode, e.Mode, e.ModTime = true, 0o644, time.Unix(1e9+int64(i)*7919%100_000, 0).UTC()
				e.Digest = format.Digest{Algo: "blake3", Sum: strings.Repeat(fmt.Sprintf("%08d", i), 4)}
			}
			if !yield(e, nil) {
				return
			}
		}
	}
}

func (c counted) Can() format.Abilities {
	return format.Abilities{Run: func(e format.Entry) (format.Extent, bool) {
		return format.Extent{Size: e.Size, Len: e.Size, Object: "dir/x", Off: int64(e.Ref.(int)) * 100}, true
	}}
}

// onDisk builds the index of an archive, and opens it where it lies.
func onDisk(t testing.TB, r format.Reader, o Options) (x *Index, path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "x.holdall")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	o.Scratch = sorter.TempFile
	if _, err := Build(t.Context(), f, r, "dir/x", Head{Format: "list"}, o); err != nil {
		t.Fatal(err)
	}
	return openedAt(t, path), path
}

func openedAt(t testing.TB, path string) *Index {
	t.Helper()
	obj, err := local.New(filepath.Dir(path)).Open(t.Context(), filepath.Base(path))
	if err != nil {
		t.Fatal(err)
	}
	x, err := Open(t.Context(), obj, path, "dir/x", 2, tailGuess, true)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { x.Close() })
	return x
}

// BenchmarkLookup looks for names at random. HOLDALL_LONG adds ten million rows.
func BenchmarkLookup(b *testing.B) {
	sizes := []int{50_000, 1_000_000}
	if os.Getenv("HOLDALL_LONG") != "" {
		sizes = append(sizes, 10_000_000)
	}
	for _, n := range sizes {
		for _, plain := range []bool{true, false} {
			b.Run(fmt.Sprintf("rows=%d/plain=%v", n, plain), func(b *testing.B) {
				x, path := onDisk(b, counted{n: n, plain: plain}, Options{})
				rnd := rand.New(rand.NewPCG(1, 2))
				names := make([]string, 1<<16)
				for i := range names {
					names[i] = countedName(rnd.IntN(n))
				}
				i := 0
				next := func() {
					if _, err := x.Lookup(b.Context(), names[i%len(names)]); err != nil {
						b.Fatal(err)
					}
					i++
				}
				for i < len(names) { // blocks are compared once, and pages kept if there is room
					next()
				}
				b.ReportAllocs()
				for b.Loop() {
					next()
				}
				if fi, err := os.Stat(path); err == nil {
					b.ReportMetric(float64(fi.Size())/float64(n), "B/row")
				}
			})
		}
	}
}
