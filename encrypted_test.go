package holdall_test

import (
	"bytes"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"path/filepath"
	"sync/atomic"
	"testing"

	agelib "filippo.io/age"

	"github.com/holdall/holdall"
	"github.com/holdall/holdall/internal/testkit"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/age"
	"github.com/holdall/holdall/store/local"
)

// encrypted packs files into an encrypted CAF called x.caf, and returns a layer over any store that has it.
func encrypted(t *testing.T, dir string, files map[string]string) (over func(store.Store) store.Store) {
	t.Helper()
	id, err := agelib.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	keys := &age.Keys{Identities: []agelib.Identity{id}, Recipients: []agelib.Recipient{id.Recipient()}}
	over = func(st store.Store) store.Store { return age.New(st, keys) }
	in := testkit.Tree(t, filepath.Join(dir, "in"), files)
	if _, err := holdall.Pack(t.Context(), "x.caf", []string{in}, holdall.PackOptions{Store: over(local.New(dir))}); err != nil {
		t.Fatal(err)
	}
	return over
}

// An index in the folder of the user would tell the names of an encrypted archive.
func TestNoIndexOfAnEncryptedArchiveIsKept(t *testing.T) {
	dir := t.TempDir()
	over := encrypted(t, dir, map[string]string{"a": "alpha"})
	folder := &holdall.IndexFolder{Dir: filepath.Join(t.TempDir(), "index"), Expensive: 1}
	a, err := holdall.Open(t.Context(), "x.caf", holdall.OpenOptions{Store: over(local.New(dir)), Index: holdall.UseIndex{Folder: folder}})
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	if kept, err := a.KeepIndex(t.Context(), false); kept || err != nil {
		t.Error(kept, err)
	}
	if _, err := os.Stat(folder.Dir); err == nil {
		t.Error("there is a folder of indexes")
	}
}

// From a server, an encrypted archive takes a few pages and one request more than it has bytes. What
// a cache on a disk keeps of it is not decrypted, and is enough for the next time.
func TestAnEncryptedArchiveFromAfar(t *testing.T) {
	dir, kept := t.TempDir(), t.TempDir()
	files := map[string]string{"secret-name": "secret content", "big": string(testkit.Noise(testkit.Rand(t), 3<<20))}
	over := encrypted(t, dir, files)
	var requests, sent atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		w.Header().Set("ETag", `"1"`)
		http.ServeFile(&counting{w, &sent}, r, filepath.Join(dir, path.Base(r.URL.Path)))
	}))
	defer server.Close()
	for _, blocks := range []*holdall.BlockCache{nil, {Dir: kept, Size: 32 << 20}, {Dir: kept}} {
		requests.Store(0)
		sent.Store(0)
		st, name, err := store.OpenAddress(t.Context(), server.URL+"/x.caf")
		if err != nil {
			t.Fatal(err)
		}
		a, err := holdall.Open(t.Context(), name, holdall.OpenOptions{Store: over(st), Blocks: blocks})
		if err != nil {
			t.Fatal(err)
		}
		for name, want := range files {
			e, err := a.Lookup(t.Context(), name)
			if err != nil {
				t.Fatal(err)
			}
			var got bytes.Buffer
			if err := a.WriteContent(t.Context(), &got, e); err != nil || got.String() != want {
				t.Errorf("%s: %d bytes, %v", name, got.Len(), err)
			}
		}
		n, b := requests.Load(), sent.Load()
		t.Logf("%d requests, %d bytes", n, b)
		if blocks == nil && (n > 5 || b > 3<<20*11/10+128<<10) {
			t.Errorf("it took %d requests and %d bytes", n, b)
		}
		if err := a.Close(); err != nil {
			t.Error(err)
		}
	}
	if n := requests.Load(); n > 2 {
		t.Errorf("with a cache, it took %d requests the second time", n)
	}
	found := 0
	err := fs.WalkDir(os.DirFS(kept), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := os.ReadFile(filepath.Join(kept, name))
		found += len(b)
		for _, plain := range []string{"secret", files["big"][1000:1032]} {
			if bytes.Contains(b, []byte(plain)) {
				t.Errorf("%s has something that is decrypted", name)
			}
		}
		return err
	})
	if err != nil || found < 3<<20 {
		t.Errorf("%d bytes are kept, %v", found, err)
	}
}
