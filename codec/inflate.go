package codec

import (
	"encoding/binary"
	"errors"
	"math/bits"
	"sync"
)

// The code below decodes DEFLATE (RFC 1951) if all of the input is in memory and the size of the
// output is known, as with records. It needs no window and does not check for the end of input at
// each byte, which makes it twice as fast as a decoder that can stop anywhere. If it fails, the
// library decodes the input again and returns the error.

var errInflate = errors.New("deflate: damaged")

// Codes are decoded by tables. The low bits of the input select an entry. The entry of a longer
// code refers to another part of the table for the remaining bits.
const (
	litBits  = 11
	distBits = 8
)

// An entry has
//
//	bits 0-7    length of the code in bits, extra bits included
//	bits 8-11   length without extra bits; in a link, the number of bits that index the linked part
//	bits 16-31  a literal byte, a length or a distance; in a link, the offset of the linked part
//
// and flags in between. The entry 0 means that there is no such code.
const (
	entryLit  = 1 << 12
	entryLink = 1 << 13
	entryEnd  = 1 << 14
	entryCopy = 1 << 15 // a length or distance
)

// inflateTables have room for the largest tables that 288 and 32 codes of up to 15 bits can need:
// 2342 and 402 entries. Their sizes are powers of two, so indexing needs no check.
type inflateTables struct {
	lit  [1 << 12]uint32
	dist [1 << 9]uint32
}

// inflater is the memory that decoding needs.
type inflater struct {
	inflateTables
	lens [288 + 32 + 138]byte
	pre  [128]uint32
}

var (
	inflateRoom = sync.Pool{New: func() any { return new(inflater) }}
	fixedTables = sync.OnceValue(func() *inflateTables {
		t := new(inflateTables)
		var lens [288]byte
		for i := range lens {
			switch {
			case i < 144:
				lens[i] = 8
			case i < 256:
				lens[i] = 9
			case i < 280:
				lens[i] = 7
			default:
				lens[i] = 8
			}
		}
		var dist [32]byte
		for i := range dist {
			dist[i] = 5
		}
		buildTable(t.lit[:], lens[:], litBits, litSymbols[:])
		buildTable(t.dist[:], dist[:], distBits, distSymbols[:])
		return t
	})
)

// Entries of the symbols, without the lengths of their codes.
var (
	litSymbols  = litEntriesOf()
	distSymbols = distEntriesOf()
	preSymbols  = preEntriesOf()
)

func litEntriesOf() (all [288]uint32) {
	for i := range 256 {
		all[i] = uint32(i)<<16 | entryLit
	}
	all[256] = entryEnd
	base := uint32(3)
	for i := 257; i < 285; i++ {
		extra := uint32(max(0, (i-261)/4))
		all[i] = base<<16 | entryCopy | extra
		base += 1 << extra
	}
	all[285] = 258<<16 | entryCopy
	return all // 286 and 287 have codes but are not valid
}

func distEntriesOf() (all [32]uint32) {
	base := uint32(1)
	for i := range 30 {
		extra := uint32(max(0, i/2-1))
		all[i] = base<<16 | entryCopy | extra
		base += 1 << extra
	}
	return all
}

func preEntriesOf() (all [19]uint32) {
	for i := range all {
		all[i] = uint32(i)<<16 | entryLit
	}
	return all
}

// buildTable builds the table for symbols whose codes have the lengths lens; 0 means no code. It
// reports whether the lengths are valid: the codes must be complete, a single one, or none.
func buildTable(table []uint32, lens []byte, tableBits int, symbols []uint32) bool {
	var count, next [16]int
	for _, n := range lens {
		count[n]++
	}
	count[0] = 0
	most, code := 0, 0
	for n := 1; n < 16; n++ {
		code <<= 1
		next[n] = code
		if code += count[n]; count[n] > 0 {
			most = n
		}
		if code > 1<<n {
			return false
		}
	}
	clear(table[:1<<tableBits])
	if most == 0 {
		return true
	}
	if code != 1<<15 && !(count[1] == 1 && most == 1) {
		return false
	}
	// Codes are stored highest bit first, all other numbers lowest bit first.
	reversed := func(next *[16]int, n int) int {
		code := next[n]
		next[n]++
		return int(bits.Reverse16(uint16(code)) >> (16 - n))
	}
	mask := 1<<tableBits - 1
	if most > tableBits {
		// The number of further bits of longer codes with the same beginning.
		first := next
		for _, n := range lens {
			if n := int(n); n > 0 {
				if low := reversed(&first, n) & mask; n > tableBits {
					table[low] = max(table[low], uint32(n-tableBits))
				}
			}
		}
	}
	used := 1 << tableBits
	for symbol, n := range lens {
		if n == 0 {
			continue
		}
		n := int(n)
		code := reversed(&next, n)
		part, e := table[:1<<tableBits], symbols[symbol]
		if n > tableBits {
			link := table[code&mask]
			if link&entryLink == 0 {
				size := 1 << link
				link = uint32(used)<<16 | entryLink | link<<8 | uint32(tableBits)
				table[code&mask] = link
				if used += size; used > len(table) {
					return false
				}
			}
			part = table[link>>16:][:1<<(link>>8&15)]
			code >>= tableBits
			n -= tableBits
		}
		if e != 0 {
			e += uint32(n) | uint32(n)<<8
		}
		for i := code; i < len(part); i += 1 << n {
			part[i] = e
		}
	}
	return true
}

