package holdall_test

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/holdall/holdall"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/local"
)

// openSet opens archives on disk as one until the test ends.
func openSet(t *testing.T, o holdall.OpenOptions, names ...string) *holdall.Archive {
	t.Helper()
	a, err := holdall.OpenSet(t.Context(), "set", names, func(ctx context.Context, name string) (*holdall.Archive, error) {
		return holdall.Open(ctx, name, o)
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.Close() })
	return a
}

func packOne(t *testing.T, name string, files map[string]string) string {
	t.Helper()
	if _, err := holdall.Pack(t.Context(), name, []string{tree(t, files)}, holdall.PackOptions{}); err != nil {
		t.Fatal(err)
	}
	return name
}

func TestASetIsWhatItsArchivesHaveAndTheLastCounts(t *testing.T) {
	ctx := t.Context()
	dir := t.TempDir()
	rnd := rand.New(rand.NewPCG(52, 1))
	for round := range 12 {
		want := map[string]string{}
		var archives []string
		for i := range 1 + rnd.IntN(6) {
			files := map[string]string{}
			for range rnd.IntN(12) { // sometimes none
				// Deep enough for folders that several have, and never a file where others have a folder.
				name := fmt.Sprintf("%c/%c/f%d", 'a'+rnd.IntN(3), 'x'+rnd.IntN(2), rnd.IntN(9))
				files[name] = strings.Repeat(fmt.Sprintf("%s in %d of %d. ", name, i, round), rnd.IntN(200))
			}
			ext := []string{"caf", "tar", "zip", "tar.gz"}[rnd.IntN(4)]
			name := filepath.Join(dir, fmt.Sprintf("%d-%d.%s", round, i, ext))
			if archives = append(archives, name); len(files) > 0 {
				packOne(t, name, files)
			} else if err := os.WriteFile(name, append([]byte("PK\x05\x06"), make([]byte, 18)...), 0o666); err != nil { // an empty zip
				t.Fatal(err)
			}
			maps.Copy(want, files)
		}
		first := openSet(t, holdall.OpenOptions{}, archives...) // asks the archives for each name
		a := openSet(t, holdall.OpenOptions{}, archives...)
		got := map[string]string{}
		err := a.Contents(ctx, func(e holdall.Entry) bool { return e.Kind.HasContent() }, func(e holdall.Entry, content io.Reader, err error) error {
			if err != nil {
				return err
			}
			b, err := io.ReadAll(content)
			if _, twice := got[e.Name]; twice {
				t.Errorf("%s is yielded twice", e.Name)
			}
			got[e.Name] = string(b)
			return err
		})
		if err != nil || !maps.Equal(got, want) {
			t.Fatalf("round %d: %d contents of %d: %v", round, len(got), len(want), err)
		}
		walked := 0
		err = fs.WalkDir(a.FS(ctx), ".", func(name string, d fs.DirEntry, err error) error {
			if err == nil && !d.IsDir() {
				walked++
				if _, ok := want[name]; !ok {
					t.Errorf("%s is listed", name)
				}
			}
			return err
		})
		if err != nil || walked != len(want) {
			t.Errorf("round %d: a walk finds %d of %d: %v", round, walked, len(want), err)
		}
		for _, name := range slices.Sorted(maps.Keys(want)) {
			for _, in := range []*holdall.Archive{first, a} {
				b, err := in.Get(ctx, name, 1<<20)
				if err != nil || string(b) != want[name] {
					t.Errorf("round %d: %s: %q, %v", round, name, b, err)
				}
			}
			if n := len(want[name]); n > 9 {
				if b, err := a.GetRange(ctx, name, -9, 5); err != nil || string(b) != want[name][n-9:n-4] {
					t.Errorf("round %d: a part of %s: %q, %v", round, name, b, err)
				}
				f, err := a.Open(ctx, name)
				if err != nil {
					t.Fatal(err)
				}
				f.Seek(3, io.SeekStart)
				if b, err := io.ReadAll(f); err != nil || string(b) != want[name][3:] {
					t.Errorf("round %d: from the middle of %s: %q, %v", round, name, b, err)
				}
				f.Close()
			}
		}
		for _, in := range []*holdall.Archive{first, a} {
			if _, err := in.Lookup(ctx, "a/x/none"); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("round %d: a name that is nowhere: %v", round, err)
			}
			if err := in.Doubt(); err != nil {
				t.Error(err)
			}
		}
	}
}

// openCounter is a store that counts its open objects.
type openCounter struct {
	store.Store
	open, most atomic.Int64
}

type counterObject struct {
	store.Object
	c *openCounter
}

func (c *openCounter) Open(ctx context.Context, name string) (store.Object, error) {
	o, err := c.Store.Open(ctx, name)
	if err != nil {
		return nil, err
	}
	for n := c.open.Add(1); ; {
		if most := c.most.Load(); n <= most || c.most.CompareAndSwap(most, n) {
			return &counterObject{o, c}, nil
		}
	}
}

func (o *counterObject) Close() error {
	o.c.open.Add(-1)
	return o.Object.Close()
}

