package oak

import (
	"encoding/json"
	"errors"
	"io/fs"
	"slices"
	"strings"
	"testing"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/oak/internal/segment"
	"github.com/holdall/holdall/store/storetest"
)

func openNodes(t testing.TB, st *storetest.Mem, param map[string]string) *Tree {
	t.Helper()
	s, err := OpenStore(t.Context(), st, "s", format.OpenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	tree, err := s.Tree(t.Context(), param)
	if err != nil {
		t.Fatal(err)
	}
	return tree
}

func where(t testing.TB, all ...string) (ws []Where) {
	t.Helper()
	for _, s := range all {
		w, err := ParseWhere(s)
		if err != nil {
			t.Fatal(err)
		}
		ws = append(ws, w)
	}
	return ws
}

func find(t testing.TB, tree *Tree, name string, o FindOptions) (paths []string) {
	t.Helper()
	for f, err := range tree.Find(t.Context(), name, o) {
		if err != nil {
			t.Fatal(err)
		}
		paths = append(paths, f.Path+f.Lost)
	}
	return paths
}

func TestNodesAreFoundByTheirProperties(t *testing.T) {
	st := madeStore(t, func(m maker) segment.RecordID {
		one := m.node(typed("cq:Page", single("cq:lastModified", segment.Date, text("2026-03-01T12:00:00.000+02:00")), single("n", segment.Integer, text("9")), single("w", segment.Double, text("1.5E3"))))
		two := m.node(typed("cq:Page", single("cq:lastModified", segment.Date, text("2025-12-31T23:30:00.000-02:00")), single("n", segment.Integer, text("10")), several("tags", segment.String, text("x"), text("yes")),
			single("d", segment.Decimal, text("1E+400"))))
		three := m.node([]segment.NewProperty{single("n", segment.String, text("9")), single("data", segment.Binary, m.binary(noise(20000))), single("bool", segment.Boolean, text("true")), several("tags", segment.String)})
		return m.node(typed("rep:root"), segment.Child{Name: "a", Node: m.node(nil, segment.Child{Name: "one", Node: one}, segment.Child{Name: "a%2Fb", Node: two})}, segment.Child{Name: "three", Node: three})
	})
	tree := openNodes(t, st, nil)
	const one, two, three = "/a/one", "/a/a%252Fb", "/three"
	for _, c := range []struct {
		where string // separated by spaces
		want  []string
	}{
		{"jcr:primaryType=cq:Page", []string{one, two}},
		{"jcr:primaryType!=cq:Page", []string{"/"}},
		{"!jcr:primaryType", []string{"/a", three}},
		{"jcr:primaryType cq:lastModified>2026-01-01", []string{one, two}}, // 23:30 west of Greenwich is the next day there
		{"cq:lastModified>=2026-01-01T01:30:01Z", []string{one}},
		{"cq:lastModified=2026-03-01T10:00:00Z", []string{one}},
		{"cq:lastModified!=2026-03-01T10:00:00Z", []string{two}},
		{"cq:lastModified~+02:00", []string{one}},
		{"n>9", []string{two}},
		{"n=9", []string{one, three}},
		{"n=9.0", []string{one}},
		{"n<=10", []string{one, two}},
		{"n>=9 !bool", []string{one, two}},
		{"w=1500", []string{one}},
		{"d>1E399", []string{two}},
		{"tags=yes", []string{two}},
		{"tags!=yes", []string{three}},
		{"tags", []string{two, three}},
		{"data>19999", []string{three}},
		{"data<20000", nil},
		{"bool=true", []string{three}},
		{"none", nil},
		{"cq:lastModified>z", nil},
	} {
		got := find(t, tree, "/", FindOptions{Where: where(t, strings.Fields(c.where)...)})
		slices.Sort(got)
		slices.Sort(c.want)
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, expected %q", c.where, got, c.want)
		}
	}
	if got := find(t, tree, "a", FindOptions{Name: func(s string) bool { return s == "one" }}); !slices.Equal(got, []string{one}) {
		t.Errorf("by name: %q", got)
	}
	for f, err := range tree.Find(t.Context(), "/a/one", FindOptions{Properties: true}) {
		var props map[string]struct{ Type, Value string }
		if err := errors.Join(err, json.Unmarshal(f.Properties, &props)); err != nil || props["n"].Value != "9" || props["n"].Type != "Long" {
			t.Errorf("%s, %v", f.Properties, err)
		}
	}
	for _, err := range tree.Find(t.Context(), "/none", FindOptions{}) {
		if !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("a node that is not there: %v", err)
		}
	}
}

