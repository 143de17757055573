package oak

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/holdall/holdall"
	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/zip"
	"github.com/holdall/holdall/internal/oak/internal/segment"
	"github.com/holdall/holdall/internal/oak/internal/vault"
	"github.com/holdall/holdall/internal/testkit"
	"github.com/holdall/holdall/internal/write/pack"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storetest"
)

type testPackage struct{ *holdall.Archive }

func (p testPackage) Open(ctx context.Context, e format.Entry) (io.ReadCloser, error) {
	return p.OpenEntry(ctx, e)
}

// packed writes nodes of a store as a package, and returns what it reported as lost.
func packed(t testing.TB, st store.Store, d Datastore, paths ...string) (testPackage, []string, Exported) {
	t.Helper()
	to := &storetest.Mem{}
	w, err := zip.Format.Create(t.Context(), to, "p.zip", format.CreateOptions{Scratch: pack.NewScratch})
	if err != nil {
		t.Fatal(err)
	}
	var lost []string
	said, err := treeOf(t, openStoreOf(t, st), nil).Package(t.Context(), w, paths, PackageOptions{
		Scratch: pack.NewScratch, Datastore: d, Lost: func(path, what string) { lost = append(lost, path+": "+what) },
	})
	if err != nil {
		t.Fatal(err)
	}
	if said.Lost != int64(len(lost)) {
		t.Errorf("%d lost, and %d told", said.Lost, len(lost))
	}
	return openPackage(t, to), lost, said
}

