// Package gf16 computes parity blocks over GF(2^16), one run of data blocks at a time.
//
// The code is Leopard's, from github.com/klauspost/reedsolomon, which is used for decoding. That
// library encodes all blocks at once, after filling tables of 75 MiB in 0.2 s. Here the blocks of
// a group are processed one by one, with the tables of a single run.
package gf16

import (
	"crypto/subtle"
	"math/bits"
	"sync"
)

const (
	order   = 1 << 16
	modulus = order - 1
	poly    = 0x1002D
)

// A field has the logarithms of GF(2^16) in Cantor's basis, and the factors of the
// butterflies.
type field struct {
	log, exp [order]uint16
	skew     [modulus]uint16
}

var theField = sync.OnceValue(func() *field {
	basis := [16]uint16{
		0x0001, 0xACCA, 0x3C0E, 0x163E, 0xC582, 0xED2E, 0x914C, 0x4012,
		0x6C98, 0x10D8, 0x6A72, 0xB900, 0xFDB8, 0xFB34, 0xFF38, 0x991E,
	}
	f := &field{}
	var plain [order]uint16 // logarithms in the usual basis
	for i, x := 0, 1; i < modulus; i++ {
		plain[x] = uint16(i)
		if x <<= 1; x >= order {
			x ^= poly
		}
	}
	plain[0] = modulus
	var usual [order]uint16 // from Cantor's basis
	for i, b := range basis {
		for j := range 1 << i {
			usual[j+1<<i] = usual[j] ^ b
		}
	}
	for i := range order {
		f.log[i] = plain[usual[i]]
		f.exp[f.log[i]] = uint16(i)
	}
	f.exp[modulus] = f.exp[0]

	var at [15]uint16
	for i := range at {
		at[i] = 1 << (i + 1)
	}
	for m := range at {
		for i := m; i < len(at); i++ {
			for j := 1<<m - 1; j < 1<<(i+1); j += 1 << (m + 1) {
				f.skew[j+1<<(i+1)] = f.skew[j] ^ at[i]
			}
		}
		by := modulus - f.log[f.mul(at[m], at[m]^1)]
		at[m] = by
		for i := m + 1; i < len(at); i++ {
			at[i] = f.times(at[i], addMod(f.log[at[i]^1], by))
		}
	}
	return f
})

func addMod(a, b uint16) uint16 {
	sum := uint(a) + uint(b)
	return uint16(sum + sum>>16)
}

// times returns the product of a and the element with the given logarithm.
func (f *field) times(a, log uint16) uint16 {
	if a == 0 {
		return 0
	}
	return f.exp[addMod(f.log[a], log)]
}

func (f *field) mul(a, b uint16) uint16 {
	if b == 0 {
		return 0
	}
	return f.times(a, f.log[b])
}

// A factor is a constant to multiply by, as one of these tables:
type factor struct {
	affine  [4]uint64       // matrices of bits
	nibbles [8][16]byte     // products of the four nibbles of an element: low bytes, then high bytes
	bytes   *[2][256]uint16 // products of low bytes, and of high bytes
	zero    bool            // the constant is 0
}

func (f *field) factor(c uint16, to *factor) {
	if to.zero = c == 0; to.zero {
		to.affine, to.nibbles = [4]uint64{}, [8][16]byte{}
		return
	}
	var bit [16]uint16 // the product of each bit of an element
	log := f.log[c]
	for i := range bit {
		bit[i] = f.times(1<<i, log)
	}
	if useAffine {
		var bytes [4]uint64
		for i, p := range bit {
			bytes[i/8] |= uint64(byte(p)) << (i % 8 * 8)
			bytes[2+i/8] |= uint64(p>>8) << (i % 8 * 8)
		}
		for i, b := range bytes {
			to.affine[i] = bits.ReverseBytes64(transpose(b))
		}
		return
	}
	if !useNibbles {
		if to.bytes == nil {
			to.bytes = new([2][256]uint16)
		}
		for n := range 2 {
			t := &to.bytes[n]
			for i, p := range bit[n*8 : n*8+8] {
				for x := range 1 << i {
					t[1<<i+x] = t[x] ^ p
				}
			}
		}
		return
	}
	for n := range 4 {
		for x := 1; x < 16; x++ {
			low := bits.TrailingZeros(uint(x))
			p, rest := bit[n*4+low], x&(x-1)
			to.nibbles[n][x], to.nibbles[4+n][x] = to.nibbles[n][rest]^byte(p), to.nibbles[4+n][rest]^byte(p>>8)
		}
	}
}

