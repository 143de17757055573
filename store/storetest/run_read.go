package storetest

import (
	"bytes"
	"context"
	"errors"
	"io"
	"testing"
	"time"

	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storekit"
)

func testRanges(t *testing.T, s *suite) {
	r := seeded(t)
	want := noise(r, 100_000)
	s.put(t, "object", want)
	o := s.open(t, "object")
	size := len(want)
	ranges := [][2]int{{0, 1}, {0, size}, {size - 1, 1}, {size - 10, 10}, {1, size - 1}, {size / 2, 1}}
	for range 50 {
		off := r.IntN(size)
		ranges = append(ranges, [2]int{off, 1 + r.IntN(size-off)})
	}
	for _, x := range ranges {
		off, n := x[0], x[1]
		p := make([]byte, n)
		if err := o.ReadAt(t.Context(), p, int64(off)); err != nil {
			t.Errorf("read at %d+%d: %v", off, n, err)
		} else if !bytes.Equal(p, want[off:off+n]) {
			t.Errorf("read at %d+%d: expected %s, found %s", off, n, brief(want[off:off+n]), brief(p))
		}
	}
}

func testPastEnd(t *testing.T, s *suite) {
	s.put(t, "object", []byte("0123456789"))
	for _, x := range []struct {
		off int64
		n   int
	}{{0, 11}, {9, 2}, {10, 1}, {11, 1}, {1 << 40, 1}, {1<<63 - 1, 2}} {
		// Once as the first request, when a store may not know the size yet, and once after
		// another request.
		for _, warm := range []bool{false, true} {
			o := s.open(t, "object")
			if warm {
				if err := o.ReadAt(t.Context(), make([]byte, 1), 0); err != nil {
					t.Fatal(err)
				}
			}
			if err := o.ReadAt(t.Context(), make([]byte, x.n), x.off); !errors.Is(err, io.ErrUnexpectedEOF) {
				t.Errorf("read at %d+%d of 10 bytes, after another read %v: expected io.ErrUnexpectedEOF, found %v", x.off, x.n, warm, err)
			}
		}
	}
}

func testNegative(t *testing.T, s *suite) {
	s.put(t, "object", []byte("0123456789"))
	o := s.open(t, "object")
	for _, off := range []int64{-1, -10, -1 << 63} {
		if err := o.ReadAt(t.Context(), make([]byte, 1), off); err == nil {
			t.Errorf("read at %d: expected an error", off)
		}
	}
}

func testEmptyRead(t *testing.T, s *suite) {
	s.put(t, "object", []byte("0123456789"))
	o := s.open(t, "object")
	for _, off := range []int64{0, 5, 10, 11, 1 << 40} {
		if err := o.ReadAt(t.Context(), nil, off); err != nil {
			t.Errorf("read at %d+0: %v", off, err)
		}
	}
	for _, end := range ends {
		if n, err := end.read(t.Context(), o, nil); n != 0 || err != nil {
			t.Errorf("%s 0: expected 0, nil, found %d, %v", end.op, n, err)
		}
	}
}

// ends are the ways of reading an object of unknown size.
var ends = []struct {
	op   string
	read func(context.Context, store.Object, []byte) (int, error)
}{{"head", storekit.ReadHead}, {"tail", storekit.ReadTail}}

// endOf returns the end or the beginning of p that a read of n bytes returns.
func endOf(op string, p []byte, n int) []byte {
	n = min(n, len(p))
	if op == "tail" {
		return p[len(p)-n:]
	}
	return p[:n]
}

func testEmptyObject(t *testing.T, s *suite) {
	s.put(t, "empty", nil)
	if info, err := s.open(t, "empty").Info(t.Context()); err != nil || info.Size != 0 {
		t.Errorf("info: expected size 0, found %d, %v", info.Size, err)
	}
	for _, end := range ends {
		if n, err := end.read(t.Context(), s.open(t, "empty"), make([]byte, 5)); n != 0 || err != nil {
			t.Errorf("%s 5: expected 0, nil, found %d, %v", end.op, n, err)
		}
	}
	for _, off := range []int64{0, 1} {
		if err := s.open(t, "empty").ReadAt(t.Context(), make([]byte, 1), off); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("read at %d+1: expected io.ErrUnexpectedEOF, found %v", off, err)
		}
	}
	if err := s.open(t, "empty").ReadAt(t.Context(), nil, 0); err != nil {
		t.Errorf("read at 0+0: %v", err)
	}
}

func testEnds(t *testing.T, s *suite) {
	want := []byte("0123456789")
	s.put(t, "object", want)
	for _, n := range []int{1, 9, 10, 11, 1000} {
		for _, end := range ends {
			for _, warm := range []bool{false, true} {
				o := s.open(t, "object")
				if warm {
					if err := o.ReadAt(t.Context(), make([]byte, 1), 0); err != nil {
						t.Fatal(err)
					}
				}
				p := make([]byte, n)
				got, err := end.read(t.Context(), o, p)
				if err != nil {
					t.Errorf("%s %d, after another read %v: %v", end.op, n, warm, err)
					continue
				}
				if want := endOf(end.op, want, n); !bytes.Equal(p[:got], want) {
					t.Errorf("%s %d, after another read %v: expected %q, found %q", end.op, n, warm, want, p[:got])
				}
				if info, err := o.Info(t.Context()); err != nil || info.Size != 10 {
					t.Errorf("info after %s %d: expected size 10, found %d, %v", end.op, n, info.Size, err)
				}
			}
		}
	}
}

func testMissing(t *testing.T, s *suite) {
	s.put(t, "dir/object", []byte("x"))
	ctx := t.Context()
	for _, name := range []string{"missing", "dir/missing", "missing/object", "dir/objec", "dir/objectx"} {
		s.wantMissing(t, name)
		ask := map[string]func(store.Object) error{"info": func(o store.Object) error { _, err := o.Info(ctx); return err }}
		for _, end := range ends {
			ask[end.op] = func(o store.Object) error { _, err := end.read(ctx, o, make([]byte, 1)); return err }
		}
		for op, ask := range ask {
			s.wantMissingBy(t, op, name, ask)
		}
	}
}

func testInfo(t *testing.T, s *suite) {
	// Stores keep times in seconds; the clocks of a test and its server agree.
	before := time.Now().Add(-2 * time.Second)
	s.put(t, "object", []byte("0123456789"))
	o := s.open(t, "object")
	info, err := o.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if info.Name != "object" {
		t.Errorf("name: expected %q, found %q", "object", info.Name)
	}
	if info.Size != 10 {
		t.Errorf("size: expected 10, found %d", info.Size)
	}
	if info.Version == "" {
		t.Error("version: expected one, found none")
	}
	if !info.ModTime.IsZero() && (info.ModTime.Before(before) || info.ModTime.After(time.Now().Add(2*time.Second))) {
		t.Errorf("time: expected about now or none, found %v", info.ModTime)
	}
	if again, err := o.Info(t.Context()); err != nil || again != info {
		t.Errorf("info of the same object: expected %+v, found %+v, %v", info, again, err)
	}
	if other, err := s.open(t, "object").Info(t.Context()); err != nil || other.Version != info.Version {
		t.Errorf("version of the same bytes, opened again: expected %q, found %q, %v", info.Version, other.Version, err)
	}
	s.put(t, "object", []byte("abcdefghij"))
	if other, err := s.open(t, "object").Info(t.Context()); err != nil || other.Version == info.Version {
		t.Errorf("version of other bytes of the same size: expected one other than %q, found %q, %v", info.Version, other.Version, err)
	}
}
