package oak

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"testing"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/kit/sorter"
	"github.com/holdall/holdall/internal/oak/internal/nodejson"
	"github.com/holdall/holdall/internal/oak/internal/segment"
	"github.com/holdall/holdall/store/storetest"
)

// enough is a Writer that ends: a tree in which nodes are shared may have any size.
type enough struct{ bytes.Buffer }

func (e *enough) Write(p []byte) (int, error) {
	if e.Len() > 1<<20 {
		return 0, errEnough
	}
	return e.Buffer.Write(p)
}

// Damage anywhere is reported in lines of the export, or as errors. The output is always a valid
// export.
func FuzzWhatIsSaidOfDamagedTrees(f *testing.F) {
	var first segment.RecordID
	st := madeStore(f, func(m maker) segment.RecordID {
		leaf := m.node([]segment.NewProperty{single("p", segment.String, text("leaf"))})
		other := m.node([]segment.NewProperty{several("texts", segment.String, text("a"), text("\"")), single("b", segment.Binary, m.blob("0123456789#5")), single("q", segment.Binary, m.binary(noise(17_000)))})
		children := manyChildren(100, leaf)
		first = m.node(nil, segment.Child{Name: rootName, Node: m.node(nil, children...)})
		children[3].Node, children[50].Node = other, other
		return m.node([]segment.NewProperty{single("new", segment.Name, text("x"))}, children[1:]...)
	})
	journal := append(fmt.Appendf(nil, "%s root 1600000000000\n", first), st.Get("s/journal.log")...)
	tar := st.Get("s/data00000a.tar")
	s := openStoreOf(f, st)
	var data [][2]int // where records are
	var ids []string
	for _, x := range s.r.tars {
		for i := range x.len() {
			if e := x.at(i); e.ID.IsData() {
				data = append(data, [2]int{int(e.Pos), int(e.Pos) + e.Len})
			}
			ids = append(ids, x.at(i).ID.String())
		}
	}
	for seed := range uint64(20) {
		f.Add(seed, uint8(seed))
	}
	f.Fuzz(func(t *testing.T, seed uint64, changes uint8) {
		rnd := rand.New(rand.NewPCG(seed, 0))
		b := bytes.Clone(tar)
		for range changes % 16 {
			at := data[rnd.IntN(len(data))]
			to := at[0] + rnd.IntN(at[1]-at[0])
			if rnd.IntN(2) == 0 {
				b[to] ^= 1 << rnd.IntN(8)
			} else {
				copy(b[to:at[1]], b[at[0]+rnd.IntN(at[1]-at[0]):][:min(6, at[1]-to)])
			}
		}
		damaged := &storetest.Mem{}
		damaged.Put("s/journal.log", journal)
		damaged.Put("s/data00000a.tar", b)
		if changes&16 == 0 { // or else damage is met by its checksum alone
			resum(t, damaged)
		}
		s := openStoreOf(t, damaged)
		allowed := func(err error) {
			if err != nil && !errors.Is(err, errEnough) && !errors.Is(err, format.ErrCorrupt) {
				t.Errorf("%T: %v", err, err)
			}
		}
		n := 0
		for step, err := range s.History(t.Context(), "/", HistoryOptions{}) {
			allowed(err)
			n += step.Revisions
		}
		if n != 2 {
			t.Errorf("%d revisions", n)
		}
		after, err := s.Tree(t.Context(), nil)
		if err != nil {
			allowed(err)
			return
		}
		fuzzTree(t, after, changes%16 == 0, ids, allowed)
		before, err := s.TreeNamed(t.Context(), first.String())
		if err != nil {
			allowed(err)
			return
		}
		n = 0
		for c, err := range before.Changes(t.Context(), after, "/", ChangesOptions{}) {
			allowed(err)
			if c.String() == "" || n == 3000 {
				break
			}
			n++
		}
		if changes%16 == 0 && n != 10 {
			t.Errorf("%d changes", n)
		}
	})
}

func fuzzTree(t *testing.T, tree *Tree, whole bool, ids []string, allowed func(error)) {
	var w enough
	x, err := tree.Export(t.Context(), &w, "/", wholeTree)
	allowed(err)
	d := nodejson.NewDecoder(bytes.NewReader(w.Bytes()))
	for nodes := int64(0); ; {
		item, derr := d.Next()
		if derr != nil {
			if err == nil && (derr != io.EOF || nodes != x.Nodes) {
				t.Errorf("%v, %d nodes, expected %d", derr, nodes, x.Nodes)
			}
			break
		}
		if item.Kind == nodejson.NodeItem {
			nodes++
		}
	}
	var o enough
	_, err = tree.WriteJSON(t.Context(), &o, "/", 2)
	allowed(err)
	sum, err := tree.Sizes(t.Context(), "/", SizesOptions{Depth: 2})
	allowed(err)
	if err == nil && whole && sum.Binaries != 17_000 { // a damaged length is trusted
		t.Errorf("%+v", sum)
	}
	lost := int64(0)
	scratch := func() (sorter.Scratch, error) { return os.CreateTemp(t.TempDir(), "") }
	for _, err := range tree.Blobs(t.Context(), BlobOptions{Scratch: scratch}, &lost) {
		allowed(err)
	}
	for _, id := range ids {
		_, err := tree.Referrers(t.Context(), id, 1)
		allowed(err)
	}
}
