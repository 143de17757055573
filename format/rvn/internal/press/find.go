package press

import (
	"encoding/binary"
	"math/bits"
)

// ways is how many places a row has.
const ways = 12

// A row has the last places whose first five bytes have the same hash. It is one cache line: a
// search waits for memory once here, and then once for each candidate. Nearly all candidates are
// matches, because their tags are equal.
type row struct {
	// tags are eight more bits of the hashes, for each way. The last byte is the most recently
	// used way.
	tags [16]uint8
	at   [ways]uint32
}

func (r *row) put(tag uint8, at int) {
	w := uint(r.tags[15])
	if w == 0 {
		w = ways
	}
	w--
	if w < ways {
		r.tags[w] = tag
		r.at[w] = uint32(at)
	}
	r.tags[15] = uint8(w)
}

// zeros returns the set of bytes of v that are 0.
func zeros(v uint64) uint {
	const low7 = 0x7f7f7f7f7f7f7f7f
	v = ^((v&low7 + low7) | v | low7) // the highest bit of each of them
	return uint(v >> 7 * 0x0102040810204080 >> 56)
}

type finder struct {
	rows    []row
	touched uint8
	room    []row
	next    int // the first place that is not in rows
}

const (
	tagBits = 8
	reach   = 8 // bytes that are read where something begins
)

// forget readies f for a section of n bytes.
func (f *finder) forget(n int) {
	log := min(max(bits.Len(uint(n-1))-4, 6), 14)
	if len(f.room) < 1<<log {
		f.room = make([]row, 1<<log)
	}
	f.rows = f.room[:1<<log]
	clear(f.rows)
	f.next = 0
}

// slot returns the row and the tag of a place that begins with the bytes of v.
func slot(rows []row, v uint64) (*row, uint8) {
	h := v << 24 * 0x9FB21C651E98DF25
	return &rows[h>>(64-24)&uint64(len(rows)-1)], uint8(h >> 24)
}

func (f *finder) index(b []byte, to int) {
	i := f.next
	if to-i > 384 {
		// Skip the middle of a long match, which is also found elsewhere.
		for end := i + 96; i < end; i++ {
			r, tag := slot(f.rows, load64(b, i))
			r.put(tag, i)
		}
		i = to - 32
	}
	for ; i < to; i += 2 {
		r, tag := slot(f.rows, load64(b, i))
		r.put(tag, i)
	}
	f.next = to
}

// search returns the longest match at i of more than floor bytes, at least 3, and adds that
// place. If two are equally long, it returns the nearer one.
func (f *finder) search(b []byte, i, floor int) (length, offset int) {
	if f.next < i {
		f.index(b, i)
	}
	f.next = i + 1
	v := load64(b, i)
	soon, _ := slot(f.rows, v>>16)
	f.touched ^= soon.tags[0]
	r, tag := slot(f.rows, v)
	same := uint64(tag) * 0x0101010101010101
	set := zeros(binary.LittleEndian.Uint64(r.tags[:8])^same) | zeros(binary.LittleEndian.Uint64(r.tags[8:16])^same)<<8
	newest := uint(r.tags[15])
	set &= 1<<ways - 1
	set = (set | set<<ways) >> (newest & 15) & (1<<ways - 1) // newest lowest
	if end := floor - 3; i+end+4 <= len(b) {
		// A longer match has these bytes there.
		last := load32(b, i+end)
		for ; set != 0; set &= set - 1 {
			w := newest + uint(bits.TrailingZeros(set))
			if w >= ways {
				w -= ways
			}
			if w >= ways {
				break
			}
			j := int(r.at[w])
			if load32(b, j+end) != last {
				continue
			}
			if n := common(b, i, j); n > floor {
				length, offset = n, i-j
				floor, end = n, n-3
				if i+end+4 > len(b) {
					break
				}
				last = load32(b, i+end)
			}
		}
	}
	r.put(tag, i)
	return length, offset
}

func load32(b []byte, i int) uint32 { return binary.LittleEndian.Uint32(b[i : i+4]) }
func load64(b []byte, i int) uint64 { return binary.LittleEndian.Uint64(b[i : i+8]) }

// common returns how many bytes are equal from i and from j, which is before i.
func common(b []byte, i, j int) int {
	n := 0
	for ; i+n+8 <= len(b); n += 8 {
		if d := load64(b, i+n) ^ load64(b, j+n); d != 0 {
			return n + bits.TrailingZeros64(d)>>3
		}
	}
	for i+n < len(b) && b[i+n] == b[j+n] {
		n++
	}
	return n
}
