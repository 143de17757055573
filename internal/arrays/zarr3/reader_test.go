package zarr3_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/holdall/holdall"
	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/lindi"
	"github.com/holdall/holdall/internal/testkit"
	_ "github.com/holdall/holdall/store/all"
	"github.com/holdall/holdall/zarr"
)

const fixtures = "../../../format/lindi/testdata"

func open(t *testing.T, archive, view string) *holdall.Archive {
	t.Helper()
	a, err := holdall.Open(t.Context(), archive, holdall.OpenOptions{View: view, Formats: []*format.Format{lindi.Format}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.Close() })
	return a
}

// textOf is what an object of version 2 is in version 3.
func textOf(v any) string {
	switch v := v.(type) {
	case nil:
		return ""
	case string:
		return strings.ToValidUTF8(v, "\uFFFD")
	case []byte:
		return string(v)
	}
	b, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return string(b)
}

// plain makes texts that are JSON comparable.
func plain(s string) string {
	var v any
	if json.Unmarshal([]byte(s), &v) == nil {
		b, _ := json.Marshal(v)
		return string(b)
	}
	return s
}

// Every array of the reference's archives has the same elements in both versions.
func TestArraysOfBothVersions(t *testing.T) {
	names, err := filepath.Glob(fixtures + "/p*.lindi.*")
	if err != nil {
		t.Fatal(err)
	}
	names = slices.DeleteFunc(names, func(name string) bool {
		return strings.HasSuffix(name, ".expect.json") || strings.Contains(name, "dangling")
	})
	arrays := 0
	for _, name := range names {
		old := open(t, name, "zarr")
		a := open(t, name, "zarr3")
		for e, err := range old.Entries(t.Context()) {
			at, last := path.Split(e.Name)
			if err != nil {
				t.Fatal(err)
			}
			if last != ".zarray" {
				continue
			}
			arrays++
			two, err := zarr.Open(t.Context(), old, at)
			if err != nil {
				t.Fatal(err)
			}
			three, err := zarr.Open(t.Context(), a, at)
			if err != nil {
				if two.External == nil {
					t.Errorf("%s: %s: %v", name, at, err)
				}
				continue
			}
			if !slices.Equal(two.Shape, three.Shape) && !(two.Scalar && len(three.Shape) == 0) {
				t.Errorf("%s: %s: %v", name, at, three.Shape)
			}
			if two.DType.Kind != 'O' {
				var want, got bytes.Buffer
				werr, gerr := two.WriteElements(t.Context(), &want), three.WriteElements(t.Context(), &got)
				if (werr == nil) != (gerr == nil) || !bytes.Equal(want.Bytes(), got.Bytes()) {
					t.Errorf("%s: %s: %v, %v", name, at, werr, gerr)
				}
				continue
			}
			want, werr := two.Values(t.Context())
			if werr != nil {
				continue
			}
			got, err := three.Values(t.Context())
			if err != nil || len(got) != len(want) {
				t.Errorf("%s: %s: %v, %d values of %d", name, at, err, len(got), len(want))
				continue
			}
			for i := range want {
				if plain(textOf(want[i])) != plain(textOf(got[i])) {
					t.Errorf("%s: %s: element %d: %v, expected %v", name, at, i, got[i], want[i])
				}
			}
		}
	}
	if arrays < 59 {
		t.Errorf("only %d arrays", arrays)
	}
}

