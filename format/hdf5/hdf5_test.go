package hdf5_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/formattest"
	"github.com/holdall/holdall/format/hdf5"
	"github.com/holdall/holdall/internal/arrays/arraycodec"
	"github.com/holdall/holdall/internal/testkit"
	"github.com/holdall/holdall/store/storetest"
)

func TestConformance(t *testing.T) {
	formattest.Run(t, hdf5.Format)
	names, err := filepath.Glob("../../hdf5/testdata/*.h5.gz")
	if err != nil || len(names) == 0 {
		t.Fatal(names, err)
	}
	for _, name := range names {
		short := strings.TrimSuffix(filepath.Base(name), ".gz")
		file := testkit.Read(t, strings.TrimSuffix(name, ".gz"))
		if len(file) > 12<<10 || strings.HasPrefix(short, "refused_") { // each is damaged thousands of times; not all of the others can be read
			continue
		}
		t.Run(short, func(t *testing.T) {
			formattest.RunArchive(t, hdf5.Format, map[string][]byte{short: file}, short)
		})
	}
}

// TestTheReferencesAreLINDIs compares keys with the references that the reference of LINDI made
// of the same file: testdata/make.py.
func TestTheReferencesAreLINDIs(t *testing.T) {
	for _, links := range []string{"", "1000"} {
		var lindi struct {
			Refs      map[string]any
			Templates map[string]string
		}
		testkit.JSON(t, "testdata/references.json", &lindi)
		file := testkit.Read(t, "testdata/references.h5")
		st := &storetest.Mem{}
		st.Put("http://x/a.h5", file)
		r, err := hdf5.Format.Open(t.Context(), st, "http://x/a.h5", format.OpenOptions{Param: map[string]string{"link-arrays": links}})
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		seen := map[string]bool{}
		for e, err := range r.Entries(t.Context()) {
			if err != nil || e.Fault != nil {
				t.Fatal(err, e.Fault)
			}
			seen[e.Name] = true
			dir := path.Dir(e.Name)
			if links == "" && dir == "many" || dir == "bigbools" { // the reference has links, and takes booleans in
				continue
			}
			want, ok := lindi.Refs[e.Name]
			if !ok {
				t.Errorf("%s is not in the references", e.Name)
				continue
			}
			for x, err := range r.Extents(t.Context(), e, 0, e.Size) {
				if err != nil {
					t.Fatal(e.Name, err)
				}
				var got any
				switch {
				case len(x.Data) == 0:
					got = []any{x.Object, float64(x.Off), float64(x.Len)}
					want.([]any)[0] = lindi.Templates["u1"]
				case strings.HasPrefix(path.Base(e.Name), ".z"):
					if err := json.Unmarshal(x.Data, &got); err != nil {
						t.Fatal(e.Name, err)
					}
				default:
					got, want = plain(t, x.Data), plain(t, inline(t, want))
				}
				if !reflect.DeepEqual(got, want) {
					t.Errorf("%s:\n%v, expected\n%v", e.Name, got, want)
				}
			}
		}
		for name := range lindi.Refs {
			if !seen[name] && !(links == "" && name == "many/.zattrs") {
				t.Errorf("%s is missing", name)
			}
		}
	}
}