// transpose transposes a matrix of 8 by 8 bits.
func transpose(x uint64) uint64 {
	t := (x ^ x>>7) & 0x00AA00AA00AA00AA
	x ^= t ^ t<<7
	t = (x ^ x>>14) & 0x0000CCCC0000CCCC
	x ^= t ^ t<<14
	t = (x ^ x>>28) & 0x00000000F0F0F0F0
	return x ^ t ^ t<<28
}

// An Encoder computes the parity of a group of blocks, one run of M data blocks at a time. Its
// methods work on pieces of the blocks.
type Encoder struct {
	m       int
	f       *field
	factors []factor // of the run that is encoded, as the layers use them
}

// Width is the best length of the pieces: they then stay in a processor's cache.
const Width = 1 << 10

// NewEncoder returns an Encoder for m parity blocks. m is a power of two.
func NewEncoder(m int) *Encoder {
	return &Encoder{m: m, f: theField(), factors: make([]factor, m)}
}

// Order rounds a number of parity blocks up to a power of two.
func Order(parity int) int { return 1 << bits.Len(uint(max(parity, 1)-1)) }

// Run prepares for the run that begins with data block number*M.
func (e *Encoder) Run(number int) { e.prepare((number + 1) * e.m) }

// Finish prepares for Parity.
func (e *Encoder) Finish() { e.prepare(0) }

// prepare computes the factors for a position in the code. The factor of a butterfly over dist at r
// is factors[r+dist].
func (e *Encoder) prepare(from int) {
	for i := 1; i < e.m; i++ {
		e.f.factor(e.f.skew[from+i-1], &e.factors[i])
	}
}

// Add adds to sum what M consecutive pieces in work, one of each data block of a run, contribute to
// the parity. Only the pieces from lo to hi are not zero. done marks those that Put stored. Add
// changes work.
func (e *Encoder) Add(sum, work []byte, width, lo, hi int, done []bool) {
	if e.m <= 2*Together {
		e.sum(work, width, 0, e.m, lo, hi, done)
		subtle.XORBytes(sum, sum, work)
		return
	}
	q := e.m / 4
	for at := 0; at < e.m; at += q {
		e.sum(work, width, at, q, lo, hi, done)
	}
	addInverse4(sum, q*width, work, &e.factors[q], &e.factors[3*q], &e.factors[2*q])
}

// sum transforms size pieces, beginning with number at. It does smaller parts first, so that they
// stay in the nearest cache, and two layers at a time.
func (e *Encoder) sum(work []byte, width, at, size, lo, hi int, done []bool) {
	if size == 1 || at >= hi || at+size <= lo || size == Together && done != nil && done[at/Together] {
		return
	}
	if bits.TrailingZeros(uint(size))%2 > 0 {
		half := size / 2
		e.sum(work, width, at, half, lo, hi, done)
		e.sum(work, width, at+half, half, lo, hi, done)
		inverse(work[at*width:(at+half)*width], work[(at+half)*width:(at+size)*width], &e.factors[at+half])
		return
	}
	q := size / 4
	for i := at; i < at+size; i += q {
		e.sum(work, width, i, q, lo, hi, done)
	}
	w := work[at*width : (at+size)*width]
	inverse4(w, q*width, w, q*width, &e.factors[at+q], &e.factors[at+3*q], &e.factors[at+2*q])
}

