package segment

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"testing"
)

// childrenOf reads all children of a node, and looks up each by its name.
func childrenOf(t *testing.T, r *Reader, id RecordID) map[string]RecordID {
	t.Helper()
	n, err := r.Node(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]RecordID{}
	for c, err := range n.Children(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		all[c.Name] = c.Value
		if got, ok, err := n.Child(t.Context(), c.Name); err != nil || !ok || got != c.Value {
			t.Fatalf("%q: %v %v %v, expected %v", c.Name, got, ok, err, c.Value)
		}
	}
	if k, err := n.ChildCount(t.Context()); err != nil || k != len(all) {
		t.Fatalf("%d children, %v, found %d", k, err, len(all))
	}
	return all
}

// Children change by chance, a few or many at once, over and over.
func TestEditedChildrenAreThoseOfTheEdits(t *testing.T) {
	const seed = 11
	t.Log("seed", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	pools := map[string][]string{"few": manyNames(3), "some": manyNames(60), "many": manyNames(3000), "one hash": equalHashes(6), "mixed": append(equalHashes(7), manyNames(500)...)}
	for name, pool := range pools {
		t.Run(name, func(t *testing.T) {
			b, m := newTestBuilder(7)
			r := NewReader(m)
			want := map[string]RecordID{}
			id := made(t)(b.Node(t.Context(), NewNode{Properties: []NewProperty{textProperty("p", "v")}}))
			flush(t, b)
			for round := range 60 {
				e := Edit{}
				said := map[string]bool{}
				for range 1 + rnd.IntN([]int{1, 3, 1 + len(pool)}[rnd.IntN(3)]) {
					c := Child{Name: pool[rnd.IntN(len(pool))]}
					if said[c.Name] {
						continue
					}
					said[c.Name] = true
					if rnd.IntN(5) < 2 && round%20 < 14 || rnd.IntN(10) == 0 {
						c.Node = RecordID{ID{8: 0xA0}, int32(rnd.IntN(1000))}
						want[c.Name] = c.Node
					} else {
						delete(want, c.Name)
					}
					e.Children = append(e.Children, c)
				}
				n, err := r.Node(t.Context(), id)
				if err != nil {
					t.Fatal(err)
				}
				id = made(t)(b.Edit(t.Context(), n, e))
				flush(t, b)
				if got := childrenOf(t, r, id); !maps.Equal(got, want) {
					t.Fatalf("round %d: %d children, expected %d", round, len(got), len(want))
				}
				n, err = r.Node(t.Context(), id)
				if err != nil {
					t.Fatal(err)
				}
				if p, ok, err := n.Property(t.Context(), "p"); err != nil || !ok || p.Name != "p" {
					t.Fatal(p, ok, err)
				}
			}
			checkBuilt(t, m)
		})
	}
}

// A change of one child among very many writes as much as the way to it takes.
func TestAnEditOfALargeMapIsSmall(t *testing.T) {
	b, m := newTestBuilder(8)
	var children []Child
	for i := range 100_000 {
		children = append(children, Child{fmt.Sprint("name", i), RecordID{ID{8: 0xA0}, int32(i)}})
	}
	id := made(t)(b.Node(t.Context(), NewNode{Children: children}))
	flush(t, b)
	r := NewReader(m)
	n, err := r.Node(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	before := len(m.order)
	for _, c := range []Child{{"name77", RecordID{ID{8: 0xA0}, 1}}, {"other", RecordID{ID{8: 0xA0}, 2}}, {"name5", RecordID{}}} {
		made(t)(b.Edit(t.Context(), n, Edit{Children: []Child{c}}))
	}
	flush(t, b)
	size := 0
	for _, f := range m.order[before:] {
		size += len(f.Data)
	}
	if size > 8000 {
		t.Errorf("three edits take %d bytes", size)
	}
}

// A diff's change is there in an edited map, too.
func TestAnEditKeepsWhatDiffsSay(t *testing.T) {
	b, m := newTestBuilder(9)
	var children []Child
	want := map[string]RecordID{}
	for i, name := range manyNames(100) {
		children = append(children, Child{name, RecordID{ID{8: 0xA0}, int32(i)}})
		want[name] = children[i].Node
	}
	base := made(t)(b.Map(t.Context(), children))
	top := base
	for i := range 3 {
		c := hashed(Child{"name7", RecordID{ID{8: 0xA0}, int32(500 + i)}})
		key := made(t)(b.Text(t.Context(), c.Name))
		top = b.put(t.Context(), Branch, b.draft().u32(diffHead).u32(c.hash).id(key, c.Node, top))
		want["name7"] = c.Node
	}
	id := made(t)(b.Node(t.Context(), NewNode{Written: WrittenChildren{n: 100, id: top}}))
	flush(t, b)
	r := NewReader(m)
	n, err := r.Node(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	want["name9"] = RecordID{ID{8: 0xA0}, 900}
	id = made(t)(b.Edit(t.Context(), n, Edit{Children: []Child{{"name9", want["name9"]}}}))
	flush(t, b)
	if got := childrenOf(t, r, id); !maps.Equal(got, want) {
		t.Errorf("%v, expected %v", got, want)
	}
}
