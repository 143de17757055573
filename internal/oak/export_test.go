package oak

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"slices"
	"strings"
	"testing"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/oak/internal/nodejson"
	"github.com/holdall/holdall/internal/oak/internal/segment"
	"github.com/holdall/holdall/internal/testkit"
	"github.com/holdall/holdall/store"
)

func openStoreOf(t testing.TB, st store.Store) *Store {
	t.Helper()
	s, err := OpenStore(t.Context(), st, "s", format.OpenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func treeOf(t testing.TB, s *Store, param map[string]string) *Tree {
	t.Helper()
	tree, err := s.Tree(t.Context(), param)
	if err != nil {
		t.Fatal(err)
	}
	return tree
}

func exported(t testing.TB, tree *Tree, name string, o ExportOptions) ([]byte, Exported) {
	t.Helper()
	var b bytes.Buffer
	x, err := tree.Export(t.Context(), &b, name, o)
	if err != nil {
		t.Fatal(err)
	}
	return b.Bytes(), x
}

var wholeTree = ExportOptions{Depth: -1}

// exportedNodes reads an export into the form of the expectations.
func exportedNodes(t testing.TB, export []byte) (all []expectedNode) {
	t.Helper()
	d := nodejson.NewDecoder(bytes.NewReader(export))
	var typ segment.PropertyType
	shown := func(v nodejson.Value) any {
		switch {
		case v.Kind == nodejson.External:
			return map[string]any{"blobId": shownText(v.Content)}
		case typ == segment.Binary:
			return shownBytes([]byte(v.Content))
		}
		return shownText(v.Content)
	}
	for {
		item, err := d.Next()
		if err == io.EOF {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		switch item.Kind {
		case nodejson.NodeItem:
			all = append(all, expectedNode{Path: item.Path, Props: [][3]any{}})
		case nodejson.LostItem:
			all = append(all, expectedNode{Path: item.Path, Props: [][3]any{}, Error: "lost"})
		}
		n := &all[len(all)-1]
		for _, p := range item.Properties {
			said, values := p.Type.String(), []any{}
			if p.Multi {
				said += "[]"
			}
			typ = p.Type
			for _, v := range p.Values {
				values = append(values, shown(v))
			}
			n.Props = append(n.Props, [3]any{p.Name, said, values})
		}
		i := slices.IndexFunc(n.Props, func(p [3]any) bool { return p[0] == item.Property })
		switch item.Kind {
		case nodejson.ValuesItem:
			for _, v := range item.Values {
				n.Props[i][2] = append(n.Props[i][2].([]any), shown(v))
			}
		case nodejson.ContentItem:
			b, err := io.ReadAll(item.Content)
			if err != nil {
				t.Fatal(item.Path, item.Property, err)
			}
			to := any(shownText(string(b)))
			if strings.HasPrefix(n.Props[i][1].(string), "Binary") {
				to = shownBytes(b)
			}
			n.Props[i][2].([]any)[item.From] = to
		}
	}
}

func shownBytes(b []byte) any {
	sum := sha256.Sum256(b)
	return map[string]any{"len": float64(len(b)), "sha256": hex.EncodeToString(sum[:])}
}

// withoutBlobs returns the expectations without contents in a data store.
func withoutBlobs(nodes []expectedNode) []expectedNode {
	for _, n := range nodes {
		for _, p := range n.Props {
			for _, v := range p[2].([]any) {
				if m, ok := v.(map[string]any); ok && m["blobId"] != nil {
					delete(m, "len")
					delete(m, "sha256")
				}
			}
		}
	}
	return nodes
}

func TestExportsAreWhatTheReferenceReads(t *testing.T) {
	testkit.Serial(t)
	for _, name := range testkit.Names(t, "testdata", ".tar.gz", 24) {
		if name == "corrupt-segment-magic" {
			continue // the reference shows less of it: see below
		}
		t.Run(name, func(t *testing.T) {
			want := expectedOf(t, name)
			param := map[string]string{superParam: "true"}
			if name == "two-letters" {
				param[revisionParam] = want.Head.Revision
			}
			b, x := exported(t, treeOf(t, openStoreOf(t, readableFixture(t, name)), param), "/", wholeTree)
			got := exportedNodes(t, b)
			compareNodes(t, got, withoutBlobs(shownPaths(want.Head.Nodes)))
			lost := 0
			for _, n := range got {
				if n.Error != "" {
					lost++
				}
			}
			if x.Nodes != int64(len(got)-lost) || x.Lost != int64(lost) {
				t.Errorf("%+v of %d nodes, %d lost", x, len(got), lost)
			}
		})
	}
}

// An export has what a walk of the view finds. Lost items name their tar if the walk does.
func TestDamageInAnExportIsNamedAndSiblingsAreThere(t *testing.T) {
	st := damagedFurther(t, "corrupt-segment-magic")
	s := openStoreOf(t, st)
	b, x := exported(t, treeOf(t, s, nil), "/", wholeTree)
	nodes, lost := map[string]bool{"/": false}, 0
	for e, err := range openTreeArchive(t, st, nil).Entries(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		damaged := e.Fault != nil && e.Fault.Class != externalBlob
		if damaged {
			lost++
		}
		if e.Kind == format.Dir && e.Attr[typeAttr] == "" {
			nodes[shownPath(e.Name)] = damaged
		}
	}
	if lost == 0 || x.Lost != int64(lost) {
		t.Errorf("%d lost, expected %d", x.Lost, lost)
	}
	got := exportedNodes(t, b)
	if len(got) != len(nodes) {
		t.Errorf("%d nodes, expected %d", len(got), len(nodes))
	}
	for _, n := range got {
		if damaged, ok := nodes[n.Path]; !ok || damaged != (n.Error != "") {
			t.Errorf("%s: %q", n.Path, n.Error)
		}
	}
	for line := range bytes.Lines(b) {
		if bytes.Contains(line, []byte(`"lost":`)) && !bytes.Contains(line, []byte(`"tar":"data00001a.tar"`)) {
			t.Errorf("%s", line)
		}
	}
}

func TestAnExportGoesOnWhereItWasBrokenOff(t *testing.T) {
	testkit.Serial(t)
	rnd := testkit.Rand(t)
	for _, c := range []struct {
		name string
		st   store.Store
	}{{"made", madeStore(t, sampleTree)}, {"wide", fixture(t, "wide")}, {"damaged", fixture(t, "corrupt-segment-magic")}} {
		t.Run(c.name, func(t *testing.T) {
			tree := treeOf(t, openStoreOf(t, c.st), nil)
			whole, _ := exported(t, tree, "/", wholeTree)
			var starts []int
			var paths []string
			at := 0
			for line := range bytes.Lines(whole) {
				var l struct {
					Path, Property string
				}
				if err := json.Unmarshal(line, &l); err != nil {
					t.Fatal(err)
				}
				if l.Property == "" {
					starts, paths = append(starts, at), append(paths, l.Path)
				}
				at += len(line)
			}
			starts = append(starts, len(whole))
			for range 20 {
				i := rnd.IntN(len(paths))
				if rest, _ := exported(t, tree, "/", ExportOptions{Depth: -1, After: paths[i]}); !bytes.Equal(rest, whole[starts[i+1]:]) {
					t.Fatalf("behind %q: %d bytes, expected %d", paths[i], len(rest), len(whole)-starts[i+1])
				}
				cut := rnd.IntN(len(whole))
				from, off, err := ResumeExport(bytes.NewReader(whole), int64(cut))
				if err != nil || off > int64(cut) {
					t.Fatal(cut, off, err)
				}
				if rest, _ := exported(t, tree, "/", ExportOptions{Depth: -1, From: from}); !bytes.Equal(rest, whole[off:]) {
					t.Fatalf("cut at %d, from %q: %d bytes, expected %d", cut, from, len(rest), len(whole)-int(off))
				}
			}
		})
	}
}

func TestAnExportHasTheLevelsThatAreAskedFor(t *testing.T) {
	tree := treeOf(t, openStoreOf(t, madeStore(t, sampleTree)), nil)
	for _, c := range []struct {
		name  string
		o     ExportOptions
		nodes int
	}{
		{"/", ExportOptions{NoBinaries: true}, 1},
		{"file", ExportOptions{Depth: 1}, 2},
		{"/file/", ExportOptions{Depth: 0}, 1},
		{"/file/jcr:content", ExportOptions{Depth: -1}, 1},
		{"/file", ExportOptions{Depth: -1, After: "/file"}, 1},
		{"/file", ExportOptions{Depth: 0, After: "/file"}, 0},
		{"/file", ExportOptions{Depth: -1, After: "/file/jcr:content"}, 0},
	} {
		if b, x := exported(t, tree, c.name, c.o); bytes.Count(b, []byte("\n")) != c.nodes || x.Nodes != int64(c.nodes) {
			t.Errorf("%s %+v: %+v, expected %d nodes:\n%s", c.name, c.o, x, c.nodes, b)
		}
	}
	for _, c := range []struct {
		name string
		o    ExportOptions
	}{{"/none", wholeTree}, {"/file", ExportOptions{Depth: -1, After: "/none"}}, {"/", ExportOptions{Depth: -1, After: "/file/none"}}, {"/file/jcr:content/jcr:data", wholeTree}} {
		if x, err := tree.Export(t.Context(), io.Discard, c.name, c.o); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s %+v: %+v, %v", c.name, c.o, x, err)
		}
	}
	b, _ := exported(t, tree, "/", ExportOptions{Depth: 0, NoBinaries: true})
	if !bytes.Contains(b, []byte(`"large":{"type":"Binary","length":529288}`)) || bytes.Contains(b, []byte("base64")) {
		t.Errorf("%.2000s", b)
	}
}

func TestANodeThatIsBelowItselfEndsAnExportThere(t *testing.T) {
	// The first pass is only for the name of the node.
	var self, parent segment.RecordID
	build := func(m maker) segment.RecordID {
		parent = m.node(nil, segment.Child{Name: "again", Node: self}, segment.Child{Name: "too", Node: self})
		return parent
	}
	madeStore(t, build)
	for range 3 {
		self = parent
		st := madeStore(t, build)
		if self != parent {
			continue
		}
		b, x := exported(t, treeOf(t, openStoreOf(t, st), nil), "/", wholeTree)
		if x.Nodes != 1 || x.Lost != 2 || bytes.Count(b, []byte("contains itself")) != 2 {
			t.Errorf("%+v\n%.500s", x, b)
		}
		return
	}
	t.Fatal("no node that is below itself was made")
}

func TestANodeIsAnObjectWithItsChildren(t *testing.T) {
	tree := treeOf(t, openStoreOf(t, madeStore(t, sampleTree)), nil)
	written := func(name string, depth int) string {
		var b bytes.Buffer
		if lost, err := tree.WriteJSON(t.Context(), &b, name, depth); err != nil || lost != 0 || !json.Valid(b.Bytes()) {
			t.Fatal(lost, err, b.String())
		}
		return b.String()
	}
	const content = `{"path":"/file/jcr:content","properties":{`
	if s := written("file", 0); !strings.HasSuffix(s, `"child_count":1,"children":["jcr:content"]}`+"\n") {
		t.Error(s)
	}
	if s := written("/file", 1); !strings.Contains(s, `"child_count":1,"children":[`+content) || !strings.HasSuffix(s, `"child_count":0,"children":[]}]}`+"\n") {
		t.Error(s)
	}
	if s := written("/jcr:primaryType", 0); s != `{"type":"Name","value":"rep:root"}`+"\n" {
		t.Error(s)
	}
	var all struct {
		Count    int `json:"child_count"`
		Children []string
	}
	if err := json.Unmarshal([]byte(written("/", 0)), &all); err != nil || all.Count != len(all.Children) || !slices.Contains(all.Children, "x%2Fy") {
		t.Error(err, all.Count, len(all.Children))
	}
	wide := treeOf(t, openStoreOf(t, madeStore(t, func(m maker) segment.RecordID { return m.node(nil, manyChildren(3000, m.node(nil))...) })), nil)
	var b bytes.Buffer
	if _, err := wide.WriteJSON(t.Context(), &b, "/", 0); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b.Bytes(), &all); err != nil || all.Count != 3000 || len(all.Children) != mostListed {
		t.Error(err, all.Count, len(all.Children))
	}
	for _, c := range []struct {
		name string
		want error
	}{{"/nothing", fs.ErrNotExist}, {"/binaries/1", fs.ErrInvalid}} {
		if _, err := tree.WriteJSON(t.Context(), io.Discard, c.name, 0); !errors.Is(err, c.want) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}
