package oak

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdall/holdall"
	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/formattest"
	"github.com/holdall/holdall/format/kit/naming"
	"github.com/holdall/holdall/internal/oak/internal/segment"
	"github.com/holdall/holdall/internal/oak/internal/tarfile"
	"github.com/holdall/holdall/internal/testkit"
	"github.com/holdall/holdall/store/storetest"
)

// A maker writes a store of one tar, always with the same ids.
type maker struct {
	t testing.TB
	*segment.Builder
}

func madeStore(t testing.TB, root func(maker) segment.RecordID, without ...segment.ID) *storetest.Mem {
	t.Helper()
	return madeSuper(t, func(m maker) []segment.Child {
		return []segment.Child{{Name: rootName, Node: root(m)}, {Name: checkpointsName, Node: m.node(nil)}}
	}, without...)
}

// madeSuper is madeStore with other children of the super root.
func madeSuper(t testing.TB, children func(maker) []segment.Child, without ...segment.ID) *storetest.Mem {
	t.Helper()
	rnd := rand.New(rand.NewPCG(1, 2))
	var b bytes.Buffer
	w := tarfile.NewWriter(&b, "data00000a.tar", func() time.Time { return time.Unix(1700000000, 0) })
	m := maker{t, segment.NewBuilder(segment.BuilderOptions{
		NewID: func() (id [16]byte) {
			for i := range id {
				id[i] = byte(rnd.Uint32())
			}
			return id
		},
		Millis: func() int64 { return 1700000000000 },
	}, func(_ context.Context, f segment.Finished) error {
		if slices.Contains(without, f.ID) {
			return nil
		}
		var refs tarfile.IDs
		for _, id := range f.Refs {
			refs = append(refs, id[:]...)
		}
		return w.Add(f.ID, f.Generation, f.Data, refs, f.BlobIDs)
	})}
	super := m.node(nil, children(m)...)
	if err := errors.Join(m.Flush(t.Context()), w.Close()); err != nil {
		t.Fatal(err)
	}
	st := &storetest.Mem{}
	st.Put("s/data00000a.tar", b.Bytes())
	st.Put("s/journal.log", fmt.Appendf(nil, "%s root 1700000000000\n", super))
	st.Put("s/manifest", []byte("store.version=2\n"))
	return st
}

func (m maker) node(props []segment.NewProperty, children ...segment.Child) segment.RecordID {
	m.t.Helper()
	id, err := m.Node(m.t.Context(), segment.NewNode{Properties: props, Children: children})
	if err != nil {
		m.t.Fatal(err)
	}
	return id
}

func (m maker) binary(b []byte) segment.NewValue {
	m.t.Helper()
	id, err := m.Binary(m.t.Context(), bytes.NewReader(b))
	if err != nil {
		m.t.Fatal(err)
	}
	return segment.NewValue{Record: id, IsID: true}
}

func (m maker) blob(name string) segment.NewValue {
	m.t.Helper()
	id, err := m.External(m.t.Context(), name)
	if err != nil {
		m.t.Fatal(err)
	}
	return segment.NewValue{Record: id, IsID: true}
}

func single(name string, typ segment.PropertyType, v segment.NewValue) segment.NewProperty {
	return segment.NewProperty{Name: name, Type: typ, Values: []segment.NewValue{v}}
}

func text(s string) segment.NewValue { return segment.NewValue{Text: s} }

func several(name string, typ segment.PropertyType, v ...segment.NewValue) segment.NewProperty {
	return segment.NewProperty{Name: name, Type: typ, Multi: true, Values: v}
}

func noise(n int) []byte { return testkit.Noise(rand.New(rand.NewPCG(uint64(n), 0)), n) }