// Together is how many blocks Put takes.
const Together = 16

// Put stores pieces of Together blocks, stride bytes apart, in work, beginning with number at. It
// does the first steps of Add with them while they are in the nearest cache. It also adds them to
// near. at is a multiple of Together. tile is scratch space for Together pieces.
func (e *Encoder) Put(work []byte, width, at int, blocks []byte, stride int, near, tile []byte) {
	for i := range 4 {
		r := at + 4*i
		first4(tile[4*i*width:(4*i+4)*width], width, blocks[4*i*stride:], stride, &e.factors[r+1], &e.factors[r+3], &e.factors[r+2], near)
	}
	inverse4(work[at*width:(at+Together)*width], 4*width, tile, 4*width, &e.factors[at+4], &e.factors[at+12], &e.factors[at+8])
}

// Parity turns the sum of all runs into the pieces of the first n parity blocks.
func (e *Encoder) Parity(work []byte, width, n int) { e.parity(work, width, 0, e.m, n) }

func (e *Encoder) parity(work []byte, width, at, size, n int) {
	if size == 1 || at >= n {
		return
	}
	half := size / 2
	x, y := work[at*width:(at+half)*width], work[(at+half)*width:(at+size)*width]
	forward(x, y, &e.factors[at+half])
	e.parity(work, width, at, half, n)
	e.parity(work, width, at+half, half, n)
}

// inverseSlow is y += x, x += c*y, of elements that are 32 low bytes and then 32 high ones.
func inverseSlow(x, y []byte, c *factor) {
	subtle.XORBytes(y, y, x)
	mulAdd(x, y, c)
}

// addInverseSlow adds the results of inverseSlow to sx and sy.
func addInverseSlow(x, y []byte, c *factor, sx, sy []byte) {
	inverseSlow(x, y, c)
	subtle.XORBytes(sx, sx, x)
	subtle.XORBytes(sy, sy, y)
}

// inverse4Slow takes four parts of n bytes, a stride apart, and does two layers.
func inverse4Slow(to []byte, n int, from []byte, stride int, c1, c2, c3 *factor) {
	for i := range 4 {
		copy(to[i*n:(i+1)*n], from[i*stride:i*stride+n]) // often onto itself, which is free
	}
	inverse(to[:n], to[n:2*n], c1)
	inverse(to[2*n:3*n], to[3*n:4*n], c2)
	inverse(to[:2*n], to[2*n:4*n], c3)
}

// first4Slow is inverse4Slow that also adds the parts to sum.
func first4Slow(to []byte, n int, from []byte, stride int, c1, c2, c3 *factor, sum []byte) {
	for i := range 4 {
		subtle.XORBytes(sum, sum, from[i*stride:i*stride+n])
	}
	inverse4Slow(to, n, from, stride, c1, c2, c3)
}

// addInverse4Slow adds the result of inverse4Slow to sum.
func addInverse4Slow(sum []byte, n int, from []byte, c1, c2, c3 *factor) {
	inverse(from[:n], from[n:2*n], c1)
	inverse(from[2*n:3*n], from[3*n:4*n], c2)
	addInverse(from[:2*n], from[2*n:4*n], c3, sum[:2*n], sum[2*n:4*n])
}

// forwardSlow is x += c*y, y += x.
func forwardSlow(x, y []byte, c *factor) {
	mulAdd(x, y, c)
	subtle.XORBytes(y, y, x)
}

func mulAdd(x, y []byte, c *factor) {
	if c.zero {
		return
	}
	low, high := &c.bytes[0], &c.bytes[1]
	for len(x) >= 64 && len(y) >= 64 {
		x64, y64 := x[:64:64], y[:64:64]
		for i := range 32 {
			p := low[y64[i]] ^ high[y64[i+32]]
			x64[i] ^= byte(p)
			x64[i+32] ^= byte(p >> 8)
		}
		x, y = x[64:], y[64:]
	}
}
