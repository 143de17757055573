package compact

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"testing"

	"github.com/holdall/holdall/internal/oak/internal/segment"
)

// segments are those of a store.
type segments map[segment.ID][]byte

func (s segments) write(_ context.Context, f segment.Finished) error {
	s[f.ID] = f.Data
	return nil
}

func (s segments) Segment(_ context.Context, id segment.ID) (*segment.Segment, error) {
	b, ok := s[id]
	if !ok {
		return nil, fs.ErrNotExist
	}
	return segment.Parse(id, b)
}

// sample writes a tree with a wide node whose children share some of what is below them, and with
// long values and many of them.
func sample(t *testing.T) (segments, segment.RecordID) {
	t.Helper()
	from := segments{}
	b := segment.NewBuilder(segment.BuilderOptions{}, from.write)
	must := func(id segment.RecordID, err error) segment.RecordID {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return id
	}
	ctx := t.Context()
	long := must(b.Binary(ctx, bytes.NewReader(bytes.Repeat([]byte("binary"), 100_000))))
	text := strings.Repeat("grüße ", 60_000) // blocks in bulk and in data segments
	var many []segment.NewValue
	for i := range 3000 {
		many = append(many, segment.NewValue{Text: fmt.Sprint("value ", i)})
	}
	shared := must(b.Node(ctx, segment.NewNode{Properties: []segment.NewProperty{
		{Name: "data", Type: segment.Binary, Values: []segment.NewValue{{Record: long, IsID: true}}},
		{Name: "text", Type: segment.String, Values: []segment.NewValue{{Text: text}}},
		{Name: "many", Type: segment.String, Multi: true, Values: many},
	}}))
	var children []segment.Child
	for i := range 2000 {
		n := segment.NewNode{
			Properties: []segment.NewProperty{{Name: "i", Type: segment.Integer, Values: []segment.NewValue{{Text: fmt.Sprint(i)}}}},
			Children:   []segment.Child{{Name: "shared", Node: shared}},
		}
		children = append(children, segment.Child{Name: fmt.Sprint("child", i), Node: must(b.Node(ctx, n))})
	}
	root := must(b.Node(ctx, segment.NewNode{Children: children}))
	if err := b.Flush(ctx); err != nil {
		t.Fatal(err)
	}
	return from, root
}

// copied copies a tree into new segments.
func copied(t *testing.T, from segments, o Options, do func(*Copier) (segment.RecordID, error)) (segments, segment.RecordID, *Copier) {
	t.Helper()
	to := segments{}
	b := segment.NewBuilder(segment.BuilderOptions{}, to.write)
	c := New(segment.NewReader(from), b, func(_ context.Context, id segment.ID) error {
		to[id] = from[id]
		return nil
	}, o)
	id, err := do(c)
	if err = errors.Join(err, b.Flush(t.Context())); err != nil {
		t.Fatal(err)
	}
	return to, id, c
}

// shown is all that a tree holds.
func shown(t *testing.T, in segments, id segment.RecordID) (lines []string) {
	t.Helper()
	r := segment.NewReader(in)
	var walk func(path string, id segment.RecordID)
	walk = func(path string, id segment.RecordID) {
		n, err := r.Node(t.Context(), id)
		if err != nil {
			t.Fatal(path, err)
		}
		for p, err := range n.Properties(t.Context()) {
			if err != nil {
				t.Fatal(path, err)
			}
			for v, err := range p.Values(t.Context()) {
				text := ""
				if err == nil {
					text, err = v.Text(t.Context(), 1<<20)
				}
				if err != nil {
					t.Fatal(path, p.Name, err)
				}
				if len(path) < 10 || strings.Contains(path, "child7/") || p.Name == "i" {
					lines = append(lines, fmt.Sprint(path, " ", p.Name, p.Type, p.Multi, text))
				}
			}
		}
		for e, err := range n.Children(t.Context()) {
			if err != nil {
				t.Fatal(path, err)
			}
			if e.Name != "shared" || path == "/child7" {
				walk(path+"/"+e.Name, e.Value)
			}
		}
	}
	walk("", id)
	return lines
}

func TestACopyHoldsTheSame(t *testing.T) {
	from, root := sample(t)
	want := shown(t, from, root)
	for _, limit := range []int{mostKnown, 1, 100} {
		to, id, c := copied(t, from, Options{}, func(c *Copier) (segment.RecordID, error) {
			c.known.limit = limit
			return c.Node(t.Context(), root)
		})
		if got := shown(t, to, id); !slices.Equal(got, want) {
			t.Errorf("%d: %d values, expected %d, or they differ", limit, len(got), len(want))
		}
		if limit == mostKnown && c.Nodes() != 2002 {
			t.Errorf("%d nodes, expected 2002: what is shared is written once", c.Nodes())
		}
	}
}

