package tarfile

import (
	"bytes"
	"hash/crc32"
	"math/bits"
	"time"

	"github.com/holdall/holdall/internal/oak/internal/segment"
)

// A header with a wrong checksum is repaired from what is known about it. Most of its bytes are
// the same in all headers. The sum of all bytes shows a digit that is not a digit. The name has a
// checksum of the data, which shows its length. If the sum of a repaired header is the stored
// one, it is proven. Otherwise the damage may be in the ID, where nothing shows it.

const (
	nameText = idText + 9 // of an id and a checksum
	// minNameBytes is how many bytes of the name must be possible for a block to be treated as a
	// damaged header.
	minNameBytes = nameText - 3
)

// damaged examines a block whose checksum is wrong: a damaged header, or anything else.
func (s *scan) damaged(w []byte) (Found, bool) {
	block := w[:BlockSize]
	m, ok := repair(block)
	if !ok {
		p := Problem{Class: BadHeader, What: "header: damaged beyond repair, or no header"}
		if n, ok := ParseEntryName(headerName(block)); ok {
			p.Segment, p.HasSegment = n.ID, true
		}
		return s.skip(block, p)
	}
	lost := Problem{Class: BadHeader, Segment: m.name.ID, HasSegment: true, What: "header: damaged, and the end of its segment is unknown"}
	size, repaired := s.measure(w[BlockSize:], &m)
	if !repaired {
		return s.skip(block, lost)
	}
	doubt := DoubtID
	what := "header: damaged; the id is uncertain, the segment is intact"
	if m.proves(size) {
		doubt = 0
		what = "header: damaged; completely repaired"
	}
	header := s.at
	f := s.found(w, m.name, size, m.name.CRC, doubt)
	s.report(Problem{Class: BadHeader, Off: header, Len: BlockSize, Segment: f.ID, HasSegment: true, What: what})
	return f, true
}

// measure determines the length of the segment at the beginning of data. It is the length in the
// header if that matches the name's checksum; otherwise the one that matches. If the checksum
// itself is damaged, which only the length in the header can show, it is corrected.
func (s *scan) measure(data []byte, m *repaired) (int, bool) {
	data = data[:min(len(data), MaxSegment)]
	if n := m.size; n >= 1 && n <= int64(len(data)) && s.spend(int(n)) {
		crc := checksum(data[:n])
		if crc == m.name.CRC {
			return int(n), true
		}
		if m.corrects(crc) {
			m.name.CRC = crc
			return int(n), true
		}
	}
	if !s.spend(len(data)) {
		return 0, false
	}
	step := 1
	if m.name.ID.IsData() {
		step = 16
	}
	return fit(data, m.name.CRC, step)
}

// fit returns the first length, a multiple of step, at which the checksum of data is crc and only
// zeros follow up to the end of the block.
func fit(data []byte, crc uint32, step int) (n int, ok bool) {
	sum := uint32(0)
	for from := 0; from < len(data); from += BlockSize {
		block := data[from:min(from+BlockSize, len(data))]
		k := len(bytes.TrimRight(block, "\x00"))
		k += -k & (step - 1)
		k = min(max(k, step), len(block))
		sum = crc32.Update(sum, crc32.IEEETable, block[:k])
		for ; k < len(block) && sum != crc; k += step {
			sum = ^sum
			for range min(step, len(block)-k) {
				sum = crc32.IEEETable[byte(sum)] ^ sum>>8 // adds a zero
			}
			sum = ^sum
		}
		if sum == crc {
			return from + min(k, len(block)), true
		}
	}
	return 0, false
}

// repaired has the fields recovered from a damaged header.
type repaired struct {
	name   EntryName
	size   int64
	mtime  time.Time
	stored int64 // the checksum, -1 if that is damaged too
}

// repair reads a damaged header. Its name must be intact, or lack one digit, which the checksum
// determines.
func repair(b []byte) (repaired, bool) {
	good := 0
	for i, c := range b[:nameText] {
		if nameByte(i, c) {
			good++
		}
	}
	if good < minNameBytes {
		return repaired{}, false
	}
	h := canonical(b)
	hole, holes := -1, 0
	for i := range headerLen {
		if !headerByte(i, h[i]) {
			hole = i
			holes++
		}
	}
	m := repaired{stored: -1}
	if v, n := octal(h[checksumAt : checksumAt+checkDigits]); n == checkDigits {
		m.stored = v
	}
	if holes == 1 && m.stored >= 0 {
		h[hole] = 0
		if v := m.stored - headerSum(h[:]); v > 0 && v < 256 && headerByte(hole, byte(v)) {
			h[hole] = byte(v)
		}
	}
	name, ok := ParseEntryName(headerName(h[:]))
	if !ok || !name.HasCRC {
		return repaired{}, false
	}
	m.name, m.mtime = name, headerTime(h[:])
	// A size with an invalid digit would be parsed as a shorter one.
	if v, n := octal(h[sizeAt : sizeAt+sizeDigits]); n == sizeDigits {
		m.size = v
	}
	return m, true
}

