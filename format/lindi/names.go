package lindi

import (
	"hash/maphash"
	"sync"
	"sync/atomic"
)

// names finds rows by name without sorting them, which for one lookup in a long
// list would be most of the work. The first few lookups go through the list;
// then a table is made, of some eight bytes a name. Calls may run in parallel.
type names struct {
	n    int
	name func(row int) string

	asked atomic.Int32
	once  sync.Once
	seed  maphash.Seed
	slots []uint32 // row + 1
}

// fewNames is how many lookups are cheaper without a table.
const fewNames = 4

// find returns the row of that name; of equal names the last one counts.
func (x *names) find(name string) (row int, ok bool) {
	if x.asked.Load() < fewNames && x.asked.Add(1) <= fewNames {
		for i := x.n - 1; i >= 0; i-- {
			if x.name(i) == name {
				return i, true
			}
		}
		return 0, false
	}
	x.once.Do(x.fill)
	s := *x.slot(name)
	return int(s) - 1, s > 0
}

func (x *names) fill() {
	size := 8
	for size < x.n+x.n/2 {
		size *= 2
	}
	x.seed, x.slots = maphash.MakeSeed(), make([]uint32, size)
	for i := range x.n {
		*x.slot(x.name(i)) = uint32(i + 1)
	}
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