// sampleTree has each way in which a value can be kept, and names of all kinds.
func sampleTree(m maker) segment.RecordID {
	leaf := m.node([]segment.NewProperty{single("p", segment.String, text("leaf"))})
	resource := m.node([]segment.NewProperty{
		single("jcr:data", segment.Binary, m.binary(noise(20000))),
		single(lastModified, segment.Date, text("2026-11-20T10:11:12.345+01:00")),
	})
	file := m.node([]segment.NewProperty{
		single("jcr:primaryType", segment.Name, text(fileType)),
		single(created, segment.Date, text("2020-01-01T00:00:00.000Z")),
	}, segment.Child{Name: jcrContent, Node: resource})
	return m.node([]segment.NewProperty{
		single("jcr:primaryType", segment.Name, text("rep:root")),
		several("jcr:mixinTypes", segment.Name, text("mix:a"), text("mix:b")),
		single("both", segment.Integer, text("-7")),
		single("a:b", segment.String, text("drive?")),
		single("empty", segment.String, text("")),
		single("large", segment.Binary, m.binary(noise(2*segment.MaxSize+5000))),
		single("text", segment.String, text(strings.Repeat("grüße ", 5000))),
		several("none", segment.Integer),
		several("texts", segment.String, text(""), text("a\"b\\c\nd\x01é"), text(strings.Repeat("x\t", 20000))),
		several("numbers", segment.Decimal, text("1E+400"), text("-0.0")),
		several("binaries", segment.Binary, m.binary([]byte("one")), m.binary(noise(30000)), m.binary(nil)),
		several("no binaries", segment.Binary),
	}, append([]segment.Child{
		{Name: "both", Node: leaf}, {Name: "both%prop", Node: leaf}, {Name: "file", Node: file}, {Name: "", Node: leaf}, {Name: ".", Node: leaf},
		{Name: "..", Node: leaf}, {Name: "x/y", Node: leaf}, {Name: "100%", Node: leaf}, {Name: "%", Node: leaf}, {Name: "%41", Node: leaf},
		{Name: "%lost1", Node: leaf}, {Name: "c:d", Node: leaf}, {Name: "jcr:system", Node: leaf}, {Name: "a\\b", Node: leaf}, {Name: "nul\x00\u0085", Node: leaf},
	}, manyChildren(600, leaf)...)...)
}

func manyChildren(n int, to segment.RecordID) (all []segment.Child) {
	for i := range n {
		all = append(all, segment.Child{Name: fmt.Sprint("child", i), Node: to})
	}
	return all
}

func TestTreesConform(t *testing.T) {
	small := madeStore(t, func(m maker) segment.RecordID {
		return m.node([]segment.NewProperty{
			single("both", segment.Integer, text("-7")),
			several("texts", segment.String, text("a"), text("\"")),
			several("binaries", segment.Binary, m.binary([]byte("one")), m.binary(noise(17000))),
		}, segment.Child{Name: "both", Node: m.node([]segment.NewProperty{single("%", segment.String, text("x"))})}, segment.Child{Name: "..", Node: m.node(nil)})
	})
	for name, st := range map[string]*storetest.Mem{"empty-store": fixture(t, "empty-store"), "made": small} {
		t.Run(name, func(t *testing.T) { formattest.RunArchive(t, treeFormat, objects(t, st), "s") })
	}
}

