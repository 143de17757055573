package engine

import (
	"bytes"
	"context"
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/testkit"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storetest"
)

// slow is a store that takes a second for each read and, if deaf, does not hear
// that it is cancelled.
type slow struct {
	store.Store
	deaf bool
}

func (slow) Can() store.Abilities { return store.Abilities{} }

func (s slow) Open(ctx context.Context, name string) (store.Object, error) {
	o, err := s.Store.Open(ctx, name)
	return slowObject{o, s.deaf}, err
}

type slowObject struct {
	store.Object
	deaf bool
}

func (slowObject) Can() store.ObjectAbilities { return store.ObjectAbilities{} }

func (o slowObject) ReadAt(ctx context.Context, p []byte, off int64) error {
	hear := ctx.Done()
	if o.deaf {
		hear = nil
	}
	select {
	case <-time.After(time.Second):
		return o.Object.ReadAt(context.WithoutCancel(ctx), p, off)
	case <-hear:
		return context.Cause(ctx)
	}
}

func large(st *storetest.Mem, n int) format.Extent {
	st.Put("large", bytes.Repeat([]byte("0123456789abcdef"), n/16))
	return format.Extent{Size: int64(n), Object: "large", Len: int64(n)}
}

// A bubble of synctest ends in a panic if a goroutine is left in it.
func TestReaderClosedInTheMiddleLeavesNothingUnderWay(t *testing.T) {
	for _, deaf := range []bool{false, true} {
		for _, part := range []int{0, 1, 100_000, 1 << 20} {
			synctest.Test(t, func(t *testing.T) {
				st := &storetest.Mem{}
				x := large(st, 24<<20)
				r := New(open(slow{st, deaf}), Far).NewReader(t.Context(), list(x), x.Size)
				if _, err := io.ReadFull(r, make([]byte, part)); err != nil {
					t.Fatal(err)
				}
				if err := r.Close(); err != nil {
					t.Error(err)
				}
				// What is under way must be over when Close returns, for the
				// object may be closed next.
				closed := time.Now()
				synctest.Wait()
				time.Sleep(time.Hour)
				if n, err := r.Read(make([]byte, 1)); n != 0 || err == nil || err == io.EOF {
					t.Errorf("read after close, at %v: %d, %v", closed, n, err)
				}
			})
		}
	}
}

func TestCancelledReaderWaitsInCloseForWhatIsUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := &storetest.Mem{}
		x := large(st, 24<<20)
		busy := 0
		o := func(ctx context.Context, name string, _ bool) (store.Object, error) {
			inner, err := slow{st, true}.Open(ctx, name)
			return counted{inner, &busy}, err
		}
		ctx, cancel := context.WithCancel(t.Context())
		r := New(o, Limits{Request: 1 << 20, Ahead: 1}).NewReader(ctx, list(x), x.Size)
		if _, err := io.ReadFull(r, make([]byte, 1<<20)); err != nil {
			t.Fatal(err)
		}
		time.AfterFunc(time.Millisecond, cancel)
		if _, err := io.Copy(io.Discard, r); !errors.Is(err, context.Canceled) {
			t.Errorf("expected context.Canceled, found %v", err)
		}
		if err := r.Close(); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		if busy != 0 {
			t.Errorf("%d requests are under way after Close", busy)
		}
	})
}

// counted counts reads under way. Only used in a bubble, where one goroutine
// that sleeps is not running.
type counted struct {
	store.Object
	busy *int
}

func (counted) Can() store.ObjectAbilities { return store.ObjectAbilities{} }

func (o counted) ReadAt(ctx context.Context, p []byte, off int64) error {
	countMu <- struct{}{}
	*o.busy++
	<-countMu
	err := o.Object.ReadAt(ctx, p, off)
	countMu <- struct{}{}
	*o.busy--
	<-countMu
	return err
}

var countMu = make(chan struct{}, 1)

