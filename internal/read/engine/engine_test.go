package engine

import (
	"bytes"
	"compress/flate"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"

	"github.com/holdall/holdall/codec"
	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/testkit"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storetest"
)

func init() {
	codec.Register(codec.Codec{Name: "flate", Decode: func(r io.Reader) (io.ReadCloser, error) { return flate.NewReader(r), nil }})
}

func deflate(b []byte) []byte {
	var w bytes.Buffer
	f, err := flate.NewWriter(&w, 6)
	if err == nil {
		_, err = f.Write(b)
	}
	if err = errors.Join(err, f.Close()); err != nil {
		panic(err)
	}
	return w.Bytes()
}

func list(xs ...format.Extent) Extents {
	return func(yield func(format.Extent, error) bool) {
		for _, x := range xs {
			if !yield(x, nil) {
				return
			}
		}
	}
}

// open gives the objects of a store, as package holdall does.
func open(st store.Store) Open {
	return func(ctx context.Context, name string, _ bool) (store.Object, error) { return st.Open(ctx, name) }
}

func zstdFrame(b []byte, o ...zstd.EOption) []byte {
	e, err := zstd.NewWriter(nil, append(o, zstd.WithEncoderConcurrency(1))...)
	if err != nil {
		panic(err)
	}
	return e.EncodeAll(b, nil)
}

// zstdBlocks is b as the blocks of a frame.
func zstdBlocks(b []byte) []byte {
	f := zstdFrame(b, zstd.WithEncoderCRC(false), zstd.WithSingleSegment(true), zstd.WithZeroFrames(true))
	at := 5 + []int{1, 2, 4, 8}[f[4]>>6]
	blocks := f[at:]
	for at := 0; at < len(blocks); {
		h := int(blocks[at]) | int(blocks[at+1])<<8 | int(blocks[at+2])<<16
		blocks[at] &^= 1
		if at += 3; h>>1&3 == 1 {
			at++
		} else {
			at += h >> 3
		}
	}
	return blocks
}

// sections stores b in an object, as consecutive units of size bytes.
func sections(st *storetest.Mem, name string, b []byte, size int) (xs []format.Extent) {
	var stored []byte
	for at := 0; at < len(b); at += size {
		part := b[at:min(at+size, len(b))]
		z := zstdBlocks(part)
		n := int64(len(part))
		xs = append(xs, format.Extent{At: int64(at), Size: n, Object: name, Off: int64(len(stored)), Len: int64(len(z)), Codec: codec.ZstdBlocks, Unit: n})
		stored = append(stored, z...)
	}
	st.Put(name, stored)
	return xs
}

// cut returns what of xs makes content [off, off+n), as an item of its own.
func cut(xs []format.Extent, off, n int64) (part []format.Extent) {
	for _, e := range xs {
		if e = trim(e, off, n); e.Size > 0 {
			e.At -= off
			part = append(part, e)
		}
	}
	return part
}

// A shape is one way to store one content.
type shape struct {
	name    string
	content []byte
	extents Extents
}

// solidFrame is the one that has a checksum.
const solidFrame = "a slice of a solid zstd frame"

