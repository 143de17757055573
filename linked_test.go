package holdall_test

import (
	"bytes"
	"path"
	"strings"
	"testing"

	"github.com/holdall/holdall"
	"github.com/holdall/holdall/internal/testkit"
	"github.com/holdall/holdall/store/storetest"
	"github.com/holdall/holdall/zarr"
)

// linkedArrays makes references to an HDF5 file in which two arrays, of many chunks of which
// few were written, are only links.
func linkedArrays(t *testing.T) *storetest.Mem {
	t.Helper()
	st := &storetest.Mem{}
	st.Put("x.h5", testkit.Read(t, "hdf5/testdata/chunks_latest.h5"))
	a, err := holdall.Open(t.Context(), "x.h5", holdall.OpenOptions{Store: st, Param: map[string]string{"link-arrays": "1000"}})
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	if _, err := holdall.Convert(t.Context(), a, "x.lindi.json", holdall.PackOptions{Store: st, Refer: "here"}); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(st.Get("x.lindi.json")), "_EXTERNAL_ARRAY_LINK"); n != 2 {
		t.Fatalf("%d arrays are links", n)
	}
	return st
}

// elements are those of an array of an archive, or why they cannot be read.
func elements(t *testing.T, a *holdall.Archive, name string) (string, error) {
	t.Helper()
	x, err := zarr.Open(t.Context(), a, name)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	err = x.WriteElements(t.Context(), &b)
	return b.String(), err
}

func opened(t *testing.T, st *storetest.Mem, name string, o holdall.OpenOptions) *holdall.Archive {
	t.Helper()
	a, err := holdall.Open(t.Context(), name, o.In(st))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.Close() })
	return a
}

func TestLinkedArraysAreReadFromTheirFile(t *testing.T) {
	st := linkedArrays(t)
	for _, view := range []string{"zarr", "zarr3"} {
		from, by := opened(t, st, "x.h5", holdall.OpenOptions{View: view}), opened(t, st, "x.lindi.json", holdall.OpenOptions{View: view})
		for _, name := range []string{"sparse", "sparse_growing", "growing"} {
			want, err := elements(t, from, name)
			if err != nil {
				t.Fatal(err)
			}
			if got, err := elements(t, by, name); err != nil || got != want {
				t.Errorf("%s of %s: %d bytes, %v; expected %d", view, name, len(got), err, len(want))
			}
		}
		for _, a := range []*holdall.Archive{from, by} {
			chunks := 0
			for e, err := range a.Entries(t.Context()) {
				if err != nil {
					t.Fatal(err)
				}
				if dir, last := path.Split(e.Name); strings.HasPrefix(dir, "sparse") && last[0] != '.' && last != zarr.MetaName {
					chunks++
				}
			}
			if chunks != 3+2 {
				t.Errorf("%s: %d chunks", view, chunks)
			}
		}
	}
	_, found, _ := verified(t, st, "x.lindi.json", holdall.VerifyOptions{})
	if len(found) > 0 {
		t.Error(found)
	}
}

func TestLinkedArraysThatCannotBeRead(t *testing.T) {
	for name, test := range map[string]struct {
		change func(st *storetest.Mem)
		says   string
	}{
		"gone":    {func(st *storetest.Mem) { st.Put("x.h5", nil) }, "x.h5"},
		"other":   {func(st *storetest.Mem) { st.Put("x.h5", testkit.Read(t, "hdf5/testdata/filters_latest.h5")) }, "does not exist"},
		"outside": {func(st *storetest.Mem) { replaceIn(st, `"url": "x.h5"`, `"url": "https://example.org/x.h5"`) }, "not allowed"},
		"changed": {func(st *storetest.Mem) { replaceIn(st, `"shape": [100000]`, `"shape": [99999]`) }, "the array there differs"},
	} {
		t.Run(name, func(t *testing.T) {
			st := linkedArrays(t)
			test.change(st)
			for _, view := range []string{"zarr", "zarr3"} {
				a := opened(t, st, "x.lindi.json", holdall.OpenOptions{View: view})
				if _, err := elements(t, a, "sparse_growing"); err == nil || !strings.Contains(err.Error(), test.says) || strings.HasSuffix(err.Error(), "unsupported operation") {
					t.Errorf("%s: %v", view, err)
				}
			}
			if _, found, notes := verified(t, st, "x.lindi.json", holdall.VerifyOptions{}); len(found)+len(notes) == 0 {
				t.Error("nothing was found")
			}
		})
	}
}

func replaceIn(st *storetest.Mem, from, to string) {
	st.Put("x.lindi.json", bytes.ReplaceAll(st.Get("x.lindi.json"), []byte(from), []byte(to)))
}

func TestSoftLinksOfHDF5(t *testing.T) {
	st := &storetest.Mem{}
	st.Put("x.h5", testkit.Read(t, "hdf5/testdata/links_latest.h5"))
	for _, view := range []string{"zarr", "zarr3"} {
		a := opened(t, st, "x.h5", holdall.OpenOptions{View: view})
		want, err := elements(t, a, "a/b/c/data")
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"soft", "a/up"} {
			if got, err := elements(t, a, name); err != nil || got != want || want == "" {
				t.Errorf("%s of %s: %q, %v; expected %q", name, view, got, err, want)
			}
		}
		if _, err := zarr.Open(t.Context(), a, "loop1"); err == nil {
			t.Errorf("a loop of links is an array of view %s", view)
		}
	}
}
