package tarfile

import (
	"hash/crc32"
	"math/bits"
)

// unshift has, for the highest byte of an entry of crc32.IEEETable, its number.
var unshift = func() (t [256]byte) {
	for i, v := range crc32.IEEETable {
		t[v>>24] = byte(i)
	}
	return t
}()

// FindFlip looks for the one bit that has to be turned in b for its checksum to be
// crc: what b[off]^mask would undo. Of other damage one in some thousands looks as
// if it were of one bit.
//
// The checksum is linear: what two checksums differ by depends on where the bytes
// differ alone. So the difference is taken back, byte by byte from the end, until
// it is that of a byte just added.
func FindFlip(b []byte, crc uint32) (off int, mask byte, ok bool) {
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
