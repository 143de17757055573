package engine

import (
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/klauspost/compress/zstd"

	"github.com/holdall/holdall/codec"
	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/store/storetest"
)

// sources are up to 64 MB of Go, and where its files end: what a package of
// sources holds.
var sources = sync.OnceValues(func() (content []byte, ends []int64) {
	root, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		return nil, nil
	}
	filepath.WalkDir(filepath.Join(strings.TrimSpace(string(root)), "src"), func(name string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() || !strings.HasSuffix(name, ".go") {
			return err
		}
		b, err := os.ReadFile(name)
		if len(content)+len(b) > 64_000_000 {
			return fs.SkipAll
		}
		content = append(content, b...)
		ends = append(ends, int64(len(content)))
		return err
	})
	return content, ends
})

func benchSources(b *testing.B) (content []byte, ends []int64) {
	if content, ends = sources(); len(content) < 8<<20 {
		b.Skip("no sources of Go here")
	}
	return content, ends
}

func mustRead(b *testing.B, g *Engine, x Extents, p []byte, off int64) {
	if err := g.ReadAt(b.Context(), x, p, off); err != nil {
		b.Fatal(err)
	}
}

// BenchmarkSweep is over sections of 1 MiB; alone is what one goroutine takes to
// decode them, without an engine.
func BenchmarkSweep(b *testing.B) {
	content, ends := benchSources(b)
	size := int64(len(content))
	st := &storetest.Mem{}
	xs := sections(st, "x", content, 1<<20)
	stored := st.Get("x")
	z := zstdFrame(content)
	st.Put("solid", z)
	b.Run("alone", func(b *testing.B) {
		b.SetBytes(size)
		b.ReportAllocs()
		d, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1))
		if err != nil {
			b.Fatal(err)
		}
		var frames [][]byte
		for _, x := range xs {
			f := append([]byte{0x28, 0xB5, 0x2F, 0xFD, 0, (23 - 10) << 3}, stored[x.Off:][:x.Len]...)
			frames = append(frames, append(f, 1, 0, 0))
		}
		buf := make([]byte, 0, 2<<20)
		for b.Loop() {
			for _, f := range frames {
				if _, err := d.DecodeAll(f, buf); err != nil {
					b.Fatal(err)
				}
			}
		}
	})
	solid := format.Extent{Size: size, Object: "solid", Len: int64(len(z)), Codec: codec.Zstd, Unit: size}
	for name, in := range map[string][]Item{"sections": cutAt(xs, ends...), "solid": cutAt([]format.Extent{solid}, ends...)} {
		for _, ordered := range []bool{true, false} {
			b.Run(fmt.Sprintf("%s/ordered=%v", name, ordered), func(b *testing.B) {
				b.SetBytes(ends[len(ends)-1])
				b.ReportAllocs()
				for b.Loop() {
					g := New(open(st), Near)
					err := g.Sweep(b.Context(), items(in...), ordered, func(_ Item, r io.Reader, err error) error {
						if err == nil {
							_, err = io.Copy(io.Discard, r)
						}
						return err
					})
					g.Close()
					if err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

func BenchmarkReadAtInSequence(b *testing.B) {
	content, _ := benchSources(b)
	size := int64(len(content))
	st := &storetest.Mem{}
	z := zstdFrame(content)
	st.Put("solid", z)
	p := make([]byte, 64<<10)
	for name, x := range map[string]Extents{
		"solid":    list(format.Extent{Size: size, Object: "solid", Len: int64(len(z)), Codec: codec.Zstd}),
		"sections": nil,
	} {
		xs := []format.Extent(nil)
		if x == nil {
			xs = sections(st, "x", content, 1<<20)
		}
		b.Run(name, func(b *testing.B) {
			b.SetBytes(size)
			b.ReportAllocs()
			for b.Loop() {
				g := New(open(st), Near)
				for off := int64(0); off < size; off += int64(len(p)) {
					part := p[:min(int64(len(p)), size-off)]
					x := x
					if xs != nil {
						x = list(xs[off>>20 : min((off+int64(len(part))-1)>>20+1, int64(len(xs)))]...)
					}
					mustRead(b, g, x, part, off)
				}
				g.Close()
			}
		})
	}
}

func BenchmarkReader(b *testing.B) {
	content, _ := benchSources(b)
	size := int64(len(content))
	st := &storetest.Mem{}
	xs := sections(st, "x", content, 1<<20)
	g := New(open(st), Near)
	defer g.Close()
	b.SetBytes(size)
	b.ReportAllocs()
	for b.Loop() {
		r := g.NewReader(b.Context(), list(xs...), size)
		if n, err := io.Copy(io.Discard, r); n != size || err != nil {
			b.Fatal(n, err)
		}
		r.Close()
	}
}

func BenchmarkReadAtAtRandom(b *testing.B) {
	content, _ := benchSources(b)
	st := &storetest.Mem{}
	rnd := rand.New(rand.NewPCG(1, 2))
	p := make([]byte, 4096)
	for _, unit := range []int64{256 << 10, 1 << 20} {
		part := content[:32<<20]
		xs := sections(st, "x", part, int(unit))
		read := func(g *Engine, i int64) {
			mustRead(b, g, list(xs[i]), p, i*unit+rnd.Int64N(unit-int64(len(p))))
			if !bytes.Equal(p[:8], part[0:8]) {
				p[0]++
			}
		}
		b.Run(fmt.Sprintf("hit/unit=%d", unit), func(b *testing.B) {
			g := New(open(st), Near)
			defer g.Close()
			for i := range xs {
				read(g, int64(i))
			}
			b.ReportAllocs()
			for b.Loop() {
				read(g, rnd.Int64N(int64(len(xs))))
			}
		})
		b.Run(fmt.Sprintf("miss/unit=%d", unit), func(b *testing.B) {
			l := Near
			l.Units = 1 // keeps none
			g := New(open(st), l)
			defer g.Close()
			b.ReportAllocs()
			for b.Loop() {
				read(g, rnd.Int64N(int64(len(xs))))
			}
		})
	}
	raw := list(format.Extent{Size: int64(len(content)), Object: "raw", Len: int64(len(content))})
	st.Put("raw", content)
	b.Run("raw", func(b *testing.B) {
		g := New(open(st), Near)
		b.ReportAllocs()
		for b.Loop() {
			mustRead(b, g, raw, p, rnd.Int64N(int64(len(content)-len(p))))
		}
	})
}
