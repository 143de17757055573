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
	*hooked

	mu   sync.Mutex
	left int
	lost bool
	open map[ender]bool
}

// NewCrash returns a store over st whose power fails after the given number of
// steps.
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
