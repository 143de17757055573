package storetest

import (
	"errors"
	"fmt"
	"sync"

	"github.com/holdall/holdall/store"
)

// An Injector decides before each request to a store whether it fails. The argument op is one of
// open, info, read, head, tail, list, remove, create, write, rewind, patch, commit, abort, amend,
// truncate, sync and release, which is the Close of an amendment. name is the object, or the
// prefix of a listing. off and n are the range that is read, or the offset and number of bytes
// that are written; off is -1 if there is no range. An Injector is called from several goroutines
// at once.
//
// If it returns nil, the request is made. If it returns a [*Cut], a part of the request is made.
type Injector func(op, name string, off, n int64) error

// A Cut makes a read, write or patch process its first Keep bytes and then fail.
type Cut struct {
	Keep int64
	Err  error
}

func (c *Cut) Error() string { return fmt.Sprintf("cut after %d bytes: %v", c.Keep, c.Err) }

func (c *Cut) Unwrap() error { return c.Err }

// CutWrites returns an Injector for a full disk. A write that would make its object longer than
// size bytes fails with err, after writing as many bytes as fit.
func CutWrites(size int64, err error) Injector {
	return func(op, _ string, off, n int64) error {
		if op != "write" || n <= size-off {
			return nil
		}
		return &Cut{Keep: max(0, size-off), Err: err}
	}
}

// Nth returns an Injector that makes the k-th request of the kind op fail with err, counted from
// 1. If op is "", it counts requests of all kinds.
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

// A Counter counts the errors of an Injector. It is used to prove that a fault occurred and that
// its error was returned.
type Counter struct {
	inject Injector

	mu   sync.Mutex
	n    int
	last error
}

// Count returns a Counter for inject. Use its method Inject as the Injector.
func Count(inject Injector) *Counter { return &Counter{inject: inject} }

// Inject calls the Injector and records its error.
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

// Injected returns the number of injected errors, and the last of them.
func (c *Counter) Injected() (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.n, c.last
}

// Surfaced returns nil if an error was injected and err, which the code under test returned,
// wraps the last injected error. Otherwise it returns an error that says which of the two is not
// the case.
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

// Fault returns a store that calls inject before each request to st. It supports reading, and
// listing, creating, removing and amending if st does.
func Fault(st store.Store, inject Injector) store.Store {
	return newHooked(st, func(r request, act func(n int64) error) error {
		injected := inject(r.op, r.name, r.off, r.n)
		if injected == nil {
			return act(r.n)
		}
		switch cut, ok := errors.AsType[*Cut](injected); {
		case r.op == "abort" || r.op == "release":
			// These requests end what they refer to even if they fail. The error is what is
			// tested, and nothing must be left behind.
			return errors.Join(injected, act(r.n))
		case ok && (r.op == "read" || r.op == "write" || r.op == "patch"):
			return errors.Join(injected, act(min(cut.Keep, r.n)))
		}
		return injected
	})
}

// Around returns a store that calls do for each request to st. It calls act to make the request, or does not. op and
// name are those of an [Injector].
func Around(st store.Store, do func(op, name string, act func() error) error) store.Store {
	return newHooked(st, func(r request, act func(n int64) error) error {
		return do(r.op, r.name, func() error { return act(r.n) })
	})
}
