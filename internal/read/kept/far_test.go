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
// requests for the index, or three if rows have digests.
func TestAFarIndexIsReadByFewRequests(t *testing.T) {
	testkit.Long(t)
	for _, plain := range []bool{true, false} {
		const n = 1_000_000
		var b bytes.Buffer
		if _, err := Build(t.Context(), &b, counted{n: n, plain: plain}, "dir/x", Head{Format: "list"}, Options{Scratch: sorter.TempFile}); err != nil {
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
			if c.requests > most || c.bytes+tailGuess > 36_000 { // and one request to open it
				t.Errorf("%s: %d requests, %d bytes", countedName(i), c.requests, c.bytes)
			}
		}
		x, c := open()
		for _, err := range x.ReadDir(t.Context(), "data/00777") {
			if err != nil {
				t.Fatal(err)
			}
			break
		}
		if c.requests > 2 || c.bytes+tailGuess > 36_000 {
			t.Errorf("a listing: %d requests, %d bytes", c.requests, c.bytes)
		}
	}
}
