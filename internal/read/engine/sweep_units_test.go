package engine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/klauspost/compress/zstd"

	"github.com/holdall/holdall/codec"
	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/testkit"
	"github.com/holdall/holdall/store/storetest"
)

// cutAt makes items of the content that xs store, which end at each of ends.
func cutAt(xs []format.Extent, ends ...int64) (in []Item) {
	from := int64(0)
	for i, to := range ends {
		in = append(in, item(fmt.Sprint(i), to-from, list(cut(xs, from, to-from)...)))
		from = to
	}
	return in
}

// randomEnds cuts size bytes into items: mostly small, some empty, some larger
// than a batch, some that end where a unit does.
func randomEnds(rnd *rand.Rand, size, unit int64) (ends []int64) {
	for at := int64(0); at < size; {
		n := rnd.Int64N(20_000)
		switch rnd.IntN(20) {
		case 0:
			n = rnd.Int64N(3 << 20)
		case 1:
			n = 0
		case 2:
			n = unit - at%unit
		case 3:
			n = rnd.Int64N(3 * unit)
		}
		at = min(at+n, size)
		ends = append(ends, at)
	}
	return ends
}

// wantSwept compares the results of a sweep with content, except for the ranges that may fail.
func wantSwept(t *testing.T, got *swept, content []byte, in []Item, ordered bool, mayFail func(from, to int64) bool) {
	t.Helper()
	if len(got.order) != len(in) {
		t.Fatalf("%d items of %d", len(got.order), len(in))
	}
	at := int64(0)
	for i, it := range in {
		n, end := it.Entry.Name, at+it.Entry.Size
		if ordered && got.order[i] != n {
			t.Fatalf("%q comes as number %d", got.order[i], i)
		}
		fails := mayFail != nil && mayFail(at, end)
		if err := got.errs[n]; fails && err == nil || !fails && (err != nil || got.got[n] != string(content[at:end])) {
			t.Fatalf("item %s, content %d to %d: %d bytes, %v; should fail: %v", n, at, end, len(got.got[n]), err, fails)
		}
		at = end
	}
}

// less is a length of content, or a quarter of it with the race detector.
func less(n int) int {
	if testkit.Race() {
		return n / 4
	}
	return n
}

func TestSweepDecodesEachUnitOnce(t *testing.T) {
	rnd := testkit.Rand(t)
	st := &storetest.Mem{}
	content := text(less(8 << 20))
	size := int64(len(content))
	for _, unit := range []int{10_000, 256 << 10, 1 << 20, 3 << 20} {
		xs := records(st, "x", content, unit)
		stored := int64(len(st.Get("x")))
		for round := range 4 {
			l := []Limits{Near, Far}[round/2]
			ordered := round%2 == 0
			in := cutAt(xs, randomEnds(rnd, size, int64(unit))...)
			st, asked := asked(st)
			g := New(open(st), l)
			decodes, decoded := counting()
			var got swept
			if err := g.Sweep(t.Context(), items(in...), ordered, got.each); err != nil {
				t.Fatal(err)
			}
			wantSwept(t, &got, content, in, ordered, nil)
			if decodes() != int64(len(xs)) || decoded() != size || asked.Load() != stored {
				t.Errorf("units of %d, %+v, ordered %v: %d units are decoded %d times, %d bytes of %d from %d stored of %d",
					unit, l, ordered, len(xs), decodes(), decoded(), size, asked.Load(), stored)
			}
			g.Close()
		}
	}
}