// shapes puts one content into st in the five formats' ways.
func shapes(rnd *rand.Rand, st *storetest.Mem) []shape {
	content := make([]byte, 3000)
	for i := range content {
		content[i] = byte('a' + rnd.IntN(4))
	}
	holed := bytes.Clone(content)
	clear(holed[1024:2048])

	st.Put("run", append([]byte("other"), content...))
	st.Put("pieces", content[:1000])
	st.Put("https://elsewhere/y", content[1700:])
	solid := deflate(append(append(make([]byte, 777), content...), "tail"...))
	st.Put("solid", append(make([]byte, 64), solid...))
	first, last := deflate(append([]byte("123"), content[:1024]...)), deflate(content[2048:])
	st.Put("shard-00000000", first)
	st.Put("shard-00000001", last)
	perm := rnd.Perm(47)
	segment := make([]byte, 47*64)
	var blocks []format.Extent
	for i, j := range perm {
		copy(segment[j*64:], content[i*64:min(3000, i*64+64)])
		size := min(64, 3000-int64(i)*64)
		blocks = append(blocks, format.Extent{At: int64(i) * 64, Size: size, Object: "data00000a.tar", Off: int64(j) * 64, Len: size})
	}
	st.Put("data00000a.tar", segment)
	return []shape{
		{"one run", content, list(format.Extent{Size: 3000, Object: "run", Off: 5, Len: 3000})},
		{"own run, inline bytes, another object", content, list(
			format.Extent{Size: 1000, Object: "pieces", Len: 1000},
			format.Extent{At: 1000, Size: 700, Codec: codec.Inline, Data: content[990:1700], Skip: 10},
			format.Extent{At: 1700, Size: 1300, Object: "https://elsewhere/y", Len: 1300})},
		{"a slice of one solid frame", content, list(
			format.Extent{Size: 3000, Object: "solid", Off: 64, Len: int64(len(solid)), Codec: "flate", Skip: 777})},
		{"records over shards, zeros between", holed, list(
			format.Extent{Size: 1024, Object: "shard-00000000", Len: int64(len(first)), Codec: "flate", Skip: 3},
			format.Extent{At: 1024, Size: 1024, Codec: codec.Zero},
			format.Extent{At: 2048, Size: 952, Object: "shard-00000001", Len: int64(len(last)), Codec: "flate"})},
		{"records over shards, a hole between", holed, list(
			format.Extent{Size: 1024, Object: "shard-00000000", Len: int64(len(first)), Codec: "flate", Skip: 3},
			format.Extent{At: 2048, Size: 952, Object: "shard-00000001", Len: int64(len(last)), Codec: "flate"})},
		{"records of known size", content, list(
			format.Extent{Size: 1024, Object: "shard-00000000", Len: int64(len(first)), Codec: "flate", Skip: 3, Unit: 1027},
			format.Extent{At: 1024, Size: 1024, Object: "run", Off: 5 + 1024, Len: 1024},
			format.Extent{At: 2048, Size: 952, Object: "shard-00000001", Len: int64(len(last)), Codec: "flate", Unit: 952})},
		{"slices of one record", content, list(
			format.Extent{Size: 1000, Object: "solid", Off: 64, Len: int64(len(solid)), Codec: "flate", Skip: 777, Unit: 3781},
			format.Extent{At: 1000, Size: 1, Object: "solid", Off: 64, Len: int64(len(solid)), Codec: "flate", Skip: 1777, Unit: 3781},
			format.Extent{At: 1001, Size: 1999, Object: "solid", Off: 64, Len: int64(len(solid)), Codec: "flate", Skip: 1778, Unit: 3781})},
		{"sections", content, list(sections(st, "sections", content, 100)...)},
		{"one section", content, list(sections(st, "section", content, 3000)...)},
		{solidFrame, content, list(func() format.Extent {
			z := zstdFrame(append(make([]byte, 777), content...))
			st.Put("zsolid", z)
			return format.Extent{Size: 3000, Object: "zsolid", Len: int64(len(z)), Codec: codec.Zstd, Skip: 777}
		}())},
		{"scattered blocks", content, list(blocks...)},
		{"nothing but a hole", make([]byte, 500), list()},
		{"nothing", nil, list()},
	}
}

// anyLimits returns limits that join all or nothing, read in bits or at once.
func anyLimits(rnd *rand.Rand) Limits {
	switch rnd.IntN(4) {
	case 0:
		return Far
	case 1:
		return Near
	}
	return Limits{Gap: rnd.Int64N(200), Request: rnd.Int64N(1 << rnd.IntN(13)), Parallel: rnd.IntN(5), Ahead: rnd.IntN(4)}
}