func TestEveryKindOfValueAndNameIsShown(t *testing.T) {
	a := openTreeArchive(t, madeStore(t, sampleTree), nil)
	in := func(name string) holdall.Entry {
		t.Helper()
		e, err := a.Lookup(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		return e
	}
	for _, c := range []struct {
		name, typ, multiple string
		want                any
	}{
		{"jcr:primaryType", "Name", "", "rep:root"},
		{"jcr:mixinTypes", "Name", "true", []string{"mix:a", "mix:b"}},
		{"both%prop", "Long", "", "-7"},
		{"a%3Ab", "String", "", "drive?"},
		{"empty", "String", "", ""},
		{"large", "Binary", "", string(noise(2*segment.MaxSize + 5000))},
		{"text", "String", "", strings.Repeat("grüße ", 5000)},
		{"none", "Long", "true", []string{}},
		{"texts", "String", "true", []string{"", "a\"b\\c\nd\x01é", strings.Repeat("x\t", 20000)}},
		{"numbers", "Decimal", "true", []string{"1E+400", "-0.0"}},
		{"binaries/0", "Binary", "", "one"},
		{"binaries/1", "Binary", "", string(noise(30000))},
		{"binaries/2", "Binary", "", ""},
		{"both/p", "String", "", "leaf"},
		{"both%25prop/p", "String", "", "leaf"},
		{"%/p", "String", "", "leaf"},
		{"%2E/p", "String", "", "leaf"},
		{"%2E%2E/p", "String", "", "leaf"},
		{"x%2Fy/p", "String", "", "leaf"},
		{"100%/p", "String", "", "leaf"},
		{"%25/p", "String", "", "leaf"},
		{"%41/p", "String", "", "leaf"},
		{"%25lost1/p", "String", "", "leaf"},
		{"c%3Ad/p", "String", "", "leaf"},
		{"jcr:system/p", "String", "", "leaf"},
		{"a%5Cb/p", "String", "", "leaf"},
		{"nul%00%C2%85/p", "String", "", "leaf"},
		{"child599/p", "String", "", "leaf"},
	} {
		e := in(c.name)
		if e.Kind != format.Property || e.Attr[typeAttr] != c.typ || e.Attr[multipleAttr] != c.multiple || e.FileMode().IsDir() {
			t.Errorf("%q: %+v", c.name, e)
		}
		got := contentOf(t, a, e)
		if want, ok := c.want.([]string); ok {
			texts := []string{}
			if err := json.Unmarshal(got, &texts); err != nil || !slices.Equal(texts, want) {
				t.Errorf("%q: %.100s, %v, expected %.100q", c.name, got, err, want)
			}
		} else if string(got) != c.want {
			t.Errorf("%q: %d bytes, expected %d, or they differ", c.name, len(got), len(c.want.(string)))
		}
	}
	for name, want := range map[string]string{
		"file":               "2026-11-20T09:11:12.345Z",
		"file/jcr:content":   "2026-11-20T09:11:12.345Z",
		"both":               "0001-01-01T00:00:00Z",
		"file/jcr:content/x": "",
		"both%41":            "",
		"binaries/3":         "",
		"binaries/00":        "",
		"binaries/0/x":       "",
		"x/y":                "",
		"..":                 "",
		"a:b":                "",
		"%lost1":             "",
		"empty%prop":         "",
		"child600":           "",
	} {
		e, err := a.Lookup(t.Context(), name)
		switch {
		case want == "":
			if !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("%q: %+v, %v", name, e, err)
			}
		case err != nil || e.Kind != format.Dir || e.ModTime.UTC().Format(time.RFC3339Nano) != want:
			t.Errorf("%q: %+v, %v, expected %s", name, e, err, want)
		}
	}
	if e := in("binaries"); e.Kind != format.Dir || e.Attr[multipleAttr] != "true" || e.Attr[typeAttr] != "Binary" {
		t.Errorf("%+v", e)
	}
	seen := map[string]bool{}
	for e, err := range a.ReadDir(t.Context(), ".") {
		if err != nil || seen[e.Name] || !fs.ValidPath(e.Name) || naming.Fault(e.Name) != "" {
			t.Errorf("%q, %v: twice, or no path", e.Name, err)
		}
		seen[e.Name] = true
	}
	if len(seen) != 12+615 {
		t.Errorf("%d names", len(seen))
	}
}