// Content in memory is checked where it is read, and the result comes with it.
func TestSweepChecksContentInMemory(t *testing.T) {
	st := &storetest.Mem{}
	content := text(8 << 20)
	xs := records(st, "x", content, 1<<20)
	in := cutAt(xs, 1000, 50_000, 50_000, 300_000, 7<<20, int64(len(content))) // 7 MiB are streamed
	at := int64(0)
	for i := range in {
		expected := content[at:][:in[i].Entry.Size]
		in[i].Check = func(_ *format.Entry, b []byte) bool { return bytes.Equal(b, expected) && i != 1 }
		at += in[i].Entry.Size
	}
	for _, ordered := range []bool{true, false} {
		var right [6]atomic.Bool
		err := New(open(st), Near).Sweep(t.Context(), items(in...), ordered, func(it Item, r io.Reader, err error) error {
			i, _ := strconv.Atoi(it.Entry.Name)
			right[i].Store(it.Right)
			b, rerr := io.ReadAll(r)
			if err != nil || rerr != nil || int64(len(b)) != it.Entry.Size {
				t.Errorf("item %d: %d bytes, %v, %v", i, len(b), err, rerr)
			}
			return nil
		})
		for i, want := range []bool{true, false, true, true, false, true} {
			if got := right[i].Load(); err != nil || got != want {
				t.Errorf("ordered %v: item %d is right: %v, want %v; %v", ordered, i, got, want, err)
			}
		}
	}
}

// Where items come in no order, units are kept for those that come later, within bounds.
func TestSweepKeepsUnitsOfMixedItems(t *testing.T) {
	for _, c := range []struct {
		size, unit, times int
	}{
		{8 << 20, 256 << 10, 1},
		{sweepKept + 16<<20, 4 << 20, 2}, // too much: what comes again was given up
	} {
		st := &storetest.Mem{}
		content := bytes.Repeat(text(1<<20), c.size>>20)
		var ends []int64
		for at := 64 << 10; at <= len(content); at += 64 << 10 {
			ends = append(ends, int64(at))
		}
		xs := records(st, "x", content, c.unit)
		in := cutAt(xs, ends...)
		var mixed []Item // every second one from the end, and then the others
		for odd := range 2 {
			for i := len(in) - 1 - odd; i >= 0; i -= 2 {
				mixed = append(mixed, in[i])
			}
		}
		g := New(open(st), Near)
		decodes, _ := counting()
		var got swept
		if err := g.Sweep(t.Context(), items(mixed...), true, got.each); err != nil {
			t.Fatal(err)
		}
		for i, it := range in {
			if at := i * 64 << 10; got.got[it.Entry.Name] != string(content[at:at+64<<10]) {
				t.Fatalf("item %d is wrong", i)
			}
		}
		if n := decodes(); n != int64(c.times*len(xs)) {
			t.Errorf("%d units are decoded %d times", len(xs), n)
		}
		g.Close()
	}
}

// Content within one unit is a slice of it, not a copy.
func TestSweepHandsOutSlicesOfUnits(t *testing.T) {
	st := &storetest.Mem{}
	content := text(300_000)
	in := cutAt(records(st, "x", content, 300_000), 100_000, 100_010, 250_000, 300_000)
	var first uintptr
	at := uintptr(0)
	err := New(open(st), Near).Sweep(t.Context(), items(in...), true, func(it Item, r io.Reader, err error) error {
		if err != nil {
			return err
		}
		_, err = r.(io.WriterTo).WriteTo(writerFunc(func(p []byte) {
			here := uintptr(unsafe.Pointer(&p[0]))
			if at == 0 {
				first = here
			}
			if here-first != at {
				t.Errorf("%s lies %d bytes behind the first item, expected %d", it.Entry.Name, here-first, at)
			}
			at += uintptr(len(p))
		}))
		return err
	})
	if err != nil || at != 300_000 {
		t.Error(at, err)
	}
}

type writerFunc func([]byte)

func (f writerFunc) Write(p []byte) (int, error) { f(p); return len(p), nil }

