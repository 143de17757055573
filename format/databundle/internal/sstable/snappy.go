package sstable

import "encoding/binary"

const (
	snappyFragment = 64 << 10 // what one table of positions is for: offsets fit 16 bits
	snappyTable    = 1 << 14
	snappyMargin   = 15 // bytes at the end that are not searched
)

// appendSnappy appends b as a raw snappy block: uvar length, then
//
//	literal  n-1<<2 | 0, up to 60 bytes, or 60..61<<2 and n-1 in one or two bytes
//	copy     off>>8<<5 | n-4<<2 | 1, off          4 to 11 bytes from below 2048
//	copy     n-1<<2 | 2, off u16                  1 to 64 bytes
//
// The library's encoder is faster, but its output depends on the processor. Equal rows should
// make equal tables everywhere.
func appendSnappy(dst, b []byte) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(b)))
	for len(b) > 0 {
		n := min(len(b), snappyFragment)
		dst = appendFragment(dst, b[:n])
		b = b[n:]
	}
	return dst
}

func appendFragment(dst, b []byte) []byte {
	var table [snappyTable]uint16 // positions by hash of four bytes
	done := 0                     // what is in dst
	// The longer nothing is found, the fewer positions are tried.
	for i, misses := 1, 32; i < len(b)-snappyMargin; {
		four := binary.LittleEndian.Uint32(b[i:])
		h := four * 0x1e35a7bd >> 18
		from := int(table[h])
		table[h] = uint16(i)
		if binary.LittleEndian.Uint32(b[from:]) != four {
			i += misses >> 5
			misses++
			continue
		}
		n := 4 + sharedLen(b[from+4:], b[i+4:])
		dst = appendCopy(appendLiteral(dst, b[done:i]), i-from, n)
		i += n
		done, misses = i, 32
		if i < len(b)-snappyMargin {
			table[binary.LittleEndian.Uint32(b[i-1:])*0x1e35a7bd>>18] = uint16(i - 1)
		}
	}
	return appendLiteral(dst, b[done:])
}

func appendLiteral(dst, b []byte) []byte {
	switch n := len(b) - 1; {
	case n < 0:
		return dst
	case n < 60:
		dst = append(dst, byte(n<<2))
	case n < 1<<8:
		dst = append(dst, 60<<2, byte(n))
	default:
		dst = append(dst, 61<<2, byte(n), byte(n>>8))
	}
	return append(dst, b...)
}

func appendCopy(dst []byte, off, n int) []byte {
	for n > 64 {
		part := 64
		if n < 64+4 {
			part = 60 // leaves as many as the short form needs
		}
		dst = append(dst, byte((part-1)<<2|2), byte(off), byte(off>>8))
		n -= part
	}
	if n > 11 || off > 2047 {
		return append(dst, byte((n-1)<<2|2), byte(off), byte(off>>8))
	}
	return append(dst, byte(off>>8<<5|(n-4)<<2|1), byte(off))
}
