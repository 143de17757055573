package zarr

import "encoding/binary"

// unshuffle puts the bytes of elements together again: in holds first the first
// byte of every element, then the second. What is no whole element is at the end.
func unshuffle(out, in []byte, size int) {
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
		binary.LittleEndian.PutUint32(out[4*i:], uint32(a[i])|uint32(b[i])<<8|uint32(c[i])<<16|uint32(d[i])<<24)
	}
}

// unshuffle8 transposes eight elements at a time: reading eight planes a byte
// each costs twice as much.
func unshuffle8(out, in []byte, n int) {
	i := 0
	for ; i+8 <= n; i += 8 {
		var w [8]uint64
		for j := range w {
			w[j] = binary.LittleEndian.Uint64(in[j*n+i:])
		}
		transposeBytes(&w)
		for j, v := range w {
			binary.LittleEndian.PutUint64(out[8*(i+j):], v)
		}
	}
	for ; i < n; i++ {
		for j := range 8 {
			out[8*i+j] = in[j*n+i]
		}
	}
}

// transposeBytes makes byte j of word i byte i of word j.
func transposeBytes(w *[8]uint64) {
	const (
		half  = 0x00000000ffffffff
		quart = 0x0000ffff0000ffff
		byte1 = 0x00ff00ff00ff00ff
	)
	for i := range 4 {
		a, b := w[i], w[i+4]
		w[i], w[i+4] = a&half|b<<32, a>>32|b&^half
	}
	for _, i := range [4]int{0, 1, 4, 5} {
		a, b := w[i], w[i+2]
		w[i], w[i+2] = a&quart|b&quart<<16, a>>16&quart|b&^quart
	}
	for _, i := range [4]int{0, 2, 4, 6} {
		a, b := w[i], w[i+1]
		w[i], w[i+1] = a&byte1|b&byte1<<8, a>>8&byte1|b&^byte1
	}
}

// unshuffleBits undoes Blosc's bit shuffle: first comes the lowest bit of the
// first byte of every element, eight elements to a byte, then the next bit.
// Blosc leaves blocks alone whose elements are no multiple of eight.
func unshuffleBits(out, in []byte, size int) {
	n := len(in) / size
	if n%8 != 0 {
		copy(out, in)
		return
	}
	row := n / 8
	for j := range size {
		for g := range row {
			var w uint64
			at := j*8*row + g
			for k := range 8 {
				w |= uint64(in[at+k*row]) << (8 * k)
			}
			w = transposeBits(w)
			for k := range 8 {
				out[(8*g+k)*size+j] = byte(w >> (8 * k))
			}
		}
	}
	copy(out[n*size:], in[n*size:])
}

// transposeBits makes bit j of byte i bit i of byte j.
func transposeBits(w uint64) uint64 {
	t := (w ^ w>>7) & 0x00aa00aa00aa00aa
	w ^= t ^ t<<7
	t = (w ^ w>>14) & 0x0000cccc0000cccc
	w ^= t ^ t<<14
	t = (w ^ w>>28) & 0x00000000f0f0f0f0
	return w ^ t ^ t<<28
}
