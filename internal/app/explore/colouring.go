package explore

import (
	"time"

	"github.com/holdall/holdall/codec"
	"github.com/holdall/holdall/format"
)

// A colouring distinguishes runs of content on the byte map. Without classes,
// all content has one colour.
type colouring struct {
	classes []string
	of      func(m *spanMap, i int) int // the class of a run
}

// colourings are the properties that can colour a map.
var colourings = []string{"use", "kind", "age", "packing", "sharing", "proof"}

var (
	ages     = []string{"last day", "last week", "last month", "last year", "last 5 years", "older", "no timestamp"}
	packings = []string{"stored uncompressed", "compressed to more than 80 %", "compressed to 50 to 80 %", "compressed to 20 to 50 %", "compressed to less than 20 %"}
	sharings = []string{"one file", "2 files", "3 to 9 files", "10 files or more"}
	proofs   = []string{"a checksum for each part", "one checksum for the whole file", "no checksum"}
)

// These are the values recorded for each entry.
const (
	partsProof = iota
	wholeProof
	noProof
)

// noAge is the age of an entry without a time.
const noAge = 1<<16 - 1

// dayOf returns a time in days since 1970, within the recorded range.
func dayOf(ms int64) uint16 {
	if ms == noTime {
		return noAge
	}
	return uint16(min(max(ms/86_400_000, 0), noAge-1))
}

func ageOf(day, today uint16) int {
	if day == noAge {
		return len(ages) - 1
	}
	for i, most := range []uint16{1, 7, 31, 366, 5 * 366} {
		if today <= day || today-day <= most {
			return i
		}
	}
	return len(ages) - 2
}

// packedTo returns the class of a compression ratio.
func packedTo(x format.Extent) uint8 {
	whole := max(x.Unit, x.Size)
	if x.Codec == "" || x.Codec == codec.Raw || whole <= 0 {
		return 0
	}
	switch share := float64(x.Len) / float64(whole); {
	case share > 0.8:
		return 1
	case share > 0.5:
		return 2
	case share > 0.2:
		return 3
	}
	return 4
}

// colouring returns a colouring by its name. Entries beyond the recorded ones
// are unknown and get the last class, and so do those of a map without runs.
func (d *surveyed) colouring(by string) *colouring {
	entry := func(classes []string, of func(row int) int) *colouring {
		return &colouring{classes, func(m *spanMap, i int) int {
			row := int(*m.content.ref.At(i))
			if row >= d.names.len() {
				return len(classes) - 1
			}
			return of(row)
		}}
	}
	if d.spans.coarse != nil {
		return &colouring{}
	}
	switch by {
	case "kind":
		return entry(kindNames[:], func(row int) int { return int(*d.holds.At(row)) })
	case "age":
		today := dayOf(time.Now().UnixMilli())
		return entry(ages, func(row int) int { return ageOf(dayOf(*d.time.At(row)), today) })
	case "packing":
		return &colouring{packings, func(m *spanMap, i int) int { return int(*m.content.packed.At(i)) }}
	case "sharing":
		return &colouring{sharings, func(m *spanMap, i int) int {
			switch n := m.content.files[*m.content.off.At(i)]; {
			case n == 0:
				return 0
			case n == 1:
				return 1
			case n < 9:
				return 2
			}
			return 3
		}}
	case "proof":
		return entry(proofs, func(row int) int { return int(*d.proofs.At(row)) })
	}
	return &colouring{}
}
