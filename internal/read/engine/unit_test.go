package engine

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdall/holdall/codec"
	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/testkit"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storetest"
)

// The codec "counted" makes eight bytes of each, and takes 0xff for damage. tally
// counts what it does.
var tally struct{ decodes, bytes, open atomic.Int64 }

const wide = 8

func init() {
	codec.Register(codec.Codec{Name: "counted", Decode: func(r io.Reader) (io.ReadCloser, error) {
		tally.decodes.Add(1)
		tally.open.Add(1)
		return &widener{r: r}, nil
	}})
}

type widener struct {
	r     io.Reader
	next  []byte // stored
	given int    // of the first of these
	buf   [4096]byte
}

var errDamaged = errors.New("a byte that is none")

func (d *widener) Read(p []byte) (n int, err error) {
	for n < len(p) {
		if len(d.next) == 0 {
			if n > 0 {
				break
			}
			k, err := d.r.Read(d.buf[:])
			if d.next = d.buf[:k]; k == 0 {
				return 0, err
			}
		}
		if d.next[0] == 0xff {
			err = errDamaged
			break
		}
		if d.given == 0 && len(p)-n >= wide {
			k := widen(p[n:], d.next)
			p[n], p[n+k*wide-1] = d.next[0], d.next[k-1] // watched, as widen is not
			n, d.next = n+k*wide, d.next[k:]
			continue
		}
		p[n] = d.next[0]
		n++
		if d.given++; d.given == wide {
			d.given, d.next = 0, d.next[1:]
		}
	}
	tally.bytes.Add(int64(n))
	return n, err
}

// widen fills p from what is stored, until one of both ends or something is damaged. It
// is most of what these tests do, and the race detector would make it all of it.
//
//go:norace
func widen(p, stored []byte) (used int) {
	most := min(len(p)/wide, len(stored))
	for used < most && stored[used] != 0xff {
		binary.NativeEndian.PutUint64(p[used*wide:], uint64(stored[used])*0x0101010101010101)
		used++
	}
	return used
}

func (d *widener) Close() error {
	tally.open.Add(-1)
	return nil
}

// narrow is what b is stored as.
func narrow(b []byte) []byte {
	out := make([]byte, len(b)/wide)
	for i := range out {
		out[i] = b[i*wide]
	}
	return out
}

// counting returns how much was decoded since it was called.
func counting() (decodes, decoded func() int64) {
	d, b := tally.decodes.Load(), tally.bytes.Load()
	return func() int64 { return tally.decodes.Load() - d }, func() int64 { return tally.bytes.Load() - b }
}

// text is content for "counted", which differs wherever one looks.
func text(n int) []byte {
	if n%wide != 0 {
		panic("no length for this codec")
	}
	rnd := rand.New(rand.NewPCG(1, 2))
	b := make([]byte, n)
	for i := 0; i < n; i += wide {
		binary.NativeEndian.PutUint64(b[i:], rnd.Uint64N(0xff)*0x0101010101010101)
	}
	return b
}

// records stores b in an object as units of size bytes, by the codec "counted".
func records(st *storetest.Mem, name string, b []byte, size int) (xs []format.Extent) {
	var stored []byte
	for at := 0; at < len(b); at += size {
		part := b[at:min(at+size, len(b))]
		z := narrow(part)
		n := int64(len(part))
		xs = append(xs, format.Extent{At: int64(at), Size: n, Object: name, Off: int64(len(stored)), Len: int64(len(z)), Codec: "counted", Unit: n})
		stored = append(stored, z...)
	}
	st.Put(name, stored)
	return xs
}

func wantContent(t *testing.T, g *Engine, content []byte, off, n int, xs ...format.Extent) {
	t.Helper()
	p := make([]byte, n)
	if err := g.ReadAt(t.Context(), list(xs...), p, int64(off)); err != nil || !bytes.Equal(p, content[off:][:n]) {
		t.Fatalf("content %d+%d: %v, same %v", off, n, err, bytes.Equal(p, content[off:][:n]))
	}
}