// TestDimensionsOfNetCDFAreKept reads what testdata/make.py has made as netCDF does.
func TestDimensionsOfNetCDFAreKept(t *testing.T) {
	st := &storetest.Mem{}
	st.Put("a.nc", testkit.Read(t, "testdata/netcdf.h5"))
	r, err := hdf5.Format.Open(t.Context(), st, "a.nc", format.OpenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if about, err := r.About(t.Context()); err != nil || len(about.Notes) > 0 {
		t.Error(about.Notes, err)
	}
	for name, want := range map[string]string{
		".zattrs":              `{"level":5,"title":"of netCDF"}`,
		"time/.zattrs":         `{"units":"days since 2001-01-01","_ARRAY_DIMENSIONS":["time"]}`,
		"lat/.zattrs":          `{"_ARRAY_DIMENSIONS":["time","y"]}`,
		"full/.zattrs":         `{"_ARRAY_DIMENSIONS":["time","y"]}`,
		"full/.zarray":         `"fill_value":null,"filters":null,"order":"C","shape":[4,3]`,
		"masked/.zattrs":       `{"_FillValue":-9.5,"_ARRAY_DIMENSIONS":["time","y"]}`,
		"masked/.zarray":       `"fill_value":-9.5,`,
		"written/.zarray":      `"fill_value":-1,`,
		"sparse/.zarray":       `"fill_value":0,`,
		"text/.zarray":         `"fill_value":null,"filters":[{"id":"vlen-utf8"}]`,
		"text/0":               "\x03\x00\x00\x00\x01\x00\x00\x00a\x02\x00\x00\x00ü\x00\x00\x00\x00",
		"below/square/.zattrs": `{"_ARRAY_DIMENSIONS":["phony_dim_0","phony_dim_2"]}`,
		"below/longer/.zattrs": `{"_ARRAY_DIMENSIONS":["phony_dim_0","phony_dim_1"]}`,
		"below/known/.zattrs":  `{"_ARRAY_DIMENSIONS":["phony_dim_0","time"]}`,
		"crs/.zattrs":          `{"axes":[0,1],"axis":6378137.0,"_ARRAY_DIMENSIONS":[]}`,
		"crs/.zarray":          `"order":"C","shape":[]`,
	} {
		e, err := r.Lookup(t.Context(), name)
		if err != nil {
			t.Fatal(name, err)
		}
		got := ""
		for x, err := range r.Extents(t.Context(), e, 0, e.Size) {
			if err != nil {
				t.Fatal(name, err)
			}
			got += string(x.Data)
		}
		if got != want && (strings.HasSuffix(name, "s") || !strings.Contains(got, want)) {
			t.Errorf("%s: %q, expected %q", name, got, want)
		}
	}
	if _, err := r.Lookup(t.Context(), "y/.zarray"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a dimension without values: %v", err)
	}
}

// TestReferencesAndTextsAreKeptOrNamed reads a file with references to nothing, and with texts that
// are not UTF-8: testdata/make.py.
func TestReferencesAndTextsAreKeptOrNamed(t *testing.T) {
	const to = `{"_REFERENCE":{"object_id":null,"path":"/x","source":".","source_object_id":null}}`
	const nothing = `{"_REFERENCE":{"object_id":null,"path":null,"source":null,"source_object_id":null}}`
	want := map[string]string{
		"ref/one/0":      "[" + to + `,"|O",[1]]`,
		"ref/null/0":     `[null,"|O",[1]]`,
		"ref/some/0":     "[" + to + `,null,"|O",[2]]`,
		"ref/grid/0.0":   "[[null,null],[null," + to + `],"|O",[2,2]]`,
		"ref/compound/0": "[[1," + to + "],[2," + nothing + `],"|O",[2]]`,
		"ref/.zattrs":    `{"null":` + nothing + `,"one":` + to + `}`,
		"text/one/0":     "\xb5V",
		"text/some/0":    "\xb5Va\x00",
		"text/grid/0.0":  "\x00\x00\x00\x00\x00\x00longer\xff\x00\x00\x00\x00\x00\xb5V\x00\x00\x00\x00",
		"text/fixed/0":   "\xb5V\x00a\x00\x00",
		"text/padded/0":  "\xb5Va\x00",
		"text/utf8/0":    `["\u00b5V","a","|O",[2]]`,
		"text/.zattrs":   `{"fine":"\u00b5V"}`,
		"id/ref/0":       `[{"_REFERENCE":{"object_id":null,"path":"/id","source":".","source_object_id":null}},"|O",[1]]`,
	}
	types := map[string]string{"text/one": "|S2", "text/some": "|S2", "text/grid": "|S6", "text/fixed": "|S3", "text/padded": "|S2", "text/utf8": "|O", "ref/one": "|O"}
	named := []string{
		`warning: id: attribute "object_id": "\xb5V"`,
		`warning: name: attribute "\xb5"`,
		"warning: name/\xb5: the name",
		`warning: text: attribute "unit": "\xb5V"`,
		`warning: text: attribute "units": "\xb5V"`,
		`warning: text/some: attribute "unit": "\xb5V"`,
		`error: name/link/.zarray: "\xb5V"`,
		`error: name/ref/.zarray: "/name/\xb5"`,
		`error: name/row/.zarray: "\xb5"`,
		`error: text/compound/.zarray: "\xb5V"`,
	}
	st := &storetest.Mem{}
	st.Put("a.h5", testkit.Read(t, "testdata/refused.h5"))
	read := func(view string) map[string]string {
		r, err := hdf5.Format.Open(t.Context(), st, "a.h5", format.OpenOptions{View: view})
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		all := map[string]string{}
		for e, err := range r.Entries(t.Context()) {
			if err != nil {
				t.Fatal(err)
			}
			if e.Fault != nil {
				continue
			}
			all[e.Name] = ""
			for x, err := range r.Extents(t.Context(), e, 0, e.Size) {
				if err != nil {
					t.Fatal(e.Name, err)
				}
				all[e.Name] += string(x.Data)
			}
		}
		return all
	}
	found := read("zarr")
	for name, want := range want {
		got := found[name]
		if !strings.HasSuffix(name, ".zattrs") {
			got = plain(t, []byte(got))
		}
		if got != want {
			t.Errorf("%s: %q, expected %q", name, got, want)
		}
	}
	for name, want := range types {
		var meta struct{ Dtype string }
		if err := json.Unmarshal([]byte(found[name+"/.zarray"]), &meta); err != nil || meta.Dtype != want {
			t.Errorf("%s: %q, %v, expected %q", name, meta.Dtype, err, want)
		}
	}
	for name, text := range found {
		if strings.Contains(text, "\ufffd") || strings.Contains(text, `\ufffd`) {
			t.Errorf("%s has a replacement character: %q", name, text)
		}
	}
	var problems []string
	if err := hdf5.Format.Verify(t.Context(), st, "a.h5", format.OpenOptions{}, func(p format.Problem) {
		problems = append(problems, fmt.Sprintf("%v: %v: %v", p.Severity, p.Entry, p.Message))
	}); err != nil {
		t.Fatal(err)
	}
	for i := range max(len(named), len(problems)) {
		if i >= len(named) || i >= len(problems) || !strings.HasPrefix(problems[i], named[i]) {
			t.Fatalf("problems:\n%s\nexpected:\n%s", strings.Join(problems, "\n"), strings.Join(named, "\n"))
		}
	}
	// The other view has the bytes of all texts.
	found = read("objects")
	for name, want := range map[string]string{
		"text/one": "\xb5V", "text/some": "{\"base64\":\"tVY=\"}\n\"a\"\n", "text/@unit": "\xb5V", "text/@units": `["a",{"base64":"tVY="}]`,
		"ref/null": "null\n", "ref/@null": "null",
	} {
		if found[name] != want {
			t.Errorf("objects: %s: %q, expected %q", name, found[name], want)
		}
	}
}

// inline is the content of a reference that has it.
func inline(t *testing.T, v any) []byte {
	t.Helper()
	s, ok := v.(string)
	if !ok {
		t.Fatalf("%v has no content", v)
	}
	if text, is := strings.CutPrefix(s, "base64:"); is {
		b, err := base64.StdEncoding.DecodeString(text)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	return []byte(s)
}

// plain is what Blosc made b of.
func plain(t *testing.T, b []byte) string {
	t.Helper()
	p, err := arraycodec.Blosc(b, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	return string(p)
}

// TestDamageIsToldOf flips bits of a file. Everything that is read must be unchanged, or not be
// reported as intact.
func TestDamageIsToldOf(t *testing.T) {
	file := testkit.Read(t, "../../hdf5/testdata/filters_latest.h5")
	problems := func(b []byte) (all []string) {
		st := &storetest.Mem{}
		st.Put("x.h5", b)
		err := hdf5.Format.Verify(t.Context(), st, "x.h5", format.OpenOptions{}, func(p format.Problem) { all = append(all, fmt.Sprint(p)) })
		if err != nil {
			t.Fatal(err)
		}
		return all
	}
	sound := problems(file)
	for _, magic := range []string{"OHDR", "FADB", "FAHD", "EAHD", "EAIB"} {
		at := bytes.Index(file, []byte(magic))
		if at < 0 {
			continue
		}
		bad := bytes.Clone(file)
		bad[at+6] ^= 0x10
		if got := problems(bad); reflect.DeepEqual(got, sound) {
			t.Errorf("%s at %d is damaged, and problems are as before: %v", magic, at, got)
		}
	}
}

// A second name that a group gives a group above it is shown as a soft link.
func TestAGroupWithinItselfIsALink(t *testing.T) {
	st := &storetest.Mem{}
	st.Put("x.h5", testkit.Read(t, "../../hdf5/testdata/links_latest.h5"))
	r, err := hdf5.Format.Open(t.Context(), st, "x.h5", format.OpenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	e, err := r.Lookup(t.Context(), "a/b/cycle/.zattrs")
	if err != nil {
		t.Fatal(err)
	}
	for x, err := range r.Extents(t.Context(), e, 0, e.Size) {
		if err != nil {
			t.Fatal(err)
		}
		if b, err := x.Inline(t.Context()); err != nil || string(b) != `{"_SOFT_LINK":{"path":"/a"}}` {
			t.Errorf("%s, %v", b, err)
		}
	}
}