// Any part of a content is the same as that part of the whole.
func TestPartsOfValuesAreRead(t *testing.T) {
	testkit.Serial(t)
	rnd := testkit.Rand(t)
	a := openTreeArchive(t, madeStore(t, sampleTree), nil)
	for _, name := range []string{"large", "text", "texts", "numbers", "none", "binaries/1", "jcr:mixinTypes", "both%prop"} {
		e, err := a.Lookup(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		whole := contentOf(t, a, e)
		for range 200 {
			off := rnd.Int64N(e.Size + 1)
			n := rnd.Int64N(e.Size - off + 1)
			b := make([]byte, n)
			if k, err := a.ReadAt(t.Context(), e, b, off); int64(k) != n || !bytes.Equal(b, whole[off:off+n]) {
				t.Fatalf("%q: %d of bytes %d+%d, %v, or they differ", name, k, off, n, err)
			}
		}
	}
}

// A list of children is read in batches, each of which begins where the previous one ended. For a
// damaged list too, that ends and reports whether something is missing.
func TestBatchesAreWhatOneListWouldBe(t *testing.T) {
	testkit.Serial(t)
	rnd := testkit.Rand(t)
	whole := fixture(t, "wide")
	lost := 0
	for round := range 40 {
		st := whole.Clone()
		r, err := openTreeOf(t.Context(), st, "s", format.OpenOptions{})
		if err != nil {
			t.Fatal(err)
		}
		x := r.(*treeReader)
		tar := x.tars[0]
		b := bytes.Clone(st.Get(tar.path))
		for range round {
			if e := tar.at(rnd.IntN(tar.len())); e.ID.IsData() {
				// Damage within the records, or something that they refer to is missing.
				copy(b[e.Pos+int64(rnd.IntN(e.Len)):][:4], noise(4+rnd.IntN(4)))
			}
		}
		r.Close()
		st.Put(tar.path, b)
		resum(t, st)
		if r, err = openTreeOf(t.Context(), st, "s", format.OpenOptions{}); err != nil {
			continue
		}
		x = r.(*treeReader)
		for e, err := range r.ReadDir(t.Context(), ".") {
			if err != nil || e.Kind != format.Dir || e.Fault != nil {
				continue
			}
			at, err := x.find(t.Context(), e.Name)
			if err == fs.ErrNotExist {
				continue // the name is damaged, and is not where its hash leads
			}
			if err != nil {
				t.Fatal(err)
			}
			n, err := x.records.Node(t.Context(), at.id)
			if err != nil {
				t.Fatal(err)
			}
			var want, got []string
			bad, shown := 0, 0
			for c, err := range n.Children(t.Context()) {
				if err == nil {
					want = append(want, writeTreeName(c.Name, false))
				} else {
					bad++
				}
			}
			for c, err := range x.children(t.Context(), at.spot) {
				if err != nil {
					t.Fatal(err)
				}
				if c.lost == nil {
					got = append(got, c.name[len(e.Name)+1:])
				} else {
					shown++
				}
			}
			if !slices.Equal(got, want) || shown != bad {
				t.Errorf("%q: %d children in batches, %d at once; lost %d and %d", e.Name, len(got), len(want), shown, bad)
			}
			lost += shown
		}
		r.Close()
	}
	if lost == 0 {
		t.Error("nothing was lost")
	}
}

// Large values are segments of the tar with their headers, or runs of them if nothing is
// compared, and all other bytes are accounted for.
func TestLargeValuesAreRunsOfTheTar(t *testing.T) {
	for _, o := range []format.OpenOptions{{}, {NoVerify: true}} {
		testLargeValues(t, o)
	}
}

func testLargeValues(t *testing.T, o format.OpenOptions) {
	r, err := openTreeOf(t.Context(), madeStore(t, sampleTree), "s", o)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	e, err := r.Lookup(t.Context(), "large")
	if err != nil {
		t.Fatal(err)
	}
	if (r.Can().Compares(e) == format.Unproven) != o.NoVerify {
		t.Errorf("%+v: compares: %v", o, o.NoVerify)
	}
	at := int64(0)
	for x, err := range r.Extents(t.Context(), e, 0, e.Size) {
		want := format.Extent{At: at, Size: x.Size, Object: "s/data00000a.tar", Off: x.Off, Len: x.Size}
		if !o.NoVerify {
			want.Len, want.Codec, want.Unit = tarfile.BlockSize+x.Size, wholeSegment, x.Size
		}
		if err != nil || !reflect.DeepEqual(x, want) || x.Size > segment.MaxSize {
			t.Errorf("%+v, %v", x, err)
		}
		at += x.Size
	}
	if at != e.Size {
		t.Errorf("%d bytes of %d", at, e.Size)
	}
	uses := map[format.Use]int64{}
	for g, err := range r.Regions(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		uses[g.Use] += g.Len
	}
	if uses[format.Unknown] != 0 || uses[format.Trash] != 0 || uses[format.IndexData] == 0 {
		t.Error(uses)
	}
}

func TestBlobsAreFoundInTheDataStoreAlone(t *testing.T) {
	const id = "0123456789abcdef0123456789abcdef01234567"
	st := madeStore(t, func(m maker) segment.RecordID {
		return m.node([]segment.NewProperty{
			single("good", segment.Binary, m.blob(id+"#5")),
			single("gone", segment.Binary, m.blob("ff"+id+"#5")),
			several("more", segment.Binary, m.blob(id+"#5"), m.binary([]byte("here"))),
			single("upwards", segment.Binary, m.blob("../../../../etc/passwd#5")),
			single("sizeless", segment.Binary, m.blob(id)),
			single("negative", segment.Binary, m.blob(id+"#-1")),
			single("short", segment.Binary, m.blob("ab#1")),
		})
	})
	st.Put("blobs/01/23/45/"+id, []byte("bytes"))
	for _, datastore := range []string{"", "blobs", "blobs/"} {
		a := openTreeArchive(t, st, map[string]string{datastoreParam: datastore})
		for name, want := range map[string]string{"good": "bytes", "more/0": "bytes", "more/1": "here", "gone": "", "upwards": "", "sizeless": "", "negative": "", "short": ""} {
			e, err := a.Lookup(t.Context(), name)
			if err != nil {
				t.Fatal(err)
			}
			if blob := e.Attr[blobAttr]; (blob == "") != (name == "more/1") {
				t.Errorf("%s: %q", name, blob)
			}
			b := make([]byte, e.Size)
			_, err = a.ReadAt(t.Context(), e, b, 0)
			switch {
			case name == "gone" && datastore != "":
				if e.Fault != nil || !errors.Is(err, fs.ErrNotExist) {
					t.Errorf("%s: %v, %v", name, e.Fault, err)
				}
			case name == "more/1", want != "" && datastore != "":
				if string(b) != want || err != nil || e.Fault != nil {
					t.Errorf("%s: %q, %v, %v", name, b, err, e.Fault)
				}
			case e.Fault == nil || e.Fault.Class != externalBlob || e.Fault.Code != format.Dangling || !strings.Contains(e.Fault.Message, e.Attr[blobAttr]) || err == nil:
				t.Errorf("%s: %+v, %v", name, e.Fault, err)
			}
		}
	}
}

// What a node refers to may be anything: here it is the node itself.
func TestTreesThatNeverEndDo(t *testing.T) {
	var loop segment.RecordID
	st := madeStore(t, func(m maker) segment.RecordID {
		loop = m.node(nil, segment.Child{Name: "x", Node: m.node(nil)})
		return loop
	})
	r, err := openTreeOf(t.Context(), st, "s", format.OpenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	tar, e, _ := r.(*treeReader).locate(loop.Segment)
	s, err := r.(*treeReader).records.Segment(t.Context(), loop.Segment)
	if err != nil {
		t.Fatal(err)
	}
	rec, err := s.Record(loop.Number)
	if err != nil {
		t.Fatal(err)
	}
	b := bytes.Clone(st.Get(tar.path))
	const childAt = 12 // after stable ID and template
	binary.BigEndian.PutUint32(b[e.Pos+int64(rec.Pos())+childAt+2:], uint32(loop.Number))
	st.Put(tar.path, b)
	resum(t, st)
	if err := r.Close(); err != nil {
		t.Error(err)
	}
	for depth, want := range map[int]int{0: treeDepth, 7: 7} {
		r, err := openTreeOf(t.Context(), st, "s", format.OpenOptions{Limits: format.Limits{Depth: depth}})
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for e, err := range r.Entries(t.Context()) {
			if n++; err != nil || e.Name != "x" || e.Fault == nil || e.Fault.Class != badRecord {
				t.Errorf("%+v, %v; expected x, which is above itself", e, err)
			}
		}
		if n != 1 {
			t.Errorf("%d entries, expected 1", n)
		}
		// A path may go round.
		last := strings.TrimSuffix(strings.Repeat("x/", want), "/")
		if e, err := r.Lookup(t.Context(), last); err != nil || e.Fault != nil {
			t.Errorf("level %d: %v, %v", want, e.Fault, err)
		}
		if e, err := r.Lookup(t.Context(), last+"/x"); err != nil || e.Fault == nil || e.Fault.Code != format.Limit {
			t.Errorf("level %d: %v, %v; expected a limit", want+1, e.Fault, err)
		}
		if _, err := r.Lookup(t.Context(), last+"/x/x"); !errors.Is(err, format.ErrCorrupt) {
			t.Error(err)
		}
		for _, err := range r.ReadDir(t.Context(), last+"/x") {
			if !errors.Is(err, format.ErrCorrupt) {
				t.Errorf("%v", err)
			}
		}
		r.Close()
	}
}

// A value whose segment is missing is reported when it is read, a node when it is listed. Both
// errors name the segment, and the siblings are intact.
func TestWhatIsMissingIsNamed(t *testing.T) {
	var data segment.ID
	root := func(m maker) segment.RecordID {
		large := single("large", segment.Binary, m.binary(noise(50000)))
		other := m.node([]segment.NewProperty{single("q", segment.String, text("x"))})
		if err := m.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		data = other.Segment
		return m.node([]segment.NewProperty{large, single("p", segment.String, text("y"))}, segment.Child{Name: "other", Node: other}, segment.Child{Name: "own", Node: m.node(nil)})
	}
	r, err := openTreeOf(t.Context(), madeStore(t, root), "s", format.OpenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var bulk segment.ID
	tar := r.(*treeReader).tars[0]
	for i := range tar.len() {
		if id := tar.at(i).ID; id.IsBulk() {
			bulk = id
		}
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
	for kind, id := range map[string]segment.ID{"data": data, "bulk": bulk} {
		st := madeStore(t, root, id)
		a := openTreeArchive(t, st, nil)
		faults, others := []string{}, []string{}
		for e, err := range a.Entries(t.Context()) {
			if err != nil {
				t.Fatal(err)
			}
			if e.Fault == nil && e.Kind.HasContent() {
				if _, err := a.ReadAt(t.Context(), e, make([]byte, e.Size), 0); err != nil {
					c, ok := errors.AsType[*format.CorruptError](err)
					if !ok || c.Class != missingSegment || c.Entry != e.Name || !strings.Contains(c.Message, id.String()) {
						t.Errorf("%q: %v", e.Name, err)
					}
					faults = append(faults, e.Name)
					continue
				}
			}
			if e.Fault != nil {
				if e.Fault.Class != missingSegment || e.Fault.Code != format.Dangling || e.Fault.Entry != e.Name || !strings.Contains(e.Fault.Message, id.String()) {
					t.Errorf("%q: %+v", e.Name, e.Fault)
				}
				faults = append(faults, e.Name)
				continue
			}
			others = append(others, e.Name)
		}
		want := map[string][2][]string{
			"data": {{"large", "other"}, {"own", "p"}},
			"bulk": {{"large"}, {"other", "other/q", "own", "p"}},
		}[kind]
		slices.Sort(faults)
		slices.Sort(others)
		if !reflect.DeepEqual(faults, want[0]) || !reflect.DeepEqual(others, want[1]) {
			t.Errorf("%s: lost %q, left %q", kind, faults, others)
		}
	}
}

// A whole tree with all values, as extraction reads them.
func BenchmarkTree(b *testing.B) {
	for _, name := range []string{"wide", "multitar"} {
		b.Run(name, func(b *testing.B) {
			a := openTreeArchive(b, fixture(b, name), nil)
			b.ReportAllocs()
			n := 0
			for b.Loop() {
				for e, err := range a.Entries(b.Context()) {
					if err != nil {
						b.Fatal(err)
					}
					if n++; e.Fault == nil && e.Kind.HasContent() {
						contentOf(b, a, e)
					}
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(n), "ns/entry")
		})
	}
}

// A name with a wrong bit is not where its hash says; Oak lists such a child and does
// not find it.
func TestAChildWithADamagedNameIsFoundByIt(t *testing.T) {
	st := madeStore(t, func(m maker) segment.RecordID {
		leaf := m.node([]segment.NewProperty{single("p", segment.String, text("leaf"))})
		return m.node(nil, segment.Child{Name: "left", Node: leaf}, segment.Child{Name: "right", Node: leaf}, segment.Child{Name: "wrong", Node: leaf})
	})
	b := bytes.Clone(st.Get("s/data00000a.tar"))
	i := bytes.Index(b, []byte("\x05wrong"))
	b[i+1] ^= 2
	st.Put("s/data00000a.tar", b)
	resum(t, st)
	a := openTreeArchive(t, st, nil)
	found := map[string]bool{}
	for e, err := range a.Entries(t.Context()) {
		if err != nil || e.Fault != nil {
			t.Fatal(err, e.Fault)
		}
		found[e.Name] = true
		if got, err := a.Lookup(t.Context(), e.Name); err != nil || got.Name != e.Name {
			t.Errorf("%s: %v, %v", e.Name, got.Name, err)
		}
	}
	if !found["urong/p"] || len(found) != 6 {
		t.Errorf("%v", found)
	}
	if _, err := a.Lookup(t.Context(), "wrong"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the name as it was: %v", err)
	}
}
