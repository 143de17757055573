package oak

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/holdall/holdall/internal/oak/internal/segment"
	"github.com/holdall/holdall/store/storetest"
)

// checked checks the indexes of a store, and returns what it says of each: state, findings, notes.
func checked(t testing.TB, st *storetest.Mem, d Datastore, param map[string]string) map[string]*CheckedIndex {
	t.Helper()
	all := map[string]*CheckedIndex{}
	for x, err := range openNodes(t, st, param).CheckIndexes(t.Context(), "/", d) {
		if err != nil {
			t.Fatal(err)
		}
		slices.SortFunc(x.Findings, func(a, b IndexFinding) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
		if (x.State == "damaged") != (x.Found > 0) || x.Found != int64(len(x.Findings)) {
			t.Errorf("%s: %s, %d findings: %v", x.Path, x.State, x.Found, x.Findings)
		}
		all[x.Path] = x
	}
	return all
}

// finds compares findings, which are "KIND PATH KEY", with what is expected.
func (x *CheckedIndex) finds(t testing.TB, want ...string) {
	t.Helper()
	var got []string
	for _, f := range x.Findings {
		got = append(got, strings.TrimSpace(f.Kind+" "+f.Path+" "+f.Key))
	}
	if !slices.Equal(got, want) {
		t.Errorf("%s: found %q, want %q\n%.1000v", x.Path, got, want, x.Findings)
	}
}

// tree makes nodes of paths. The last node of each has the properties.
func (m maker) tree(props []segment.NewProperty, paths ...string) segment.RecordID {
	below := map[string][]string{}
	var own []segment.NewProperty
	for _, p := range paths {
		if p == "" {
			own = props
			continue
		}
		first, rest, _ := strings.Cut(p, "/")
		below[first] = append(below[first], rest)
	}
	var children []segment.Child
	for name, rest := range below {
		children = append(children, segment.Child{Name: name, Node: m.tree(props, rest...)})
	}
	return m.node(own, children...)
}

var match = []segment.NewProperty{single(matchName, segment.Boolean, text("true"))}

// mirror makes entries of a property index: "KEY PATH".
func (m maker) mirror(name string, entries ...string) segment.Child {
	var paths []string
	for _, e := range entries {
		paths = append(paths, strings.TrimSuffix(strings.Replace(e, " ", "/", 1), "/"))
	}
	return segment.Child{Name: name, Node: m.tree(match, paths...)}
}

// unique makes entries of a unique index.
func (m maker) unique(entries map[string][]string) segment.Child {
	var children []segment.Child
	for key, paths := range entries {
		var all []segment.NewValue
		for _, p := range paths {
			all = append(all, text(p))
		}
		children = append(children, segment.Child{Name: key, Node: m.node([]segment.NewProperty{several(entryName, segment.String, all...)})})
	}
	return segment.Child{Name: ":index", Node: m.node(nil, children...)}
}

func names(name string, values ...string) segment.NewProperty {
	var all []segment.NewValue
	for _, v := range values {
		all = append(all, text(v))
	}
	return several(name, segment.Name, all...)
}

func strs(name string, values ...string) segment.NewProperty {
	p := names(name, values...)
	p.Type = segment.String
	return p
}

// definition makes the definition of a property index that was built.
func (m maker) definition(name string, content segment.Child, more ...segment.NewProperty) segment.Child {
	if !slices.ContainsFunc(more, func(p segment.NewProperty) bool { return p.Name == "type" }) {
		more = append(more, single("type", segment.String, text("property")))
	}
	if !slices.ContainsFunc(more, func(p segment.NewProperty) bool { return p.Name == "propertyNames" }) {
		more = append(more, names("propertyNames", "p"))
	}
	more = append(more, single("reindexCount", segment.Integer, text("1")))
	var children []segment.Child
	if content.Name != "" {
		children = append(children, content)
	}
	return segment.Child{Name: name, Node: m.node(typed(definitionType, more...), children...)}
}

func on(name string) segment.NewProperty { return single(name, segment.Boolean, text("true")) }

const long = 120

// indexed is content for indexes: each node below /c has a property p.
func (m maker) indexed() []segment.Child {
	p := func(v string) []segment.NewProperty { return typed("t:one", single("p", segment.String, text(v))) }
	types := m.node(nil, segment.Child{Name: "t:super", Node: m.node([]segment.NewProperty{names("rep:primarySubtypes", "t:sub"), on("jcr:isMixin"), names("rep:mixinSubtypes", "t:mixed")})})
	return []segment.Child{
		{Name: "c", Node: m.node(nil,
			segment.Child{Name: "one", Node: m.node(p("x"), segment.Child{Name: "below", Node: m.node(typed("t:sub", strs("p", "x", "y", "x")))})},
			segment.Child{Name: "number", Node: m.node(typed("t:one", names(mixinTypesName, "t:mixed"), single("p", segment.Integer, text("-7"))))},
			segment.Child{Name: "empty", Node: m.node(p(""))},
			segment.Child{Name: "odd", Node: m.node(p("a b*~/ü%"))},
			segment.Child{Name: "long", Node: m.node(p(strings.Repeat("l", long)))},
			segment.Child{Name: "none", Node: m.node([]segment.NewProperty{strs("p")})},
			segment.Child{Name: "binary", Node: m.node([]segment.NewProperty{single("p", segment.Binary, m.binary([]byte("x")))})},
			segment.Child{Name: ":hidden", Node: m.node(p("x"))},
		)},
		{Name: systemName, Node: m.node(nil, segment.Child{Name: nodeTypesName, Node: types})},
	}
}

// entries are those of an index of all nodes of indexed.
var entries = []string{"x c/one", "x c/one/below", "y c/one/below", "-7 c/number", ": c/empty", "a+b*%7E%2F%C3%BC%25 c/odd", strings.Repeat("l", mostKey) + " c/long"}

func TestPropertyIndexesAreComparedWithTheNodes(t *testing.T) {
	type index struct {
		name  string
		store func(m maker) segment.Child
		props []segment.NewProperty
		want  []string
		note  string
	}
	all := func(m maker) segment.Child { return m.mirror(":index", entries...) }
	only := func(some ...string) func(maker) segment.Child {
		return func(m maker) segment.Child { return m.mirror(":index", some...) }
	}
	nothing := func(maker) segment.Child { return segment.Child{} }
	lists := func(more ...string) func(m maker) segment.Child {
		return func(m maker) segment.Child {
			has := map[string][]string{}
			for _, e := range append(slices.Clone(entries), more...) {
				key, at, _ := strings.Cut(e, " ")
				has[key] = append(has[key], "/"+at)
			}
			return m.unique(has)
		}
	}
	tests := []index{
		{name: "sound", store: all},
		{name: "mount", store: func(m maker) segment.Child { return m.mirror(":oak:mount-libs-index", entries...) }},
		{name: "lacks", store: only(entries[1:]...), want: []string{"missing /c/one x"}},
		{name: "empty", store: only(), props: []segment.NewProperty{strs("includedPaths", "/c/one")}, want: []string{"missing /c/one x", "missing /c/one/below x", "missing /c/one/below y"}},
		{name: "stale", store: only(append(slices.Clone(entries), "y c/one", "x c", "x c/gone", "x c/:hidden", "z ")...), want: []string{"stale / z", "stale /c x", "stale /c/gone x", "stale /c/one y"}},
		{name: "unmatched", store: func(m maker) segment.Child {
			return segment.Child{Name: ":index", Node: m.tree(nil, "x/c/one")}
		}, props: []segment.NewProperty{strs("includedPaths", "/c/one"), strs("excludedPaths", "/c/one/below")}, want: []string{"missing /c/one x"}},
		{name: "excluded", store: all, props: []segment.NewProperty{strs("excludedPaths", "/c/one", "/c/num")}, want: []string{"stale /c/one x", "stale /c/one/below x", "stale /c/one/below y"}},
		{name: "types", store: only("x c/one/below", "y c/one/below", "-7 c/number"), props: []segment.NewProperty{names("declaringNodeTypes", "t:super")}},
		{name: "other types", store: only("x c/one/below"), props: []segment.NewProperty{names("declaringNodeTypes", "t:other")}, want: []string{"stale /c/one/below x"}},
		{name: "prefixes", store: only("x c/one", "x c/one/below", "-7 c/number"), props: []segment.NewProperty{strs("valueIncludedPrefixes", "x", "-")}},
		{name: "without", store: only(entries[:4]...), props: []segment.NewProperty{strs("valueExcludedPrefixes", "a b*~/ü% and more", "lll")}},
		{name: "both", store: only("x c/one", "x c/one/below"), props: []segment.NewProperty{strs("valueIncludedPrefixes", "x"), strs("valueExcludedPrefixes", "xx")}},
		{name: "no prefix", store: only("x c/one"), props: []segment.NewProperty{strs("valueIncludedPrefixes")}, want: []string{"stale /c/one x"}},
		{name: "pattern", store: only("x c/one", "q c/one"), props: []segment.NewProperty{single("valuePattern", segment.String, text("x+"))}, want: []string{"stale /c/one q"}, note: "valuePattern"},
		{name: "ok pattern", store: only("x c/one"), props: []segment.NewProperty{single("valuePattern", segment.String, text("x+"))}, note: "valuePattern"},
		{name: "unique", store: lists(), props: []segment.NewProperty{on("unique")}, want: []string{"duplicate /oak:index/unique x"}},
		{name: "doubled", store: lists("y c/gone"), props: []segment.NewProperty{on("unique")}, want: []string{"duplicate /oak:index/doubled x", "duplicate /oak:index/doubled y", "stale /c/gone y"}},
		{name: "mirrored", store: all, props: []segment.NewProperty{on("unique")}, want: []string{"missing /c/empty :", "missing /c/long " + strings.Repeat("l", mostKey), "missing /c/number -7", "missing /c/odd a+b*%7E%2F%C3%BC%25", "missing /c/one x", "missing /c/one/below x", "missing /c/one/below y"}},
		{name: "rebuilt", store: only("q c/none"), props: []segment.NewProperty{on("reindex")}, note: "going to rebuild it"},
		{name: "corrupt", store: only("q c/none"), props: []segment.NewProperty{single("corrupt", segment.Date, text("2026-01-02T03:04:05.000Z"))}, want: []string{"corrupt /oak:index/corrupt"}, note: "marked as corrupt"},
		{name: "nameless", store: all, props: []segment.NewProperty{names("propertyNames")}, note: "no propertyNames"},
		{name: "lost", store: nothing, want: []string{"lost /oak:index/lost"}},
		{name: "disabled", store: only("q c/none"), props: []segment.NewProperty{single("type", segment.String, text("disabled"))}, note: `type is "disabled"`},
		{name: "late", store: all, props: []segment.NewProperty{strs("async", "async")}, note: "no checkpoint of lane async"},
		{name: "synchronous", store: only(entries[1:]...), props: []segment.NewProperty{strs("async", "sync", "nrt")}, want: []string{"missing /c/one x"}},
	}
	st := madeStore(t, func(m maker) segment.RecordID {
		var definitions []segment.Child
		for _, x := range tests {
			definitions = append(definitions, m.definition(x.name, x.store(m), x.props...))
		}
		return m.node(nil, append(m.indexed(), segment.Child{Name: "oak:index", Node: m.node(nil, definitions...)})...)
	})
	got := checked(t, st, Datastore{}, nil)
	for _, x := range tests {
		is := got["/oak:index/"+x.name]
		is.finds(t, x.want...)
		if notes := strings.Join(is.Notes, "; "); (notes == "") != (x.note == "") || !strings.Contains(notes, x.note) {
			t.Errorf("%s: notes %q, want %q", x.name, notes, x.note)
		}
		if is.State == "sound" && x.note != "" || is.State == "readable" && x.note == "" {
			t.Errorf("%s: %s, %q", x.name, is.State, is.Notes)
		}
	}
	if n := got["/oak:index/sound"].Entries; n != int64(len(entries)) {
		t.Errorf("%d entries", n)
	}
}

// A definition in another place is for the nodes there, and elsewhere for none.
func TestIndexesBelowANodeHaveWhatIsBelowIt(t *testing.T) {
	st := madeStore(t, func(m maker) segment.RecordID {
		p := []segment.NewProperty{single("p", segment.String, text("x"))}
		own := m.definition("own", m.mirror(":index", "x one", "x gone"))
		stray := m.definition("stray", m.mirror(":index", "x gone"))
		fresh := segment.Child{Name: "fresh", Node: m.node(typed(definitionType, single("type", segment.String, text("property")), names("propertyNames", "p")))}
		return m.node(p, segment.Child{Name: "site", Node: m.node(p,
			segment.Child{Name: "one", Node: m.node(p)},
			segment.Child{Name: "oak:index", Node: m.node(nil, own, fresh)},
			segment.Child{Name: "indexes", Node: m.node(nil, stray)})})
	})
	got := checked(t, st, Datastore{}, nil)
	got["/site/oak:index/own"].finds(t, "missing /site x", "stale /site/gone x")
	if x := got["/site/indexes/stray"]; x.State != "readable" || !strings.Contains(x.Notes[0], "Oak uses only definitions in oak:index") {
		t.Errorf("%+v", x)
	}
	if x := got["/site/oak:index/fresh"]; x.State != "readable" || !strings.Contains(x.Notes[0], "not built it yet") {
		t.Errorf("%+v", x)
	}
}

// A lane may not have reached the node that a definition belongs to.
func TestANodeThatTheLaneHasNotSeenIsNotCompared(t *testing.T) {
	st := madeSuper(t, func(m maker) []segment.Child {
		own := m.definition("own", m.mirror(":index"), strs("async", "async"))
		now := m.node(nil, segment.Child{Name: "site", Node: m.node(nil, segment.Child{Name: "oak:index", Node: m.node(nil, own)})},
			segment.Child{Name: asyncName, Node: m.node([]segment.NewProperty{single("async", segment.String, text("cp"))})})
		cp := m.node(nil, segment.Child{Name: rootName, Node: m.node(nil)})
		return []segment.Child{{Name: rootName, Node: now}, {Name: checkpointsName, Node: m.node(nil, segment.Child{Name: "cp", Node: cp})}}
	})
	if x := checked(t, st, Datastore{}, nil)["/site/oak:index/own"]; x.State != "readable" || !strings.Contains(strings.Join(x.Notes, "; "), "not compared: lookup /site") {
		t.Errorf("%+v", x)
	}
}

func TestReferenceIndexesAreComparedWithTheNodes(t *testing.T) {
	const a, b = "aaaaaaaa-0000-4000-8000-000000000000", "bbbbbbbb-0000-4000-8000-000000000000"
	st := madeStore(t, func(m maker) segment.RecordID {
		refs := m.node([]segment.NewProperty{single("strong", segment.Reference, text(a)), several("weak", segment.WeakReference, text(a), text(b)), single(":hidden", segment.Reference, text(b))})
		version := m.node(nil, segment.Child{Name: "jcr:versionStorage", Node: m.node(nil, segment.Child{Name: "v", Node: refs})})
		kind := single("type", segment.String, text("reference"))
		sound := m.node(typed(definitionType, kind), m.mirror(":references", a+" n/strong"),
			m.mirror(":weakreferences", a+" n/weak", b+" n/weak", a+" jcr:system/jcr:versionStorage/v/weak", b+" jcr:system/jcr:versionStorage/v/weak"))
		wrong := m.node(typed(definitionType, kind), m.mirror(":references", a+" n/strong", b+" n/strong", a+" n/weak", a+" gone/strong", a+" jcr:system/jcr:versionStorage/v/strong", b),
			m.mirror(":weakreferences", a+" n/weak", a+" jcr:system/jcr:versionStorage/v/weak", b+" jcr:system/jcr:versionStorage/v/weak"))
		return m.node(nil, segment.Child{Name: "n", Node: refs}, segment.Child{Name: systemName, Node: version},
			segment.Child{Name: "oak:index", Node: m.node(nil, segment.Child{Name: "sound", Node: sound}, segment.Child{Name: "wrong", Node: wrong})})
	})
	got := checked(t, st, Datastore{}, nil)
	got["/oak:index/sound"].finds(t)
	got["/oak:index/wrong"].finds(t, "missing /n/weak "+b, "stale / "+b, "stale /gone/strong "+a, "stale /jcr:system/jcr:versionStorage/v/strong "+a, "stale /n/strong "+b, "stale /n/weak "+a)
	if x := got["/oak:index/sound"]; x.State != "sound" || x.Entries != 5 {
		t.Errorf("%+v", x)
	}
}

// An asynchronous index has what its checkpoint has, whatever was added since.
func TestAsynchronousIndexesAreComparedWithTheirCheckpoint(t *testing.T) {
	st := madeSuper(t, func(m maker) []segment.Child {
		p := func(v string) []segment.NewProperty {
			return []segment.NewProperty{single("p", segment.String, text(v))}
		}
		before := m.node(nil, segment.Child{Name: "a", Node: m.node(p("old"))}, segment.Child{Name: "b", Node: m.node(p("x"))})
		async := strs("async", "nrt", "async")
		definitions := m.node(nil, m.definition("sound", m.mirror(":index", "old a", "x b"), async), m.definition("ahead", m.mirror(":index", "new a", "x b"), async),
			m.definition("gone", m.mirror(":index"), strs("async", "other")))
		now := m.node(nil, segment.Child{Name: "a", Node: m.node(p("new"))}, segment.Child{Name: "c", Node: m.node(p("x"))}, segment.Child{Name: "oak:index", Node: definitions},
			segment.Child{Name: asyncName, Node: m.node([]segment.NewProperty{single("async", segment.String, text("cp")), single("other", segment.String, text("gone"))})})
		return []segment.Child{{Name: rootName, Node: now}, {Name: checkpointsName, Node: m.node(nil, segment.Child{Name: "cp", Node: m.node(nil, segment.Child{Name: rootName, Node: before})})}}
	})
	got := checked(t, st, Datastore{}, nil)
	got["/oak:index/sound"].finds(t)
	got["/oak:index/ahead"].finds(t, "missing /a old", "stale /a new")
	if x := got["/oak:index/sound"]; x.State != "sound" || x.Entries != 2 || !strings.Contains(x.Notes[0], "checkpoint cp, up to which lane async") {
		t.Errorf("%+v", x)
	}
	if x := got["/oak:index/gone"]; x.State != "readable" || !strings.Contains(x.Notes[0], "no checkpoint of lane other") {
		t.Errorf("%+v", x)
	}
	for _, err := range openNodes(t, st, map[string]string{superParam: "true"}).CheckIndexes(t.Context(), "/root/oak:index", Datastore{}) {
		if !errors.Is(err, fs.ErrInvalid) {
			t.Error(err)
		}
	}
}

// What damage hides is lost, and nothing else is concluded from that.
func TestDamageIsNotADifference(t *testing.T) {
	for _, lose := range []string{"index", "node", "value"} {
		var lost segment.ID
		root := func(m maker) segment.RecordID {
			apart := func(name string, id segment.RecordID) segment.RecordID {
				if name == lose {
					lost = id.Segment
				}
				if err := m.Flush(t.Context()); err != nil {
					t.Fatal(err)
				}
				return id
			}
			p := func(v segment.NewValue) []segment.NewProperty {
				return []segment.NewProperty{single("p", segment.String, v)}
			}
			// Texts and templates that are used again are not in what is lost.
			apart("", m.node(nil, segment.Child{Name: "x", Node: m.node(p(text("x")))}, m.definition("p", m.mirror("y", "x a", "y c"))))
			store := m.tree(match, "b", "gone")
			apart("", store)
			entry := apart("index", m.tree(match, "a", "c"))
			apart("", m.node(nil))
			value := m.binary([]byte("y"))
			apart("value", value.Record)
			node := apart("node", m.node(p(text("x"))))
			index := m.definition("p", segment.Child{Name: ":index", Node: m.node(nil, segment.Child{Name: "x", Node: entry}, segment.Child{Name: "y", Node: store})})
			return m.node(nil, segment.Child{Name: "a", Node: node}, segment.Child{Name: "b", Node: m.node(p(value))}, segment.Child{Name: "c", Node: m.node(p(text("x")))},
				segment.Child{Name: "d", Node: m.node(p(text("y")))}, segment.Child{Name: "oak:index", Node: m.node(nil, index)})
		}
		madeStore(t, root)
		all := checked(t, madeStore(t, root, lost), Datastore{}, nil)
		if want := map[string]int{"node": 2}; len(all) != max(want[lose], 1) { // a lost node may be a definition
			t.Errorf("%s: %v", lose, all)
		}
		x := all["/oak:index/p"]
		want := []string{"missing /d y", "stale /gone y"}
		if lose == "index" {
			want = append([]string{"lost /oak:index/p/:index/x"}, want...)
		}
		x.finds(t, want...)
		if note := strings.Join(x.Notes, "; "); strings.Contains(note, "1 nodes cannot be read") != (lose != "index") {
			t.Errorf("%s: %q", lose, note)
		}
	}
}

func TestKeysAreTheBeginningsOfValues(t *testing.T) {
	for v, want := range map[string]string{
		"":                                      ":",
		"azAZ09.-*_":                            "azAZ09.-*_",
		"a b+c":                                 "a+b%2Bc",
		"~'()!":                                 "%7E%27%28%29%21",
		"\x00\n":                                "%00%0A",
		strings.Repeat("ü", 101):                strings.Repeat("%C3%BC", 100),
		strings.Repeat("x", 99) + "\U0001f600":  strings.Repeat("x", 99) + "%3F",
		strings.Repeat("x", 98) + "\U0001f600y": strings.Repeat("x", 98) + "%F0%9F%98%80",
	} {
		if got := encodeKey(v); got != want {
			t.Errorf("%q: %q, want %q", v, got, want)
		}
	}
}

// luceneFiles are the files of a real index, with compound files or single ones.
func luceneFiles(t testing.TB, dir string) map[string][]byte {
	t.Helper()
	b, err := os.ReadFile("internal/lucene/testdata/indexes.tar.gz")
	if err != nil {
		t.Fatal(err)
	}
	z, err := gzip.NewReader(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	all := map[string][]byte{}
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if err == io.EOF {
			return all
		}
		if err == nil && h.Typeflag == tar.TypeReg && path.Dir(h.Name) == dir {
			all[path.Base(h.Name)], err = io.ReadAll(r)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// luceneDir makes a node with the files of an index in parts of 100 bytes.
func (m maker) luceneDir(name string, all map[string][]byte, listing ...string) segment.Child {
	const key = "0123456789abcdef"
	var children []segment.Child
	for name, b := range all {
		var parts []segment.NewValue
		for part := range slices.Chunk(b, 100) {
			parts = append(parts, m.binary([]byte(string(part)+key)))
		}
		children = append(children, segment.Child{Name: name, Node: m.node([]segment.NewProperty{
			single(blobSizeName, segment.Integer, text("100")), single(uniqueKeyName, segment.String, text(fmt.Sprintf("%x", key))), several(dataName, segment.Binary, parts...),
		})})
	}
	var props []segment.NewProperty
	if listing != nil {
		props = append(props, strs(dirListing, listing...))
	}
	return segment.Child{Name: name, Node: m.node(props, children...)}
}

func luceneIndex(m maker, name string, dirs ...segment.Child) segment.Child {
	return segment.Child{Name: name, Node: m.node(typed(definitionType, single("type", segment.String, text("lucene"))), dirs...)}
}

func TestFilesOfLuceneAreChecked(t *testing.T) {
	compound, single := luceneFiles(t, "compound"), luceneFiles(t, "single")
	without := func(all map[string][]byte, name string) map[string][]byte {
		all = maps.Clone(all)
		delete(all, name)
		return all
	}
	more := maps.Clone(compound)
	more["_9.cfs"] = []byte("old")
	cut := maps.Clone(compound)
	cut["_0.cfs"] = cut["_0.cfs"][:1000]
	listing := slices.Collect(maps.Keys(compound))
	tests := map[string]struct {
		dirs func(m maker) []segment.Child
		want []string
		note string
	}{
		"sound": {func(m maker) []segment.Child {
			return []segment.Child{m.luceneDir(":data", compound), m.luceneDir(":suggest-data", single), m.luceneDir(":oak:mount-libs-index-data", compound, listing...), {Name: ":status", Node: m.node(nil)}}
		}, nil, ""},
		"lacks": {func(m maker) []segment.Child {
			return []segment.Child{m.luceneDir(":data", without(compound, "_1.cfe")), m.luceneDir(":suggest-data", without(single, "_0.fdt"))}
		}, []string{"file /oak:index/lacks/:data/_1.cfe", "file /oak:index/lacks/:suggest-data/_0.fdt"}, ""},
		"cut":    {func(m maker) []segment.Child { return []segment.Child{m.luceneDir(":data", cut)} }, []string{"file /oak:index/cut/:data/_0.cfe"}, ""},
		"unused": {func(m maker) []segment.Child { return []segment.Child{m.luceneDir(":data", more)} }, nil, "nothing refers to 1 of 10 files"},
		"unlisted": {func(m maker) []segment.Child {
			return []segment.Child{m.luceneDir(":data", more, slices.DeleteFunc(slices.Clone(listing), func(s string) bool { return s == "_0.si" })...)}
		}, []string{"file /oak:index/unlisted/:data/_0.si"}, "nothing refers to"},
		"listed": {func(m maker) []segment.Child {
			return []segment.Child{m.luceneDir(":data", compound, append(slices.Clone(listing), "_5.cfs")...)}
		}, []string{"file /oak:index/listed/:data/_5.cfs"}, ""},
		"nothing": {func(m maker) []segment.Child { return []segment.Child{{Name: ":status", Node: m.node(nil)}} }, nil, ""},
		"headless": {func(m maker) []segment.Child {
			return []segment.Child{m.luceneDir(":data", without(compound, "segments_3"))}
		}, []string{"file /oak:index/headless/:data"}, ""},
	}
	st := madeStore(t, func(m maker) segment.RecordID {
		var definitions []segment.Child
		for name, x := range tests {
			definitions = append(definitions, luceneIndex(m, name, x.dirs(m)...))
		}
		return m.node(nil, segment.Child{Name: "oak:index", Node: m.node(nil, definitions...)})
	})
	got := checked(t, st, Datastore{}, nil)
	for name, x := range tests {
		is := got["/oak:index/"+name]
		is.finds(t, x.want...)
		if notes := strings.Join(is.Notes, "; "); !strings.Contains(notes, x.note) || x.note == "" && notes != "" {
			t.Errorf("%s: notes %q", name, notes)
		}
	}
	if x := got["/oak:index/sound"]; x.State != "sound" || x.Documents != 15 {
		t.Errorf("%+v", x)
	}
	if x := got["/oak:index/nothing"]; x.State != "readable" {
		t.Errorf("%+v", x)
	}
}

// Files of Lucene may be in a data store, where they may be missing or too short.
func TestFilesOfLuceneInADataStoreAreChecked(t *testing.T) {
	all := luceneFiles(t, "compound")
	const id = "0123456789abcdef0123456789abcdef0123456"
	blobs := map[string]string{}
	st := madeStore(t, func(m maker) segment.RecordID {
		var children []segment.Child
		for i, name := range slices.Sorted(maps.Keys(all)) {
			blobs[name] = fmt.Sprintf("%s%x", id, i)
			children = append(children, segment.Child{Name: name, Node: m.node([]segment.NewProperty{
				single(blobSizeName, segment.Integer, text("100000")), several(dataName, segment.Binary, m.blob(fmt.Sprintf("%s#%d", blobs[name], len(all[name])))),
			})})
		}
		return m.node(nil, segment.Child{Name: "oak:index", Node: m.node(nil, luceneIndex(m, "lucene", segment.Child{Name: ":data", Node: m.node(nil, children...)}))})
	})
	const at = "/oak:index/lucene/:data/"
	x := checked(t, st, Datastore{}, nil)["/oak:index/lucene"]
	if x.finds(t); x.State != "readable" || len(x.Notes) != 1 || !strings.Contains(x.Notes[0], "--datastore") {
		t.Errorf("%+v", x)
	}
	put := func(name string, b []byte) { st.Put("blobs/01/23/45/"+blobs[name], b) }
	for name, b := range all {
		put(name, b)
	}
	d := Datastore{Store: st, Dir: "blobs"}
	x = checked(t, st, d, nil)["/oak:index/lucene"]
	if x.finds(t); x.State != "sound" || x.Documents != 5 || len(x.Notes) > 0 {
		t.Errorf("%+v", x)
	}
	for name, b := range all {
		put(name, b[:len(b)/2])
		checked(t, st, d, nil)["/oak:index/lucene"].finds(t, "blob "+at+name+"/"+dataName)
		if err := st.Remove(t.Context(), "blobs/01/23/45/"+blobs[name]); err != nil {
			t.Fatal(err)
		}
		checked(t, st, d, nil)["/oak:index/lucene"].finds(t, "blob "+at+name+"/"+dataName)
		put(name, b)
	}
	other := bytes.Clone(all["_1.cfs"])
	other[0] ^= 1
	put("_1.cfs", other)
	checked(t, st, d, nil)["/oak:index/lucene"].finds(t, "file "+at+"_1.cfs")
}

// Parts of files of Lucene may be lost or too short.
func TestDamagedFilesOfLuceneAreFoundOnce(t *testing.T) {
	all := luceneFiles(t, "compound")
	var lost segment.ID
	root := func(m maker) segment.RecordID {
		luceneChildren(m, all, "")
		flush := func() {
			if err := m.Flush(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		flush()
		file := m.node([]segment.NewProperty{single(blobSizeName, segment.Integer, text("1000000")), several(dataName, segment.Binary, m.binary(all["_0.si"]))})
		lost = file.Segment
		flush()
		short := m.node([]segment.NewProperty{single(blobSizeName, segment.Integer, text("100")), several(dataName, segment.Binary, m.binary(all["_1.si"][:50]), m.binary(all["_1.si"][:100]))})
		odd := m.node([]segment.NewProperty{single(blobSizeName, segment.Integer, text("9223372036854775807")), several(dataName, segment.Binary, m.binary(all["_1.si"]), m.binary(all["_1.si"]))})
		huge := m.node([]segment.NewProperty{single(blobSizeName, segment.Integer, text("1000000000000")), several(dataName, segment.Binary, m.binary(nil), m.binary(nil))})
		return m.node(nil, segment.Child{Name: "oak:index", Node: m.node(nil, luceneIndex(m, "lost", segment.Child{Name: ":data", Node: m.node(nil, append(luceneChildren(m, all, "_0.si"), segment.Child{Name: "_0.si", Node: file})...)}),
			luceneIndex(m, "short", segment.Child{Name: ":data", Node: m.node(nil, append(luceneChildren(m, all, "_1.si"), segment.Child{Name: "_1.si", Node: short})...)}),
			luceneIndex(m, "odd", segment.Child{Name: ":data", Node: m.node(nil, append(luceneChildren(m, all, "_1.si"), segment.Child{Name: "_1.si", Node: odd})...)}),
			luceneIndex(m, "huge", segment.Child{Name: ":data", Node: m.node(nil, append(luceneChildren(m, all, "_1.si"), segment.Child{Name: "_1.si", Node: huge})...)}))})
	}
	madeStore(t, root)
	got := checked(t, madeStore(t, root, lost), Datastore{}, nil)
	got["/oak:index/lost"].finds(t, "lost /oak:index/lost/:data/_0.si")
	for _, name := range []string{"short", "odd", "huge"} {
		got["/oak:index/"+name].finds(t, "file /oak:index/"+name+"/:data/_1.si")
	}
}

func luceneChildren(m maker, all map[string][]byte, without string) (children []segment.Child) {
	for name, b := range all {
		if name != without {
			children = append(children, segment.Child{Name: name, Node: m.node([]segment.NewProperty{single(blobSizeName, segment.Integer, text("100000")), several(dataName, segment.Binary, m.binary(b))})})
		}
	}
	return children
}
