package hdf5_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"path"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/formattest"
	"github.com/holdall/holdall/format/hdf5"
	"github.com/holdall/holdall/internal/arraycodec"
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