func TestReaderReadsAheadNoFurtherThanItMay(t *testing.T) {
	st := &storetest.Mem{}
	x := large(st, 8<<20)
	for _, l := range []Limits{Near, Far, {Request: 100_000, Ahead: 2}, {Request: 1000}} {
		asked := int64(0)
		st := storetest.Fault(st, func(op, _ string, off, n int64) error {
			if op == "read" {
				countMu <- struct{}{}
				asked = max(asked, off+n)
				<-countMu
			}
			return nil
		})
		r := New(open(st), l).NewReader(t.Context(), list(x), x.Size)
		p := make([]byte, 500)
		for at := int64(0); at < x.Size; at += int64(len(p)) {
			p = p[:min(500, x.Size-at)]
			if _, err := io.ReadFull(r, p); err != nil {
				t.Fatal(err)
			}
			countMu <- struct{}{}
			far := asked - at
			<-countMu
			if most := l.Request * int64(l.Ahead+2); far > most {
				t.Fatalf("%+v: at %d, asked for %d bytes ahead, more than %d", l, at, far, most)
			}
		}
		r.Close()
	}
}

// Blocks that are consecutive in both content and object are one read.
func TestReaderJoinsNeighbours(t *testing.T) {
	st := &storetest.Mem{}
	st.Put("x", make([]byte, 10_000))
	var xs []format.Extent
	for i := range int64(10) {
		xs = append(xs, format.Extent{At: i * 100, Size: 100, Object: "x", Off: 500 + i*100, Len: 100})
	}
	xs = append(xs, format.Extent{At: 1000, Size: 100, Object: "x", Off: 5000, Len: 100})
	g, log := traced(st, Limits{Request: 4096, Parallel: 1})
	r := g.NewReader(t.Context(), list(xs...), 1100)
	defer r.Close()
	if b, err := io.ReadAll(r); len(b) != 1100 || err != nil {
		t.Fatal(len(b), err)
	}
	wantRequests(t, log, "read x at 500+1000", "read x at 5000+100")
}

// crowd counts reads that are under way at once.
type crowd struct {
	slow
	now, most *atomic.Int64
}

func (c crowd) Open(ctx context.Context, name string) (store.Object, error) {
	o, err := c.slow.Open(ctx, name)
	return crowdObject{o, c}, err
}

type crowdObject struct {
	store.Object
	crowd
}

func (crowdObject) Can() store.ObjectAbilities { return store.ObjectAbilities{} }

func (o crowdObject) ReadAt(ctx context.Context, p []byte, off int64) error {
	n := o.now.Add(1)
	defer o.now.Add(-1)
	for {
		if was := o.most.Load(); n <= was || o.most.CompareAndSwap(was, n) {
			return o.Object.ReadAt(ctx, p, off)
		}
	}
}

func TestStreamsShareWhatIsReadAhead(t *testing.T) {
	if n := streaming.Load(); n != 0 {
		t.Fatalf("an earlier test left %d streams: it must close its engine", n)
	}
	for streams, want := range map[int]int64{1: int64(Far.Ahead), 3: mostAhead, 12: 24} {
		synctest.Test(t, func(t *testing.T) {
			st := &storetest.Mem{}
			x := large(st, map[bool]int{false: 40 << 20, true: 16 << 20}[streams > 3])
			c := crowd{slow{Store: st}, &atomic.Int64{}, &atomic.Int64{}}
			var wg sync.WaitGroup
			for range streams {
				wg.Go(func() {
					r := New(open(c), Far).NewReader(t.Context(), list(x), x.Size)
					defer r.Close()
					if n, err := io.Copy(io.Discard, r); n != x.Size || err != nil {
						t.Errorf("%d bytes, %v", n, err)
					}
				})
			}
			wg.Wait()
			if got := c.most.Load(); got != want {
				t.Errorf("%d streams: %d requests at once, expected %d", streams, got, want)
			}
		})
	}
	if n := streaming.Load(); n != 0 {
		t.Errorf("%d streams are still counted", n)
	}
}

// A long stream reads into the same few windows again and again.
func TestWindowsAreUsedAgain(t *testing.T) {
	testkit.Serial(t)
	st := &storetest.Mem{}
	x := large(st, 256<<20)
	r := New(open(st), Far).NewReader(t.Context(), list(x), x.Size)
	defer r.Close()
	b := make([]byte, 1<<20)
	if took := testkit.Allocated(func() {
		for {
			if _, err := r.Read(b); err == io.EOF {
				return
			} else if err != nil {
				t.Fatal(err)
			}
		}
	}); took > 64<<20 {
		t.Errorf("%d bytes were allocated for %d", took, x.Size)
	}
}