func TestASetOfAThousandKeepsFewOpen(t *testing.T) {
	ctx := t.Context()
	const many, mostOpen = 1000, 64
	dir := t.TempDir()
	var names []string
	for i := range many {
		var b bytes.Buffer
		w := tar.NewWriter(&b)
		for _, name := range []string{fmt.Sprint("name", i), "all"} {
			content := fmt.Sprint("content ", i)
			if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(content))}); err != nil {
				t.Fatal(err)
			}
			io.WriteString(w, content)
		}
		w.Close()
		names = append(names, fmt.Sprintf("d-%04d.tar", i))
		if err := os.WriteFile(filepath.Join(dir, names[i]), b.Bytes(), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	c := &openCounter{Store: local.New(dir)}
	a, err := holdall.OpenSet(ctx, "set", names, func(ctx context.Context, name string) (*holdall.Archive, error) {
		return holdall.Open(ctx, name, holdall.OpenOptions{Store: c})
	})
	if err != nil {
		t.Fatal(err)
	}
	b, err := a.Get(ctx, "name0", 100) // only the first has it
	if err != nil || string(b) != "content 0" {
		t.Errorf("%q, %v", b, err)
	}
	n := 0
	err = a.Contents(ctx, func(holdall.Entry) bool { return true }, func(e holdall.Entry, r io.Reader, err error) error {
		n++
		return err
	})
	if err != nil || n != many+1 {
		t.Errorf("%d entries: %v", n, err)
	}
	if most := c.most.Load(); most > mostOpen+8 { // those in use are open besides
		t.Errorf("%d objects were open", most)
	}
	if err := a.Close(); err != nil || c.open.Load() != 0 {
		t.Errorf("%d objects are still open: %v", c.open.Load(), err)
	}
	if _, err := a.Get(ctx, "name0", 100); err == nil {
		t.Error("a closed set is read")
	}
}

func TestADamagedArchiveOfASetIsNamedAndTheOthersAreRead(t *testing.T) {
	ctx := t.Context()
	dir := t.TempDir()
	var archives []string
	for _, name := range []string{"a", "b", "c"} {
		archives = append(archives, packOne(t, filepath.Join(dir, name+".caf"), map[string]string{name: "content of " + name, "all": name}))
	}
	if err := os.WriteFile(archives[1], []byte("no archive at all, but it was one once"), 0o666); err != nil {
		t.Fatal(err)
	}
	a := openSet(t, holdall.OpenOptions{}, append(archives, filepath.Join(dir, "gone.caf"))...)
	var found []string
	for e, err := range a.Entries(ctx) {
		if err != nil {
			t.Fatal(err)
		}
		found = append(found, e.Name)
	}
	if got := strings.Join(found, " "); got != "a all c" && got != "a c all" {
		t.Errorf("it has %s", got)
	}
	doubt := a.Doubt()
	if doubt == nil || !strings.Contains(doubt.Error(), "b.caf") || !strings.Contains(doubt.Error(), "gone.caf") || strings.Contains(doubt.Error(), "\n") {
		t.Errorf("the doubt is %v", doubt)
	}
	if b, err := a.Get(ctx, "all", 10); err != nil || string(b) != "c" {
		t.Errorf("%q, %v", b, err)
	}
	if _, err := holdall.Convert(ctx, a, filepath.Join(dir, "x.tar"), holdall.PackOptions{}); err == nil {
		t.Error("an archive was made of a part of the set")
	} else if _, err := os.Stat(filepath.Join(dir, "x.tar")); err == nil {
		t.Error("it is there")
	}
	if _, err := holdall.OpenSet(ctx, "set", archives[1:2], func(ctx context.Context, name string) (*holdall.Archive, error) {
		return holdall.Open(ctx, name, holdall.OpenOptions{})
	}); err == nil || !strings.Contains(err.Error(), "b.caf") {
		t.Errorf("a set of nothing but damage: %v", err)
	}
}

func TestContentsOfASetAreProvenAsByTheirArchives(t *testing.T) {
	ctx := t.Context()
	dir := t.TempDir()
	content := strings.Repeat("0123456789", 300_000) // longer than what is compared before it is returned
	proven := packOne(t, filepath.Join(dir, "proven.tar"), map[string]string{"p": content})
	plain := packOne(t, filepath.Join(dir, "plain.tar"), map[string]string{"q": content})
	if _, err := holdall.BuildIndex(ctx, proven, "", holdall.IndexOptions{Chunk: 256 << 10}); err != nil {
		t.Fatal(err)
	}
	healed := packOne(t, filepath.Join(dir, "healed.tar"), map[string]string{"h": content})
	if _, err := holdall.Protect(ctx, []string{healed}, "", holdall.ProtectOptions{}); err != nil {
		t.Fatal(err)
	}
	all := []string{proven, plain, healed}
	for _, name := range all { // the content of each is damaged
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(name)
		if err != nil {
			t.Fatal(err)
		}
		b[1_000_000] ^= 1
		if err := os.WriteFile(name, b, 0o666); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(name, info.ModTime(), info.ModTime()); err != nil {
			t.Fatal(err)
		}
	}
	o := holdall.OpenOptions{Index: holdall.UseIndex{Beside: true}}
	a := openSet(t, o, all...)
	for i, name := range []string{"p", "q", "h"} {
		one, err := holdall.Open(ctx, all[i], o)
		if err != nil {
			t.Fatal(err)
		}
		var b [2]string
		var errs [2]error
		var parts, whole, unproven [2]bool
		for k, in := range []*holdall.Archive{a, one} {
			e, err := in.Lookup(ctx, name)
			if err != nil {
				t.Fatal(err)
			}
			var got strings.Builder
			errs[k] = in.WriteContent(ctx, &got, e)
			b[k] = got.String()
			parts[k], whole[k] = in.Compares(ctx, e)
			unproven[k] = in.Unproven(ctx, e)
		}
		if (errs[0] == nil) != (errs[1] == nil) || b[0] != b[1] || parts[0] != parts[1] || whole[0] != whole[1] || unproven[0] != unproven[1] {
			t.Errorf("%s: %v, and by itself %v; compared %v %v %v", name, errs[0], errs[1], parts, whole, unproven)
		}
		if damaged := b[0] != content; damaged != (name != "h") || (errs[0] != nil) != (name == "p") {
			t.Errorf("%s: damaged is %v, %v", name, damaged, errs[0])
		}
		one.Close()
	}
}
