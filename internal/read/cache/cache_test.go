package cache

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storekit"
	"github.com/holdall/holdall/store/storetest"
)

// cachedObject opens one object of size bytes through a cache, below which
// requests are written down.
func cachedObject(t *testing.T, size int, limit int64) (store.Object, []byte, *strings.Builder) {
	t.Helper()
	m := &storetest.Mem{}
	content := make([]byte, size)
	for i := range content {
		content[i] = byte(i * 31 >> 3)
	}
	m.Put("x", content)
	log := &strings.Builder{}
	o, err := Wrap(storetest.Trace(m, log), limit).Open(t.Context(), "x")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := o.Close(); err != nil {
			t.Error(err)
		}
	})
	return o, content, log
}

// read reads and compares with content.
func read(t *testing.T, o store.Object, content []byte, off, n int) {
	t.Helper()
	p := make([]byte, n)
	if err := o.ReadAt(t.Context(), p, int64(off)); err != nil || !bytes.Equal(p, content[off:][:n]) {
		t.Errorf("read at %d+%d: %v, same %v", off, n, err, bytes.Equal(p, content[off:][:n]))
	}
}

// wantRequests checks what reached the store; info is not counted, stores know
// it after any answer.
func wantRequests(t *testing.T, log *strings.Builder, want ...string) {
	t.Helper()
	var got []string
	for l := range strings.Lines(log.String()) {
		if !strings.HasPrefix(l, "info") {
			got = append(got, strings.TrimSpace(l))
		}
	}
	if strings.Join(got, "; ") != strings.Join(want, "; ") {
		t.Errorf("requests: expected %q, found %q", want, got)
	}
	log.Reset()
}

func TestWhatWasReadIsNotAskedForAgain(t *testing.T) {
	o, content, log := cachedObject(t, 10_000, 1<<20)
	read(t, o, content, 100, 1000)
	wantRequests(t, log, "read x at 100+1000")
	read(t, o, content, 100, 1000)
	read(t, o, content, 100, 1)
	read(t, o, content, 1099, 1)
	read(t, o, content, 500, 300)
	wantRequests(t, log)
	read(t, o, content, 99, 2)
	read(t, o, content, 1099, 2)
	wantRequests(t, log, "read x at 99+2", "read x at 1099+2")
	read(t, o, content, 200, 0)
	wantRequests(t, log)
}

func TestEndsAreSharedWithReads(t *testing.T) {
	for _, size := range []int{50, 100, 101, 10_000} {
		o, content, log := cachedObject(t, size, 1<<20)
		n := min(size, 100)
		tail := func(k int) {
			t.Helper()
			p := make([]byte, k)
			if got, err := storekit.ReadTail(t.Context(), o, p); err != nil || !bytes.Equal(p[:got], content[max(0, size-k):]) {
				t.Errorf("size %d: tail %d: %d bytes, %v", size, k, got, err)
			}
		}
		head := func(k int) {
			t.Helper()
			p := make([]byte, k)
			if got, err := storekit.ReadHead(t.Context(), o, p); err != nil || !bytes.Equal(p[:got], content[:min(k, size)]) {
				t.Errorf("size %d: head %d: %d bytes, %v", size, k, got, err)
			}
		}
		tail(100)
		wantRequests(t, log, "tail x 100")
		tail(100)
		tail(10)
		read(t, o, content, size-n, n)
		read(t, o, content, size-10, 10)
		wantRequests(t, log)
		if size <= 100 {
			head(100)
			head(1000)
			wantRequests(t, log)
			continue
		}
		head(100)
		wantRequests(t, log, "head x 100")
		head(100)
		head(10)
		read(t, o, content, 0, 100)
		read(t, o, content, 90, 10)
		wantRequests(t, log)
	}
}

