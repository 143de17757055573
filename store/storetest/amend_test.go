package storetest

import (
	"bytes"
	"context"
	"errors"
	"testing"

	"github.com/holdall/holdall/store"
)

// small has writers that can patch the first 10 000 bytes, as those of a bucket can
// patch their first part.
type small struct{ *Mem }

func (s small) Can() store.Abilities {
	can := s.Mem.Can()
	can.Create = func(ctx context.Context, name string, wish store.Wishes) (store.Writer, error) {
		w, err := s.CreateAs(ctx, name, wish)
		return smallWriter{w}, err
	}
	return can
}

type smallWriter struct{ store.Writer }

func (w smallWriter) Can() store.WriterAbilities {
	below := w.Writer.Can()
	return store.WriterAbilities{PatchLimit: 10_000, Patch: func(ctx context.Context, p []byte, off int64) error {
		if int64(len(p)) > 10_000-off {
			return errors.New("behind the first part")
		}
		return below.Patch(ctx, p, off)
	}}
}

func TestStoreThatPatchesOnlyTheFrontKeepsTheContract(t *testing.T) {
	Run(t, func(*testing.T) (store.Store, func(string, []byte) error) {
		m := &Mem{}
		return Fault(small{m}, Nth("none", 1, nil)), func(name string, content []byte) error {
			m.Put(name, content)
			return nil
		}
	})
}

func TestMemReaderIsToldOfEveryKindOfAmendment(t *testing.T) {
	ctx := t.Context()
	var m Mem
	m.Put("a", []byte("0123456789"))
	a, err := m.Amend(ctx, "a")
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	for _, c := range []struct {
		what string
		do   func() error
	}{
		{"a write of the same size", func() error { return a.WriteAt(ctx, []byte("x"), 3) }},
		{"an append", func() error { return a.WriteAt(ctx, []byte("x"), 10) }},
		{"a truncation", func() error { return a.Truncate(ctx, 5) }},
	} {
		o, err := m.Open(ctx, "a")
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(a.Sync(ctx), o.ReadAt(ctx, make([]byte, 1), 0)); err != nil {
			t.Errorf("before %s: %v", c.what, err)
		}
		if err := c.do(); err != nil {
			t.Fatal(err)
		}
		if err := o.ReadAt(ctx, make([]byte, 1), 0); !errors.Is(err, store.ErrChanged) {
			t.Errorf("after %s: expected ErrChanged, found %v", c.what, err)
		}
	}
}

func TestMemAmendmentsShareNoBytesWithClones(t *testing.T) {
	ctx := t.Context()
	var m Mem
	m.Put("a", []byte("0123456789"))
	change := func(m *Mem, do ...func(store.Amendment) error) {
		t.Helper()
		a, err := m.Amend(ctx, "a")
		if err != nil {
			t.Fatal(err)
		}
		defer a.Close()
		for _, do := range do {
			if err := do(a); err != nil {
				t.Fatal(err)
			}
		}
	}
	add := func(s string) func(store.Amendment) error {
		return func(a store.Amendment) error { return a.WriteAt(ctx, []byte(s), a.Size()) }
	}
	var clone, older *Mem
	change(&m, add("a"), add("b"), func(store.Amendment) error { clone = m.Clone(); return nil }, add("c"))
	change(clone, add("d"), func(store.Amendment) error { older = clone.Clone(); return nil },
		func(a store.Amendment) error { return a.Truncate(ctx, 11) }, add("e"),
		func(a store.Amendment) error { return a.WriteAt(ctx, []byte("X"), 0) })
	for _, c := range []struct {
		m    *Mem
		want string
	}{{&m, "0123456789abc"}, {clone, "X123456789ae"}, {older, "0123456789abd"}} {
		if got := c.m.Get("a"); !bytes.Equal(got, []byte(c.want)) {
			t.Errorf("expected %q, found %q", c.want, got)
		}
	}
}
