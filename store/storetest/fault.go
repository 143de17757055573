package storetest

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync"

	"github.com/holdall/holdall/store"
)

// An Injector decides before each request to a store whether it fails. op is
// one of open, info, read, head, tail, list, remove, create, write, rewind, patch,
// commit, abort, amend, truncate, sync and release, which is the Close of an
// amendment; name is the object, or the prefix listed. off and n are the range
// read, or the place in the object and the number of bytes to be written; off is
// -1 where there is no range. It is called in parallel.
//
// A nil error lets the request through. A [*Cut] lets a part of it through.
type Injector func(op, name string, off, n int64) error

// A Cut makes a read, write or patch do its first Keep bytes and then fail.
type Cut struct {
	Keep int64
	Err  error
}

func (c *Cut) Error() string { return fmt.Sprintf("cut after %d bytes: %v", c.Keep, c.Err) }

func (c *Cut) Unwrap() error { return c.Err }

// CutWrites makes every write fail with err that would bring its object over
// size bytes, after as many as fit: a disk that is full.
func CutWrites(size int64, err error) Injector {
	return func(op, _ string, off, n int64) error {
		if op != "write" || n <= size-off {
			return nil
		}
		return &Cut{Keep: max(0, size-off), Err: err}
	}
}

// Nth makes the k-th request fail with err, counted from 1; of kind op, or of
// any kind if op is "".
func Nth(op string, k int, err error) Injector {
	var mu sync.Mutex
	return func(got, _ string, _, _ int64) error {
		if op != "" && op != got {
			return nil
		}
		mu.Lock()
		defer mu.Unlock()
		k--
		if k == 0 {
			return err
		}
		return nil
	}
}

// A Counter counts the errors of an Injector, to prove that a fault was met
// and that its error came up.
type Counter struct {
	inject Injector

	mu   sync.Mutex
	n    int
	last error
}

// Count returns a Counter around inject; its method Inject is the Injector to
// use instead.
func Count(inject Injector) *Counter { return &Counter{inject: inject} }

// Inject asks the Injector inside and remembers its error.
func (c *Counter) Inject(op, name string, off, n int64) error {
	err := c.inject(op, name, off, n)
	if err != nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.n++
		c.last = err
	}
	return err
}

// Injected returns how many errors were injected, and the last of them.
func (c *Counter) Injected() (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.n, c.last
}

// Surfaced returns nil if an error was injected and err, which the code under
// test returned, wraps the last one. Otherwise it says which of the two is not
// so.
func (c *Counter) Surfaced(err error) error {
	switch n, last := c.Injected(); {
	case n == 0:
		return errors.New("no error was injected")
	case err == nil:
		return fmt.Errorf("the injected error was swallowed: %w", last)
	case !errors.Is(err, last):
		return fmt.Errorf("expected an error wrapping %q, found %q", last, err)
	}
	return nil
}

// Fault returns a store that asks inject before each request and otherwise
// does what st does. It can read, list, create, remove and amend what st can.
func Fault(st store.Store, inject Injector) store.Store { return newFaulty(st, inject) }

type faulty struct {
	st     store.Store
	inject Injector
	can    store.Abilities
}

func newFaulty(st store.Store, inject Injector) *faulty {
	f := &faulty{st: st, inject: inject}
	below := st.Can()
	f.can.Near = below.Near
	if below.Create != nil {
		f.can.Create = f.create
	}
	if below.List != nil {
		f.can.List = func(ctx context.Context, prefix string) iter.Seq2[store.Info, error] {
			if err := inject("list", prefix, -1, 0); err != nil {
				return func(yield func(store.Info, error) bool) { yield(store.Info{}, err) }
			}
			return below.List(ctx, prefix)
		}
	}
	if below.Remove != nil {
		f.can.Remove = func(ctx context.Context, name string) error {
			if err := inject("remove", name, -1, 0); err != nil {
				return err
			}
			return below.Remove(ctx, name)
		}
	}
	if below.Amend != nil {
		f.can.Amend = func(ctx context.Context, name string) (store.Amendment, error) {
			if err := inject("amend", name, -1, 0); err != nil {
				return nil, err
			}
			a, err := below.Amend(ctx, name)
			if err != nil {
				return nil, err
			}
			return &faultyAmendment{a, f, name}, nil
		}
	}
	return f
}

func (f *faulty) Can() store.Abilities { return f.can }

func (f *faulty) Open(ctx context.Context, name string) (store.Object, error) {
	if err := f.inject("open", name, -1, 0); err != nil {
		return nil, err
	}
	o, err := f.st.Open(ctx, name)
	if err != nil {
		return nil, err
	}
	return &faultyObject{o, f, name}, nil
}

type faultyAmendment struct {
	store.Amendment
	f    *faulty
	name string
}

func (a *faultyAmendment) ReadAt(ctx context.Context, p []byte, off int64) error {
	return faultyRange(a.f.inject("read", a.name, off, int64(len(p))), p, func(p []byte) error {
		return a.Amendment.ReadAt(ctx, p, off)
	})
}