func TestReadAtGivesTheContentOfEveryShape(t *testing.T) {
	testkit.Long(t)
	rnd := testkit.Rand(t)
	st := &storetest.Mem{}
	for _, s := range shapes(rnd, st) {
		t.Run(s.name, func(t *testing.T) {
			for range 150 {
				l := anyLimits(rnd)
				off := rnd.Int64N(int64(len(s.content)) + 1)
				p := bytes.Repeat([]byte("?"), rnd.IntN(len(s.content)-int(off)+1))
				g := New(open(st), l)
				err := g.ReadAt(t.Context(), s.extents, p, off)
				g.Close()
				if err != nil {
					t.Fatalf("%+v: %d+%d: %v", l, off, len(p), err)
				}
				if !bytes.Equal(p, s.content[off:][:len(p)]) {
					t.Fatalf("%+v: bytes %d+%d differ", l, off, len(p))
				}
			}
		})
	}
}

func TestReaderGivesTheContentOfEveryShape(t *testing.T) {
	testkit.Long(t)
	rnd := testkit.Rand(t)
	st := &storetest.Mem{}
	for _, s := range shapes(rnd, st) {
		t.Run(s.name, func(t *testing.T) {
			for i := range 100 {
				l := anyLimits(rnd)
				g, size := New(open(st), l), int64(len(s.content))
				off := int64(0)
				r := g.NewReader(t.Context(), s.extents, size)
				if i%2 == 1 {
					off = rnd.Int64N(size + 1)
					r = g.NewReaderAt(t.Context(), s.extents, off, size)
				}
				got := []byte{}
				for {
					p := make([]byte, rnd.IntN(1<<rnd.IntN(13)))
					n, err := r.Read(p)
					got = append(got, p[:n]...)
					if err == io.EOF {
						break
					}
					if err != nil || n == 0 && len(p) > 0 {
						t.Fatalf("%+v: from %d: %d bytes, %v", l, off, n, err)
					}
				}
				if !bytes.Equal(got, s.content[off:]) {
					t.Fatalf("%+v: from %d: found %d bytes that differ from %d", l, off, len(got), len(s.content[off:]))
				}
				if err := r.Close(); err != nil {
					t.Error(err)
				}
				g.Close()
			}
		})
	}
}

func TestReaderBeyondTheEndIsAtTheEnd(t *testing.T) {
	g := New(open(&storetest.Mem{}), Near)
	for _, off := range []int64{5, 6, 1 << 40} {
		r := g.NewReaderAt(t.Context(), list(format.Extent{Size: 5, Codec: codec.Zero}), off, 5)
		if n, err := r.Read(make([]byte, 10)); n != 0 || err != io.EOF {
			t.Errorf("from %d of 5: %d, %v", off, n, err)
		}
		r.Close()
	}
}

