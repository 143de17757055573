package kept

import (
	"bytes"
	"context"
	"testing"

	"github.com/holdall/holdall/format/kit/sorter"
	"github.com/holdall/holdall/internal/testkit"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storetest"
)

// A counter counts what is read of an object.
type counter struct {
	store.Object
	requests, bytes int
}

func (c *counter) ReadAt(ctx context.Context, p []byte, off int64) error {
	c.requests++
	c.bytes += len(p)
	return c.Object.ReadAt(ctx, p, off)
}

// TestAFarIndexIsReadByFewRequests has a million rows on a server. A name is found with two
// requests for the index, or three if rows have digests. If all is to be proven by a root, that takes one
// more, and less than 4 kB.
func TestAFarIndexIsReadByFewRequests(t *testing.T) {
	testkit.Long(t)
	const n = 1_000_000
	without := map[int]int{} // bytes for a row with a digest
	for _, c := range []struct{ plain, sealed bool }{{plain: true}, {}, {sealed: true}} {
		var b bytes.Buffer
		plain, head, o := c.plain, Head{Format: "list"}, Options{Scratch: sorter.TempFile}
		if c.sealed {
			head.Chunk = 256 << 10
			o.Digests = func(yield func([DigestLen]byte, error) bool) {
				for e := range (counted{n: n}).Entries(t.Context()) {
					if !yield([DigestLen]byte([]byte(e.Digest.Sum)), nil) {
						return
					}
				}
			}
		}
		if _, err := Build(t.Context(), &b, counted{n: n, plain: plain}, "dir/x", head, o); err != nil {
			t.Fatal(err)
		}
		t.Logf("%.1f bytes a row", float64(b.Len())/n)
		st := &storetest.Mem{}
		st.Put("x.holdall", b.Bytes())
		open := func() (*Index, *counter) {
			obj, err := st.Open(t.Context(), "x.holdall")
			if err != nil {
				t.Fatal(err)
			}
			c := &counter{Object: obj}
			x, err := Open(t.Context(), c, "x.holdall", "dir/x", 2, tailGuess, false)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { x.Close() })
			x.trusted = x.sealed
			return x, c
		}
		for i := 777; i < n; i += n / 7 {
			x, c := open()
			if _, err := x.Lookup(t.Context(), countedName(i)); err != nil {
				t.Fatal(err)
			}
			most := 1
			if !plain {
				most = 2
			}
			bytes := 36_000
			if x.sealed {
				most, bytes = 3, without[i]+4_000
			}
			without[i] = c.bytes + tailGuess
			if c.requests > most || c.bytes+tailGuess > bytes { // and one request to open it
				t.Errorf("%s: %d requests, %d bytes, expected at most %d and %d", countedName(i), c.requests, c.bytes+tailGuess, most, bytes)
			}
		}
		x, c := open()
		for _, err := range x.ReadDir(t.Context(), "data/00777") {
			if err != nil {
				t.Fatal(err)
			}
			break
		}
		if c.requests > 2 && !x.sealed || c.bytes+tailGuess > 36_000 {
			t.Errorf("a listing: %d requests, %d bytes", c.requests, c.bytes)
		}
	}
}
