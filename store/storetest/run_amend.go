package storetest

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storekit"
)

func testAmendments(t *testing.T, s *suite) {
	s.put(t, "x", []byte("content"))
	if a, err := storekit.Amend(t.Context(), s.st, "x"); err == nil {
		if err := a.Close(); err != nil {
			t.Fatal(err)
		}
	} else if errors.Is(err, errors.ErrUnsupported) {
		t.Skip("objects of this store cannot be changed in place")
	} else {
		t.Fatalf("amend: %v", err)
	}
	s.run(t, []check{
		{"writes replace and lengthen", testAmendWrites},
		{"holes are refused, and a range past the end is an unexpected EOF", testAmendBounds},
		{"one at a time", testAmendLock},
		{"of many at once one succeeds", testAmendRace},
		{"a replaced object is not changed", testAmendReplaced},
		{"a missing object is fs.ErrNotExist", testAmendMissing},
		{"an open object is not read past its old end", testAmendSeen},
		{"closed is closed, and a cancelled context stops a request", testAmendClosed},
	})
}

func (s *suite) amend(t *testing.T, name string) store.Amendment {
	t.Helper()
	a, err := storekit.Amend(t.Context(), s.st, name)
	if err != nil {
		t.Fatalf("amend %q: %v", name, err)
	}
	t.Cleanup(func() { a.Close() })
	return a
}

func testAmendWrites(t *testing.T, s *suite) {
	ctx := t.Context()
	rnd := seeded(t)
	want := noise(rnd, 5000)
	s.put(t, "amended", want)
	a := s.amend(t, "amended")
	for range 50 {
		off := rnd.IntN(len(want) + 1)
		p := noise(rnd, rnd.IntN(3000))
		if err := a.WriteAt(ctx, p, int64(off)); err != nil {
			t.Fatal(err)
		}
		want = op{'w', int64(off), p}.onto(want)
		if rnd.IntN(5) == 0 {
			n := rnd.IntN(len(want) + 1)
			if err := a.Truncate(ctx, int64(n)); err != nil {
				t.Fatal(err)
			}
			want = want[:n]
		}
		if rnd.IntN(5) == 0 {
			if err := a.Sync(ctx); err != nil {
				t.Fatal(err)
			}
		}
		if a.Size() != int64(len(want)) {
			t.Fatalf("size %d, expected %d", a.Size(), len(want))
		}
		from := rnd.IntN(len(want) + 1)
		got := make([]byte, len(want)-from)
		if err := a.ReadAt(ctx, got, int64(from)); err != nil || !bytes.Equal(got, want[from:]) {
			t.Fatalf("read from %d: %v: expected %s, found %s", from, err, brief(want[from:]), brief(got))
		}
		if len(p) > 0 {
			p[0]++ // the amendment must not keep it
		}
	}
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	s.wantContent(t, "amended", want)
}

func testAmendBounds(t *testing.T, s *suite) {
	ctx := t.Context()
	s.put(t, "bounds", []byte("0123456789"))
	a := s.amend(t, "bounds")
	for what, err := range map[string]error{
		"write beyond the end":         a.WriteAt(ctx, []byte("x"), 11),
		"write far beyond the end":     a.WriteAt(ctx, []byte("x"), math.MaxInt64),
		"write before the front":       a.WriteAt(ctx, []byte("x"), -1),
		"write nothing beyond the end": a.WriteAt(ctx, nil, 11),
		"truncate to more":             a.Truncate(ctx, 11),
		"truncate to less than all":    a.Truncate(ctx, -1),
		"read before the front":        a.ReadAt(ctx, make([]byte, 1), -1),
	} {
		if err == nil {
			t.Errorf("%s: expected an error", what)
		}
	}
	for _, x := range [][2]int64{{2, 9}, {1, 10}, {1, 11}, {1, math.MaxInt64}, {11, 0}} {
		if err := a.ReadAt(ctx, make([]byte, x[0]), x[1]); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("read of %d at %d, past the end: %v", x[0], x[1], err)
		}
	}
	for _, off := range []int64{0, 10, 11, -1} {
		if err := a.ReadAt(ctx, nil, off); err != nil {
			t.Errorf("read of nothing at %d: %v", off, err)
		}
	}
	if err := a.WriteAt(ctx, nil, 10); err != nil || a.Size() != 10 {
		t.Errorf("write of nothing at the end: %v, size %d", err, a.Size())
	}
	if err := a.WriteAt(ctx, []byte("ab"), 9); err != nil || a.Size() != 11 {
		t.Errorf("a write over the end: %v, size %d", err, a.Size())
	}
	// Bytes that were cut off must not come back.
	if err := errors.Join(a.Truncate(ctx, 3), a.WriteAt(ctx, []byte("x"), 3), a.Close()); err != nil {
		t.Error(err)
	}
	s.wantContent(t, "bounds", []byte("012x"))
}

