package local

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/holdall/holdall/internal/testkit"
	"github.com/holdall/holdall/store/storekit"
)

// Nothing that is not below the root is opened or listed, and what is is as in a Store.
func TestWithinDoesNotLeaveTheRoot(t *testing.T) {
	dir := t.TempDir()
	in := filepath.Join(dir, "in")
	for _, name := range []string{"secret", "in/a/x", "in/a.b", "in/b"} {
		testkit.Tree(t, dir, map[string]string{name: name})
	}
	for name, to := range map[string]string{"out": "../secret", "abs": filepath.Join(dir, "secret"), "up": "..", "within": "a/x"} {
		if err := os.Symlink(to, filepath.Join(in, name)); err != nil {
			t.Skip("no symlinks here:", err)
		}
	}
	root, err := os.OpenRoot(in)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	st := Within(root)
	for _, name := range []string{"out", "abs", "up/secret", "../secret", "a/../../secret", filepath.Join(dir, "secret"), "a", "", "none", "b/x", "a\x00"} {
		if o, err := st.Open(t.Context(), name); err == nil {
			o.Close()
			t.Errorf("%q is opened", name)
		}
	}
	if _, err := st.Open(t.Context(), "b/x"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("below a file: %v", err)
	}
	for _, name := range []string{"b", "within"} {
		o, err := st.Open(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		p := make([]byte, 1)
		if err := o.ReadAt(t.Context(), p, 0); err != nil || string(p) != "i" {
			t.Errorf("%s: %q, %v", name, p, err)
		}
		o.Close()
	}
	for prefix, want := range map[string][]string{"": {"a.b", "a/x", "b", "within"}, "a": {"a.b", "a/x"}, "a/": {"a/x"}, "up/": nil, "../": nil, "none/": nil} {
		var got []string
		for info, err := range storekit.List(t.Context(), st, prefix) {
			if err != nil && prefix != "up/" {
				t.Errorf("%q: %v", prefix, err)
			}
			if err == nil {
				got = append(got, info.Name)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%q: %q, expected %q", prefix, got, want)
		}
	}
}
