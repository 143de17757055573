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

// An Encoder computes the parity of a group of blocks, one run of M data blocks at a time.
type Encoder struct {
	piece   int
	m       int
	f       *field
	factors []factor // of the run that is encoded, as the layers use them
}

// Width is the best length of the pieces to decode: they then stay in a processor's cache.
const Width = 1 << 10

// NewEncoder returns an Encoder for m parity blocks. m is a power of two.
func NewEncoder(m int) *Encoder {
	e := &Encoder{m: m, f: theField(), factors: make([]factor, m), piece: 64}
	if !useWide {
		e.piece = Width // a factor takes longer to load than for 64 bytes
	}
	return e
}

// Piece is the length of the pieces that an Encoder works on. A piece of each block of a run fits
// the nearest caches.
func (e *Encoder) Piece() int { return e.piece }

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

// most is how many blocks Put takes at most. It suits the registers of a processor.
const most = 16

// Together is how many blocks Put takes.
func (e *Encoder) Together() int { return min(e.m, most) }

// Put stores Together blocks in to, ordered by piece, then by block, and does the first layers with
// them. It also adds them to near. at is the number of the first one in the run.
func (e *Encoder) Put(to, blocks, near []byte, at int) {
	if n := e.Together(); n < most || !put(to, blocks, near, (*[most]factor)(e.factors[at:])) {
		e.putSlow(to, blocks, near, at, n)
	}
}

func (e *Encoder) putSlow(to, blocks, near []byte, at, n int) {
	for t := 0; t < len(near); t += e.piece {
		tile := to[t*n:][:n*e.piece]
		for i := range n {
			b := blocks[i*len(near)+t:][:e.piece]
			subtle.XORBytes(near[t:t+e.piece], near[t:t+e.piece], b)
			copy(tile[i*e.piece:], b)
		}
		layersSlow(tile, e.piece, tile, e.piece, n, e.factors[at:], 1)
	}
}

// Stride is how far what Put stores of its next blocks should be from what it stores of these. The
// space between keeps a piece of all of them from the same places of a cache.
func (e *Encoder) Stride(block int) int { return e.Together()*block + 4*e.piece }

// part is how many bytes of what Put stores of a piece are processed at a time.
func (e *Encoder) part() int {
	if useWide {
		return most * e.piece / 4 // in the nearest cache, a part of all blocks
	}
	return most * e.piece
}

// Add adds to sum what a piece of each block contributes to the parity. band has the piece of the
// first blocks that Put stored, and every stride bytes that of the next ones. Those that Put stored
// from number parts on are zero. work is scratch space like sum, which is in an order of its own.
func (e *Encoder) Add(sum, work, band []byte, stride, parts int) {
	n := e.Together()
	all := e.m / n
	if all == 1 {
		subtle.XORBytes(sum, sum, band[:n*e.piece])
		return
	}
	part := e.part()
	for ; len(sum) > 0; sum, band = sum[all*part:], band[part:] {
		// Up to three layers at a time, the last ones together with the sum.
		from, unit := band, stride
		for size := 1; size < all; {
			k := bits.Len(uint(all/size)) - 1
			if k%3 == 0 {
				k = 3
			} else {
				k = min(k, 2)
			}
			if 8*size == all && addLayers(sum, size*part, from, size*unit, e.factors, size*n) {
				break
			}
			for at := 0; at < all; at += size << k {
				to := work[at*part : (at+size<<k)*part]
				if size == 1 && at >= parts {
					clear(to)
					continue
				}
				layers(to, size*part, from[at*unit:], size*unit, 1<<k, e.factors[at*n:], size*n)
			}
			from, unit = work, part
			if size <<= k; size == all {
				subtle.XORBytes(sum, sum, work[:all*part])
			}
		}
	}
}

// Parity turns the sum of all runs into the pieces of the first n parity blocks. work is scratch
// space like sum.
func (e *Encoder) Parity(sum, work []byte, n int) {
	if e.m > most {
		part, all := e.part(), e.m/most
		for i := range len(sum) / part {
			copy(work[i%all*most*e.piece+i/all*part:], sum[i*part:][:part])
		}
		copy(sum, work)
	}
	e.parity(sum, 0, e.m, n)
}

func (e *Encoder) parity(work []byte, at, size, n int) {
	if size == 1 || at >= n {
		return
	}
	half := size / 2
	forward(work[at*e.piece:(at+half)*e.piece], work[(at+half)*e.piece:(at+size)*e.piece], &e.factors[at+half])
	e.parity(work, at, half, n)
	e.parity(work, at+half, half, n)
}

// layersSlow takes some parts of n bytes, a stride apart, and does all layers of butterflies between
// them. It is the inverse transform. The factor of a butterfly of two parts is that of the second.
func layersSlow(to []byte, n int, from []byte, stride, parts int, factors []factor, step int) {
	for i := range parts {
		copy(to[i*n:(i+1)*n], from[i*stride:]) // often onto itself, which is free
	}
	for d := 1; d < parts; d *= 2 {
		for i := 0; i < parts; i += 2 * d {
			inverse(to[i*n:(i+d)*n], to[(i+d)*n:(i+2*d)*n], &factors[(i+d)*step])
		}
	}
}

// inverseSlow is y += x, x += c*y, of elements that are 32 low bytes and then 32 high ones.
func inverseSlow(x, y []byte, c *factor) {
	subtle.XORBytes(y, y, x)
	mulAdd(x, y, c)
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
