package arraycodec

import "encoding/binary"

var le = binary.LittleEndian

// Unshuffle undoes the byte shuffle: in has first the first byte of every element, then the second
// byte of every element, and so on. The bytes of an incomplete element are at the end.
func Unshuffle(out, in []byte, size int) {
	n := len(in) / size
	rest := n * size
	switch {
	case size == 1 || n == 0:
		rest = 0
	case size == 2:
		unshuffle2(out, in, n)
	case size == 4:
		unshuffle4(out, in, n)
	case size == 8:
		unshuffle8(out, in, n)
	default:
		for j := range size {
			plane := in[j*n : (j+1)*n]
			for i, at := 0, j; i < len(plane); i, at = i+1, at+size {
				out[at] = plane[i]
			}
		}
	}
	copy(out[rest:], in[rest:])
}

func unshuffle2(out, in []byte, n int) {
	a, b := in[:n], in[n:2*n]
	out = out[:2*n]
	for i := range a {
		out[2*i], out[2*i+1] = a[i], b[i]
	}
}

func unshuffle4(out, in []byte, n int) {
	a, b, c, d := in[:n], in[n:2*n], in[2*n:3*n], in[3*n:4*n]
	b, c, d = b[:len(a)], c[:len(a)], d[:len(a)]
	for i := range a {
		le.PutUint32(out[4*i:], uint32(a[i])|uint32(b[i])<<8|uint32(c[i])<<16|uint32(d[i])<<24)
	}
}

// unshuffle8 transposes eight elements at a time. Reading eight planes byte by byte takes several
// times as long.
func unshuffle8(out, in []byte, n int) {
	whole := n &^ 7
	for i := 0; i < whole; i += 8 {
		a, b, c, d, e, f, g, h := transposeBytes(
			le.Uint64(in[i:]), le.Uint64(in[n+i:]), le.Uint64(in[2*n+i:]), le.Uint64(in[3*n+i:]),
			le.Uint64(in[4*n+i:]), le.Uint64(in[5*n+i:]), le.Uint64(in[6*n+i:]), le.Uint64(in[7*n+i:]))
		to := (*[64]byte)(out[8*i:])
		le.PutUint64(to[0:], a)
		le.PutUint64(to[8:], b)
		le.PutUint64(to[16:], c)
		le.PutUint64(to[24:], d)
		le.PutUint64(to[32:], e)
		le.PutUint64(to[40:], f)
		le.PutUint64(to[48:], g)
		le.PutUint64(to[56:], h)
	}
	for i := whole; i < n; i++ {
		for j := range 8 {
			out[8*i+j] = in[j*n+i]
		}
	}
}

// transposeBytes turns byte j of word i into byte i of word j. The words are separate variables
// because Go would keep an array of them in memory, which halves the speed.
func transposeBytes(a, b, c, d, e, f, g, h uint64) (uint64, uint64, uint64, uint64, uint64, uint64, uint64, uint64) {
	a, e = swap4(a, e)
	b, f = swap4(b, f)
	c, g = swap4(c, g)
	d, h = swap4(d, h)
	a, c = swap2(a, c)
	b, d = swap2(b, d)
	e, g = swap2(e, g)
	f, h = swap2(f, h)
	a, b = swap1(a, b)
	c, d = swap1(c, d)
	e, f = swap1(e, f)
	g, h = swap1(g, h)
	return a, b, c, d, e, f, g, h
}

// swap4, swap2 and swap1 exchange the upper half of each pair of groups of 4, 2 or 1 bytes of a
// with the lower half in b.
func swap4(a, b uint64) (uint64, uint64) {
	const low = 0x00000000ffffffff
	return a&low | b<<32, a>>32 | b&^low
}

func swap2(a, b uint64) (uint64, uint64) {
	const low = 0x0000ffff0000ffff
	return a&low | b&low<<16, a>>16&low | b&^low
}

func swap1(a, b uint64) (uint64, uint64) {
	const low = 0x00ff00ff00ff00ff
	return a&low | b&low<<8, a>>8&low | b&^low
}

// unshuffleBits undoes Blosc's bit shuffle: in has first the lowest bit of the first byte of every
// element, eight elements to a byte, then the next bit. Blosc does not shuffle a block whose number
// of elements is not a multiple of eight. unshuffleBits overwrites in.
func unshuffleBits(out, in []byte, size int) {
	n := len(in) / size
	if n%8 != 0 {
		copy(out, in)
		return
	}
	// The bits of one byte of each element are consecutive. Joined, they are a plane of the byte
	// shuffle.
	for j := range size {
		joinBits(out[j*n:(j+1)*n], in[j*n:(j+1)*n])
	}
	copy(in, out[:n*size])
	Unshuffle(out, in, size)
}

// joinBits joins eight rows of bits into bytes. The row of the lowest bits is first.
func joinBits(out, in []byte) {
	row := len(in) / 8
	whole := row &^ 7
	for g := 0; g < whole; g += 8 {
		a, b, c, d, e, f, i, j := transposeBytes(
			le.Uint64(in[g:]), le.Uint64(in[row+g:]), le.Uint64(in[2*row+g:]), le.Uint64(in[3*row+g:]),
			le.Uint64(in[4*row+g:]), le.Uint64(in[5*row+g:]), le.Uint64(in[6*row+g:]), le.Uint64(in[7*row+g:]))
		to := (*[64]byte)(out[8*g:])
		le.PutUint64(to[0:], transposeBits(a))
		le.PutUint64(to[8:], transposeBits(b))
		le.PutUint64(to[16:], transposeBits(c))
		le.PutUint64(to[24:], transposeBits(d))
		le.PutUint64(to[32:], transposeBits(e))
		le.PutUint64(to[40:], transposeBits(f))
		le.PutUint64(to[48:], transposeBits(i))
		le.PutUint64(to[56:], transposeBits(j))
	}
	for g := whole; g < row; g++ {
		var w uint64
		for k := range 8 {
			w |= uint64(in[k*row+g]) << (8 * k)
		}
		le.PutUint64(out[8*g:], transposeBits(w))
	}
}

// transposeBits turns bit j of byte i into bit i of byte j.
func transposeBits(w uint64) uint64 {
	t := (w ^ w>>7) & 0x00aa00aa00aa00aa
	w ^= t ^ t<<7
	t = (w ^ w>>14) & 0x0000cccc0000cccc
	w ^= t ^ t<<14
	t = (w ^ w>>28) & 0x00000000f0f0f0f0
	return w ^ t ^ t<<28
}

// Fletcher32 computes HDF5's Fletcher-32 checksum. Words have 16 bits, big endian; a last odd byte
// is a high byte. The sums are folded after every 360 words, before they overflow.
func Fletcher32(b []byte) uint32 {
	var a, s uint32
	fold := func(v uint32) uint32 { return v&0xffff + v>>16 }
	for len(b) > 1 {
		run := b[:min(len(b)&^1, 720)]
		b = b[len(run):]
		for i := 0; i+1 < len(run); i += 2 {
			a += uint32(run[i])<<8 | uint32(run[i+1])
			s += a
		}
		a, s = fold(a), fold(s)
	}
	if len(b) == 1 {
		a += uint32(b[0]) << 8
		s += a
		a, s = fold(a), fold(s)
	}
	return fold(s)<<16 | fold(a)
}