func TestAUnitIsDecodedOnceForAllThatLiesInIt(t *testing.T) {
	rnd := testkit.Rand(t)
	st := &storetest.Mem{}
	content := text(1 << 20)
	xs := records(st, "x", content, 64<<10)
	for _, l := range []Limits{Near, Far, {}} {
		decodes, _ := counting()
		g, log := traced(st, l)
		for range 300 {
			off := rnd.IntN(len(content))
			wantContent(t, g, content, off, rnd.IntN(min(len(content)-off, 100_000)), xs...)
		}
		wantContent(t, g, content, 0, len(content)/2, xs...)
		r := g.NewReader(t.Context(), list(xs...), int64(len(content)))
		if b, err := io.ReadAll(r); err != nil || !bytes.Equal(b, content) {
			t.Errorf("%+v: Reader: %v", l, err)
		}
		r.Close()
		log.Reset()
		wantContent(t, g, content, 0, len(content), xs...)
		if n := decodes(); n != 16 || log.Len() > 0 {
			t.Errorf("%+v: 16 units were decoded %d times; requests at the end: %q", l, n, log)
		}
		g.Close()
	}
}

// inBubble runs test in fake time, over a store that takes a second for a read.
func inBubble(t *testing.T, l Limits, test func(t *testing.T, g *Engine, st *storetest.Mem)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		st := &storetest.Mem{}
		g := New(open(slow{st, false}), l)
		defer g.Close()
		test(t, g, st)
	})
}

func TestReadsOfOneUnitAtOnceShareItsDecode(t *testing.T) {
	inBubble(t, Far, func(t *testing.T, g *Engine, st *storetest.Mem) {
		content := text(300_000)
		xs := records(st, "x", content, 100_000)
		decodes, _ := counting()
		start := time.Now()
		var wg sync.WaitGroup
		for i := range 50 {
			wg.Go(func() { wantContent(t, g, content, i*5000, 50_000, xs...) })
		}
		wg.Wait()
		if n := decodes(); n != 3 || time.Since(start) > 2*time.Second {
			t.Errorf("3 units were decoded %d times, in %v", n, time.Since(start))
		}
	})
}

