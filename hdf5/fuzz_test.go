package hdf5

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"testing"

	"github.com/holdall/holdall/internal/testkit"
)

const (
	fuzzLimit = 1 << 20
	fuzzSpare = 64 << 20 // what codecs have for their tables, and files of 1 MiB for theirs
)

var none WalkOptions

// checkMade says whether something took too much memory.
func checkMade(t *testing.T, do func()) {
	t.Helper()
	if n := testkit.Allocated(do); n > fuzzSpare {
		t.Errorf("made %d bytes", n)
	}
}

// checkKind says whether an error is one about what a file holds.
func checkKind(t *testing.T, err error) {
	t.Helper()
	if err != nil && !ofFile(err) && !errors.Is(err, ErrNotHDF5) {
		t.Errorf("an error of no kind: %v", err)
	}
}

// within returns a file that has no superblock.
func within(t testing.TB, b []byte) *File {
	return &File{
		Limit: fuzzLimit, obj: inMemory(t, b), name: "x.h5", size: int64(len(b)), types: map[string]*Datatype{},
		Superblock: Superblock{offsets: 8, lengths: 8, leafK: 4, groupK: 16, chunkK: 32},
	}
}

// exhaust reads all that a file has, and says how many objects that are.
func exhaust(t *testing.T, f *File) (objects int) {
	f.Limit = fuzzLimit
	opt := WalkOptions{Values: true, Chunks: 1000}
	for o, err := range f.Walk(t.Context(), opt) {
		if err != nil {
			t.Fatal(err)
		}
		objects++
		checkKind(t, o.Err)
		for _, a := range o.Attributes {
			checkKind(t, a.Err)
		}
		n := 0
		for _, err := range o.Chunks(t.Context()) {
			n++
			if checkKind(t, err); n > 10000 {
				break
			}
		}
		if size := o.Bytes(); o.Kind == Dataset && size >= 0 && size <= fuzzLimit {
			p := make([]byte, size)
			err := o.Read(t.Context(), p, nil, nil)
			if checkKind(t, err); err == nil {
				_, err = f.Values(t.Context(), o.Type, p)
				checkKind(t, err)
			}
		}
	}
	return objects
}

func FuzzFile(f *testing.F) {
	for _, name := range testkit.Names(f, "testdata", ".h5.gz", fixtures) {
		if b := testkit.Read(f, "testdata/"+name+".h5"); len(b) < 40000 {
			f.Add(b)
		}
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		checkMade(t, func() {
			x, err := Open(t.Context(), inMemory(t, b))
			if checkKind(t, err); err == nil {
				exhaust(t, x)
			}
		})
	})
}

func FuzzSuperblock(f *testing.F) {
	for _, name := range []string{"kinds_earliest", "kinds_latest", "user_block_earliest"} {
		f.Add(testkit.Read(f, "testdata/"+name+".h5")[:1024])
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		x, err := Open(t.Context(), inMemory(t, b))
		if checkKind(t, err); err == nil && (x.Base < 0 || x.offsets > 8 || x.lengths > 8) {
			t.Errorf("%+v", x.Superblock)
		}
	})
}

// addMessages adds all messages of a fixture whose kind is wanted.
func addMessages(f *testing.F, name string, add func(m message)) {
	x := openBytes(f, testkit.Read(f, "testdata/"+name+".h5"))
	for o, err := range x.Walk(f.Context(), none) {
		if err != nil {
			f.Fatal(err)
		}
		h, err := x.wave(f.Context()).header(o.Addr)
		if err != nil {
			f.Fatal(err)
		}
		for _, m := range h.messages {
			add(m)
		}
	}
}

func FuzzDatatype(f *testing.F) {
	for _, name := range []string{"kinds_earliest", "kinds_latest"} {
		addMessages(f, name, func(m message) {
			if m.kind == msgType {
				f.Add(m.data, []byte("0123456789abcdef0123456789abcdef"))
			}
		})
	}
	f.Fuzz(func(t *testing.T, b, element []byte) {
		x := within(t, b)
		checkMade(t, func() {
			typ, err := parseType(x.cursor(b), 0)
			if checkKind(t, err); err != nil {
				return
			}
			if typ.String() == "" || typ.Bool() && typ.Size != 1 {
				t.Errorf("%v", typ)
			}
			if typ.Size > 0 && typ.Size <= 1<<16 {
				_, err = x.Values(t.Context(), typ, bytes.Repeat(append(element, 1), int(typ.Size))[:2*typ.Size])
				checkKind(t, err)
			}
		})
	})
}