func TestPlanJoinsWhatLiesClose(t *testing.T) {
	extents := func(s string) (xs []format.Extent) {
		for f := range strings.FieldsSeq(s) {
			var e format.Extent
			e.Object = "x"
			if rest, ok := strings.CutPrefix(f, "y:"); ok {
				e.Object, f = "y", rest
			}
			if rest, ok := strings.CutPrefix(f, "z:"); ok {
				e.Codec, f = "flate", rest
			}
			if _, err := fmt.Sscanf(f, "%d+%d", &e.Off, &e.Len); err != nil {
				t.Fatal(err)
			}
			e.Size = e.Len
			xs = append(xs, e)
		}
		return xs
	}
	for _, tt := range []struct{ in, want string }{
		{"", ""},
		{"0+10 10+10", "0+20"},
		{"0+10 14+6", "0+20"},        // a gap of 4
		{"0+10 15+5", "0+10 15+5"},   // of 5
		{"20+5 0+10", "0+10 20+5"},   // order does not matter
		{"0+60 60+60", "0+60 60+60"}, // together longer than 100
		{"0+60 60+40 100+1", "0+100 100+1"},
		{"0+10 5+10 0+10", "0+15"},        // shared bytes once
		{"0+50 10+5 48+4", "0+52"},        // one inside the other
		{"0+250", "0+100 100+100 200+50"}, // raw is cut
		{"z:0+250", "0+250"},              // a unit is not
		{"z:0+250 250+5", "0+250 250+5"},  // and nothing is joined to a long one
		{"z:0+250 z:10+5", "0+250 10+5"},  // not even what lies within
		{"z:0+20 z:0+20 20+5", "0+25"},    // units and raw together
		{"0+10 y:10+10", "0+10 y:10+10"},  // a different object
		{"y:0+10 0+10 y:12+1", "0+10 y:0+13"},
	} {
		var got []string
		for _, r := range plan(extents(tt.in), Limits{Gap: 4, Request: 100}) {
			prefix := ""
			if r.object != "x" {
				prefix = r.object + ":"
			}
			got = append(got, fmt.Sprintf("%s%d+%d", prefix, r.off, r.len))
			for _, e := range r.extents {
				if e.Object != r.object || e.Off < r.off || e.Off+e.Len > r.off+r.len {
					t.Errorf("plan(%s): %s %d+%d is served by %s %d+%d", tt.in, e.Object, e.Off, e.Len, r.object, r.off, r.len)
				}
			}
		}
		if s := strings.Join(got, " "); s != tt.want {
			t.Errorf("plan(%s) = %s, want %s", tt.in, s, tt.want)
		}
	}
}

// traced returns an engine over st and what was asked of st so far.
func traced(st store.Store, l Limits) (*Engine, *bytes.Buffer) {
	var log bytes.Buffer
	return New(open(storetest.Trace(st, &log)), l), &log
}

func wantRequests(t *testing.T, log *bytes.Buffer, want ...string) {
	t.Helper()
	if got := strings.TrimSpace(log.String()); got != strings.Join(want, "\n") {
		t.Errorf("requests: expected\n%s\nfound\n%s", strings.Join(want, "\n"), got)
	}
	log.Reset()
}

func TestReadAtAsksForNoMoreThanItNeeds(t *testing.T) {
	st := &storetest.Mem{}
	unit := deflate(make([]byte, 5000))
	st.Put("x", make([]byte, 100_000))
	st.Put("z", append(unit, unit...))
	l := Limits{Gap: 100, Request: 1000, Parallel: 1}
	g, log := traced(st, l)
	read := func(off, n int64, xs ...format.Extent) {
		t.Helper()
		if err := g.ReadAt(t.Context(), list(xs...), make([]byte, n), off); err != nil {
			t.Error(err)
		}
	}
	run := func(at, off, n int64) format.Extent {
		return format.Extent{At: at, Size: n, Object: "x", Off: off, Len: n}
	}
	read(0, 10, run(0, 50, 10))
	wantRequests(t, log, "read x at 50+10")
	read(3, 4, run(0, 50, 10))
	wantRequests(t, log, "read x at 53+4")
	read(2, 3, format.Extent{Size: 10, Object: "x", Off: 50, Len: 40, Skip: 7})
	wantRequests(t, log, "read x at 59+3")
	read(0, 20, run(0, 50, 10), run(10, 160, 10))
	wantRequests(t, log, "read x at 50+120")
	read(0, 20, run(0, 50, 10), run(10, 161, 10))
	wantRequests(t, log, "read x at 50+10", "read x at 161+10")
	read(0, 2500, run(0, 50, 2500))
	wantRequests(t, log, "read x at 50+1000", "read x at 1050+1000", "read x at 2050+500")
	read(10, 10, run(0, 0, 10), run(20, 500, 10)) // the hole between
	wantRequests(t, log)
	read(0, 10, format.Extent{Size: 10, Codec: codec.Zero})
	wantRequests(t, log)
	read(0, 10, format.Extent{Size: 10, Codec: codec.Inline, Data: make([]byte, 10)})
	wantRequests(t, log)
	read(0, 0, run(0, 50, 10))
	wantRequests(t, log)
	n := int64(len(unit))
	read(100, 10, format.Extent{Size: 5000, Object: "z", Len: n, Codec: "flate"})
	wantRequests(t, log, fmt.Sprintf("read z at 0+%d", n))
	read(0, 20, format.Extent{Size: 10, Object: "z", Len: n, Codec: "flate", Unit: 5000}, format.Extent{At: 10, Size: 10, Object: "z", Off: n, Len: n, Codec: "flate", Skip: 9, Unit: 5000})
	wantRequests(t, log, fmt.Sprintf("read z at 0+%d", 2*n))
}

