package audit

import (
	"math/rand/v2"
	"testing"

	"github.com/holdall/holdall/internal/oak/internal/tarfile"
)

func someEntries(r *rand.Rand, n int) []tarfile.Entry {
	all := make([]tarfile.Entry, n)
	for i := range all {
		for k := range all[i].ID {
			all[i].ID[k] = byte(r.Uint32())
		}
	}
	return all
}

func TestTableFindsTheNewestOfEachID(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, n := range []int{0, 1, 2, 5, 100, 5000} {
		var tars []*unit
		newest := map[tarfile.ID]tarEntry{}
		for i := range 3 {
			found := someEntries(r, n)
			for k := 0; i > 0 && k < n; k += 7 {
				found[k].ID = tars[0].At(k).ID
			}
			tars = append(tars, &unit{Index: tarfile.NewIndex(found)})
			for k, e := range tars[i].All() {
				if _, ok := newest[e.ID]; !ok {
					newest[e.ID] = tarEntry{uint32(i), uint32(k)}
				}
			}
		}
		b := newTable(tars)
		if len(b.rows) != 3*n {
			t.Fatal(len(b.rows))
		}
		for id, want := range newest {
			if p, ok := b.find(id); !ok || p != want {
				t.Fatalf("%d: %s is at %v, expected %v", n, id, p, want)
			}
			id[15]++
			if _, ok := newest[id]; ok {
				continue
			}
			if p, ok := b.find(id); ok {
				t.Fatalf("%d: %s is found at %v", n, id, p)
			}
		}
	}
}

// Ten million segments have to be known in less than a gigabyte: 24 bytes for each,
// buckets, and two bits.
func TestTableIsSmall(t *testing.T) {
	const n = 1 << 18
	r := rand.New(rand.NewPCG(1, 3))
	b := newTable([]*unit{{Index: tarfile.NewIndex(someEntries(r, n))}})
	if size := 24*cap(b.rows) + 4*cap(b.first); size > 28*n {
		t.Errorf("%d bytes for %d segments", size, n)
	}
}
