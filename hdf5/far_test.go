package hdf5

import (
	"context"
	"fmt"
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdall/holdall/internal/testkit"
	"github.com/holdall/holdall/store"
)

const roundTrip = 20 * time.Millisecond

// far is an object to which a request takes a round trip. It is for synctest, where time
// passes when all wait.
type far struct {
	store.Object
	mu              sync.Mutex
	requests, bytes int64
	trace           func(off, n int64)
}

func (o *far) count(n int) {
	time.Sleep(roundTrip)
	o.mu.Lock()
	defer o.mu.Unlock()
	o.requests++
	o.bytes += int64(n)
}

func (o *far) ReadAt(ctx context.Context, p []byte, off int64) error {
	if o.trace != nil {
		o.trace(off, int64(len(p)))
	}
	o.count(len(p))
	return o.Object.ReadAt(ctx, p, off)
}

func (o *far) Can() store.ObjectAbilities {
	can := o.Object.Can()
	read := can.ReadEnd
	can.ReadEnd = func(ctx context.Context, p []byte, tail bool) (int, error) {
		o.count(len(p))
		return read(ctx, p, tail)
	}
	return can
}

// A cost is what a file's whole listing takes.
type cost struct {
	rounds, requests, bytes int64
	metadata                int64 // bytes of all structures
	objects, chunks         int
}

func listing(t *testing.T, b []byte, small int64) (c cost) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		o := &far{Object: inMemory(t, b)}
		begin := time.Now()
		if os.Getenv("TRACE") != "" {
			o.trace = func(off, n int64) {
				fmt.Printf("  %d: %9d %7d\n", time.Since(begin)/roundTrip, off, n)
			}
		}
		f, err := Open(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		f.small = min(f.small, small)
		seen := map[int64]int64{}
		opt := WalkOptions{Values: true, Chunks: 1 << 20, Seen: func(r Region) { seen[r.Off] = max(seen[r.Off], r.Len) }}
		for o, err := range f.Walk(t.Context(), opt) {
			if err != nil || o.Err != nil {
				t.Fatal(err, o.Err)
			}
			c.objects++
			for _, err := range o.Chunks(t.Context()) {
				if err != nil {
					t.Fatal(err)
				}
				c.chunks++
			}
		}
		c.rounds, c.requests, c.bytes = int64(time.Since(begin)/roundTrip), o.requests, o.bytes
		for _, n := range seen {
			c.metadata += n
		}
	})
	return c
}

func TestFarFilesTakeFewRounds(t *testing.T) {
	for _, want := range []struct {
		name             string
		rounds, requests int64
		waste            float64 // bytes for one of the structures
	}{
		{"kinds_earliest", 3, 3, 1.5},
		{"attributes_latest", 4, 4, 1.5},
		{"links_earliest", 5, 6, 1.3},
		{"links_latest", 7, 7, 1.1},
		{"chunks_latest", 6, 7, 3},
		{"paged_latest", 6, 6, 1.5},
		// 177 leaves of the tree lie far from each other, and 32 are read at once.
		{"far_earliest", 8, 181, 1.3},
		{"far_latest", 3, 3, 1.3},
	} {
		b := testkit.Read(t, "testdata/"+want.name+".h5")
		if c := listing(t, b, small); len(b) <= small && (c.requests > 2 || c.bytes > int64(len(b)+headSize)) {
			t.Errorf("%s is small: %+v", want.name, c)
		}
		c := listing(t, b, 0)
		t.Logf("%s, %d bytes: %+v", want.name, len(b), c)
		if c.rounds > want.rounds || c.requests > want.requests || float64(c.bytes) > want.waste*float64(c.metadata) {
			t.Errorf("%s: %+v, expected at most %+v", want.name, c, want)
		}
	}
}
