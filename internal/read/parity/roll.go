package parity

import "encoding/binary"

// The rolling hash of a block is the upper half of the sum of mix(w) · rollFactor^(n-1-i) mod 2^64
// over its words w, numbers 0 ≤ i < n. From a block to the one that begins a word later takes one
// step, so a search for blocks at all bytes keeps the sums of eight.
const (
	rollFactor = 0x9E3779B97F4A7C15
	wordLen    = 8
)

// mix lets the upper half of a word count in all bits of the sum.
func mix(w uint64) uint64 { return w ^ w>>32 }

func mixAt(b []byte, at int) uint64 { return mix(binary.LittleEndian.Uint64(b[at:])) }

// rollPower is a power of rollFactor.
func rollPower(n int) uint64 {
	p := uint64(1)
	for f := uint64(rollFactor); n > 0; n /= 2 {
		if n%2 == 1 {
			p *= f
		}
		f *= f
	}
	return p
}

// rollOf is the rolling hash of a block.
func rollOf(b []byte) uint32 { return uint32(rollSum(b) >> 32) }

// rollSum is the sum of which rollOf is the upper half. b has whole words.
func rollSum(b []byte) uint64 {
	h, n := rollMost(b)
	b = b[n:]
	const p1 = rollFactor
	p2, p3, p4 := rollPower(2), rollPower(3), rollPower(4)
	for ; len(b) >= 4*wordLen; b = b[4*wordLen:] {
		h = h*p4 + (mixAt(b, 0)*p3 + mixAt(b, wordLen)*p2 + (mixAt(b, 2*wordLen)*p1 + mixAt(b, 3*wordLen)))
	}
	for ; len(b) >= wordLen; b = b[wordLen:] {
		h = h*p1 + mixAt(b, 0)
	}
	return h
}
