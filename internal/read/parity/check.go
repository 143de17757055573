package parity

import (
	"context"
	"math/bits"

	"github.com/holdall/holdall/internal/base/meter"
)

// A Report says how many blocks are damaged, and how many more may be lost.
type Report struct {
	Block  int   `json:"block"`  // size of a block
	Blocks int64 `json:"blocks"` // number of protected blocks
	Looked int64 `json:"looked"` // number of blocks that were checked
	// Damaged is the number of checked blocks that are not in their places, and Healed the number
	// of those that are elsewhere or can be computed.
	Damaged int64 `json:"damaged"`
	Healed  int64 `json:"healed"`
	// Parity is the number of usable parity blocks in the group with the fewest left, and
	// ParityHad the number that was written.
	Parity       int64 `json:"parity"`
	ParityHad    int64 `json:"parity_written"`
	ParityBroken int64 `json:"parity_damaged"` // damaged records of the parity file, of all kinds
	// Spare is the number of further blocks that may be lost, whichever they are, if the blocks
	// that were not checked are sound. Share is the share of all blocks that may be lost in one
	// run.
	Spare int64   `json:"spare"`
	Share float64 `json:"spare_share"`

	first int64 // number of the first damaged block
}

// Where returns the object and the offset of the first damaged block that Check has found.
func (g *Guard) Where(r Report) (object string, off int64) {
	if r.Damaged == 0 {
		return "", 0
	}
	off = r.first * int64(r.Block)
	p := g.objs[g.at(off)]
	return p.name, off - p.from
}

// Size returns a Report with nothing checked.
func (g *Guard) Size() Report {
	return Report{Block: g.f.h.block, Blocks: g.f.h.blocks, ParityHad: int64(g.f.h.parity)}
}

// Moved reports whether Check has found that an object of the archive that the guard was bound to
// is too long, or has its blocks elsewhere.
func (g *Guard) Moved() bool {
	for _, p := range g.objs {
		if p.own && (p.moved || p.nearer.Load() || p.there > p.Size) {
			return true
		}
	}
	return false
}

// Beyond is the number of damaged blocks that cannot be healed.
func (r Report) Beyond() int64 { return r.Damaged - r.Healed }

// Check reads the blocks of the archive that the guard was bound to, and all of the parity file. If
// the archive is one file of a set, the other files are read only if it is damaged. With heal it
// computes all blocks that it can, and Store then uses them.
func (g *Guard) Check(ctx context.Context, heal bool, m *meter.Meter) (r Report, err error) {
	h := g.f.h
	r = g.Size()
	g.mu.Lock()
	defer g.mu.Unlock()
	first, end := g.own()
	if m.WantsTotal() {
		m.Expect(0, (end-first)*int64(h.block)+h.size())
	}
	c := checking{g: g, heal: heal, r: &r, left: make([]int32, h.groups), need: make([]int32, h.groups)}
	if err = c.blocks(ctx, first, end, m); err != nil {
		return r, err
	}
	for _, k := range []kind{kindRecovery, kindNear, kindParity, kindDirectory} {
		err := g.f.each(ctx, k, func(i int64, there bool) {
			m.Add(0, h.stride())
			switch {
			case !there:
				r.ParityBroken++
			case k == kindParity:
				c.left[i%h.groups]++
			}
		})
		if err != nil {
			return r, err
		}
	}
	for {
		r.Parity, r.Spare = r.ParityHad, r.ParityHad
		for group, left := range c.left {
			r.Parity = min(r.Parity, int64(left))
			r.Spare = max(0, min(r.Spare, int64(left-c.need[group])))
		}
		r.Share = min(1, float64(r.Spare)*float64(h.groups)/float64(h.blocks))
		// A healed block may be the last one that its neighbours, or its group, need.
		for more := r.Damaged > 0; more && r.Beyond() > 0; {
			if more, err = c.cure(ctx); err != nil {
				return r, err
			}
		}
		if r.Beyond() == 0 {
			return r, nil
		}
		more, err := g.searchAgain(ctx)
		switch {
		case err == nil && more:
			err = c.blocks(ctx, first, end, nil)
		case c.bytes: // nothing is left to try
			return r, err
		default:
			c.bytes = true
		}
		if err != nil {
			return r, err
		}
	}
}

// blocks checks the blocks from first to end and, if any is damaged, all others.
func (c *checking) blocks(ctx context.Context, first, end int64, m *meter.Meter) error {
	c.g.lost.close()
	c.r.Looked, c.r.Damaged, c.r.Healed = 0, 0, 0
	clear(c.need)
	err := c.look(ctx, first, end, m)
	if err == nil {
		err = c.otherLength()
	}
	if err == nil && c.r.Damaged > 0 {
		if err = c.look(ctx, 0, first, m); err == nil {
			err = c.look(ctx, end, c.g.f.h.blocks, m)
		}
	}
	return err
}

// own returns the blocks of the archive that the guard was bound to.
func (g *Guard) own() (first, end int64) {
	first, size := g.f.h.blocks, int64(g.f.h.block)
	for _, p := range g.objs {
		if p.own && p.Size > 0 {
			first, end = min(first, p.from/size), max(end, (p.from+p.Size+size-1)/size)
		}
	}
	return min(first, end), end
}

// checking is the state of a Check.
type checking struct {
	g          *Guard
	heal       bool
	r          *Report
	left, need []int32 // of each group: usable parity blocks, damaged blocks
	bytes      bool    // blocks in which one byte is wrong are restored without parity
}

