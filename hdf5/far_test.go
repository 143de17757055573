package hdf5

import (
	"context"
	"fmt"
	"slices"
	"strings"
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
}

func (o *far) count(n int) {
	time.Sleep(roundTrip)
	o.mu.Lock()
	defer o.mu.Unlock()
	o.requests++
	o.bytes += int64(n)
}

func (o *far) ReadAt(ctx context.Context, p []byte, off int64) error {
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
		f, err := Open(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		f.small = min(f.small, small)
		var few, texts []*Object
		for o, err := range f.Walk(t.Context(), WalkOptions{Values: true, Chunks: 1 << 20, Elements: 1000}) {
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
			if n := o.Space.Elements(); o.inFile() && n >= 0 && n < 1000 {
				few = append(few, o)
				if o.Type.variable {
					texts = append(texts, o)
				}
			}
		}
		c.rounds, c.requests, c.bytes = int64(time.Since(begin)/roundTrip), o.requests, o.bytes
		if _, err := f.Elements(t.Context(), few, false); err != nil {
			t.Fatal(err)
		}
		if _, err := f.Elements(t.Context(), texts, true); err != nil || o.requests != c.requests {
			t.Errorf("%v: the elements of small datasets took %d requests", err, o.requests-c.requests)
		}
		seen := map[int64]int64{}
		for _, err := range f.Walk(t.Context(), WalkOptions{Values: true, Chunks: 1 << 20, Seen: func(r Region) { seen[r.Off] = max(seen[r.Off], r.Len) }}) {
			if err != nil {
				t.Fatal(err)
			}
		}
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
		{"kinds_earliest", 2, 2, 1.5},
		{"attributes_latest", 2, 2, 1.5},
		{"links_earliest", 2, 2, 1.3},
		{"links_latest", 2, 2, 1.1},
		{"chunks_latest", 4, 5, 3},
		{"paged_latest", 4, 6, 1.5},
		// 177 leaves of the tree lie far from each other, and 64 are read at once.
		{"far_earliest", 5, 177, 1.3},
		{"far_latest", 2, 2, 1.3},
		// Recordings by pynwb, without the data: structures lie between 40 datasets of some 40 KB,
		// and places of 30,000 chunks between these.
		{"recordings/earliest", 3, 12, 13.5},
		{"recordings/latest", 5, 88, 4.1},
		// 2,000 datasets of 1.6 KB in 200 groups of 20 groups: structures are everywhere.
		{"recordings/nested_earliest", 6, 27, 4.7},
		// The scheduler decides which of them are asked for together. Some runs take one round more.
		{"recordings/nested_latest", 7, 30, 4.9},
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

// nested returns a file that package hdf5 writes: groups of groups of datasets, each with its elements behind it.
func nested(t testing.TB, groups, datasets, size int) []byte {
	b := make([]byte, SuperblockSize)
	put := func(o *Object) Link {
		o.Addr = int64(len(b))
		p, err := o.Encode(nil)
		if err != nil {
			t.Fatal(err)
		}
		b = append(b, p...)
		return Link{Addr: o.Addr}
	}
	named := func(l Link, format string, i int) Link {
		l.Name = fmt.Sprintf(format, i)
		return l
	}
	root := &Object{Kind: Group}
	for i := range groups {
		outer := &Object{Kind: Group}
		for j := range groups {
			inner := &Object{Kind: Group}
			for k := range datasets {
				o := &Object{Kind: Dataset, Type: &Datatype{Class: Integer, Size: 1, Precision: 8}, Space: Space{Dims: []int64{int64(size)}}}
				o.Layout = Layout{Class: Contiguous, Addr: int64(len(b)), Size: int64(size)}
				b = append(b, make([]byte, size)...)
				inner.Links = append(inner.Links, named(put(o), "d%d", k))
			}
			outer.Links = append(outer.Links, named(put(inner), "h%d", j))
		}
		root.Links = append(root.Links, named(put(outer), "g%d", i))
	}
	put(root)
	copy(b, EncodeSuperblock(root.Addr, int64(len(b))))
	return b
}

func TestFarFilesOfOursTakeFewRequests(t *testing.T) {
	b := nested(t, 12, 12, 2000)
	c := listing(t, b, 0)
	t.Logf("%d bytes: %+v", len(b), c)
	if c.objects != 1+12+12*12*13 || c.rounds > 8 || c.requests > 40 || c.bytes > int64(len(b))*11/10 {
		t.Errorf("%+v", c)
	}
}

// What is read beside structures is bounded by what is asked for: data of any size between them is not read.
func TestFarDataIsNotRead(t *testing.T) {
	b := nested(t, 3, 3, 2<<20)
	c := listing(t, b, 0)
	t.Logf("%d bytes: %+v", len(b), c)
	if most := mostCredit + mostMargin + spare + 2*refund*c.metadata; c.bytes > most || c.bytes > int64(len(b))/10 {
		t.Errorf("%+v, expected at most %d bytes", c, most)
	}
}

// The places of many chunks, which lie between these, are not read with the objects if they are not wanted.
func TestPlacesOfManyChunksAreReadOnlyIfTheyAreWanted(t *testing.T) {
	for _, name := range []string{"earliest", "latest"} {
		b := testkit.Read(t, "testdata/recordings/"+name+".h5")
		o := &far{Object: inMemory(t, b)}
		f, err := Open(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		var many []*Object
		for o, err := range f.Walk(t.Context(), WalkOptions{Values: true, Chunks: 1 << 20, Most: 1000, Elements: 1000}) {
			if err != nil || o.Err != nil {
				t.Fatal(err, o.Err)
			}
			if o.Kind == Dataset && o.Layout.Class == Chunked && !o.indexed {
				many = append(many, o)
			}
		}
		if len(many) != 1 || o.requests > 8 {
			t.Fatalf("%s: %d requests, and %d datasets without places", name, o.requests, len(many))
		}
		chunks := 0
		for _, err := range many[0].Chunks(t.Context()) {
			if err != nil {
				t.Fatal(err)
			}
			chunks++
		}
		if chunks != 303 {
			t.Errorf("%s: found %d chunks", name, chunks)
		}
	}
}

// near is an object on a disk.
type near struct{ store.Object }

func (o near) Can() store.ObjectAbilities { return store.ObjectAbilities{} }

// walked describes all objects of a file.
func walked(t testing.TB, o store.Object) (all []string) {
	t.Helper()
	f, err := Open(t.Context(), o)
	if err != nil {
		return []string{err.Error()}
	}
	f.small = 0
	for o, err := range f.Walk(t.Context(), WalkOptions{Values: true, Chunks: 1 << 20, Elements: 1000}) {
		if err != nil {
			t.Fatal(err)
		}
		of := fmt.Sprint(o.Path, o.Addr, o.Kind, o.Links, o.Type, o.Space, o.Layout, o.Filters, o.Fill, o.Err, o.chunks)
		for _, a := range o.Attributes {
			of += fmt.Sprint(a.Name, a.Type, a.Space, a.Data, a.Values, a.Err)
		}
		if e := o.ready.Load(); e != nil {
			of += fmt.Sprint(e.Data, e.Err)
		} else if n := o.Space.Elements(); o.inFile() && n >= 0 && n < 1000 && o.Bytes() <= mostReady {
			e, err := f.Elements(t.Context(), []*Object{o}, false)
			if err != nil {
				t.Fatal(err)
			}
			of += fmt.Sprint(e[0].Data, e[0].Err)
		}
		all = append(all, of)
	}
	return all
}

// A file says the same on a disk, where structures are read one after another, on a server, where
// many are read at once and some are guessed, and if other bytes look like structures.
func TestGuessesChangeNothing(t *testing.T) {
	testkit.Serial(t)
	rnd := testkit.Rand(t)
	for _, name := range []string{"kinds_earliest", "links_earliest", "links_latest", "attributes_latest", "chunks_latest", "filters_earliest", "recordings/earliest", "recordings/latest", "recordings/nested_latest"} {
		b := testkit.Read(t, "testdata/"+name+".h5")
		want := walked(t, near{inMemory(t, b)})
		if got := walked(t, inMemory(t, b)); !slices.Equal(got, want) {
			t.Errorf("%s differs on a server", name)
		}
		for i := range testkit.Rounds(t, max(5, 2<<20/len(b))) {
			damaged := slices.Clone(b)
			for range 1 + i%8 {
				damaged[rnd.IntN(min(len(b), 64<<10))] = byte(rnd.Uint32())
			}
			if got, want := walked(t, inMemory(t, damaged)), walked(t, near{inMemory(t, damaged)}); !slices.Equal(got, want) {
				t.Errorf("%s differs on a server if it is damaged: damage %d", name, i)
			}
		}
		if !strings.Contains(name, "/") || strings.Contains(name, "nested") { // there heaps have zeros too
			continue
		}
		b = slices.Clone(b)
		for at := 16 << 10; at < 3<<20; at += 512 { // only data is zero here
			if n := 512 + rnd.IntN(4<<10); !slices.ContainsFunc(b[at:at+n+512], func(c byte) bool { return c != 0 }) {
				copy(b[at+256:at+n], b[rnd.IntN(12<<10):])
			}
		}
		if got := walked(t, inMemory(t, b)); !slices.Equal(got, want) {
			t.Errorf("%s differs if data looks like structures", name)
		}
	}
}

func FuzzGuesses(f *testing.F) {
	for _, name := range []string{"kinds_earliest", "attributes_latest"} {
		f.Add(testkit.Read(f, "testdata/"+name+".h5"))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) > 64<<10 {
			return
		}
		if got, want := walked(t, inMemory(t, b)), walked(t, near{inMemory(t, b)}); !slices.Equal(got, want) {
			t.Errorf("found %q on a server, expected %q", got, want)
		}
	})
}