// Two reads that each wait for a unit of the other must both come to an end.
func TestReadsThatNeedEachOthersUnitsDoNotWaitForEver(t *testing.T) {
	inBubble(t, Limits{Request: 1, Parallel: 1}, func(t *testing.T, g *Engine, st *storetest.Mem) {
		content := text(200_000)
		xs := records(st, "x", content, 100_000)
		swapped := []format.Extent{xs[1], xs[0]}
		swapped[0].At, swapped[1].At = 0, 100_000
		var wg sync.WaitGroup
		for i := range 10 {
			wg.Go(func() {
				order := [][]format.Extent{xs, swapped}[i%2]
				if err := g.ReadAt(t.Context(), list(order...), make([]byte, 200_000), 0); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
	})
}

func TestWhoWaitsForAReadThatIsCancelledDecodesItself(t *testing.T) {
	inBubble(t, Far, func(t *testing.T, g *Engine, st *storetest.Mem) {
		content := text(100_000)
		xs := records(st, "x", content, 100_000)
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() {
			if err := g.ReadAt(ctx, list(xs...), make([]byte, 10), 0); !errors.Is(err, context.Canceled) {
				t.Errorf("expected context.Canceled, found %v", err)
			}
		})
		synctest.Wait()
		for range 5 {
			wg.Go(func() { wantContent(t, g, content, 5, 1000, xs...) })
		}
		time.AfterFunc(time.Second/2, cancel)
		wg.Wait()
	})
}

// held checks the books of an engine's units.
func held(t *testing.T, c *units) int64 {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	sum, n := int64(0), 0
	for _, u := range c.m {
		if u.elem != nil {
			sum += int64(len(u.b)) + unitCost
			n++
		}
	}
	if sum != c.held || n != c.used.Len() || sum > c.limit {
		t.Errorf("%d bytes in %d units are held; the books say %d in %d, the limit is %d", sum, n, c.held, c.used.Len(), c.limit)
	}
	return sum
}

func TestTheUnitsUsedLastAreKeptWithinTheLimit(t *testing.T) {
	st := &storetest.Mem{}
	content := text(100_000)
	xs := records(st, "x", content, 10_000)
	l := Near
	l.Units = 4 * (10_000 + unitCost)
	g := New(open(st), l)
	read := func(i int, want int64) {
		t.Helper()
		decodes, _ := counting()
		wantContent(t, g, content, i*10_000+5, 10, xs...)
		if n := decodes(); n != want {
			t.Errorf("unit %d is decoded %d times, expected %d", i, n, want)
		}
		held(t, g.units)
	}
	for i := range 4 {
		read(i, 1)
	}
	read(0, 0)
	read(4, 1) // 1 goes
	read(0, 0)
	read(2, 0)
	read(1, 1)

	rnd := testkit.Rand(t)
	var wg sync.WaitGroup
	for range 4 {
		rnd := rand.New(rand.NewPCG(rnd.Uint64(), 0))
		wg.Go(func() {
			for range 200 {
				off := rnd.IntN(len(content))
				n := rnd.IntN(min(25_000, len(content)-off))
				p := make([]byte, n)
				if err := g.ReadAt(t.Context(), list(xs...), p, int64(off)); err != nil || !bytes.Equal(p, content[off:][:n]) {
					t.Errorf("content %d+%d: %v", off, n, err)
				}
			}
		})
	}
	wg.Wait()
	held(t, g.units)
}

func TestLongReadsDoNotPushOutWhatIsKept(t *testing.T) {
	st := &storetest.Mem{}
	content := text(3 << 20)
	xs := records(st, "x", content, 100_000)
	small := text(10_000)
	kept := records(st, "kept", small, 10_000)
	long := text(2 << 20) // as a sweep streams it
	longer := sections(st, "longer", long, 100_000)
	l := Near
	l.Units = 10 << 20
	for what, read := range map[string]func(g *Engine){
		"ReadAt": func(g *Engine) { wantContent(t, g, content, 0, len(content), xs...) },
		"Reader": func(g *Engine) {
			r := g.NewReader(t.Context(), list(xs...), int64(len(content)))
			defer r.Close()
			if b, err := io.ReadAll(r); err != nil || !bytes.Equal(b, content) {
				t.Errorf("Reader: %v", err)
			}
		},
		"Sweep": func(g *Engine) {
			var in []Item
			for i := range xs {
				in = append(in, item(fmt.Sprint(i), 10_000, list(cut(xs, int64(i)*100_000, 10_000)...)))
			}
			in = append(in, item("large", int64(len(long)), list(longer...)))
			var got swept
			if err := g.Sweep(t.Context(), items(in...), true, got.each); err != nil || len(got.got) != len(in) || got.got["large"] != string(long) {
				t.Errorf("sweep: %d, %v", len(got.got), err)
			}
		},
	} {
		g := New(open(st), l)
		wantContent(t, g, small, 0, 10, kept...)
		decodes, _ := counting()
		read(g)
		if n := decodes(); n != int64(len(xs)) {
			t.Errorf("%s: %d units are decoded %d times", what, len(xs), n)
		}
		wantContent(t, g, small, 50, 10, kept...)
		if n := decodes(); n != int64(len(xs)) {
			t.Errorf("%s: what was kept is decoded again", what)
		}
		if n := held(t, g.units); n > 10_000+unitCost {
			t.Errorf("%s: %d bytes are kept", what, n)
		}
		g.Close()
	}
}

func TestALongReadDecodesSeveralUnitsAtOnceWithinItsBound(t *testing.T) {
	st := &storetest.Mem{}
	content := make([]byte, 96<<20)
	xs := sections(st, "x", content, 1<<20)
	for _, l := range []Limits{Near, Far} {
		g := New(open(st), l)
		r := g.NewReader(t.Context(), list(xs...), int64(len(content)))
		most, groups := int64(0), 0
		p := make([]byte, 300_000)
		for {
			n, err := r.Read(p)
			if !bytes.Equal(p[:n], content[:n]) {
				t.Fatal("other content")
			}
			most, groups = max(most, r.units.held), max(groups, len(r.units.groups))
			if err == io.EOF {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		if r.at != int64(len(content)) || most > maxAhead || groups < 2 {
			t.Errorf("%+v: %d bytes read, %d held, %d groups", l, r.at, most, groups)
		}
		r.Close()
	}
}

// damaged are units with something wrong, and how much of their content can be
// had.
func damaged(st *storetest.Mem, content []byte) map[string]struct {
	x      format.Extent
	within func(have int64) bool
} {
	type broken = struct {
		x      format.Extent
		within func(have int64) bool
	}
	out := map[string]broken{}
	size := int64(len(content))
	add := func(name, codec string, stored []byte, n int64, within func(int64) bool) {
		st.Put(name, stored)
		out[name] = broken{format.Extent{Size: size, Object: name, Len: n, Codec: codec, Unit: size}, within}
	}
	none := func(have int64) bool { return have == 0 }
	some := func(have int64) bool { return have > size/4 && have < size }
	z, zb, nw := zstdFrame(content), zstdBlocks(content), narrow(content)
	add("cut off by the object's end", "counted", nw[:len(nw)*3/4], int64(len(nw)), some)
	add("blocks cut off by the object's end", codec.ZstdBlocks, zb[:len(zb)*3/4], int64(len(zb)), some)
	add("shorter than it says", "counted", nw[:len(nw)-1], int64(len(nw))-1, func(have int64) bool { return have == size-wide })
	add("a frame shorter than it says", codec.Zstd, zstdFrame(content[:size/2]), int64(len(zstdFrame(content[:size/2]))), func(have int64) bool { return have == size/2 })
	longer := zstdFrame(append(bytes.Clone(content), 'x'))
	add("longer than it says", codec.Zstd, longer, int64(len(longer)), none)
	bad := bytes.Clone(z)
	bad[len(bad)-1] ^= 1
	add("a wrong checksum", codec.Zstd, bad, int64(len(bad)), none)
	third := bytes.Clone(zb)
	third[nthBlock(zb, 3)] |= 6 // of no type
	add("a damaged block", codec.ZstdBlocks, third, int64(len(third)), some)
	add("a damaged byte", "counted", append(append(bytes.Clone(nw[:999]), 0xff), nw[1000:]...), int64(len(nw)), func(have int64) bool { return have == 999*wide })
	add("no content at all", "flate", bytes.Repeat([]byte{0xff}, 1000), 1000, none)
	return out
}

// nthBlock returns where the n-th block of a frame begins, counted from 0.
func nthBlock(b []byte, n int) (at int) {
	for range n {
		h := int(b[at]) | int(b[at+1])<<8 | int(b[at+2])<<16
		if at += 3; h>>1&3 == 1 {
			at++
		} else {
			at += h >> 3
		}
	}
	return at
}

func TestADamagedUnitGivesWhatIsBeforeItsDamage(t *testing.T) {
	st := &storetest.Mem{}
	content := text(600_000)
	for name, d := range damaged(st, content) {
		for _, l := range []Limits{Near, Far, {}} {
			g, log := traced(st, l)
			// Find where the damage is.
			have, size := int64(0), d.x.Size
			for lo, hi := int64(0), size; lo <= hi; {
				mid := (lo + hi) / 2
				p := make([]byte, mid)
				err := g.ReadAt(t.Context(), list(d.x), p, 0)
				if err != nil {
					if !strings.Contains(err.Error(), name+" at 0: decode "+d.x.Codec) {
						t.Fatalf("%s: an error that does not say where: %v", name, err)
					}
					hi = mid - 1
					continue
				}
				if !bytes.Equal(p, content[:mid]) {
					t.Fatalf("%s: the first %d bytes are others", name, mid)
				}
				have, lo = mid, mid+1
			}
			if !d.within(have) {
				t.Errorf("%s: %d bytes can be had of %d", name, have, size)
			}
			log.Reset()
			if err := g.ReadAt(t.Context(), list(d.x), make([]byte, 10), size-10); err == nil || log.Len() > 0 {
				t.Errorf("%s: the end is read: %v, with requests %q", name, err, log)
			}
			r := g.NewReader(t.Context(), list(d.x), size)
			b, err := io.ReadAll(r)
			if err == nil || int64(len(b)) != have || !bytes.Equal(b, content[:have]) {
				t.Errorf("%s: Reader gives %d bytes of %d, %v", name, len(b), have, err)
			}
			r.Close()
			g.Close()
		}
	}
}

// A unit that ends with a checksum gives no byte that was not compared, also if its decoder notices
// damage long after it.
func TestAUnitWithAChecksumGivesNothingThatWasNotCompared(t *testing.T) {
	testkit.Serial(t)
	rnd := testkit.Rand(t)
	content := make([]byte, 100_000)
	for i := range content {
		content[i] = "abcdefgh"[rnd.IntN(8)]
	}
	var stored bytes.Buffer
	z := gzip.NewWriter(&stored)
	if _, err := z.Write(content); err != nil || z.Close() != nil {
		t.Fatal(err)
	}
	early := 0
	for range 400 {
		st := &storetest.Mem{}
		b := bytes.Clone(stored.Bytes())
		b[20+rnd.IntN(len(b)-20)] ^= 1 << rnd.IntN(8) // behind the header
		st.Put("x", b)
		x := list(format.Extent{Size: int64(len(content)), Object: "x", Len: int64(len(b)), Codec: codec.Gzip, Unit: int64(len(content))})
		g := New(open(st), Near)
		for off := 0; off < len(content); off += 10_000 {
			p := make([]byte, 100)
			err := g.ReadAt(t.Context(), x, p, int64(off))
			if err == nil && !bytes.Equal(p, content[off:][:len(p)]) {
				t.Fatalf("other bytes at %d", off)
			}
			if err != nil && !errors.Is(err, codec.ErrChecksum) {
				t.Fatalf("%v is not about a checksum", err)
			}
			if err != nil && !strings.Contains(err.Error(), codec.ErrChecksum.Error()) {
				early++
			}
		}
		r := g.NewReader(t.Context(), x, int64(len(content)))
		if got, err := io.ReadAll(r); !bytes.HasPrefix(content, got) || err != nil && len(got) > 0 {
			t.Fatalf("%d other bytes, %v", len(got), err)
		}
		r.Close()
		g.Close()
	}
	if early == 0 {
		t.Error("the decoder never noticed damage by itself")
	}
	// The cause is still known, as of an object that is cut off.
	st := &storetest.Mem{}
	st.Put("x", stored.Bytes()[:stored.Len()/2])
	g := New(open(st), Near)
	defer g.Close()
	x := list(format.Extent{Size: int64(len(content)), Object: "x", Len: int64(stored.Len()), Codec: codec.Gzip, Unit: int64(len(content))})
	if err := g.ReadAt(t.Context(), x, make([]byte, 1), 0); !errors.Is(err, codec.ErrChecksum) || !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("of an object that is cut off: %v", err)
	}
}

// What a store could not deliver is no damage: it is asked again.
func TestAFailedRequestIsNotRememberedOfAUnit(t *testing.T) {
	st := &storetest.Mem{}
	content := text(50_000)
	xs := records(st, "x", content, 10_000)
	broken := errors.New("broken")
	g := New(open(storetest.Fault(st, storetest.Nth("read", 1, broken))), Near)
	if err := g.ReadAt(t.Context(), list(xs...), make([]byte, 50_000), 0); !errors.Is(err, broken) {
		t.Errorf("expected %v, found %v", broken, err)
	}
	wantContent(t, g, content, 0, 50_000, xs...)
}

// Nor is an answer that broke off.
func TestAnAnswerThatEndsEarlyIsNoDamage(t *testing.T) {
	st := &storetest.Mem{}
	content := text(160_000)
	for _, xs := range [][]format.Extent{
		records(st, "x", content, len(content)),
		records(st, "y", content, 40_000),
		sections(st, "z", content, len(content)),
	} {
		g := New(open(storetest.Fault(st, storetest.Nth("read", 1, io.ErrUnexpectedEOF))), Near)
		wantContent(t, g, content, 0, len(content), xs...)
		g.Close()
	}
}

func TestExtentsThatDoNotFitTheirUnitAreErrors(t *testing.T) {
	st := &storetest.Mem{}
	z := deflate(text(104)[:100])
	st.Put("x", z)
	n := int64(len(z))
	for _, x := range []format.Extent{
		{Size: 10, Object: "x", Len: n, Codec: "flate", Unit: -1},
		{Size: 10, Object: "x", Len: n, Codec: "flate", Unit: 1<<63 - 1},
		{Size: 10, Object: "x", Len: n, Codec: "flate", Unit: 9},
		{Size: 10, Object: "x", Len: n, Codec: "flate", Unit: 100, Skip: 91},
		{Size: 10, Object: "x", Len: n, Codec: "no such codec", Unit: 100},
		{Size: 10, Object: "x", Len: n, Codec: "no such codec"},
		{Size: 10, Object: "not there", Len: n, Codec: "flate", Unit: 100},
		{Size: 10, Object: "not there", Len: n, Codec: "flate"},
	} {
		g := New(open(st), Near)
		if err := g.ReadAt(t.Context(), list(x), make([]byte, 10), 0); err == nil {
			t.Errorf("ReadAt of %+v", x)
		}
		r := g.NewReader(t.Context(), list(x), 10)
		if _, err := io.ReadAll(r); err == nil {
			t.Errorf("Reader of %+v", x)
		}
		r.Close()
		g.Close()
	}
}

// Units that are only needed in small part are not all held at once, however many there are.
func TestAReadOfManyUnitsHoldsFew(t *testing.T) {
	st := &storetest.Mem{}
	z := zstdBlocks(make([]byte, maxUnit))
	const n = 40
	st.Put("x", bytes.Repeat(z, n))
	var xs []format.Extent
	for i := range int64(n) {
		xs = append(xs, format.Extent{At: i, Size: 1, Object: "x", Off: i * int64(len(z)), Len: int64(len(z)), Codec: codec.ZstdBlocks, Skip: i, Unit: maxUnit})
	}
	l := Near
	l.Request, l.Units = 1, 1<<20 // one by one
	g := New(open(measured{st, func() {}}), l)
	base := testkit.Live()
	most := uint64(0)
	g.open = open(measured{st, func() { most = max(most, testkit.Live()) }})
	if err := g.ReadAt(t.Context(), list(xs...), make([]byte, n), 0); err != nil {
		t.Fatal(err)
	}
	if most > base+100<<20 {
		t.Errorf("%d MiB are held for %d bytes", (most-base)>>20, n)
	}
}

// measured is a store that calls look before each read.
type measured struct {
	store.Store
	look func()
}

func (measured) Can() store.Abilities { return store.Abilities{} }

func (m measured) Open(ctx context.Context, name string) (store.Object, error) {
	o, err := m.Store.Open(ctx, name)
	return measuredObject{o, m}, err
}

var measuring sync.Mutex

type measuredObject struct {
	store.Object
	m measured
}

func (measuredObject) Can() store.ObjectAbilities { return store.ObjectAbilities{} }

func (o measuredObject) ReadAt(ctx context.Context, p []byte, off int64) error {
	measuring.Lock()
	o.m.look()
	measuring.Unlock()
	return o.Object.ReadAt(ctx, p, off)
}