// Every listed key exists, with the length that the listing states.
func TestKeysAreWhatIsListed(t *testing.T) {
	for _, name := range []string{"p06_attrs_groups_links.lindi.tar", "p07_from_hdf5.lindi.tar", "p10_codecs.lindi.tar", "p08_from_hdf5.lindi.json"} {
		a := open(t, filepath.Join(fixtures, name), "zarr3")
		contents := map[string]string{}
		for e, err := range a.Entries(t.Context()) {
			if err != nil {
				t.Fatal(err)
			}
			if last := path.Base(e.Name); strings.HasPrefix(last, ".z") {
				t.Errorf("%s: %s is listed", name, e.Name)
			}
			again, err := a.Lookup(t.Context(), e.Name)
			if err != nil || again.Size != e.Size {
				t.Errorf("%s: %s: %v, %d bytes, listed with %d", name, e.Name, err, again.Size, e.Size)
			}
			if _, twice := contents[e.Name]; twice {
				t.Errorf("%s: %s is listed twice", name, e.Name)
			}
			var b bytes.Buffer
			if err := a.WriteContent(t.Context(), &b, e); err != nil {
				continue // outside, where it may not lead
			}
			if int64(b.Len()) != e.Size {
				t.Errorf("%s: %s: %d bytes of %d", name, e.Name, b.Len(), e.Size)
			}
			contents[e.Name] = b.String()
			if path.Base(e.Name) == zarr.MetaName && !json.Valid([]byte(strings.ReplaceAll(b.String(), "NaN", "1"))) {
				t.Errorf("%s: %s: %s", name, e.Name, &b)
			}
		}
		if err := fs.WalkDir(a.FS(t.Context()), ".", func(name string, d fs.DirEntry, err error) error {
			if e, lerr := a.Lookup(t.Context(), name); err == nil && !d.IsDir() && (lerr != nil || e.Kind == format.Dir) {
				t.Errorf("%s: %v", name, lerr)
			}
			return err
		}); err != nil {
			t.Error(err)
		}
	}
}

// What is not of version 3 is not there.
func TestWhatIsNotThere(t *testing.T) {
	a := open(t, fixtures+"/p06_attrs_groups_links.lindi.tar", "zarr3")
	for _, name := range []string{".zgroup", ".zattrs", ".zmetadata", "words/.zarray", "words/0", "words/c.00", "words/c.1", "words/c", "words/c.0.0", "none/zarr.json", "a/c", "zarr.json/x", "words/zarr.json/x", "", "..", "a/../zarr.json"} {
		if e, err := a.Lookup(t.Context(), name); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%q: %+v, %v", name, e, err)
		}
	}
}

// Arrays that version 3 cannot represent are left out, with all that is below them, and that is
// reported.
func TestLeftOut(t *testing.T) {
	dir := t.TempDir()
	testkit.Tree(t, filepath.Join(dir, "z"), map[string]string{
		".zgroup": `{"zarr_format":2}`, "x/.zarray": `{"zarr_format":2,"shape":[2],"chunks":[2],"dtype":"|u1","compressor":null,"filters":null,"fill_value":0,"order":"C"}`, "x/0": "ab",
		"odd/.zarray": `{"zarr_format":2,"shape":[2],"chunks":[2],"dtype":"|O","compressor":null,"filters":[{"id":"pickle"}],"fill_value":0,"order":"C"}`, "odd/0": "pickled",
		"bad/.zarray": `{"zarr_format":2}`, "bad/0": "x", "note.txt": "a file",
	})
	archive := filepath.Join(dir, "x.lindi.tar")
	if _, err := holdall.Pack(t.Context(), archive, []string{filepath.Join(dir, "z")}, holdall.PackOptions{Format: "lindi", Formats: []*format.Format{lindi.Format}}); err != nil {
		t.Fatal(err)
	}
	a := open(t, archive, "zarr3")
	var names []string
	for e, err := range a.Entries(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, e.Name)
	}
	slices.Sort(names)
	if want := []string{"note.txt", "x/0", "x/zarr.json", "zarr.json"}; !slices.Equal(names, want) {
		t.Errorf("%q, want %q", names, want)
	}
	names = nil
	for e, err := range a.ReadDir(t.Context(), ".") {
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, e.Name)
	}
	slices.Sort(names)
	if want := []string{"note.txt", "x", "zarr.json"}; !slices.Equal(names, want) {
		t.Errorf("%q, want %q", names, want)
	}
	for _, name := range []string{"odd/0", "odd/zarr.json", "odd", "bad", "bad/0"} {
		if _, err := a.Lookup(t.Context(), name); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: %v", name, err)
		}
	}
	about, err := a.About(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var said []string
	for _, n := range about.Notes {
		if n.Code == format.Unsupported {
			said = append(said, n.Entry)
		}
	}
	if !slices.Equal(said, []string{"bad", "odd"}) {
		t.Errorf("said: %+v", about.Notes)
	}
}
