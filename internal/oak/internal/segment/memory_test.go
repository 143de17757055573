package segment

import (
	"context"
	"io/fs"
	"math/rand/v2"
	"strconv"
	"testing"
)

// memory is a Source with the segments that a Builder wrote.
type memory struct {
	raw    map[ID][]byte
	parsed map[ID]*Segment
	order  []Finished
	asked  map[ID]int
}

func (m *memory) write(_ context.Context, f Finished) error {
	m.raw[f.ID] = f.Data
	m.order = append(m.order, f)
	return nil
}

func (m *memory) Segment(_ context.Context, id ID) (*Segment, error) {
	m.asked[id]++
	if s := m.parsed[id]; s != nil {
		return s, nil
	}
	b, ok := m.raw[id]
	if !ok {
		return nil, fs.ErrNotExist
	}
	s, err := Parse(id, b)
	if err == nil {
		m.parsed[id] = s
	}
	return s, err
}

// sized is a memory that is a Sizer.
type sized struct{ *memory }

func (s sized) Size(_ context.Context, id ID) (int, error) {
	b, ok := s.raw[id]
	if !ok {
		return 0, fs.ErrNotExist
	}
	return len(b), nil
}

func newMemory() *memory {
	return &memory{raw: map[ID][]byte{}, parsed: map[ID]*Segment{}, asked: map[ID]int{}}
}

// newTestBuilder returns a Builder whose segments are the same each time.
func newTestBuilder(seed uint64) (*Builder, *memory) {
	m := newMemory()
	r := rand.New(rand.NewPCG(seed, 0))
	id := func() (id [16]byte) {
		for i := range id {
			id[i] = byte(r.Uint32())
		}
		return id
	}
	return NewBuilder(BuilderOptions{NewID: id, Millis: func() int64 { return 1700000000000 }}, m.write), m
}

// made returns a function that takes results of a Builder which may not fail.
func made(t testing.TB) func(RecordID, error) RecordID {
	return func(id RecordID, err error) RecordID {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return id
	}
}

func flush(t testing.TB, b *Builder) {
	t.Helper()
	if err := b.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func manyNames(n int) (all []string) {
	for i := range n {
		all = append(all, "name"+strconv.Itoa(i))
	}
	return all
}

func textProperty(name, text string) NewProperty {
	return NewProperty{Name: name, Type: String, Values: []NewValue{{Text: text}}}
}

// A sample is a small store: the last of its segments has records of every type.
type sample struct {
	*memory
	last                  *Segment
	root, inner, top, dif RecordID
}

func newSample(t testing.TB) sample {
	b, m := newTestBuilder(1)
	ctx, id := t.Context(), made(t)
	other := id(b.Node(ctx, NewNode{Properties: []NewProperty{textProperty("other", "segment")}}))
	flush(t, b)

	var children []Child
	for _, name := range []string{"one", "two", "three"} {
		children = append(children, Child{name, id(b.Node(ctx, NewNode{Properties: []NewProperty{textProperty("n", name)}}))})
	}
	for _, name := range manyNames(40) {
		children = append(children, Child{name, other})
	}
	long := make([]byte, 17000)
	for i := range long {
		long[i] = 'a' + byte(i%26)
	}
	s := sample{memory: m}
	s.inner = id(b.Node(ctx, NewNode{
		Stable:   RecordID{ID{1: 2, 8: 0xA0}, 7},
		Children: children,
		Properties: []NewProperty{
			{Name: primaryType, Type: Name, Values: []NewValue{{Text: "nt:unstructured"}}},
			{Name: mixinTypes, Type: Name, Multi: true, Values: []NewValue{{Text: "mix:a"}, {Text: "mix:b"}}},
			{Name: "many", Type: Integer, Multi: true, Values: []NewValue{{Text: "1"}, {Text: "2"}, {Text: "3"}}},
			{Name: "none", Type: Integer, Multi: true},
			{Name: "long", Type: String, Values: []NewValue{{Record: id(b.Text(ctx, string(long))), IsID: true}}},
			{Name: "blob", Type: Binary, Values: []NewValue{{Record: id(b.External(ctx, "elsewhere#12")), IsID: true}}},
		},
	}))
	s.root = id(b.Node(ctx, NewNode{Children: []Child{{"inner", s.inner}}}))
	s.top = id(b.Map(ctx, children))
	s.dif = id(b.diff(ctx, s.top, hashed(Child{"two", other})))
	flush(t, b)
	var err error
	if s.last, err = m.Segment(ctx, s.root.Segment); err != nil {
		t.Fatal(err)
	}
	return s
}