// What was looked at is listed once without a request, and not after release.
func TestWhatWasLookedAtIsNotListedAgain(t *testing.T) {
	m := &storetest.Container{}
	m.Put("s/x", []byte("1"))
	st := Wrap(m, 0)
	list := func(want int) {
		t.Helper()
		n := 0
		for _, err := range storekit.ListHeaders(t.Context(), st, "s/") {
			if err != nil {
				t.Fatal(err)
			}
			n++
		}
		if n != want {
			t.Errorf("%d objects, expected %d", n, want)
		}
	}
	for _, most := range []int{1, 0} { // of too many nothing is known
		names, release := Look(t.Context(), st, "s/", most)
		m.Lists = 0
		list(1)
		if len(names) != most || m.Lists != 1-most {
			t.Errorf("looked at %q, then %d lists", names, m.Lists)
		}
		m.Put("s/y", []byte("2"))
		list(2)
		release()
		m.Remove(t.Context(), "s/y")
	}
	_, release := Look(t.Context(), st, "s/", 1)
	m.Put("s/y", []byte("2"))
	release()
	list(2)
}

func TestLongReadsPassThrough(t *testing.T) {
	o, content, log := cachedObject(t, 3<<20, 64<<20)
	for range 2 {
		read(t, o, content, 5, maxRun+1)
		wantRequests(t, log, fmt.Sprintf("read x at 5+%d", maxRun+1))
	}
	read(t, o, content, 5, maxRun)
	read(t, o, content, 5+maxRun-1, 1)
	wantRequests(t, log, fmt.Sprintf("read x at 5+%d", maxRun))
}

func TestTheLeastRecentlyUsedIsForgotten(t *testing.T) {
	o, content, log := cachedObject(t, 10_000, 300)
	read(t, o, content, 0, 100)
	read(t, o, content, 1000, 100)
	read(t, o, content, 2000, 100)
	log.Reset()
	read(t, o, content, 0, 100) // used again
	read(t, o, content, 3000, 100)
	read(t, o, content, 0, 100)
	read(t, o, content, 2000, 100)
	wantRequests(t, log, "read x at 3000+100")
	read(t, o, content, 1000, 100)
	wantRequests(t, log, "read x at 1000+100")
	read(t, o, content, 4000, 301) // more than may be held
	read(t, o, content, 4000, 301)
	wantRequests(t, log, "read x at 4000+301", "read x at 4000+301")
}

// held sums up what the cache holds, and checks its books.
func held(t *testing.T, st store.Store) int64 {
	t.Helper()
	c := st.(*cached)
	c.mu.Lock()
	defer c.mu.Unlock()
	sum, n := int64(0), 0
	for _, o := range c.objs {
		for i, r := range o.runs {
			sum += int64(len(r.b))
			n++
			if i > 0 && o.runs[i-1].off > r.off {
				t.Error("runs are not by offset")
			}
		}
	}
	if sum != c.held || n != c.used.Len() || sum > c.limit {
		t.Errorf("%d bytes in %d runs are held; the books say %d in %d, the limit is %d", sum, n, c.held, c.used.Len(), c.limit)
	}
	return sum
}

