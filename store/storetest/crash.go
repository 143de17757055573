package storetest

import (
	"context"
	"errors"
	"iter"
	"sync"

	"github.com/holdall/holdall/store"
)

// ErrPowerLost is the error of every request to a [Crash] after the power has failed.
var ErrPowerLost = errors.New("power lost")

// Crash is a store whose power fails after a number of steps. A step is a Write, a WriteRange, a
// Rewind, a Patch, a Commit, a Remove, or any call of an amendment except reads. After that,
// every request fails, including reads and aborts, as if the process were gone. The store below
// then contains what was committed: open writers are aborted there, and amendments closed, when
// the crash is noticed.
//
// A step is made completely or not at all. This omits no relevant state. Half a Write is as
// invisible as a whole one, and a Commit that succeeded without a response leaves the same state
// as a crash one step later. Only for amendments it omits states; for these, see [Journal].
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
	*hooked

	mu   sync.Mutex
	left int
	lost bool
	open map[ender]bool
}

// Can returns the abilities of the store below that lose the power.
func (c *Crash) Can() store.Abilities { return c.can }

// NewCrash returns a store over st whose power fails after the given number of steps.
func NewCrash(st store.Store, steps int) *Crash {
	c := &Crash{left: steps, open: map[ender]bool{}}
	c.hooked = newHooked(st, c.request)
	if list := c.can.List; list != nil {
		c.can.List = func(ctx context.Context, prefix string) iter.Seq2[store.Info, error] {
			return func(yield func(store.Info, error) bool) {
				for info, err := range list(ctx, prefix) {
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
	}
	return c
}

func (c *Crash) request(r request, act func(n int64) error) error {
	switch r.op {
	case "write", "rewind", "patch", "commit", "remove", "truncate", "sync":
		return c.step(func() error {
			if r.op == "commit" {
				delete(c.open, r.of)
			}
			return act(r.n)
		})
	case "abort", "release":
		return c.ended(r.of)
	}
	err := c.alive()
	if err == nil {
		err = act(r.n)
	}
	if err == nil && r.of != nil && r.op != "read" {
		err = c.opened(r.of)
	}
	return err
}

// Lost reports whether the power has failed.
func (c *Crash) Lost() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.lost
}

func (c *Crash) alive() error {
	if c.Lost() {
		return ErrPowerLost
	}
	return nil
}

// step calls do, unless the power fails now or has failed before.
func (c *Crash) step(do func() error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.left == 0 && !c.lost {
		c.lost = true
		for e := range c.open {
			// The process is gone, so the error does not matter.
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

// opened records what must be ended at the crash.
func (c *Crash) opened(e ender) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.lost {
		return errors.Join(ErrPowerLost, e.end())
	}
	c.open[e] = true
	return nil
}

// ended ends what was opened, unless the crash has ended it.
func (c *Crash) ended(e ender) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.lost {
		return ErrPowerLost
	}
	delete(c.open, e)
	return e.end()
}
