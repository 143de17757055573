package press

import (
	"encoding/binary"
	"math/bits"
)

// candidate is a match that may be used, or the first part of it.
type candidate struct {
	length, offset uint32
	code           uint8 // of the number of the offset
}

const (
	fourLog  = 17
	threeLog = 15
	nearby   = 1 << 17 // a match of three bytes that is further off saves nothing
	ahead    = 16      // how many rows are read before they are needed
)

// seeker finds matches of several lengths at a place. The finder's table fits into the cache
// nearest to the processor, and covers only a short distance. The seeker's rows cover most of a
// section, but only find matches of at least seven bytes. Shorter matches are worth it only if
// they are near; of these only the last place is kept.
type seeker struct {
	rows    []row
	room    []row
	four    []uint32 // the last place that begins with some four bytes
	three   []uint32 // and with three
	next    int      // the first place that is not in the tables
	warm    int      // the first place whose row was not touched
	touched uint8    // without it nothing would need those reads
	list    [3 + 2 + ways]candidate
}

// forget readies s for a section of n bytes.
func (s *seeker) forget(n int) {
	log := min(max(bits.Len(uint(n-1))-4, 6), 17)
	if len(s.room) < 1<<log {
		s.room = make([]row, 1<<log)
	}
	s.rows = s.room[:1<<log]
	clear(s.rows)
	if s.four == nil {
		s.four = make([]uint32, 1<<fourLog)
		s.three = make([]uint32, 1<<threeLog)
	}
	clear(s.four)
	clear(s.three)
	s.next = 0
	s.warm = 0
}

const scatter = 0x9FB21C651E98DF25

// slot7 returns the row and the tag of a place that begins with the low seven bytes of v.
func slot7(rows []row, v uint64) (*row, uint8) {
	h := v << 8 * scatter
	return &rows[h>>(64-24)&uint64(len(rows)-1)], uint8(h >> 24)
}

func hash4(v uint64) uint64 { return v << 32 * scatter >> (64 - fourLog) }
func hash3(v uint64) uint64 { return v << 40 * scatter >> (64 - threeLog) }

func (s *seeker) note(b []byte, i int) {
	v := load64(b, i)
	r, tag := slot7(s.rows, v)
	r.put(tag, i)
	s.four[hash4(v)] = uint32(i)
	s.three[hash3(v)] = uint32(i)
}

func (s *seeker) index(b []byte, to int) {
	i := s.next
	if to-i > 384 {
		// Skip the middle of a long match, which is also found elsewhere.
		for end := i + 96; i < end; i++ {
			s.note(b, i)
		}
		i = to - 32
	}
	for ; i < to; i++ {
		s.note(b, i)
	}
	s.next = to
}

// touch reads the rows of some of the next places. These reads do not depend on each other, so
// all of them together take as long as a single one would later.
func (s *seeker) touch(b []byte, i int) {
	s.warm = i + ahead
	x := uint8(0)
	for end := min(s.warm, len(b)-reach); i < end; i++ {
		r, _ := slot7(s.rows, load64(b, i))
		x ^= r.tags[15]
	}
	s.touched = x
}

// seek returns matches at i, each longer and more expensive to code than the one before, and adds
// that place. literals is how many literals precede it. The list is valid until the next call.
func (s *seeker) seek(b []byte, i int, rep *repeats, literals uint32) []candidate {
	if s.next < i {
		s.index(b, i)
	}
	s.next = i + 1
	if s.warm <= i {
		s.touch(b, i)
	}
	list := &s.list
	n, floor := 0, leastMatch-1
	v := load64(b, i)
	again := *rep
	if literals == 0 {
		again = repeats{rep[1], rep[2], rep[0] - 1}
	}
	for k, o := range again {
		if o-1 >= uint32(i) { // unknown ones are 0, or even one less
			continue
		}
		j := i - int(o)
		if (load32(b, j)^uint32(v))<<8 != 0 {
			continue
		}
		if m := common(b, i, j); m > floor {
			list[n] = candidate{uint32(m), o, uint8(k+1) >> 1}
			floor = m
			n++
		}
	}
	three, four := &s.three[hash3(v)], &s.four[hash4(v)]
	if j := int(*three); floor < 3 && i-j < nearby && (load32(b, j)^uint32(v))<<8 == 0 {
		floor = common(b, i, j)
		list[n] = found(floor, i-j)
		n++
	}
	if j := int(*four); floor < 4 && load32(b, j) == uint32(v) {
		floor = common(b, i, j)
		list[n] = found(floor, i-j)
		n++
	}
	*three, *four = uint32(i), uint32(i)

	r, tag := slot7(s.rows, v)
	same := uint64(tag) * 0x0101010101010101
	set := zeros(binary.LittleEndian.Uint64(r.tags[:8])^same) | zeros(binary.LittleEndian.Uint64(r.tags[8:16])^same)<<8
	newest := uint(r.tags[15])
	set &= 1<<ways - 1
	set = (set | set<<ways) >> (newest & 15) & (1<<ways - 1) // newest lowest
	floor = max(floor, 5)
	for ; set != 0 && i+floor < len(b); set &= set - 1 {
		w := newest + uint(bits.TrailingZeros(set))
		if w >= ways {
			w -= ways
		}
		if w >= ways {
			break
		}
		j := int(r.at[w])
		if load32(b, j+floor-3) != load32(b, i+floor-3) { // a longer match has these bytes
			continue
		}
		if m := common(b, i, j); m > floor && n < len(list) {
			list[n] = found(m, i-j)
			floor = m
			n++
		}
	}
	r.put(tag, i)
	return list[:n]
}

// found is a candidate whose offset is not one of the last.
func found(length, offset int) candidate {
	return candidate{uint32(length), uint32(offset), uint8(bits.Len(uint(offset+3)) - 1)}
}
