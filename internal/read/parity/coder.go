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
	near   bool   // the rooms are in memory
	done   []bool // if there is one group: what addTogether stored of the run
	began  bool   // there are sums
	band   room   // the current run of each group, and then their parity if near
	sums   room   // sums of the runs, ordered by group, then by piece
	works  sync.Pool
	tiles  sync.Pool
}

func newCoder(block int, groups int64, order int) *coder {
	c := &coder{block: block, groups: groups, order: order, code: gf16.NewEncoder(order), filled: make([]int, groups)}
	c.near = c.groups*c.chunk() <= aloneMemory
	if c.near && groups == 1 {
		c.done = make([]bool, order/c.code.Together())
	}
	c.band.limit, c.sums.limit = sumMemory, sumMemory
	if c.near {
		c.band.limit, c.sums.limit = groups*c.bandLen(), aloneMemory
	}
	c.works.New = func() any { return new(make([]byte, order*c.code.Piece())) }
	c.tiles.New = func() any { return new(make([]byte, (c.code.Together()+1)*block)) }
	return c
}

func (c *coder) close() {
	c.band.close()
	c.sums.close()
}

// chunk is the size in bytes of a run of one group.
func (c *coder) chunk() int64 { return int64(c.order) * int64(c.block) }

// bandLen is the size in bytes of a run of one group in the band.
func (c *coder) bandLen() int64 {
	return int64(c.order / c.code.Together() * c.code.Stride(c.block))
}

// at is where a slot of a group is in the band. What is added together has a space behind it.
func (c *coder) at(group int64, slot int) int64 {
	n := c.code.Together()
	return group*c.bandLen() + int64(slot/n*c.code.Stride(c.block)+slot%n*c.block)
}

// add adds block number i. The blocks of a run must come before those of later runs, and those of a
// group without gaps.
func (c *coder) add(ctx context.Context, i int64, b []byte) error {
	group := i % c.groups
	slot, err := c.slot(ctx, group, i/c.groups, 1)
	if err != nil {
		return err
	}
	return c.band.write(b, c.at(group, slot))
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
	return slot, c.band.reserve(c.groups * c.bandLen())
}

// together is the number of blocks that are added at once. addTogether does the first steps of the
// transform while it stores them.
func (c *coder) together() int {
	if c.done != nil {
		return c.code.Together()
	}
	return 1
}

// addTogether is add for as many blocks as together says. The number of the first is a multiple of
// that. It also adds them to near.
func (c *coder) addTogether(ctx context.Context, i int64, b, near []byte) error {
	slot, err := c.slot(ctx, 0, i, c.together())
	if err != nil {
		return err
	}
	c.done[slot/c.together()] = true
	c.prepare(c.run)
	c.code.Put(c.band.b[c.at(0, slot):][:len(b)], b, near, slot)
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
	began := false
	for group, n := range c.filled {
		if n == 0 {
			continue
		}
		c.prepare(c.run)
		if err := c.sum(ctx, int64(group), n); err != nil {
			return err
		}
		c.filled[group] = 0
		began = true
	}
	c.began = c.began || began
	clear(c.done)
	return nil
}

// sum adds the first n blocks of the run of a group to the sums.
func (c *coder) sum(ctx context.Context, group int64, n int) error {
	band, err := c.band.borrow(c.at(group, 0), c.bandLen())
	if err != nil {
		return err
	}
	defer band.drop()
	together, stride := c.code.Together(), c.code.Stride(c.block)
	parts := (n + together - 1) / together
	clear(band.b[parts*stride:])
	var rest []int
	for i := range parts {
		if c.done == nil || !c.done[i] {
			rest = append(rest, i)
		}
	}
	err = pipe.Each(ctx, pipe.All(rest), workers(), func(_ context.Context, i int) error {
		w := c.tiles.Get().(*[]byte)
		defer c.tiles.Put(w)
		to := band.b[i*stride:][:together*c.block]
		tile, near := (*w)[:len(to)], (*w)[len(to):]
		copy(tile, to)
		clear(tile[min(n-i*together, together)*c.block:])
		c.code.Put(to, tile, near, i*together)
		return nil
	})
	if err != nil {
		return err
	}
	return c.eachPiece(ctx, group, func(t int, sum, work []byte) {
		if !c.began && c.near {
			clear(sum) // a page that is read first is mapped twice
		}
		c.code.Add(sum, work, band.b[t*together*c.code.Piece():], stride, parts)
	}, loan.keep)
}