// inflate decodes the stream at the start of src, which must decode to exactly len(dst) bytes. It
// returns the length of the stream.
func inflate(dst, src []byte) (used int, err error) {
	z := inflateRoom.Get().(*inflater)
	defer inflateRoom.Put(z)
	d := inflateState{z: z, src: src, dst: dst}
	for last := false; !last; {
		d.fill()
		last = d.buf&1 != 0
		kind := d.buf >> 1 & 3
		d.drop(3)
		ok := false
		switch kind {
		case 0:
			ok = d.plain()
		case 1:
			ok = d.codes(fixedTables()) == blockEnds
		case 2:
			ok = d.tables() && d.codes(&z.inflateTables) == blockEnds
		}
		if !ok || d.have < 0 {
			return 0, errInflate
		}
	}
	if d.out != len(dst) {
		return 0, errInflate
	}
	return d.in - d.have/8, nil
}

// inflateZlib is like inflate for a zlib stream (RFC 1950).
func inflateZlib(dst, src []byte) (used int, err error) {
	if len(src) < 2 || src[0]&15 != 8 || src[0]>>4 > 7 || src[1]&0x20 != 0 || binary.BigEndian.Uint16(src)%31 != 0 {
		return 0, errInflate
	}
	n, err := inflate(dst, src[2:])
	if err != nil {
		return 0, err
	}
	end := src[2+n:]
	if len(end) < 4 || binary.BigEndian.Uint32(end) != adler(dst) {
		return 0, errInflate
	}
	return 2 + n + 4, nil
}

// adler computes the checksum of RFC 1950, several times as fast as hash/adler32. It adds eight
// bytes at a time with multiplications; the sum is in the highest of four lanes.
func adler(p []byte) uint32 {
	const (
		mod   = 65521
		most  = 5552 // bytes before sums can overflow 32 bits
		lanes = 0x00ff_00ff_00ff_00ff
	)
	a, b := uint64(1), uint64(0)
	for len(p) > 0 {
		q := p[:min(len(p), most)]
		p = p[len(q):]
		for ; len(q) >= 8; q = q[8:] {
			x := binary.LittleEndian.Uint64(q)
			even, odd := x&lanes, x>>8&lanes
			b += 8*a + (even*0x0008_0006_0004_0002+odd*0x0007_0005_0003_0001)>>48
			a += (even + odd) * 0x0001_0001_0001_0001 >> 48
		}
		for _, c := range q {
			a += uint64(c)
			b += a
		}
		a, b = a%mod, b%mod
	}
	return uint32(b<<16 | a)
}

// inflateState is the state of decoding a stream.
type inflateState struct {
	z    *inflater
	src  []byte
	dst  []byte
	in   int
	out  int
	buf  uint64 // the next bits, lowest first
	have int    // number of bits in buf; negative if the stream continued after the end of src

	// If stream is set, decoding pauses at the end of src or dst. If last is set too, it
	// continues to the end of src.
	stream, last bool
}

// outcome is the result of decoding a block.
type outcome int8

const (
	blockBad outcome = iota
	blockEnds
	blockPauses
)

// A stream pauses if less input is left than an iteration of the slow loop may read, or less room
// than it may fill.
const (
	leastIn  = 16
	leastOut = 258
)