func (c *checking) look(ctx context.Context, first, end int64, m *meter.Meter) error {
	g, next := c.g, int64(0) // where the next object begins
	return g.sweep(ctx, first, end, 1, func(block int64, b []byte, from origin, err error) error {
		if off := block * int64(len(b)); off >= next {
			p := g.objs[g.at(off)]
			m.At(p.name, p.Size)
			next = p.from + p.Size
		}
		m.Add(0, int64(len(b)))
		c.r.Looked++
		if err == nil && from == stored {
			return nil
		}
		if c.r.Damaged == 0 {
			c.r.first = block
		}
		c.r.Damaged++
		if err == nil && from == elsewhere {
			c.r.Healed++
			g.isMoved(block)
			return nil
		}
		c.need[block%g.f.h.groups]++
		return g.mark(block, true)
	})
}

// otherLength counts one block for each object that is too short or too long but has no damaged
// block. This happens if its content repeats, or if bytes were appended.
func (c *checking) otherLength() error {
	for _, p := range c.g.objs {
		if !p.own || p.obj == nil || p.there == p.Size || p.moved {
			continue
		}
		lost, err := c.g.isLostIn(p, 0, p.Size)
		if err != nil {
			return err
		}
		if !lost {
			if c.r.Damaged == 0 {
				c.r.first = (p.from + min(p.there, p.Size-1)) / int64(c.r.Block)
			}
			c.r.Damaged++
			c.r.Healed++
		}
	}
	return nil
}

// cure heals blocks by their neighbours, then by their groups, and reports whether it healed any.
// Without heal it only determines which blocks can be healed.
func (c *checking) cure(ctx context.Context) (more bool, err error) {
	g, h := c.g, &c.g.f.h
	done := func(block int64) error {
		more = true
		c.r.Healed++
		c.need[block%h.groups]--
		return g.mark(block, false)
	}
	b := make([]byte, h.stride())
	var run [nearLen / 8]byte
	for i := range h.near() {
		if err := g.lost.read(run[:], i*int64(len(run))); err != nil {
			return more, err
		}
		n, block := 0, i*nearLen
		for at, b := range run {
			if n += bits.OnesCount8(b); b != 0 {
				block = i*nearLen + int64(at*8+bits.TrailingZeros8(b))
			}
		}
		if n != 1 {
			continue
		}
		var err error
		switch _, healed := g.healed[block]; {
		case healed:
		case c.heal:
			err = g.byNeighbours(ctx, block, b[:h.block])
		default:
			if _, err = g.f.record(ctx, kindNear, i, b); err == nil {
				_, err = g.f.digest(ctx, block)
			}
		}
		if err == nil {
			err = done(block)
		}
		if err != nil && err != errLost {
			return more, err
		}
	}
	for group := range h.groups {
		enough := func() bool { return c.need[group] <= c.left[group] }
		var err error
		switch {
		case c.need[group] == 0 || !enough() && !c.bytes:
			continue
		case !enough():
			_, err = g.byBytes(ctx, group)
		case c.heal:
			clear(g.given)
			err = g.byGroup(ctx, group)
		}
		if err != nil && err != ErrBeyond {
			return more, err
		}
		byParity := enough() && !c.heal
		for block := group; block < h.blocks; block += h.groups {
			lost, err := g.isLost(block)
			if _, healed := g.healed[block]; err == nil && lost && !healed {
				if err = errLost; byParity {
					_, err = g.f.digest(ctx, block) // it cannot be verified without its digest
				}
			}
			if err == nil && lost {
				err = done(block)
			}
			if err != nil && err != errLost {
				return more, err
			}
		}
	}
	return more, nil
}

func (g *Guard) mark(block int64, lost bool) error {
	var b [1]byte
	err := g.lost.read(b[:], block/8)
	if err != nil {
		return err
	}
	bit := byte(1) << (block % 8)
	if b[0] &^= bit; lost {
		b[0] |= bit
	}
	return g.lost.write(b[:], block/8)
}

// isLost reports whether a block is damaged beyond the parity, as Check has found.
func (g *Guard) isLost(block int64) (bool, error) {
	var b [1]byte
	err := g.lost.read(b[:], block/8)
	return b[0]&(1<<(block%8)) != 0, err
}

// IsBeyond reports whether Check has found damage beyond the parity in the archive that the guard
// was bound to.
func (g *Guard) IsBeyond() (bool, error) {
	for _, p := range g.objs {
		if !p.own {
			continue
		}
		if is, err := g.Beyond(p.name, 0, p.Size); is || err != nil {
			return is, err
		}
	}
	return false, nil
}

func (g *Guard) Covers(object string) bool { return g.parts[object] != nil }

// Beyond reports whether a range of an object lies in blocks that Check has found to be
// damaged beyond the parity.
func (g *Guard) Beyond(object string, off, n int64) (bool, error) {
	p := g.parts[object]
	if p == nil || n <= 0 || off < 0 || off >= p.Size {
		return false, nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.isLostIn(p, off, n)
}

// isLostIn is isLost of any block of a range of an object.
func (g *Guard) isLostIn(p *part, off, n int64) (bool, error) {
	size := int64(g.f.h.block)
	for block, last := (p.from+off)/size, (p.from+off+min(n, p.Size-off)-1)/size; block <= last; block++ {
		if lost, err := g.isLost(block); lost || err != nil {
			return lost, err
		}
	}
	return false, nil
}
