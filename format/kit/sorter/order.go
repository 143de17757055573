package sorter

import (
	"cmp"
	"encoding/binary"
	"slices"
	"strings"
)

// atOnce is how many rows are sorted together: what that takes stays in a level-2 cache.
const atOnce = 1 << 17

// Order sorts numbers of rows by the keys of the rows, and those of equal keys by number. It
// takes two bytes for each row and a MiB while it sorts.
func Order(rows []uint32, key func(row uint32) string) {
	divide(rows, key, 0, make([]uint64, min(len(rows), atOnce)))
}

// divide sorts rows whose keys have the same first bytes. More rows than there is room for are first
// divided by the next byte that differs.
func divide(rows []uint32, key func(row uint32) string, alike int, room []uint64) {
	if len(rows) <= len(room) {
		marks := room[:len(rows)]
		for i, row := range rows {
			marks[i] = uint64(row)
		}
		order(marks, key, alike)
		for i, mark := range marks {
			rows[i] = uint32(mark)
		}
		return
	}
	first := key(rows[0])[alike:]
	more := len(first)
	for _, row := range rows[1:] {
		more = SharedLen(first[:more], key(row)[alike:])
	}
	alike += more
	var ends, next [1 + 1<<8]int
	groups := make([]uint16, len(rows)) // 0 if the key ends
	for i, row := range rows {
		if k := key(row); len(k) > alike {
			groups[i] = 1 + uint16(k[alike])
		}
		ends[groups[i]]++
	}
	for g := range ends[1:] {
		next[g+1] = ends[g]
		ends[g+1] += ends[g]
	}
	for g := range ends {
		for next[g] < ends[g] {
			at := next[g]
			to := groups[at]
			groups[at], groups[next[to]] = groups[next[to]], to
			rows[at], rows[next[to]] = rows[next[to]], rows[at]
			next[to]++
		}
	}
	groups = nil // names that are made for that could divide many times
	slices.Sort(rows[:ends[0]])
	for g := range ends[1:] {
		if some := rows[ends[g]:ends[g+1]]; len(some) > 1 {
			divide(some, key, alike+1, room)
		}
	}
}

// order sorts rows whose keys have the same first bytes. The lower half of a mark is the number
// of a row. Keys are in random places of memory, and those that are made of paths begin alike.
// So order puts the first four bytes that differ into the higher halves, sorts the marks as
// numbers, and repeats this for keys that are still alike.
func order(marks []uint64, key func(row uint32) string, alike int) {
	const few = 12
	if len(marks) <= few {
		orderFew(marks, key, alike)
		return
	}
	rest := func(mark uint64) string { return key(uint32(mark))[alike:] }
	first := rest(marks[0])
	more := len(first)
	for _, mark := range marks[1:] {
		more = SharedLen(first[:more], rest(mark))
	}
	alike += more
	for i, mark := range marks {
		var four [4]byte // zeros after the end of the key
		copy(four[:], rest(mark))
		marks[i] = uint64(binary.BigEndian.Uint32(four[:]))<<32 | uint64(uint32(mark))
	}
	slices.Sort(marks)
	for len(marks) > 0 {
		four := uint32(marks[0] >> 32)
		n := 1
		for n < len(marks) && uint32(marks[n]>>32) == four {
			n++
		}
		ends := func(mark uint64) bool { return len(rest(mark)) <= 4 }
		if four&0xff == 0 && slices.ContainsFunc(marks[:n], ends) {
			orderFew(marks[:n], key, alike)
		} else {
			order(marks[:n], key, alike+4)
		}
		marks = marks[n:]
	}
}

// orderFew is order for few rows, or for keys that end soon.
func orderFew(marks []uint64, key func(row uint32) string, alike int) {
	if len(marks) < 2 {
		return
	}
	slices.SortFunc(marks, func(a, b uint64) int {
		x, y := uint32(a), uint32(b)
		return cmp.Or(strings.Compare(key(x)[alike:], key(y)[alike:]), cmp.Compare(x, y))
	})
}

// SharedLen returns how many bytes a and b have in common at their beginning.
func SharedLen[A, B string | []byte](a A, b B) int {
	i, n := 0, min(len(a), len(b))
	for i < n && a[i] == b[i] {
		i++
	}
	return i
}