func (a *faultyAmendment) WriteAt(ctx context.Context, p []byte, off int64) error {
	return faultyRange(a.f.inject("write", a.name, off, int64(len(p))), p, func(p []byte) error {
		return a.Amendment.WriteAt(ctx, p, off)
	})
}

func (a *faultyAmendment) Truncate(ctx context.Context, size int64) error {
	if err := a.f.inject("truncate", a.name, size, 0); err != nil {
		return err
	}
	return a.Amendment.Truncate(ctx, size)
}

func (a *faultyAmendment) Sync(ctx context.Context) error {
	if err := a.f.inject("sync", a.name, -1, 0); err != nil {
		return err
	}
	return a.Amendment.Sync(ctx)
}

// Close closes even where an error is injected, as Abort aborts.
func (a *faultyAmendment) Close() error {
	return errors.Join(a.f.inject("release", a.name, -1, 0), a.Amendment.Close())
}

// faultyRange does what is left of a request for all of p.
func faultyRange(injected error, p []byte, do func(p []byte) error) error {
	if injected == nil {
		return do(p)
	}
	cut, ok := errors.AsType[*Cut](injected)
	if !ok {
		return injected
	}
	return errors.Join(injected, do(p[:min(cut.Keep, int64(len(p)))]))
}

type faultyObject struct {
	store.Object
	f    *faulty
	name string
}

func (o *faultyObject) Info(ctx context.Context) (store.Info, error) {
	if err := o.f.inject("info", o.name, -1, 0); err != nil {
		return store.Info{}, err
	}
	return o.Object.Info(ctx)
}

func (o *faultyObject) ReadAt(ctx context.Context, p []byte, off int64) error {
	return faultyRange(o.f.inject("read", o.name, off, int64(len(p))), p, func(p []byte) error {
		return o.Object.ReadAt(ctx, p, off)
	})
}

// Can says that the object reads its ends as the one below does.
func (o *faultyObject) Can() (can store.ObjectAbilities) {
	if read := o.Object.Can().ReadEnd; read != nil {
		can.ReadEnd = func(ctx context.Context, p []byte, tail bool) (int, error) {
			op := "head"
			if tail {
				op = "tail"
			}
			if err := o.f.inject(op, o.name, -1, int64(len(p))); err != nil {
				return 0, err
			}
			return read(ctx, p, tail)
		}
	}
	return can
}

func (f *faulty) create(ctx context.Context, name string, wish store.Wishes) (store.Writer, error) {
	if err := f.inject("create", name, -1, 0); err != nil {
		return nil, err
	}
	w, err := store.CreateAs(ctx, f.st, name, wish)
	if err != nil {
		return nil, err
	}
	return &faultyWriter{w: w, f: f, name: name}, nil
}

type faultyWriter struct {
	w    store.Writer
	f    *faulty
	name string
	size int64
}

func (w *faultyWriter) Write(p []byte) (int, error) {
	injected := w.f.inject("write", w.name, w.size, int64(len(p)))
	if injected != nil {
		cut, ok := errors.AsType[*Cut](injected)
		if !ok {
			return 0, injected
		}
		p = p[:min(cut.Keep, int64(len(p)))]
	}
	n, err := w.w.Write(p)
	w.size += int64(n)
	return n, errors.Join(injected, err)
}

// Can says that the writer copies, rewinds and patches as the one below does.
func (w *faultyWriter) Can() store.WriterAbilities {
	below := w.w.Can()
	can := store.WriterAbilities{PatchLimit: below.PatchLimit}
	if below.WriteRange != nil {
		can.WriteRange = func(ctx context.Context, from store.Object, off, n int64) error {
			err := w.f.inject("write", w.name, w.size, n)
			if err == nil {
				err = below.WriteRange(ctx, from, off, n)
			}
			if err == nil {
				w.size += n
			}
			return err
		}
	}
	if below.Rewind != nil {
		can.Rewind = func(to int64) error {
			err := w.f.inject("rewind", w.name, to, 0)
			if err == nil {
				err = below.Rewind(to)
			}
			if err == nil {
				w.size = to
			}
			return err
		}
	}
	if below.Patch != nil {
		can.Patch = func(ctx context.Context, p []byte, off int64) error {
			return faultyRange(w.f.inject("patch", w.name, off, int64(len(p))), p, func(p []byte) error {
				return below.Patch(ctx, p, off)
			})
		}
	}
	return can
}

func (w *faultyWriter) Commit(ctx context.Context) (store.Info, error) {
	if err := w.f.inject("commit", w.name, -1, 0); err != nil {
		return store.Info{}, err
	}
	return w.w.Commit(ctx)
}

// Abort aborts even where an error is injected: the error is what is tested,
// and nothing must be left behind by it.
func (w *faultyWriter) Abort() error {
	return errors.Join(w.f.inject("abort", w.name, -1, 0), w.w.Abort())
}