// The copies of several properties are kept until their node is written.
// Oak keeps the blocks of a binary where they are, and then removes the data segments.
func TestABinaryHasNoBlocksInDataSegments(t *testing.T) {
	from, text := segments{}, strings.Repeat("grüße ", 60_000)
	ctx, b := t.Context(), segment.NewBuilder(segment.BuilderOptions{}, from.write)
	id, err := b.Text(ctx, text)
	if err != nil {
		t.Fatal(err)
	}
	value := []segment.NewValue{{Record: id, IsID: true}}
	root, err := b.Node(ctx, segment.NewNode{Properties: []segment.NewProperty{
		{Name: "a", Type: segment.String, Values: value}, {Name: "b", Type: segment.Binary, Values: value}, {Name: "c", Type: segment.Binary, Multi: true, Values: value},
	}})
	if err == nil {
		err = b.Flush(ctx)
	}
	if err != nil {
		t.Fatal(err)
	}
	to, root, _ := copied(t, from, Options{}, func(c *Copier) (segment.RecordID, error) { return c.Node(t.Context(), root) })
	n, err := segment.NewReader(to).Node(ctx, root)
	if err != nil {
		t.Fatal(err)
	}
	for p, err := range n.Properties(ctx) {
		if err != nil {
			t.Fatal(err)
		}
		for v, err := range p.Values(ctx) {
			if err != nil {
				t.Fatal(err)
			}
			got := make([]byte, v.Len())
			if err := v.ReadAt(ctx, got, 0); err != nil || string(got) != text {
				t.Errorf("%s: %d bytes, %v", p.Name, len(got), err)
			}
			if p.Type == segment.Binary {
				if inData, err := endsInRecord(ctx, v); err != nil || inData {
					t.Errorf("%s: %v, %v", p.Name, inData, err)
				}
			}
		}
	}
}

func TestCopiesOfPropertiesAreTheirOwn(t *testing.T) {
	from, root := sample(t)
	r := segment.NewReader(from)
	child := func(of segment.RecordID, name string) segment.RecordID {
		n, err := r.Node(t.Context(), of)
		if err != nil {
			t.Fatal(err)
		}
		id, ok, err := n.Child(t.Context(), name)
		if err != nil || !ok {
			t.Fatal(name, err)
		}
		return id
	}
	seventh := child(root, "child7")
	shared := child(seventh, "shared")
	to := segments{}
	b := segment.NewBuilder(segment.BuilderOptions{}, to.write)
	c := New(r, b, func(_ context.Context, id segment.ID) error {
		to[id] = from[id]
		return nil
	}, Options{})
	var all []segment.NewProperty
	for _, id := range []segment.RecordID{seventh, shared} {
		n, err := r.Node(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		for p, err := range n.Properties(t.Context()) {
			if err != nil {
				t.Fatal(err)
			}
			x, err := c.Property(t.Context(), p)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, x)
		}
	}
	got, err := b.Node(t.Context(), segment.NewNode{Properties: all})
	if err = errors.Join(err, b.Flush(t.Context())); err != nil {
		t.Fatal(err)
	}
	want := append(shown(t, from, shared), fmt.Sprint("", " ", "i", segment.Integer, false, "7"))
	lines := shown(t, to, got)
	slices.Sort(lines)
	slices.Sort(want)
	if !slices.Equal(lines, want) {
		t.Errorf("%.300q, expected %.300q", lines, want)
	}
}

// What is forgotten is written again, and nothing else goes wrong.
func TestSegmentsThatWereMetFirstAreForgottenFirst(t *testing.T) {
	k := known{limit: 4, m: map[segment.ID][]newRecord{}, index: map[segment.ID]int32{}}
	id := func(s byte, n int32) segment.RecordID { return segment.RecordID{Segment: segment.ID{s}, Number: n} }
	for s := range byte(3) {
		for n := range int32(2) {
			k.put(id(s, n), id(s+100, n+10))
		}
	}
	for s := range byte(3) {
		for n := range int32(2) {
			is, ok := k.get(id(s, n))
			if ok != (s > 0) || ok && is != id(s+100, n+10) {
				t.Errorf("segment %d record %d: %v %v", s, n, is, ok)
			}
		}
	}
	if k.n != 4 {
		t.Errorf("%d are remembered, expected 4", k.n)
	}
}

func TestACopyWithoutAChildHasAnEmptyOneThere(t *testing.T) {
	from, root := sample(t)
	to, id, _ := copied(t, from, Options{}, func(c *Copier) (segment.RecordID, error) { return c.Without(t.Context(), root, "child3") })
	n, err := segment.NewReader(to).Node(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	three, ok, err := n.Child(t.Context(), "child3")
	if !ok || err != nil {
		t.Fatal(ok, err)
	}
	if n, err := segment.NewReader(to).Node(t.Context(), three); err != nil || n.Template().Rule != segment.NoChild || len(n.Template().Properties) > 0 {
		t.Errorf("%+v, %v; expected an empty node", n.Template(), err)
	}
	if count, err := n.ChildCount(t.Context()); count != 2000 || err != nil {
		t.Errorf("%d children, %v", count, err)
	}
}

func TestDamageEndsACopyWithItsPath(t *testing.T) {
	from, root := sample(t)
	for id := range from {
		if id == root.Segment || id.IsBulk() {
			continue
		}
		lost := segments{}
		for other, b := range from {
			if other != id {
				lost[other] = b
			}
		}
		c := New(segment.NewReader(lost), segment.NewBuilder(segment.BuilderOptions{}, segments{}.write), func(context.Context, segment.ID) error { return nil }, Options{})
		_, err := c.Node(t.Context(), root)
		if e, ok := errors.AsType[*Error](err); !ok || !errors.Is(err, fs.ErrNotExist) || !strings.HasPrefix(e.Path, "child") {
			t.Errorf("without %s: %v", id, err)
		}
	}
	c := New(segment.NewReader(from), segment.NewBuilder(segment.BuilderOptions{}, segments{}.write), func(context.Context, segment.ID) error { return nil }, Options{Depth: 1})
	if _, err := c.Node(t.Context(), root); err == nil || !strings.Contains(err.Error(), "shared: tree: expected at most 1 levels") {
		t.Errorf("too deep: %v", err)
	}
}
