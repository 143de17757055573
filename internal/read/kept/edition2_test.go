package kept

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/kit"
	"github.com/holdall/holdall/internal/testkit"
)

// TestIndexesOfEdition2AreRead has indexes that an older holdall wrote. They answer as their
// archives do.
func TestIndexesOfEdition2AreRead(t *testing.T) {
	testkit.Serial(t)
	read := func(t *testing.T, name string) []byte {
		b, err := os.ReadFile(filepath.Join("testdata", "edition2", name+Suffix))
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	for _, open := range []func(testing.TB, []byte) *Index{opened, openedNear, openedFile} {
		for name, v := range vectors() {
			if v.chunk {
				continue
			}
			t.Run(name, func(t *testing.T) {
				x := open(t, read(t, name))
				sameRows(t, x, v)
			})
		}
		t.Run("regular", func(t *testing.T) {
			l := regular(3000)
			l.xs = map[string][]format.Extent{}
			for e := range l.Entries(t.Context()) {
				x, _ := l.Run(e)
				l.xs[e.Name] = []format.Extent{x}
			}
			sameAnswers(t, open(t, read(t, "regular")), l, testkit.Rand(t))
		})
		for _, name := range []string{"ordered", "listed"} {
			t.Run(name, func(t *testing.T) {
				entries, xs := anyEntries(rand.New(rand.NewPCG(7, 0)), 1500)
				for i := range entries {
					if entries[i].Kind.HasContent() && i%7 == 0 {
						entries[i].Size = int64(i) * 1000
						delete(xs, entries[i].Name)
					}
				}
				l := &listed{kit.NewIndex(kit.Entries(entries)), xs}
				x := open(t, read(t, name))
				if was := x.listing.t.Depth > 0; was != (name == "listed") {
					t.Fatalf("it has all rows once more: %v", was)
				}
				sameAnswers(t, x, l, testkit.Rand(t))
				for e, err := range x.Entries(t.Context()) {
					if err != nil {
						t.Fatal(err)
					}
					sums, err := x.Digests(t.Context(), e, 0, Pieces(&e, x.Chunk))
					if err != nil {
						t.Fatal(err)
					}
					for i, sum := range sums {
						var want [DigestLen]byte
						if copy(want[:], fmt.Sprintf("%d %s", i, e.Name)); sum != want {
							t.Fatalf("%s: piece %d: %q", e.Name, i, sum)
						}
					}
				}
			})
		}
	}
}
