package press

import (
	"math"
	"math/bits"
)

// bit is the price of one bit. Prices are integers, in 256ths, so they are the same on all
// machines.
const bit = 256

// logs has the logarithms of 1 to 2, in steps of 1/256.
var logs = func() (t [256]int32) {
	for i := range t {
		t[i] = int32(math.Log2(1+float64(i)/256)*bit + 0.5)
	}
	return t
}()

// logOf returns the logarithm of n, which must not be 0.
func logOf(n uint32) int32 {
	l := bits.Len32(n) - 1
	return int32(l)*bit + logs[uint8(uint64(n)<<8>>l)]
}

// longest is the longest match that has a price. A longer one is used without comparison.
const longest = 255

// prices estimates the sizes of literals and sequences from the counts of previous ones.
type prices struct {
	literalCount [256]uint32
	runCount     [len(literalBase)]uint32
	matchCount   [len(matchBase)]uint32
	offsetCount  [32]uint32

	literal [256]int32
	run     [64]int32 // of a number of literals
	runs    [32]int32 // of one that is larger, by its bits
	match   [longest + 1]int32
	offset  [32]int32 // by the code
}

// forget begins with usual counts: for literals those of the bytes of b, for sequences those of
// the predefined tables.
func (p *prices) forget(b []byte) {
	*p = prices{}
	for _, c := range b {
		p.literalCount[c]++
	}
	for i, c := range p.literalCount {
		p.literalCount[i] = (c + 15) >> 4
	}
	for i := range p.runCount {
		p.runCount[i] = 4 * uint32(max(defaultLiterals.weight[i], 1))
	}
	for i := range p.matchCount {
		p.matchCount[i] = 4 * uint32(max(defaultMatches.weight[i], 1))
	}
	for i := range p.offsetCount[:mostSectionLog+1] {
		p.offsetCount[i] = 8
	}
}

// fade keeps a quarter of the counts, so that later counts have more weight.
func (p *prices) fade() {
	for _, counts := range [][]uint32{p.literalCount[:], p.runCount[:], p.matchCount[:], p.offsetCount[:]} {
		for i := range counts {
			counts[i] >>= 2
		}
	}
}

// count notes a sequence, which has codes, and its literals.
func (p *prices) count(literals []byte, s *sequence) {
	p.countLiterals(literals)
	p.runCount[s.lc]++
	p.matchCount[s.mc]++
	p.offsetCount[s.oc&31]++
}

func (p *prices) countLiterals(b []byte) {
	for _, c := range b {
		p.literalCount[c]++
	}
}

func (p *prices) set() {
	price(p.literal[:], p.literalCount[:])
	var code [64]int32
	price(code[:], p.runCount[:])
	for i := range p.run {
		c := literalCodes[i]
		p.run[i] = code[c] + int32(literalExtra[c])*bit
	}
	for i := bits.Len(uint(len(p.run))); i <= 17; i++ {
		c := literalCode(1 << (i - 1))
		p.runs[i] = code[c] + int32(literalExtra[c])*bit
	}
	price(code[:], p.matchCount[:])
	for i := range p.match[leastMatch:] {
		c := matchCode(uint32(i))
		p.match[leastMatch+i] = code[c] + int32(matchExtra[c])*bit
	}
	price(p.offset[:], p.offsetCount[:])
	for i := range p.offset {
		p.offset[i] += int32(i) * bit
	}
}

// price sets the prices of codes from their counts. Each count is increased by one, because any
// code may occur. No code costs less than a bit: literals cannot, and for others such a price is
// not reliable.
func price(to []int32, counts []uint32) {
	n := uint32(len(counts))
	for _, c := range counts {
		n += c
	}
	all := logOf(n)
	for i, c := range counts {
		to[i] = max(all-logOf(c+1), bit)
	}
}

func (p *prices) literals(n uint32) int32 {
	if n < uint32(len(p.run)) {
		return p.run[n]
	}
	return p.runs[bits.Len32(n)&31]
}
