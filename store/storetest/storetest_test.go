package storetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storekit"
)

// bare hides the abilities of a Mem, those of its objects too.
type bare struct{ m *Mem }

func (b bare) Open(ctx context.Context, name string) (store.Object, error) {
	o, err := b.m.Open(ctx, name)
	if err != nil {
		return nil, err
	}
	return bareObject{o}, nil
}

func (bare) Can() store.Abilities { return store.Abilities{} }

type bareObject struct{ store.Object }

func (bareObject) Can() store.ObjectAbilities { return store.ObjectAbilities{} }

// onward is a bare that creates objects, which can only be written from front to
// back.
type onward struct{ bare }

func (o onward) Can() store.Abilities {
	return store.Abilities{Create: func(ctx context.Context, name string, wish store.Wishes) (store.Writer, error) {
		w, err := o.m.CreateAs(ctx, name, wish)
		return onwardWriter{w}, err
	}}
}

type onwardWriter struct{ store.Writer }

func (onwardWriter) Can() store.WriterAbilities { return store.WriterAbilities{} }

func TestMemAndEveryWrapperKeepTheContract(t *testing.T) {
	none := func(string, string, int64, int64) error { return nil }
	for name, wrap := range map[string]func(*Mem) store.Store{
		"mem":                 func(m *Mem) store.Store { return m },
		"read-only, no tails": func(m *Mem) store.Store { return bare{m} },
		"trace":               func(m *Mem) store.Store { return Trace(m, io.Discard) },
		"fault":               func(m *Mem) store.Store { return Fault(m, none) },
		"crash":               func(m *Mem) store.Store { return NewCrash(m, 1<<30) },
		"trace of fault of crash": func(m *Mem) store.Store {
			return Trace(Fault(NewCrash(m, 1<<30), none), io.Discard)
		},
	} {
		t.Run(name, func(t *testing.T) {
			Run(t, func(*testing.T) (store.Store, func(string, []byte) error) {
				m := &Mem{}
				return wrap(m), func(name string, content []byte) error {
					m.Put(name, content)
					return nil
				}
			})
		})
	}
}

func TestMemObjectIsBoundToItsVersion(t *testing.T) {
	var m Mem
	m.Put("a", []byte("same"))
	o, err := m.Open(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	m.Put("a", []byte("same"))
	if err := o.ReadAt(t.Context(), make([]byte, 1), 0); !errors.Is(err, store.ErrChanged) {
		t.Errorf("after Put: expected ErrChanged, found %v", err)
	}
	if err := m.Remove(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	if err := o.ReadAt(t.Context(), make([]byte, 1), 0); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("after Remove: expected fs.ErrNotExist, found %v", err)
	}
}

func TestMemSharesNoBytesWithItsUsers(t *testing.T) {
	var m Mem
	p := []byte("abc")
	m.Put("a", p)
	p[0] = 'x'
	m.Get("a")[1] = 'y'
	c := m.Clone()
	m.Put("a", []byte("new"))
	if got := c.Get("a"); string(got) != "abc" {
		t.Errorf("expected the bytes that were put, found %q", got)
	}
	if m.Get("missing") != nil {
		t.Error("missing object: expected nil")
	}
	m.Put("empty", nil)
	if got := m.Get("empty"); got == nil || len(got) != 0 {
		t.Errorf("empty object: expected empty, not nil, found %v", got)
	}
}

// some is near, and has of the abilities of a Mem those that its bits are set for.
type some struct {
	bare
	bits int
}

func (s some) Can() store.Abilities {
	all, can := s.m.Can(), store.Abilities{Near: true}
	if s.bits&1 != 0 {
		can.Create = all.Create
	}
	if s.bits&2 != 0 {
		can.List = all.List
	}
	if s.bits&4 != 0 {
		can.Remove = all.Remove
	}
	if s.bits&8 != 0 {
		can.Amend = all.Amend
	}
	return can
}

// wrappers are all wrappers of a store.
func wrappers(st store.Store) map[string]store.Store {
	return map[string]store.Store{
		"trace": Trace(st, io.Discard),
		"fault": Fault(st, Nth("none", 1, nil)),
		"crash": NewCrash(st, 1<<30),
	}
}

func TestWrappersCanDoWhatTheyWrapAndNoMore(t *testing.T) {
	var m Mem
	m.Put("a", []byte("bytes"))
	for bits := range 16 {
		for name, st := range wrappers(some{bare{&m}, bits}) {
			can, got := st.Can(), 0
			for i, is := range []bool{can.Create != nil, can.List != nil, can.Remove != nil, can.Amend != nil} {
				if is {
					got |= 1 << i
				}
			}
			if got != bits {
				t.Errorf("%s: expected abilities %b, found %b", name, bits, got)
			}
			o, err := st.Open(t.Context(), "a")
			if err != nil {
				t.Fatal(err)
			}
			if o.Can().ReadEnd != nil {
				t.Errorf("%s: reads the ends of an object that does not", name)
			}
			if !st.Can().Near {
				t.Errorf("%s: expected to be near, as what it wraps", name)
			}
		}
	}
	for name, st := range wrappers(onward{bare{&m}}) {
		if _, err := storekit.Amend(t.Context(), st, "a"); !errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("%s: amends a store that does not: %v", name, err)
		}
		w, err := storekit.Create(t.Context(), st, "b")
		if err != nil {
			t.Fatal(err)
		}
		write(t, w, []byte("bytes"))
		if can := w.Can(); can.PatchLimit != 0 || can.Patch != nil || can.Rewind != nil || can.WriteRange != nil {
			t.Errorf("%s: a writer that only writes on says %+v", name, can)
		}
		if err := w.Abort(); err != nil {
			t.Error(err)
		}
	}
	for name, st := range wrappers(&m) {
		o, err := st.Open(t.Context(), "a")
		if err != nil {
			t.Fatal(err)
		}
		if o.Can().ReadEnd == nil {
			t.Errorf("%s: does not read the ends of an object that does", name)
		}
		if st.Can().Near {
			t.Errorf("%s: expected not to be near, as what it wraps", name)
		}
	}
}

func TestTraceShowsOneLineARequest(t *testing.T) {
	var m Mem
	m.Put("a b", []byte("0123456789"))
	var log strings.Builder
	st := Trace(&m, &log)
	o, err := st.Open(t.Context(), "a b")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := storekit.ReadTail(t.Context(), o, make([]byte, 4)); err != nil {
		t.Error(err)
	}
	if _, err := storekit.ReadHead(t.Context(), o, make([]byte, 5)); err != nil {
		t.Error(err)
	}
	if _, err := o.Info(t.Context()); err != nil {
		t.Error(err)
	}
	if err := o.ReadAt(t.Context(), make([]byte, 3), 5); err != nil {
		t.Error(err)
	}
	if got, want := log.String(), "tail a b 4\nhead a b 5\ninfo a b\nread a b at 5+3\n"; got != want {
		t.Errorf("expected %q, found %q", want, got)
	}
}

func TestTraceLinesOfParallelRequestsStayWhole(t *testing.T) {
	var m Mem
	m.Put("a", make([]byte, 100))
	var log bytes.Buffer // its race would be found: Trace must lock
	o, err := Trace(&m, &log).Open(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for off := range 50 {
		wg.Go(func() {
			if err := o.ReadAt(t.Context(), make([]byte, 1), int64(off)); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	var want []string
	for off := range 50 {
		want = append(want, fmt.Sprintf("read a at %d+1", off))
	}
	got := strings.Split(strings.TrimSpace(log.String()), "\n")
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("expected the lines of 50 reads, found %q", got)
	}
}