func TestSweepDecodesASolidUnitOnce(t *testing.T) {
	rnd := testkit.Rand(t)
	st := &storetest.Mem{}
	content := text(20 << 20)
	for _, said := range []bool{false, true} {
		x := solidUnit(st, "x", content, said)
		for round := range 4 {
			l := []Limits{Near, Far}[round/2]
			ordered := round%2 == 0
			if testkit.Race() && ordered == (l == Far) {
				continue
			}
			in := cutAt([]format.Extent{x}, randomEnds(rnd, x.Size, 1<<20)...)
			st, asked := asked(st)
			g := New(open(st), l)
			decodes, decoded := counting()
			var got swept
			if err := g.Sweep(t.Context(), items(in...), ordered, got.each); err != nil {
				t.Fatal(err)
			}
			wantSwept(t, &got, content, in, ordered, nil)
			if decodes() != 1 || decoded() > x.Size || asked.Load() > x.Len {
				t.Errorf("said %v, %+v, ordered %v: decoded %d times, %d bytes of %d from %d stored of %d",
					said, l, ordered, decodes(), decoded(), x.Size, asked.Load(), x.Len)
			}
			if n := tally.open.Load(); n != 0 {
				t.Errorf("%d decoders are open after the sweep", n)
			}
			g.Close()
		}
	}
}

// Parts of an item that are not read are skipped on the way to the next item.
func TestSweepSkipsWhatIsLeftUnread(t *testing.T) {
	rnd := testkit.Rand(t)
	st := &storetest.Mem{}
	content := text(15 << 20)
	solid := []format.Extent{solidUnit(st, "solid", content, false)}
	for what, xs := range map[string][]format.Extent{"solid": solid, "records": records(st, "x", content, 256<<10)} {
		for _, ordered := range []bool{true, false} {
			in := cutAt(xs, randomEnds(rnd, int64(len(content)), 256<<10)...)
			starts := map[string]int64{}
			at := int64(0)
			for _, it := range in {
				starts[it.Entry.Name] = at
				at += it.Entry.Size
			}
			decodes, _ := counting()
			var mu sync.Mutex
			n := 0
			err := New(open(st), Near).Sweep(t.Context(), items(in...), ordered, func(it Item, r io.Reader, err error) error {
				mu.Lock()
				part := rnd.Int64N(it.Entry.Size + 1)
				n++
				mu.Unlock()
				if err != nil {
					return err
				}
				b, err := io.ReadAll(io.LimitReader(r, part))
				if from := starts[it.Entry.Name]; !bytes.Equal(b, content[from:][:part]) {
					t.Errorf("%s: %s: %d bytes from %d differ", what, it.Entry.Name, part, from)
				}
				return err
			})
			if err != nil || n != len(in) {
				t.Errorf("%s: %d items of %d, %v", what, n, len(in), err)
			}
			if what == "solid" && decodes() != 1 {
				t.Errorf("decoded %d times", decodes())
			}
		}
	}
}

func TestSweepInAnyOrderIsRight(t *testing.T) {
	rnd := testkit.Rand(t)
	st := &storetest.Mem{}
	content := text(5 << 20)
	z := zstdFrame(content)
	st.Put("z", z)
	stores := [][]format.Extent{
		{solidUnit(st, "solid", content, false)},
		{{Size: int64(len(content)), Object: "z", Len: int64(len(z)), Codec: codec.Zstd, Unit: int64(len(content))}},
		records(st, "x", content, 100_000),
		sections(st, "sections", content, 300_000),
		{{Size: int64(len(content)), Object: "z", Len: int64(len(z)), Codec: codec.Zstd}},
	}
	for round := range testkit.Rounds(t, 6) {
		var in []Item
		want := map[string]string{}
		for i := range 60 {
			xs := stores[rnd.IntN(len(stores))]
			off := rnd.Int64N(int64(len(content)))
			n := rnd.Int64N(min(int64(len(content))-off, 1<<rnd.IntN(22)))
			name := fmt.Sprint(i)
			want[name] = string(content[off:][:n])
			in = append(in, item(name, n, list(cut(xs, off, n)...)))
		}
		g := New(open(st), []Limits{Near, Far}[round%2])
		var got swept
		if err := g.Sweep(t.Context(), items(in...), round%4%3 == 0, got.each); err != nil {
			t.Fatal(err)
		}
		for name, w := range want {
			if got.errs[name] != nil || got.got[name] != w {
				t.Errorf("%s: %d bytes of %d, %v", name, len(got.got[name]), len(w), got.errs[name])
			}
		}
		g.Close()
	}
}

