package storetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storekit"
)

func testParallel(t *testing.T, s *suite) {
	want := noise(seeded(t), 200_000)
	s.put(t, "object", want)
	o := s.open(t, "object")
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(uint64(g), 1))
			for range 25 {
				off := r.IntN(len(want))
				n := 1 + r.IntN(min(len(want)-off, 20_000))
				p := make([]byte, n)
				if err := o.ReadAt(t.Context(), p, int64(off)); err != nil {
					t.Errorf("read at %d+%d: %v", off, n, err)
					return
				}
				if !bytes.Equal(p, want[off:off+n]) {
					t.Errorf("read at %d+%d: wrong bytes", off, n)
				}
				if k, err := storekit.ReadTail(t.Context(), o, p); err != nil || !bytes.Equal(p[:k], want[len(want)-n:]) {
					t.Errorf("tail %d: wrong bytes or %v", n, err)
				}
				if info, err := o.Info(t.Context()); err != nil || info.Size != int64(len(want)) {
					t.Errorf("info: expected size %d, found %d, %v", len(want), info.Size, err)
				}
			}
		})
	}
	wg.Wait()
}

func testClosed(t *testing.T, s *suite) {
	s.put(t, "object", []byte("0123456789"))
	for _, warm := range []bool{false, true} {
		o, err := s.st.Open(t.Context(), "object")
		if err != nil {
			t.Fatal(err)
		}
		if warm {
			if err := o.ReadAt(t.Context(), make([]byte, 10), 0); err != nil {
				t.Fatal(err)
			}
		}
		if err := o.Close(); err != nil {
			t.Fatalf("close: %v", err)
		}
		if err := o.ReadAt(t.Context(), make([]byte, 1), 0); err == nil {
			t.Errorf("read after close, read before %v: expected an error", warm)
		}
		for _, end := range ends {
			if _, err := end.read(t.Context(), o, make([]byte, 1)); err == nil {
				t.Errorf("%s after close, read before %v: expected an error", end.op, warm)
			}
		}
	}
}

func testCancelled(t *testing.T, s *suite) {
	s.put(t, "object", []byte("0123456789"))
	o := s.open(t, "object")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := o.ReadAt(ctx, make([]byte, 1), 0); !errors.Is(err, context.Canceled) {
		t.Errorf("read: expected an error wrapping context.Canceled, found %v", err)
	}
	for _, end := range ends {
		if _, err := end.read(ctx, o, make([]byte, 1)); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: expected an error wrapping context.Canceled, found %v", end.op, err)
		}
	}
	// The object still works for a caller whose context has not ended.
	p := make([]byte, 10)
	if err := o.ReadAt(t.Context(), p, 0); err != nil || string(p) != "0123456789" {
		t.Errorf("read after a cancelled one: found %q, %v", p, err)
	}
}

func testChanged(t *testing.T, s *suite) {
	before := "0123456789"
	for _, after := range []string{"abcdefghij", "abc", "", "abcdefghijklmnopqrstuvwxyz"} {
		t.Run(fmt.Sprintf("from 10 to %d bytes", len(after)), func(t *testing.T) {
			s.put(t, "object", []byte(before))
			o := s.open(t, "object")
			// A store that sends no request at Open learns the version here.
			if err := o.ReadAt(t.Context(), make([]byte, 2), 4); err != nil {
				t.Fatal(err)
			}
			s.put(t, "object", []byte(after))
			for _, x := range [][2]int{{0, 10}, {0, 1}, {2, 1}, {9, 1}, {3, 7}} {
				p := make([]byte, x[1])
				err := o.ReadAt(t.Context(), p, int64(x[0]))
				want := before[x[0] : x[0]+x[1]]
				if !errors.Is(err, store.ErrChanged) && (err != nil || string(p) != want) {
					t.Errorf("read at %d+%d: expected %q or ErrChanged, found %q, %v", x[0], x[1], want, p, err)
				}
			}
			for _, end := range ends {
				p := make([]byte, 4)
				n, err := end.read(t.Context(), o, p)
				if want := endOf(end.op, []byte(before), 4); !errors.Is(err, store.ErrChanged) && (err != nil || !bytes.Equal(p[:n], want)) {
					t.Errorf("%s 4: expected %q or ErrChanged, found %q, %v", end.op, want, p[:n], err)
				}
			}
			info, err := o.Info(t.Context())
			if !errors.Is(err, store.ErrChanged) && (err != nil || info.Size != 10) {
				t.Errorf("info: expected size 10 or ErrChanged, found %d, %v", info.Size, err)
			}
			s.wantContent(t, "object", []byte(after))
		})
	}
}

func testChanging(t *testing.T, s *suite) {
	const size = 50_000
	version := func(i int) []byte { return bytes.Repeat([]byte{byte('a' + i%26)}, size) }
	s.put(t, "object", version(0))
	done := make(chan struct{})
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				if err := readOneVersion(t.Context(), s.st, size); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	for i := range 50 {
		if err := s.putFunc("object", version(i)); err != nil {
			t.Errorf("put: %v", err)
		}
	}
	close(done)
	wg.Wait()
}

// readOneVersion reads an object whose versions each consist of a single byte value, and checks
// that it reads one version only.
func readOneVersion(ctx context.Context, st store.Store, size int) (err error) {
	o, err := st.Open(ctx, "object")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, o.Close()) }()
	seen := ""
	for _, x := range [][2]int{{0, size}, {size / 2, 1000}, {size - 1, 1}, {0, size}} {
		p := make([]byte, x[1])
		if err := o.ReadAt(ctx, p, int64(x[0])); errors.Is(err, store.ErrChanged) {
			return nil
		} else if err != nil {
			return err
		}
		if seen == "" {
			seen = string(p[:1])
		}
		if strings.Count(string(p), seen) != len(p) {
			return fmt.Errorf("read at %d+%d: mixes version %q with others", x[0], x[1], seen)
		}
	}
	return nil
}
