package newtree

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/holdall/holdall/format/kit/sorter"
	"github.com/holdall/holdall/internal/oak/internal/segment"
	"github.com/holdall/holdall/internal/testkit"
)

func TestMain(m *testing.M) { testkit.SerialPackage(m) }

// written has the segments that a builder gave away.
type written struct {
	all   map[segment.ID][]byte
	order []segment.ID
}

func (m *written) write(_ context.Context, f segment.Finished) error {
	if m.all == nil {
		m.all = map[segment.ID][]byte{}
	}
	if m.all[f.ID] != nil {
		return fmt.Errorf("segment %s comes twice", f.ID)
	}
	m.all[f.ID] = f.Data
	m.order = append(m.order, f.ID)
	return nil
}

func (m *written) Segment(_ context.Context, id segment.ID) (*segment.Segment, error) {
	b, ok := m.all[id]
	if !ok {
		return nil, fs.ErrNotExist
	}
	return segment.Parse(id, b)
}

// scratch gives temporary files, and counts those that are open.
func scratch(t testing.TB, open *int) func() (sorter.Scratch, error) {
	return func() (sorter.Scratch, error) {
		f, err := os.CreateTemp(t.TempDir(), "scratch")
		*open++
		return closing{f, open}, err
	}
}

type closing struct {
	*os.File
	open *int
}

func (c closing) Close() error {
	*c.open--
	return c.File.Close()
}

// A made is a tree under test.
type made struct {
	*Tree
	written
	b    *segment.Builder
	open int
}

func newMade(t testing.TB, o Options) *made {
	m := &made{}
	n := byte(0)
	next := func() (id [16]byte) {
		n++
		id[15] = n
		return id
	}
	bo := segment.BuilderOptions{NewID: next}
	if o.IDs != nil {
		bo.NewID, bo.BulkID = o.IDs.Data, o.IDs.Bulk
	}
	m.b = segment.NewBuilder(bo, m.write)
	o.Scratch = scratch(t, &m.open)
	m.Tree = New(m.b, o)
	return m
}

// close writes the tree, and returns its nodes by path, each as a line of its
// properties.
func (m *made) close(t *testing.T) (map[string]string, segment.RecordID) {
	t.Helper()
	ctx := t.Context()
	root, nodes, err := m.Close(ctx)
	if err == nil {
		err = m.b.Flush(ctx)
	}
	if err != nil || m.open != 0 {
		t.Fatalf("%v, %d scratches are open", err, m.open)
	}
	all := map[string]string{}
	readTree(t, segment.NewReader(m), "", root, all)
	if int(nodes) != len(all) {
		t.Errorf("%d nodes, found %d", nodes, len(all))
	}
	return all, root
}

