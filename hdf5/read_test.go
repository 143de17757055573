package hdf5

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"testing"

	"github.com/holdall/holdall/internal/testkit"
	"github.com/holdall/holdall/store"
)

// sliced takes a range out of a whole array.
func sliced(whole []byte, size int64, dims, start, count []int64) []byte {
	if len(dims) == 0 {
		return whole[:size]
	}
	step := size
	for _, d := range dims[1:] {
		step *= d
	}
	var out []byte
	for i := range count[0] {
		out = append(out, sliced(whole[(start[0]+i)*step:][:step], size, dims[1:], start[1:], count[1:])...)
	}
	return out
}

func TestRangesAreThoseOfTheWhole(t *testing.T) {
	rnd := testkit.Rand(t)
	for _, name := range []string{"kinds_latest", "chunks_earliest", "chunks_v108", "chunks_v110", "chunks_latest", "paged_earliest", "paged_latest", "filters_latest"} {
		f := openBytes(t, testkit.Read(t, "testdata/"+name+".h5"))
		opt := WalkOptions{Chunks: int64(rnd.IntN(2000))}
		for o, err := range f.Walk(t.Context(), opt) {
			if err != nil {
				t.Fatal(err)
			}
			if o.Readable() != nil || o.Space.Null || slices.Contains(o.Space.Dims, 0) || o.Bytes() > 1<<22 {
				continue
			}
			whole := make([]byte, o.Bytes())
			if err := o.Read(t.Context(), whole, nil, nil); err != nil {
				t.Fatal(err)
			}
			for range 5 {
				n := len(o.Space.Dims)
				start, count := make([]int64, n), make([]int64, n)
				size := o.Type.Size
				for i, d := range o.Space.Dims {
					start[i] = rnd.Int64N(d)
					count[i] = 1 + rnd.Int64N(d-start[i])
					size *= count[i]
				}
				p := bytes.Repeat([]byte{0xee}, int(size))
				if err := o.Read(t.Context(), p, start, count); err != nil {
					t.Fatal(err)
				}
				if !bytes.Equal(p, sliced(whole, o.Type.Size, o.Space.Dims, start, count)) {
					t.Errorf("%s, %s: other elements from %v on, %v", name, o.Path, start, count)
				}
			}
		}
	}
}

func TestARangeReadsWhatItNeeds(t *testing.T) {
	b := testkit.Read(t, "testdata/paged_latest.h5")
	for _, c := range []struct {
		path     string
		start    []int64
		requests int64
	}{
		{"fixed", []int64{1500}, 12},
		{"growing", []int64{1500}, 12},
		{"both", []int64{1500, 0}, 12},
		{"growing_holes", []int64{139999}, 12},
	} {
		o := &far{Object: inMemory(t, b)}
		f, err := Open(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		d, err := f.Find(t.Context(), c.path)
		if err != nil {
			t.Fatal(err)
		}
		p := make([]byte, 1)
		if err := d.Read(t.Context(), p, c.start, slices.Repeat([]int64{1}, len(c.start))); err != nil {
			t.Fatal(err)
		}
		t.Logf("%s: %d requests, %d bytes", c.path, o.requests, o.bytes)
		if o.requests > c.requests || p[0] == 0 {
			t.Errorf("%s: %d requests, found %d", c.path, o.requests, p[0])
		}
	}
}

func TestWrongRangesAreRefused(t *testing.T) {
	f := openBytes(t, testkit.Read(t, "testdata/chunks_latest.h5"))
	o, err := f.Find(t.Context(), "fixed")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		start, count []int64
		room         int
	}{
		{[]int64{0}, []int64{1}, 4},
		{[]int64{0, -1}, []int64{1, 1}, 4},
		{[]int64{0, 30}, []int64{1, 1}, 4},
		{[]int64{20, 29}, []int64{1, 1}, 4},
		{[]int64{0, 0}, []int64{1, 2}, 4},
		{[]int64{0, 0}, []int64{1 << 62, 1 << 62}, 4},
	} {
		if err := o.Read(t.Context(), make([]byte, c.room), c.start, c.count); !errors.Is(err, fs.ErrInvalid) {
			t.Errorf("%v: %v", c, err)
		}
	}
	f.Limit = 50
	if err := o.Read(t.Context(), make([]byte, 2400), nil, nil); !errors.Is(err, ErrLimit) {
		t.Error(err)
	}
	f.Limit = DefaultLimit
	if o, err = f.Find(t.Context(), "/"); err != nil {
		t.Fatal(err)
	}
	if err := o.Read(t.Context(), nil, nil, nil); err == nil || !strings.Contains(err.Error(), "is a group") {
		t.Error(err)
	}
}

