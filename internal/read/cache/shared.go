package cache

import (
	"cmp"
	"context"
	"io/fs"
	"sync"
	"sync/atomic"

	"github.com/holdall/holdall/store"
)

// Shared returns a store in which all readers of one archive share its objects, so that each is
// opened once, and all see the same version. For a store on a network, it also caches what was read,
// in up to limit bytes of memory, 32 MiB if limit is 0. A disk needs no cache. Objects that grow are
// not shared there: each time that one is opened, it is longer.
func Shared(st store.Store, limit int64) store.Store {
	if !st.Can().Near {
		return Wrap(st, cmp.Or(limit, usual))
	}
	if s, ok := st.(*shared); ok {
		return s
	}
	return &shared{below: st, open: map[string]*common{}}
}

// Below returns the store that Shared was called with. Objects that it opens may be of a later
// version than the shared ones.
func Below(st store.Store) store.Store {
	if s, ok := st.(*shared); ok {
		return s.below
	}
	return st
}

type shared struct {
	below store.Store
	mu    sync.Mutex
	open  map[string]*common
}

// A common is an object of which several readers have a handle.
type common struct {
	obj   store.Object
	users int // guarded by shared.mu
}

// Can returns the abilities of reading.
func (s *shared) Can() store.Abilities {
	can := s.below.Can()
	return store.Abilities{Near: true, Address: can.Address, List: can.List, ListFrom: can.ListFrom, ListHeaders: can.ListHeaders, Level: can.Level,
		OpenAs: can.OpenAs, OpenGrowing: can.OpenGrowing, Locked: can.Locked, Fetch: can.Fetch, Owns: can.Owns}
}

func (s *shared) Open(ctx context.Context, name string) (store.Object, error) {
	if l := s.lend(name, nil); l != nil {
		return l, nil
	}
	o, err := s.below.Open(ctx, name)
	if err != nil {
		return nil, err
	}
	l := s.lend(name, o)
	if l.Object != o { // another reader was quicker
		o.Close()
	}
	return l, nil
}

// lend returns a handle of the object that is open under a name, or else of o. It returns nil if
// there is neither.
func (s *shared) lend(name string, o store.Object) *lent {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.open[name]
	if c == nil {
		if o == nil {
			return nil
		}
		c = &common{obj: o}
		s.open[name] = c
	}
	c.users++
	return &lent{Object: c.obj, c: c, s: s, name: name}
}

// A lent is what one reader has of an object.
type lent struct {
	store.Object
	c      *common
	s      *shared
	name   string
	closed atomic.Bool
}

func (l *lent) ReadAt(ctx context.Context, p []byte, off int64) error {
	if l.closed.Load() {
		return &store.Error{Op: "read", Name: l.name, Off: off, Err: fs.ErrClosed}
	}
	return l.Object.ReadAt(ctx, p, off)
}

// Can returns the abilities of an object on a disk, which is the same for all.
func (l *lent) Can() store.ObjectAbilities {
	can := l.Object.Can()
	inner := can.Inner
	if inner == nil {
		inner = l.Object
	}
	return store.ObjectAbilities{File: can.File, Inner: inner}
}

func (l *lent) Close() error {
	if l.closed.Swap(true) {
		return nil
	}
	l.s.mu.Lock()
	defer l.s.mu.Unlock()
	if l.c.users--; l.c.users > 0 {
		return nil
	}
	delete(l.s.open, l.name)
	return l.Object.Close()
}
