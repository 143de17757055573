package oak

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/oak/internal/salvage"
	"github.com/holdall/holdall/internal/oak/internal/segment"
	"github.com/holdall/holdall/internal/testkit"
	"github.com/holdall/holdall/store/storekit"
	"github.com/holdall/holdall/store/storetest"
)

// salvaged salvages s of st, as s of a new store. Nothing of st changes.
func salvaged(t testing.TB, st *storetest.Mem) (*storetest.Mem, Salvaged) {
	t.Helper()
	before := objects(t, st)
	out := &storetest.Mem{}
	stage := storekit.NewStage(out)
	var x Salvaged
	err := onStore(t.Context(), st, func(s *Store) (err error) {
		x, err = s.Salvage(t.Context(), stage, "s", nil)
		return err
	})
	must(t, err)
	must(t, stage.Publish(t.Context()))
	mustBeSound(t, out)
	mustBeWhole(t, out)
	if !maps.EqualFunc(before, objects(t, st), bytes.Equal) {
		t.Error("the old store has changed")
	}
	return out, x
}

// byPath has properties by the paths of nodes and their own names, as exports have them.
type byPath map[string]map[string]string

func contentsOf(t testing.TB, st *storetest.Mem, param map[string]string) byPath {
	t.Helper()
	lines, _ := exported(t, treeOf(t, openStoreOf(t, st), param), "/", wholeTree)
	all := byPath{}
	for line := range bytes.Lines(lines) {
		var n struct {
			Path, Property string
			Properties     map[string]json.RawMessage
		}
		must(t, json.Unmarshal(line, &n))
		if all[n.Path] == nil {
			all[n.Path] = map[string]string{}
		}
		for name, p := range n.Properties {
			all[n.Path][name] = string(p)
		}
		if n.Property != "" { // more of a value
			all[n.Path][n.Property] += string(line[bytes.Index(line, []byte(`"property"`)):])
		}
	}
	return all
}

// An origin is a store before it lost something.
type origin struct {
	t       testing.TB
	st      *storetest.Mem
	store   *Store
	head    byPath
	nodes   map[string]segment.RecordID   // of the head, by path
	records map[segment.RecordID][]string // their paths, and those of the nodes of which maps are a part
	older   map[string]byPath
}

func originOf(t testing.TB, st *storetest.Mem) *origin {
	t.Helper()
	o := &origin{t: t, st: st, store: openStoreOf(t, st), head: contentsOf(t, st, nil), nodes: map[string]segment.RecordID{}, records: map[segment.RecordID][]string{}, older: map[string]byPath{}}
	must(t, onStore(t.Context(), st, func(s *Store) error {
		h, err := s.r.head(t.Context())
		if err != nil {
			return err
		}
		root, _, err := s.records.Down(t.Context(), h.Revision, rootName)
		if err != nil {
			return err
		}
		return o.walk(s, root, nil, true)
	}))
	if len(o.nodes) != len(o.head) {
		t.Fatalf("%d nodes, and %d in an export", len(o.nodes), len(o.head))
	}
	return o
}

func (o *origin) walk(s *Store, id segment.RecordID, names []string, node bool) error {
	at := joinNames(names)
	if node {
		o.nodes[at] = id
	}
	o.records[id] = append(o.records[id], at)
	p, err := s.records.Part(o.t.Context(), id)
	for _, e := range p.Named {
		way := append(slices.Clip(names), e.Name)
		if _, met := o.nodes[joinNames(way)]; err == nil && !met { // a diff comes before its base
			err = o.walk(s, e.Value, way, true)
		}
	}
	for _, part := range p.Maps {
		if err == nil {
			err = o.walk(s, part, names, false)
		}
	}
	return err
}

// survivors are the paths of the head whose node has its own record in another store.
func (o *origin) survivors(st *storetest.Mem) map[string]bool {
	some := map[string]bool{}
	must(o.t, onStore(o.t.Context(), st, func(s *Store) error {
		for at, id := range o.nodes {
			if _, err := s.records.Record(o.t.Context(), id); err == nil {
				some[at] = true
			}
		}
		return nil
	}))
	return some
}

