package holdall_test

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/fstest"

	"github.com/holdall/holdall"
	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/caf"
	"github.com/holdall/holdall/format/formattest/tiny"
	"github.com/holdall/holdall/format/lindi"
	tarformat "github.com/holdall/holdall/format/tar"
	zipformat "github.com/holdall/holdall/format/zip"
	"github.com/holdall/holdall/internal/testkit"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/local"
	"github.com/holdall/holdall/store/storetest"
)

// both are a format of the house and one by a stranger.
var both = []*format.Format{caf.Format, tiny.Format}

// archiveOf writes entries, with their content, into an archive in memory.
func archiveOf(t *testing.T, f *format.Format, entries []holdall.Entry, contents map[string]string) *storetest.Mem {
	t.Helper()
	m := &storetest.Mem{}
	w, err := f.Create(t.Context(), m, "x", format.CreateOptions{})
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
	return m
}

func openMem(t *testing.T, m store.Store, o holdall.OpenOptions) *holdall.Archive {
	t.Helper()
	if o.Formats == nil {
		o.Formats = both
	}
	a, err := holdall.Open(t.Context(), "x", o.In(m))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.Close() })
	return a
}

// tree makes a folder with files and returns it.
func tree(t *testing.T, files map[string]string) string {
	t.Helper()
	return testkit.Tree(t, t.TempDir(), files)
}

var sample = map[string]string{
	"a": "alpha", "a.txt": "between", "d/b": strings.Repeat("beta", 3000), "d/e/c": "", "big": strings.Repeat("0123456789abcdef", 70_000), "ü/€": "unicode",
}

// A sixth format is one folder: it names nothing of the house, the house
// nothing of it, and all that holdall does works with it.
func TestSixthFormatNeedsOnlyItsFolder(t *testing.T) {
	testkit.Serial(t)
	ctx := t.Context()
	dir := tree(t, sample)
	if err := os.Symlink("a", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	st := local.New(t.TempDir())
	sum, err := holdall.Pack(ctx, "x.tiny", []string{dir}, holdall.PackOptions{Store: st, Formats: both})
	if err != nil || sum.Entries != 10 { // 6 files, 3 folders, a link
		t.Fatalf("%d entries, %v", sum.Entries, err)
	}
	a, err := holdall.Open(ctx, "x.tiny", holdall.OpenOptions{Store: st, Formats: both})
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	if a.Format() != tiny.Format {
		t.Fatalf("recognised as %s", a.Format().Name)
	}
	for name, want := range sample {
		var got bytes.Buffer
		e, err := a.Lookup(ctx, name)
		if err == nil {
			err = a.WriteContent(ctx, &got, e)
		}
		if err != nil || got.String() != want {
			t.Errorf("%s: %d bytes, %v", name, got.Len(), err)
		}
	}
	if err := fstest.TestFS(a.FS(ctx), "a", "d/e/c", "ü/€"); err != nil {
		t.Error(err)
	}
	found, err := holdall.Verify(ctx, "x.tiny", holdall.VerifyOptions{OpenOptions: holdall.OpenOptions{Store: st, Formats: both}}, func(p holdall.Problem) { t.Error(p) })
	if err != nil || found.Entries != 10 {
		t.Errorf("verify: %+v, %v", found, err)
	}
	out := t.TempDir()
	root, err := os.OpenRoot(out)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	if _, err := holdall.Extract(ctx, a, root, holdall.ExtractOptions{}); err != nil {
		t.Fatal(err)
	}
	same(t, dir, out)

	// Into the house's own format, and back.
	conv, err := holdall.Convert(ctx, a, "x.caf", holdall.PackOptions{Store: st, Formats: both, OnError: func(n string, err error) { t.Error(n, err) }})
	if err != nil || conv.Entries != 6 || !slices.Equal(conv.Lost, []string{"modes", "times"}) || conv.Dropped["symlink"] != 1 {
		t.Errorf("convert: %+v, %v", conv, err)
	}
	b, err := holdall.Open(ctx, "x.caf", holdall.OpenOptions{Store: st, Formats: both})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	var diffs []string
	_, err = holdall.Diff(ctx, a, b, nil, nil, func(d holdall.Difference) error {
		diffs = append(diffs, fmt.Sprint(d.Name, " ", d.Kind))
		return nil
	})
	if err != nil || !slices.Equal(diffs, []string{"link removed"}) {
		t.Errorf("diff: %q, %v", diffs, err)
	}
}

// same compares two folders: names, kinds, contents, modes, times, links.
func same(t *testing.T, a, b string) {
	t.Helper()
	list := func(dir string) (lines []string) {
		filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
			if err != nil || p == dir {
				return err
			}
			info, err := d.Info()
			if err != nil {
				return err
			}
			rel, _ := filepath.Rel(dir, p)
			line := fmt.Sprintf("%s %v", rel, info.Mode())
			switch {
			case info.Mode().IsRegular():
				content, _ := os.ReadFile(p)
				line += fmt.Sprintf(" %v %d %x", info.ModTime(), len(content), content[:min(20, len(content))])
			case info.Mode()&fs.ModeSymlink != 0:
				to, _ := os.Readlink(p)
				line += " " + to
			default:
				line += fmt.Sprint(" ", info.ModTime())
			}
			lines = append(lines, line)
			return nil
		})
		return lines
	}
	if la, lb := list(a), list(b); !slices.Equal(la, lb) {
		t.Errorf("folders differ:\n%s\n\n%s", strings.Join(la, "\n"), strings.Join(lb, "\n"))
	}
}

