package segment

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// checkBuilt looks for problems in what a Builder wrote, and for segments that precede what they
// refer to.
func checkBuilt(t testing.TB, m *memory) {
	t.Helper()
	seen := map[ID]bool{}
	for _, f := range m.order {
		s, err := Parse(f.ID, f.Data)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range problems(s) {
			t.Error(p)
		}
		for _, ref := range f.Refs {
			if made := ref[6] != 0; made && !seen[ref] {
				t.Errorf("segment %s refers to %s, which was not written before", f.ID, ref)
			}
		}
		if s.RefCount() != len(f.Refs) || s.Generation() != f.Generation {
			t.Errorf("segment %s: %d references, %v", f.ID, s.RefCount(), s.Generation())
		}
		seen[f.ID] = true
	}
}

func TestListsOfAllShapesReadBack(t *testing.T) {
	sizes := []int{0, 1, 2, 254, 255, 256, 510, 511, 65025, 65026, 65025 + 255, 70000, 130051}
	b, m := newTestBuilder(5)
	ids := make([]RecordID, slices.Max(sizes))
	for i := range ids {
		ids[i] = RecordID{ID{8: 0xA0, 15: byte(i % 3)}, int32(i)}
	}
	var lists []RecordID
	for _, n := range sizes {
		id, err := b.Values(t.Context(), ids[:n])
		lists = append(lists, made(t)(id, err))
	}
	flush(t, b)
	r := NewReader(m)
	rnd := rand.New(rand.NewPCG(1, 0))
	for k, n := range sizes {
		l, err := r.ListOf(t.Context(), lists[k])
		if err != nil || l.Len() != n {
			t.Fatal(n, l.Len(), err)
		}
		for range 30 {
			from := rnd.IntN(n + 1)
			to := from + rnd.IntN(min(n-from, 600)+1)
			got, err := collect(l.Range(t.Context(), from, to))
			if err != nil || !slices.Equal(got, ids[from:to]) {
				t.Fatalf("%d: elements %d to %d: %d found, %v", n, from, to, len(got), err)
			}
			if n > 0 {
				i := rnd.IntN(n)
				if id, err := l.At(t.Context(), i); err != nil || id != ids[i] {
					t.Fatal(n, i, id, err)
				}
			}
		}
		if got, err := collect(l.All(t.Context())); err != nil || !slices.Equal(got, ids[:n]) {
			t.Fatal(n, len(got), err)
		}
	}
}

func TestListsGoOnBehindLostBuckets(t *testing.T) {
	b, m := newTestBuilder(6)
	ids := make([]RecordID, 1000)
	for i := range ids {
		ids[i] = RecordID{ID{8: 0xA0}, int32(i)}
	}
	list, err := b.Values(t.Context(), ids)
	made(t)(list, err)
	flush(t, b)
	// The second bucket becomes a value.
	s, err := m.Segment(t.Context(), list.Segment)
	if err != nil {
		t.Fatal(err)
	}
	s.b[s.table+rowLen*2+rowType] = byte(ValueRecord)
	l, err := NewReader(m).ListOf(t.Context(), list)
	if err != nil {
		t.Fatal(err)
	}
	i, lost := 0, 0
	for id, err := range l.All(t.Context()) {
		if err != nil {
			lost++
		} else if id != ids[i] {
			t.Fatal(i, id)
		}
		i++
	}
	if i != 1000 || lost != 255 {
		t.Errorf("%d elements, %d lost", i, lost)
	}
}

// equalHashes returns 2^n names of one Java hash.
func equalHashes(n int) []string {
	all := []string{""}
	for range n {
		var next []string
		for _, s := range all {
			next = append(next, s+"Aa", s+"BB")
		}
		all = next
	}
	return all
}

func TestMapsOfAllShapesReadBack(t *testing.T) {
	odd := []string{"\U0001f600", "￮", "ä", ":hidden", "a b", "", "\x00", "Aa", "BB"}
	cases := map[string][]string{
		"none":      nil,
		"leaf":      manyNames(32),
		"branch":    manyNames(33),
		"two":       manyNames(1500),
		"deep":      manyNames(12000),
		"collision": equalHashes(6),
		"mixed":     append(append(equalHashes(7), manyNames(500)...), odd[:7]...),
		"odd":       odd,
		"long":      {strings.Repeat("x", 20000), strings.Repeat("y", 200)},
	}
	for name, names := range cases {
		t.Run(name, func(t *testing.T) {
			b, m := newTestBuilder(7)
			want := map[string]RecordID{}
			var children []Child
			for i, n := range names {
				want[n] = RecordID{ID{8: 0xA0}, int32(i)}
				children = append(children, Child{n, want[n]})
			}
			id, err := b.Map(t.Context(), children)
			made(t)(id, err)
			flush(t, b)
			checkMap(t, m, id, want)
			if len(names) == 0 {
				return
			}
			// Change the value of one name, then of others, as updates.
			for i, n := range []string{names[0], names[len(names)-1], names[0]} {
				want[n] = RecordID{ID{8: 0xA0, 15: 9}, int32(i)}
				base, err := NewReader(m).Map(t.Context(), id)
				if err != nil {
					t.Fatal(err)
				}
				id, err = b.MapDiff(t.Context(), base, Child{n, want[n]})
				made(t)(id, err)
				flush(t, b)
				checkMap(t, m, id, want)
			}
			checkBuilt(t, m)
		})
	}
}

