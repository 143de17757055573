package audit

import (
	"cmp"
	"encoding/binary"
	"slices"

	"github.com/holdall/holdall/internal/oak/internal/tarfile"
)

type table struct {
	rows  []row    // by id; of two with one id the newest first
	first []uint32 // of the rows whose id begins with these bits, or more
	shift uint
}

type row struct {
	hi, lo uint64 // the id
	place
}

// place is where a segment is: entry of a tar's index, or of what was found in it.
type place struct{ tar, entry uint32 }

func (r row) compare(o row) int { return cmp.Or(cmp.Compare(r.hi, o.hi), cmp.Compare(r.lo, o.lo)) }

func newTable(tars []*unit) table {
	n := 0
	for _, t := range tars {
		n += t.Len()
	}
	b := table{rows: make([]row, 0, n)}
	for i, t := range tars {
		for k, e := range t.All() {
			b.rows = append(b.rows, row{binary.BigEndian.Uint64(e.ID[:]), binary.BigEndian.Uint64(e.ID[8:]), place{uint32(i), uint32(k)}})
		}
	}
	slices.SortFunc(b.rows, func(x, y row) int {
		return cmp.Or(x.compare(y), cmp.Compare(x.tar, y.tar), cmp.Compare(y.entry, x.entry))
	})
	// Ids are random: few buckets have more than some rows.
	b.shift = 64
	for n := 4; n < len(b.rows); n *= 2 {
		b.shift--
	}
	b.first = make([]uint32, 1<<(64-b.shift)+1)
	at := 0
	for i := range b.first {
		for at < len(b.rows) && b.rows[at].hi>>b.shift < uint64(i) {
			at++
		}
		b.first[i] = uint32(at)
	}
	return b
}

// find returns where the newest of that id is.
func (b *table) find(id tarfile.ID) (place, bool) {
	want := row{hi: binary.BigEndian.Uint64(id[:]), lo: binary.BigEndian.Uint64(id[8:])}
	bucket := want.hi >> b.shift
	rows := b.rows[b.first[bucket]:b.first[bucket+1]]
	i, ok := slices.BinarySearchFunc(rows, want, row.compare)
	if !ok {
		return place{}, false
	}
	return rows[i].place, true
}
