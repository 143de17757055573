package repo

import (
	"encoding/json"
	"testing"

	"github.com/holdall/holdall/internal/testkit"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storetest"
)

const testdata = "../../testdata/"

// expected is what Oak reports about a fixture.
type expected struct {
	Files   map[string]int64
	Journal [][2]any `json:"journalNewestFirst"`
	GCLog   []string `json:"gclog"`
	Tars    map[string]json.RawMessage
	Head    struct{ Revision string }
}

// fixtures calls do with each store of testdata, in directory "segmentstore".
func fixtures(t *testing.T, do func(t *testing.T, st *storetest.Mem, want expected)) {
	for _, name := range testkit.Names(t, testdata, ".tar.gz", 24) {
		t.Run(name, func(t *testing.T) {
			var want expected
			testkit.JSON(t, testdata+name+".expect.json", &want)
			st := &storetest.Mem{}
			testkit.Put(st, testkit.Untar(t, testdata+name+".tar.gz"), "segmentstore/", "segmentstore/")
			do(t, st, want)
		})
	}
}

func object(t testing.TB, b []byte) store.Object {
	t.Helper()
	st := &storetest.Mem{}
	st.Put("file", b)
	return opened(t, st, "file")
}

func opened(t testing.TB, st store.Store, name string) store.Object {
	t.Helper()
	o, err := st.Open(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// unlisted hides that a store can list.
type unlisted struct{ store.Store }

func (unlisted) Can() store.Abilities { return store.Abilities{} }
