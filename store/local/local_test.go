package local

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/holdall/holdall/internal/testkit"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storekit"
	"github.com/holdall/holdall/store/storetest"
)

func TestStoreKeepsTheContract(t *testing.T) {
	storetest.Run(t, func(t *testing.T) (store.Store, func(string, []byte) error) {
		dir := t.TempDir()
		st := New(dir)
		st.recheck = 0
		st.NoSync = true // the disk is tested elsewhere
		return st, func(name string, content []byte) error {
			p := filepath.Join(dir, filepath.FromSlash(name))
			if onWindows && strings.ContainsAny(name, `?*"<>|:\`) {
				return errors.ErrUnsupported
			}
			if err := os.MkdirAll(filepath.Dir(p), 0o777); err != nil {
				return err
			}
			half := filepath.Join(dir, ".put.holdall-0123456789abcdef.tmp")
			if err := os.WriteFile(half, content, 0o666); err != nil {
				return err
			}
			return os.Rename(half, p)
		}
	})
}

func TestOpenSplitsAddressIntoFolderAndName(t *testing.T) {
	if onWindows {
		t.Skip("paths of Unix")
	}
	root, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{"here/sub", "other/deep"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o777); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(filepath.Join(root, "other/deep"), filepath.Join(root, "here/link")); err != nil {
		t.Fatal(err)
	}
	t.Chdir(filepath.Join(root, "here"))
	for _, c := range []struct{ address, dir, name string }{
		{"x.caf", ".", "x.caf"},
		{"./x.caf", "./", "x.caf"},
		{"../x.caf", "../", "x.caf"},
		{"sub/x.caf", "sub/", "x.caf"},
		{"/x.caf", "/", "x.caf"},
		{"/a/b.caf", "/a/", "b.caf"},
		{"a//b", "a//", "b"},
		{"sub/", ".", "sub"},
		{"/a/sub//", "/a/", "sub"},
		{"c:notes", ".", "c:notes"},
		{"100%25.caf", ".", "100%25.caf"},
		{".", root + "/", "here"},
		{"./", root + "/", "here"},
		{"..", filepath.Dir(root) + "/", filepath.Base(root)},
		{"sub/.", root + "/here/", "sub"},
		{"sub/..", root + "/", "here"},
		{"link/..", root + "/", "other"}, // as the system walks, not as the words say
		{"link/../x.caf", "link/../", "x.caf"},
		{"/", "/", "."},
		{"//", "/", "."},
		{"/..", "/", "."},
		{"...", ".", "..."},
		{"file:///a/b.caf", "/a/", "b.caf"},
		{"FILE:///a/b.caf", "/a/", "b.caf"},
		{"file://localhost/a/b.caf", "/a/", "b.caf"},
		{"file:///a/with%20space%23%3f%25.caf", "/a/", "with space#?%.caf"},
		{"file:///a/sub/", "/a/", "sub"},
		{"file:///", "/", "."},
	} {
		st, name, err := Open(t.Context(), c.address)
		if err != nil {
			t.Errorf("%q: %v", c.address, err)
			continue
		}
		if dir := st.(*Store).dir; dir != c.dir || name != c.name {
			t.Errorf("%q: expected %q in %q, found %q in %q", c.address, c.name, c.dir, name, dir)
		}
	}
	for address, want := range map[string]string{
		"":                       "empty path",
		"a\x00b":                 "NUL",
		"file:///a%00b":          "NUL",
		"file://elsewhere/a":     `host "elsewhere"`,
		"file://a":               `host "a"`,
		"file://":                "without a path",
		"file:///a%zz":           "invalid URL escape",
		"file:///a?versionId=1":  "%3F",
		"file:///a#b":            "%23",
		"missing/..":             "no such file",
		"https://localhost/file": "not a file",
	} {
		if _, _, err := Open(t.Context(), address); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: expected an error with %q, found %v", address, want, err)
		}
	}
}

func TestAbsoluteAndBrokenNamesAreRefused(t *testing.T) {
	dir := t.TempDir()
	inside := filepath.Join(dir, "x")
	if err := os.WriteFile(inside, []byte("x"), 0o666); err != nil {
		t.Fatal(err)
	}
	st := New(t.TempDir())
	for _, name := range []string{"", inside, "/", "x\x00y"} {
		if _, err := st.Open(t.Context(), name); err == nil {
			t.Errorf("open %q: expected an error", name)
		}
		if _, err := storekit.Create(t.Context(), st, name); err == nil {
			t.Errorf("create %q: expected an error", name)
		}
		if err := st.Remove(t.Context(), name); err == nil {
			t.Errorf("remove %q: expected an error", name)
		}
	}
	for _, err := range st.List(t.Context(), dir+"/") {
		t.Errorf("list %q: expected nothing, found something, %v", dir+"/", err)
	}
	if _, err := os.Stat(inside); err != nil {
		t.Error(err)
	}
}

func TestNamesMayClimbOut(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "sibling"), []byte("bytes"), 0o666); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "sub"), 0o777); err != nil {
		t.Fatal(err)
	}
	st := New(filepath.Join(dir, "sub"))
	wantContent(t, st, "../sibling", "bytes")
	if got := listed(t, st, "../s"); !slices.Equal(got, []string{"../sibling"}) {
		t.Errorf("list ../s: expected the sibling, found %q", got)
	}
}

func TestRemoveTakesFilesAndLinksButNotFolders(t *testing.T) {
	dir := t.TempDir()
	st := New(dir)
	put(t, dir, "target", "bytes")
	if err := os.Symlink("target", filepath.Join(dir, "link")); err != nil {
		t.Skip(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "folder"), 0o777); err != nil {
		t.Fatal(err)
	}
	if err := st.Remove(t.Context(), "link"); err != nil {
		t.Error(err)
	}
	if err := st.Remove(t.Context(), "folder"); err == nil || errors.Is(err, fs.ErrNotExist) {
		t.Errorf("remove folder: expected it to be refused, found %v", err)
	}
	if err := st.Remove(t.Context(), "target/x"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("remove below a file: expected fs.ErrNotExist, found %v", err)
	}
	wantFiles(t, dir, "folder/", "target")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := st.Remove(ctx, "target"); !errors.Is(err, context.Canceled) {
		t.Errorf("remove, cancelled: found %v", err)
	}
}

func TestListShowsFilesAndLinksToFilesOnly(t *testing.T) {
	dir := t.TempDir()
	put(t, dir, "a/x", "1")
	put(t, dir, "a.b", "22")
	put(t, dir, ".a.b.holdall-0123456789abcdef.tmp", "ours")
	put(t, dir, ".a.b.holdall-notes.tmp", "theirs")
	for link, to := range map[string]string{"link": "a.b", "ring": ".", "dangling": "nowhere"} {
		if err := os.Symlink(to, filepath.Join(dir, link)); err != nil {
			t.Skip(err)
		}
	}
	st := New(dir)
	if got, want := listed(t, st, ""), []string{".a.b.holdall-notes.tmp", "a.b", "a/x", "link"}; !slices.Equal(got, want) {
		t.Errorf("expected %q, found %q", want, got)
	}
	if got, want := listed(t, st, "ring/a"), []string{"ring/a.b", "ring/a/x"}; !slices.Equal(got, want) {
		t.Errorf("below a link that is in the prefix: expected %q, found %q", want, got)
	}
	if got, want := listed(t, st, "./a"), []string{"./a.b", "./a/x"}; !slices.Equal(got, want) {
		t.Errorf("names begin with their prefix: expected %q, found %q", want, got)
	}
	for info, err := range st.List(t.Context(), "link") {
		if err != nil {
			t.Fatal(err)
		}
		o, err := st.Open(t.Context(), info.Name)
		if err != nil {
			t.Fatal(err)
		}
		if opened, err := o.Info(t.Context()); err != nil || opened != info {
			t.Errorf("listed %+v, opened %+v, %v", info, opened, err)
		}
		if err := o.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestListGoesOnPastAFolderThatCannotBeRead(t *testing.T) {
	if os.Geteuid() == 0 || onWindows {
		t.Skip("to this user no folder is closed")
	}
	dir := t.TempDir()
	put(t, dir, "a/x", "1")
	put(t, dir, "b/x", "1")
	if err := os.Chmod(filepath.Join(dir, "a"), 0); err != nil {
		t.Fatal(err)
	}
	defer os.Chmod(filepath.Join(dir, "a"), 0o700)
	var errs, names []string
	for info, err := range New(dir).List(t.Context(), "") {
		if err != nil {
			errs = append(errs, err.Error())
		} else {
			names = append(names, info.Name)
		}
	}
	if len(errs) != 1 || !strings.Contains(errs[0], filepath.Join(dir, "a")) || !slices.Equal(names, []string{"b/x"}) {
		t.Errorf("expected one error about a, and b/x; found %q, %q", errs, names)
	}
}

func put(t *testing.T, dir, name, content string) {
	t.Helper()
	testkit.Tree(t, dir, map[string]string{name: content})
}

func listed(t *testing.T, st *Store, prefix string) (names []string) {
	t.Helper()
	for info, err := range st.List(t.Context(), prefix) {
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, info.Name)
	}
	return names
}

func wantContent(t *testing.T, st store.Store, name, want string) {
	t.Helper()
	p := storetest.Get(t, st, name)
	if string(p) != want {
		t.Errorf("%s: expected %.40q (%d bytes), found %.40q (%d bytes)", name, want, len(want), p, len(p))
	}
}

// wantFiles checks all that lies in dir, by name, a folder with a slash.
func wantFiles(t *testing.T, dir string, want ...string) {
	t.Helper()
	if got := filesIn(t, dir); !slices.Equal(got, want) {
		t.Errorf("expected the files %q, found %q", want, got)
	}
}

func filesIn(t *testing.T, dir string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.IsDir() {
			names = append(names, e.Name()+"/")
		} else {
			names = append(names, e.Name())
		}
	}
	return names
}
