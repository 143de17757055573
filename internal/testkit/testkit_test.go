package testkit

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/holdall/holdall/store/storetest"
)

func TestASeedCanBeSet(t *testing.T) {
	t.Setenv(SeedVar, "7")
	if Seed(t) != 7 || Rand(t).Uint64() != Rand(t).Uint64() {
		t.Error("the seed is another")
	}
}

func TestFixturesAreUnpacked(t *testing.T) {
	dir := t.TempDir()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	w := tar.NewWriter(z)
	for _, h := range []tar.Header{{Name: "a/", Typeflag: tar.TypeDir}, {Name: "a/b/c", Size: 3}, {Name: "d", Size: 1}, {Name: "link", Typeflag: tar.TypeSymlink, Linkname: "d"}} {
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		w.Write([]byte("xyz")[:h.Size])
	}
	w.Close()
	z.Close()
	file := filepath.Join(dir, "f.tar.gz")
	if err := os.WriteFile(file, b.Bytes(), 0o666); err != nil {
		t.Fatal(err)
	}
	if got := Names(t, dir, ".tar.gz", 1); !slices.Equal(got, []string{"f"}) {
		t.Error(got)
	}
	if got := Read(t, filepath.Join(dir, "f.tar")); len(got) < 2048 {
		t.Errorf("%d bytes", len(got))
	}
	st := &storetest.Mem{}
	Put(st, Untar(t, file), "a/", "x/")
	Put(st, Files(t, Unpacked(t, file)), "", "y/")
	for name, want := range map[string]string{"x/b/c": "xyz", "x/d": "", "y/a/b/c": "xyz", "y/d": "x", "y/link": ""} {
		if got := string(st.Get(name)); got != want {
			t.Errorf("%s: %q, expected %q", name, got, want)
		}
	}
}

func TestATreeIsMade(t *testing.T) {
	files := map[string]string{"a/b/c": "x", "d": "", "e/": ""}
	dir := Tree(t, t.TempDir(), files)
	found := 0
	for name, b := range Files(t, dir) {
		if found++; files[name] != string(b) {
			t.Errorf("%s: %q", name, b)
		}
	}
	if info, err := os.Stat(filepath.Join(dir, "e")); found != 2 || err != nil || !info.IsDir() {
		t.Errorf("%d files, %v", found, err)
	}
}

func TestWhatIsRequiredIsNamed(t *testing.T) {
	t.Setenv("HOLDALL_REQUIRE", "fuse HOLDALL_X")
	if !Required("HOLDALL_X") || Required("HOLDALL") || Required("browser") {
		t.Error("other words are required")
	}
	t.Setenv("HOLDALL_X", "y")
	if Needs(t, "HOLDALL_X") != "y" {
		t.Error("it is another")
	}
}
