package content

import (
	"encoding/binary"
	"testing"

	"github.com/holdall/holdall/internal/read/digest"
)

// TestDigestsOfAHugeContentWaitOnTheDisk adds more than are held in memory, twice: what
// was there before is gone.
func TestDigestsOfAHugeContentWaitOnTheDisk(t *testing.T) {
	var s sumSpool
	defer s.close()
	sum := func(i int) (d digest.Piece) {
		binary.LittleEndian.PutUint64(d[8:], uint64(i))
		return d
	}
	for _, n := range []int{3*sumsInMemory/len(digest.Piece{}) + 7, sumsInMemory/len(digest.Piece{}) + 1, 5} {
		s.reset()
		for i := range n {
			if err := s.add(sum(i + n)); err != nil {
				t.Fatal(err)
			}
		}
		k := 0
		err := s.yield(func(d digest.Piece, err error) bool {
			if err != nil || d != sum(k+n) {
				t.Fatalf("digest %d of %d: %x, %v", k, n, d, err)
			}
			k++
			return true
		})
		if err != nil || k != n {
			t.Errorf("%d of %d: %v", k, n, err)
		}
	}
}
