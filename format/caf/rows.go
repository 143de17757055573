package caf

import (
	"encoding/binary"
	"hash/maphash"
)

// maxRowMem is the size of the rows that stay in memory: about 30,000 files.
var maxRowMem = 4 << 20

// contentSet maps contents to their places, by the first half of their digest and their length.
// An entry takes 30 to 60 bytes. Two different contents are taken for equal only at a collision
// of 128 bits.
type contentSet map[[2]uint64]int64

func contentKey(digest string, size int64) [2]uint64 {
	b := []byte(digest[:16])
	return [2]uint64{binary.LittleEndian.Uint64(b), binary.LittleEndian.Uint64(b[8:]) ^ uint64(size)}
}

// place returns where content with a digest is stored, if it is.
func (s contentSet) place(digest string, size int64) (start int64, ok bool) {
	if len(digest) != digestLen || size == 0 || s == nil {
		return 0, false
	}
	start, ok = s[contentKey(digest, size)]
	return start, ok
}

func (s contentSet) add(digest string, start, size int64) {
	if len(digest) == digestLen && size > 0 && s != nil {
		s[contentKey(digest, size)] = start
	}
}

// nameSet stores names as 64-bit fingerprints of ten to twenty bytes each, whatever their length.
// Among ten million names, the chance that one is refused as a duplicate by mistake is one in
// 400,000. A real duplicate is never accepted.
type nameSet struct {
	seed  maphash.Seed
	slots []uint64 // 0 is free
	n     int
}

// slot returns the slot of fingerprint h, or the slot where it would be.
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
	h := fingerprint(maphash.String(s.seed, name))
	return s.slots[s.slot(h)] == h
}

// fingerprint is never 0.
func fingerprint(hash uint64) uint64 { return max(1, hash) }

func (s *nameSet) add(name string) { s.put(fingerprint(maphash.String(s.seed, name))) }

// addNew adds a name, and reports whether it is new.
func (s *nameSet) addNew(name []byte) bool { return s.put(fingerprint(maphash.Bytes(s.seed, name))) }

func (s *nameSet) put(h uint64) (isNew bool) {
	if 4*(s.n+1) > 3*len(s.slots) {
		old := s.slots
		s.slots = make([]uint64, max(1024, 2*len(old)))
		for _, h := range old {
			if h != 0 {
				s.slots[s.slot(h)] = h
			}
		}
	}
	at := &s.slots[s.slot(h)]
	if *at == h {
		return false
	}
	*at = h
	s.n++
	return true
}
