package engine

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"strconv"
	"testing"

	"github.com/holdall/holdall/codec"
	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/testkit"
	"github.com/holdall/holdall/store/storetest"
)

// pointsOf are the points of one unit.
type pointsOf []codec.Point

func (p pointsOf) Before(_ context.Context, e format.Extent) (at int64) {
	for _, x := range p {
		if x.At <= e.Skip {
			at = x.At
		}
	}
	return at
}

func (p pointsOf) Point(_ context.Context, _ format.Extent, at int64) (codec.Point, error) {
	for _, x := range p {
		if x.At == at {
			return x, nil
		}
	}
	return codec.Point{}, errors.New("no such point")
}

// pointed stores content as one member of gzip with points every 500,000 bytes.
func pointed(t *testing.T, st *storetest.Mem, content []byte) (format.Extent, pointsOf) {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	if _, err := z.Write(content); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	st.Put("z", b.Bytes())
	var p pointsOf
	c, _ := codec.Lookup(codec.Gzip)
	if _, err := c.Points(bytes.NewReader(b.Bytes()), 500_000, func(x codec.Point) error { p = append(p, x); return nil }); err != nil || len(p) < 5 {
		t.Fatalf("%d points, %v", len(p), err)
	}
	return format.Extent{Size: int64(len(content)), Object: "z", Len: int64(b.Len()), Codec: codec.Gzip}, p
}

// numbered is content that compresses to a third of its length, and in which no two pieces are
// alike.
func numbered(n int) (b []byte) {
	for i := uint64(0); len(b) < n; i++ {
		b = strconv.AppendUint(append(b, ' '), i*i*2654435761, 36)
	}
	return b[:n]
}

func TestLongUnitsAreReadFromPointsOn(t *testing.T) {
	testkit.Long(t)
	mem := &storetest.Mem{}
	content := numbered(6 << 20)
	x, p := pointed(t, mem, content)
	st, stored := asked(mem)
	for _, l := range []Limits{Near, Far} {
		g := New(open(st), l)
		g.UsePoints(p)
		rnd := rand.New(rand.NewPCG(1, 2))
		for range 40 {
			off := rnd.IntN(len(content) - 1000)
			before := stored.Load()
			wantContent(t, g, content, off, 1000, x)
			if n := stored.Load() - before; l == Near && n > 600_000 {
				t.Errorf("%d bytes were read for 1000 at %d", n, off)
			}
		}
		wantContent(t, g, content, 0, len(content), x)
		// A later read goes on where one stopped, in the same stretch.
		off := int(p[3].At) + 1000
		wantContent(t, g, content, off, 1000, x)
		before := stored.Load()
		wantContent(t, g, content, off+1000, 1000, x)
		if n := stored.Load() - before; n > 200_000 {
			t.Errorf("%d bytes were read to go on", n)
		}
		g.Close()
	}
}

func TestDamageIsPassedByPoints(t *testing.T) {
	testkit.Serial(t)
	mem := &storetest.Mem{}
	content := numbered(4 << 20)
	x, p := pointed(t, mem, content)
	b := mem.Get("z")
	at := p[1].Off + 1000
	for i := range 200 {
		b[at+int64(i)] ^= 0xA5
	}
	mem.Put("z", b)
	g := New(open(mem), Near)
	defer g.Close()
	g.UsePoints(p)
	buf := make([]byte, 1000)
	for range 2 { // the second time it is known
		if err := g.ReadAt(t.Context(), list(x), buf, p[2].At-2000); err == nil {
			// A damaged stream may go on for a while; never to the end of it.
			err = g.ReadAt(t.Context(), list(x), make([]byte, len(content)), 0)
			if err == nil {
				t.Error("damage was not noticed")
			}
		}
		wantContent(t, g, content, int(p[3].At)+5, 1000, x)
		wantContent(t, g, content, int(p[0].At)+5, 1000, x)
	}
}

// brokenPoints are none.
type brokenPoints struct{ pointsOf }

func (brokenPoints) Point(context.Context, format.Extent, int64) (codec.Point, error) {
	return codec.Point{}, errors.New("damaged")
}

// farPoints lie at positions that were not requested.
type farPoints struct{ pointsOf }

func (farPoints) Before(_ context.Context, e format.Extent) int64 { return e.Skip + 1 }

func TestWithoutPointsAUnitIsReadFromItsBeginning(t *testing.T) {
	testkit.Long(t)
	mem := &storetest.Mem{}
	content := numbered(4 << 20)
	x, p := pointed(t, mem, content)
	for _, points := range []Points{brokenPoints{p}, farPoints{p}, pointsOf{}} {
		g := New(open(mem), Near)
		g.UsePoints(points)
		wantContent(t, g, content, len(content)-1000, 1000, x)
		g.Close()
	}
	g := New(open(mem), Near)
	defer g.Close()
	o, err := mem.Open(t.Context(), "z")
	if err != nil {
		t.Fatal(err)
	}
	defer o.Close()
	r := g.Stored(t.Context(), o, 10, 100_000)
	if b, err := io.ReadAll(r); err != nil || !bytes.Equal(b, mem.Get("z")[10:100_010]) {
		t.Errorf("%d stored bytes, %v", len(b), err)
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
}
