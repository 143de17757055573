package sstable

import (
	"context"
	"encoding/binary"
	"errors"
	"math/bits"
)

// A chain finds the data blocks of a table that has no index. Blocks are adjacent, each followed
// by its checksum, but the length of a block is not stored. If the beginning of a block is known,
// its end is where the checksum of everything up to there follows. If it is not known because the
// block before is damaged, all pairs of a beginning and an end are tried; see [findBlock].
type chain struct {
	w   *window
	at  int64  // where the next block should begin
	end int64  // where there are no more
	buf []byte // decoded
}

const (
	// usualBlock is how far the end of a block is searched for first. It is also the size of
	// the longest block that is found if its beginning is not known.
	usualBlock = 64 << 10
	searchRun  = 4 * usualBlock
)

// next returns the next data block, which is valid until the next call, or nil at the end. An
// *Error means that something cannot be read; blocks after it may be readable.
func (c *chain) next(ctx context.Context) (*block, error) {
	for c.at < c.end {
		raw, err := c.stored(ctx)
		off := c.at
		if c.at += int64(len(raw)); err == nil && len(raw) == 0 {
			err = c.skip(ctx)
		}
		if err != nil {
			return nil, err
		}
		var f *Error
		if c.buf, f = decodeBlock(c.buf, raw, maxBlock); f != nil {
			return nil, f.at(c.w.name, off)
		}
		// A block that is not a data block has other keys, or is an index.
		if b, f := parseBlock(c.buf, roleData); f == nil && !isIndex(&b, off) {
			return &b, nil
		}
	}
	return nil, nil
}

// stored returns the block at c.at with its trailer, or nothing if there is no intact one.
func (c *chain) stored(ctx context.Context) ([]byte, error) {
	for _, far := range [...]int{usualBlock, maxBlock} {
		b, err := c.w.at(ctx, c.at, far+blockTrailerLen)
		if err != nil {
			c.at = c.end // it would be met again
			return nil, err
		}
		if n := blockLength(b); n > 0 || len(b) < far+blockTrailerLen {
			return b[:n], nil
		}
	}
	return nil, nil
}

// blockLength returns the length of the block that b begins with, with its trailer,
// or 0.
func blockLength(b []byte) int {
	crc := ^uint32(0)
	for i := 0; i+blockTrailerLen <= len(b); i++ {
		crc = castagnoli[byte(crc)^b[i]] ^ crc>>8
		if b[i] <= storedZlib && i > 0 && masked(^crc) == binary.LittleEndian.Uint32(b[i+1:]) {
			return i + blockTrailerLen
		}
	}
	return 0
}

// skip continues where an intact block begins, or at the end, and reports that it did.
func (c *chain) skip(ctx context.Context) error {
	from := c.at
	c.at = c.end
	for at := from + 1; at < c.end; at += searchRun / 2 {
		b, err := c.w.at(ctx, at, searchRun)
		if err != nil {
			return err
		}
		if i := findBlock(b); i >= 0 {
			c.at = at + int64(i)
			break
		}
	}
	return corruptf(-1, "table: no sound block here").at(c.w.name, from)
}

// findBlock returns the beginning in b of the intact block that ends first, or -1. Its time is
// proportional to the length of b, although the number of pairs of beginning and end is the
// square of that.
//
// Let P(i) be the register of the checksum before byte i, starting from zero. The checksum of a
// block starts from I at the beginning s of the block. Because everything is linear, its register
// before byte e is
//
//	P(e) + (P(s)+I)·x^(8(e-s))
//
// It must be the complement of what is stored at e, C(e). Multiplied by x^(-8e), that is
//
//	(P(s)+I)·x^(-8s) = (P(e)+C(e))·x^(-8e)
//
// The left side depends only on the beginning, and the right side only on the end. So the left
// sides are kept in a table, in which the right sides are looked up.
func findBlock(b []byte) int {
	begins := make(map[uint32]int32, len(b))
	var p uint32            // P(i)
	w := uint32(1) << 31    // x^(-8i); the bits of a polynomial are in reverse
	var decoded []byte      // what the candidates have in them
	const init = ^uint32(0) // I
	for i := 0; i+blockTrailerLen <= len(b); i++ {
		begins[multiply(p^init, w)] = int32(i)
		p = castagnoli[byte(p)^b[i]] ^ p>>8
		for range 8 {
			w = divideByX(w)
		}
		if b[i] > storedZlib {
			continue
		}
		stored := ^unmasked(binary.LittleEndian.Uint32(b[i+1:]))
		s, ok := begins[multiply(p^stored, w)]
		if !ok || int(s) >= i {
			continue
		}
		// Among so many pairs some match by chance; few of those can be decoded.
		var f *Error
		if decoded, f = decodeBlock(decoded, b[s:i+blockTrailerLen], maxBlock); f != nil {
			continue
		}
		if _, f = parseBlock(decoded, roleMeta); f == nil {
			return int(s)
		}
		if _, f = parseBlock(decoded, roleData); f == nil {
			return int(s)
		}
	}
	return -1
}

// polynomial is Castagnoli's without its highest power, with its bits reversed.
const polynomial = 0x82f63b78

// divideByX divides by x, modulo the polynomial, which has a constant term.
func divideByX(a uint32) uint32 {
	if a>>31 == 0 {
		return a << 1
	}
	return (a^polynomial)<<1 | 1
}

// multiply multiplies modulo the polynomial.
func multiply(a, b uint32) (product uint32) {
	for a != 0 {
		n := bits.LeadingZeros32(a)
		// b·x^n, a bit at a time: n is small on average.
		for range n {
			b = b>>1 ^ -(b&1)&polynomial
		}
		product ^= b
		a = a << n &^ (1 << 31)
	}
	return product
}

// isIndex reports whether something at off that can be read as a data block is an index: its
// values are the places of adjacent blocks, from the first one on, and end before it.
func isIndex(b *block, off int64) bool {
	behind := uint64(0)
	for it := (blockIter{b: b}); it.advance(); {
		f := fields{b: it.val}
		h := f.handle()
		if f.bad || len(f.b) > 0 || h.off != behind || !h.within(uint64(off)) {
			return false
		}
		behind = h.end()
	}
	return b.count > 0
}

// A salvageIter yields the rows of a table that can be read, and reports what cannot.
type salvageIter struct {
	w      *window
	report func(Problem)

	blocks interface { // a walk, or the chain of a table that has no index
		next(context.Context) (*block, error)
	}
	row  blockIter
	last []byte // key of the last row
}

func (t *salvageIter) at() (key []byte, trailer uint64, val []byte) { return t.row.row() }

func (t *salvageIter) close() { t.w.close() }

// next moves to the next row with a key above the last one. Other rows come from a block that
// does not belong where it was found, and are skipped.
func (t *salvageIter) next(ctx context.Context) (bool, error) {
	for {
		for t.row.b != nil && t.row.advance() {
			if t.last != nil && compareInternal(t.row.key, t.last) <= 0 {
				continue
			}
			t.last = append(t.last[:0], t.row.key...)
			return true, nil
		}
		b, err := t.blocks.next(ctx)
		if e, damaged := errors.AsType[*Error](err); damaged {
			t.report(Problem{e, true})
			continue
		}
		if b == nil || err != nil {
			return false, err
		}
		t.row.reset(b)
	}
}
