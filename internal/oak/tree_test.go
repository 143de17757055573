package oak

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"path"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdall/holdall"
	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/testkit"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storetest"
)

// treeFormat shows trees, and nothing else.
var treeFormat = &format.Format{Name: "oak", Title: Format.Title, Params: Format.Params, Open: openTreeOf}

func openTreeOf(ctx context.Context, st store.Store, name string, o format.OpenOptions) (format.Reader, error) {
	o.View = treeView
	return open(ctx, st, name, o)
}

func openTreeArchive(t testing.TB, st store.Store, param map[string]string) *holdall.Archive {
	t.Helper()
	a, err := holdall.Open(t.Context(), "s", holdall.OpenOptions{Store: st, Format: "oak", Formats: []*format.Format{treeFormat}, Param: param})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := a.Close(); err != nil {
			t.Error(err)
		}
	})
	return a
}

// datastoreOf puts a fixture's data store beside it.
func datastoreOf(t testing.TB, st *storetest.Mem, name string) (there bool) {
	t.Helper()
	for name, b := range testkit.Untar(t, "testdata/"+name+".tar.gz") {
		if strings.HasPrefix(name, "datastore/") {
			there = true
			st.Put(name, b)
		}
	}
	return there
}

// expectedTree is what the reference reads from a fixture's head.
type expectedTree struct {
	JournalNewestFirst [][2]any
	Head               struct {
		Revision string
		Nodes    []expectedNode
	}
}

type expectedNode struct {
	Path  string
	Props [][3]any // name, type, values
	Error string
}

func expectedOf(t testing.TB, name string) (want expectedTree) {
	t.Helper()
	testkit.JSON(t, "testdata/"+name+".expect.json", &want)
	return want
}

// shownNodes reads a whole archive into the form of the expectations.
func shownNodes(t testing.TB, a *holdall.Archive) []expectedNode {
	t.Helper()
	all := []expectedNode{{Path: "/", Props: [][3]any{}}}
	at := map[string]int{".": 0}
	values := map[string]bool{} // directories that are properties
	for e, err := range a.Entries(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		dir, base := path.Split(e.Name)
		dir = cmp.Or(strings.TrimSuffix(dir, "/"), ".")
		typ := e.Attr[typeAttr]
		switch {
		case typ == "":
			n := expectedNode{Path: "/" + e.Name, Props: [][3]any{}}
			if e.Fault != nil {
				n.Error = "lost"
			}
			if _, ok := at[dir]; !ok || e.Kind != format.Dir {
				t.Fatalf("%q, a %v, comes before its parent", e.Name, e.Kind)
			}
			at[e.Name] = len(all)
			all = append(all, n)
			continue
		case values[dir]:
			dir, _ = path.Split(dir)
			dir = cmp.Or(strings.TrimSuffix(dir, "/"), ".")
			props := all[at[dir]].Props
			last := &props[len(props)-1]
			last[2] = append(last[2].([]any), shownBinary(t, a, e))
			continue
		case e.Kind == format.Dir:
			values[e.Name] = true
		}
		n := &all[at[dir]]
		p := [3]any{base, typ, []any{}}
		if e.Attr[multipleAttr] != "" {
			p[1] = typ + "[]"
		}
		switch {
		case e.Kind == format.Dir:
		case typ == "Binary":
			p[2] = []any{shownBinary(t, a, e)}
		case e.Attr[multipleAttr] != "":
			var texts []string
			if err := json.Unmarshal(contentOf(t, a, e), &texts); err != nil {
				t.Fatalf("%q: %v", e.Name, err)
			}
			for _, x := range texts {
				p[2] = append(p[2].([]any), shownText(x))
			}
		default:
			p[2] = []any{shownText(string(contentOf(t, a, e)))}
		}
		n.Props = append(n.Props, p)
	}
	return all
}

func contentOf(t testing.TB, a *holdall.Archive, e holdall.Entry) []byte {
	t.Helper()
	b := make([]byte, e.Size)
	if n, err := a.ReadAt(t.Context(), e, b, 0); n < len(b) {
		t.Fatalf("%q: %d of %d bytes, %v", e.Name, n, len(b), err)
	}
	return b
}

func shownText(s string) any {
	if len(s) <= 256 {
		return s
	}
	sum := sha256.Sum256([]byte(s))
	return map[string]any{"utf8": float64(len(s)), "sha256": hex.EncodeToString(sum[:])}
}