func readTree(t *testing.T, r *segment.Reader, path string, id segment.RecordID, all map[string]string) {
	t.Helper()
	n, err := r.Node(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for p, err := range n.Properties(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		var values []string
		for v, err := range p.Values(t.Context()) {
			if err != nil {
				t.Fatal(err)
			}
			text := ""
			if v.External() {
				text, err = v.BlobID(t.Context(), 1000)
				text = "at " + text
			} else {
				text, err = v.Text(t.Context(), 1<<24)
			}
			if err != nil {
				t.Fatal(err)
			}
			values = append(values, text)
		}
		lines = append(lines, line(p.Name, p.Type, p.Multi, values...))
	}
	slices.Sort(lines)
	all[path] = strings.Join(lines, ";")
	for c, err := range n.Children(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		readTree(t, r, path+"/"+c.Name, c.Value, all)
	}
}

func line(name string, typ segment.PropertyType, multi bool, values ...string) string {
	for i, v := range values {
		if len(v) > 40 {
			values[i] = fmt.Sprintf("%d bytes %.20s", len(v), v)
		}
	}
	if multi {
		return fmt.Sprintf("%s:%v%q", name, typ, values)
	}
	return fmt.Sprintf("%s:%v=%s", name, typ, values[0])
}

func text(name, value string) segment.NewProperty {
	return segment.NewProperty{Name: name, Type: segment.String, Values: []segment.NewValue{{Text: value}}}
}

func texts(name string, typ segment.PropertyType, values ...string) segment.NewProperty {
	p := segment.NewProperty{Name: name, Type: typ, Multi: true}
	for _, v := range values {
		p.Values = append(p.Values, segment.NewValue{Text: v})
	}
	return p
}

func split(path string) []string {
	if path == "" {
		return nil
	}
	return strings.Split(path[1:], "/")
}

// randomTree returns properties by path.
func randomTree(r *rand.Rand) map[string][]segment.NewProperty {
	all := map[string][]segment.NewProperty{"": nil}
	paths := []string{""}
	for range 20 + r.IntN(400) {
		parent := paths[r.IntN(len(paths))]
		if r.IntN(3) > 0 {
			parent = paths[0]
		}
		path := fmt.Sprintf("%s/%s%d", parent, []string{"n", "Aa", "BB", "ä", "\U0001f600", "a\x00"}[r.IntN(6)], r.IntN(300))
		if all[path] != nil {
			continue
		}
		p := []segment.NewProperty{{Name: "jcr:primaryType", Type: segment.Name, Values: []segment.NewValue{{Text: fmt.Sprint("t", r.IntN(3))}}}}
		if r.IntN(5) == 0 {
			p = append(p, texts("jcr:mixinTypes", segment.Name, []string{"m:a", "m:b", "m:c"}[:r.IntN(4)]...))
		}
		for i := range r.IntN(4) {
			p = append(p, text(fmt.Sprint("p", i), strings.Repeat("x", []int{0, 5, 200, 5000, 17000}[r.IntN(5)])))
		}
		if r.IntN(4) == 0 {
			var many []string
			for i := range []int{0, 1, 2, 300}[r.IntN(4)] {
				many = append(many, fmt.Sprint(i))
			}
			p = append(p, texts("many", segment.Integer, many...))
		}
		all[path] = p
		paths = append(paths, path)
	}
	return all
}

func expected(p []segment.NewProperty) string {
	var lines []string
	for _, p := range p {
		var values []string
		for _, v := range p.Values {
			values = append(values, v.Text)
		}
		lines = append(lines, line(p.Name, p.Type, p.Multi, values...))
	}
	slices.Sort(lines)
	return strings.Join(lines, ";")
}

func TestATreeIsTheSameInWhateverOrderItIsTold(t *testing.T) {
	for seed := range uint64(8) {
		r := rand.New(rand.NewPCG(seed, 0))
		tree := randomTree(r)
		var first segment.RecordID
		for round := range 3 {
			m := newMade(t, Options{Memory: 1})
			paths := slices.Sorted(maps.Keys(tree))
			r.Shuffle(len(paths), func(i, j int) { paths[i], paths[j] = paths[j], paths[i] })
			for _, path := range paths {
				if err := m.Node(t.Context(), split(path), tree[path]); err != nil {
					t.Fatal(err)
				}
			}
			got, root := m.close(t)
			for path, p := range tree {
				if want := expected(p); got[path] != want {
					t.Errorf("seed %d: %q: %.300s, expected %.300s", seed, path, got[path], want)
				}
			}
			if len(got) != len(tree) {
				t.Errorf("seed %d: %d nodes, expected %d", seed, len(got), len(tree))
			}
			if round == 0 {
				first = root
			} else if root.Number != first.Number {
				t.Errorf("seed %d: root %v, in another order %v", seed, first, root)
			}
		}
	}
}

func TestWhatIsToldOfANodeCountsTogether(t *testing.T) {
	ctx := t.Context()
	folder := []segment.NewProperty{text("type", "folder")}
	of := func(name string) Property { return Property{name, segment.String} }
	for name, c := range map[string]struct {
		tell func(m *made) error
		want map[string]string
	}{
		"nothing": {func(*made) error { return nil }, map[string]string{"": ""}},
		"properties come together, of one the last counts": {func(m *made) error {
			return errors.Join(
				m.Node(ctx, split("/a"), []segment.NewProperty{text("x", "1"), text("y", "1")}),
				m.Node(ctx, split("/a"), []segment.NewProperty{text("y", "2"), texts("z", segment.String, "1", "2", "3")}),
				m.Node(ctx, split("/a"), []segment.NewProperty{texts("z", segment.String, "4")}))
		}, map[string]string{"": "", "/a": `x:String=1;y:String=2;z:String["4"]`}},
		"told together or by itself": {func(m *made) error {
			early, _ := m.Read(ctx, strings.NewReader("early"))
			late, _ := m.Read(ctx, strings.NewReader("late"))
			return errors.Join(
				m.Set(split("/a"), of("x"), early), m.Node(ctx, split("/a"), []segment.NewProperty{text("x", "last"), text("y", "first")}),
				m.Set(split("/a"), of("y"), late))
		}, map[string]string{"": "", "/a": "x:String=last;y:String=late"}},
		"several become one": {func(m *made) error {
			return errors.Join(m.Node(ctx, split("/a"), []segment.NewProperty{texts("z", segment.String, "1", "2")}),
				m.Node(ctx, split("/a"), []segment.NewProperty{text("z", "1")}))
		}, map[string]string{"": "", "/a": "z:String=1"}},
		"what is missing is made": {func(m *made) error {
			return m.Node(ctx, split("/a/b/c"), nil)
		}, map[string]string{"": "", "/a": "type:String=missing", "/a/b": "type:String=missing", "/a/b/c": ""}},
		"a fallback is for nodes without properties": {func(m *made) error {
			return errors.Join(m.Fallback(split("/a"), folder), m.Fallback(split("/b"), folder), m.Node(ctx, split("/b"), []segment.NewProperty{text("x", "1")}))
		}, map[string]string{"": "", "/a": "type:String=folder", "/b": "x:String=1"}},
		"bare is without": {func(m *made) error {
			m.Bare()
			return errors.Join(m.Fallback(split("/a"), folder), m.Node(ctx, split("/b/c"), nil))
		}, map[string]string{"": "", "/a": "", "/b": "", "/b/c": ""}},
		"elements without an end are nothing": {func(m *made) error {
			v, err := m.Read(ctx, strings.NewReader("x"))
			return errors.Join(err, m.SetElement(split("/a"), "x", 0, v))
		}, map[string]string{"": "", "/a": ""}},
		"all elements, in any order": {func(m *made) error {
			err := m.SetElements(split("/a"), Property{"x", segment.Binary}, All)
			for _, i := range []int{2, 11, 0, 1, 3, 10, 9, 4, 5, 6, 8, 7} {
				v, rerr := m.Read(ctx, strings.NewReader(fmt.Sprint(i)))
				err = errors.Join(err, rerr, m.SetElement(split("/a"), "x", i, v))
			}
			return err
		}, map[string]string{"": "", "/a": `x:Binary["0" "1" "2" "3" "4" "5" "6" "7" "8" "9" "10" "11"]`}},
		"a data store": {func(m *made) error {
			return m.Set(split("/a"), Property{"x", segment.Binary}, External("abc#3"))
		}, map[string]string{"": "", "/a": "x:Binary=at abc#3"}},
		"records": {func(m *made) error {
			id, err := m.b.Text(ctx, "was written")
			list, lerr := m.b.Values(ctx, []segment.RecordID{id, id})
			return errors.Join(err, lerr, m.Node(ctx, split("/a"), []segment.NewProperty{
				{Name: "x", Type: segment.String, Values: []segment.NewValue{{Record: id, IsID: true}}},
				{Name: "y", Type: segment.String, Multi: true, List: list},
			}))
		}, map[string]string{"": "", "/a": `x:String=was written;y:String["was written" "was written"]`}},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMade(t, Options{Missing: []segment.NewProperty{text("type", "missing")}})
			if err := c.tell(m); err != nil {
				t.Fatal(err)
			}
			if got, _ := m.close(t); !maps.Equal(got, c.want) {
				t.Errorf("found    %q\nexpected %q", got, c.want)
			}
		})
	}
}

