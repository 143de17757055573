package parity

import (
	"context"
	"runtime"
	"sync"

	"github.com/holdall/holdall/format/kit/pipe"
	"github.com/holdall/holdall/internal/read/parity/gf16"
)

// A coder computes the parity of blocks as they arrive. It works on one run of each group at a
// time. A run has as many blocks as the order of the code.
type coder struct {
	block  int
	groups int64
	order  int

	run    int64 // that is being filled
	filled []int // for each group: the slot of the last block in the run, plus one
	code   *gf16.Encoder
	ready  int64  // the run that code is prepared for, plus one
	near   bool   // the rooms are in memory, and band is ordered by piece, then by block
	done   []bool // if there is one group: the parts of the run that addTogether stored
	tile   []byte
	band   room // the current run, ordered by group
	sums   room // sums of the runs, ordered by group, then by piece
	works  sync.Pool
	window *window // nil if whole runs are held
}

// A window holds part of the runs of two groups: as many consecutive blocks as one run has. Runs
// are then added in parts. This takes longer, but everything stays in memory.
type window struct {
	number   int64
	from, to int64 // range of its blocks that are present
}

func newCoder(block int, groups int64, order int) *coder {
	c := &coder{block: block, groups: groups, order: order, code: gf16.NewEncoder(order), filled: make([]int, groups)}
	c.near = c.groups*c.chunk() <= sumMemory
	c.band.limit, c.sums.limit = sumMemory, sumMemory
	c.works.New = func() any { return new(make([]byte, order*gf16.Width)) }
	return c
}

// holdMost is the memory limit for archives that would otherwise need the disk.
const holdMost = 88 << 20

// hold makes c keep everything in memory if it fits.
func (c *coder) hold() {
	if c.groups == 2 && c.order > 1 && !c.near && 3*c.chunk() <= holdMost {
		c.window, c.sums.limit = &window{}, 2*sumMemory
	}
}

// addToWindow adds a block to the window. It flushes the window first if the block does not belong
// there or does not follow the previous one.
func (c *coder) addToWindow(ctx context.Context, i int64, b []byte) error {
	w, order := c.window, int64(c.order)
	if i/order != w.number || i%order != w.to {
		if err := c.flush(ctx); err != nil {
			return err
		}
		*w = window{i / order, i % order, i % order}
	}
	w.to++
	if err := c.band.reserve(c.chunk()); err != nil {
		return err
	}
	rows := c.order / 2
	at := int(i%2)*rows*c.block + int(i%order/2)*gf16.Width
	for ; len(b) > 0; b = b[gf16.Width:] {
		copy(c.band.b[at:], b[:gf16.Width])
		at += rows * gf16.Width
	}
	return nil
}

// flushWindow adds the blocks of the window to the sums.
func (c *coder) flushWindow(ctx context.Context) error {
	w, rows := c.window, c.order/2
	if w.from == w.to {
		return nil
	}
	c.prepare(w.number / 2)
	first := int(w.number%2) * rows // index in the run of the window's first row
	for group := range int64(2) {
		lo, hi := int((w.from-group+1)/2), int((w.to-group+1)/2)
		if lo >= hi {
			continue
		}
		err := c.eachPiece(ctx, group, func(t int, sum []byte) {
			p := c.works.Get().(*[]byte)
			defer c.works.Put(p)
			work := *p
			at := (int(group)*rows*c.block + t*rows*gf16.Width)
			clear(work[:(first+lo)*gf16.Width])
			copy(work[(first+lo)*gf16.Width:], c.band.b[at+lo*gf16.Width:at+hi*gf16.Width])
			clear(work[(first+hi)*gf16.Width:])
			c.code.Add(sum, work, gf16.Width, first+lo, first+hi, nil)
		})
		if err != nil {
			return err
		}
	}
	w.from = w.to
	return nil
}

func (c *coder) close() {
	c.band.close()
	c.sums.close()
}

// chunk is the size in bytes of a run of one group.
func (c *coder) chunk() int64 { return int64(c.order) * int64(c.block) }

// add adds block number i. The blocks of a run must come before those of later runs, and those of a
// group without gaps.
func (c *coder) add(ctx context.Context, i int64, b []byte) error {
	if c.window != nil {
		return c.addToWindow(ctx, i, b)
	}
	group := i % c.groups
	slot, err := c.slot(ctx, group, i/c.groups, 1)
	if err != nil {
		return err
	}
	if !c.near {
		return c.band.write(b, group*c.chunk()+int64(slot)*int64(c.block))
	}
	for to := c.band.b[group*c.chunk():]; len(b) > 0; b = b[gf16.Width:] {
		copy(to[slot*gf16.Width:], b[:gf16.Width])
		to = to[min(c.order*gf16.Width, len(to)):]
	}
	return nil
}

// slot returns the slot in the run for n blocks of a group. at is the number of the first block in
// its group. slot flushes the previous run if necessary.
func (c *coder) slot(ctx context.Context, group, at int64, n int) (int, error) {
	if run := at / int64(c.order); run != c.run {
		if err := c.flush(ctx); err != nil {
			return 0, err
		}
		c.run = run
	}
	slot := int(at % int64(c.order))
	c.filled[group] = max(c.filled[group], slot+n)
	return slot, c.band.reserve(c.groups * c.chunk())
}

