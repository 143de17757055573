package blocks

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
)

// The layout is described in docs/bytes/cache.md. All numbers are little-endian.
const (
	magic    = "HOLDBLK\n"
	edition  = 1
	block    = 256 << 10 // bytes of an object in one block
	piece    = 4 << 10   // bytes of a block with one checksum
	record   = 64        // bytes of the header, the state and each slot
	perSlots = 8         // slots in a bucket
	bucket   = perSlots * record
	slotsAt  = 2 * record

	leastSize = 16 << 20
	mostSize  = 1 << 50
)

var (
	errForeign = errors.New("expected a table of cached blocks of edition 1, found another file: choose another folder")
	errDamaged = errors.New("the table is damaged")
)

// A head is what the table says of itself: the header, which never changes, and the state.
type head struct {
	buckets, segments uint32
	segment, limit    int64 // of a segment, and of all files
	id                [16]byte

	sound   bool // the state is
	current uint32
	next    int64 // where the next block begins in the current segment
}

// newHead divides limit between table and segments. The table has four slots for each full block, so
// that hardly any bucket overflows.
func newHead(limit int64, id [16]byte) head {
	h := head{buckets: uint32(limit / (2 * block)), limit: limit, id: id, sound: true}
	left := limit - h.size()
	h.segments = uint32(min(max(left/(32*block), 8), 64))
	h.segment = left / int64(h.segments)
	// Segments of an earlier table had other numbers.
	h.current = binary.LittleEndian.Uint32(id[:])>>2 + uint32(h.segments)
	return h
}

// size returns the length of the table.
func (h *head) size() int64 { return slotsAt + int64(h.buckets)*bucket }

// seal ends a record with its checksum, which depends on the table that it is in.
func (h *head) seal(b []byte) { binary.LittleEndian.PutUint32(b[record-4:], h.sum(b)) }

func (h *head) sum(b []byte) uint32 {
	return crc32.Update(crc32.ChecksumIEEE(h.id[:]), crc32.IEEETable, b[:record-4])
}

func (h *head) sealed(b []byte) bool { return binary.LittleEndian.Uint32(b[record-4:]) == h.sum(b) }

func (h *head) header() []byte {
	b := append(make([]byte, 0, record), magic...)
	b = binary.LittleEndian.AppendUint32(b, edition)
	b = binary.LittleEndian.AppendUint32(b, block)
	b = binary.LittleEndian.AppendUint32(b, h.buckets)
	b = binary.LittleEndian.AppendUint32(b, h.segments)
	b = binary.LittleEndian.AppendUint64(b, uint64(h.segment))
	b = binary.LittleEndian.AppendUint64(b, uint64(h.limit))
	b = append(b, h.id[:]...)[:record]
	h.seal(b)
	return b
}

func (h *head) state() []byte {
	b := make([]byte, record)
	binary.LittleEndian.PutUint32(b, h.current)
	binary.LittleEndian.PutUint64(b[8:], uint64(h.next))
	h.seal(b)
	return b
}

// parseHead parses the first records of a table.
func parseHead(b *[slotsAt]byte) (h head, err error) {
	if *b == [slotsAt]byte{} {
		return h, errDamaged // its maker was killed
	}
	if string(b[:8]) != magic || binary.LittleEndian.Uint32(b[8:]) != edition || binary.LittleEndian.Uint32(b[12:]) != block {
		return h, errForeign
	}
	h.buckets, h.segments = binary.LittleEndian.Uint32(b[16:]), binary.LittleEndian.Uint32(b[20:])
	h.segment, h.limit = int64(binary.LittleEndian.Uint64(b[24:])), int64(binary.LittleEndian.Uint64(b[32:]))
	copy(h.id[:], b[40:])
	fits := h.buckets > 0 && h.segments > 1 && h.segment >= 2*block && h.limit <= mostSize && h.segment <= (h.limit-h.size())/int64(h.segments)
	if !fits || !h.sealed(b[:record]) {
		return h, errDamaged
	}
	state := b[record:]
	h.current, h.next = binary.LittleEndian.Uint32(state), int64(binary.LittleEndian.Uint64(state[8:]))
	h.sound = h.sealed(state) && h.current >= h.segments && h.current < math.MaxUint32 && h.next >= 0 && h.next <= h.segment
	return h, nil
}

// live reports whether a segment is one of those that are kept.
func (h *head) live(segment uint32) bool {
	return !h.sound || segment <= h.current && h.current-segment < h.segments
}

// at returns where the two buckets begin in which a key may have its slot. Two choices keep buckets
// from overflowing.
func (h *head) at(k key) (first, second int64) {
	place := func(b []byte) int64 {
		return slotsAt + int64(binary.LittleEndian.Uint64(b)%uint64(h.buckets))*bucket
	}
	return place(k[:]), place(k[8:])
}

// A key is the SHA-256 of what identifies a block.
type key [32]byte

// A slot says where a block is.
type slot struct {
	key     key
	off     int64
	segment uint32
	length  uint32
	crc     uint32 // of the checksums of its pieces
}

// A block begins with the checksums of its pieces, so that a small read compares little.
func sumsLen(block int64) int64 { return (block + piece - 1) / piece * 4 }

func sumsOf(p []byte) []byte {
	sums := make([]byte, 0, sumsLen(int64(len(p))))
	for len(p) > 0 {
		n := min(len(p), piece)
		sums, p = binary.LittleEndian.AppendUint32(sums, crc32.ChecksumIEEE(p[:n])), p[n:]
	}
	return sums
}

func (h *head) slot(s slot) []byte {
	b := append(make([]byte, 0, record), s.key[:]...)
	b = binary.LittleEndian.AppendUint64(b, uint64(s.off))
	b = binary.LittleEndian.AppendUint32(b, s.segment)
	b = binary.LittleEndian.AppendUint32(b, s.length)
	b = binary.LittleEndian.AppendUint32(b, s.crc)[:record]
	h.seal(b)
	return b
}

// parseSlot parses a slot. ok is false if it is empty, damaged, or its segment was removed.
func (h *head) parseSlot(b []byte) (s slot, ok bool) {
	s.key = key(b[:32])
	s.off, s.segment = int64(binary.LittleEndian.Uint64(b[32:])), binary.LittleEndian.Uint32(b[40:])
	s.length, s.crc = binary.LittleEndian.Uint32(b[44:]), binary.LittleEndian.Uint32(b[48:])
	return s, h.sealed(b) && h.live(s.segment) && s.length <= block && s.off >= 0 && s.off <= h.segment-int64(s.length)-sumsLen(int64(s.length))
}

// choose returns where in two buckets the slot of a key is written: over the one that the key has, or in the
// emptier bucket. If both are full, the oldest block loses its slot.
func (h *head) choose(k key, first, second []byte) (in int, off int64) {
	most, oldest := -1, slot{segment: math.MaxUint32}
	var full struct {
		in  int
		off int64
	}
	for i, b := range [][]byte{first, second} {
		free, at := 0, int64(0)
		for o := 0; o < bucket; o += record {
			s, ok := h.parseSlot(b[o:][:record])
			switch {
			case ok && bytes.Equal(s.key[:], k[:]):
				return i, int64(o)
			case !ok:
				free, at = free+1, int64(o)
			case s.segment < oldest.segment || s.segment == oldest.segment && s.off < oldest.off:
				oldest, full.in, full.off = s, i, int64(o)
			}
		}
		if free > 0 && free > most {
			most, in, off = free, i, at
		}
	}
	if most < 0 {
		return full.in, full.off
	}
	return in, off
}

func segmentName(n uint32) string { return fmt.Sprintf("segment-%08x", n) }
