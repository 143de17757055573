package kept

import (
	"fmt"
	"testing"

	"github.com/holdall/holdall/format/kit"
	"github.com/holdall/holdall/internal/testkit"
)

func TestPiecesOfStoredBytesAreReadAsTheyWereWritten(t *testing.T) {
	rnd := testkit.Rand(t)
	var want []Piece
	objects := []string{""}
	for i := range 5 {
		object := ""
		if i > 0 {
			object = fmt.Sprintf("/%d", i)
			objects = append(objects, object)
		}
		at := int64(rnd.IntN(3))
		for range []int{1, proofItems, proofItems + 1, 3 * proofItems, 7}[i] {
			p := Piece{Object: object, Off: at + int64(rnd.IntN(2)*rnd.IntN(1<<20)), N: 1 + int64(rnd.IntN(1<<18)), Sum: [DigestLen]byte{byte(rnd.IntN(256))}}
			at = p.Off + p.N
			want = append(want, p)
		}
	}
	b, _ := build(t, &listed{Index: kit.NewIndex(kit.Entries(nil))}, Head{Format: "list", Objects: objects}, Options{Pieces: func(yield func(Piece, error) bool) {
		for _, p := range want {
			if !yield(p, nil) {
				return
			}
		}
	}})
	x := opened(t, b)
	for p, err := range x.StoredPieces(t.Context()) {
		if err != nil || len(want) == 0 || p != want[0] {
			t.Fatalf("%+v, %v; %d are left", p, err, len(want))
		}
		want = want[1:]
	}
	if len(want) > 0 {
		t.Errorf("%d are missing", len(want))
	}
}

func FuzzStoredPieces(f *testing.F) {
	f.Add(append([]byte{0, 5, 0, 9}, make([]byte, DigestLen)...), int64(1))
	f.Add([]byte{1, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f, 1, 1}, int64(1<<40))
	f.Fuzz(func(t *testing.T, page []byte, items int64) {
		x := &Index{}
		x.Objects = []string{"", "/a"}
		end, n := int64(-1), 0
		if err := x.tellPieces(&ref{items: items}, page, func(p Piece) error {
			if p.Off < end || p.N <= 0 || p.Off+p.N < 0 {
				t.Fatalf("%+v after %d", p, end)
			}
			end, n = p.Off+p.N, n+1
			return nil
		}); err != nil {
			typed(t, err)
		} else if int64(n) != max(items, 0) {
			t.Fatalf("%d of %d", n, items)
		}
	})
}
