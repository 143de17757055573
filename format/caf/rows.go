package caf

import "encoding/binary"

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
