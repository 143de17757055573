package zarr

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"iter"
	"maps"
	"path"
	"slices"
	"strings"
	"testing"
)

// translated gives the keys of version 3 of an array of version 2, or why there are none.
func translated(t testing.TB, keys keyed) (keyed, *Version3, error) {
	t.Helper()
	text, v, err := Node3(t.Context(), keys, "", 1<<28)
	if err != nil {
		return nil, nil, err
	}
	out := keyed{MetaName: text}
	for key, b := range keys {
		if strings.HasPrefix(key, ".") {
			continue
		}
		to := v.Key(key)
		if old, ok := v.OldKey(to); !ok || old != key || to == key && v.Anew {
			t.Errorf("%s becomes %s, and that %s again", key, to, old)
		}
		if v.Anew {
			if b, err = v.Chunk(b); err != nil {
				t.Fatal(err)
			}
			if v.Size >= 0 && int64(len(b)) != v.Size {
				t.Errorf("%s: %d bytes, expected %d", to, len(b), v.Size)
			}
		}
		out[to] = b
	}
	return out, v, nil
}

// Arrays of version 2 have the same elements in version 3.
func TestTranslationKeepsElements(t *testing.T) {
	anew, kept, none := 0, 0, map[string]bool{}
	for name, g := range goldens(t) {
		t.Run(name, func(t *testing.T) {
			keys, v, err := translated(t, g.Keys)
			if errors.Is(err, errors.ErrUnsupported) {
				none[name] = true
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if anew++; !v.Anew {
				anew, kept = anew-1, kept+1
			}
			a, err := Open(t.Context(), keys, "")
			if err != nil {
				t.Fatalf("%v\n%s", err, keys[MetaName])
			}
			var want, got bytes.Buffer
			b, err := Open(t.Context(), g.Keys, "")
			if err != nil {
				t.Fatal(err)
			}
			if v.DType.Kind == 'O' {
				old, err := b.Values(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				values, err := a.Values(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				for i := range old {
					if w, g := asText(old[i]), asText(values[i]); w != g {
						t.Errorf("element %d: %q, expected %q", i, g, w)
					}
				}
				return
			}
			if b.DType.mixed() { // which are little endian now
				err = errors.Join(b.WriteText(t.Context(), &want), a.WriteText(t.Context(), &got))
			} else {
				err = errors.Join(b.WriteElements(t.Context(), &want), a.WriteElements(t.Context(), &got))
			}
			if v.Anew && v.DType.BigEndian {
				want.Reset()
				got.Reset()
				err = errors.Join(b.WriteText(t.Context(), &want), a.WriteText(t.Context(), &got))
			}
			if err != nil || !bytes.Equal(want.Bytes(), got.Bytes()) {
				t.Errorf("%v: other elements\n%s", err, keys[MetaName])
			}
		})
	}
	if anew < 10 || kept < 100 || len(none) > 20 {
		t.Errorf("%d made anew, %d as they are; none of %v", anew, kept, slices.Sorted(maps.Keys(none)))
	}
	t.Logf("%d made anew, %d as they are; none of %v", anew, kept, slices.Sorted(maps.Keys(none)))
}

func asText(v any) string {
	switch v := v.(type) {
	case nil:
		return ""
	case string:
		return strings.ToValidUTF8(v, "\uFFFD")
	case []byte:
		return string(v)
	}
	return string(appendJSON(nil, v))
}

// following is a source that follows links, as LINDI's does.
type following struct{ keyed }

func (f following) Get(ctx context.Context, key string, limit int64) ([]byte, error) {
	for range maxLinks {
		if b, err := f.keyed.Get(ctx, key, limit); err == nil {
			return b, nil
		}
		at, last := path.Split(key)
		to, err := follow(ctx, f.keyed, path.Clean(at))
		if err != nil || to == nil {
			break
		}
		key = path.Join(*to, last)
	}
	return nil, fs.ErrNotExist
}

// linked is a hierarchy with links of every kind.
func linked() keyed {
	array := func(dims string) []byte {
		return []byte(`{"zarr_format":2,"shape":[2],"chunks":[2],"dtype":"<i2","compressor":null,"filters":null,"fill_value":0,"order":"C"}`)
	}
	group := []byte(`{"zarr_format":2}`)
	return keyed{
		".zgroup": group, ".zattrs": []byte(`{"n":NaN,"s":"ä"}`), "a/.zgroup": group, "a/x/.zarray": array(""), "a/x/.zattrs": []byte(`{"_ARRAY_DIMENSIONS":["t"],"unit":"mV"}`), "a/x/0": {1, 2, 3, 4},
		"a-b/.zgroup": group, "a-b/y/.zarray": array(""), "toarray/.zgroup": group, "toarray/.zattrs": softLink("/a/x"), "togroup/.zgroup": group, "togroup/.zattrs": softLink("/a"),
		"a/up/.zgroup": group, "a/up/.zattrs": softLink("/a"), "gone/.zgroup": group, "gone/.zattrs": softLink("/none"), "self/.zgroup": group, "self/.zattrs": softLink("/self"),
		"one/.zgroup": group, "one/to/.zgroup": group, "one/to/.zattrs": softLink("/two"), "two/.zgroup": group, "two/to/.zgroup": group, "two/to/.zattrs": softLink("/one"),
		"chain/.zgroup": group, "chain/.zattrs": softLink("/togroup/x"), "bad/.zgroup": group, "bad/.zattrs": []byte(`{`), "lost/y/.zarray": array(""),
		"odd/.zarray": []byte(`{"zarr_format":2,"shape":[2],"chunks":[2],"dtype":"|O","compressor":null,"filters":[{"id":"pickle"}],"fill_value":0,"order":"C"}`),
		"far/.zarray": array(""), "far/.zattrs": []byte(`{"_EXTERNAL_ARRAY_LINK":{"url":"u","name":"n"}}`),
	}
}

func namesOf(k keyed) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		for _, key := range slices.Sorted(maps.Keys(k)) {
			if !yield(key, nil) {
				return
			}
		}
	}
}

// All metadata together has what the keys have, those too that links lead to; and it ends.
func TestConsolidated(t *testing.T) {
	keys := linked()
	k := following{keys}
	text, err := Consolidate(t.Context(), k, namesOf(keys), 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	var two struct {
		Metadata map[string]json.RawMessage `json:"metadata"`
		Version  int                        `json:"zarr_consolidated_format"`
	}
	if err := json.Unmarshal(bytes.ReplaceAll(text, []byte("NaN"), []byte("1")), &two); err != nil || two.Version != 1 {
		t.Fatalf("%v\n%s", err, text)
	}
	want := []string{".zattrs", ".zgroup", "a-b/.zgroup", "a-b/y/.zarray", "a/.zgroup", "a/up/.zattrs", "a/up/.zgroup", "a/x/.zarray", "a/x/.zattrs", "chain/.zarray", "chain/.zattrs",
		"far/.zarray", "far/.zattrs", "gone/.zattrs", "gone/.zgroup", "odd/.zarray", "one/.zgroup", "one/to/.zgroup", "one/to/to/.zattrs", "one/to/to/.zgroup", "self/.zattrs", "self/.zgroup", "toarray/.zarray", "toarray/.zattrs",
		"togroup/.zgroup", "togroup/up/.zattrs", "togroup/up/.zgroup", "togroup/x/.zarray", "togroup/x/.zattrs", "two/.zgroup", "two/to/.zgroup", "two/to/to/.zattrs", "two/to/to/.zgroup"}
	if got := slices.Sorted(maps.Keys(two.Metadata)); !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	left, through := map[string]bool{}, map[string]string{}
	if text, err = Root3(t.Context(), k, namesOf(keys), 1<<20, 1<<20, func(at string, err error) {
		if left[at] = true; kindOf(err) == nil {
			t.Errorf("%s: an error of no kind: %v", at, err)
		}
	}, func(at, is string, _ bool) { through[at] = is }); err != nil {
		t.Fatal(err)
	}
	var three struct {
		Attributes map[string]any
		All        struct {
			Kind     string
			Metadata map[string]struct {
				Node       string         `json:"node_type"`
				Names      []string       `json:"dimension_names"`
				Attributes map[string]any `json:"attributes"`
			}
		} `json:"consolidated_metadata"`
	}
	if err := json.Unmarshal(bytes.ReplaceAll(text, []byte("NaN"), []byte("1")), &three); err != nil || three.Attributes["s"] != "ä" || three.All.Kind != "inline" {
		t.Fatalf("%v\n%s", err, text)
	}
	for at, n := range three.All.Metadata {
		if _, _, err := Node3(t.Context(), k, at, 1<<20); err != nil && n.Node == "array" {
			t.Errorf("%s: %v", at, err)
		}
	}
	if x := three.All.Metadata["togroup/x"]; x.Node != "array" || !slices.Equal(x.Names, []string{"t"}) || x.Attributes["unit"] != "mV" || three.All.Metadata["toarray"].Attributes["unit"] != "mV" {
		t.Errorf("%+v", x)
	}
	if want := (map[string]string{"chain": "a/x", "toarray": "a/x", "togroup": "a", "togroup/x": "a/x", "one/to": "two", "two/to": "one"}); !maps.Equal(through, want) {
		t.Errorf("through links: %q", through)
	}
	if got := slices.Sorted(maps.Keys(left)); !slices.Equal(got, []string{"bad", "odd"}) {
		t.Errorf("left out: %q", got)
	}
	for _, make := range []func() ([]byte, error){
		func() ([]byte, error) { return Consolidate(t.Context(), k, namesOf(keys), 1000) },
		func() ([]byte, error) {
			return Root3(t.Context(), k, namesOf(keys), 1000, 1<<20, func(string, error) {}, func(string, string, bool) {})
		},
	} {
		if text, err := make(); !errors.Is(err, ErrLimit) || len(text) > 2000 {
			t.Errorf("%v, %d bytes", err, len(text))
		}
	}
}

// Links to groups of links make many of few: that is bounded.
func TestLinksDoNotMultiply(t *testing.T) {
	k := keyed{".zgroup": []byte(`{"zarr_format":2}`)}
	at := ""
	for i := range 40 {
		at = "g" + string(rune('a'+i%26)) + string(rune('a'+i/26))
		k[at+"/.zgroup"] = k[".zgroup"]
		if i > 0 {
			before := "/g" + string(rune('a'+(i-1)%26)) + string(rune('a'+(i-1)/26))
			for _, l := range []string{"l", "r"} {
				k[path.Join(at, l, ".zgroup")] = k[".zgroup"]
				k[path.Join(at, l, ".zattrs")] = softLink(before)
			}
		}
	}
	if _, err := Consolidate(t.Context(), following{k}, namesOf(k), 1<<30); err != nil {
		t.Error(err)
	}
	// Who cannot follow links sees none of it.
	text, err := Consolidate(t.Context(), k, namesOf(k), 1<<30)
	if err != nil || bytes.Contains(text, []byte("/l/l")) {
		t.Errorf("%v: links are followed", err)
	}
}

// Whatever an array says of itself, its translation can be read, or there is none.
func FuzzVersion3(f *testing.F) {
	for _, g := range goldens(f) {
		f.Add(g.Keys[".zarray"], []byte(`{"_ARRAY_DIMENSIONS":["x"]}`), g.Keys["0"])
	}
	f.Add([]byte(oneByte), []byte(`{"_COMPOUND_DTYPE":[["x","uint32"],["w","float32"]]}`), []byte(`[[1,2.5],[3,4],"|O",[2]]`))
	f.Fuzz(func(t *testing.T, zarray, zattrs, chunk []byte) {
		checkMade(t, func() {
			text, v, err := Node3(t.Context(), keyed{".zarray": zarray, ".zattrs": zattrs, ".zgroup": zattrs}, "", fuzzRoom)
			if err != nil || v == nil {
				return
			}
			m, err := ParseArray(text)
			if err != nil || !slices.Equal(m.Shape, v.Shape) {
				t.Fatalf("%v\n%s", err, text)
			}
			if v.Anew {
				if b, err := v.Chunk(chunk); err == nil && v.Size >= 0 && int64(len(b)) != v.Size {
					t.Errorf("%d bytes, expected %d", len(b), v.Size)
				}
			}
		})
	})
}
