package holdall_test

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/holdall/holdall"
	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/formattest/tiny"
	"github.com/holdall/holdall/store/storetest"
)

// What packages pack and unpack do is tested there. Here it is that they are given what the
// options say.
func TestExtractOptionsArePassedOn(t *testing.T) {
	sound := openMem(t, archiveOf(t, tiny.Format, []holdall.Entry{{Name: "a"}, {Name: "d/b"}, {Name: "d/c"}, {Name: "out", Kind: format.Symlink, Link: "../x"}},
		map[string]string{"a": "alpha", "d/b": "beta", "d/c": "gamma"}), holdall.OpenOptions{})
	st := packedAs(t, "caf", nil, map[string]string{"a": "alpha", "d/b": "beta"})
	b := st.Get("x")
	b[strings.Index(string(b), "alpha")] ^= 1
	st.Put("x", b)
	damaged, err := holdall.Open(t.Context(), "x", holdall.OpenOptions{Store: st})
	if err != nil {
		t.Fatal(err)
	}
	defer damaged.Close()
	all := []string{"a=alpha", "d/b=beta", "d/c=gamma"}
	limited := func(set func(*holdall.ExtractOptions)) (o holdall.ExtractOptions) {
		set(&o)
		return o
	}
	for what, c := range map[string]struct {
		a      *holdall.Archive
		o      holdall.ExtractOptions
		want   []string // what is in the folder, in which a file a was
		failed string
		sum    holdall.Extracted
		err    bool
	}{
		"none":         {a: sound, want: []string{"a=mine", "d/b=beta", "d/c=gamma"}, failed: "a out", sum: holdall.Extracted{Entries: 2, Bytes: 9, Failed: 2}},
		"Names":        {a: sound, o: holdall.ExtractOptions{Names: []string{"d"}}, want: []string{"a=mine", "d/b=beta", "d/c=gamma"}, sum: holdall.Extracted{Entries: 2, Bytes: 9}},
		"Include":      {a: sound, o: holdall.ExtractOptions{Include: []string{"b"}}, want: []string{"a=mine", "d/b=beta"}, sum: holdall.Extracted{Entries: 1, Bytes: 4}},
		"Exclude":      {a: sound, o: holdall.ExtractOptions{Exclude: []string{"b", "a"}}, want: []string{"a=mine", "d/c=gamma"}, failed: "out", sum: holdall.Extracted{Entries: 1, Bytes: 5, Failed: 1}},
		"Unmatched":    {a: sound, o: holdall.ExtractOptions{Include: []string{"b", "none"}, Exclude: []string{"a", "d/b/"}}, want: []string{"a=mine"}, sum: holdall.Extracted{Unmatched: []string{"none"}}},
		"Overwrite":    {a: sound, o: holdall.ExtractOptions{Overwrite: true}, want: all, failed: "out", sum: holdall.Extracted{Entries: 3, Bytes: 14, Failed: 1}},
		"OutsideLinks": {a: sound, o: holdall.ExtractOptions{OutsideLinks: true, Names: []string{"out"}}, want: []string{"a=mine", "out->../x"}, sum: holdall.Extracted{Entries: 1}},
		"DryRun":       {a: sound, o: holdall.ExtractOptions{DryRun: true}, want: []string{"a=mine"}, failed: "a out", sum: holdall.Extracted{Entries: 2, Bytes: 9, Failed: 2}},
		"Max.Entries":  {a: sound, o: limited(func(o *holdall.ExtractOptions) { o.Max.Entries, o.DryRun = 1, true }), want: []string{"a=mine"}, failed: "a", err: true},
		"Max.Bytes":    {a: sound, o: limited(func(o *holdall.ExtractOptions) { o.Max.Bytes, o.DryRun = 1, true }), want: []string{"a=mine"}, err: true},
		"Max.Depth":    {a: sound, o: limited(func(o *holdall.ExtractOptions) { o.Max.Depth, o.Names = 1, []string{"d"} }), want: []string{"a=mine"}, failed: "d/b d/c", sum: holdall.Extracted{Failed: 2}},
		"damaged":      {a: damaged, o: holdall.ExtractOptions{Overwrite: true}, want: []string{"a=mine", "d/b=beta"}, failed: "a", sum: holdall.Extracted{Entries: 1, Bytes: 4, Failed: 1}},
		"KeepDamaged":  {a: damaged, o: holdall.ExtractOptions{KeepDamaged: true, Overwrite: true}, want: []string{"a.damaged=`lpha", "a=mine", "d/b=beta"}, failed: "a", sum: holdall.Extracted{Entries: 1, Bytes: 4, Failed: 1}},
		"NoVerify":     {a: damaged, o: holdall.ExtractOptions{NoVerify: true, Overwrite: true}, want: []string{"a=`lpha", "d/b=beta"}, sum: holdall.Extracted{Entries: 2, Bytes: 9}},
	} {
		t.Run(what, func(t *testing.T) {
			dir := tree(t, map[string]string{"a": "mine"})
			root, err := os.OpenRoot(dir)
			if err != nil {
				t.Fatal(err)
			}
			defer root.Close()
			var failed []string
			var m holdall.Meter
			c.o.Meter, c.o.NoOwner, c.o.OnError = &m, true, func(p holdall.Problem, _ error) { failed = append(failed, p.Entry) }
			sum, err := holdall.Extract(t.Context(), c.a, root, c.o)
			if slices.Sort(failed); (err != nil) != c.err || !c.err && (!reflect.DeepEqual(sum, c.sum) || strings.Join(failed, " ") != c.failed) {
				t.Errorf("%+v, %q, %v", sum, failed, err)
			}
			if p := m.Snapshot(); !c.err && p.Entries != sum.Entries {
				t.Errorf("the meter counted %+v", p)
			}
			var found []string
			for _, pattern := range []string{"*", "*/*"} {
				names, err := filepath.Glob(filepath.Join(dir, pattern))
				if err != nil {
					t.Fatal(err)
				}
				for _, name := range names {
					rel := filepath.ToSlash(strings.TrimPrefix(name, dir+string(filepath.Separator)))
					if to, err := os.Readlink(name); err == nil {
						found = append(found, rel+"->"+to)
					} else if b, err := os.ReadFile(name); err == nil {
						found = append(found, rel+"="+string(b))
					}
				}
			}
			if slices.Sort(found); !slices.Equal(found, c.want) {
				t.Errorf("found %q, expected %q", found, c.want)
			}
		})
	}
	root, err := os.OpenRoot(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	if _, err := holdall.Extract(t.Context(), sound, root, holdall.ExtractOptions{Include: []string{"[a"}}); err == nil {
		t.Error("a pattern that is none is taken")
	}
}

func TestAddOptionsArePassedOn(t *testing.T) {
	zarr := map[string]string{"as": "zarr"}
	const group = `{"zarr_format":2}`
	from := packedAs(t, "lindi", zarr, map[string]string{".zgroup": group, "a/.zgroup": group, "b/.zgroup": group, "b/.zattrs": `{"unit":"V"}`})
	st := &storetest.Mem{}
	for _, name := range []string{"x.lindi.tar", "y.lindi.tar"} {
		st.Put(name, packedAs(t, "lindi", zarr, map[string]string{".zgroup": group}).Get("x"))
	}
	st.Put("from.lindi.tar", from.Get("x"))
	in, err := holdall.Open(t.Context(), "from.lindi.tar", holdall.OpenOptions{Store: st, View: "zarr"})
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	add := func(name string, o holdall.OpenOptions, names []string, a holdall.AddOptions) error {
		m, err := holdall.Amend(t.Context(), name, o.In(st))
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		if _, err := m.AddFrom(t.Context(), in, names, a); err != nil {
			return err
		}
		_, err = m.Commit(t.Context())
		return err
	}
	if err := add("x.lindi.tar", holdall.OpenOptions{View: "members"}, nil, holdall.AddOptions{}); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("members: %v", err)
	}
	var m holdall.Meter
	if err := add("x.lindi.tar", holdall.OpenOptions{View: "zarr"}, []string{"b"}, holdall.AddOptions{Prefix: "p/", Meter: &m}); err != nil {
		t.Fatal(err)
	}
	if m.Snapshot().Entries == 0 {
		t.Error("the meter counted nothing")
	}
	a, err := holdall.Open(t.Context(), "x.lindi.tar", holdall.OpenOptions{Store: st, View: "zarr"})
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	for name, there := range map[string]bool{"p/b/.zattrs": true, "p/a/.zgroup": false, "b/.zattrs": false} {
		if _, err := a.Lookup(t.Context(), name); (err == nil) != there {
			t.Errorf("%s: %v", name, err)
		}
	}
}
