package press

import (
	"encoding/binary"
	"math/bits"
	"slices"
)

// appendSequences appends a sequences section (section 3.1.1.3.2).
func (c *coder) appendSequences(dst []byte, seqs []sequence) []byte {
	switch n := len(seqs); {
	case n < 128:
		dst = append(dst, byte(n))
	case n < 0x7F00:
		dst = append(dst, byte(n>>8+128), byte(n))
	default:
		dst = append(dst, 255, byte(n-0x7F00), byte((n-0x7F00)>>8))
	}
	c.code(seqs)
	modes := len(dst)
	dst = append(dst, 0)
	var mode byte
	dst = c.ll.choose(dst, len(seqs), &mode)
	dst = c.of.choose(dst, len(seqs), &mode)
	dst = c.ml.choose(dst, len(seqs), &mode)
	dst[modes] = mode
	return appendStream(dst, seqs, c.ll.chosen, c.of.chosen, c.ml.chosen)
}

// code converts offsets to numbers, and all numbers to codes, and counts the codes.
func (c *coder) code(seqs []sequence) {
	c.ll.count, c.of.count, c.ml.count = [mostSymbols]uint32{}, [mostSymbols]uint32{}, [mostSymbols]uint32{}
	rep := c.rep
	for i := range seqs {
		s := &seqs[i]
		s.offset = rep.number(s.offset, s.literals)
		s.match -= leastMatch
		s.lc = literalCode(s.literals)
		s.mc = matchCode(s.match)
		s.oc = uint8(bits.Len32(s.offset) - 1)
		c.ll.count[s.lc]++
		c.of.count[s.oc]++
		c.ml.count[s.mc]++
	}
	c.rep = rep
}

// appendStream appends the codes and their extra bits, with the last sequence first, because a
// decoder reads from the end.
func appendStream(dst []byte, seqs []sequence, ll, of, ml *codeTable) []byte {
	// A sequence takes at most 81 bits; the writes extend 8 bytes further.
	at := len(dst)
	most := 11*len(seqs) + 16
	dst = slices.Grow(dst, most)
	b := dst[at : at+most]
	n := 0 // of b
	var acc uint64
	var have uint // bits of acc, fewer than 8 after they were written

	last := &seqs[len(seqs)-1]
	var ls, os, ms uint32
	if ll.log > 0 {
		ls = ll.begin(last.lc)
	}
	if of.log > 0 {
		os = of.begin(last.oc)
	}
	if ml.log > 0 {
		ms = ml.begin(last.mc)
	}
	for i := len(seqs) - 1; i >= 0; i-- {
		s := &seqs[i]
		if i < len(seqs)-1 {
			d := &of.steps[s.oc&63]
			shed := uint(os+d.bits) >> 16 & 31
			acc |= uint64(os&(1<<shed-1)) << have
			have += shed
			os = uint32(of.next[(int32(os>>shed)+d.find)&(1<<mostLog-1)])

			d = &ml.steps[s.mc&63]
			shed = uint(ms+d.bits) >> 16 & 31
			acc |= uint64(ms&(1<<shed-1)) << have
			have += shed
			ms = uint32(ml.next[(int32(ms>>shed)+d.find)&(1<<mostLog-1)])

			d = &ll.steps[s.lc&63]
			shed = uint(ls+d.bits) >> 16 & 31
			acc |= uint64(ls&(1<<shed-1)) << have
			have += shed
			ls = uint32(ll.next[(int32(ls>>shed)+d.find)&(1<<mostLog-1)])
		}
		extra := uint(literalExtra[s.lc&63])
		acc |= uint64(s.literals&(1<<extra-1)) << (have & 63)
		have += extra
		binary.LittleEndian.PutUint64(b[n:], acc)
		n += int(have >> 3)
		acc >>= have &^ 7 & 63
		have &= 7

		extra = uint(matchExtra[s.mc&63])
		acc |= uint64(s.match&(1<<extra-1)) << have
		have += extra
		extra = uint(s.oc & 31)
		acc |= uint64(s.offset&(1<<extra-1)) << (have & 63)
		have += extra
		binary.LittleEndian.PutUint64(b[n:], acc)
		n += int(have >> 3)
		acc >>= have &^ 7 & 63
		have &= 7
	}
	// The plain states, and a bit that marks the end.
	acc |= uint64(ms&(1<<ml.log-1)) << have
	have += uint(ml.log)
	acc |= uint64(os&(1<<of.log-1)) << have
	have += uint(of.log)
	acc |= uint64(ls&(1<<ll.log-1)) << have
	have += uint(ll.log)
	acc |= 1 << have
	binary.LittleEndian.PutUint64(b[n:], acc)
	n += int(have>>3) + 1
	return dst[:at+n]
}