func shownBinary(t testing.TB, a *holdall.Archive, e holdall.Entry) any {
	t.Helper()
	m := map[string]any{}
	if id := e.Attr[blobAttr]; id != "" {
		m["blobId"] = shownText(id)
		if e.Fault != nil {
			if e.Fault.Class != externalBlob || e.Fault.Code != format.Dangling {
				t.Errorf("%q: %+v", e.Name, e.Fault)
			}
			return m
		}
	}
	b := contentOf(t, a, e)
	sum := sha256.Sum256(b)
	m["len"], m["sha256"] = float64(len(b)), hex.EncodeToString(sum[:])
	return m
}

// shownPaths makes paths of the expectations' names.
func shownPaths(nodes []expectedNode) []expectedNode {
	out := slices.Clone(nodes)
	for i, n := range out {
		if n.Path != "/" {
			parts := strings.Split(n.Path[1:], "/")
			for k, p := range parts {
				parts[k] = writeTreeName(p, k == 0)
			}
			out[i].Path = "/" + strings.Join(parts, "/")
		}
		if n.Error != "" {
			out[i].Error, out[i].Props = "lost", [][3]any{}
		}
		for k, p := range n.Props {
			out[i].Props[k][0] = writeTreeName(p[0].(string), n.Path == "/")
		}
	}
	return out
}

func TestTreesReadAsTheReferenceReadsThem(t *testing.T) {
	testkit.Serial(t)
	for _, name := range testkit.Names(t, "testdata", ".tar.gz", 24) {
		if name == "corrupt-segment-magic" {
			continue // the reference shows less of it: see below
		}
		t.Run(name, func(t *testing.T) {
			st, want := readableFixture(t, name), expectedOf(t, name)
			param := map[string]string{superParam: "true"}
			if datastoreOf(t, st, name) {
				param[datastoreParam] = "datastore"
			}
			if name == "two-letters" {
				// The reference, reading only, repairs the newest letter, which has more.
				param[revisionParam] = want.Head.Revision
			}
			a := openTreeArchive(t, st, param)
			about, err := a.About(t.Context())
			if err != nil || !strings.HasPrefix(factOf(about, "revision"), want.Head.Revision) {
				t.Errorf("revision %q, %v, expected %s", factOf(about, "revision"), err, want.Head.Revision)
			}
			compareNodes(t, shownNodes(t, a), shownPaths(want.Head.Nodes))
		})
	}
}

// The reference drops a node with everything below it if it cannot read one of the names of its
// children. Here what is lost is named, and the rest is unchanged.
func TestADamagedSegmentCostsNoMoreThanItHas(t *testing.T) {
	const name, where = "corrupt-segment-magic", 38913
	st := damagedFurther(t, name)
	damaged := openTreeArchive(t, st, nil)
	whole := st.Clone()
	b := bytes.Clone(whole.Get("s/data00001a.tar"))
	b[where] ^= 0x20 ^ further
	whole.Put("s/data00001a.tar", b)
	left := map[string][]byte{}
	kinds := map[string]format.Kind{}
	sound := openTreeArchive(t, whole, nil)
	for e, err := range sound.Entries(t.Context()) {
		if err != nil || e.Fault != nil && e.Fault.Class != externalBlob {
			t.Fatal(e.Fault, err)
		}
		kinds[e.Name] = e.Kind
		if e.Kind.HasContent() && e.Fault == nil {
			left[e.Name] = contentOf(t, sound, e)
		}
	}
	lost, same, all := 0, 0, len(kinds)
	for e, err := range damaged.Entries(t.Context()) {
		switch {
		case err != nil:
			t.Fatal(err)
		case e.Fault != nil && e.Fault.Class != externalBlob:
			lost++
			if e.Fault.Class != badChecksum || e.Fault.Volume != "s/data00001a.tar" || e.Fault.Off < 38912 || e.Fault.Entry != e.Name {
				t.Errorf("%q: %+v", e.Name, e.Fault)
			}
			if got, err := damaged.Lookup(t.Context(), e.Name); err != nil || !reflect.DeepEqual(got, e) {
				t.Errorf("%q: %+v, %v, expected %+v", e.Name, got, err, e)
			}
		default:
			if k, ok := kinds[e.Name]; !ok || k != e.Kind {
				t.Errorf("%q, a %v, was a %v", e.Name, e.Kind, k)
			}
			if e.Kind.HasContent() && e.Fault == nil && !bytes.Equal(contentOf(t, damaged, e), left[e.Name]) {
				t.Errorf("%q has other content", e.Name)
			}
			same++
		}
	}
	t.Logf("%d entries of %d, %d lost", same, all, lost)
	if lost == 0 || same+lost < all/2 {
		t.Errorf("%d entries of %d, %d lost", same, all, lost)
	}
}

func compareNodes(t *testing.T, got, want []expectedNode) {
	t.Helper()
	if len(got) != len(want) {
		t.Errorf("%d nodes, expected %d", len(got), len(want))
	}
	for i := range min(len(got), len(want)) {
		if !reflect.DeepEqual(got[i], want[i]) {
			t.Fatalf("node %d is\n%.600v\nexpected\n%.600v", i, got[i], want[i])
		}
	}
}