// canonical restores the bytes that are the same in all headers of segments.
func canonical(b []byte) [BlockSize]byte {
	var h [BlockSize]byte
	copy(h[:], AppendHeader(nil, "", 0, time.Time{}))
	copy(h[:nameText], b)
	for _, i := range dashes {
		h[i] = '-'
	}
	h[idText] = '.'
	copy(h[sizeAt:sizeAt+sizeDigits], b[sizeAt:])
	copy(h[mtimeAt:mtimeAt+sizeDigits], b[mtimeAt:])
	copy(h[checksumAt:checksumAt+checkDigits], b[checksumAt:])
	return h
}

func nameByte(i int, c byte) bool {
	switch i {
	case dashes[0], dashes[1], dashes[2], dashes[3]:
		return c == '-'
	case idText:
		return c == '.'
	}
	return '0' <= c && c <= '9' || 'a' <= c && c <= 'f'
}

// headerByte reports whether c may be at i of a canonical header.
func headerByte(i int, c byte) bool {
	switch {
	case i < nameText:
		return nameByte(i, c)
	case i >= sizeAt && i < sizeAt+sizeDigits, i >= mtimeAt && i < mtimeAt+sizeDigits, i >= checksumAt && i < checksumAt+checkDigits:
		return '0' <= c && c <= '7'
	}
	return true
}

// proves reports whether the header with this size has the stored checksum.
func (m *repaired) proves(size int) bool {
	h := AppendHeader(nil, entryName(m.name.ID, m.name.CRC), int64(size), m.mtime)
	return m.stored == headerSum(h)
}

// corrects reports whether crc differs from the checksum in the name in one digit, and makes the
// header's checksum correct if it replaces it.
func (m *repaired) corrects(crc uint32) bool {
	differ := m.name.CRC ^ crc
	digit := uint32(0xf) << (bits.TrailingZeros32(differ) &^ 3) // the lowest that differs
	other := *m
	other.name.CRC = crc
	return differ != 0 && differ&^digit == 0 && other.proves(int(m.size))
}

// unshift has, for the highest byte of an entry of crc32.IEEETable, its number.
var unshift = func() (t [256]byte) {
	for i, v := range crc32.IEEETable {
		t[v>>24] = byte(i)
	}
	return t
}()

// WrongBit finds the single bit of a segment whose flip makes the checksum crc and the records those
// of its table: data[off]^mask undoes it. Once in some thousands of cases, damage in many places
// looks like a single wrong bit. Usually the records then do not match. Nothing else decides
// whether a bit is corrected, in memory or by a repair. data must not be shared: the bit is flipped
// meanwhile.
func WrongBit(id ID, data []byte, crc uint32) (off int, mask byte, ok bool) {
	if off, mask, ok = findFlip(data, crc); !ok {
		return 0, 0, false
	}
	data[off] ^= mask
	defer func() { data[off] ^= mask }()
	g, err := segment.Parse(id, data)
	if err != nil {
		return 0, 0, false
	}
	g.Check(func(p segment.Problem) {
		switch p.Code {
		case segment.RowOrder, segment.RowGap, segment.RowOffset, segment.Overlapping, segment.BadRecord, segment.DanglingID:
			ok = false
		}
	})
	return off, mask, ok
}

// Heal is Compare that corrects a single wrong bit of data, if the header is intact.
func Heal(id ID, header, data []byte) (healed bool, what string) {
	if what = Compare(id, header, data); what == "" {
		return false, ""
	}
	h, err := ParseHeader(header)
	n, named := ParseEntryName(h.Name)
	if err != nil || !h.ChecksumOK || !named || n.ID != id || !n.HasCRC {
		return false, what
	}
	off, mask, ok := WrongBit(id, data, n.CRC)
	if !ok {
		return false, what
	}
	data[off] ^= mask
	return true, ""
}

// findFlip finds the single bit that must be flipped in b for its checksum to be crc.
//
// The checksum is linear: the difference of two checksums depends only on where the bytes differ.
// So the difference is undone byte by byte from the end, until it is that of a byte just added.
func findFlip(b []byte, crc uint32) (off int, mask byte, ok bool) {
	c := checksum(b) ^ crc
	if c == 0 {
		return 0, 0, false
	}
	for i := len(b) - 1; i >= 0; i-- {
		k := unshift[c>>24]
		v := c ^ crc32.IEEETable[k]
		if v == 0 && bits.OnesCount8(k) == 1 {
			return i, k, true
		}
		c = v<<8 | uint32(k)
	}
	return 0, 0, false
}
