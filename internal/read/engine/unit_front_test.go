package engine

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/holdall/holdall/codec"
	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/store/storetest"
)

// The codec "front" is "counted" for those that want only the beginning.
var fronts, wholes atomic.Int64

func init() {
	codec.Register(codec.Codec{Name: "plain", Plain: true,
		Decode: func(r io.Reader) (io.ReadCloser, error) {
			b, err := io.ReadAll(r)
			if err == nil && b[0] == 0xff {
				err = errDamaged
			}
			return io.NopCloser(bytes.NewReader(b)), err
		},
		Append: func(dst, stored []byte, _ int) ([]byte, error) {
			if stored[0] == 0xff {
				return dst, errDamaged
			}
			return append(dst, stored...), nil
		},
	})
	counted, _ := codec.Lookup("counted")
	widen := func(dst, stored []byte, want int) []byte {
		for i := range want {
			dst = append(dst, stored[i/wide])
		}
		return dst
	}
	codec.Register(codec.Codec{Name: "front", Decode: counted.Decode,
		Append: func(dst, stored []byte, size int) ([]byte, error) {
			wholes.Add(1)
			return widen(dst, stored, size), nil
		},
		AppendFront: func(dst, stored []byte, size, want int) ([]byte, error) {
			fronts.Add(1)
			return widen(dst, stored, min(size, want+wide)), nil
		},
	})
}

func fronted(st *storetest.Mem, content []byte, size int) []format.Extent {
	xs := records(st, "x", content, size)
	for i := range xs {
		xs[i].Codec = "front"
	}
	return xs
}

func TestAReadDecodesNoMoreOfAUnitThanItNeeds(t *testing.T) {
	st := &storetest.Mem{}
	content := text(64 << 10)
	xs := fronted(st, content, 64<<10)
	g, _ := traced(st, Near)
	defer g.Close()
	for i, c := range []struct {
		off, n        int
		fronts, whole int64
	}{
		{0, 100, 1, 0},
		{20, 88, 1, 0},     // that much is there
		{50, 10_000, 1, 1}, // what is wanted twice, is wanted whole
		{60_000, 5_536, 1, 1},
		{0, 64 << 10, 1, 1},
	} {
		if i == 0 {
			fronts.Store(0)
			wholes.Store(0)
		}
		wantContent(t, g, content, c.off, c.n, xs...)
		if f, w := fronts.Load(), wholes.Load(); f != c.fronts || w != c.whole {
			t.Errorf("after content %d+%d: %d fronts and %d wholes were decoded, expected %d and %d", c.off, c.n, f, w, c.fronts, c.whole)
		}
	}
	// Several pieces of a unit in one read are one front.
	g2, _ := traced(st, Near)
	defer g2.Close()
	fronts.Store(0)
	wholes.Store(0)
	a, b := xs[0], xs[0]
	a.Size, b.At, b.Size, b.Skip = 50, 50, 70, 30_000
	want := append(bytes.Clone(content[:50]), content[30_000:30_070]...)
	p := make([]byte, 120)
	if err := g2.ReadAt(t.Context(), list(a, b), p, 0); err != nil || !bytes.Equal(p, want) || fronts.Load() != 1 || wholes.Load() != 0 {
		t.Errorf("two pieces: %v, right %v, %d fronts, %d wholes", err, bytes.Equal(p, want), fronts.Load(), wholes.Load())
	}
}

func TestManyReadsOfFrontsAtOnceAreRight(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	st := &storetest.Mem{}
	content := text(256 << 10)
	xs := fronted(st, content, 32<<10)
	for _, l := range []Limits{Near, {Gap: 4096, Request: 1 << 20, Parallel: 8, Units: 70 << 10}} {
		g, _ := traced(st, l)
		var wg sync.WaitGroup
		for i := range 8 {
			wg.Go(func() {
				rnd := rand.New(rand.NewPCG(seed, uint64(i)))
				for range 300 {
					off := rnd.IntN(len(content))
					n := rnd.IntN(min(len(content)-off, 1+rnd.IntN(50_000)))
					p := make([]byte, n)
					if err := g.ReadAt(t.Context(), list(xs...), p, int64(off)); err != nil || !bytes.Equal(p, content[off:][:n]) {
						t.Errorf("content %d+%d: %v, or it differs", off, n, err)
						return
					}
				}
			})
		}
		wg.Wait()
		r := g.NewReader(t.Context(), list(xs...), int64(len(content)))
		var all bytes.Buffer
		if _, err := all.ReadFrom(r); err != nil || !bytes.Equal(all.Bytes(), content) {
			t.Errorf("Reader: %v, or it differs", err)
		}
		r.Close()
		g.Close()
	}
}

func TestAWholeUnitOfAPlainCodecIsReadWithoutKeepingIt(t *testing.T) {
	st := &storetest.Mem{}
	content := []byte("a checksum would follow")
	st.Put("x", content)
	e := format.Extent{Size: int64(len(content)), Object: "x", Len: int64(len(content)), Codec: "plain", Unit: int64(len(content))}
	g, _ := traced(st, Near)
	defer g.Close()
	wantContent(t, g, content, 0, len(content), e)
	if g.units.held != 0 {
		t.Errorf("%d bytes are kept", g.units.held)
	}
	wantContent(t, g, content, 2, 10, e)
	if g.units.held == 0 {
		t.Error("a unit of which a part was read is not kept")
	}
	st.Put("x", append([]byte{0xff}, content[1:]...))
	g2, _ := traced(st, Near)
	defer g2.Close()
	if err := g2.ReadAt(t.Context(), list(e), make([]byte, len(content)), 0); !errors.Is(err, errDamaged) {
		t.Errorf("damage: %v", err)
	}
	st.Put("x", content[1:])
	g3, _ := traced(st, Near)
	defer g3.Close()
	if err := g3.ReadAt(t.Context(), list(e), make([]byte, len(content)), 0); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("cut: %v", err)
	}
}