func checkMap(t *testing.T, m *memory, id RecordID, want map[string]RecordID) {
	t.Helper()
	ctx := t.Context()
	got, err := NewReader(m).Map(ctx, id)
	if err != nil || got.Len() != len(want) {
		t.Fatal(got.Len(), err)
	}
	for n, id := range want {
		if v, ok, err := got.Get(ctx, n); err != nil || !ok || v != id {
			t.Fatalf("%q: %v, %t, %v; expected %v", n, v, ok, err, id)
		}
	}
	for _, n := range []string{"absent", "AaAaAaAaAa", "name", "name-1"} {
		if _, ok, err := got.Get(ctx, n); ok || err != nil {
			t.Fatalf("%q: %t, %v", n, ok, err)
		}
	}
	all, err := collect(got.All(ctx))
	if err != nil || len(all) != len(want) {
		t.Fatal(len(all), err)
	}
	for i, e := range all {
		if want[e.Name] != e.Value {
			t.Fatalf("%q: %v, expected %v", e.Name, e.Value, want[e.Name])
		}
		if i > 0 && hashed(Child{Name: all[i-1].Name}).compare(hashed(Child{Name: e.Name})) >= 0 {
			t.Fatalf("%q comes before %q", all[i-1].Name, e.Name)
		}
	}
	for _, step := range []int{1, 7, 100} {
		if again, err := collect(inSteps(t.Context(), got, step)); err != nil || !slices.Equal(again, all) {
			t.Fatalf("left after each %d: %d, expected %d, %v", step, len(again), len(all), err)
		}
	}
}

// inSteps goes through a map, and leaves it after each so many.
func inSteps(ctx context.Context, m Map, step int) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		var at Place
		for more := true; more; {
			more = false
			n := 0
			for e, err := range m.From(ctx, &at) {
				if !yield(e, err) {
					return
				}
				if n++; n == step {
					more = true
					break
				}
			}
		}
	}
}

func TestAMapOfALowerLevelIsAMap(t *testing.T) {
	// When deletions leave one bucket it becomes the map.
	b, m := newTestBuilder(8)
	want := map[string]RecordID{}
	var all []Child
	for i := 0; len(all) < 100; i++ {
		n := "n" + strconv.Itoa(i)
		if mapIndex(mapHash(n), 0) == 5 {
			want[n] = RecordID{ID{8: 0xA0}, int32(i)}
			all = append(all, Child{n, want[n]})
		}
	}
	w, stop := b.mapOf(inMapOrder(all))
	defer stop()
	id, _ := w.record(t.Context(), 1)
	made(t)(b.done(id))
	flush(t, b)
	checkMap(t, m, id, want)
}

// buildRandom writes a random tree.
func buildRandom(t *testing.T, b *Builder, r *rand.Rand, depth int) RecordID {
	var children []Child
	if depth > 0 {
		for i := range []int{0, 1, 2, 5, 40}[r.IntN(5)] {
			children = append(children, Child{fmt.Sprintf("c%d-%d", i, r.IntN(10)), buildRandom(t, b, r, depth-1)})
		}
	}
	var props []NewProperty
	for i := range []int{0, 1, 3, 10, 300}[r.IntN(5)] {
		p := NewProperty{Name: "p" + strconv.Itoa(i), Type: PropertyType(1 + r.IntN(12)), Multi: r.IntN(3) == 0}
		n := 1
		if p.Multi {
			n = r.IntN(4)
		}
		for range n {
			p.Values = append(p.Values, NewValue{Text: "value " + strconv.Itoa(r.IntN(1000))})
		}
		props = append(props, p)
	}
	id, err := b.Node(t.Context(), NewNode{Properties: props, Children: children})
	return made(t)(id, err)
}

func TestRandomTreesAreWrittenTheSameEachTime(t *testing.T) {
	for seed := range uint64(6) {
		build := func() (*memory, RecordID) {
			b, m := newTestBuilder(seed)
			id := buildRandom(t, b, rand.New(rand.NewPCG(seed, 2)), 3)
			flush(t, b)
			return m, id
		}
		m, id := build()
		again, _ := build()
		if !maps.EqualFunc(m.raw, again.raw, func(x, y []byte) bool { return string(x) == string(y) }) {
			t.Errorf("seed %d: other bytes", seed)
		}
		checkBuilt(t, m)
		nodes := 0
		walkTree(t.Context(), NewReader(m), "", id, func(n expectedNode) {
			nodes++
			if n.Error != "" {
				t.Errorf("seed %d: %s: %s", seed, n.Path, n.Error)
			}
		})
		if nodes == 0 {
			t.Error("no nodes")
		}
	}
}

