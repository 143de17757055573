package audit

import (
	"math/rand/v2"
	"testing"

	"github.com/holdall/holdall/internal/oak/internal/tarfile"
)

func TestTableFindsTheNewestOfEachID(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, n := range []int{0, 1, 2, 5, 100, 5000} {
		var tars []*unit
		newest := map[tarfile.ID]place{}
		for i := range 3 {
			f := &found{}
			for range n {
				var id tarfile.ID
				for k := range id {
					id[k] = byte(r.Uint32())
				}
				if i > 0 && len(f.segments)%7 == 0 {
					id = tars[0].found.segments[len(f.segments)].ID
				}
				if _, ok := newest[id]; !ok {
					newest[id] = place{uint32(i), uint32(len(f.segments))}
				}
				f.segments = append(f.segments, foundSegment{Entry: tarfile.Entry{ID: id}})
			}
			tars = append(tars, &unit{found: f})
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
	f := &found{segments: make([]foundSegment, n)}
	for i := range f.segments {
		for k := range f.segments[i].ID {
			f.segments[i].ID[k] = byte(r.Uint32())
		}
	}
	b := newTable([]*unit{{found: f}})
	if size := 24*cap(b.rows) + 4*cap(b.first); size > 28*n {
		t.Errorf("%d bytes for %d segments", size, n)
	}
}
