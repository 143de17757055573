package repo

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storetest"
)

const testdata = "../../testdata"

// expected is what Oak says of a fixture.
type expected struct {
	Files   map[string]int64
	Journal [][2]any `json:"journalNewestFirst"`
	GCLog   []string `json:"gclog"`
	Tars    map[string]json.RawMessage
	Head    struct{ Revision string }
}

// fixtures calls do with each store of testdata, in directory "segmentstore".
func fixtures(t *testing.T, do func(t *testing.T, st *storetest.Mem, want expected)) {
	all, err := filepath.Glob(filepath.Join(testdata, "*.tar.gz"))
	if err != nil || len(all) != 24 {
		t.Fatal(len(all), "fixtures", err)
	}
	for _, file := range all {
		name := strings.TrimSuffix(filepath.Base(file), ".tar.gz")
		t.Run(name, func(t *testing.T) {
			var want expected
			b, err := os.ReadFile(filepath.Join(testdata, name+".expect.json"))
			if err != nil {
				b = gunzip(t, filepath.Join(testdata, name+".expect.json.gz"))
			}
			if err := json.Unmarshal(b, &want); err != nil {
				t.Fatal(err)
			}
			st := &storetest.Mem{}
			for r := tar.NewReader(bytes.NewReader(gunzip(t, file))); ; {
				h, err := r.Next()
				if err == io.EOF {
					break
				}
				if err != nil {
					t.Fatal(err)
				}
				if h.Typeflag == tar.TypeReg && path.Base(path.Dir(h.Name)) == "segmentstore" {
					b, err := io.ReadAll(r)
					if err != nil {
						t.Fatal(err)
					}
					st.Put("segmentstore/"+path.Base(h.Name), b)
				}
			}
			do(t, st, want)
		})
	}
}

func gunzip(t testing.TB, file string) []byte {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	return b
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
