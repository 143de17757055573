package hdf5

import (
	"bytes"
	"fmt"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/holdall/holdall/internal/testkit"
)

// fileOf writes a file with one object, between the superblock and some room, and reads the object.
func fileOf(t testing.TB, o *Object, chunks []Chunk) *Object {
	t.Helper()
	o.Addr = SuperblockSize
	p, err := o.Encode(chunks)
	if err != nil {
		t.Fatalf("%s: %v", o.Path, err)
	}
	p = append(p, make([]byte, 4096)...)
	f := openBytes(t, append(EncodeSuperblock(o.Addr, int64(SuperblockSize+len(p))), p...))
	got, err := f.At(t.Context(), o.Addr)
	if err != nil || got.Err != nil {
		t.Fatalf("%s: %v, %v", o.Path, err, got.Err)
	}
	return got
}

// What was encoded of objects of the fixtures is what is read.
func TestEncodedObjectsAreReadBack(t *testing.T) {
	names, err := filepath.Glob("testdata/*.h5.gz")
	if err != nil || len(names) == 0 {
		t.Fatal(names, err)
	}
	classes := map[Class]bool{}
	for _, name := range names {
		f := openBytes(t, testkit.Read(t, strings.TrimSuffix(name, ".gz")))
		if f.offsets != 8 {
			continue // elements with addresses have other sizes
		}
		for o, err := range f.Walk(t.Context(), WalkOptions{}) {
			if err != nil {
				t.Fatal(err)
			}
			at := fmt.Sprint(name, " ", o.Path)
			if o.Err != nil || o.Kind != Group && o.Kind != Dataset || newer(o.Type) {
				continue
			}
			some := slices.Clone(o.Attributes)
			some = slices.DeleteFunc(some, func(a Attribute) bool { return a.Err != nil || newer(a.Type) })
			want := &Object{Path: o.Path, Kind: o.Kind, Attributes: some, Links: slices.DeleteFunc(slices.Clone(o.Links), func(l Link) bool { return l.Kind > SoftLink }), Type: o.Type, Space: o.Space, Fill: o.Fill,
				Layout: Layout{Class: Contiguous, Addr: undefined, Size: o.Bytes()}}
			got := fileOf(t, want, nil)
			if len(got.Attributes) != len(some) || len(got.Links) != len(want.Links) {
				t.Fatalf("%s: %d attributes and %d links, expected %d and %d", at, len(got.Attributes), len(got.Links), len(some), len(want.Links))
			}
			for i, a := range got.Attributes {
				b := some[i]
				if a.Name != b.Name || !sameType(a.Type, b.Type) || !reflect.DeepEqual(spaceOf(a.Space), spaceOf(b.Space)) || !bytes.Equal(a.Data, b.Data) {
					t.Errorf("%s: attribute %+v, expected %+v", at, a, b)
				}
			}
			for i, l := range got.Links {
				if b := want.Links[i]; l.Name != b.Name || l.Kind != b.Kind || l.Kind == HardLink && l.Addr != b.Addr || l.Target != b.Target {
					t.Errorf("%s: link %+v, expected %+v", at, l, b)
				}
			}
			if o.Kind == Dataset {
				for x := o.Type; x != nil; x = x.Base {
					classes[x.Class] = true
				}
				for _, f := range o.Type.Fields {
					classes[f.Type.Class] = true
				}
				if !sameType(got.Type, o.Type) || !reflect.DeepEqual(got.Space, o.Space) || !bytes.Equal(got.Fill, o.Fill) {
					t.Errorf("%s: %v %v %x, expected %v %v %x", at, got.Type, got.Space, got.Fill, o.Type, o.Space, o.Fill)
				}
			}
		}
	}
	for c := Integer; c <= Array; c++ {
		if c != Time && !classes[c] {
			t.Errorf("no dataset of class %v", c)
		}
	}
}

// newer reports whether a type is or has a reference of HDF5 1.12, which is not encoded.
func newer(t *Datatype) bool {
	if t == nil {
		return false
	}
	return t.Class == Reference && t.Ref > RegionRef || newer(t.Base) || slices.ContainsFunc(t.Fields, func(f Field) bool { return newer(f.Type) })
}

// sameType compares types, but not whether they are committed.
func sameType(a, b *Datatype) bool {
	if a == nil || b == nil {
		return a == b
	}
	x, y := *a, *b
	x.Base, y.Base, x.Fields, y.Fields, x.Committed, y.Committed = nil, nil, nil, nil, 0, 0
	if !reflect.DeepEqual(x, y) || !sameType(a.Base, b.Base) || len(a.Fields) != len(b.Fields) {
		return false
	}
	for i, f := range a.Fields {
		if g := b.Fields[i]; f.Name != g.Name || f.Offset != g.Offset || !sameType(f.Type, g.Type) {
			return false
		}
	}
	return true
}

