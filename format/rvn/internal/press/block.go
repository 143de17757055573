package press

import (
	"math"
	"math/bits"

	"github.com/klauspost/compress/huff0"
)

const (
	mostBlock   = 128 << 10
	leastMatch  = 3 // that a match length code can say
	blockHeader = 3

	blockRaw        = 0
	blockRLE        = 1
	blockCompressed = 2
)

// sequence is a run of literals followed by a copy.
type sequence struct {
	literals, match uint32
	// offset is the distance of the copy; once coded, the number of its code.
	offset uint32
	// The codes of the three.
	lc, mc, oc uint8
}

// repeats are the last three offsets, which have codes of their own. Offsets that the section has
// not set itself are 0: the decoder still has those of whatever it decoded before, and no offset
// is equal to 0.
type repeats [3]uint32

// number says offset, of a sequence with so many literals (section 3.1.1.5), and
// notes it.
func (r *repeats) number(offset, literals uint32) uint32 {
	a, b, c := r[0], r[1], r[2]
	if literals > 0 {
		switch offset {
		case a:
			return 1
		case b:
			*r = repeats{b, a, c}
			return 2
		case c:
			*r = repeats{c, a, b}
			return 3
		}
	} else {
		switch offset {
		case b:
			*r = repeats{b, a, c}
			return 1
		case c:
			*r = repeats{c, a, b}
			return 2
		case a - 1: // of an unknown a: more than there are
			*r = repeats{offset, a, b}
			return 3
		}
	}
	*r = repeats{offset, a, b}
	return offset + 3
}

// Codes of literal and match lengths. Short lengths have one each. For longer ones, a code has
// the highest bit, or a little more (section 3.1.1.3.2.1.1).
var (
	literalCodes = newCodes[[64]uint8](literalBase[:])
	matchCodes   = newCodes[[128]uint8](matchBase[:])
)

var literalBase = [36]uint32{
	0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 18, 20, 22, 24, 28, 32, 40, 48, 64,
	1 << 7, 1 << 8, 1 << 9, 1 << 10, 1 << 11, 1 << 12, 1 << 13, 1 << 14, 1 << 15, 1 << 16,
}

// Less leastMatch.
var matchBase = [53]uint32{
	0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25,
	26, 27, 28, 29, 30, 31, 32, 34, 36, 38, 40, 44, 48, 56, 64, 80, 96,
	1 << 7, 1 << 8, 1 << 9, 1 << 10, 1 << 11, 1 << 12, 1 << 13, 1 << 14, 1 << 15, 1 << 16,
}

var literalExtra = newExtra[[64]uint8](literalBase[:])
var matchExtra = newExtra[[64]uint8](matchBase[:])

// newCodes returns a table of the codes of short lengths.
func newCodes[T [64]uint8 | [128]uint8](base []uint32) (t T) {
	code := 0
	for v := range len(t) {
		for code+1 < len(base) && base[code+1] <= uint32(v) {
			code++
		}
		t[v] = uint8(code)
	}
	return t
}

// newExtra returns how many extra bits follow each code.
func newExtra[T [64]uint8](base []uint32) (t T) {
	for i := range base[:len(base)-1] {
		t[i] = uint8(bits.Len32(base[i+1]-base[i]) - 1)
	}
	t[len(base)-1] = 16
	return t
}

func literalCode(n uint32) uint8 {
	if n < 64 {
		return literalCodes[n]
	}
	return uint8(bits.Len32(n) - 1 + 19)
}

func matchCode(n uint32) uint8 {
	if n < 128 {
		return matchCodes[n]
	}
	return uint8(bits.Len32(n) - 1 + 36)
}

// kind is one of the three kinds of codes in sequences: the tables that it can have, and what the
// last block used.
type kind struct {
	fixed  *codeTable // needs no description
	most   int        // log of the largest table
	count  [mostSymbols]uint32
	own    *codeTable // room for a table of the block
	last   *codeTable // a decoder has this one, if known
	known  bool
	shift  uint // of the mode in the byte for all three
	chosen *codeTable
}

// constant codes a symbol that is the only one with no bits.
var constant = &codeTable{}

// choose picks the table for n codes that are counted, and appends its description.
func (k *kind) choose(b []byte, n int, mode *byte) []byte {
	const own, repeat = 2, 3
	different, symbol := 0, 0
	for i, c := range &k.count {
		if c > 0 {
			different++
			symbol = i
		}
	}
	fixed := k.fixed.cost(k.count[:])
	if different == 1 {
		if fixed <= 8 {
			k.chosen = k.fixed
			return b
		}
		k.chosen = constant
		*mode |= 1 << k.shift
		return append(b, byte(symbol))
	}
	last := math.Inf(1)
	if k.known {
		last = k.last.cost(k.count[:])
	}
	k.own.weigh(k.count[:], n, k.most)
	at := len(b)
	b = k.own.describe(b)
	described := k.own.cost(k.count[:]) + float64(8*(len(b)-at))
	switch {
	case fixed <= last && fixed <= described:
		k.chosen = k.fixed
		return b[:at]
	case last <= described:
		k.chosen = k.last
		*mode |= repeat << k.shift
		return b[:at]
	}
	k.own.build()
	k.chosen = k.own
	*mode |= own << k.shift
	return b
}