// The requests that reading one file costs. A line more is a round trip more.
func TestCatRequests(t *testing.T) {
	entries := []holdall.Entry{{Name: "first"}, {Name: "docs/b/c"}, {Name: "last"}}
	long := strings.Repeat("x", 100_000)
	m := archiveOf(t, caf.Format, entries, map[string]string{"first": long, "docs/b/c": "middle", "last": long})
	m.Put("x.caf", m.Get("x"))
	many := &storetest.Mem{}
	for i := range 3000 {
		entries = append(entries, holdall.Entry{Name: fmt.Sprintf("many/%05d", i)})
	}
	many = archiveOf(t, caf.Format, entries, map[string]string{"docs/b/c": "middle"})
	many.Put("x.caf", many.Get("x"))
	size := len(many.Get("x"))
	indexLen := size - 4 - len("middle")
	for _, tt := range []struct {
		name, archive string
		st            store.Store
		want          []string
	}{
		{"the extension says what it is", "x.caf", m, []string{"tail x.caf 65536", "read x.caf at 100000+6"}},
		{"its bytes must say", "x", m, []string{"head x 65536", "read x at 100000+6", "tail x 65536"}},
		{"the index is longer than the tail", "x.caf", many, []string{"tail x.caf 65536", "read x.caf at 6+262144", fmt.Sprintf("read x.caf at %d+%d", 6+262144, indexLen-262144), "read x.caf at 0+6"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var log bytes.Buffer
			a, err := holdall.Open(t.Context(), tt.archive, holdall.OpenOptions{Store: storetest.Trace(tt.st, &log), Formats: both, FewLookups: true})
			if err != nil {
				t.Fatal(err)
			}
			defer a.Close()
			e, err := a.Lookup(t.Context(), "docs/b/c")
			if err != nil {
				t.Fatal(err)
			}
			var got bytes.Buffer
			if err := a.WriteContent(t.Context(), &got, e); err != nil || got.String() != "middle" {
				t.Fatalf("%q, %v", got.String(), err)
			}
			lines := strings.Split(strings.TrimSpace(log.String()), "\n")
			lines = slices.DeleteFunc(lines, func(l string) bool { return strings.HasPrefix(l, "info ") })
			if tt.name == "its bytes must say" {
				slices.Sort(lines) // head and tail are asked for at once
			}
			if !slices.Equal(lines, tt.want) {
				t.Errorf("requests:\n%s\nwant:\n%s", strings.Join(lines, "\n"), strings.Join(tt.want, "\n"))
			}
		})
	}
}

