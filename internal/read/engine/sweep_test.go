package engine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"math"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/holdall/holdall/codec"
	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/testkit"
	"github.com/holdall/holdall/store/storetest"
)

func items(list ...Item) iter.Seq2[Item, error] {
	return func(yield func(Item, error) bool) {
		for _, it := range list {
			if !yield(it, nil) {
				return
			}
		}
	}
}

func item(name string, size int64, xs Extents) Item {
	return Item{Entry: format.Entry{Name: name, Size: size}, Extents: xs}
}

// swept is what a sweep gave, by name.
type swept struct {
	mu    sync.Mutex
	order []string
	got   map[string]string
	errs  map[string]error
}

func (s *swept) each(it Item, content io.Reader, err error) error {
	var b []byte
	if err == nil {
		b, err = io.ReadAll(content)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.got == nil {
		s.got, s.errs = map[string]string{}, map[string]error{}
	}
	s.order = append(s.order, it.Entry.Name)
	s.got[it.Entry.Name], s.errs[it.Entry.Name] = string(b), err
	return nil
}

func TestSweepGivesTheContentOfEveryShape(t *testing.T) {
	testkit.Long(t)
	rnd := testkit.Rand(t)
	st := &storetest.Mem{}
	all := shapes(rnd, st)
	long := bytes.Repeat([]byte("long content, "), 100_000)
	st.Put("long", long)
	all = append(all, shape{"long", long, list(format.Extent{Size: int64(len(long)), Object: "long", Len: int64(len(long))})})
	for range 15 {
		l, ordered := anyLimits(rnd), rnd.IntN(2) == 0
		l.Request = max(l.Request, 4096) // long is long
		var in []Item
		want := map[string]string{}
		for i := range 200 {
			s := all[rnd.IntN(len(all)-1)]
			if i%100 == 7 {
				s = all[len(all)-1]
			}
			n := fmt.Sprintf("%d: %s", i, s.name)
			in = append(in, item(n, int64(len(s.content)), s.extents))
			want[n] = string(s.content)
		}
		var got swept
		if err := New(open(st), l).Sweep(t.Context(), items(in...), ordered, got.each); err != nil {
			t.Fatalf("%+v, ordered %v: %v", l, ordered, err)
		}
		if len(got.order) != len(in) {
			t.Errorf("%+v, ordered %v: %d items, expected %d", l, ordered, len(got.order), len(in))
		}
		for i, it := range in {
			n := it.Entry.Name
			if got.errs[n] != nil || got.got[n] != want[n] {
				t.Errorf("%+v, ordered %v: %s: %d bytes of %d, %v", l, ordered, n, len(got.got[n]), len(want[n]), got.errs[n])
			}
			if ordered && got.order[i] != n {
				t.Fatalf("%+v: %q comes as number %d", l, got.order[i], i)
			}
		}
	}
}

// TestSendReadsAheadAsMuchAsIsTaken checks that a client that takes nothing costs little, and that
// one that takes much does not wait.
func TestSendReadsAheadAsMuchAsIsTaken(t *testing.T) {
	const size, many = 10_000, 20_000
	for _, l := range []Limits{Near, Far} {
		synctest.Test(t, func(t *testing.T) {
			st := &storetest.Mem{}
			st.Put("x", make([]byte, size))
			g := New(open(st), l)
			defer g.Close()
			drawn := 0
			src := func(yield func(Item, error) bool) {
				for drawn < many {
					drawn++
					if !yield(item("x", size, list(format.Extent{Size: size, Object: "x", Len: size})), nil) {
						return
					}
				}
			}
			ahead, taken := map[int]int{}, 0
			err := g.Send(t.Context(), src, func(_ Item, r io.Reader, err error) error {
				if taken == 0 || taken == many/2 {
					synctest.Wait()
					ahead[taken] = (drawn - taken) * size
				}
				taken++
				return err
			})
			if err != nil || taken != many {
				t.Fatal(taken, err)
			}
			if first, later := ahead[0], ahead[many/2]; first > 1<<20 || later < 4*first || later > mostSending {
				t.Errorf("%d bytes ahead at first, %d after %d", first, later, many/2*size)
			}
		})
	}
}

func TestSweepJoinsNeighbours(t *testing.T) {
	st := &storetest.Mem{}
	st.Put("x", make([]byte, 3<<20))
	g, log := traced(st, Limits{Gap: 64, Request: 4 << 20, Parallel: 1})
	var in []Item
	for i := range int64(300) {
		in = append(in, item(fmt.Sprint(i), 8000, list(format.Extent{Size: 8000, Object: "x", Off: i * 8050, Len: 8000})))
	}
	var got swept
	if err := g.Sweep(t.Context(), items(in...), true, got.each); err != nil || len(got.got) != 300 {
		t.Fatal(len(got.got), err)
	}
	// Batches of 131 items are just under a megabyte.
	wantUnordered(t, log, fmt.Sprintf("read x at 0+%d", 131*8050-50),
		fmt.Sprintf("read x at %d+%d", 131*8050, 131*8050-50), fmt.Sprintf("read x at %d+%d", 262*8050, 38*8050-50))
}

// wantUnordered is wantRequests for requests that go out in parallel.
func wantUnordered(t *testing.T, log *bytes.Buffer, want ...string) {
	t.Helper()
	lines := bytes.Split(bytes.TrimSpace(log.Bytes()), []byte("\n"))
	found := map[string]bool{}
	for _, l := range lines {
		found[string(l)] = true
	}
	ok := len(lines) == len(want)
	for _, w := range want {
		ok = ok && found[w]
	}
	if !ok {
		t.Errorf("requests: expected %q\nfound %s", want, log)
	}
}

func TestErrorOfOneItemDoesNotTouchItsNeighbours(t *testing.T) {
	st := &storetest.Mem{}
	st.Put("x", []byte("abcdefghijklmnopqrstuvwxyz"))
	good := func(i int64) Item {
		return item(fmt.Sprintf("good %d", i), 3, list(format.Extent{Size: 3, Object: "x", Off: i, Len: 3}))
	}
	broken := errors.New("broken")
	for _, bad := range []Item{
		item("bad", 3, list(format.Extent{Size: 3, Object: "x", Off: 25, Len: 3})),
		item("bad", 3, list(format.Extent{Size: 3, Object: "not there", Len: 3})),
		item("bad", 3, list(format.Extent{Size: 3, Object: "x", Len: 3, Codec: "flate"})),
		item("bad", 3, list(format.Extent{Size: 3, Object: "x", Len: 3, Codec: "no such codec"})),
		item("bad", 3, list(format.Extent{Size: -3, Object: "x", Len: 3})),
		item("bad", 3, list(format.Extent{Size: 2, Object: "x", Len: 2}, format.Extent{At: 1, Size: 2, Object: "x", Len: 2})),
		item("bad", 3, func(yield func(format.Extent, error) bool) { yield(format.Extent{}, broken) }),
		item("bad", 0, func(yield func(format.Extent, error) bool) { yield(format.Extent{}, broken) }),
	} {
		for _, ordered := range []bool{true, false} {
			var got swept
			err := New(open(st), Far).Sweep(t.Context(), items(good(0), good(1), bad, good(2), good(3)), ordered, got.each)
			if err != nil || got.errs["bad"] == nil {
				t.Errorf("%+v: sweep %v, item %v", bad, err, got.errs["bad"])
			}
			for i, want := range []string{"abc", "bcd", "cde", "def"} {
				if n := fmt.Sprintf("good %d", i); got.got[n] != want || got.errs[n] != nil {
					t.Errorf("beside %+v: %s is %q, %v", bad, n, got.got[n], got.errs[n])
				}
			}
		}
	}
}

// Extents may stick out of what is asked for; the neighbour's bytes are not
// theirs.
func TestItemsDoNotReachIntoTheirNeighbours(t *testing.T) {
	st := &storetest.Mem{}
	st.Put("x", bytes.Repeat([]byte("x"), 100))
	sticking := item("sticking out", 3, list(format.Extent{Size: 50, Object: "x", Len: 50}))
	hole := item("hole", 3, list())
	var got swept
	if err := New(open(st), Far).Sweep(t.Context(), items(sticking, hole), true, got.each); err != nil {
		t.Fatal(err)
	}
	if got.got["sticking out"] != "xxx" || got.got["hole"] != "\x00\x00\x00" {
		t.Errorf("found %q", got.got)
	}
}

// Sizes come from archives: no sum of them may wrap around.
func TestSweepSurvivesSizesThatDoNotAddUp(t *testing.T) {
	g := New(open(&storetest.Mem{}), Far)
	for _, ordered := range []bool{true, false} {
		in := items(item("small", 5, list()), item("huge", math.MaxInt64, list()), item("after", 5, list()),
			item("huger", math.MaxInt64, list()), item("last", 5, list()))
		n := 0
		var mu sync.Mutex
		err := g.Sweep(t.Context(), in, ordered, func(it Item, r io.Reader, err error) error {
			mu.Lock()
			defer mu.Unlock()
			n++
			p := make([]byte, 5)
			if _, rerr := io.ReadFull(r, p); err != nil || rerr != nil {
				t.Errorf("%s: %v, %v", it.Entry.Name, err, rerr)
			}
			return nil
		})
		if err != nil || n != 5 {
			t.Errorf("ordered %v: %d items, %v", ordered, n, err)
		}
	}
}

func TestSweepEndsWithItsFirstError(t *testing.T) {
	broken := errors.New("broken")
	endless := func(fail int) iter.Seq2[Item, error] {
		return func(yield func(Item, error) bool) {
			for i := 0; ; i++ {
				if i == fail {
					yield(Item{}, broken)
					return
				}
				// Larger than half a batch: one item each.
				if !yield(item(fmt.Sprint(i), sweepBatch*2/3, list(format.Extent{Size: 1, Codec: codec.Zero})), nil) {
					return
				}
			}
		}
	}
	for _, ordered := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			g := New(open(&storetest.Mem{}), Far)
			if err := g.Sweep(t.Context(), endless(-1), ordered, func(Item, io.Reader, error) error { return broken }); err != broken {
				t.Errorf("ordered %v: from each: %v", ordered, err)
			}
			if err := g.Sweep(t.Context(), endless(20), ordered, func(Item, io.Reader, error) error { return nil }); err != broken {
				t.Errorf("ordered %v: from items: %v", ordered, err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			if err := g.Sweep(ctx, endless(-1), ordered, func(Item, io.Reader, error) error { cancel(); return nil }); err != context.Canceled {
				t.Errorf("ordered %v: cancelled: %v", ordered, err)
			}
		})
	}
}

