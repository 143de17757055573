package engine

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/holdall/holdall/codec"
	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/testkit"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storetest"
)

// solidUnit stores content as one unit that is too long to be held, or whose length is not
// stated.
func solidUnit(st *storetest.Mem, name string, content []byte, said bool) format.Extent {
	z := narrow(content)
	st.Put(name, z)
	x := format.Extent{Size: int64(len(content)), Object: name, Len: int64(len(z)), Codec: "counted"}
	if said {
		x.Unit = x.Size
	}
	return x
}

// asked returns a store that counts the bytes asked for.
func asked(st store.Store) (store.Store, *atomic.Int64) {
	var n atomic.Int64
	return storetest.Fault(st, func(op, _ string, _, k int64) error {
		if op == "read" {
			n.Add(k)
		}
		return nil
	}), &n
}

func TestReadsInSequenceDecodeASolidUnitOnce(t *testing.T) {
	st := &storetest.Mem{}
	content := text(50 << 20)
	const step = 64 << 10
	for said, limits := range map[bool][]Limits{false: {Near}, true: {Near, Far}} {
		x := solidUnit(st, "x", content, said)
		for _, l := range limits {
			st, stored := asked(st)
			g := New(open(st), l)
			decodes, decoded := counting()
			for off := 0; off < len(content); off += step {
				wantContent(t, g, content, off, min(step, len(content)-off), x)
			}
			if decodes() != 1 || decoded() > x.Size || stored.Load() > x.Len {
				t.Errorf("said %v, %+v: decoded %d times, %d bytes of %d, from %d stored of %d", said, l, decodes(), decoded(), x.Size, stored.Load(), x.Len)
			}
			// Backwards it takes a new one each time.
			n := decodes()
			wantContent(t, g, content, 3*step, step, x)
			wantContent(t, g, content, 2*step, step, x)
			wantContent(t, g, content, 4*step, step, x)
			if decodes() != n+2 {
				t.Errorf("backwards: %d decodes, expected 2", decodes()-n)
			}
			g.Close()
		}
	}
	if n := tally.open.Load(); n != 0 {
		t.Errorf("%d decoders are open after Close", n)
	}
}

func TestReadersOfASolidUnitTakeUpWhereOthersStopped(t *testing.T) {
	st := &storetest.Mem{}
	content := text(20 << 20)
	x := solidUnit(st, "x", content, true)
	g := New(open(st), Near)
	defer g.Close()
	decodes, decoded := counting()
	rnd := testkit.Rand(t)
	for off := int64(0); off < x.Size; {
		n := min(rnd.Int64N(3<<20), x.Size-off)
		r := g.NewReader(t.Context(), list(cut([]format.Extent{x}, off, n)...), n)
		part := rnd.Int64N(n + 1)
		b, err := io.ReadAll(io.LimitReader(r, part)) // and leaves the rest
		if err != nil || !bytes.Equal(b, content[off:][:part]) {
			t.Fatalf("content %d+%d: %v", off, part, err)
		}
		r.Close()
		off += n
	}
	if decodes() != 1 || decoded() > x.Size {
		t.Errorf("decoded %d times, %d bytes", decodes(), decoded())
	}
}

func TestParallelReadsOfSolidUnitsAreRight(t *testing.T) {
	rnd := testkit.Rand(t)
	st := &storetest.Mem{}
	content := text(2 << 20)
	z := zstdFrame(content)
	st.Put("z", z)
	xs := []format.Extent{
		solidUnit(st, "x", content, false),
		{Size: int64(len(content)), Object: "z", Len: int64(len(z)), Codec: codec.Zstd},
	}
	for _, l := range []Limits{Near, Far} {
		g := New(open(st), l)
		var wg sync.WaitGroup
		for range 8 {
			rnd := rand.New(rand.NewPCG(rnd.Uint64(), 0))
			wg.Go(func() {
				for range 25 {
					off := rnd.IntN(len(content))
					p := make([]byte, rnd.IntN(min(200_000, len(content)-off)))
					x := xs[rnd.IntN(2)]
					if rnd.IntN(2) == 0 {
						r := g.NewReaderAt(t.Context(), list(x), int64(off), x.Size)
						_, err := io.ReadFull(r, p)
						r.Close()
						if err != nil || !bytes.Equal(p, content[off:][:len(p)]) {
							t.Errorf("Reader: %d+%d: %v", off, len(p), err)
						}
					} else if err := g.ReadAt(t.Context(), list(x), p, int64(off)); err != nil || !bytes.Equal(p, content[off:][:len(p)]) {
						t.Errorf("ReadAt: %d+%d: %v", off, len(p), err)
					}
					g.cursors.mu.Lock()
					if n := len(g.cursors.idle); n > maxIdle {
						t.Errorf("%d cursors are idle", n)
					}
					g.cursors.mu.Unlock()
				}
			})
		}
		wg.Wait()
		g.Close()
	}
	if n := tally.open.Load(); n != 0 {
		t.Errorf("%d decoders are open after Close", n)
	}
}

func TestACursorOutlivesTheContextOfARead(t *testing.T) {
	st := &storetest.Mem{}
	content := text(4 << 20)
	x := solidUnit(st, "x", content, false)
	for _, l := range []Limits{Near, Far} {
		g := New(open(st), l)
		decodes, _ := counting()
		for off := int64(0); off < x.Size; off += 1 << 18 {
			ctx, cancel := context.WithCancel(t.Context())
			p := make([]byte, 1<<18)
			if err := g.ReadAt(ctx, list(x), p, off); err != nil || !bytes.Equal(p, content[off:][:len(p)]) {
				t.Fatalf("%+v: at %d: %v", l, off, err)
			}
			cancel()
		}
		if decodes() != 1 {
			t.Errorf("%+v: decoded %d times", l, decodes())
		}
		g.Close()
	}
}