// FuzzMessages reads all other messages.
func FuzzMessages(f *testing.F) {
	for _, name := range []string{"kinds_earliest", "chunks_latest", "filters_earliest", "attributes_latest", "links_latest"} {
		addMessages(f, name, func(m message) { f.Add(byte(m.kind), m.flags, m.data) })
	}
	f.Fuzz(func(t *testing.T, kind, flags byte, b []byte) {
		x := within(t, b)
		w := x.wave(t.Context())
		m := message{kind: int(kind), flags: flags, data: b}
		h := &header{messages: []message{m}}
		checkMade(t, func() {
			_, err := w.links(h)
			checkKind(t, err)
			all, err := w.attributes(h)
			checkKind(t, err)
			for _, a := range all {
				checkKind(t, a.Err)
			}
			_, err = parseSpace(x.cursor(b))
			checkKind(t, err)
			typ := &Datatype{Class: Integer, Size: 4, Precision: 32}
			l, err := parseLayout(x.cursor(b), Space{Dims: []int64{20, 30}, Max: []int64{20, 30}}, typ)
			if checkKind(t, err); err == nil && l.Class == Chunked && len(l.Chunk) != 2 {
				t.Errorf("%+v", l)
			}
			_, err = parseFill(x.cursor(b), int(kind), typ)
			checkKind(t, err)
			filters, err := parseFilters(x.cursor(b))
			checkKind(t, err)
			checkKind(t, checkFilters(filters))
		})
	})
}

func FuzzHeader(f *testing.F) {
	for _, name := range []string{"kinds_earliest", "attributes_latest"} {
		b := testkit.Read(f, "testdata/"+name+".h5")
		x := openBytes(f, b)
		for o, err := range x.Walk(f.Context(), none) {
			if err != nil {
				f.Fatal(err)
			}
			f.Add(b[o.Addr:min(o.Addr+600, int64(len(b)))])
		}
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		x := within(t, b)
		o, err := x.At(t.Context(), 0)
		if err != nil {
			t.Fatal(err)
		}
		checkKind(t, o.Err)
	})
}

// addRegions adds the structures of a fixture by one of these names.
func addRegions(f *testing.F, name string, add func(b []byte, what string), what ...string) {
	b := testkit.Read(f, "testdata/"+name+".h5")
	x := openBytes(f, b)
	opt := WalkOptions{Values: true, Chunks: 1 << 20, Seen: func(r Region) {
		for _, w := range what {
			if r.What == w && r.Len < 10000 {
				add(b[r.Off:][:r.Len], w)
			}
		}
	}}
	for _, err := range x.Walk(f.Context(), opt) {
		if err != nil {
			f.Fatal(err)
		}
	}
}

func FuzzHeaps(f *testing.F) {
	for _, name := range []string{"kinds_earliest", "links_latest"} {
		addRegions(f, name, func(b []byte, _ string) { f.Add(b, []byte{0, 22, 0, 0, 0, 4, 0, 0}) }, "local heap", "global heap", "fractal heap")
	}
	f.Fuzz(func(t *testing.T, b, id []byte) {
		x := within(t, b)
		w := x.wave(t.Context())
		checkMade(t, func() {
			if h, err := w.localHeap(0); err != nil {
				checkKind(t, err)
			} else {
				_, err = h.text(1)
				checkKind(t, err)
			}
			all, err := w.collections([]int64{0}, nil)
			if err != nil {
				t.Fatal(err)
			}
			checkKind(t, all[0].err)
			h, err := w.fractalHeap(0, 0)
			if err != nil {
				checkKind(t, err)
				return
			}
			broken := func(err error) error {
				checkKind(t, err)
				return nil
			}
			if id = append(id, make([]byte, h.idSize)...)[:h.idSize]; h.objects([][]byte{id, id}, func(int, []byte) error { return nil }, broken) != nil {
				t.Error("it stopped")
			}
		})
	})
}