func TestNameIsAHintAndBytesDecide(t *testing.T) {
	m := archiveOf(t, tiny.Format, []holdall.Entry{{Name: "f"}}, nil)
	m.Put("really-tiny.caf", m.Get("x"))
	a, err := holdall.Open(t.Context(), "really-tiny.caf", holdall.OpenOptions{Store: m, Formats: both})
	if err != nil || a.Format() != tiny.Format {
		t.Fatalf("%v, %v", a, err)
	}
	a.Close()
	if _, err := holdall.Open(t.Context(), "x", holdall.OpenOptions{Store: m, Formats: both, Format: "caf"}); err == nil {
		t.Error("--format caf takes what is none")
	}
	m.Put("text", []byte(strings.Repeat("just words ", 100)))
	if _, err := holdall.Open(t.Context(), "text", holdall.OpenOptions{Store: m, Formats: both}); err == nil || !strings.Contains(err.Error(), "not an archive") {
		t.Errorf("%v", err)
	}
}

// A zip may be a file of a tar, and a program or anything else may precede a zip. If it is not
// certain which of the two an archive is, holdall asks.
func TestAZipAtTheEndOfATarIsAFileOfTheTar(t *testing.T) {
	zipOf := func(files, size int) string {
		var b bytes.Buffer
		z := zip.NewWriter(&b)
		for i := range files {
			w, err := z.CreateHeader(&zip.FileHeader{Name: fmt.Sprint("f", i)})
			if err == nil {
				_, err = w.Write(bytes.Repeat([]byte{byte(i)}, size))
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		if err := z.Close(); err != nil {
			t.Fatal(err)
		}
		return b.String()
	}
	tarOf := func(last string) []byte {
		var b bytes.Buffer
		w := tar.NewWriter(&b)
		for _, f := range [][2]string{{"a.txt", "text"}, {"z.zip", last}} {
			err := w.WriteHeader(&tar.Header{Name: f[0], Mode: 0o644, Size: int64(len(f[1]))})
			if err == nil {
				_, err = io.WriteString(w, f[1])
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		return b.Bytes()
	}
	lost := tarOf(zipOf(1, 100))
	lost[0] ^= 1
	for what, c := range map[string]struct {
		b    []byte
		want string
	}{
		"a small zip":                  {tarOf(zipOf(1, 100)), "tar"},
		"a long zip":                   {tarOf(zipOf(100, 3000)), "tar"},
		"a zip with 64-bit counts":     {tarOf(zipOf(70_000, 0)), "tar"},
		"an empty zip":                 {tarOf(zipOf(0, 0)), "tar"},
		"a zip alone":                  {[]byte(zipOf(1, 100)), "zip"},
		"an empty zip alone":           {[]byte(zipOf(0, 0)), "zip"},
		"a zip with something before":  {[]byte(strings.Repeat("MZ, a program. ", 100) + zipOf(1, 100)), "zip"},
		"a long one that is preceded":  {[]byte("#!/bin/sh\n" + zipOf(70_000, 0)), "zip"},
		"a zip after a damaged header": {lost, ""},
	} {
		m := &storetest.Mem{}
		m.Put("x", c.b)
		a, err := holdall.Open(t.Context(), "x", holdall.OpenOptions{Store: m, Formats: format.Formats{caf.Format, lindi.Format, tarformat.Format, zipformat.Format}})
		if found := ""; err == nil {
			found = a.Format().Name
			a.Close()
			if found != c.want {
				t.Errorf("%s: expected %q, found %q", what, c.want, found)
			}
		} else if c.want != "" || !strings.Contains(err.Error(), "set the format") {
			t.Errorf("%s: expected %q, found %v", what, c.want, err)
		}
	}
}

func TestArchiveThatChangesIsNotMixed(t *testing.T) {
	m := archiveOf(t, caf.Format, []holdall.Entry{{Name: "f"}, {Name: "g"}}, map[string]string{"f": "old", "g": strings.Repeat("g", 300_000)})
	a := openMem(t, m, holdall.OpenOptions{})
	e, err := a.Lookup(t.Context(), "g") // longer than what opening has fetched
	if err != nil {
		t.Fatal(err)
	}
	m.Put("x", bytes.Repeat([]byte("new"), 50_000))
	if err := a.WriteContent(t.Context(), io.Discard, e); err == nil {
		t.Error("bytes of another version are handed out")
	}
}

func TestWriteContentHandsOutNothingDamaged(t *testing.T) {
	m := archiveOf(t, caf.Format, []holdall.Entry{{Name: "f"}}, map[string]string{"f": "content"})
	b := m.Get("x")
	b[2] ^= 16
	m.Put("x", b)
	a := openMem(t, m, holdall.OpenOptions{})
	e, err := a.Lookup(t.Context(), "f")
	if err != nil {
		t.Fatal(err)
	}
	var got bytes.Buffer
	err = a.WriteContent(t.Context(), &got, e)
	d, ok := err.(*holdall.DigestError)
	if !ok || got.Len() != 0 || d.Bit != 2*8+4 {
		t.Errorf("%q, %v", got.String(), err)
	}
}

func TestFileSeeksAndReads(t *testing.T) {
	content := strings.Repeat("0123456789", 500_000)
	a := openMem(t, archiveOf(t, caf.Format, []holdall.Entry{{Name: "f"}}, map[string]string{"f": content}), holdall.OpenOptions{})
	f, err := a.Open(t.Context(), "f")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	p := make([]byte, 100_000)
	for _, off := range []int64{0, 4_900_000, 17, 2_000_003} {
		if _, err := f.Seek(off, io.SeekStart); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(f, p); err != nil || string(p) != content[off:off+int64(len(p))] {
			t.Errorf("at %d: %v", off, err)
		}
	}
	if n, err := f.ReadAt(p, int64(len(content))-5); n != 5 || err != io.EOF {
		t.Errorf("end: %d, %v", n, err)
	}
	if off, err := f.Seek(-5, io.SeekEnd); off != int64(len(content))-5 || err != nil {
		t.Errorf("seek from end: %d, %v", off, err)
	}
	if rest, err := io.ReadAll(f); string(rest) != "56789" || err != nil {
		t.Errorf("%q, %v", rest, err)
	}
}

// A folder is an archive whose files are stored as they are: the limit on how
// much more than is stored may come out of one must not mistake it.
func TestFolderStoresWhatItHas(t *testing.T) {
	a, err := holdall.Open(t.Context(), tree(t, sample), holdall.OpenOptions{Format: "dir"})
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	want := int64(0)
	for _, content := range sample {
		want += int64(len(content))
	}
	if got, err := a.StoredSize(t.Context()); got != want || err != nil {
		t.Errorf("%d bytes, %v; want %d", got, err, want)
	}
}

// The first lookup in a long index searches it while the next ones load it.
func TestLookupsInALongIndexRunInParallel(t *testing.T) {
	var entries []holdall.Entry
	for i := range 30_000 {
		entries = append(entries, holdall.Entry{Name: fmt.Sprintf("%s/%06d", strings.Repeat("n", 60), i)})
	}
	m := archiveOf(t, caf.Format, entries, nil)
	if n := len(m.Get("x")); n < 5<<20 {
		t.Fatalf("an index of %d bytes is not long", n)
	}
	a := openMem(t, m, holdall.OpenOptions{FewLookups: true})
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			if _, err := a.Lookup(t.Context(), entries[i*7000].Name); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
}

func TestGetTakesNoMoreThanIsAllowed(t *testing.T) {
	a, err := holdall.Open(t.Context(), tree(t, map[string]string{"d/x": "content"}), holdall.OpenOptions{Format: "dir"})
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	if b, err := a.Get(t.Context(), "d/x", 7); err != nil || string(b) != "content" {
		t.Errorf("%q, %v", b, err)
	}
	if _, err := a.Get(t.Context(), "d/x", 6); err == nil || !strings.Contains(err.Error(), "7 bytes, over the limit of 6") {
		t.Error(err)
	}
	for _, name := range []string{"d", "y"} {
		if _, err := a.Get(t.Context(), name, 7); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
