package columns

import (
	"math/rand/v2"
	"testing"
)

func TestPlacesReturnWhatWasAdded(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	var p Places
	var want []uint64
	at := uint64(0)
	for i := range 10_000 {
		far := at-sure(want, i/blockRows*blockRows, at) >= elsewhere
		if more := p.Add(at); far != (more > 0) {
			t.Fatalf("place %d takes %d bytes more", i, more)
		}
		want = append(want, at)
		switch at += uint64(r.IntN(2000)); r.IntN(1000) {
		case 0:
			at += elsewhere
		case 1:
			at = (at>>32 + 1) << 32 // the next piece
		}
	}
	if p.Len() != len(want) || len(p.far) == 0 {
		t.Errorf("%d places, %d of them far", p.Len(), len(p.far))
	}
	for i, at := range want {
		if got := p.At(i); got != at {
			t.Fatalf("place %d is %d, expected %d", i, got, at)
		}
	}
}

// sure returns all[i], or at if there is none.
func sure(all []uint64, i int, at uint64) uint64 {
	if i < len(all) {
		return all[i]
	}
	return at
}