func (d *inflateState) pauses() bool {
	return d.stream && (len(d.dst)-d.out < leastOut || !d.last && len(d.src)-d.in < leastIn)
}

// fill adds bits until buf has at least 48, or zeros at the end of src.
func (d *inflateState) fill() {
	for d.have < 56 && d.have >= 0 {
		if d.in == len(d.src) {
			return // the remaining bits are zeros
		}
		d.buf |= uint64(d.src[d.in]) << d.have
		d.in++
		d.have += 8
	}
}

// drop removes n bits. If there are fewer, have becomes negative.
func (d *inflateState) drop(n int) {
	d.buf >>= n
	d.have -= n
}

// plain copies a stored block.
func (d *inflateState) plain() bool {
	if d.have < 0 {
		return false
	}
	d.in -= d.have / 8 // back to the start of a byte
	d.buf, d.have = 0, 0
	if len(d.src)-d.in < 4 {
		return false
	}
	n, inverse := binary.LittleEndian.Uint16(d.src[d.in:]), binary.LittleEndian.Uint16(d.src[d.in+2:])
	d.in += 4
	if n != ^inverse || len(d.src)-d.in < int(n) || len(d.dst)-d.out < int(n) {
		return false
	}
	copy(d.dst[d.out:], d.src[d.in:][:n])
	d.in, d.out = d.in+int(n), d.out+int(n)
	return true
}

// preOrder is the order in which the lengths of the codes for code lengths are stored.
var preOrder = [19]byte{16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15}

// tables reads the tables of a block.
func (d *inflateState) tables() bool {
	z := d.z
	d.fill()
	lits, dists, pres := int(d.buf&31)+257, int(d.buf>>5&31)+1, int(d.buf>>10&15)+4
	d.drop(14)
	if lits > 286 || dists > 30 {
		return false
	}
	var pre [19]byte
	for _, symbol := range preOrder[:pres] {
		d.fill()
		pre[symbol] = byte(d.buf & 7)
		d.drop(3)
	}
	if !buildTable(z.pre[:], pre[:], 7, preSymbols[:]) {
		return false
	}
	n := 0
	for n < lits+dists {
		d.fill()
		e := z.pre[d.buf&127]
		if d.drop(int(e & 255)); e == 0 || d.have < 0 {
			return false
		}
		symbol := int(e >> 16)
		if symbol < 16 {
			z.lens[n] = byte(symbol)
			n++
			continue
		}
		last, again := byte(0), 0
		switch symbol {
		case 16:
			if n == 0 {
				return false
			}
			last, again = z.lens[n-1], 3+int(d.buf&3)
			d.drop(2)
		case 17:
			again = 3 + int(d.buf&7)
			d.drop(3)
		default:
			again = 11 + int(d.buf&127)
			d.drop(7)
		}
		for range again {
			z.lens[n] = last
			n++
		}
	}
	return n == lits+dists && d.have >= 0 &&
		buildTable(z.lit[:], z.lens[:lits], litBits, litSymbols[:]) &&
		buildTable(z.dist[:], z.lens[lits:n], distBits, distSymbols[:])
}

// An iteration of the fast loop reads at most 8 bytes. It writes at most two bytes, a copy of 258
// bytes, and the excess that a copy writes.
const (
	turnIn  = 16
	turnOut = 2 + 258 + 16
)