func TestACancelledReadOfASolidUnitEndsItsCursor(t *testing.T) {
	for _, l := range []Limits{Near, Far} {
		inBubble(t, l, func(t *testing.T, g *Engine, st *storetest.Mem) {
			content := text(16 << 20)
			x := solidUnit(st, "x", content, false)
			wantContent(t, g, content, 0, 1000, x)
			ctx, cancel := context.WithCancelCause(t.Context())
			enough := errors.New("enough")
			go func() { synctest.Wait(); cancel(enough) }()
			if err := g.ReadAt(ctx, list(x), make([]byte, 1000), 15<<20); !errors.Is(err, enough) {
				t.Errorf("expected %v, found %v", enough, err)
			}
			if n := tally.open.Load(); n != 0 {
				t.Errorf("%d decoders are open", n)
			}
			// That is not the unit's fault.
			wantContent(t, g, content, 15<<20, 1000, x)
		})
	}
}

// A bubble of synctest ends in a panic if a goroutine is left in it.
func TestCloseEndsIdleCursors(t *testing.T) {
	inBubble(t, Far, func(t *testing.T, g *Engine, st *storetest.Mem) {
		content := text(8 << 20)
		x := solidUnit(st, "x", content, false)
		wantContent(t, g, content, 1<<20, 1000, x)
		r := g.NewReader(t.Context(), list(x), x.Size)
		if _, err := io.ReadFull(r, make([]byte, 100_000)); err != nil {
			t.Fatal(err)
		}
		g.Close()
		r.Close() // later than it should: its cursor is not kept either
		if n := tally.open.Load(); n != 0 {
			t.Errorf("%d decoders are open after Close", n)
		}
	})
}

func TestDamageOfASolidUnitIsFoundOnce(t *testing.T) {
	st := &storetest.Mem{}
	content := text(4 << 20)
	x := solidUnit(st, "x", content, true)
	x.Unit = 0
	whole := st.Get("x")
	half := len(whole) / 2
	for what, stored := range map[string][]byte{
		"cut off": whole[:half],
		"damaged": append(append(bytes.Clone(whole[:half]), 0xff), whole[half+1:]...),
	} {
		st.Put("x", stored)
		for _, l := range []Limits{Near, Far} {
			g := New(open(st), l)
			const step = 10_000
			_, decoded := counting()
			for off := 0; off+step <= len(content); off += step {
				p := make([]byte, step)
				err := g.ReadAt(t.Context(), list(x), p, int64(off))
				if off+step <= half*wide {
					if err != nil || !bytes.Equal(p, content[off:][:step]) {
						t.Fatalf("%s: at %d, before the damage: %v", what, off, err)
					}
				} else if err == nil {
					t.Fatalf("%s: %d can be read, behind the damage", what, off)
				}
			}
			if n := decoded(); n > 2*x.Size {
				t.Errorf("%s, %+v: %d bytes were decoded", what, l, n)
			}
			g.Close()
		}
	}
}

func TestAFailedRequestIsNotRememberedOfASolidUnit(t *testing.T) {
	st := &storetest.Mem{}
	content := text(4 << 20)
	x := solidUnit(st, "x", content, false)
	broken := errors.New("broken")
	for k := 1; k < 4; k++ {
		g := New(open(storetest.Fault(st, storetest.Nth("read", k, broken))), Near)
		if err := g.ReadAt(t.Context(), list(x), make([]byte, 10), x.Size-10); !errors.Is(err, broken) {
			t.Errorf("request %d: expected %v, found %v", k, broken, err)
		}
		wantContent(t, g, content, len(content)-10, 10, x)
		g.Close()
	}
}

// The last read of a unit fails if its checksum does not match.
func TestAChecksumIsLookedAtWhereASolidUnitEnds(t *testing.T) {
	testkit.Serial(t)
	st := &storetest.Mem{}
	content := text(maxUnit + 1000)
	z := zstdFrame(content)
	z[len(z)-1] ^= 1
	st.Put("z", z)
	x := format.Extent{Size: int64(len(content)), Object: "z", Len: int64(len(z)), Codec: codec.Zstd, Unit: int64(len(content))}
	g := New(open(st), Near)
	defer g.Close()
	wantContent(t, g, content, 0, 1000, x)
	wantContent(t, g, content, maxUnit, 999, x)
	for range 2 {
		if err := g.ReadAt(t.Context(), list(x), make([]byte, 100), x.Size-100); !errors.Is(err, codec.ErrChecksum) {
			t.Errorf("expected ErrChecksum, found %v", err)
		}
	}
	r := g.NewReader(t.Context(), list(x), x.Size)
	defer r.Close()
	if _, err := io.Copy(io.Discard, r); !errors.Is(err, codec.ErrChecksum) {
		t.Errorf("Reader: expected ErrChecksum, found %v", err)
	}
}

func TestASolidUnitThatGoesOnBehindItsEndIsDamaged(t *testing.T) {
	st := &storetest.Mem{}
	content := text(maxUnit + 1000)
	x := solidUnit(st, "x", content, true)
	x.Size, x.Unit = x.Size-wide, x.Unit-wide
	g := New(open(st), Near)
	defer g.Close()
	wantContent(t, g, content, maxUnit, 991, x)
	if err := g.ReadAt(t.Context(), list(x), make([]byte, 100), x.Size-100); err == nil {
		t.Error("the end of a unit that goes on is read")
	}
}