// A search finds what the lines of an export contain, from any node on.
func TestASearchGoesOnWhereItEnded(t *testing.T) {
	tree := openNodes(t, fixture(t, "checkpoints"), nil)
	all := find(t, tree, "/", FindOptions{})
	if len(all) < 10 {
		t.Fatalf("%d nodes", len(all))
	}
	for _, i := range []int{0, len(all) / 2, len(all) - 1} {
		if got := find(t, tree, "/", FindOptions{After: all[i]}); !slices.Equal(got, all[i+1:]) {
			t.Errorf("after %s: %d nodes, expected %d", all[i], len(got), len(all)-i-1)
		}
	}
}

func TestASearchNamesWhatDamageHides(t *testing.T) {
	var lost segment.RecordID
	root := func(m maker) segment.RecordID {
		lost = m.node(typed("cq:Page"))
		if err := m.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		return m.node(nil, segment.Child{Name: "lost", Node: lost}, segment.Child{Name: "there", Node: m.node([]segment.NewProperty{single("x", segment.String, text("1"))})})
	}
	madeStore(t, root)
	tree := openNodes(t, madeStore(t, root, lost.Segment), nil)
	got := find(t, tree, "/", FindOptions{Where: where(t, "x=1")})
	slices.Sort(got)
	if len(got) != 2 || !strings.HasPrefix(got[0], "/lost") || got[0] == "/lost" || got[1] != "/there" {
		t.Errorf("%q", got)
	}
}

func FuzzWhere(f *testing.F) {
	for _, s := range []string{"a", "!a", "a=b", "a!=b", "a<=1E9", "a>2026-01-01", "=", "!", "a~", "a=1e999999999"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		w, err := ParseWhere(s)
		if err != nil {
			return
		}
		said := w.name + w.op + w.text
		if w.op == "!" {
			said = w.op + w.name
		}
		if said != s || w.name == "" {
			t.Errorf("%q is read as %q, %q, %q", s, w.name, w.op, w.text)
		}
	})
}

func TestIndexesAreListedWithWhatTheyTake(t *testing.T) {
	st := madeStore(t, func(m maker) segment.RecordID {
		definition := func(children []segment.Child, props ...segment.NewProperty) segment.RecordID {
			return m.node(typed(definitionType, props...), children...)
		}
		data := m.node(nil, segment.Child{Name: "_0.cfs", Node: m.node([]segment.NewProperty{single(dataName, segment.Binary, m.binary(noise(50_000)))})})
		lucene := definition([]segment.Child{{Name: ":data", Node: data}}, single("type", segment.String, text("lucene")), several("async", segment.String, text("async"), text("nrt")), single("reindexCount", segment.Integer, text("3")))
		property := definition(nil, single("type", segment.String, text("property")), single("reindex", segment.Boolean, text("true")))
		return m.node(nil, segment.Child{Name: "oak:index", Node: m.node(nil, segment.Child{Name: "lucene", Node: lucene}, segment.Child{Name: "other", Node: m.node(nil)})},
			segment.Child{Name: "content", Node: m.node(nil, segment.Child{Name: "oak:index", Node: m.node(nil, segment.Child{Name: "p", Node: property})})})
	})
	tree := openNodes(t, st, nil)
	list := func(path string) (all []QueryIndex) {
		for x, err := range tree.Indexes(t.Context(), path) {
			if err != nil {
				t.Fatal(err)
			}
			if x.Records == 0 {
				t.Errorf("%+v takes nothing", x)
			}
			x.Records = 0
			all = append(all, x)
		}
		slices.SortFunc(all, func(a, b QueryIndex) int { return strings.Compare(a.Path, b.Path) })
		return all
	}
	l := QueryIndex{Path: "/oak:index/lucene", Type: "lucene", Async: "async", ReindexCount: 3, Nodes: 3, Binaries: 50_000}
	p := QueryIndex{Path: "/content/oak:index/p", Type: "property", Reindex: true, Nodes: 1}
	if got := list(IndexesPath); !slices.Equal(got, []QueryIndex{l}) {
		t.Errorf("%+v", got)
	}
	if got := list("/"); !slices.Equal(got, []QueryIndex{p, l}) {
		t.Errorf("%+v", got)
	}
}