func TestCancelledSweepLeavesNoRequest(t *testing.T) {
	for _, ordered := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			st := &storetest.Mem{}
			x := large(st, 1<<20)
			var in []Item
			for i := range 100 {
				in = append(in, item(fmt.Sprint(i), x.Size, list(x)))
			}
			ctx, cancel := context.WithCancel(t.Context())
			n := 0
			var mu sync.Mutex
			err := New(open(slow{st, false}), Far).Sweep(ctx, items(in...), ordered, func(Item, io.Reader, error) error {
				mu.Lock()
				defer mu.Unlock()
				if n++; n == 3 {
					cancel()
				}
				return nil
			})
			if err != context.Canceled || n > 3+Far.Parallel {
				t.Errorf("ordered %v: %d items, %v", ordered, n, err)
			}
		})
	}
}

// A buffer that is given back twice would be used by two batches at once.
func TestFailedSweepGivesEachBufferBackOnce(t *testing.T) {
	broken := errors.New("broken")
	for range 20 {
		var in []Item
		for i := range 30 {
			in = append(in, item(fmt.Sprint(i), sweepBatch*2/3, list()))
		}
		n := 0
		err := New(open(&storetest.Mem{}), Far).Sweep(t.Context(), items(in...), true, func(Item, io.Reader, error) error {
			if n++; n == 5 {
				return broken
			}
			return nil
		})
		if err != broken {
			t.Fatal(err)
		}
		seen := map[*byte]bool{}
		for range 50 {
			b := getBuf(1)
			if seen[&b[0]] {
				t.Fatal("one buffer is handed out twice")
			}
			seen[&b[0]] = true
		}
	}
}