// codes decodes a compressed block.
func (d *inflateState) codes(t *inflateTables) outcome {
	src, dst := d.src, d.dst
	in, out, buf, have := d.in, d.out, d.buf, d.have
	lit, dist := &t.lit, &t.dist
	if have < 0 {
		return blockBad
	}
	for in+turnIn <= len(src) && out+turnOut <= len(dst) {
		buf |= binary.LittleEndian.Uint64(src[in:in+8]) << (have & 63)
		in += (63 - have) >> 3
		have |= 56
		e := lit[buf&(1<<litBits-1)]
		if e&entryLit != 0 {
			// There are enough bits for three literals and the code after them.
			buf, have = buf>>(e&63), have-int(e&255)
			dst[out] = byte(e >> 16)
			out++
			if e = lit[buf&(1<<litBits-1)]; e&entryLit != 0 {
				buf, have = buf>>(e&63), have-int(e&255)
				dst[out] = byte(e >> 16)
				out++
				if e = lit[buf&(1<<litBits-1)]; e&entryLit != 0 {
					buf, have = buf>>(e&63), have-int(e&255)
					dst[out] = byte(e >> 16)
					out++
					continue
				}
			}
			buf |= binary.LittleEndian.Uint64(src[in:in+8]) << (have & 63)
			in += (63 - have) >> 3
			have |= 56
		}
		if e&entryCopy == 0 {
			if e&entryLink != 0 {
				buf, have = buf>>litBits, have-litBits
				e = lit[(uint64(e>>16)+buf&(1<<(e>>8&15)-1))&(1<<12-1)]
			}
			if e&entryLit != 0 {
				buf, have = buf>>(e&63), have-int(e&255)
				dst[out] = byte(e >> 16)
				out++
				continue
			}
			if e&entryEnd != 0 {
				d.in, d.out, d.buf, d.have = in, out, buf>>(e&63), have-int(e&255)
				d.tidy()
				return blockEnds
			}
			if e == 0 {
				return blockBad
			}
		}
		n := int(e>>16) + int(buf&(1<<(e&63)-1)>>(e>>8&15))
		buf, have = buf>>(e&63), have-int(e&255)
		e = dist[buf&(1<<distBits-1)]
		if e&entryLink != 0 {
			buf, have = buf>>distBits, have-distBits
			e = dist[(uint64(e>>16)+buf&(1<<(e>>8&15)-1))&(1<<9-1)]
		}
		back := int(e>>16) + int(buf&(1<<(e&63)-1)>>(e>>8&15))
		buf, have = buf>>(e&63), have-int(e&255)
		from := out - back
		if e == 0 || from < 0 {
			return blockBad
		}
		// Later output overwrites the excess.
		switch {
		case back >= 8:
			for to := out; ; {
				binary.LittleEndian.PutUint64(dst[to:to+8], binary.LittleEndian.Uint64(dst[from:from+8]))
				if to += 8; to >= out+n {
					break
				}
				from += 8
			}
		case back == 1:
			v := uint64(dst[from]) * 0x0101010101010101
			for to := out; to < out+n; to += 8 {
				binary.LittleEndian.PutUint64(dst[to:to+8], v)
			}
		default:
			b := dst[from : out+n]
			if n > 24 {
				repeat(b, back)
				break
			}
			for i := range n {
				b[back+i] = b[i]
			}
		}
		out += n
	}
	d.in, d.out, d.buf, d.have = in, out, buf, have
	d.tidy()
	return d.codesSlowly(t)
}

// tidy returns whole bytes to the input that have not been used. The fast loop has bits in buf
// that it does not count.
func (d *inflateState) tidy() {
	d.in -= d.have / 8
	d.have &= 7
	d.buf &= 1<<d.have - 1
}

// codesSlowly continues decoding when little input or room is left.
func (d *inflateState) codesSlowly(t *inflateTables) outcome {
	for {
		if d.pauses() {
			d.tidy()
			return blockPauses
		}
		d.fill()
		e := t.lit[d.buf&(1<<litBits-1)]
		if e&entryLink != 0 {
			d.drop(litBits)
			e = t.lit[(uint64(e>>16)+d.buf&(1<<(e>>8&15)-1))&(1<<12-1)]
		}
		extra := d.buf & (1<<(e&63) - 1) >> (e >> 8 & 15)
		d.drop(int(e & 255))
		switch {
		case e == 0 || d.have < 0:
			return blockBad
		case e&entryEnd != 0:
			return blockEnds
		case e&entryLit != 0:
			if d.out == len(d.dst) {
				return blockBad
			}
			d.dst[d.out] = byte(e >> 16)
			d.out++
			continue
		}
		n := int(e>>16) + int(extra)
		d.fill()
		e = t.dist[d.buf&(1<<distBits-1)]
		if e&entryLink != 0 {
			d.drop(distBits)
			e = t.dist[(uint64(e>>16)+d.buf&(1<<(e>>8&15)-1))&(1<<9-1)]
		}
		back := int(e>>16) + int(d.buf&(1<<(e&63)-1)>>(e>>8&15))
		d.drop(int(e & 255))
		if e == 0 || d.have < 0 || back > d.out || n > len(d.dst)-d.out {
			return blockBad
		}
		repeat(d.dst[d.out-back:d.out+n], back)
		d.out += n
	}
}

// repeat fills b by repeating its first n bytes.
func repeat(b []byte, n int) {
	for ; n < len(b); n *= 2 {
		copy(b[n:], b[:n])
	}
}
