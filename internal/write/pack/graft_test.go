package pack_test

import (
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"testing"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/lindi"
	"github.com/holdall/holdall/internal/read/content"
	"github.com/holdall/holdall/internal/testkit/archivetest"
	"github.com/holdall/holdall/internal/write/pack"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storetest"
)

const fourChunks = `{"chunks":[2],"compressor":null,"dtype":"|u1","fill_value":0,"filters":null,"order":"C","shape":[8],"zarr_format":2}`

// keysText is a lindi.json of keys.
func keysText(keys map[string]string) string {
	var b strings.Builder
	b.WriteString(`{"refs":{".zgroup":{"zarr_format":2}`)
	for key, content := range keys {
		if content == "[]" {
			fmt.Fprintf(&b, `,%q:["./gone",0,2]`, key)
		} else {
			fmt.Fprintf(&b, `,%q:"base64:%s"`, key, base64.StdEncoding.EncodeToString([]byte(content)))
		}
	}
	return b.String() + "}}"
}

// made is an archive of keys, in one of the forms of LINDI.
func made(t *testing.T, st *storetest.Mem, name string, keys map[string]string) {
	t.Helper()
	st.Put("made.lindi.json", []byte(keysText(keys)))
	if _, err := pack.Convert(t.Context(), openZarr(t, st, "made.lindi.json"), st, name, pack.Options{}); err != nil {
		t.Fatal(err)
	}
}

func openZarr(t *testing.T, st store.Store, name string) *content.Source {
	t.Helper()
	return archivetest.OpenAs(t, st, name, lindi.Format, format.OpenOptions{View: "zarr"})
}

// keysIn is what is in an archive besides the root's group.
func keysIn(t *testing.T, st store.Store, name string) map[string]string {
	t.Helper()
	keys := archivetest.Contents(t, openZarr(t, st, name))
	delete(keys, ".zgroup")
	return keys
}

// graft adds keys of an archive to one, and commits that.
func graft(t *testing.T, st store.Store, archive string, from *content.Source, names []string, o pack.GraftOptions) (failed int64, err error) {
	t.Helper()
	m, err := lindi.Format.Amend(t.Context(), st, archive, format.OpenOptions{View: "zarr"})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	o.Refers = lindi.Format.Refers
	if failed, err = pack.Graft(t.Context(), m, openZarr(t, st, archive), from, names, o); err != nil {
		return failed, err
	}
	_, err = m.Commit(t.Context())
	return failed, err
}

func TestObjectsOfAnotherArchiveAreAdded(t *testing.T) {
	t.Parallel()
	group, large := `{"zarr_format": 2}`, strings.Repeat("z", 3000)
	there := map[string]string{
		"a/.zgroup": group, "a/.zattrs": `{"old": 1}`, "a/kept/.zgroup": group,
		"a/x/.zarray": fourChunks, "a/x/0": "o0", "a/x/1": "o1", "a/x/3": "o3", "b/.zgroup": group, "b/.zattrs": `{"b": 1}`,
	}
	from := map[string]string{
		"a/.zgroup": group, "a/x/.zarray": fourChunks, "a/x/.zattrs": `{"unit": "V"}`, "a/x/0": "n0", "a/x/2": "n2",
		"b/.zgroup": group, "b/.zattrs": `{"b": 2}`, "b/c/.zgroup": group, "b/c/.zattrs": `{"c": 1}`, "b/c/y/.zarray": fourChunks, "b/c/y/0": large,
		".zmetadata": "not of what is there",
	}
	for _, test := range []struct {
		what   string
		names  []string
		prefix string
		gone   []string // of what is there
		come   []string // of from
		bare   []string // groups that nobody has
	}{
		{what: "all", gone: []string{"a/.zattrs", "a/x/1", "a/x/3"}, come: []string{"a/x/.zattrs", "a/x/0", "a/x/2", "b/.zattrs", "b/c/.zgroup", "b/c/.zattrs", "b/c/y/.zarray", "b/c/y/0"}},
		{what: "an array", names: []string{"/a/x/"}, gone: []string{"a/x/1", "a/x/3"}, come: []string{"a/x/.zattrs", "a/x/0", "a/x/2"}},
		{what: "what lies in groups that are not there", names: []string{"b/c/y"}, come: []string{"b/c/.zgroup", "b/c/.zattrs", "b/c/y/.zarray", "b/c/y/0"}},
		{what: "elsewhere", names: []string{"b/c/y"}, prefix: "copies/one/", come: []string{"b/.zgroup", "b/.zattrs", "b/c/.zgroup", "b/c/.zattrs", "b/c/y/.zarray", "b/c/y/0"}, bare: []string{"copies", "copies/one"}},
	} {
		for _, form := range []string{"x.lindi.tar", "x.lindi.d", "x.lindi.json"} {
			st := &storetest.Mem{}
			made(t, st, form, there)
			made(t, st, "from.lindi.tar", from)
			if failed, err := graft(t, st, form, openZarr(t, st, "from.lindi.tar"), test.names, pack.GraftOptions{Prefix: test.prefix}); err != nil || failed > 0 {
				t.Fatalf("%s, %s: %d, %v", test.what, form, failed, err)
			}
			want := map[string]string{}
			for key, content := range there {
				want[key] = content
			}
			for _, key := range test.gone {
				delete(want, key)
			}
			for _, key := range test.come {
				want[test.prefix+key] = from[key]
			}
			for _, dir := range test.bare {
				want[dir+"/.zgroup"] = group
			}
			got := keysIn(t, st, form)
			for key, content := range want {
				if got[key] != content && strings.ReplaceAll(got[key], " ", "") != strings.ReplaceAll(content, " ", "") {
					t.Errorf("%s, %s: %s is %.100q, expected %.100q", test.what, form, key, got[key], content)
				}
				delete(got, key)
			}
			for key := range got {
				t.Errorf("%s, %s: %s is there", test.what, form, key)
			}
			archivetest.Sound(t, openZarr(t, st, form), format.Warning)
		}
	}
}