func TestAnElementThatIsMissingIsAnError(t *testing.T) {
	for name, n := range map[string]int{"counted": 3, "all": All} {
		m := newMade(t, Options{})
		v, _ := m.Read(t.Context(), strings.NewReader("x"))
		for _, i := range []int{0, 2} {
			if err := m.SetElement([]string{"a"}, "x", i, v); err != nil {
				t.Fatal(err)
			}
		}
		if err := m.SetElements([]string{"a"}, Property{"x", segment.Binary}, n); err != nil {
			t.Fatal(err)
		}
		if _, _, err := m.Close(t.Context()); err == nil || !strings.Contains(err.Error(), "value 1") {
			t.Errorf("%s: error is %v", name, err)
		}
	}
}

func TestContentThatFailsLeavesTheTreeAsItWas(t *testing.T) {
	lost := errors.New("lost")
	for _, n := range []int{10, 20_000, 600_000} {
		m := newMade(t, Options{IDs: NewIDs()})
		content := strings.Repeat("x", n)
		if _, err := m.Read(t.Context(), io.MultiReader(strings.NewReader(content), iotest.ErrReader(lost))); !errors.Is(err, lost) {
			t.Errorf("%d bytes: error is %v", n, err)
		}
		v, err := m.Read(t.Context(), iotest.HalfReader(strings.NewReader(content)))
		if err != nil {
			t.Fatal(err)
		}
		if err := m.Set([]string{"a"}, Property{"x", segment.Binary}, v); err != nil {
			t.Fatal(err)
		}
		got, _ := m.close(t)
		if want := (map[string]string{"": "", "/a": line("x", segment.Binary, false, content)}); !maps.Equal(got, want) {
			t.Errorf("%d bytes: found %q", n, got)
		}
	}
}

