package segment

import (
	"context"
	"fmt"
	"io/fs"
	"maps"
	"testing"

	"github.com/holdall/holdall/internal/testkit"
)

// given has the segments that a Builder gave away.
type given map[ID]*Segment

func (w given) Segment(_ context.Context, id ID) (*Segment, error) {
	if s := w[id]; s != nil {
		return s, nil
	}
	return nil, fs.ErrNotExist
}

func TestChangesOfChildrenAreWhatTheListsSay(t *testing.T) {
	rnd := testkit.Rand(t)
	w := given{}
	b := NewBuilder(BuilderOptions{}, func(_ context.Context, f Finished) error {
		s, err := Parse(f.ID, f.Data)
		w[f.ID] = s
		return err
	})
	ctx := t.Context()
	var leaves []RecordID
	same := equalHashes(6)
	for i := range 50 {
		id, err := b.Node(ctx, NewNode{Properties: []NewProperty{{Name: "n", Type: Integer, Values: []NewValue{{Text: fmt.Sprint(i)}}}}})
		if err != nil {
			t.Fatal(err)
		}
		leaves = append(leaves, id)
	}
	type version struct {
		id       RecordID
		children map[string]RecordID
	}
	var all []version
	for _, n := range []int{0, 1, 2, 31, 32, 33, 40, 500, 3000} {
		children := map[string]RecordID{}
		for range n {
			name := fmt.Sprint("name ", rnd.IntN(2*n))
			if rnd.IntN(4) == 0 {
				name = same[rnd.IntN(len(same))]
			}
			children[name] = leaves[rnd.IntN(len(leaves))]
		}
		for range 3 {
			var list []Child
			for name, id := range children {
				list = append(list, Child{name, id})
			}
			id, err := b.Node(ctx, NewNode{Children: list})
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, version{id, maps.Clone(children)})
			for range rnd.IntN(5) {
				children[fmt.Sprint("name ", rnd.IntN(2*n+2))] = leaves[rnd.IntN(len(leaves))]
			}
			for name := range children {
				if rnd.IntN(20) == 0 {
					delete(children, name)
				}
			}
		}
	}
	if err := b.Flush(ctx); err != nil {
		t.Fatal(err)
	}
	r := NewReader(w)
	for range 200 {
		x, y := all[rnd.IntN(len(all))], all[rnd.IntN(len(all))]
		want := map[string][2]RecordID{}
		for name, id := range x.children {
			if y.children[name] != id {
				want[name] = [2]RecordID{id, y.children[name]}
			}
		}
		for name, id := range y.children {
			if _, ok := x.children[name]; !ok {
				want[name] = [2]RecordID{{}, id}
			}
		}
		got := map[string][2]RecordID{}
		for c, err := range r.ChildChanges(ctx, x.id, y.id) {
			if _, twice := got[c.Name]; err != nil || twice {
				t.Fatal(c, err)
			}
			got[c.Name] = [2]RecordID{c.Before, c.After}
		}
		if !maps.Equal(got, want) {
			t.Fatalf("of %d and %d children: %d changes, expected %d", len(x.children), len(y.children), len(got), len(want))
		}
	}
}

// What a bucket that is lost had is not known to be new, and the others are compared.
func TestALostBucketIsNoChange(t *testing.T) {
	w := given{}
	b := NewBuilder(BuilderOptions{}, func(_ context.Context, f Finished) error {
		s, err := Parse(f.ID, f.Data)
		w[f.ID] = s
		return err
	})
	ctx := t.Context()
	leaf, err := b.Node(ctx, NewNode{})
	if err != nil {
		t.Fatal(err)
	}
	other, err := b.Node(ctx, NewNode{})
	if err != nil {
		t.Fatal(err)
	}
	var before, after []Child
	for i := range 20_000 {
		c := Child{fmt.Sprintf("a name that is long enough to fill segments %d", i), leaf}
		before = append(before, c)
		if i%1000 == 0 {
			c.Node = other
		}
		after = append(after, c)
	}
	x, err := b.Node(ctx, NewNode{Children: before})
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Flush(ctx); err != nil {
		t.Fatal(err)
	}
	kept := maps.Clone(w)
	y, err := b.Node(ctx, NewNode{Children: after})
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Flush(ctx); err != nil {
		t.Fatal(err)
	}
	for id := range w {
		if _, old := kept[id]; old || id == y.Segment {
			continue
		}
		without := maps.Clone(w)
		delete(without, id)
		changed, lost := 0, 0
		for c, err := range NewReader(without).ChildChanges(ctx, x, y) {
			switch {
			case err != nil:
				lost++
			case c.Before != leaf || c.After != other:
				t.Fatalf("%+v", c)
			default:
				changed++
			}
		}
		if lost == 0 || changed > 20 {
			t.Errorf("%d lost, %d changed", lost, changed)
		}
	}
}