func TestSegmentsAreFilledAndNotMore(t *testing.T) {
	b, m := newTestBuilder(9)
	for i := range 60000 {
		id, err := b.Text(t.Context(), fmt.Sprintf("text number %d with some more", i))
		made(t)(id, err)
	}
	flush(t, b)
	checkBuilt(t, m)
	for _, f := range m.order[:len(m.order)-1] {
		if len(f.Data) > MaxSize || len(f.Data) < MaxSize-64 {
			t.Errorf("a segment of %d bytes", len(f.Data))
		}
	}
	// One record of nearly a segment, one of more.
	at := func(n int) error {
		ids := make([]hashedChild, n)
		for i := range ids {
			ids[i] = hashedChild{Child: Child{Node: RecordID{ID{8: 0xA0}, 0}}, hash: 1}
		}
		_, err := b.done(b.leaf(t.Context(), ids, leafLevel))
		return err
	}
	if err := at(16000); err != nil {
		t.Error(err)
	}
	var e *Error
	if err := at(17000); !errors.As(err, &e) || e.Class != Limit {
		t.Error(err)
	}
}

func TestNodesAreRefusedThatCannotBe(t *testing.T) {
	some := RecordID{ID{8: 0xA0}, 0}
	for name, n := range map[string]NewNode{
		"a child twice":    {Children: []Child{{"a", some}, {"b", some}, {"a", some}}},
		"a property twice": {Properties: []NewProperty{textProperty("a", ""), textProperty("a", "b")}},
		"no value":         {Properties: []NewProperty{{Name: "a", Type: String}}},
		"no type":          {Properties: []NewProperty{{Name: "a", Values: []NewValue{{}}}}},
	} {
		b, _ := newTestBuilder(10)
		if _, err := b.Node(t.Context(), n); err == nil {
			t.Errorf("%s: written", name)
		}
	}
}

func TestANodeReadsBackAsItWasWritten(t *testing.T) {
	s := newSample(t)
	ctx, r := t.Context(), NewReader(s)
	n, err := r.Node(ctx, s.inner)
	if err != nil {
		t.Fatal(err)
	}
	if id, err := n.StableID(ctx); err != nil || id != (RecordID{ID{1: 2, 8: 0xA0}, 7}) {
		t.Error(id, err)
	}
	want := map[string]string{
		"jcr:primaryType": "[nt:unstructured]", "jcr:mixinTypes": "[mix:a mix:b]", "many": "[1 2 3]", "none": "[]", "blob": "[elsewhere#12]",
	}
	for name, w := range want {
		p, ok, err := n.Property(ctx, name)
		if err != nil || !ok || p.Name != name {
			t.Fatal(name, ok, err)
		}
		var got []string
		for v, err := range p.Values(ctx) {
			if err != nil {
				t.Fatal(err)
			}
			text, err := v.Text(ctx, 100)
			if v.External() {
				text, err = v.BlobID(ctx, 100)
			}
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, text)
		}
		if fmt.Sprint(got) != w {
			t.Errorf("%s: %v, expected %s", name, got, w)
		}
	}
	if _, ok, err := n.Property(ctx, "absent"); ok || err != nil {
		t.Error(ok, err)
	}
	if c, err := n.ChildCount(ctx); c != 43 || err != nil {
		t.Error(c, err)
	}
	one, ok, err := n.Child(ctx, "one")
	if !ok || err != nil {
		t.Fatal(ok, err)
	}
	all, err := collect(n.Children(ctx))
	if err != nil || len(all) != 43 || !slices.ContainsFunc(all, func(e Entry) bool { return e.Value == one }) {
		t.Error(len(all), err)
	}
	d, err := r.Map(ctx, s.dif)
	if err != nil {
		t.Fatal(err)
	}
	if two, ok, err := d.Get(ctx, "two"); err != nil || !ok || two.Segment == s.last.ID() {
		t.Error(two, ok, err)
	}
}

func TestSegmentsGetNewNamesOfTheirKind(t *testing.T) {
	m := newMemory()
	b := NewBuilder(BuilderOptions{Generation: Generation{3, 2, true}}, m.write)
	id, err := b.Binary(t.Context(), strings.NewReader(strings.Repeat("x", 20000)))
	made(t)(id, err)
	flush(t, b)
	if len(m.order) != 2 || !m.order[0].ID.IsBulk() || !m.order[1].ID.IsData() || m.order[0].Generation != (Generation{}) {
		t.Fatal(m.order)
	}
	for _, f := range m.order {
		if f.ID[6]>>4 != 4 {
			t.Error(f.ID)
		}
	}
	s, err := Parse(m.order[1].ID, m.order[1].Data)
	if err != nil || s.Generation() != (Generation{3, 2, true}) {
		t.Fatal(s.Generation(), err)
	}
	if info, err := s.Info(); err != nil || info.Writer != "holdall" || info.Number != 0 {
		t.Error(info, err)
	}
	checkBuilt(t, m)
}