func TestPathsThatCannotBeAreRefused(t *testing.T) {
	m := newMade(t, Options{Depth: 3})
	for _, path := range [][]string{{"a", "b", "c", "d"}, {""}, {"a", ""}, {"a/b"}, {strings.Repeat("x", longestPath+1)}} {
		if err := m.Node(t.Context(), path, nil); !errors.Is(err, ErrPath) {
			t.Errorf("%.20q: error is %v", path, err)
		}
	}
	if err := m.Node(t.Context(), []string{"a", "b", "c"}, nil); err != nil {
		t.Error(err)
	}
	if got, _ := m.close(t); len(got) != 4 {
		t.Errorf("%d nodes, expected 4", len(got))
	}
}

func TestATreeMayBeAsDeepAsSaid(t *testing.T) {
	m := newMade(t, Options{})
	deep := slices.Repeat([]string{"d"}, 1000)
	if err := m.Node(t.Context(), deep, nil); err != nil {
		t.Fatal(err)
	}
	if got, _ := m.close(t); len(got) != 1001 {
		t.Errorf("%d nodes, expected 1001", len(got))
	}
}

func TestSegmentsAreNamedByWhatTheTreeIsMadeOf(t *testing.T) {
	build := func(last string) *made {
		m := newMade(t, Options{IDs: NewIDs()})
		for i := range 300 {
			v, err := m.Read(t.Context(), strings.NewReader(strings.Repeat("x", 100*i)))
			if err != nil {
				t.Fatal(err)
			}
			if err := m.Set([]string{fmt.Sprint(i)}, Property{"x", segment.Binary}, v); err != nil {
				t.Fatal(err)
			}
		}
		if err := m.Node(t.Context(), []string{"last"}, []segment.NewProperty{text("x", last)}); err != nil {
			t.Fatal(err)
		}
		m.close(t)
		return m
	}
	one, again, other := build("one"), build("one"), build("other")
	if !maps.EqualFunc(one.all, again.all, bytes.Equal) {
		t.Error("the same tree has other segments")
	}
	bulk := 0
	for id, b := range one.all {
		if id.IsBulk() {
			bulk++
		}
		if o, ok := other.all[id]; ok && !bytes.Equal(b, o) {
			t.Errorf("segment %s is another one in another tree", id)
		}
	}
	if bulk != 300-166 {
		t.Errorf("%d bulk segments, expected %d", bulk, 300-166)
	}
}