func TestPathsAreFollowed(t *testing.T) {
	f := openBytes(t, testkit.Read(t, "testdata/links_latest.h5"))
	data, err := f.Find(t.Context(), "/a/b/c/data")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"hard", "/soft", "a/up", "./a//b/./c/data/", "a/b/cycle/b/cycle/up"} {
		if o, err := f.Find(t.Context(), name); err != nil || o.Addr != data.Addr {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, want := range map[string]error{
		"relative": fs.ErrNotExist, "a/none": fs.ErrNotExist, "loop1": ErrCorrupt, "outside": errors.ErrUnsupported, "hard/x": fs.ErrNotExist,
	} {
		if _, err := f.Find(t.Context(), name); !errors.Is(err, want) {
			t.Errorf("%s: %v, expected %v", name, err, want)
		}
	}
}

func TestCreationOrderIsKnown(t *testing.T) {
	f := openBytes(t, testkit.Read(t, "testdata/links_latest.h5"))
	o, err := f.Find(t.Context(), "ordered")
	if err != nil {
		t.Fatal(err)
	}
	slices.SortFunc(o.Links, func(a, b Link) int { return int(a.Order - b.Order) })
	if len(o.Links) != 4 || o.Links[0].Name != "zz" || o.Links[1].Name != "b" || o.Links[2].Name != "aa" {
		t.Errorf("%.200v", o.Links)
	}
	f = openBytes(t, testkit.Read(t, "testdata/attributes_latest.h5"))
	if o, err = f.Find(t.Context(), "ordered"); err != nil {
		t.Fatal(err)
	}
	slices.SortFunc(o.Attributes, func(a, b Attribute) int { return int(a.Order - b.Order) })
	names := ""
	for _, a := range o.Attributes {
		names += a.Name
	}
	if names != "zyxabc" {
		t.Error(names)
	}
}

func TestWhatIsNotSupportedIsNamed(t *testing.T) {
	f := openBytes(t, testkit.Read(t, "testdata/refused_latest.h5"))
	o, err := f.Find(t.Context(), "external")
	if err != nil {
		t.Fatal(err)
	}
	if err := o.Readable(); !errors.Is(err, errors.ErrUnsupported) || !strings.Contains(err.Error(), "elements in other files are not read here") {
		t.Error(err)
	}
	f.Outside = func(context.Context, string) (store.Object, error) { return nil, fs.ErrNotExist }
	if err := o.Read(t.Context(), make([]byte, o.Bytes()), nil, nil); !errors.Is(err, errors.ErrUnsupported) || !strings.Contains(err.Error(), `the file "elsewhere.bin", which does not exist`) {
		t.Error(err)
	}
	for _, name := range []string{"good", "virtual"} {
		if o, err = f.Find(t.Context(), name); err != nil || o.Err != nil || o.Readable() != nil {
			t.Error(name, err, o.Err)
		}
	}
}

func TestSignatureIsFound(t *testing.T) {
	for _, name := range []string{"kinds_earliest", "user_block_earliest", "user_block_latest"} {
		if b := testkit.Read(t, "testdata/"+name+".h5"); !HasSignature(b) || HasSignature(b[1:]) {
			t.Error(name)
		}
	}
	if _, err := Open(t.Context(), inMemory(t, make([]byte, 5000))); !errors.Is(err, ErrNotHDF5) {
		t.Error(err)
	}
}

// Chunks that were read with others are the same as those that are read alone, and a walk
// through them can end early.
func TestChunksAreKnownAhead(t *testing.T) {
	f := openBytes(t, testkit.Read(t, "testdata/chunks_latest.h5"))
	var ahead [][]Chunk
	for _, opt := range []WalkOptions{{Chunks: 1 << 20}, {}} {
		i := 0
		for o, err := range f.Walk(t.Context(), opt) {
			if err != nil {
				t.Fatal(err)
			}
			var all []Chunk
			for c, err := range o.Chunks(t.Context()) {
				if err != nil {
					t.Fatal(err)
				}
				all = append(all, c)
			}
			for range o.Chunks(t.Context()) {
				break
			}
			if opt.Chunks > 0 {
				ahead = append(ahead, all)
			} else if !slices.EqualFunc(all, ahead[i], func(a, b Chunk) bool {
				return slices.Equal(a.Offset, b.Offset) && a.Addr == b.Addr && a.Size == b.Size && a.Mask == b.Mask
			}) {
				t.Errorf("%s: %v and %v", o.Path, all, ahead[i])
			}
			i++
		}
	}
}

// A chunk that is stored is decoded by itself, as verifying does.
func TestStoredChunksAreDecoded(t *testing.T) {
	b := testkit.Read(t, "testdata/filters_latest.h5")
	f := openBytes(t, b)
	n := 0
	for o, err := range f.Walk(t.Context(), none) {
		if err != nil {
			t.Fatal(err)
		}
		if o.Readable() != nil {
			continue
		}
		for c, err := range o.Chunks(t.Context()) {
			if err != nil {
				t.Fatal(err)
			}
			raw, err := o.Decode(c, b[c.Addr:][:c.Size])
			if err != nil || len(raw) == 0 {
				t.Errorf("%s: %v", o.Path, err)
			}
			if _, err := o.Decode(c, b[c.Addr:][:c.Size/2]); !errors.Is(err, ErrCorrupt) {
				t.Errorf("%s: half of a chunk: %v", o.Path, err)
			}
			n++
		}
	}
	if n < 100 {
		t.Errorf("only %d chunks", n)
	}
}

func TestLinksOfProgramsAreNamed(t *testing.T) {
	f := within(t, nil)
	for want, b := range map[string]string{
		"{mine 200 0   -1}":                            "\x01\x08\xc8\x04mine\x02\x00ab",
		"{n 0 4660   7}":                               "\x01\x0c\x00\x07\x00\x00\x00\x00\x00\x00\x00\x01n\x34\x12\x00\x00\x00\x00\x00\x00",
		"{n 64 0 /x other.h5 -1}":                      "\x01\x18\x40\x01\x01n\x0d\x00\x00other.h5\x00/x\x00",
		"version 2 of links is not supported":          "\x02",
		"version 1 of external links is not supported": "\x01\x08\x40\x01n\x01\x00\x10",
		"it ends early, after 5 bytes":                 "\x01\x00\x09na",
		"a link without a name":                        "\x01\x00\x00\x34\x12\x00\x00\x00\x00\x00\x00",
	} {
		l, err := f.parseLink([]byte(b))
		got := fmt.Sprintf("{%s %d %d %s %s %d}", l.Name, l.Kind, l.Addr, l.Target, l.File, l.Order)
		if err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%q: %s, expected %s", b, got, want)
		}
	}
}
