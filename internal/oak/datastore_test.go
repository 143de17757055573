package oak

import (
	"errors"
	"maps"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdall/holdall/internal/oak/internal/segment"
	"github.com/holdall/holdall/internal/oak/internal/tarfile"
	"github.com/holdall/holdall/internal/write/pack"
	"github.com/holdall/holdall/store/storekit"
	"github.com/holdall/holdall/store/storetest"
)

func garbage(t testing.TB, in Datastore, before time.Time, stores ...*Store) (objects []string, all []Blob, err error) {
	t.Helper()
	for b, err := range Garbage(t.Context(), stores, GarbageOptions{Datastore: in, Scratch: pack.NewScratch, Before: before}) {
		if err != nil {
			return nil, nil, err
		}
		objects, all = append(objects, b.Object), append(all, b)
	}
	return objects, all, nil
}

// later is after all that a test writes.
var later = time.Now().Add(time.Hour)

// What no segment uses is garbage, though older revisions, other stores and damaged trees may
// be what uses the rest.
func TestGarbageIsWhatNoSegmentUses(t *testing.T) {
	st := fixture(t, "datastore-gc")
	datastoreOf(t, st, "datastore-gc")
	in := Datastore{Store: st, Dir: "datastore"}
	used := map[string]bool{}
	s := openStoreOf(t, st)
	if err := s.uses(t.Context(), func(id string) error {
		_, object, _ := blobPlace(id, false)
		used[object] = true
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	var unused []string
	for info, err := range storekit.List(t.Context(), st, "datastore/") {
		if err != nil {
			t.Fatal(err)
		}
		if object := strings.TrimPrefix(info.Name, "datastore/"); !used[object] && in.blobID(object) != "" {
			unused = append(unused, object)
		}
	}
	others := []string{"00/00/00/000000", "ff/ff/ff/ffffffff"}
	for _, name := range append(others, "tmp/upload1", "ff/ff/fe/ffffffff", "repository-x", ".DS", "0000-00") {
		st.Put("datastore/"+name, []byte("x"))
	}
	unused = append(unused, others...)
	slices.Sort(unused)
	got, all, err := garbage(t, in, later, s)
	if err != nil || !slices.Equal(got, unused) || len(used) < 2 {
		t.Errorf("%q, %v, expected %q; %d are used", got, err, unused, len(used))
	}
	if got, _, err := garbage(t, in, time.Unix(0, 0), s); err != nil || len(got) != 0 {
		t.Errorf("what is young is garbage: %q, %v", got, err)
	}
	// In objects the same names lie elsewhere.
	cloud := Datastore{Store: st, Dir: "objects", Cloud: true}
	for object := range maps.Keys(used) {
		id := path.Base(object)
		st.Put("objects/"+id[:4]+"-"+id[4:], nil)
	}
	st.Put("objects/0000-1234", nil)
	st.Put("objects/META/repository-x", nil)
	if got, _, err := garbage(t, cloud, later, s); err != nil || !slices.Equal(got, []string{"0000-1234"}) {
		t.Errorf("in objects: %q, %v", got, err)
	}
	// Another store may use it.
	other := madeStore(t, func(m maker) segment.RecordID {
		return m.node([]segment.NewProperty{single("b", segment.Binary, m.blob("ffffffff#1")), single("again", segment.Binary, m.blob("ffffffff#1"))})
	})
	if got, _, err := garbage(t, in, later, s, openStoreOf(t, other)); err != nil || slices.Contains(got, "ff/ff/ff/ffffffff") || len(got) != len(unused)-1 {
		t.Errorf("with another store: %q, %v", got, err)
	}
	// A blob that was touched in the meantime is kept.
	st.Put("datastore/"+all[0].Object, []byte("another"))
	for i, b := range all {
		if gone, err := in.Delete(t.Context(), b); err != nil || gone != (i > 0) {
			t.Errorf("%s: %t, %v", b.Object, gone, err)
		}
	}
	for object := range used {
		if st.Get("datastore/"+object) == nil {
			t.Errorf("%s is used, and gone", object)
		}
	}
}

func TestRepositoriesThatAreNotNamedAreFound(t *testing.T) {
	with := func(id string) *Store {
		return openStoreOf(t, madeStore(t, func(m maker) segment.RecordID {
			return m.node(nil, segment.Child{Name: clusterNode, Node: m.node([]segment.NewProperty{single(clusterProperty, segment.String, text(id))})})
		}))
	}
	st := &storetest.Mem{}
	for _, name := range []string{"d/repository-one", "d/META/repository-two", "d/references-three", "d/repository-four_x", "d/repository-x/y"} {
		st.Put(name, nil)
	}
	in := Datastore{Store: st, Dir: "d"}
	bare := openStoreOf(t, madeStore(t, func(m maker) segment.RecordID { return m.node(nil) }))
	for _, c := range []struct {
		stores []*Store
		want   string
	}{
		{[]*Store{bare}, "four one two"}, {[]*Store{with("one"), with("two")}, "four"}, {[]*Store{with("four"), with("one"), bare, with("two"), with("none")}, ""},
	} {
		got, err := in.Strangers(t.Context(), c.stores)
		if err != nil || strings.Join(got, " ") != c.want {
			t.Errorf("%q, %v, expected %q", got, err, c.want)
		}
	}
}

// No garbage is reported if a part of a store is lost.
func TestGarbageIsNotSaidOfADamagedStore(t *testing.T) {
	var gone segment.ID
	root := func(m maker) segment.RecordID {
		other := m.node([]segment.NewProperty{single("b", segment.Binary, m.blob("0123456789#5"))})
		if err := m.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		gone = other.Segment
		return m.node(nil, segment.Child{Name: "other", Node: other})
	}
	whole := madeStore(t, root)
	missing := madeStore(t, root, gone)
	rewound := madeStore(t, root)
	rewound.Put("s/journal.log", append(rewound.Get("s/journal.log"), "11111111-2222-4333-a444-555555555555:1 root 1700000000001\n"...))
	// A segment that is damaged, of a tar with a list and of one without.
	damaged, unlisted := madeStore(t, root), madeStore(t, root)
	for _, st := range []*storetest.Mem{damaged, unlisted} {
		s := openStoreOf(t, st)
		_, e, _ := s.r.locate(gone)
		b := slices.Clone(st.Get("s/data00000a.tar"))
		b[e.Pos+int64(e.Len)-1] ^= 1
		if st == unlisted {
			b = cutToSegments(t, b)
		}
		st.Put("s/data00000a.tar", b)
	}
	odd := madeStore(t, func(m maker) segment.RecordID {
		return m.node([]segment.NewProperty{single("b", segment.Binary, m.blob("NOT-HEX#5"))})
	})
	for _, c := range []struct {
		name string
		st   *storetest.Mem
		ok   bool
	}{{"whole", whole, true}, {"a segment is missing", missing, false}, {"rewound", rewound, false}, {"damaged, and listed", damaged, true}, {"damaged", unlisted, false}, {"an id that nobody knows", odd, false}} {
		c.st.Put("blobs/01/23/45/0123456789", []byte("12345"))
		c.st.Put("blobs/ff/ff/ff/ffffffff", nil)
		got, _, err := garbage(t, Datastore{Store: c.st, Dir: "blobs"}, later, openStoreOf(t, c.st))
		if c.ok && (err != nil || !slices.Equal(got, []string{"ff/ff/ff/ffffffff"})) || !c.ok && (err == nil || len(got) > 0) {
			t.Errorf("%s: %q, %v", c.name, got, err)
		}
	}
}

// cutToSegments takes from a tar its lists.
func cutToSegments(t testing.TB, b []byte) []byte {
	t.Helper()
	st := &storetest.Mem{}
	st.Put("x.tar", b)
	o, err := st.Open(t.Context(), "x.tar")
	if err != nil {
		t.Fatal(err)
	}
	tar, err := tarfile.Open(t.Context(), o, "x.tar", tarfile.Options{})
	if err != nil {
		t.Fatal(err)
	}
	l, err := tar.Layout(t.Context())
	if err = errors.Join(err, o.Close()); err != nil {
		t.Fatal(err)
	}
	return b[:l.Binaries.Off-tarfile.BlockSize]
}

func TestABinaryInObjectsIsFoundByItsKey(t *testing.T) {
	const id = "0123456789abcdef0123456789abcdef01234567"
	st := madeStore(t, func(m maker) segment.RecordID {
		return m.node([]segment.NewProperty{single("b", segment.Binary, m.blob(id+"#5"))})
	})
	for datastore, want := range map[string]string{
		"s3://b/p/": "s3://b/p/0123-" + id[4:], "az://a/c": "az://a/c/0123-" + id[4:], "https://h/d": "https://h/d/01/23/45/" + id, "d": "d/01/23/45/" + id,
	} {
		tree := openNodes(t, st, map[string]string{datastoreParam: datastore}).t
		e, err := tree.Lookup(t.Context(), "b")
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for x, err := range tree.Extents(t.Context(), e, 0, e.Size) {
			if n++; err != nil || x.Object != want || !x.External {
				t.Errorf("%s: %+v, %v", datastore, x, err)
			}
		}
		if n != 1 {
			t.Errorf("%s: %d extents", datastore, n)
		}
	}
}