func TestATreeStopsWhenToldOrWhenItCannotWrite(t *testing.T) {
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	m := newMade(t, Options{})
	for i := range 10_000 {
		if err := m.Node(gone, []string{fmt.Sprint(i)}, nil); err != nil {
			t.Fatal(err)
		}
	}
	if _, _, err := m.Close(gone); !errors.Is(err, context.Canceled) {
		t.Errorf("error is %v", err)
	}
	full := errors.New("full")
	open := 0
	b := segment.NewBuilder(segment.BuilderOptions{}, func(context.Context, segment.Finished) error { return full })
	tree := New(b, Options{Scratch: scratch(t, &open)})
	if _, err := tree.Read(t.Context(), strings.NewReader(strings.Repeat("x", 300_000))); !errors.Is(err, full) {
		t.Errorf("error is %v", err)
	}
	if err := tree.Node(t.Context(), nil, nil); !errors.Is(err, full) {
		t.Errorf("afterwards: error is %v", err)
	}
	if err := tree.Abort(); err != nil || open != 0 {
		t.Errorf("%v, %d scratches are open", err, open)
	}
}

// lying is room that gives back other bytes.
type lying struct {
	sorter.Scratch
	r *rand.Rand
}

func (l lying) Read(p []byte) (int, error) {
	n, err := l.Scratch.Read(p)
	for range 1 + n/5000 {
		if n > 0 {
			p[l.r.IntN(n)] ^= 1 << l.r.IntN(8)
		}
	}
	return n, err
}

func TestScratchThatLiesDoesNoHarm(t *testing.T) {
	for seed := range uint64(10) {
		r := rand.New(rand.NewPCG(seed, 0))
		open := 0
		room := scratch(t, &open)
		m := newMade(t, Options{})
		m.Tree = New(m.b, Options{Memory: 1, Scratch: func() (sorter.Scratch, error) {
			f, err := room()
			return lying{f, r}, err
		}})
		for i := range 40_000 {
			p := []segment.NewProperty{text("x", fmt.Sprint(i)), texts("y", segment.Integer, "1", "2")}
			if err := m.Node(t.Context(), []string{fmt.Sprint("a", i%50), fmt.Sprint(i)}, p[:1+i%2]); err != nil {
				t.Fatal(err)
			}
		}
		// The damage may not be noticed, but must cause neither a panic nor an endless loop.
		if _, _, err := m.Close(t.Context()); err != nil {
			t.Logf("seed %d: %v", seed, err)
		}
		if open != 0 {
			t.Error("scratch is left open")
		}
	}
}

func TestNodesAreNotHeldInMemory(t *testing.T) {
	const n = 300_000
	for name, path := range map[string]func(i int) []string{
		"wide": func(i int) []string { return []string{fmt.Sprintf("a child of some name %d", i)} },
		"deep": func(i int) []string {
			return []string{fmt.Sprint("a", i%7), fmt.Sprint("b", i/7%50), fmt.Sprint("c", i/350%50), fmt.Sprint(i)}
		},
	} {
		t.Run(name, func(t *testing.T) {
			open, segments := 0, 0
			var most uint64
			look := func() { most = max(most, testkit.Live()) }
			look()
			base := most
			b := segment.NewBuilder(segment.BuilderOptions{}, func(context.Context, segment.Finished) error {
				if segments++; segments%10 == 0 {
					look()
				}
				return nil
			})
			tree := New(b, Options{Scratch: scratch(t, &open), Memory: 8 << 20})
			for i := range n {
				if err := tree.Node(t.Context(), path(i), []segment.NewProperty{text("p", fmt.Sprint(i))}); err != nil {
					t.Fatal(err)
				}
			}
			look()
			_, nodes, err := tree.Close(t.Context())
			if err != nil || nodes < n || segments < 20 {
				t.Errorf("%d nodes, %d segments, %v", nodes, segments, err)
			}
			// Rows, and the strings that a builder remembers.
			if limit := base + 40<<20; most > limit {
				t.Errorf("%d MiB, expected at most %d", most>>20, limit>>20)
			}
		})
	}
}