// used records what a decoder has after the block.
func (k *kind) used() {
	switch k.chosen {
	case k.own:
		k.own, k.last = k.last, k.own
		k.known = true
	case k.last:
	default:
		k.known = false
	}
}

// coder turns sequences and literals into blocks.
type coder struct {
	rep        repeats
	ll, ml, of kind
	huff       *huff0.Scratch
	treeKnown  bool // the decoder has the tree that huff would use again
	sequences  []sequence
	literals   []byte
}

func newCoder() coder {
	return coder{
		huff: &huff0.Scratch{WantLogLess: 6},
		ll:   kind{fixed: defaultLiterals, most: 9, shift: 6, own: new(codeTable), last: new(codeTable)},
		of:   kind{fixed: defaultOffsets, most: 8, shift: 4, own: new(codeTable), last: new(codeTable)},
		ml:   kind{fixed: defaultMatches, most: 9, shift: 2, own: new(codeTable), last: new(codeTable)},
	}
}

// forget prepares c for a section, for which the decoder's state is not known.
func (c *coder) forget() {
	c.rep = repeats{}
	c.treeKnown = false
	c.ll.known, c.of.known, c.ml.known = false, false, false
}

func appendHeader(dst []byte, kind, size int) []byte {
	h := size<<3 | kind<<1
	return append(dst, byte(h), byte(h>>8), byte(h>>16))
}

// block appends src, given as literals and sequences, as one block.
func (c *coder) block(dst, src []byte) []byte {
	at := len(dst)
	before := c.rep
	dst = appendHeader(dst, blockCompressed, 0)
	dst = c.appendLiterals(dst, c.literals)
	if len(c.sequences) == 0 {
		dst = append(dst, 0)
	} else {
		dst = c.appendSequences(dst, c.sequences)
	}
	n := len(dst) - at - blockHeader
	if n >= len(src) {
		// A decoder does not see the above.
		c.rep = before
		c.treeKnown = false
		return append(appendHeader(dst[:at], blockRaw, len(src)), src...)
	}
	if len(c.sequences) > 0 {
		c.ll.used()
		c.of.used()
		c.ml.used()
	}
	appendHeader(dst[at:at:at+blockHeader], blockCompressed, n)
	return dst
}

const (
	literalsRaw      = 0
	literalsRLE      = 1
	literalsTree     = 2
	literalsTreeless = 3
)

// appendLiterals appends a literals section (section 3.1.1.3.1).
func (c *coder) appendLiterals(dst, src []byte) []byte {
	if len(src) < 32 {
		return append(appendLiteralsHeader(dst, literalsRaw, len(src)), src...)
	}
	c.huff.Reuse = huff0.ReusePolicyNone
	if c.treeKnown {
		c.huff.Reuse = huff0.ReusePolicyAllow
	}
	var out []byte
	var again bool
	var err error
	streams := len(src) >= 256
	if streams {
		out, again, err = huff0.Compress4X(src, c.huff)
	} else {
		out, again, err = huff0.Compress1X(src, c.huff)
	}
	switch {
	case err == huff0.ErrUseRLE:
		c.treeKnown = false
		return append(appendLiteralsHeader(dst, literalsRLE, len(src)), src[0])
	case err != nil:
		c.treeKnown = false // huff may hold any tree now
		return append(appendLiteralsHeader(dst, literalsRaw, len(src)), src...)
	}
	how := literalsTree
	if again {
		how = literalsTreeless
	}
	h := uint64(how)
	switch n := len(out); {
	case !streams:
		h |= uint64(len(src))<<4 | uint64(n)<<14
	case len(src) < 1<<10 && n < 1<<10:
		h |= 1<<2 | uint64(len(src))<<4 | uint64(n)<<14
	case len(src) < 1<<14 && n < 1<<14:
		h |= 2<<2 | uint64(len(src))<<4 | uint64(n)<<18
		dst = append(dst, byte(h))
		h >>= 8
	default:
		h |= 3<<2 | uint64(len(src))<<4 | uint64(n)<<22
		dst = append(dst, byte(h), byte(h>>8))
		h >>= 16
	}
	dst = append(dst, byte(h), byte(h>>8), byte(h>>16))
	c.treeKnown = true
	return append(dst, out...)
}

// appendLiteralsHeader appends the header of literals that are n plain bytes, or one byte n
// times.
func appendLiteralsHeader(dst []byte, how, n int) []byte {
	switch {
	case n < 1<<5:
		return append(dst, byte(how|n<<3))
	case n < 1<<12:
		return append(dst, byte(how|1<<2|n<<4), byte(n>>4))
	}
	return append(dst, byte(how|3<<2|n<<4), byte(n>>4), byte(n>>12))
}