// A damaged unit is the affair of those items that lie in it, from its damage on.
func TestDamageReachesTheItemsBehindItAndNoOthers(t *testing.T) {
	rnd := testkit.Rand(t)
	st := &storetest.Mem{}
	content := text(3_000_000)
	const unit = 500_000
	xs := sections(st, "x", content, unit)
	whole := st.Get("x")
	hit := xs[2]
	blockAt := nthBlock(whole[hit.Off:][:hit.Len], 2)
	const intact = 2*unit + 2<<17 // two blocks of 128 KiB
	broken := bytes.Clone(whole)
	broken[hit.Off+int64(blockAt)] |= 6
	cutOff := whole[:hit.Off+int64(blockAt)+100]
	for what, c := range map[string]struct {
		stored []byte
		to     int64
	}{"a damaged block": {broken, 3 * unit}, "cut off": {cutOff, int64(len(content))}} {
		st.Put("x", c.stored)
		for round := range 8 {
			ordered := round%2 == 0
			in := cutAt(xs, randomEnds(rnd, int64(len(content)), unit)...)
			g := New(open(st), []Limits{Near, Far}[round/2%2])
			var got swept
			if err := g.Sweep(t.Context(), items(in...), ordered, got.each); err != nil {
				t.Fatalf("%s: %v", what, err)
			}
			wantSwept(t, &got, content, in, ordered, func(from, to int64) bool { return from < to && to > intact && from < c.to })
			g.Close()
		}
	}
}

func TestDamageOfASolidUnitReachesTheItemsBehindIt(t *testing.T) {
	testkit.Long(t)
	rnd := testkit.Rand(t)
	st := &storetest.Mem{}
	content := text(20 << 20)
	z := zstdFrame(content, zstd.WithEncoderCRC(false), zstd.WithSingleSegment(true))
	at := 9 + nthBlock(z[9:], 60) // the header says the size in four bytes
	const intact = 60 << 17
	broken := bytes.Clone(z)
	broken[at] |= 6
	flaky := errors.New("a sector that cannot be read")
	for what, stored := range map[string][]byte{"a damaged block": broken, "cut off": z[:at+50], "unreadable": z} {
		st.Put("z", stored)
		for round := range 4 {
			ordered := round%2 == 0
			l := []Limits{Near, Far}[round/2]
			x := format.Extent{Size: int64(len(content)), Object: "z", Len: int64(len(z)), Codec: codec.Zstd}
			if round%2 == 1 {
				x.Unit = x.Size
			}
			in := cutAt([]format.Extent{x}, randomEnds(rnd, x.Size, 1<<20)...)
			asks := 0
			under := storetest.Fault(st, func(op, _ string, off, n int64) error {
				measuring.Lock()
				defer measuring.Unlock()
				if asks++; what == "unreadable" && op == "read" && off+n > int64(at) {
					return flaky
				}
				return nil
			})
			g := New(open(under), l)
			var got swept
			if err := g.Sweep(t.Context(), items(in...), ordered, got.each); err != nil {
				t.Fatalf("%s: %v", what, err)
			}
			if what == "unreadable" {
				// Windows fail as a whole, so somewhat less can be had.
				good := 0
				for _, it := range in {
					if err := got.errs[it.Entry.Name]; err == nil {
						good++
					} else if !errors.Is(err, flaky) {
						t.Fatalf("%s: %v", what, err)
					}
				}
				if good == 0 || good == len(in) {
					t.Errorf("%s: %d items of %d are good", what, good, len(in))
				}
			} else {
				wantSwept(t, &got, content, in, ordered, func(from, to int64) bool { return from < to && to > intact })
			}
			if asks > 100 {
				t.Errorf("%s: %d requests: the damage was looked for again and again", what, asks)
			}
			g.Close()
		}
	}
}