func TestObjectsThatDoNotFitAreRefused(t *testing.T) {
	t.Parallel()
	group := `{"zarr_format": 2}`
	for what, test := range map[string]struct {
		there, from map[string]string
		names       []string
		err         error
	}{
		"an array for a group":  {map[string]string{"a/.zgroup": group, "a/b/.zgroup": group}, map[string]string{"a/.zarray": fourChunks, "a/0": "00"}, nil, fs.ErrExist},
		"a group for an array":  {map[string]string{"a/.zarray": fourChunks, "a/0": "00"}, map[string]string{"a/.zgroup": group, "a/b/.zarray": fourChunks}, nil, fs.ErrExist},
		"something in an array": {map[string]string{"a/.zarray": fourChunks, "a/0": "00"}, map[string]string{"a/.zgroup": group, "a/b/.zarray": fourChunks}, []string{"a/b"}, fs.ErrExist},
		"what is not there":     {nil, map[string]string{"a/.zgroup": group}, []string{"a", "b"}, fs.ErrNotExist},
		"a chunk":               {nil, map[string]string{"a/.zarray": fourChunks, "a/0": "00"}, []string{"a/0"}, fs.ErrNotExist},
	} {
		st := &storetest.Mem{}
		made(t, st, "x.lindi.tar", test.there)
		made(t, st, "from.lindi.tar", test.from)
		before := keysIn(t, st, "x.lindi.tar")
		if _, err := graft(t, st, "x.lindi.tar", openZarr(t, st, "from.lindi.tar"), test.names, pack.GraftOptions{}); !errors.Is(err, test.err) {
			t.Errorf("%s: %v", what, err)
		}
		if got := keysIn(t, st, "x.lindi.tar"); len(got) != len(before) {
			t.Errorf("%s: %v, expected %v", what, got, before)
		}
	}
	st := &storetest.Mem{}
	made(t, st, "x.lindi.tar", nil)
	if _, err := pack.Convert(t.Context(), openZarr(t, st, "x.lindi.tar"), st, "x.caf", pack.Options{Prefix: "no/root/"}); err != nil {
		t.Fatal(err)
	}
	if _, err := graft(t, st, "x.lindi.tar", archivetest.Open(t, st, "x.caf"), nil, pack.GraftOptions{}); !errors.Is(err, errors.ErrUnsupported) {
		t.Error(err)
	}
}

// A chunk that cannot be had is told of. What was at its place is no chunk of the new array.
func TestChunksThatCannotBeAddedLeaveNoOthers(t *testing.T) {
	t.Parallel()
	st := &storetest.Mem{}
	made(t, st, "x.lindi.tar", map[string]string{"a/.zarray": fourChunks, "a/0": "o0", "a/1": "o1", "a/2": "o2"})
	made(t, st, "from.lindi.tar", map[string]string{"a/.zarray": fourChunks, "a/0": "n0", "a/1": strings.Repeat("unique", 300)})
	st.Put("lost.lindi.json", []byte(keysText(map[string]string{"a/.zarray": fourChunks, "a/0": "n0", "a/2": "[]"})))
	b := st.Get("from.lindi.tar")
	b[strings.Index(string(b), "unique")] ^= 1
	st.Put("from.lindi.tar", b)
	for _, from := range []string{"from.lindi.tar", "lost.lindi.json"} {
		var told []string
		failed, err := graft(t, st, "x.lindi.tar", openZarr(t, st, from), nil, pack.GraftOptions{OnError: func(name string, _ error) { told = append(told, name) }})
		if err != nil || failed != 1 || len(told) != 1 {
			t.Fatal(from, failed, told, err)
		}
		if got := keysIn(t, st, "x.lindi.tar"); got["a/0"] != "n0" || got["a/1"]+got["a/2"] != "" {
			t.Errorf("%s: %v", from, got)
		}
	}
	if _, err := graft(t, st, "x.lindi.tar", openZarr(t, st, "from.lindi.tar"), nil, pack.GraftOptions{}); err == nil {
		t.Error("nobody is told, and it goes on")
	}
}

func TestReferencesAreAddedInsteadOfContents(t *testing.T) {
	t.Parallel()
	st := &storetest.Mem{}
	made(t, st, "x.lindi.tar", nil)
	made(t, st, "from.lindi.tar", map[string]string{"a/.zarray": fourChunks, "a/0": strings.Repeat("z", 3000)})
	if _, err := graft(t, st, "x.lindi.tar", openZarr(t, st, "from.lindi.tar"), nil, pack.GraftOptions{Refer: "https://example.org/from.lindi.tar"}); err != nil {
		t.Fatal(err)
	}
	src := openZarr(t, st, "x.lindi.tar")
	for x, err := range src.Extents(t.Context(), archivetest.Lookup(t, src, "a/0")) {
		if err != nil || !x.External || x.Object != "https://example.org/from.lindi.tar" || x.Len != 3000 {
			t.Errorf("%+v, %v", x, err)
		}
	}
}
