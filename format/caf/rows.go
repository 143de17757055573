package caf

import (
	"hash/maphash"
)

// maxRowMem is how many bytes of rows stay in memory: some 30,000 files.
var maxRowMem = 4 << 20

// nameSet remembers names by 64-bit fingerprints, ten to twenty bytes each
// whatever their length. Ten million names have a chance of one in 400,000 that
// one of them is taken for a duplicate and refused; none is ever let through.
type nameSet struct {
	seed  maphash.Seed
	slots []uint64 // 0 is free
	n     int
}

func (s *nameSet) print(name string) uint64 {
	return max(1, maphash.String(s.seed, name))
}

// slot returns where fingerprint h is, or would be.
func (s *nameSet) slot(h uint64) int {
	mask := uint64(len(s.slots) - 1)
	for i := h & mask; ; i = (i + 1) & mask {
		if s.slots[i] == 0 || s.slots[i] == h {
			return int(i)
		}
	}
}

func (s *nameSet) has(name string) bool {
	if s.n == 0 {
		return false
	}
	h := s.print(name)
	return s.slots[s.slot(h)] == h
}

func (s *nameSet) add(name string) {
	if 4*(s.n+1) > 3*len(s.slots) {
		old := s.slots
		s.slots = make([]uint64, max(1024, 2*len(old)))
		for _, h := range old {
			if h != 0 {
				s.slots[s.slot(h)] = h
			}
		}
	}
	h := s.print(name)
	s.slots[s.slot(h)] = h
	s.n++
}