func TestSweepOverUnitsEndsEarlyWithoutALeak(t *testing.T) {
	enough := errors.New("enough")
	content := text(6 << 20)
	st := &storetest.Mem{}
	var ends []int64
	for at := int64(100_000); at < int64(len(content)); at += []int64{200_000, 3 << 19, 50_000}[len(ends)%3] {
		ends = append(ends, at)
	}
	contents := map[string][]Item{
		"solid":   cutAt([]format.Extent{solidUnit(st, "solid", content, true)}, ends...),
		"records": cutAt(records(st, "x", content, 256<<10), ends...),
	}
	contents["both"] = append(append([]Item{}, contents["solid"]...), contents["records"]...)
	testkit.Rand(t).Shuffle(len(contents["both"]), func(i, j int) {
		both := contents["both"]
		both[i], both[j] = both[j], both[i]
	})
	for kind, in := range contents {
		for _, l := range []Limits{Near, Far} {
			for _, ordered := range []bool{true, false} {
				for _, how := range []string{"each", "cancel", "items", "cancel from outside"} {
					for _, after := range []int{1, 3, 8} {
						if testkit.Race() && after == 8 {
							continue
						}
						synctest.Test(t, func(t *testing.T) {
							g := New(open(slow{st, false}), l)
							defer g.Close()
							ctx, cancel := context.WithCancelCause(t.Context())
							defer cancel(nil)
							n := 0
							src := func(yield func(Item, error) bool) {
								for i, it := range in {
									if how == "items" && i == after {
										yield(Item{}, enough)
										return
									}
									if !yield(it, nil) {
										return
									}
								}
							}
							if how == "cancel from outside" {
								time.AfterFunc(time.Duration(after)*700*time.Millisecond, func() { cancel(enough) })
							}
							var mu sync.Mutex
							err := g.Sweep(ctx, src, ordered, func(it Item, r io.Reader, err error) error {
								mu.Lock()
								n++
								last := n == after
								mu.Unlock()
								switch {
								case last && how == "each":
									return enough
								case last && how == "cancel":
									cancel(enough)
								}
								if err == nil {
									_, err = io.CopyN(io.Discard, r, it.Entry.Size*2/3)
								}
								if ctx.Err() == nil && err != nil && !errors.Is(err, enough) {
									t.Errorf("%s: %v", it.Entry.Name, err)
								}
								return nil
							})
							if !errors.Is(err, enough) && !(how == "cancel from outside" && err == nil) {
								t.Errorf("%s, ordered %v, by %s after %d: %v", kind, ordered, how, after, err)
							}
							if n := tally.open.Load(); n != 0 {
								t.Errorf("%d decoders are open after the sweep", n)
							}
						})
					}
				}
			}
		}
	}
}

// A stream belongs to its holder, even when the sweep is at its end.
func TestAStreamThatWasHandedOverIsNotClosedUnderItsReader(t *testing.T) {
	enough := errors.New("enough")
	content := text(4 << 20)
	for _, ordered := range []bool{true, false} {
		inBubble(t, Near, func(t *testing.T, g *Engine, st *storetest.Mem) {
			x := solidUnit(st, "x", content, false)
			ctx, cancel := context.WithCancelCause(t.Context())
			err := g.Sweep(ctx, items(cutAt([]format.Extent{x}, 3<<20, 4<<20)...), ordered, func(_ Item, r io.Reader, err error) error {
				if err != nil {
					return err
				}
				if _, err := io.ReadFull(r, make([]byte, 1)); err != nil {
					t.Error(err)
				}
				cancel(enough)
				time.Sleep(time.Second) // until no other goroutine has anything to do
				if _, err := io.Copy(io.Discard, r); !errors.Is(err, enough) {
					t.Errorf("ordered %v: expected %v, found %v", ordered, enough, err)
				}
				return nil
			})
			if !errors.Is(err, enough) {
				t.Errorf("ordered %v: %v", ordered, err)
			}
		})
	}
}