func FuzzIndexes(f *testing.F) {
	for _, name := range []string{"chunks_earliest", "chunks_latest", "paged_latest"} {
		addRegions(f, name, func(b []byte, what string) {
			for kind := range byte(6) {
				f.Add(kind, byte(0), b)
			}
		}, "B-tree node", "B-tree header", "fixed array", "extensible array")
	}
	f.Fuzz(func(t *testing.T, kind, filters byte, b []byte) {
		x := within(t, b)
		o := &Object{f: x, Kind: Dataset, Type: &Datatype{Class: Integer, Size: 1, Precision: 8},
			Space:  Space{Dims: []int64{100, 3000}, Max: []int64{100, Unlimited}},
			Layout: Layout{Class: Chunked, Chunk: []int64{10, 7}, Index: IndexKind(kind % 6)}, Filters: make([]Filter, filters%2)}
		checkMade(t, func() {
			n := 0
			for _, err := range o.Chunks(context.Background()) {
				n++
				if checkKind(t, err); n > 10000 {
					break
				}
			}
		})
	})
}

func FuzzMappings(f *testing.F) {
	x := openBytes(f, testkit.Read(f, "testdata/refused_latest.h5"))
	o, err := x.Find(f.Context(), "virtual")
	if err != nil {
		f.Fatal(err)
	}
	all, err := x.wave(f.Context()).collections([]int64{o.Layout.heap}, nil)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(all[o.Layout.heap].object(o.Layout.number))
	f.Fuzz(func(t *testing.T, b []byte) {
		x := within(t, b)
		checkMade(t, func() {
			all, err := x.parseMappings(b)
			checkKind(t, err)
			for _, m := range all[:min(len(all), 100)] {
				for _, s := range []*Selection{m.From, m.In} {
					_, err := s.In([]int64{7, 1 << 40})
					checkKind(t, err)
					_, err = s.axes([]int64{7, 1 << 40})
					checkKind(t, err)
				}
			}
		})
	})
}

func FuzzFilters(f *testing.F) {
	four := []byte{4, 0, 0, 0}
	f.Add(uint16(filterLZF), four, []byte("\x02abc\x20\x02\xe0\x05\x01"))
	f.Add(uint16(filterLZ4), four, []byte("\x00\x00\x00\x00\x00\x00\x00\x08\x00\x00\x00\x04\x00\x00\x00\x04abcd\x00\x00\x00\x04efgh"))
	f.Add(uint16(filterFletcher32), four, []byte("abcd1234"))
	f.Add(uint16(filterShuffle), four, []byte("abcd1234"))
	x := openBytes(f, testkit.Read(f, "testdata/filters_latest.h5"))
	for o, err := range x.Walk(f.Context(), none) {
		if err != nil {
			f.Fatal(err)
		}
		if len(o.Filters) != 1 {
			continue
		}
		for c, err := range o.Chunks(f.Context()) {
			b := make([]byte, c.Size)
			if err == nil {
				err = x.obj.ReadAt(f.Context(), b, c.Addr)
			}
			if err != nil {
				f.Fatal(err)
			}
			var values []byte
			for _, v := range o.Filters[0].Values {
				values = binary.LittleEndian.AppendUint32(values, v)
			}
			f.Add(uint16(o.Filters[0].ID), values, b)
			break
		}
	}
	f.Fuzz(func(t *testing.T, id uint16, values, b []byte) {
		x := Filter{ID: int(id)}
		for ; len(values) >= 4; values = values[4:] {
			x.Values = append(x.Values, binary.LittleEndian.Uint32(values))
		}
		checkMade(t, func() {
			out, err := unfilter([]Filter{x}, 0, b, 2000)
			if checkKind(t, err); err == nil && len(out) != 2000 {
				t.Errorf("%d bytes", len(out))
			}
		})
	})
}
