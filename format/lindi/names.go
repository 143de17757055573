package lindi

import (
	"hash/maphash"
	"sync"
	"sync/atomic"
)

// names finds rows by name without sorting them, which would take most of the time of a single
// lookup in a long list. The first few lookups search the list; then a table is made, with about
// eight bytes for each name. It may be used from several goroutines at once.
type names struct {
	n    int
	name func(row int) string

	asked atomic.Int32
	once  sync.Once
	seed  maphash.Seed
	slots []uint32 // row + 1
}

// fewNames is the number of lookups that are faster without a table.
const fewNames = 4

// find returns the row of a name; of equal names, the last one counts.
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

// slot returns the slot of a name, or a free one.
func (x *names) slot(name string) *uint32 {
	mask := uint64(len(x.slots) - 1)
	for at := maphash.String(x.seed, name) & mask; ; at = (at + 1) & mask {
		if s := &x.slots[at]; *s == 0 || x.name(int(*s-1)) == name {
			return s
		}
	}
}