// at is the tree of the head, or of another revision or checkpoint.
func (o *origin) at(from string) byPath {
	if from == "" {
		return o.head
	}
	if o.older[from] == nil {
		param := map[string]string{revisionParam: strings.TrimPrefix(from, "@")}
		if name, ok := strings.CutPrefix(from, "@checkpoint:"); ok {
			param = map[string]string{checkpointParam: name}
		}
		o.older[from] = contentsOf(o.t, o.st, param)
	}
	return o.older[from]
}

// compare compares what was salvaged of a store that has lost something. No value may be wrong. It
// returns how many nodes have their own record, and how many of these are there again.
func (o *origin) compare(what string, lost, out *storetest.Mem, x Salvaged) (own, back int) {
	o.t.Helper()
	older := map[string]string{}
	for _, p := range x.Older {
		if !p.Name {
			older[p.Path] = p.From
		}
	}
	survivors := o.survivors(lost)
	own = len(survivors)
	newest := ""
	if !x.Newest && x.Revision != "" {
		newest = "@" + x.Revision
	}
	for at, has := range contentsOf(o.t, out, nil) {
		rest, found := strings.CutPrefix(at, x.Folder+"/")
		if x.Folder != "" && at == x.Folder {
			continue
		}
		if found && x.Folder != "" {
			name, below, _ := strings.Cut(rest, "/")
			id, err := segment.ParseRecordID(name)
			must(o.t, err)
			if salvage.Name(id) != name {
				o.t.Errorf("%s: %s", what, name)
			}
			names, err := nodeNames(below)
			must(o.t, err)
			records := o.below(id, names)
			right := len(records) == 0 // a folder
			for _, id := range records {
				places := o.records[id] // none in another revision
				right = right || len(places) == 0 || o.differs(has, o.head[places[0]]) == ""
				for _, p := range places {
					delete(survivors, p)
				}
			}
			if !right {
				o.t.Errorf("%s: %s: %v is another node", what, at, has)
			}
			continue
		}
		from := newest
		for up := at; ; up = path.Dir(up) {
			if older[up] != "" {
				from = older[up]
				break
			}
			if up == "/" {
				break
			}
		}
		// An older node may have children from the newest revision.
		if was, ok := o.head[at]; ok && o.differs(has, was) == "" {
			delete(survivors, at)
		} else if was, ok = o.at(from)[at]; !ok {
			o.t.Errorf("%s: %s is there, and was not in %q", what, at, from)
		} else {
			o.equal(what, at, has, was)
		}
	}
	for at := range survivors {
		o.t.Logf("%s: %s %s is not there", what, at, o.nodes[at])
	}
	return own, own - len(survivors)
}

// below returns the nodes at a path below a record, which may be a part of a map. That may have several
// for one name.
func (o *origin) below(id segment.RecordID, names []string) (all []segment.RecordID) {
	rec, err := o.store.records.Record(o.t.Context(), id)
	if len(names) == 0 && err == nil && rec.Type() == segment.NodeRecord {
		return []segment.RecordID{id}
	}
	p, err := o.store.records.Part(o.t.Context(), id)
	if err != nil {
		all = append(all, segment.RecordID{}) // it cannot be known
	}
	for _, m := range p.Maps {
		all = append(all, o.below(m, names)...)
	}
	for _, e := range p.Named {
		if len(names) > 0 && e.Name == names[0] {
			all = append(all, o.below(e.Value, names[1:])...)
		}
	}
	return all
}

func (o *origin) equal(what, at string, has, was map[string]string) {
	o.t.Helper()
	if name := o.differs(has, was); name != "" {
		o.t.Errorf("%s: %s, property %s: %.200q, was %.200q", what, at, name, has[name], was[name])
	}
}

