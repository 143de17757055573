package storetest

import (
	"errors"
	"fmt"
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
func Fault(st store.Store, inject Injector) store.Store {
	return newHooked(st, func(r request, act func(n int64) error) error {
		injected := inject(r.op, r.name, r.off, r.n)
		if injected == nil {
			return act(r.n)
		}
		switch cut, ok := errors.AsType[*Cut](injected); {
		case r.op == "abort" || r.op == "release":
			// These end it even so: the error is what is tested, and nothing must be
			// left behind by it.
			return errors.Join(injected, act(r.n))
		case ok && (r.op == "read" || r.op == "write" || r.op == "patch"):
			return errors.Join(injected, act(min(cut.Keep, r.n)))
		}
		return injected
	})
}
