package gf16

import "github.com/klauspost/cpuid/v2"

var (
	// useNibbles says that factors are products of nibbles.
	useNibbles = cpuid.CPU.Supports(cpuid.AVX2)
	// useAffine says that factors are matrices of bits.
	useAffine = useNibbles && cpuid.CPU.Supports(cpuid.GFNI)
	// useWide says that these multiply 64 bytes at once.
	useWide = useAffine && cpuid.CPU.Supports(cpuid.AVX512F)
)

//go:noescape
func inverseAVX2(x, y *byte, n int, nibbles *[8][16]byte)

//go:noescape
func forwardAVX2(x, y *byte, n int, nibbles *[8][16]byte)

//go:noescape
func inverseGFNI(x, y *byte, n int, affine *[4]uint64)

//go:noescape
func forwardGFNI(x, y *byte, n int, affine *[4]uint64)

//go:noescape
func addInverseAVX2(x, y *byte, n int, nibbles *[8][16]byte, sx, sy *byte)

//go:noescape
func addInverseGFNI(x, y *byte, n int, affine *[4]uint64, sx, sy *byte)

//go:noescape
func inverse4Wide(to *byte, n int, from *byte, stride int, c1, c2, c3 *[4]uint64)

//go:noescape
func first4Wide(to *byte, n int, from *byte, stride int, c1, c2, c3 *[4]uint64, sum *byte)

//go:noescape
func addInverse4Wide(to *byte, n int, from *byte, c1, c2, c3 *[4]uint64)

func inverse(x, y []byte, c *factor) {
	switch {
	case useAffine:
		inverseGFNI(&x[0], &y[0], len(y), &c.affine)
	case useNibbles:
		inverseAVX2(&x[0], &y[0], len(y), &c.nibbles)
	default:
		inverseSlow(x, y, c)
	}
}

func forward(x, y []byte, c *factor) {
	switch {
	case useAffine:
		forwardGFNI(&x[0], &y[0], len(y), &c.affine)
	case useNibbles:
		forwardAVX2(&x[0], &y[0], len(y), &c.nibbles)
	default:
		forwardSlow(x, y, c)
	}
}

func addInverse(x, y []byte, c *factor, sx, sy []byte) {
	switch {
	case useAffine:
		addInverseGFNI(&x[0], &y[0], len(y), &c.affine, &sx[0], &sy[0])
	case useNibbles:
		addInverseAVX2(&x[0], &y[0], len(y), &c.nibbles, &sx[0], &sy[0])
	default:
		addInverseSlow(x, y, c, sx, sy)
	}
}

func inverse4(to []byte, n int, from []byte, stride int, c1, c2, c3 *factor) {
	if !useWide {
		inverse4Slow(to, n, from, stride, c1, c2, c3)
		return
	}
	_, _ = to[4*n-1], from[3*stride+n-1]
	inverse4Wide(&to[0], n, &from[0], stride, &c1.affine, &c2.affine, &c3.affine)
}

func addInverse4(sum []byte, n int, from []byte, c1, c2, c3 *factor) {
	if !useWide {
		addInverse4Slow(sum, n, from, c1, c2, c3)
		return
	}
	_, _ = sum[4*n-1], from[4*n-1]
	addInverse4Wide(&sum[0], n, &from[0], &c1.affine, &c2.affine, &c3.affine)
}

func first4(to []byte, n int, from []byte, stride int, c1, c2, c3 *factor, sum []byte) {
	if !useWide {
		first4Slow(to, n, from, stride, c1, c2, c3, sum)
		return
	}
	_, _, _ = to[4*n-1], from[3*stride+n-1], sum[n-1]
	first4Wide(&to[0], n, &from[0], stride, &c1.affine, &c2.affine, &c3.affine, &sum[0])
}