// differs returns a property of a node, which may have lost others, that was not its own.
func (o *origin) differs(has, was map[string]string) string {
	nameless := has["lostTemplate"] != ""
	for name, p := range has {
		if p != was[name] && !(nameless && (strings.HasPrefix(name, "lost") || name == primaryTypeName)) {
			return name
		}
	}
	return ""
}

// Without any one of its tars, nearly every node of the newest revision that has its own record is
// there again, at its path or in the folder, and nothing is wrong.
func TestNodesOfWhichARecordIsLeftAreThereAgain(t *testing.T) {
	testkit.Serial(t)
	all, again := 0, 0
	for _, name := range testkit.Names(t, "testdata", ".tar.gz", 24) {
		if slices.Contains(damagedFixtures, name) {
			continue
		}
		t.Run(name, func(t *testing.T) {
			st := fixture(t, name)
			if len(tarsOf(t, st)) == 1 {
				return
			}
			o := originOf(t, st)
			for _, tar := range tarsOf(t, st) {
				for _, journal := range []bool{true, false} {
					lost := st.Clone()
					must(t, lost.Remove(t.Context(), tar))
					what := "without " + tar
					if !journal {
						must(t, lost.Remove(t.Context(), "s/journal.log"))
						what += " and the journal"
					}
					out, x := salvaged(t, lost)
					own, back := o.compare(what, lost, out, x)
					t.Logf("%s: %d of %d", what, back, own)
					if all, again = all+own, again+back; back*100 < own*99 {
						t.Errorf("%s: %d of %d nodes are there again; %+v", what, back, own, x.Notes)
					}
				}
			}
		})
	}
	t.Logf("%d of %d nodes", again, all)
}

// HOLDALL_LONG is how many stores are made.
func TestNodesOfRandomStoresAreThereAgain(t *testing.T) {
	testkit.Serial(t)
	rnd := testkit.Rand(t)
	for range testkit.Rounds(t, 2) {
		st := randomStore(t, rnd)
		o := originOf(t, st)
		for _, tar := range testkit.Some(t, 4, tarsOf(t, st)...) {
			lost := st.Clone()
			must(t, lost.Remove(t.Context(), tar))
			if rnd.IntN(4) == 0 {
				must(t, lost.Remove(t.Context(), "s/journal.log"))
			}
			out, x := salvaged(t, lost)
			own, back := o.compare("without "+tar, lost, out, x)
			t.Logf("without %s of %d: %d of %d; %d paths from older revisions, %d subtrees found", tar, len(tarsOf(t, st)), back, own, x.OlderPaths, x.Found)
			if back*100 < own*99 {
				t.Errorf("without %s: %d of %d nodes are there again", tar, back, own)
			}
		}
	}
}

// randomStore makes a store of at least ten tars: some of one revision, and one for each later one.
func randomStore(t testing.TB, rnd *rand.Rand) *storetest.Mem {
	t.Helper()
	var lines strings.Builder
	lines.WriteString(`{"path":"/","properties":{}}` + "\n")
	var paths []string
	for i := range 1200 {
		parent := ""
		if i > 10 {
			parent = paths[rnd.IntN(min(i, 300))]
		}
		p := fmt.Sprintf("%s/n%d", parent, i)
		paths = append(paths, p)
		fmt.Fprintf(&lines, `{"path":%q,"properties":{"jcr:primaryType":{"type":"Name","value":"nt:unstructured"},"p%d":{"type":"String","value":%q},"n":{"type":"Long","value":"%d"}`,
			p, rnd.IntN(40), fmt.Sprintf("%x", testkit.Noise(rnd, rnd.IntN(5000))), i)
		if rnd.IntN(20) == 0 {
			fmt.Fprintf(&lines, `,"data":{"type":"Binary","length":30000,"base64":%q}`, strings.Repeat(fmt.Sprintf("%08x", rnd.Uint32()), 5000))
		}
		lines.WriteString("}}\n")
	}
	st := &storetest.Mem{}
	stage := storekit.NewStage(st)
	_, err := Import(t.Context(), strings.NewReader(lines.String()), stage, "s", format.CreateOptions{Scratch: tmp, Param: map[string]string{tarSizeParam: "1048576"}})
	must(t, err)
	must(t, stage.Publish(t.Context()))
	for i := range 7 {
		must(t, onStore(t.Context(), st, func(s *Store) error {
			if i == 3 {
				_, err := s.Remove(t.Context(), paths[1000], RemoveOptions{})
				return err
			}
			at := paths[rnd.IntN(300)]
			_, err := s.Set(t.Context(), at, fmt.Sprint("new", i), []string{fmt.Sprint(rnd.Uint64())}, SetOptions{})
			return err
		}))
	}
	return st
}

