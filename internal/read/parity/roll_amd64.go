package parity

import "github.com/klauspost/cpuid/v2"

// rollsWide says that 64 sums are computed at once.
var rollsWide = cpuid.CPU.Supports(cpuid.AVX512F, cpuid.AVX512DQ)

//go:noescape
func rollWide(sums *[64]uint64, b *byte, n int, power uint64)

// rollMost returns the sum of the first n bytes, and n, which may be 0.
func rollMost(b []byte) (h uint64, n int) {
	var sums [64]uint64
	if n = len(b) / (len(sums) * wordLen) * (len(sums) * wordLen); n == 0 || !rollsWide {
		return 0, 0
	}
	rollWide(&sums, &b[0], n, rollPower(len(sums)))
	for _, s := range sums {
		h = h*rollFactor + s
	}
	return h, n
}