func TestHolesReadAsZeros(t *testing.T) {
	st := &storetest.Mem{}
	st.Put("x", []byte("abcdefghij"))
	xs := list(format.Extent{At: 2, Size: 2, Object: "x", Len: 2}, format.Extent{At: 6, Size: 1, Object: "x", Off: 9, Len: 1})
	const want = "\x00\x00ab\x00\x00j\x00\x00\x00"
	for _, l := range []Limits{Near, Far, {}} {
		g := New(open(st), l)
		p := bytes.Repeat([]byte("?"), len(want))
		if err := g.ReadAt(t.Context(), xs, p, 0); err != nil || string(p) != want {
			t.Errorf("%+v: ReadAt: %q, %v", l, p, err)
		}
		r := g.NewReader(t.Context(), xs, int64(len(want)))
		if b, err := io.ReadAll(r); err != nil || string(b) != want {
			t.Errorf("%+v: Reader: %q, %v", l, b, err)
		}
		r.Close()
	}
}

func TestReadAtRefusesOverlappingExtents(t *testing.T) {
	st := &storetest.Mem{}
	st.Put("x", make([]byte, 100))
	x := func(at, n int64) format.Extent { return format.Extent{At: at, Size: n, Object: "x", Len: n} }
	for _, xs := range [][]format.Extent{{x(0, 10), x(9, 10)}, {x(10, 10), x(0, 10)}, {x(0, 10), x(0, 10)}} {
		if err := New(open(st), Near).ReadAt(t.Context(), list(xs...), make([]byte, 20), 0); err == nil {
			t.Errorf("%+v are read", xs)
		}
	}
}

// insane are extents that a hostile archive could have a format make.
var insane = []format.Extent{
	{Size: -1},
	{At: -1, Size: 10, Len: 10},
	{Size: 10, Off: -1, Len: 10},
	{Size: 10, Len: -10},
	{Size: 10, Len: 20, Skip: -1},
	{Size: 10, Len: 9},
	{Size: 10, Len: 15, Skip: 6},
	{Size: 10, Codec: codec.Inline, Data: make([]byte, 9)},
	{Size: 10, Codec: codec.Inline, Data: make([]byte, 15), Skip: 6},
	{Size: 10, Codec: codec.Inline, Data: make([]byte, 15), Skip: math.MaxInt64},
	{At: math.MaxInt64, Size: 10, Len: 10},
	{Size: 10, Off: math.MaxInt64, Len: 10},
	{Size: math.MaxInt64, Len: math.MaxInt64},
	{Size: 10, Len: math.MaxInt64, Skip: math.MaxInt64},
	{Size: 10, Len: math.MaxInt64, Codec: "flate"},
	{Size: 10, Len: 10, Skip: math.MaxInt64, Codec: "flate"},
	{Size: math.MaxInt64, Codec: codec.Zero},
	{Size: 10, Len: 10, Codec: "no such codec"},
	{Size: 10, Off: 95, Len: 10},
	{Size: 10, Off: 95, Len: 10, Codec: "flate"},
	{Size: 10, Off: 1 << 62, Len: 1 << 62, Skip: 1<<62 - 10},
	{Size: 10, Len: 10, Codec: "flate"}, // is none
	{Size: 10, Len: 10, Object: "not there"},
}