// Nothing is taken from damaged segments: what is there is right, or it is left out and reported.
// HOLDALL_LONG is how many stores are damaged.
func TestNothingWrongIsSalvaged(t *testing.T) {
	testkit.Serial(t)
	rnd := testkit.Rand(t)
	for range testkit.Rounds(t, 6) {
		name := []string{"multitar", "gc-online", "v12", "checkpoints", "two-letters"}[rnd.IntN(5)]
		st := fixture(t, name)
		o := originOf(t, st)
		lost := st.Clone()
		tars := tarsOf(t, st)
		for range rnd.IntN(5) + 1 {
			tar := tars[rnd.IntN(len(tars))]
			b := bytes.Clone(lost.Get(tar))
			b[rnd.IntN(len(b))] ^= 1 << rnd.IntN(8)
			lost.Put(tar, b)
		}
		out, x := salvaged(t, lost)
		if own, back := o.compare(name, lost, out, x); back < own {
			t.Errorf("%s: %d of %d nodes are there again", name, back, own)
		}
		if len(contentsOf(t, out, nil)) != len(o.head) && x.Whole() {
			t.Errorf("%s: nodes are lost, and nothing is reported: %+v", name, x)
		}
	}
}

// A binary without one of its segments is left out, and what is beside it stays.
func TestABinaryIsSalvagedWholeOrNotAtAll(t *testing.T) {
	root := func(m maker) segment.RecordID {
		a := m.node([]segment.NewProperty{single("large", segment.Binary, m.binary(noise(3*segment.MaxSize))), single("n", segment.Integer, text("1"))})
		b := m.node([]segment.NewProperty{single("other", segment.Binary, m.binary(noise(5000)))})
		return m.node(nil, segment.Child{Name: "a", Node: a}, segment.Child{Name: "b", Node: b})
	}
	whole := madeStore(t, root)
	out, x := salvaged(t, whole)
	if !x.Whole() || !bytes.Equal(linesOf(t, out), linesOf(t, whole)) {
		t.Errorf("%+v", x)
	}
	out, x = salvaged(t, madeStore(t, root, bulkOf(t, whole)))
	got, want := contentsOf(t, out, nil), contentsOf(t, whole, nil)
	delete(want["/a"], "large")
	if x.Lost != 1 || x.Losses[0].Path != "/a" || x.Losses[0].Property != "large" || x.Found > 0 || !maps.EqualFunc(got, want, maps.Equal) {
		t.Errorf("%+v; %d nodes", x, len(got))
	}
}

// A node may refer to itself, or to anything else.
func FuzzSalvage(f *testing.F) {
	fuzzed := fuzzedStores(f)
	f.Fuzz(func(t *testing.T, seed uint64, changes uint8) {
		damaged := fuzzed(t, seed, int(changes%16)+1, changes&16 != 0)
		if changes&32 != 0 {
			must(t, damaged.Remove(t.Context(), "s/journal.log"))
		}
		out := &storetest.Mem{}
		stage := storekit.NewStage(out)
		err := onStore(t.Context(), damaged, func(s *Store) error {
			_, err := s.Salvage(t.Context(), stage, "s", nil)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		must(t, stage.Publish(t.Context()))
		mustBeWhole(t, out)
	})
}
