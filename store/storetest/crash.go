package storetest

import (
	"context"
	"errors"
	"iter"
	"sync"

	"github.com/holdall/holdall/store"
)

// ErrPowerLost is what every request to a Crash fails with after the crash.
var ErrPowerLost = errors.New("power lost")

// Crash is a store whose power fails. A step is a Write, a WriteRange, a
// Rewind, a Patch, a Commit or a Remove, or what an amendment does but reading;
// the first so many steps are carried out, and then every request fails, reads
// and aborts too, as if the process were gone. What the store below holds then
// is what was committed: writers that were open are aborted there, and
// amendments closed, once the crash is seen.
//
// A step is carried out whole or not at all. That loses no state worth
// testing: half a Write is invisible like a whole one, and a Commit that was
// carried out but not answered leaves what the crash one step later leaves. Of
// an amendment it does lose states, all those that a [Journal] has.
//
//	for steps := 0; ; steps++ {
//		below := before.Clone()
//		c := storetest.NewCrash(below, steps)
//		work(c)
//		check(below)
//		if !c.Lost() {
//			break
//		}
//	}
type Crash struct {
	st   store.Store
	live store.Store // st while there is power, for those who read
	can  store.Abilities

	mu   sync.Mutex
	left int
	lost bool
	open map[ender]bool
}

// An ender is what the store below ends when its user is gone.
type ender interface{ end() error }

// NewCrash returns a store over st whose power fails after the given number of
// steps.
func NewCrash(st store.Store, steps int) *Crash {
	c := &Crash{st: st, left: steps, open: map[ender]bool{}}
	c.live = Fault(st, func(string, string, int64, int64) error { return c.alive() })
	below := st.Can()
	c.can.Near = below.Near
	if below.Create != nil {
		c.can.Create = c.create
	}
	if below.List != nil {
		c.can.List = c.list
	}
	if below.Remove != nil {
		c.can.Remove = func(ctx context.Context, name string) error {
			return c.step(func() error { return below.Remove(ctx, name) })
		}
	}
	if below.Amend != nil {
		c.can.Amend = c.amend
	}
	return c
}

// Can returns what the store below can do of listing, creating, removing and amending.
func (c *Crash) Can() store.Abilities { return c.can }

// Lost reports whether the power has failed.
func (c *Crash) Lost() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.lost
}

func (c *Crash) alive() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.lost {
		return ErrPowerLost
	}
	return nil
}

// step carries out do, unless the power fails now or has failed before.
func (c *Crash) step(do func() error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.left == 0 && !c.lost {
		c.lost = true
		for e := range c.open {
			// Whether it fails is of no interest to a process that is gone.
			_ = e.end()
		}
		c.open = nil
	}
	if c.lost {
		return ErrPowerLost
	}
	c.left--
	return do()
}

// Open opens an object of the store below.
func (c *Crash) Open(ctx context.Context, name string) (store.Object, error) {
	return c.live.Open(ctx, name)
}

func (c *Crash) list(ctx context.Context, prefix string) iter.Seq2[store.Info, error] {
	return func(yield func(store.Info, error) bool) {
		for info, err := range store.List(ctx, c.st, prefix) {
			if lost := c.alive(); lost != nil {
				yield(store.Info{}, lost)
				return
			}
			if !yield(info, err) {
				return
			}
		}
	}
}

// create begins an object, of which nothing remains if the power fails before
// its Commit.
func (c *Crash) create(ctx context.Context, name string, wish store.Wishes) (store.Writer, error) {
	if err := c.alive(); err != nil {
		return nil, err
	}
	w, err := store.CreateAs(ctx, c.st, name, wish)
	if err != nil {
		return nil, err
	}
	cw := &crashWriter{w: w, c: c}
	if err := c.opened(cw); err != nil {
		return nil, err
	}
	return cw, nil
}

// opened takes note of what is to be ended in a crash.
func (c *Crash) opened(e ender) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.lost {
		return errors.Join(ErrPowerLost, e.end())
	}
	c.open[e] = true
	return nil
}

// ended ends what was opened, unless the crash has done so.
func (c *Crash) ended(e ender) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.lost {
		return ErrPowerLost
	}
	delete(c.open, e)
	return e.end()
}

// amend opens an object of the store below for changes.
func (c *Crash) amend(ctx context.Context, name string) (store.Amendment, error) {
	if err := c.alive(); err != nil {
		return nil, err
	}
	a, err := store.Amend(ctx, c.st, name)
	if err != nil {
		return nil, err
	}
	ca := &crashAmendment{a, c}
	if err := c.opened(ca); err != nil {
		return nil, err
	}
	return ca, nil
}

type crashAmendment struct {
	store.Amendment
	c *Crash
}

func (a *crashAmendment) ReadAt(ctx context.Context, p []byte, off int64) error {
	if err := a.c.alive(); err != nil {
		return err
	}
	return a.Amendment.ReadAt(ctx, p, off)
}

func (a *crashAmendment) WriteAt(ctx context.Context, p []byte, off int64) error {
	return a.c.step(func() error { return a.Amendment.WriteAt(ctx, p, off) })
}

func (a *crashAmendment) Truncate(ctx context.Context, size int64) error {
	return a.c.step(func() error { return a.Amendment.Truncate(ctx, size) })
}

func (a *crashAmendment) Sync(ctx context.Context) error {
	return a.c.step(func() error { return a.Amendment.Sync(ctx) })
}

func (a *crashAmendment) Close() error { return a.c.ended(a) }

func (a *crashAmendment) end() error { return a.Amendment.Close() }

type crashWriter struct {
	w store.Writer
	c *Crash
}

func (w *crashWriter) Write(p []byte) (n int, err error) {
	err = w.c.step(func() error {
		n, err = w.w.Write(p)
		return err
	})
	return n, err
}

// Can says that the writer copies, rewinds and patches as the one below does.
func (w *crashWriter) Can() store.WriterAbilities {
	below := w.w.Can()
	can := store.WriterAbilities{PatchLimit: below.PatchLimit}
	if below.WriteRange != nil {
		can.WriteRange = func(ctx context.Context, from store.Object, off, n int64) error {
			return w.c.step(func() error { return below.WriteRange(ctx, from, off, n) })
		}
	}
	if below.Rewind != nil {
		can.Rewind = func(to int64) error { return w.c.step(func() error { return below.Rewind(to) }) }
	}
	if below.Patch != nil {
		can.Patch = func(ctx context.Context, p []byte, off int64) error {
			return w.c.step(func() error { return below.Patch(ctx, p, off) })
		}
	}
	return can
}

func (w *crashWriter) Commit(ctx context.Context) (info store.Info, err error) {
	err = w.c.step(func() error {
		delete(w.c.open, w)
		info, err = w.w.Commit(ctx)
		return err
	})
	return info, err
}

func (w *crashWriter) Abort() error { return w.c.ended(w) }

func (w *crashWriter) end() error { return w.w.Abort() }