func testAmendLock(t *testing.T, s *suite) {
	s.put(t, "locked", []byte("content"))
	s.put(t, "other", []byte("content"))
	a := s.amend(t, "locked")
	if b, err := storekit.Amend(t.Context(), s.st, "locked"); err == nil {
		b.Close()
		t.Fatal("two amend one object")
	} else if l, ok := errors.AsType[*store.LockedError](err); !ok || l.Holder == "" {
		t.Errorf("the second amendment: %v", err)
	}
	s.wantContent(t, "locked", []byte("content"))
	if err := s.amend(t, "other").Close(); err != nil {
		t.Fatal(err)
	}
	before := s.list(t, "")
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	b, err := storekit.Amend(t.Context(), s.st, "locked")
	if err != nil {
		t.Fatalf("after the first is closed: %v", err)
	}
	if err := errors.Join(b.Close(), b.Close(), a.Close()); err != nil {
		t.Errorf("closing again: %v", err)
	}
	if after := s.list(t, ""); !slices.Equal(before, after) {
		t.Errorf("%q while it is locked, then %q", before, after)
	}
}

func testAmendRace(t *testing.T, s *suite) {
	s.put(t, "contended", []byte{0})
	var wg sync.WaitGroup
	var done, inside atomic.Int32
	for range 8 {
		wg.Go(func() {
			for range 20 {
				a, err := storekit.Amend(t.Context(), s.st, "contended")
				if _, ok := errors.AsType[*store.LockedError](err); ok {
					continue
				} else if err != nil {
					t.Errorf("amend: %v", err)
					return
				}
				if n := inside.Add(1); n != 1 {
					t.Errorf("%d amend one object", n)
				}
				p := make([]byte, 1)
				err = a.ReadAt(t.Context(), p, 0)
				if err == nil {
					p[0]++
					err = a.WriteAt(t.Context(), p, 0)
				}
				inside.Add(-1)
				if err = errors.Join(err, a.Close()); err != nil {
					t.Error(err)
				}
				done.Add(1)
			}
		})
	}
	wg.Wait()
	if done.Load() == 0 {
		t.Error("none succeeded")
	}
	s.wantContent(t, "contended", []byte{byte(done.Load())})
}

func testAmendReplaced(t *testing.T, s *suite) {
	ctx := t.Context()
	s.put(t, "replaced", []byte("old content"))
	a := s.amend(t, "replaced")
	s.put(t, "replaced", []byte("new"))
	if err := a.WriteAt(ctx, []byte("OLD"), 0); err == nil { // this may fail too
		p := make([]byte, 3)
		if err := a.ReadAt(ctx, p, 0); err != nil || string(p) != "OLD" {
			t.Errorf("found %q, %v", p, err)
		}
	}
	s.wantContent(t, "replaced", []byte("new"))
	if b, err := storekit.Amend(ctx, s.st, "replaced"); err == nil {
		b.Close()
		t.Error("the new object can be changed while the old one is")
	}
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	b := s.amend(t, "replaced")
	if err := errors.Join(b.WriteAt(ctx, []byte("N"), 0), b.Close()); err != nil {
		t.Error(err)
	}
	s.wantContent(t, "replaced", []byte("New"))
}

func testAmendMissing(t *testing.T, s *suite) {
	if _, err := storekit.Amend(t.Context(), s.st, "missing"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("expected fs.ErrNotExist, found %v", err)
	}
}