// A unit of a few bytes may become 16 MiB.
func TestSweepHoldsABoundedPartOfWhatUnitsBecome(t *testing.T) {
	testkit.Long(t)
	st := &storetest.Mem{}
	zeros := make([]byte, maxUnit)
	for _, unit := range []int64{1 << 20, maxUnit} {
		z := zstdBlocks(zeros[:unit])
		n := (500 << 20) / unit
		st.Put("x", bytes.Repeat(z, int(n)))
		var xs []format.Extent
		for i := range n {
			xs = append(xs, format.Extent{At: i * unit, Size: unit, Object: "x", Off: i * int64(len(z)), Len: int64(len(z)), Codec: codec.ZstdBlocks, Unit: unit})
		}
		for _, size := range []int64{300_000, 40 << 20} {
			for _, ordered := range []bool{true, false} {
				if ordered && size > unit {
					continue // one by one is the easier case
				}
				var ends []int64
				for at := size; at < n*unit; at += size {
					ends = append(ends, at)
				}
				g := New(open(st), Far) // 16 workers
				base, most := testkit.Live(), uint64(0)
				count := 0
				var mu sync.Mutex
				err := g.Sweep(t.Context(), items(cutAt(xs, ends...)...), ordered, func(it Item, r io.Reader, err error) error {
					if err != nil {
						return err
					}
					mu.Lock()
					count++
					look := count%(len(ends)/12+1) == 0
					mu.Unlock()
					k, err := io.Copy(writerFunc(func(p []byte) {
						if !bytes.Equal(p, zeros[:len(p)]) {
							t.Error("other content")
						}
					}), io.LimitReader(r, size/2))
					if look {
						mu.Lock()
						most = max(most, testkit.Live())
						mu.Unlock()
					}
					if rest, rerr := io.Copy(io.Discard, r); k+rest != size || err != nil || rerr != nil {
						t.Errorf("%d bytes of %d, %v, %v", k+rest, size, err, rerr)
					}
					return err
				})
				if err != nil || count != len(ends) {
					t.Fatal(count, err)
				}
				t.Logf("units of %d, items of %d, ordered %v: %d MiB at most", unit, size, ordered, (int64(most)-int64(base))>>20)
				if most > base+100<<20 {
					t.Errorf("units of %d, items of %d, ordered %v: %d MiB are held", unit, size, ordered, (most-base)>>20)
				}
				g.Close()
			}
		}
	}
}

// A sweep that is blocked by its own bound must go on when room is given back.
func TestSweepOfLargeUnitsGoesOnAsRoomIsGivenBack(t *testing.T) {
	for _, ordered := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			st := &storetest.Mem{}
			content := make([]byte, 12*maxUnit)
			z := narrow(content[:maxUnit])
			st.Put("x", bytes.Repeat(z, 12))
			var in []Item
			for i := range int64(12) {
				in = append(in, item(fmt.Sprint(i), 1000, list(format.Extent{Size: 1000, Object: "x", Off: i * int64(len(z)), Len: int64(len(z)), Codec: "counted", Unit: maxUnit})))
			}
			g := New(open(slow{st, false}), Far)
			defer g.Close()
			var got swept
			if err := g.Sweep(t.Context(), items(in...), ordered, func(it Item, r io.Reader, err error) error {
				time.Sleep(time.Second)
				return got.each(it, r, err)
			}); err != nil {
				t.Fatal(err)
			}
			wantSwept(t, &got, content[:12_000], in, ordered, nil)
		})
	}
}