func openPackage(t testing.TB, st store.Store) testPackage {
	t.Helper()
	in, err := holdall.Open(t.Context(), "p.zip", holdall.OpenOptions{Store: st, Formats: []*format.Format{zip.Format}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { in.Close() })
	return testPackage{in}
}

func importedPackage(t testing.TB, p Package) (*storetest.Mem, Imported) {
	t.Helper()
	st := &storetest.Mem{}
	in, err := ImportPackage(t.Context(), p, st, "s", format.CreateOptions{Scratch: pack.NewScratch})
	if err != nil {
		t.Fatal(err)
	}
	return st, in
}

// linesBelow are sorted, for that is what an order of properties is not part of.
func linesBelow(t testing.TB, st store.Store, path string) []string {
	t.Helper()
	lines, _ := exported(t, treeOf(t, openStoreOf(t, st), nil), path, wholeTree)
	all := strings.Split(string(lines), "\n")
	slices.Sort(all)
	return all
}

func samePackaged(t *testing.T, got, want []string) {
	t.Helper()
	if slices.Equal(got, want) {
		return
	}
	for _, line := range want {
		if !slices.Contains(got, line) {
			t.Errorf("there is no %.300s", line)
		}
	}
	for _, line := range got {
		if !slices.Contains(want, line) {
			t.Errorf("there is %.300s", line)
		}
	}
}

// site is a tree with all that a package has a form for. Its order of properties is that
// in which an importer writes them.
func site(m maker) segment.RecordID {
	file := func(typ string, content []byte, more ...segment.NewProperty) segment.RecordID {
		props := append(more, single(dataName, segment.Binary, m.binary(content)), single(mimeName, segment.String, text("text/plain")),
			single(lastModified, segment.Date, text("2026-11-20T10:11:12.345+01:00")))
		return m.node(typed(fileType, single(created, segment.Date, text("2020-01-01T00:00:00.000Z"))), segment.Child{Name: jcrContent, Node: m.node(typed(typ, props...))})
	}
	leaf := m.node(typed("oak:Unstructured"))
	order := func(names ...string) segment.NewProperty {
		var v []segment.NewValue
		for _, name := range names {
			v = append(v, text(name))
		}
		return several(":childOrder", segment.Name, v...)
	}
	document := []byte(`<jcr:root xmlns:jcr="http://www.jcp.org/jcr/1.0" jcr:primaryType="nt:folder"/>`)
	files := m.node(typed("nt:folder"), segment.Child{Name: "a.txt", Node: file("nt:resource", []byte("A"))}, segment.Child{Name: "b.dir", Node: file("oak:Resource", nil)},
		segment.Child{Name: "doc.xml", Node: file("nt:resource", document)}, segment.Child{Name: "plain.xml", Node: file("nt:resource", []byte("<x/>"))},
		segment.Child{Name: "c.binary", Node: file("nt:resource", []byte("C"))}, segment.Child{Name: ".vlt", Node: leaf}, segment.Child{Name: ".content.xml", Node: leaf},
		segment.Child{Name: "large", Node: file("nt:resource", noise(3<<20), single("jcr:uuid", segment.String, text("u")))})
	plain := m.node(typed("nt:unstructured", several("binaries", segment.Binary, m.binary([]byte("one")), m.binary(noise(30000)), m.binary(nil)),
		several("none", segment.Binary), single("long", segment.String, text(strings.Repeat("grüße\x00 \\,[", 40000))), several("texts", segment.String, text(""), text("a,b"), text("[")),
		several("empty", segment.String, text("")), several("numbers", segment.Decimal, text("1E+400"), text("-0.0")), several("no numbers", segment.Integer),
		single("uri", segment.URI, text(`http://x/\,`)), several("uris", segment.URI, text("a,b"), text("c")), single("name", segment.Name, text("cq:x")),
		order("z", "a[2]", "a", "m")),
		segment.Child{Name: "a", Node: leaf}, segment.Child{Name: "z", Node: leaf}, segment.Child{Name: "m", Node: leaf}, segment.Child{Name: "a[2]", Node: leaf})
	many := m.node(typed("cq:Page", order(".x", "b", "%41", "a")), segment.Child{Name: "a", Node: m.node(typed("sling:OrderedFolder", order()))}, segment.Child{Name: ".x", Node: leaf},
		segment.Child{Name: "b", Node: m.node(typed("cq:Page", order()))}, segment.Child{Name: "%41", Node: leaf})
	content := m.node(typed("sling:OrderedFolder", several("jcr:mixinTypes", segment.Name, text("mix:title")), order("plain", "files", "many", "wide", "cq:_odd")),
		segment.Child{Name: "files", Node: files}, segment.Child{Name: "plain", Node: plain}, segment.Child{Name: "many", Node: many},
		segment.Child{Name: "wide", Node: m.node(typed("sling:Folder"), manyChildren(3000, leaf)...)}, segment.Child{Name: "cq:_odd", Node: m.node(typed("sling:Folder"))})
	hidden := segment.Child{Name: ":hidden", Node: m.node(nil)}
	return m.node(nil, segment.Child{Name: "content", Node: m.node(typed("sling:OrderedFolder", order("my:site")), segment.Child{Name: "cq:site", Node: content}, hidden)},
		segment.Child{Name: "other", Node: leaf})
}

func TestAPackageHasAllThatIsBelow(t *testing.T) {
	testkit.Serial(t)
	st := madeStore(t, site)
	p, lost, said := packed(t, st, Datastore{}, "/content/cq:site", "/other")
	if len(lost) > 0 || said.Nodes < 3000 {
		t.Errorf("%+v, %q", said, lost)
	}
	again, in := importedPackage(t, p)
	mustBeSound(t, again)
	if in.Lost+in.Omitted > 0 {
		t.Errorf("%+v", in)
	}
	for _, path := range []string{"/content/cq:site", "/other"} {
		samePackaged(t, linesBelow(t, again, path), linesBelow(t, st, path))
	}
	lines, _ := exported(t, treeOf(t, openStoreOf(t, again), nil), "/content", ExportOptions{})
	if !strings.Contains(string(lines), `"sling:OrderedFolder"`) {
		t.Errorf("what is above the nodes: %s", lines)
	}
	var names []string
	for e, err := range p.Entries(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, e.Name)
	}
	for _, name := range []string{"META-INF/MANIFEST.MF", "META-INF/vault/properties.xml", "META-INF/vault/filter.xml", "jcr_root/content/.content.xml", "jcr_root/content/_cq_site/.content.xml",
		"jcr_root/content/_cq_site/files/a.txt", "jcr_root/content/_cq_site/files/a.txt.dir/.content.xml", "jcr_root/content/_cq_site/plain/binaries[1].binary",
		"jcr_root/content/_cq_site/files/plain.xml", "jcr_root/content/_cq_site/files/doc.xml/_jcr_content/_jcr_data.binary", "jcr_root/content/_cq_site/many/b/.content.xml"} {
		if !slices.Contains(names, name) {
			t.Errorf("there is no %s in %q", name, names)
		}
	}
}