func factOf(about format.About, key string) string {
	for _, f := range about.Facts {
		if f[0] == key {
			return f[1]
		}
	}
	return ""
}

// near is a local store, in which small reads cost little.
type near struct{ store.Store }

func (near) Can() store.Abilities { return store.Abilities{Near: true} }

// If nothing is compared, a path costs a little of each segment on its way, and finds the
// same.
func TestAPathNearByReadsPartsOfSegments(t *testing.T) {
	unverified := func(st store.Store) *Store {
		s, err := OpenStore(t.Context(), near{st}, "s", format.OpenOptions{NoVerify: true})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		return s
	}
	var log bytes.Buffer
	st := storetest.Trace(fixture(t, "wide"), &log)
	var sums []string
	for _, s := range []*Store{openStoreOf(t, st), unverified(st)} {
		tree := treeOf(t, s, nil)
		log.Reset()
		var out bytes.Buffer
		for e, err := range tree.t.ReadDir(t.Context(), ".") {
			if err != nil || e.Kind != format.Dir {
				continue
			}
			if _, err := tree.WriteJSON(t.Context(), &out, e.Name, 0); err != nil {
				t.Fatal(err)
			}
		}
		sums = append(sums, fmt.Sprintf("%x", sha256.Sum256(out.Bytes())))
	}
	if sums[0] != sums[1] {
		t.Error("parts of segments say something else than whole ones")
	}
	tree := treeOf(t, unverified(st), nil)
	log.Reset()
	if _, err := tree.WriteJSON(t.Context(), io.Discard, "/", 0); err != nil {
		t.Fatal(err)
	}
	bytes := 0
	for line := range strings.Lines(log.String()) {
		var off, n int
		if at := strings.LastIndex(line, " at "); at >= 0 {
			fmt.Sscanf(line[at:], " at %d+%d", &off, &n)
			bytes += n
		}
	}
	if bytes == 0 || bytes > 512<<10 {
		t.Errorf("%d bytes were read:\n%s", bytes, log.String())
	}
}

// Lookup finds every path that a walk finds, and listing it yields what the walk found.
func TestPathsAreFoundAsWalksFindThem(t *testing.T) {
	testkit.Serial(t)
	rnd := testkit.Rand(t)
	for _, name := range []string{"types", "wide", "datastore", "corrupt-segment-magic", "v12", "multitar"} {
		t.Run(name, func(t *testing.T) {
			var st store.Store = fixture(t, name)
			if rnd.IntN(3) > 0 {
				st = near{st}
			}
			r, err := openTreeOf(t.Context(), st, "s", format.OpenOptions{})
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			var all []format.Entry
			in := map[string][]format.Entry{}
			for e, err := range r.Entries(t.Context()) {
				if err != nil {
					t.Fatal(err)
				}
				all = append(all, e)
				if e.Name != "." {
					in[path.Dir(e.Name)] = append(in[path.Dir(e.Name)], e)
				}
			}
			for range 3000 {
				e := all[rnd.IntN(len(all))]
				got, err := r.Lookup(t.Context(), e.Name)
				if err != nil || !reflect.DeepEqual(got, e) {
					t.Fatalf("%q: %+v, %v, expected %+v", e.Name, got, err, e)
				}
			}
			dirs := slices.Collect(maps.Keys(in))
			for range min(len(dirs), 30) {
				dir := dirs[rnd.IntN(len(dirs))]
				var got, want []format.Entry
				for e, err := range r.Can().EntriesBelow(t.Context(), dir) {
					if err != nil {
						t.Fatal(err)
					}
					got = append(got, e)
				}
				for _, e := range all {
					if dir == "." && e.Name != "." || strings.HasPrefix(e.Name, dir+"/") {
						want = append(want, e)
					}
				}
				if !reflect.DeepEqual(got, want) {
					t.Fatalf("below %q: %d entries, the walk has %d, or they differ", dir, len(got), len(want))
				}
			}
			for range min(len(dirs), 100) {
				dir := dirs[rnd.IntN(len(dirs))]
				var got []format.Entry
				for e, err := range r.ReadDir(t.Context(), dir) {
					if err != nil {
						t.Fatal(err)
					}
					got = append(got, e)
				}
				if !reflect.DeepEqual(got, in[dir]) {
					t.Fatalf("%q: %d entries, the walk has %d, or they differ", dir, len(got), len(in[dir]))
				}
			}
		})
	}
}