func testAmendSeen(t *testing.T, s *suite) {
	ctx := t.Context()
	s.put(t, "read", bytes.Repeat([]byte("old "), 100))
	o := s.open(t, "read")
	p := make([]byte, 4)
	if err := o.ReadAt(ctx, p, 0); err != nil {
		t.Fatal(err)
	}
	a := s.amend(t, "read")
	if err := a.WriteAt(ctx, []byte("longer"), a.Size()); err != nil {
		t.Fatal(err)
	}
	// What has changed may be read in its old state, or not at all.
	if err := o.ReadAt(ctx, make([]byte, 5), 396); err == nil {
		t.Error("bytes past the end were read")
	}
}

func testAmendClosed(t *testing.T, s *suite) {
	s.put(t, "closed", []byte("content"))
	a := s.amend(t, "closed")
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	refused := func(ctx context.Context, want error) {
		t.Helper()
		for what, err := range map[string]error{
			"write": a.WriteAt(ctx, []byte("x"), 0), "read": a.ReadAt(ctx, make([]byte, 1), 0),
			"truncate": a.Truncate(ctx, 0), "sync": a.Sync(ctx),
		} {
			if !errors.Is(err, want) {
				t.Errorf("%s: expected %v, found %v", what, want, err)
			}
		}
	}
	refused(gone, context.Canceled)
	if _, err := storekit.Amend(gone, s.st, "closed"); !errors.Is(err, context.Canceled) {
		t.Errorf("amend, cancelled: %v", err)
	}
	// The amendment still works for a caller whose context has not ended.
	if err := errors.Join(a.WriteAt(t.Context(), []byte("C"), 0), a.Sync(t.Context()), a.Close()); err != nil {
		t.Errorf("after a cancelled request: %v", err)
	}
	refused(t.Context(), fs.ErrClosed)
	s.wantContent(t, "closed", []byte("Content"))
}

func testPatch(t *testing.T, s *suite) {
	ctx := t.Context()
	rnd := seeded(t)
	w := s.create(t, "patched")
	can := w.Can()
	if can.Patch == nil {
		if can.PatchLimit != 0 {
			t.Errorf("patches up to %d, but no function", can.PatchLimit)
		}
		t.Skip("this store's writers do not patch")
	}
	var want []byte
	for range 40 {
		b := noise(rnd, rnd.IntN(20_000))
		if _, err := w.Write(b); err != nil {
			t.Fatal(err)
		}
		want = append(want, b...)
		off := rnd.IntN(len(want) + 1)
		b = noise(rnd, rnd.IntN(min(len(want)-off, 5000)+1))
		if int64(off+len(b)) > can.PatchLimit {
			continue
		}
		if err := can.Patch(ctx, b, int64(off)); err != nil {
			t.Fatal(err)
		}
		copy(want[off:], b)
	}
	gone, cancel := context.WithCancel(ctx)
	cancel()
	if err := can.Patch(gone, []byte("x"), 0); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	for _, x := range [][2]int64{{2, int64(len(want)) - 1}, {1, int64(len(want))}, {1, -1}, {1, math.MaxInt64}, {0, int64(len(want)) + 1}} {
		if err := can.Patch(ctx, make([]byte, x[0]), x[1]); err == nil {
			t.Errorf("a patch of %d bytes at %d of %d: expected an error", x[0], x[1], len(want))
		}
	}
	if limit := can.PatchLimit; limit < int64(len(want)) {
		if err := can.Patch(ctx, make([]byte, 2), limit-1); err == nil {
			t.Error("a patch beyond the limit: expected an error")
		}
	}
	if _, err := w.Commit(ctx); err != nil {
		t.Fatal(err)
	}
	s.wantContent(t, "patched", want)
	if err := can.Patch(ctx, []byte("x"), 0); err == nil {
		t.Error("a patch after commit: expected an error")
	}
	s.wantContent(t, "patched", want)

	w = s.create(t, "patched, aborted")
	write(t, w, []byte("0123456789"))
	patch := w.Can().Patch
	if err := errors.Join(patch(ctx, []byte("abc"), 3), w.Abort()); err != nil {
		t.Error(err)
	}
	if err := patch(ctx, []byte("x"), 0); err == nil {
		t.Error("a patch after abort: expected an error")
	}
	s.wantMissing(t, "patched, aborted")
}