func TestAPackageIsADonor(t *testing.T) {
	testkit.Long(t)
	whole := madeStore(t, site)
	p, _, _ := packed(t, whole, Datastore{}, "/content/cq:site")
	for _, path := range []string{"/content/cq:site", "/content/cq:site/plain"} {
		st := madeStore(t, site)
		err := onStore(t.Context(), st, func(s *Store) error {
			_, err := s.Remove(t.Context(), path, RemoveOptions{})
			return err
		})
		if err == nil {
			err = onStore(t.Context(), st, func(s *Store) error {
				_, err := s.Replace(t.Context(), path, Donor{Package: p, Scratch: tmp}, ReplaceOptions{})
				return err
			})
		}
		if err != nil {
			t.Fatal(err)
		}
		mustBeSound(t, st)
		samePackaged(t, linesBelow(t, st, "/content"), linesBelow(t, whole, "/content"))
	}
	for path, want := range map[string]string{"/content": "not in the filter", "/other": "not in the filter", "/content/cq:site/nothing": "not exist"} {
		err := onStore(t.Context(), madeStore(t, site), func(s *Store) error {
			_, err := s.Replace(t.Context(), path, Donor{Package: p, Scratch: tmp}, ReplaceOptions{})
			return err
		})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", path, err, want)
		}
	}
}

