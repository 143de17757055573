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
	"github.com/holdall/holdall/store/storetest"
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

// Whatever is damaged of an encrypted archive that has parity, all of it is read, from a disk and from afar. Parity of
// another archive changes nothing.
func TestDamageOfEncryptedArchivesIsHealed(t *testing.T) {
	rnd := testkit.Rand(t)
	files := map[string]string{"a": "alpha", "b/big": string(testkit.Noise(rnd, 900_000)), "b/c": string(testkit.Noise(rnd, 70_000))}
	dir, other := t.TempDir(), t.TempDir()
	over := encrypted(t, dir, files)
	stranger := encrypted(t, other, files)
	for at, layer := range map[string]func(store.Store) store.Store{dir: over, other: stranger} {
		if _, err := holdall.Protect(t.Context(), []string{"x.caf"}, "", holdall.ProtectOptions{Store: layer(local.New(at)), Loss: 0.2}); err != nil {
			t.Fatal(err)
		}
	}
	read := func(name string) []byte {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	sound, parity := read(filepath.Join(dir, "x.caf")), read(filepath.Join(dir, "x.caf.parity"))
	foreign := read(filepath.Join(other, "x.caf.parity"))
	flip := func(b []byte) []byte {
		for range 1 + rnd.IntN(20) {
			b[rnd.IntN(len(b))] ^= byte(1 + rnd.IntN(255))
		}
		return b
	}
	for what, damage := range map[string]func([]byte) []byte{
		"nothing":        func(b []byte) []byte { return b },
		"bytes":          flip,
		"the header":     func(b []byte) []byte { b[rnd.IntN(100)] ^= 1; return b },
		"the end":        func(b []byte) []byte { return b[:len(b)-1-rnd.IntN(len(b)/6)] },
		"a page":         func(b []byte) []byte { clear(b[300_000:365_536]); return b },
		"inserted bytes": func(b []byte) []byte { return append(append(bytes.Clone(b[:400_000]), 1, 2, 3), b[400_000:]...) },
	} {
		for _, near := range []bool{true, false} {
			mem := &storetest.Mem{}
			mem.Put("x.caf", damage(bytes.Clone(sound)))
			mem.Put("x.caf.parity", parity)
			if what == "nothing" {
				mem.Put("x.caf.parity", foreign)
			}
			below := store.Store(mem)
			if near {
				below = nearby{mem}
			}
			healed := 0
			a, err := holdall.Open(t.Context(), "x.caf", holdall.OpenOptions{Store: over(below), OnHeal: func(string) { healed++ }})
			if err != nil {
				t.Errorf("%s, near %v: %v", what, near, err)
				continue
			}
			for name, want := range files {
				e, err := a.Lookup(t.Context(), name)
				if err != nil {
					t.Errorf("%s, near %v: %s: %v", what, near, name, err)
					continue
				}
				var got bytes.Buffer
				if err := a.WriteContent(t.Context(), &got, e); err != nil || got.String() != want {
					t.Errorf("%s, near %v: %s: %d bytes, %v", what, near, name, got.Len(), err)
				}
			}
			if n, by, why := a.Healing(); (healed > 0) != (n > 0) || healed > 1 || why != nil || n > 0 && by != "x.caf.parity" || what == "nothing" && n > 0 {
				t.Errorf("%s, near %v: told %d times, %d blocks, by %q, %v", what, near, healed, n, by, why)
			}
			if err := a.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}

// nearby is a store in memory that says that it is a disk.
type nearby struct{ *storetest.Mem }

func (n nearby) Can() store.Abilities {
	can := n.Mem.Can()
	return store.Abilities{Near: true, List: can.List}
}
