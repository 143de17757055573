package unpack_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/read/content"
	"github.com/holdall/holdall/internal/testkit/archivetest"
	"github.com/holdall/holdall/internal/write/unpack"
	"github.com/holdall/holdall/store/storetest"
)

// archiveOf is an archive in memory of entries with their contents.
func archiveOf(t *testing.T, f *format.Format, entries []format.Entry, contents map[string]string) *content.Source {
	t.Helper()
	st, name := written(t, f, entries, contents)
	return archivetest.OpenAs(t, st, name, f, format.OpenOptions{})
}

func written(t *testing.T, f *format.Format, entries []format.Entry, contents map[string]string) (st *storetest.Mem, name string) {
	t.Helper()
	st, name = &storetest.Mem{}, "x"+f.Extensions[0]
	w, err := f.Create(t.Context(), st, name, format.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Abort()
	for _, e := range entries {
		e.Size = int64(len(contents[e.Name]))
		if err := w.Add(t.Context(), e, strings.NewReader(contents[e.Name])); err != nil {
			t.Fatalf("%s: %v", e.Name, err)
		}
	}
	if _, err := w.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	return st, name
}

// filesOf is an archive in memory of files.
func filesOf(t *testing.T, f *format.Format, files map[string]string) *content.Source {
	t.Helper()
	return archiveOf(t, f, entriesOf(files), files)
}

func entriesOf(files map[string]string) (entries []format.Entry) {
	for name := range files {
		entries = append(entries, format.Entry{Name: name})
	}
	slices.SortFunc(entries, func(a, b format.Entry) int { return strings.Compare(a.Name, b.Name) })
	return entries
}

// extract extracts into a folder, and returns what was refused, by name: the codes and classes.
func extract(t *testing.T, src *content.Source, into string, o unpack.Options) (sum unpack.Done, refused map[string]string, err error) {
	t.Helper()
	root, err := os.OpenRoot(into)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	refused = map[string]string{}
	if o.OnError == nil {
		o.OnError = func(p format.Problem, _ error) { refused[p.Entry] = strings.TrimSpace(string(p.Code) + " " + p.Class) }
	}
	sum, err = unpack.Extract(t.Context(), src, root, o)
	return sum, refused, err
}

// extractAll is extract of what there is no error of.
func extractAll(t *testing.T, src *content.Source, into string, o unpack.Options) unpack.Done {
	t.Helper()
	sum, refused, err := extract(t, src, into, o)
	if err != nil || len(refused) > 0 {
		t.Fatalf("%+v, %v, %v", sum, refused, err)
	}
	return sum
}

// filesIn are the files below a folder, and the links.
func filesIn(t *testing.T, dir string) (names []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(file string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			rel, rerr := filepath.Rel(dir, file)
			names, err = append(names, filepath.ToSlash(rel)), rerr
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

func wantFile(t *testing.T, dir, name, want string) {
	t.Helper()
	if b, err := os.ReadFile(filepath.Join(dir, filepath.FromSlash(name))); err != nil || string(b) != want {
		t.Errorf("%s: found %.100q, %v, expected %.100q", name, b, err, want)
	}
}