// A path costs the segments on its way, whatever is beside it.
func TestAPathReadsFewSegments(t *testing.T) {
	var log bytes.Buffer
	st := storetest.Trace(fixture(t, "wide"), &log)
	reads := func() (n int) {
		for line := range strings.Lines(log.String()) {
			if strings.HasPrefix(line, "read ") && strings.Contains(line, ".tar ") {
				n++
			}
		}
		log.Reset()
		return n
	}
	want := expectedOf(t, "wide")
	deep := want.Head.Nodes[len(want.Head.Nodes)-1]
	for _, n := range want.Head.Nodes {
		if strings.Count(n.Path, "/") == 3 && len(n.Props) > 0 {
			deep = n
			break
		}
	}
	r, err := openTreeOf(t.Context(), st, "s", format.OpenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	segments := 0
	for _, tar := range r.(*treeReader).tars {
		segments += tar.len()
	}
	if n := reads(); n > 2 {
		t.Errorf("opening reads %d segments", n)
	}
	name := strings.TrimPrefix(deep.Path, "/root/") + "/" + deep.Props[0][0].(string)
	e, err := r.Lookup(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	for x, err := range r.Extents(t.Context(), e, 0, e.Size) {
		if err != nil || string(x.Data) != deep.Props[0][2].([]any)[0] {
			t.Errorf("%q: %+v, %v", name, x, err)
		}
	}
	n := reads()
	t.Logf("%s: %d of %d segments", name, n, segments)
	if n > 6 {
		t.Errorf("%s: reads %d of %d segments", name, n, segments)
	}
}

func TestRevisionsAndCheckpointsAreChosen(t *testing.T) {
	st, want := fixture(t, "checkpoints"), expectedOf(t, "checkpoints")
	under := func(prefix string) (out []expectedNode) {
		for _, n := range shownPaths(want.Head.Nodes) {
			if rest, ok := strings.CutPrefix(n.Path, prefix); ok && (rest == "" || rest[0] == '/') {
				n.Path = cmp.Or(rest, "/")
				out = append(out, n)
			}
		}
		return out
	}
	compareNodes(t, shownNodes(t, openTreeArchive(t, st, nil)), under("/root"))
	checked := 0
	for _, n := range want.Head.Nodes {
		if name, ok := strings.CutPrefix(n.Path, "/checkpoints/"); ok && !strings.Contains(name, "/") {
			a := openTreeArchive(t, st, map[string]string{checkpointParam: name})
			compareNodes(t, shownNodes(t, a), under(n.Path+"/root"))
			about, err := a.About(t.Context())
			if err != nil || !strings.Contains(fmt.Sprint(about.Facts), name+", created 20") {
				t.Error(about.Facts, err)
			}
			checked++
		}
	}
	if checked == 0 {
		t.Error("no checkpoints")
	}
	type choice struct{ said, want string }
	journal := want.JournalNewestFirst
	choices := []choice{{"2999-01-01T00:00:00+05:00", journal[0][0].(string)}}
	for i, e := range journal {
		revision, millis := e[0].(string), int64(e[1].(float64))
		choices = append(choices, choice{revision, revision})
		if i == 0 || millis < int64(journal[i-1][1].(float64)) {
			choices = append(choices, choice{time.UnixMilli(millis).UTC().Format(time.RFC3339Nano), revision})
		}
	}
	for _, c := range choices {
		r, err := openTreeOf(t.Context(), st, "s", format.OpenOptions{Param: map[string]string{revisionParam: c.said}})
		if err != nil {
			t.Fatal(c.said, err)
		}
		if got := r.(*treeReader).shown.Revision.String(); got != c.want {
			t.Errorf("%s: %s, expected %s", c.said, got, c.want)
		}
		r.Close()
	}
	for _, c := range []struct {
		param map[string]string
		want  error
	}{
		{map[string]string{revisionParam: "1999-01-01T00:00:00Z"}, fs.ErrNotExist},
		{map[string]string{revisionParam: "yesterday"}, fs.ErrInvalid},
		{map[string]string{revisionParam: "00000000-0000-4000-a000-000000000000:1"}, format.ErrCorrupt},
		{map[string]string{checkpointParam: "none"}, fs.ErrNotExist},
		{map[string]string{checkpointParam: "a", superParam: "true"}, fs.ErrInvalid},
		{map[string]string{superParam: "yes"}, fs.ErrInvalid},
		{map[string]string{"revison": "1"}, errors.ErrUnsupported},
	} {
		if err := Format.CheckParams(format.ToOpen, c.param); errors.Is(err, c.want) {
			continue
		}
		if r, err := openTreeOf(t.Context(), st, "s", format.OpenOptions{Param: c.param}); !errors.Is(err, c.want) {
			t.Errorf("%v: %v, %v", c.param, r, err)
		}
	}
}