func TestRandomReadsAreRightAndBounded(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	m := &storetest.Mem{}
	contents := make([][]byte, 4)
	for i := range contents {
		contents[i] = make([]byte, 50_000+i)
		for k := range contents[i] {
			contents[i][k] = byte(rnd.Uint32())
		}
		m.Put(fmt.Sprint(i), contents[i])
	}
	st := Wrap(m, 100_000)
	var wg sync.WaitGroup
	for range 8 {
		rnd := rand.New(rand.NewPCG(rnd.Uint64(), 0))
		wg.Go(func() {
			for range 60 {
				i := rnd.IntN(len(contents))
				b := contents[i]
				o, err := st.Open(t.Context(), fmt.Sprint(i))
				if err != nil {
					t.Error(err)
					return
				}
				for range 20 {
					off := rnd.IntN(len(b))
					p := make([]byte, rnd.IntN(min(len(b)-off, 1<<(1+rnd.IntN(16)))))
					switch rnd.IntN(8) {
					case 0:
						n, err := storekit.ReadTail(t.Context(), o, p)
						if err != nil || n != len(p) || !bytes.Equal(p, b[len(b)-n:]) {
							t.Errorf("tail %d: %d, %v", len(p), n, err)
						}
					case 1:
						n, err := storekit.ReadHead(t.Context(), o, p)
						if err != nil || n != len(p) || !bytes.Equal(p, b[:n]) {
							t.Errorf("head %d: %d, %v", len(p), n, err)
						}
					default:
						if err := o.ReadAt(t.Context(), p, int64(off)); err != nil || !bytes.Equal(p, b[off:][:len(p)]) {
							t.Errorf("read at %d+%d: %v", off, len(p), err)
						}
					}
				}
				held(t, st)
				if err := o.Close(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if n := held(t, st); n != 0 {
		t.Errorf("%d bytes are held for objects that nobody has open", n)
	}
}

// slow is a store that takes a second for each read, counts them and fails the
// first few.
type slow struct {
	store.Store
	reads, fail atomic.Int32
}

func (*slow) Can() store.Abilities { return store.Abilities{} }

func (s *slow) Open(ctx context.Context, name string) (store.Object, error) {
	o, err := s.Store.Open(ctx, name)
	return slowObject{o, s}, err
}

type slowObject struct {
	store.Object
	s *slow
}

var errBroken = errors.New("broken")

func (slowObject) Can() store.ObjectAbilities { return store.ObjectAbilities{} }

func (o slowObject) ReadAt(ctx context.Context, p []byte, off int64) error {
	o.s.reads.Add(1)
	select {
	case <-time.After(time.Second):
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if o.s.fail.Add(-1) >= 0 {
		return errBroken
	}
	return o.Object.ReadAt(ctx, p, off)
}

// inBubble runs test with an object that is slow to read, in fake time.
func inBubble(t *testing.T, test func(t *testing.T, o store.Object, s *slow)) {
	synctest.Test(t, func(t *testing.T) {
		m := &storetest.Mem{}
		m.Put("x", []byte("0123456789"))
		s := &slow{Store: m}
		o, err := Wrap(s, 1<<20).Open(t.Context(), "x")
		if err != nil {
			t.Fatal(err)
		}
		test(t, o, s)
		if err := o.Close(); err != nil {
			t.Error(err)
		}
	})
}

func TestReadsOfTheSameRangeAtOnceAreOneRequest(t *testing.T) {
	for range 50 {
		inBubble(t, func(t *testing.T, o store.Object, s *slow) {
			var wg sync.WaitGroup
			for i := range 20 {
				wg.Go(func() {
					p := make([]byte, 5)
					if err := o.ReadAt(t.Context(), p, 2); err != nil || string(p) != "23456" {
						t.Errorf("reader %d: %q, %v", i, p, err)
					}
				})
			}
			wg.Wait()
			if n := s.reads.Load(); n != 1 {
				t.Errorf("%d requests", n)
			}
		})
	}
}

func TestPartOfARangeUnderWayWaitsForIt(t *testing.T) {
	inBubble(t, func(t *testing.T, o store.Object, s *slow) {
		var wg sync.WaitGroup
		wg.Go(func() {
			if err := o.ReadAt(t.Context(), make([]byte, 8), 1); err != nil {
				t.Error(err)
			}
		})
		synctest.Wait()
		p := make([]byte, 2)
		if err := o.ReadAt(t.Context(), p, 7); err != nil || string(p) != "78" {
			t.Errorf("%q, %v", p, err)
		}
		if err := o.ReadAt(t.Context(), p, 8); err != nil || string(p) != "89" {
			t.Errorf("%q, %v", p, err)
		}
		wg.Wait()
		if n := s.reads.Load(); n != 2 {
			t.Errorf("%d requests, expected the range and what goes beyond it", n)
		}
	})
}

func TestCancelOfOneWaiterDoesNotFailOthers(t *testing.T) {
	for cancelled := range 3 { // 0 is the one that asks
		inBubble(t, func(t *testing.T, o store.Object, s *slow) {
			var wg sync.WaitGroup
			for i := range 3 {
				ctx := t.Context()
				if i == cancelled {
					var cancel context.CancelFunc
					ctx, cancel = context.WithCancel(ctx)
					time.AfterFunc(time.Second/2, cancel)
				}
				wg.Go(func() {
					start := time.Now()
					p := make([]byte, 5)
					err := o.ReadAt(ctx, p, 0)
					if i == cancelled {
						if !errors.Is(err, context.Canceled) || time.Since(start) > time.Second/2 {
							t.Errorf("cancelled reader %d: %v after %v", i, err, time.Since(start))
						}
					} else if err != nil || string(p) != "01234" {
						t.Errorf("reader %d beside cancelled %d: %q, %v", i, cancelled, p, err)
					}
				})
				synctest.Wait()
			}
			wg.Wait()
			want := int32(1)
			if cancelled == 0 {
				want = 2
			}
			if n := s.reads.Load(); n != want {
				t.Errorf("reader %d cancelled: %d requests, expected %d", cancelled, n, want)
			}
		})
	}
}

func TestFailedReadIsNotKept(t *testing.T) {
	inBubble(t, func(t *testing.T, o store.Object, s *slow) {
		s.fail.Store(1)
		p := make([]byte, 5)
		if err := o.ReadAt(t.Context(), p, 0); !errors.Is(err, errBroken) {
			t.Errorf("first: %v", err)
		}
		if err := o.ReadAt(t.Context(), p, 0); err != nil || string(p) != "01234" {
			t.Errorf("second: %q, %v", p, err)
		}
	})
}

func TestChangedObjectIsSaidToBe(t *testing.T) {
	m := &storetest.Mem{}
	m.Put("x", []byte("old and known, old and not known"))
	st := Wrap(m, 1<<20)
	o, err := st.Open(t.Context(), "x")
	if err != nil {
		t.Fatal(err)
	}
	p := make([]byte, 13)
	if err := o.ReadAt(t.Context(), p, 0); err != nil {
		t.Fatal(err)
	}
	m.Put("x", []byte("new"))
	if err := o.ReadAt(t.Context(), p, 15); !errors.Is(err, store.ErrChanged) {
		t.Errorf("what was not read before: expected store.ErrChanged, found %v", err)
	}
	if err := o.ReadAt(t.Context(), p, 0); err != nil || string(p) != "old and known" {
		t.Errorf("what was: %q, %v", p, err)
	}
	// All who have it open see one version, including those who open it later.
	late, err := st.Open(t.Context(), "x")
	if err != nil {
		t.Fatal(err)
	}
	if err := late.ReadAt(t.Context(), p[:3], 20); !errors.Is(err, store.ErrChanged) {
		t.Errorf("opened meanwhile: expected store.ErrChanged, found %v", err)
	}
	if err := errors.Join(o.Close(), late.Close()); err != nil {
		t.Error(err)
	}
	// Opened anew it is the new one, and nothing of the old is left.
	if o, err = st.Open(t.Context(), "x"); err != nil {
		t.Fatal(err)
	}
	defer o.Close()
	if err := o.ReadAt(t.Context(), p[:3], 0); err != nil || string(p[:3]) != "new" {
		t.Errorf("opened anew: %q, %v", p[:3], err)
	}
}

func TestOneHandleClosedDoesNotCloseTheOther(t *testing.T) {
	m := &storetest.Mem{}
	m.Put("x", []byte("0123456789"))
	st := Wrap(m, 1<<20)
	var two [2]store.Object
	for i := range two {
		o, err := st.Open(t.Context(), "x")
		if err != nil {
			t.Fatal(err)
		}
		two[i] = o
	}
	p := make([]byte, 3)
	if err := two[0].ReadAt(t.Context(), p, 0); err != nil {
		t.Fatal(err)
	}
	for range 2 { // a second Close is none
		if err := two[0].Close(); err != nil {
			t.Error(err)
		}
	}
	for off := range int64(5) {
		if err := two[1].ReadAt(t.Context(), p, off); err != nil {
			t.Errorf("open handle: %v", err)
		}
		if err := two[0].ReadAt(t.Context(), p, off); !errors.Is(err, fs.ErrClosed) {
			t.Errorf("closed handle, at %d: expected fs.ErrClosed, found %v", off, err)
		}
	}
	if err := two[1].Close(); err != nil {
		t.Error(err)
	}
	if n := held(t, st); n != 0 {
		t.Errorf("%d bytes are held", n)
	}
}

// Offsets come from archives: none may wrap around into what is known.
func TestOffsetsAtTheEndOfTheNumbersAreNotCovered(t *testing.T) {
	inBubble(t, func(t *testing.T, o store.Object, s *slow) {
		var wg sync.WaitGroup
		wg.Go(func() { o.ReadAt(t.Context(), make([]byte, 5), 0) })
		synctest.Wait()
		for _, off := range []int64{math.MaxInt64, math.MaxInt64 - 1, math.MaxInt64 - 9, -1, math.MinInt64} {
			if err := o.ReadAt(t.Context(), make([]byte, 10), off); err == nil {
				t.Errorf("read at %d succeeds", off)
			}
		}
		wg.Wait()
	})
}