// together is the number of blocks that are added at once. addTogether does the first steps of the
// transform while it stores them.
func (c *coder) together() int {
	if c.near && c.groups == 1 && c.order >= gf16.Together {
		return gf16.Together
	}
	return 1
}

// addTogether is add for gf16.Together blocks. The number of the first is a multiple of that. It
// also adds them to near.
func (c *coder) addTogether(ctx context.Context, i int64, b, near []byte) error {
	slot, err := c.slot(ctx, 0, i, gf16.Together)
	if err != nil {
		return err
	}
	if c.done == nil {
		c.done, c.tile = make([]bool, c.order/gf16.Together), make([]byte, gf16.Together*gf16.Width)
	}
	c.done[slot/gf16.Together] = true
	c.prepare(c.run)
	size := c.order * gf16.Width
	for t := range c.block / gf16.Width {
		c.code.Put(c.band.b[t*size:(t+1)*size], gf16.Width, slot, b[t*gf16.Width:], c.block, near[t*gf16.Width:(t+1)*gf16.Width], c.tile)
	}
	return nil
}

func (c *coder) prepare(run int64) {
	if c.ready != run+1 {
		c.code.Run(int(run))
		c.ready = run + 1
	}
}

// flush adds the run to the sums.
func (c *coder) flush(ctx context.Context) error {
	if c.window != nil {
		return c.flushWindow(ctx)
	}
	for group, n := range c.filled {
		if n == 0 {
			continue
		}
		c.prepare(c.run)
		if err := c.sum(ctx, int64(group), n); err != nil {
			return err
		}
		c.filled[group] = 0
	}
	clear(c.done)
	return nil
}

// sum adds the first n blocks of the run of a group to the sums.
func (c *coder) sum(ctx context.Context, group int64, n int) error {
	length := int64(n) * int64(c.block)
	if c.near {
		length = c.chunk()
	}
	band, err := c.band.borrow(group*c.chunk(), length)
	if err != nil {
		return err
	}
	defer band.drop()
	size := c.order * gf16.Width
	return c.eachPiece(ctx, group, func(t int, sum []byte) {
		var work []byte
		if c.near {
			work = band.b[t*size : (t+1)*size]
		} else {
			w := c.works.Get().(*[]byte)
			defer c.works.Put(w)
			work = *w
			for i := range n {
				copy(work[i*gf16.Width:(i+1)*gf16.Width], band.b[i*c.block+t*gf16.Width:])
			}
		}
		clear(work[n*gf16.Width:])
		c.code.Add(sum, work, gf16.Width, 0, n, c.done)
	})
}

// workers is the number of pieces processed at once: half the number of processors. Using all of
// them would cost a quarter more processor time and save only a tenth of the time.
func workers() int { return max(1, runtime.GOMAXPROCS(0)/2) }

// lendMost is how many bytes of the sums are in memory at a time if they are on disk.
const lendMost = 8 << 20

// eachPiece calls do with the sums of each piece of a group's blocks, several at a time, and stores
// the results.
func (c *coder) eachPiece(ctx context.Context, group int64, do func(t int, sum []byte)) error {
	if err := c.sums.reserve(c.groups * c.chunk()); err != nil {
		return err
	}
	size, all := c.order*gf16.Width, c.block/gf16.Width
	pieces := make([]int, all)
	if c.sums.disk != nil {
		pieces = pieces[:min(all, max(1, lendMost/size))]
	}
	for first := 0; first < all; first += len(pieces) {
		pieces = pieces[:min(len(pieces), all-first)]
		for i := range pieces {
			pieces[i] = i
		}
		sums, err := c.sums.borrow(group*c.chunk()+int64(first*size), int64(len(pieces)*size))
		if err == nil {
			err = pipe.Each(ctx, pipe.All(pieces), workers(), func(_ context.Context, i int) error {
				do(first+i, sums.b[i*size:(i+1)*size])
				return nil
			})
			if err == nil {
				err = sums.keep()
			}
			sums.drop()
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// finish computes the first n blocks of parity of each group.
func (c *coder) finish(ctx context.Context, n int) error {
	if err := c.flush(ctx); err != nil {
		return err
	}
	c.band.close()
	c.code.Finish()
	for group := range c.groups {
		err := c.eachPiece(ctx, group, func(_ int, sum []byte) { c.code.Parity(sum, gf16.Width, n) })
		if err != nil {
			return err
		}
	}
	return nil
}

// parity reads parity block i of a group. It must follow finish.
func (c *coder) parity(group int64, i int, b []byte) error {
	at := group*c.chunk() + int64(i)*gf16.Width
	for t := 0; t < c.block; t += gf16.Width {
		if err := c.sums.read(b[t:t+gf16.Width], at); err != nil {
			return err
		}
		at += int64(c.order) * gf16.Width
	}
	return nil
}
