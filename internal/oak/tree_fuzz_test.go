package oak

import (
	"bytes"
	"errors"
	"io/fs"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/holdall/holdall/codec"
	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/kit/naming"
	"github.com/holdall/holdall/internal/oak/internal/segment"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storetest"
)

func FuzzNamesComeBack(f *testing.F) {
	for _, s := range []string{"", ".", "..", "%", "%41", "%4a", "a%prop", "%lost3", "a:b", "jcr:content", "x/y", "\xff", "\\", "%%", "%25", "\u0085", "é"} {
		f.Add(s, "x"+s)
	}
	f.Fuzz(func(t *testing.T, a, b string) {
		for _, top := range []bool{true, false} {
			x, y := writeTreeName(a, top), writeTreeName(b, top)
			if a != b && (x == y || x+propertyMark == y || x == y+propertyMark) {
				t.Errorf("%q and %q are both %q", a, b, x)
			}
			if !fs.ValidPath(x) || x == "." || strings.Contains(x, "/") {
				t.Errorf("%q is %q, which is no element of a path", a, x)
			}
			if fault := naming.Fault(x); top && fault != "" && fault != "name-too-long" {
				t.Errorf("%q is %q, which has fault %s", a, x, fault)
			}
			for _, marked := range []bool{false, true} {
				elem := x
				if marked {
					elem += propertyMark
				}
				if n, ok := readTreeName(elem, top); !ok || n != (treeName{name: a, property: marked}) {
					t.Errorf("%q is %q, which is read as %+v, %v", a, elem, n, ok)
				}
			}
			// And in the other direction: an accepted name is the only way to write it.
			if n, ok := readTreeName(a, top); ok && n.lost == 0 {
				again := writeTreeName(n.name, top)
				if n.property {
					again += propertyMark
				}
				if again != a {
					t.Errorf("%q is read as %+v, which is %q", a, n, again)
				}
			}
		}
	})
}

// fuzzedStores returns a function that damages the records of a store, and gives them new checksums
// unless summed is set.
func fuzzedStores(f *testing.F) func(t *testing.T, seed uint64, changes int, summed bool) *storetest.Mem {
	st := madeStore(f, func(m maker) segment.RecordID {
		leaf := m.node([]segment.NewProperty{single("p", segment.String, text("leaf"))})
		return m.node([]segment.NewProperty{
			single("jcr:primaryType", segment.Name, text(fileType)),
			single(created, segment.Date, text("2020-01-01T00:00:00.000Z")),
			several("texts", segment.String, text("a"), text("\"")),
			several("binaries", segment.Binary, m.binary([]byte("one")), m.binary(noise(17000)), m.blob("0123456789#5")),
		}, manyChildren(40, leaf)...)
	})
	tar := st.Get("s/data00000a.tar")
	var data []int // where records are
	r, err := openTreeOf(f.Context(), st, "s", format.OpenOptions{})
	if err != nil {
		f.Fatal(err)
	}
	for _, x := range r.(*treeReader).tars {
		for i := range x.len() {
			if e := x.at(i); e.ID.IsData() {
				data = append(data, int(e.Pos), int(e.Pos)+e.Len)
			}
		}
	}
	r.Close()
	for seed := range uint64(20) {
		f.Add(seed, uint8(3))
	}
	return func(t *testing.T, seed uint64, changes int, summed bool) *storetest.Mem {
		rnd := rand.New(rand.NewPCG(seed, 0))
		b := bytes.Clone(tar)
		for range changes {
			k := rnd.IntN(len(data)/2) * 2
			at := data[k] + rnd.IntN(data[k+1]-data[k])
			switch rnd.IntN(3) {
			case 0:
				b[at] ^= 1 << rnd.IntN(8)
			case 1:
				b[at] = byte(rnd.IntN(8))
			default:
				copy(b[at:data[k+1]], b[data[k]+rnd.IntN(data[k+1]-data[k]):][:min(6, data[k+1]-at)])
			}
		}
		damaged := st.Clone()
		damaged.Put("s/data00000a.tar", b)
		if !summed {
			resum(t, damaged)
		}
		return damaged
	}
}

// Damage anywhere ends in entries with faults, or errors, and never in a contradiction.
func FuzzDamagedTrees(f *testing.F) {
	fuzzed := fuzzedStores(f)
	f.Fuzz(func(t *testing.T, seed uint64, changes uint8) {
		damaged := fuzzed(t, seed, int(changes%16)+1, changes&16 != 0) // met by its checksum alone
		size := int64(len(damaged.Get("s/data00000a.tar")))
		var from store.Store = damaged
		if seed%2 == 0 {
			from = near{damaged}
		}
		r, err := openTreeOf(t.Context(), from, "s", format.OpenOptions{Limits: format.Limits{Depth: 6}, NoVerify: changes&32 != 0})
		if err != nil {
			if _, ok := errors.AsType[*format.CorruptError](err); !ok {
				t.Errorf("%T: %v", err, err)
			}
			return
		}
		defer r.Close()
		n := 0
		for e, err := range r.Entries(t.Context()) {
			if err != nil {
				t.Fatalf("%T: %v", err, err)
			}
			if n++; n > 3000 {
				break // a loop makes a tree of any size
			}
			if e.Fault != nil && (e.Fault.Code == "" || e.Fault.Class == "" || e.Fault.Message == "" || e.Fault.Entry != e.Name) {
				t.Errorf("%q: %+v", e.Name, e.Fault)
			}
			got, err := r.Lookup(t.Context(), e.Name)
			if err != nil && !errors.Is(err, format.ErrCorrupt) && !errors.Is(err, fs.ErrNotExist) || err == nil && got.Name != e.Name {
				t.Errorf("%q: %+v, %T: %v", e.Name, got, err, err)
			}
			at := int64(0)
			for x, err := range r.Extents(t.Context(), e, 0, e.Size) {
				if err != nil {
					if !errors.Is(err, format.ErrCorrupt) {
						t.Errorf("%q: %T: %v", e.Name, err, err)
					}
					break
				}
				if x.At != at || x.Size <= 0 || x.Codec == "" && x.Off+x.Len > size || x.Codec == codec.Inline && int64(len(x.Data)) != x.Size {
					t.Errorf("%q: %+v", e.Name, x)
				}
				at += x.Size
			}
		}
		for _, err := range r.ReadDir(t.Context(), ".") {
			if err != nil && !errors.Is(err, format.ErrCorrupt) {
				t.Errorf("%T: %v", err, err)
			}
		}
		if _, err := r.About(t.Context()); err != nil {
			t.Error(err)
		}
	})
}
