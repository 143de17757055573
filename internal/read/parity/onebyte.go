package parity

import (
	"context"
	"sync"

	"github.com/holdall/holdall/format/kit/pipe"
)

// If single bytes are wrong all over an archive, more blocks are damaged than there is parity for.
// A block in which one byte is wrong is restored without parity: of all changes of one byte, few
// give the rolling hash of the block, and only the right one gives its digest.

// byBytes restores the blocks of a group in which one byte is wrong, once, and reports whether there
// are any. It gives up when more blocks have failed than were restored and than there is parity for.
// mu is held.
func (g *Guard) byBytes(ctx context.Context, group int64) (more bool, err error) {
	if !g.f.h.rolls() || g.tried[group] {
		return false, nil
	}
	var lost []int64
	err = g.sweep(ctx, group, g.f.h.blocks, g.f.h.groups, func(block int64, _ []byte, _ origin, err error) error {
		if err == errLost {
			lost = append(lost, block)
			err = nil
		}
		return err
	})
	if err != nil {
		return false, err
	}
	type try struct {
		block int64
		b     []byte
		err   error
	}
	tries := func(yield func(*try, error) bool) {
		for _, block := range lost {
			if !yield(&try{block: block}, nil) {
				return
			}
		}
	}
	failed, most := 0, g.f.h.parity
	err = pipe.Ordered(ctx, tries, 2*g.workers(), func(ctx context.Context, t *try) {
		t.b = make([]byte, g.f.h.block)
		t.err = g.byByte(ctx, t.block, t.b)
	}, func(t *try) error {
		if t.err == nil {
			more = true
			most++
			t.err = g.keep(ctx, t.block, t.b)
		}
		if t.err != errLost {
			return t.err
		}
		if failed++; failed > most {
			return errFound
		}
		return nil
	}, func(*try) {})
	if err == errFound {
		err = nil
	}
	if g.tried[group] = err == nil; more {
		delete(g.given, group)
	}
	return more, err
}

// byByte fills b with a block in which one byte is wrong. It returns errLost if there are more.
func (g *Guard) byByte(ctx context.Context, block int64, b []byte) error {
	hash, err := g.f.rolling(ctx, block)
	if err == nil {
		err = g.read(ctx, b, block*int64(len(b)), false)
	}
	if err != nil {
		return err
	}
	if g.oneByte(ctx, block, b, hash) {
		return nil
	}
	ok, err := g.leftElsewhere(ctx, block, b)
	if err == nil && !(ok && g.oneByte(ctx, block, b, hash)) {
		err = errLost
	}
	return err
}

// oneByte changes one byte of b so that b has the rolling hash and the digest of a block. It
// reports false if there is none.
func (g *Guard) oneByte(ctx context.Context, block int64, b []byte, hash uint32) bool {
	sum, factor := rollSum(b), uint64(1)
	for at := len(b) - wordLen; at >= 0; at, factor = at-wordLen, factor*rollFactor {
		was := mixAt(b, at)
		rest := sum - was*factor
		for i, x := range changes() {
			// mix of an exclusive or is the exclusive or of both.
			if uint32((rest+(was^x)*factor)>>32) != hash {
				continue
			}
			p := &b[at+i/0xff]
			*p ^= byte(i%0xff + 1)
			if g.right(ctx, block, b) == nil {
				return true
			}
			*p ^= byte(i%0xff + 1)
		}
	}
	return false
}

// changes are all changes of one byte of a word, as mix has them.
var changes = sync.OnceValue(func() *[wordLen * 0xff]uint64 {
	var all [wordLen * 0xff]uint64
	for i := range all {
		all[i] = mix(uint64(i%0xff+1) << (i / 0xff * 8))
	}
	return &all
})
