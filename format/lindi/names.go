package lindi

import "hash/maphash"

// names finds rows by name without sorting them, which for one lookup in a long
// list would be most of the work. It takes some eight bytes a name.
type names struct {
	seed  maphash.Seed
	slots []uint32 // row + 1
	name  func(row int) string
}

// newNames takes in n rows; of equal names the last one counts.
func newNames(n int, name func(row int) string) *names {
	size := 8
	for size < n+n/2 {
		size *= 2
	}
	x := &names{maphash.MakeSeed(), make([]uint32, size), name}
	for i := range n {
		*x.slot(name(i)) = uint32(i + 1)
	}
	return x
}

// slot returns the place of a name: its own, or a free one.
func (x *names) slot(name string) *uint32 {
	mask := uint64(len(x.slots) - 1)
	for at := maphash.String(x.seed, name) & mask; ; at = (at + 1) & mask {
		if s := &x.slots[at]; *s == 0 || x.name(int(*s-1)) == name {
			return s
		}
	}
}

func (x *names) find(name string) (row int, ok bool) {
	s := *x.slot(name)
	return int(s) - 1, s > 0
}
