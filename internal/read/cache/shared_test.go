package cache

import (
	"context"
	"errors"
	"io/fs"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storetest"
)

// disk is a store in memory that says that it is a disk, and counts what is opened.
type disk struct {
	*storetest.Mem
	opened *atomic.Int64
}

func (d disk) Open(ctx context.Context, name string) (store.Object, error) {
	d.opened.Add(1)
	return d.Mem.Open(ctx, name)
}

func (d disk) Can() store.Abilities {
	can := d.Mem.Can()
	can.Near = true
	return can
}

func TestAnObjectOfADiskIsOpenedOnceForAllReaders(t *testing.T) {
	m := disk{&storetest.Mem{}, new(atomic.Int64)}
	m.Put("x", []byte("before"))
	s := Shared(m, 0)
	if Shared(s, 0) != s || Below(s) == s {
		t.Error("it is shared once")
	}
	open := func() store.Object {
		o, err := s.Open(t.Context(), "x")
		if err != nil {
			t.Fatal(err)
		}
		return o
	}
	says := func(o store.Object, want string) {
		t.Helper()
		p := make([]byte, len(want))
		if err := o.ReadAt(t.Context(), p, 0); err != nil || string(p) != want {
			t.Errorf("%q, %v, expected %q", p, err, want)
		}
	}
	a, b, c := open(), open(), open()
	for _, o := range []store.Object{a, b, c} {
		says(o, "before")
	}
	if n := m.opened.Load(); n != 1 {
		t.Errorf("opened %d times", n)
	}
	for range 2 {
		if err := errors.Join(a.Close(), b.Close()); err != nil {
			t.Error(err)
		}
	}
	if err := a.ReadAt(t.Context(), make([]byte, 1), 0); !errors.Is(err, fs.ErrClosed) {
		t.Errorf("a read after Close: %v", err)
	}
	says(c, "before")
	m.Put("x", []byte("after!"))
	late := open()
	if err := late.ReadAt(t.Context(), make([]byte, 1), 0); !errors.Is(err, store.ErrChanged) {
		t.Errorf("a read of another version: %v", err)
	}
	late.Close()
	c.Close()
	d := open() // nobody has it any more
	says(d, "after!")
	d.Close()
	if _, err := s.Open(t.Context(), "none"); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
}

func TestSharedObjectsAreOpenedAndClosedByMany(t *testing.T) {
	m := disk{&storetest.Mem{}, new(atomic.Int64)}
	m.Put("x", []byte("content"))
	s := Shared(m, 0)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 200 {
				o, err := s.Open(t.Context(), "x")
				if err != nil {
					t.Error(err)
					return
				}
				p := make([]byte, 7)
				if err := o.ReadAt(t.Context(), p, 0); err != nil || string(p) != "content" {
					t.Errorf("%q, %v", p, err)
				}
				o.Close()
			}
		})
	}
	all.Wait()
	if n := len(s.(*shared).open); n != 0 {
		t.Errorf("%d are left open", n)
	}
}