func TestInsaneExtentsAreErrors(t *testing.T) {
	st := &storetest.Mem{}
	st.Put("x", make([]byte, 100))
	for _, l := range []Limits{Near, Far, {}} {
		for _, x := range insane {
			if x.Object == "" {
				x.Object = "x"
			}
			g := New(open(st), l)
			if err := g.ReadAt(t.Context(), list(x), make([]byte, 10), 0); err == nil {
				t.Errorf("%+v: ReadAt of %+v", l, x)
			}
			r := g.NewReader(t.Context(), list(x), 10)
			if _, err := io.ReadAll(r); err == nil {
				t.Errorf("%+v: Reader of %+v", l, x)
			}
			// The error stays.
			if n, err := r.Read(make([]byte, 1)); n != 0 || err == nil || err == io.EOF {
				t.Errorf("%+v: Reader of %+v, read again: %d, %v", l, x, n, err)
			}
			r.Close()
		}
	}
}

func TestExtentErrorsComeUp(t *testing.T) {
	broken := errors.New("broken")
	xs := func(yield func(format.Extent, error) bool) {
		_ = yield(format.Extent{Size: 5, Codec: codec.Zero}, nil) && yield(format.Extent{}, broken)
	}
	g := New(open(&storetest.Mem{}), Far)
	if err := g.ReadAt(t.Context(), xs, make([]byte, 10), 0); !errors.Is(err, broken) {
		t.Errorf("ReadAt: %v", err)
	}
	r := g.NewReader(t.Context(), xs, 10)
	defer r.Close()
	if b, err := io.ReadAll(r); len(b) != 5 || !errors.Is(err, broken) {
		t.Errorf("Reader: %d bytes, %v", len(b), err)
	}
}

// A unit that decodes to less than its extent says is an error, not zeros.
func TestShortUnitIsAnError(t *testing.T) {
	st := &storetest.Mem{}
	unit := deflate([]byte("twelve bytes"))
	st.Put("x", append(unit, unit...))
	n := int64(len(unit))
	for _, xs := range [][]format.Extent{
		{{Size: 13, Object: "x", Len: n, Codec: "flate"}},
		{{Size: 10, Object: "x", Len: n, Codec: "flate", Skip: 3}},
		{{Size: 10, Object: "x", Len: n, Codec: "flate", Skip: 13}},
		{{Size: 12, Object: "x", Len: n, Codec: "flate"}, {At: 12, Size: 13, Object: "x", Off: n, Len: n, Codec: "flate"}},
		{{Size: 12, Object: "x", Len: 5, Codec: "flate"}},
	} {
		last := xs[len(xs)-1]
		size := last.At + last.Size
		g := New(open(st), Far)
		if err := g.ReadAt(t.Context(), list(xs...), make([]byte, size), 0); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("%+v: ReadAt: %v", xs, err)
		}
		r := g.NewReader(t.Context(), list(xs...), size)
		if _, err := io.ReadAll(r); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("%+v: Reader: %v", xs, err)
		}
		r.Close()
	}
}

// Every request that fails must come up, whichever it is.
func TestFailedRequestsComeUp(t *testing.T) {
	rnd := testkit.Rand(t)
	st := &storetest.Mem{}
	broken := errors.New("broken")
	for _, s := range shapes(rnd, st) {
		for k := 1; ; k++ {
			c := storetest.Count(storetest.Nth("", k, broken))
			g := New(open(storetest.Fault(st, c.Inject)), Limits{Gap: 10, Request: 200, Parallel: 2})
			got := make([]byte, len(s.content))
			err := g.ReadAt(t.Context(), s.extents, got, 0)
			if n, _ := c.Injected(); n == 0 {
				break
			}
			if s.name == solidFrame && err == nil && bytes.Equal(got, s.content) {
				continue // it was the checksum after all content
			}
			if err := c.Surfaced(err); err != nil {
				t.Errorf("%s: request %d: %v", s.name, k, err)
			}
		}
	}
}