func TestEncodedGroupsOfAnySizeAreReadBack(t *testing.T) {
	for _, n := range []int{0, 1, compactUpTo, compactUpTo + 1, 4096, 4097, 8193, 8194, 20000} {
		o := &Object{Kind: Group}
		for i := range n {
			l := Link{Name: fmt.Sprintf("name %06d", i), Addr: int64(1000 + i), Order: -1}
			if i%5 == 0 {
				l.Kind, l.Addr, l.Target = SoftLink, 0, strings.Repeat("/far", i%9)
			}
			o.Links = append(o.Links, l)
		}
		if got := fileOf(t, o, nil); !slices.Equal(got.Links, o.Links) {
			t.Errorf("%d links: found %d others", n, len(got.Links))
		}
	}
}

func TestEncodedAttributesOfAnySizeAreReadBack(t *testing.T) {
	byte1 := &Datatype{Class: Integer, Size: 1, Precision: 8}
	for _, sizes := range [][]int{{0}, {65400}, {65535}, {65536, 1}, {1 << 20, 0, 7}, {maxDense - 100}, slices.Repeat([]int{9000}, 200)} {
		o := &Object{Kind: Group}
		for i, n := range sizes {
			o.Attributes = append(o.Attributes, Attribute{Name: fmt.Sprintf("a%04d", i), Type: byte1, Space: Space{Dims: []int64{int64(n)}}, Data: bytes.Repeat([]byte{byte(i + 1)}, n)})
		}
		got := fileOf(t, o, nil)
		for i, a := range o.Attributes {
			if i >= len(got.Attributes) || got.Attributes[i].Name != a.Name || !bytes.Equal(got.Attributes[i].Data, a.Data) {
				t.Fatalf("%v: attribute %d of %d is another", sizes, i, len(got.Attributes))
			}
		}
	}
	o := &Object{Kind: Group, Attributes: []Attribute{{Name: "a", Type: byte1, Space: Space{Dims: []int64{maxDense}}, Data: make([]byte, maxDense)}}}
	if _, err := o.Encode(nil); err == nil {
		t.Error("an attribute that is too large was encoded")
	}
}

func TestEncodedChunksAreReadBack(t *testing.T) {
	for _, filtered := range []bool{false, true} {
		for _, dims := range [][]int64{{1}, {10}, {11}, {1024 * 10}, {1024*10 + 1}, {30, 5000}, {7, 9, 300}} {
			o := &Object{Kind: Dataset, Type: &Datatype{Class: Integer, Size: 2, Precision: 16, Signed: true}, Space: Space{Dims: dims, Max: dims}}
			o.Layout = Layout{Class: Chunked, Chunk: slices.Repeat([]int64{10}, len(dims))}
			o.Space.Max = slices.Clone(dims)
			n := int64(1)
			for i, d := range dims {
				o.Space.Max[i] = max(d, 10)
				n *= ceil(d, 10)
			}
			if filtered {
				o.Filters = []Filter{{ID: filterShuffle, Name: "shuffle", Optional: true, Values: []uint32{2}}, {ID: filterZstd, Name: "zstd", Values: []uint32{3}}}
			}
			chunks, stored := make([]Chunk, n), map[int64]Chunk{}
			for i := range chunks {
				if chunks[i].Addr = -1; i%3 != 1 {
					chunks[i] = Chunk{Addr: int64(i % 40), Size: o.grid().bytes}
					if filtered {
						chunks[i].Size = int64(i % 7)
					}
					stored[int64(i)] = chunks[i]
				}
			}
			got := fileOf(t, o, chunks)
			if !slices.Equal(got.Space.Max, o.Space.Max) || !reflect.DeepEqual(got.Filters, o.Filters) {
				t.Errorf("%v %v, expected %v %v", got.Space, got.Filters, o.Space, o.Filters)
			}
			for c, err := range got.Chunks(t.Context()) {
				if err != nil {
					t.Error(dims, err)
					continue
				}
				i := int64(0)
				for d, at := range c.Offset {
					i = i*ceil(dims[d], 10) + at/10
				}
				if want := stored[i]; c.Addr != want.Addr || c.Size != want.Size {
					t.Errorf("%v: chunk %d: %+v, expected %+v", dims, i, c, want)
				}
				delete(stored, i)
			}
			if len(stored) > 0 {
				t.Errorf("%v: %d chunks are missing", dims, len(stored))
			}
		}
	}
}
