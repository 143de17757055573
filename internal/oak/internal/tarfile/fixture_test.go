package tarfile

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"testing"

	"github.com/holdall/holdall/internal/oak/internal/segment"
	"github.com/holdall/holdall/internal/testkit"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storetest"
)

func TestMain(m *testing.M) { testkit.SerialPackage(m) }

const testdata = "../../testdata/"

// expected is what Oak made of a fixture.
type expected struct {
	Tars  map[string]expectedTar
	RoBak map[string]expectedTar
	After struct {
		Files map[string]int64
		Tars  map[string]expectedTar
	} `json:"afterReadWriteOpen"`
}

// expectedTar has an index of false or null if it is invalid; so have graph and brf.
type expectedTar struct {
	Length       int64
	IndexVersion int
	Index        maybe[[]expectedEntry]
	Graph        maybe[map[string][]string]
	Brf          maybe[map[string]map[string][]longText]
	Segments     map[string]struct {
		SHA256    string `json:"sha256"`
		Version   byte
		Gen, Full int32
		Compacted bool
		Refs      []string
	}
}

// longText is a string as the expectations have it: one of more than 256 bytes by its
// length and digest.
type longText string

func (l *longText) UnmarshalJSON(b []byte) error {
	var long struct {
		UTF8   int
		SHA256 string
	}
	if json.Unmarshal(b, (*string)(l)) == nil {
		return nil
	}
	err := json.Unmarshal(b, &long)
	*l = longText(fmt.Sprintf("%d bytes, %s", long.UTF8, long.SHA256))
	return err
}

func shorten(s string) longText {
	if len(s) <= 256 {
		return longText(s)
	}
	return longText(fmt.Sprintf("%d bytes, %s", len(s), digest([]byte(s))))
}

type maybe[T any] struct {
	v  T
	ok bool
}

func (m *maybe[T]) UnmarshalJSON(b []byte) error {
	if string(b) == "null" || string(b) == "false" {
		return nil
	}
	m.ok = true
	return json.Unmarshal(b, &m.v)
}

type expectedEntry struct{ Entry }

func (e *expectedEntry) UnmarshalJSON(b []byte) error {
	var id string
	g := &e.Generation
	if err := json.Unmarshal(b, &[]any{&id, &e.Pos, &e.Len, &g.Gen, &g.Full, &g.Compacted}); err != nil {
		return err
	}
	var err error
	e.ID, err = segment.ParseID(id)
	return err
}

// fixtures calls do with each store of testdata: its tars and what Oak reports about them.
func fixtures(t *testing.T, do func(t *testing.T, tars map[string][]byte, want expected)) {
	for _, name := range testkit.Names(t, testdata, ".tar.gz", 24) {
		t.Run(name, func(t *testing.T) {
			f, ok := unpacked[name]
			if !ok {
				f = fixture{unpack(t, name), expectation(t, name)}
				unpacked[name] = f
			}
			do(t, f.tars, f.want)
		})
	}
}

// A fixture is only read.
type fixture struct {
	tars map[string][]byte
	want expected
}

// unpacked keeps fixtures, which take longer to unpack than most tests with them.
var unpacked = map[string]fixture{}

func expectation(t testing.TB, name string) (want expected) {
	t.Helper()
	testkit.JSON(t, testdata+name+".expect.json", &want)
	if len(want.Tars) == 0 {
		t.Fatal("no tars")
	}
	for _, tars := range []map[string]expectedTar{want.Tars, want.RoBak, want.After.Tars} {
		for _, w := range tars {
			for _, segments := range w.Brf.v {
				for _, refs := range segments {
					slices.Sort(refs) // shortened ones have another order
				}
			}
		}
	}
	return want
}

// unpack returns the tars of a fixture.
func unpack(t testing.TB, name string) map[string][]byte {
	t.Helper()
	tars := map[string][]byte{}
	for name, b := range testkit.Untar(t, testdata+name+".tar.gz") {
		if path.Base(path.Dir(name)) == "segmentstore" && path.Ext(name) == ".tar" {
			tars[path.Base(name)] = b
		}
	}
	if len(tars) == 0 {
		t.Fatal("no tars in", name)
	}
	return tars
}

// object returns an object in memory.
func object(t testing.TB, b []byte) store.Object {
	t.Helper()
	st := &storetest.Mem{}
	st.Put("data00000a.tar", b)
	o, err := st.Open(t.Context(), "data00000a.tar")
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func open(t testing.TB, b []byte) (*Tar, error) {
	t.Helper()
	return Open(t.Context(), object(t, b), "data00000a.tar", Options{})
}

func mustOpen(t testing.TB, b []byte) *Tar {
	t.Helper()
	x, err := open(t, b)
	if err != nil {
		t.Fatal(err)
	}
	return x
}

// scanAll scans b, and returns everything that was found.
func scanAll(t testing.TB, b []byte) (found []Found, problems []Problem) {
	t.Helper()
	for f, err := range Scan(t.Context(), object(t, b), int64(len(b)), func(p Problem) { problems = append(problems, p) }) {
		if err != nil {
			t.Fatal(err)
		}
		f.Data = bytes.Clone(f.Data)
		found = append(found, f)
	}
	return found, problems
}

func entries(x *Index) (all []Entry) {
	for _, i := range x.ByPosition() {
		all = append(all, x.At(int(i)))
	}
	return all
}

func plain(all []expectedEntry) (es []Entry) {
	for _, e := range all {
		es = append(es, e.Entry)
	}
	return es
}

func texts(ids IDs) (all []string) {
	for id := range ids.All() {
		all = append(all, id.String())
	}
	return all
}

func graphOf(g *Graph) map[string][]string {
	all := map[string][]string{}
	for id, to := range g.All() {
		all[id.String()] = slices.Sorted(slices.Values(texts(to)))
	}
	return all
}

func binariesOf(r *BinaryRefs) map[string]map[string][]longText {
	all := map[string]map[string][]longText{}
	for s := range r.All() {
		g := s.Generation.String()
		if all[g] == nil {
			all[g] = map[string][]longText{}
		}
		var refs []longText
		for ref := range s.Refs.All() {
			refs = append(refs, shorten(ref))
		}
		slices.Sort(refs)
		all[g][s.ID.String()] = refs
	}
	return all
}

func digest(b []byte) string {
	d := sha256.Sum256(b)
	return hex.EncodeToString(d[:])
}

func mustID(t testing.TB, s string) ID {
	t.Helper()
	id, err := segment.ParseID(s)
	if err != nil {
		t.Fatal(err)
	}
	return id
}
