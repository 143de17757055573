package parity

import (
	"context"
	"errors"

	"github.com/klauspost/reedsolomon"

	"github.com/holdall/holdall/format/kit/pipe"
	"github.com/holdall/holdall/internal/read/parity/gf16"
)

// A cure computes the lost blocks of one group.
type cure struct {
	s     shape
	group int64
	block int
	have  []bool // which blocks are present: data, then parity
	lost  int
	kept  room // the blocks that are present
	rows  int
	row   []int32 // of each block: its row in kept
}

func (c *cure) init(s shape, group int64, block int) {
	n := s.inGroup(group)
	*c = cure{s: s, group: group, block: block, have: make([]bool, n+s.order), row: make([]int32, n+s.order)}
	c.kept.limit = sumMemory
}

func (c *cure) close() { c.kept.close() }

// keep stores block i, which is present.
func (c *cure) keep(i int, b []byte) error {
	c.have[i], c.row[i] = true, int32(c.rows)
	// Ordering kept by piece would be faster to read and slower to write.
	err := c.kept.write(b, int64(c.rows)*int64(c.block))
	c.rows++
	return err
}

// gather stores the blocks of the group, which data yields in order, and as many parity blocks as
// blocks are lost. data and parity report errLost for a lost block. gather returns errLost if there
// is not enough parity.
func (c *cure) gather(ctx context.Context, data func(do func(b []byte, err error) error) error, parity func(i int64, b []byte) error, workers int) error {
	n, i := c.s.inGroup(c.group), 0
	err := data(func(b []byte, err error) error {
		if err == nil {
			err = c.keep(i, b)
		} else if err == errLost {
			c.lost++
			err = nil
		}
		i++
		return err
	})
	if err != nil {
		return err
	}
	type record struct {
		i   int
		b   []byte
		err error
	}
	found := 0
	records := func(yield func(*record, error) bool) {
		for i := 0; i < c.s.parity && yield(&record{i: i}, nil); i++ {
		}
	}
	enough := errors.New("enough")
	err = pipe.Ordered(ctx, records, workers, func(_ context.Context, r *record) {
		r.b = make([]byte, c.block)
		r.err = parity(int64(r.i)*c.s.groups+c.group, r.b)
	}, func(r *record) error {
		switch {
		case found == c.lost:
			return enough
		case r.err == nil:
			found++
			return c.keep(n+r.i, r.b)
		case r.err == errLost:
			return nil
		}
		return r.err
	}, func(*record) {})
	if err != nil && err != enough {
		return err
	}
	if found < c.lost {
		return errLost
	}
	return nil
}

// solve computes the lost blocks and passes them to write piece by piece.
func (c *cure) solve(ctx context.Context, write func(i int64, at int, b []byte) error) error {
	if c.lost == 0 {
		return nil
	}
	n := c.s.inGroup(c.group)
	code, err := reedsolomon.New(n, c.s.order, reedsolomon.WithLeopardGF16(true))
	if err != nil {
		return err
	}
	there, lost := make([]byte, c.rows*gf16.Width), make([]byte, c.lost*gf16.Width)
	shards := make([][]byte, len(c.have))
	for at := 0; at < c.block; at += gf16.Width {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		empty := lost
		for i, have := range c.have {
			switch {
			case have:
				shards[i] = there[int(c.row[i])*gf16.Width:][:gf16.Width]
				if err := c.kept.read(shards[i], int64(c.row[i])*int64(c.block)+int64(at)); err != nil {
					return err
				}
			case i < n:
				shards[i], empty = empty[:0:gf16.Width], empty[gf16.Width:]
			default:
				shards[i] = nil
			}
		}
		if err := code.ReconstructData(shards); err != nil {
			return err
		}
		for i := range n {
			if c.have[i] {
				continue
			}
			if err := write(int64(i)*c.s.groups+c.group, at, shards[i]); err != nil {
				return err
			}
		}
	}
	return nil
}
