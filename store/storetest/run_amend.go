package storetest

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"slices"
	"testing"

	"github.com/holdall/holdall/store"
)

func testAmendments(t *testing.T, s *suite) {
	if _, ok := s.st.(store.Amender); !ok {
		if _, err := store.Amend(t.Context(), s.st, "x"); !errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("amend: expected errors.ErrUnsupported, found %v", err)
		}
		t.Skip("objects of this store cannot be changed in place")
	}
	for _, c := range []struct {
		name string
		test func(*testing.T, *suite)
	}{
		{"writes replace and lengthen", testAmendWrites},
		{"nothing leaves a hole, and a range past the end is an unexpected EOF", testAmendBounds},
		{"one at a time", testAmendLock},
		{"a missing object is fs.ErrNotExist", testAmendMissing},
		{"a reader of what was there is told", testAmendSeen},
		{"closed is closed, and a cancelled context stops a request", testAmendClosed},
	} {
		t.Run(c.name, func(t *testing.T) { c.test(t, s) })
	}
}

func (s *suite) amend(t *testing.T, name string) store.Amendment {
	t.Helper()
	a, err := store.Amend(t.Context(), s.st, name)
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
		want = patched(want, p, int64(off))
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
		got := make([]byte, len(want))
		if err := a.ReadAt(ctx, got, 0); err != nil || !bytes.Equal(got, want) {
			t.Fatalf("%v: expected %s, found %s", err, brief(want), brief(got))
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
		"write behind the end":      a.WriteAt(ctx, []byte("x"), 11),
		"write before the front":    a.WriteAt(ctx, []byte("x"), -1),
		"truncate to more":          a.Truncate(ctx, 11),
		"truncate to less than all": a.Truncate(ctx, -1),
	} {
		if err == nil {
			t.Errorf("%s: expected an error", what)
		}
	}
	if err := a.ReadAt(ctx, make([]byte, 2), 9); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("read past the end: %v", err)
	}
	if err := a.WriteAt(ctx, []byte("ab"), 9); err != nil || a.Size() != 11 {
		t.Errorf("a write over the end: %v, size %d", err, a.Size())
	}
}

func testAmendLock(t *testing.T, s *suite) {
	s.put(t, "locked", []byte("content"))
	s.put(t, "other", []byte("content"))
	a := s.amend(t, "locked")
	if b, err := store.Amend(t.Context(), s.st, "locked"); err == nil {
		b.Close()
		t.Fatal("two amend one object")
	} else if l, ok := errors.AsType[*store.LockedError](err); !ok || l.Holder == "" {
		t.Errorf("the second is told %v", err)
	}
	s.wantContent(t, "locked", []byte("content"))
	if err := s.amend(t, "other").Close(); err != nil {
		t.Fatal(err)
	}
	before := s.names(t)
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	b, err := store.Amend(t.Context(), s.st, "locked")
	if err != nil {
		t.Fatalf("after the first is closed: %v", err)
	}
	if err := errors.Join(b.Close(), b.Close(), a.Close()); err != nil {
		t.Errorf("closing again: %v", err)
	}
	if after := s.names(t); !slices.Equal(before, after) {
		t.Errorf("%q while it is locked, then %q", before, after)
	}
}

// names lists what is there, if that can be done.
func (s *suite) names(t *testing.T) (names []string) {
	l, ok := s.st.(store.Lister)
	if !ok {
		return nil
	}
	for info, err := range l.List(t.Context(), "") {
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, info.Name)
	}
	return names
}

func testAmendMissing(t *testing.T, s *suite) {
	if _, err := store.Amend(t.Context(), s.st, "not there"); !errors.Is(err, fs.ErrNotExist) {
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
	// What is not there any more as it was may be read as it was, or not at all.
	if err := o.ReadAt(ctx, make([]byte, 5), 396); err == nil {
		t.Error("bytes are read that were not there")
	}
}

func testAmendClosed(t *testing.T, s *suite) {
	s.put(t, "closed", []byte("content"))
	a := s.amend(t, "closed")
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if err := a.WriteAt(gone, []byte("x"), 0); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	for what, err := range map[string]error{
		"write": a.WriteAt(t.Context(), []byte("x"), 0), "read": a.ReadAt(t.Context(), make([]byte, 1), 0),
		"truncate": a.Truncate(t.Context(), 0), "sync": a.Sync(t.Context()),
	} {
		if !errors.Is(err, fs.ErrClosed) {
			t.Errorf("%s after close: %v", what, err)
		}
	}
	s.wantContent(t, "closed", []byte("content"))
}

func testPatch(t *testing.T, s *suite) {
	ctx := t.Context()
	rnd := seeded(t)
	w := s.create(t, "patched")
	defer w.Abort()
	p, ok := w.(store.Patcher)
	if !ok || store.PatchLimit(w) == 0 {
		t.Skip("what is written here stays")
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
		if int64(off+len(b)) > p.PatchLimit() {
			continue
		}
		if err := p.Patch(ctx, b, int64(off)); err != nil {
			t.Fatal(err)
		}
		copy(want[off:], b)
	}
	if err := p.Patch(ctx, make([]byte, 2), int64(len(want)-1)); err == nil {
		t.Error("a patch beyond what was written is taken")
	}
	if _, err := w.Commit(ctx); err != nil {
		t.Fatal(err)
	}
	s.wantContent(t, "patched", want)
	if err := p.Patch(ctx, []byte("x"), 0); err == nil {
		t.Error("a patch after commit is taken")
	}
	s.wantContent(t, "patched", want)
}