// A store that has namespaces accepts no others, and maps prefixes by them.
func TestNamespacesOfAPackageAreTheStores(t *testing.T) {
	registered := func(m maker) segment.RecordID {
		has := m.node([]segment.NewProperty{single("jcr", segment.String, text("http://www.jcp.org/jcr/1.0")), single("nt", segment.String, text("http://www.jcp.org/jcr/nt/1.0")), single("own", segment.String, text("http://my"))})
		sorted := m.node([]segment.NewProperty{single(orderableName, segment.Boolean, text("true"))})
		system := m.node(nil, segment.Child{Name: namespacesName, Node: has}, segment.Child{Name: nodeTypesName, Node: m.node(nil, segment.Child{Name: "own:Sorted", Node: sorted})})
		return m.node(nil, segment.Child{Name: systemName, Node: system}, segment.Child{Name: "a", Node: m.node(nil)})
	}
	filter := string(vault.AppendFilter(nil, []string{"/a"}))
	const doc = `<jcr:root xmlns:jcr="http://www.jcp.org/jcr/1.0" xmlns:nt="http://www.jcp.org/jcr/nt/1.0" xmlns:my="%s" jcr:primaryType="my:Sorted"><my:x jcr:primaryType="nt:base"/></jcr:root>`
	for uri, want := range map[string]string{"http://my": "", "http://other": "namespace"} {
		to := &storetest.Mem{}
		putZip(t, to, vault.FilterXML, filter, "jcr_root/a/.content.xml", fmt.Sprintf(doc, uri))
		st := madeStore(t, registered)
		err := onStore(t.Context(), st, func(s *Store) error {
			_, err := s.Replace(t.Context(), "/a", Donor{Package: openPackage(t, to), Scratch: tmp}, ReplaceOptions{})
			return err
		})
		if want != "" {
			if e, ok := errors.AsType[*vault.Error](err); !ok || !strings.Contains(err.Error(), want) || e.Line != 1 {
				t.Errorf("%s: %v", uri, err)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		samePackaged(t, linesBelow(t, st, "/a"), []string{"",
			`{"path":"/a","properties":{"jcr:primaryType":{"type":"Name","value":"own:Sorted"},":childOrder":{"type":"Name","multiple":true,"values":["own:x"]}}}`,
			`{"path":"/a/own:x","properties":{"jcr:primaryType":{"type":"Name","value":"nt:base"}}}`})
	}
}

// putZip writes an archive of names and contents.
func putZip(t testing.TB, st store.Store, files ...string) {
	t.Helper()
	w, err := zip.Format.Create(t.Context(), st, "p.zip", format.CreateOptions{Scratch: pack.NewScratch})
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(files); i += 2 {
		e := format.Entry{Name: files[i], Size: int64(len(files[i+1]))}
		if err := w.Add(t.Context(), e, strings.NewReader(files[i+1])); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := w.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// What a package cannot represent is reported, and the rest is there.
func TestWhatAPackageCannotSayIsTold(t *testing.T) {
	const id = "0123456789abcdef0123456789abcdef01234567"
	st := madeStore(t, func(m maker) segment.RecordID {
		leaf := m.node(typed("nt:unstructured"))
		binary := single("data", segment.Binary, m.binary([]byte("x")))
		return m.node(nil, segment.Child{Name: "a", Node: m.node(typed("nt:unstructured",
			single("strange:p", segment.String, text("x")), single("broken", segment.String, m.binary([]byte("a\xffb"))), single("elsewhere", segment.Binary, m.blob(id+"#5")), single("fine", segment.Binary, m.binary([]byte("y"))),
		), segment.Child{Name: "strange:child", Node: leaf}, segment.Child{Name: "x.dir", Node: m.node(typed("nt:unstructured", binary))},
			segment.Child{Name: "bare", Node: m.node(nil)}, segment.Child{Name: "strange:folder", Node: m.node(typed("nt:folder"))}, segment.Child{Name: "_%", Node: m.node(typed("nt:folder", binary))})})
	})
	p, lost, _ := packed(t, st, Datastore{}, "/a")
	slices.Sort(lost)
	want := []string{"/a property broken: ", "/a property elsewhere: ", "/a property strange:p: ", "/a/_% property data: ", "/a/bare: ", "/a/strange:child: ", "/a/strange:folder: ", "/a/x.dir property data: "}
	if len(lost) != len(want) {
		t.Fatalf("got %s", strings.Join(lost, "\n"))
	}
	for i := range want {
		if !strings.HasPrefix(lost[i], want[i]) {
			t.Errorf("got %q, want %q", lost[i], want[i])
		}
	}
	again, _ := importedPackage(t, p)
	got := strings.Join(linesBelow(t, again, "/a"), "\n")
	for _, want := range []string{`"/a/x.dir"`, `"/a/bare"`, `"/a/_%"`, `"fine":{"type":"Binary","length":1,"base64":"eQ=="}`} {
		if !strings.Contains(got, want) {
			t.Errorf("%s\nhas no %s", got, want)
		}
	}
	if strings.Contains(got, "elsewhere") || strings.Contains(got, "data") {
		t.Errorf("what was lost is there: %s", got)
	}

	blobs := &storetest.Mem{}
	blobs.Put("01/23/45/"+id, []byte("hello"))
	p, lost, _ = packed(t, st, Datastore{Store: blobs}, "/a")
	again, _ = importedPackage(t, p)
	if got := strings.Join(linesBelow(t, again, "/a"), "\n"); len(lost) != len(want)-1 || !strings.Contains(got, `"elsewhere":{"type":"Binary","length":5,"base64":"aGVsbG8="}`) {
		t.Errorf("%q\n%s", lost, got)
	}
}

func TestAPackageOfADamagedStoreHasTheRest(t *testing.T) {
	const top = "/content/cq:site"
	packages := 0 // of which a part is lost, and a part exists
	type harm struct {
		name string
		do   func(*storetest.Mem)
	}
	for _, harm := range testkit.Few(t, 1, []harm{
		{"bulk", func(st *storetest.Mem) { spoilBulk(t, st) }},
		{"every second segment", func(st *storetest.Mem) { spoilRecords(t, st, 2) }},
		{"every third segment", func(st *storetest.Mem) { spoilRecords(t, st, 3) }},
		{"every fifth segment", func(st *storetest.Mem) { spoilRecords(t, st, 5) }},
	}...) {
		t.Run(harm.name, func(t *testing.T) {
			st := madeStore(t, site)
			harm.do(st)
			_, whole := exported(t, treeOf(t, openStoreOf(t, st), nil), top, wholeTree)
			p, lost, got := packed(t, st, Datastore{}, top)
			if whole.Lost > 0 && len(lost) == 0 {
				t.Errorf("nothing is said to be lost; the export lost %d", whole.Lost)
			}
			if got.Nodes > whole.Nodes {
				t.Errorf("%d nodes of %d", got.Nodes, whole.Nodes)
			}
			again, _ := importedPackage(t, p)
			mustBeSound(t, again)
			t.Logf("%d nodes, %d lost; the export has %d and lost %d", got.Nodes, len(lost), whole.Nodes, whole.Lost)
			if len(lost) > 0 && got.Nodes > 1 {
				packages++
			}
		})
	}
	if packages < 2 && !testkit.Race() {
		t.Errorf("%d damaged stores became packages", packages)
	}
}

func TestPathsOfAPackageAreChecked(t *testing.T) {
	st := madeStore(t, site)
	for _, paths := range [][]string{{"/"}, {"/content", "/content/cq:site"}, {"/content/cq:site", "/content"}, {"/nothing"}, {"/content/cq:site/files/b.dir"}} {
		w, err := zip.Format.Create(t.Context(), &storetest.Mem{}, "p.zip", format.CreateOptions{Scratch: pack.NewScratch})
		if err != nil {
			t.Fatal(err)
		}
		_, err = treeOf(t, openStoreOf(t, st), nil).Package(t.Context(), w, paths, PackageOptions{Scratch: pack.NewScratch})
		if err == nil {
			t.Errorf("%q: expected an error", paths)
		}
		w.Abort()
	}
}

// full fails from one entry on.
type full struct {
	format.Writer
	left int
}

var errNoRoom = errors.New("no room")

func (w *full) Add(ctx context.Context, e format.Entry, r io.Reader) error {
	if w.left--; w.left < 0 {
		return errNoRoom
	}
	return w.Writer.Add(ctx, e, r)
}

func TestAPackageThatCannotBeWrittenIsNone(t *testing.T) {
	testkit.Long(t)
	st := madeStore(t, site)
	for n := 0; ; n++ {
		to := &storetest.Mem{}
		w, err := zip.Format.Create(t.Context(), to, "p.zip", format.CreateOptions{Scratch: pack.NewScratch})
		if err != nil {
			t.Fatal(err)
		}
		out := &full{w, n}
		_, err = treeOf(t, openStoreOf(t, st), nil).Package(t.Context(), out, []string{"/content/cq:site"}, PackageOptions{Scratch: pack.NewScratch})
		if err == nil && out.left >= 0 {
			if n < 20 {
				t.Errorf("only %d entries", n)
			}
			return
		}
		if !errors.Is(err, errNoRoom) {
			t.Fatalf("entry %d: %v", n, err)
		}
		if err := w.Abort(); err != nil || to.Get("p.zip") != nil {
			t.Errorf("entry %d: something is there; %v", n, err)
		}
	}
}