// workers is the number of pieces processed at once: half the number of processors. Using all of
// them would cost a quarter more processor time and save only a tenth of the time.
func workers() int { return max(1, runtime.GOMAXPROCS(0)/2) }

// lendMost is how many bytes of the sums are in memory at a time if they are on disk.
const lendMost = 8 << 20

// pieces is how many pieces of a group's sums are in memory at a time.
func (c *coder) pieces() int {
	all := c.block / c.code.Piece()
	if c.near {
		return all
	}
	return min(all, max(1, lendMost/(c.order*c.code.Piece())))
}

// eachPiece calls do with the sums of each piece of a group's blocks, several at a time, and keep
// with those that were in memory at a time.
func (c *coder) eachPiece(ctx context.Context, group int64, do func(t int, sum, work []byte), keep func(loan) error) error {
	if err := c.sums.reserve(c.groups * c.chunk()); err != nil {
		return err
	}
	size, all := c.order*c.code.Piece(), c.block/c.code.Piece()
	each := max(1, 1<<20/size)
	for first := 0; first < all; first += c.pieces() {
		last := min(first+c.pieces(), all)
		var starts []int
		for t := first; t < last; t += each {
			starts = append(starts, t)
		}
		sums, err := c.sums.borrow(group*c.chunk()+int64(first*size), int64((last-first)*size))
		if err == nil {
			err = pipe.Each(ctx, pipe.All(starts), workers(), func(_ context.Context, start int) error {
				w := c.works.Get().(*[]byte)
				defer c.works.Put(w)
				for t := start; t < min(start+each, last); t++ {
					do(t, sums.b[(t-first)*size:][:size], *w)
				}
				return nil
			})
			if err == nil {
				err = keep(sums)
			}
			sums.drop()
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// finish computes the first n blocks of parity of each group. They take the place of the band, or of
// the sums if these are on disk.
func (c *coder) finish(ctx context.Context, n int) error {
	if err := c.flush(ctx); err != nil {
		return err
	}
	c.code.Finish()
	var rows []byte
	if c.near {
		if err := c.band.reserve(c.groups * c.chunk()); err != nil {
			return err
		}
	} else {
		c.band.close()
		rows = make([]byte, c.order*c.pieces()*c.code.Piece())
	}
	for group := range c.groups {
		if c.near {
			rows = c.band.b[group*c.chunk():]
		}
		err := c.eachPiece(ctx, group, func(t int, sum, work []byte) {
			c.code.Parity(sum, work, n)
			first := t / c.pieces() * c.pieces()
			row := c.row(first)
			for i := range n {
				copy(rows[i*row+(t-first)*c.code.Piece():], sum[i*c.code.Piece():][:c.code.Piece()])
			}
		}, func(sums loan) error {
			if c.near {
				return nil
			}
			copy(sums.b, rows)
			return sums.keep()
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// row is how many bytes of a parity block are together, from piece first on.
func (c *coder) row(first int) int {
	return min(c.pieces()*c.code.Piece(), c.block-first*c.code.Piece())
}

// parity reads parity block i of a group. It must follow finish.
func (c *coder) parity(group int64, i int, b []byte) error {
	from := &c.sums
	if c.near {
		from = &c.band
	}
	for first := 0; first < c.block/c.code.Piece(); first += c.pieces() {
		row := c.row(first)
		if err := from.read(b[first*c.code.Piece():][:row], group*c.chunk()+int64(first*c.code.Piece()*c.order+i*row)); err != nil {
			return err
		}
	}
	return nil
}
