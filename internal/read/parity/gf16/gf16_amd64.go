package gf16

import (
	"unsafe"

	"github.com/klauspost/cpuid/v2"
)

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
func putWide(to, from *byte, n int, near *byte, factors *factor, step uintptr)

//go:noescape
func layers4Wide(to *byte, n int, from *byte, stride int, factors *factor, step uintptr)

//go:noescape
func layers8Wide(to *byte, n int, from *byte, stride int, factors *factor, step uintptr)

//go:noescape
func addLayers8Wide(sum *byte, n int, from *byte, stride int, factors *factor, step uintptr)

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

const factorLen = unsafe.Sizeof(factor{})

// put does what Put does with most blocks, or returns false. Its writes bypass the caches, because
// a run is longer than these. They need aligned memory.
func put(to, blocks, near []byte, factors *[most]factor) bool {
	if !useWide || uintptr(unsafe.Pointer(&to[0]))%64 > 0 {
		return false
	}
	n := len(near)
	_, _ = to[most*n-1], blocks[most*n-1]
	putWide(&to[0], &blocks[0], n, &near[0], &factors[0], factorLen)
	return true
}

// layers does the same as layersSlow.
func layers(to []byte, n int, from []byte, stride, parts int, factors []factor, step int) {
	if !useWide || parts < 4 {
		layersSlow(to, n, from, stride, parts, factors, step)
		return
	}
	_, _, _ = to[parts*n-1], from[(parts-1)*stride+n-1], factors[(parts-1)*step]
	if parts == 4 {
		layers4Wide(&to[0], n, &from[0], stride, &factors[0], uintptr(step)*factorLen)
	} else {
		layers8Wide(&to[0], n, &from[0], stride, &factors[0], uintptr(step)*factorLen)
	}
}

// addLayers adds what layers does with eight parts to sum, or returns false.
func addLayers(sum []byte, n int, from []byte, stride int, factors []factor, step int) bool {
	if !useWide {
		return false
	}
	_, _, _ = sum[8*n-1], from[7*stride+n-1], factors[7*step]
	addLayers8Wide(&sum[0], n, &from[0], stride, &factors[0], uintptr(step)*factorLen)
	return true
}
