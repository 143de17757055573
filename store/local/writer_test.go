package local

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/holdall/holdall/store/storekit"
)

func created(t *testing.T, st *Store, name string) *writer {
	t.Helper()
	w, err := storekit.Create(t.Context(), st, name)
	if err != nil {
		t.Fatal(err)
	}
	return w.(*writer)
}

// written commits content under name.
func written(t *testing.T, st *Store, name, content string) {
	t.Helper()
	w := created(t, st, name)
	defer w.Abort()
	if _, err := io.WriteString(w, content); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func TestCommitLeavesOnlyTheObject(t *testing.T) {
	for _, noSync := range []bool{false, true} {
		dir := t.TempDir()
		st := New(dir)
		st.NoSync = noSync
		written(t, st, "x", "first")
		written(t, st, "x", "second")
		wantContent(t, st, "x", "second")
		wantFiles(t, dir, "x")
	}
}

func TestFinishedWriterRefusesMore(t *testing.T) {
	st := New(t.TempDir())
	for name, finish := range map[string]func(*writer) error{
		"committed": func(w *writer) error { _, err := w.Commit(t.Context()); return err },
		"aborted":   func(w *writer) error { return w.Abort() },
	} {
		w := created(t, st, name)
		if err := finish(w); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte("x")); !errors.Is(err, fs.ErrClosed) {
			t.Errorf("%s: write: %v", name, err)
		}
		if _, err := w.Commit(t.Context()); !errors.Is(err, fs.ErrClosed) {
			t.Errorf("%s: commit: %v", name, err)
		}
		if err := w.Rewind(0); !errors.Is(err, fs.ErrClosed) {
			t.Errorf("%s: rewind: %v", name, err)
		}
		if err := w.Abort(); err != nil {
			t.Errorf("%s: abort: %v", name, err)
		}
	}
}

func TestFailedCommitLeavesTheOldObjectAndNothingElse(t *testing.T) {
	dir := t.TempDir()
	st := New(dir)
	written(t, st, "x", "old")
	w := created(t, st, "x")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := w.Commit(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	wantFiles(t, dir, "x")

	w = created(t, st, "y")
	if err := os.Mkdir(filepath.Join(dir, "y"), 0o777); err != nil { // in the way of the rename
		t.Fatal(err)
	}
	if _, err := w.Commit(t.Context()); err == nil || !strings.Contains(err.Error(), "commit "+filepath.Join(dir, "y")) {
		t.Errorf("over a folder: %v", err)
	}
	wantFiles(t, dir, "x", "y/")
	wantContent(t, st, "x", "old")
}

func TestCreateRefusesAFolder(t *testing.T) {
	dir := t.TempDir()
	put(t, dir, "sub/x", "bytes")
	for _, name := range []string{"sub", "sub/", "sub/.", ".", "..", "sub/.."} {
		if _, err := storekit.Create(t.Context(), New(dir), name); err == nil || !strings.Contains(err.Error(), "directory") {
			t.Errorf("%q: expected an error about a directory, found %v", name, err)
		}
	}
	if _, err := storekit.Create(t.Context(), New(dir), "new/"); err == nil {
		t.Error("new/: expected an error")
	}
	wantFiles(t, dir, "sub/")
	wantFiles(t, filepath.Join(dir, "sub"), "x")
}

func TestCreateMakesFoldersOfTheNameButNotTheStoresOwn(t *testing.T) {
	dir := t.TempDir()
	st := New(dir)
	written(t, st, "a/b/c", "bytes")
	wantContent(t, st, "a/b/c", "bytes")
	if _, err := storekit.Create(t.Context(), New(filepath.Join(dir, "typo")), "a/x"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("in a folder that is not there: found %v", err)
	}
	wantFiles(t, dir, "a/")

	first, second := created(t, st, "new/deep/x"), created(t, st, "new/y")
	if err := first.Abort(); err != nil {
		t.Error(err)
	}
	wantFiles(t, filepath.Join(dir, "new"), filepath.Base(second.f.Name())) // deep is gone, new is in use
	if _, err := second.Commit(t.Context()); err != nil {
		t.Error(err)
	}
	third := created(t, st, "other/deep/x")
	if err := third.Abort(); err != nil {
		t.Error(err)
	}
	wantFiles(t, dir, "a/", "new/")
}

func TestModeFollowsTheOldFileOrTheUmask(t *testing.T) {
	if onWindows {
		t.Skip("no modes")
	}
	dir := t.TempDir()
	mode := func(name string) fs.FileMode {
		t.Helper()
		fi, err := os.Stat(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		return fi.Mode()
	}
	put(t, dir, "by the umask", "")
	st := New(dir)
	written(t, st, "new", "bytes")
	if got, want := mode("new"), mode("by the umask"); got != want {
		t.Errorf("new file: expected %v, found %v", want, got)
	}
	for _, want := range []fs.FileMode{0o600, 0o444, 0o666, 0} {
		if err := os.Chmod(filepath.Join(dir, "new"), want); err != nil {
			t.Fatal(err)
		}
		w := created(t, st, "new")
		fi, err := w.f.Stat()
		if err != nil {
			t.Fatal(err)
		}
		if open := fi.Mode() &^ (want | 0o600); open != 0 {
			t.Errorf("over a file of mode %v: while it is written %v is open", want, open)
		}
		if _, err := w.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := mode("new"); got != want {
			t.Errorf("over a file of mode %v: found %v", want, got)
		}
	}
}

func TestWritingThroughALinkReplacesItsTarget(t *testing.T) {
	dir := t.TempDir()
	put(t, dir, "real/target", "old")
	for link, to := range map[string]string{
		"link":       "hop",
		"hop":        "real/target",
		"absolute":   filepath.Join(dir, "real/target"),
		"dangling":   "real/not yet",
		"ring":       "ring",
		"nowhere":    "no/folder/x",
		"real/above": "../upstairs",
	} {
		if err := os.Symlink(to, filepath.Join(dir, link)); err != nil {
			t.Skip(err)
		}
	}
	st := New(dir)
	for _, c := range []struct{ link, target string }{
		{"link", "real/target"}, {"absolute", "real/target"}, {"dangling", "real/not yet"}, {"real/above", "upstairs"},
	} {
		written(t, st, c.link, "through "+c.link)
		wantContent(t, st, c.target, "through "+c.link)
		if fi, err := os.Lstat(filepath.Join(dir, c.link)); err != nil || fi.Mode()&fs.ModeSymlink == 0 {
			t.Errorf("%s is no link any more: %v, %v", c.link, fi.Mode(), err)
		}
	}
	for _, link := range []string{"ring", "nowhere"} {
		if _, err := storekit.Create(t.Context(), st, link); err == nil {
			t.Errorf("%s: expected an error", link)
		}
	}
	wantFiles(t, dir, "absolute", "dangling", "hop", "link", "nowhere", "real/", "ring", "upstairs")
	wantFiles(t, filepath.Join(dir, "real"), "above", "not yet", "target")
}

func TestRewindWorksAtEveryPlaceInBufferAndFile(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	st := New(t.TempDir())
	st.NoSync = true
	for range 20 {
		w := created(t, st, "x")
		var want []byte
		for range 50 {
			if r.IntN(4) == 0 {
				to := r.IntN(len(want) + 1)
				if r.IntN(2) == 0 {
					to = max(to, len(want)-r.IntN(100))
				}
				if err := w.Rewind(int64(to)); err != nil {
					t.Fatal(err)
				}
				want = want[:to]
				continue
			}
			p := make([]byte, r.IntN([]int{10, 1000, bufferLen, 3 * bufferLen}[r.IntN(4)]))
			for i := range p {
				p[i] = byte(r.Uint32())
			}
			if n, err := w.Write(p); n != len(p) || err != nil {
				t.Fatal(n, err)
			}
			want = append(want, p...)
		}
		info, err := w.Commit(t.Context())
		if err != nil || info.Size != int64(len(want)) {
			t.Fatalf("expected %d bytes, found %d, %v", len(want), info.Size, err)
		}
		wantContent(t, st, "x", string(want))
	}
}

func TestTempNamesFitAndAreKnownAgain(t *testing.T) {
	dir := t.TempDir()
	st := New(dir)
	for _, name := range []string{"x", strings.Repeat("n", 255), strings.Repeat("ü", 127), strings.Repeat("🙂", 63), ".hidden"} {
		w := created(t, st, name)
		temp := filepath.Base(w.f.Name())
		if len(temp) > maxElementLen || !utf8.ValidString(temp) || !isTemp(temp) || !strings.HasPrefix(temp, tempStem(name)) {
			t.Errorf("%.20q…: temporary name %q (%d bytes)", name, temp, len(temp))
		}
		if _, err := w.Commit(t.Context()); err != nil {
			t.Error(err)
		}
	}
	for _, name := range []string{"x", ".tmp", ".x.tmp", ".x.holdall-.tmp", ".x.holdall-0123456789abcdeg.tmp", "x.holdall-0123456789abcdef.tmp", ".x.holdall-0123456789abcdef.tmp2"} {
		if isTemp(name) {
			t.Errorf("%q is taken for ours", name)
		}
	}
}

func TestWriteRangeCopiesBetweenFilesAndThroughWrappers(t *testing.T) {
	dir := t.TempDir()
	st := New(dir)
	src := bytes.Repeat([]byte("0123456789abcdef"), 1<<16) // 1 MiB
	put(t, dir, "source", string(src))
	o, err := st.Open(t.Context(), "source")
	if err != nil {
		t.Fatal(err)
	}
	defer o.Close()
	w := created(t, st, "x")
	defer w.Abort()
	if _, err := io.WriteString(w, "buffered "); err != nil {
		t.Fatal(err)
	}
	err = w.WriteRange(t.Context(), wrapped{wrapped{o}}, 5, 1<<20-7)
	if errors.Is(err, errors.ErrUnsupported) {
		t.Skip("no copying in the kernel here")
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(w, " end"); err != nil {
		t.Fatal(err)
	}
	if err := w.WriteRange(t.Context(), opaque{o}, 0, 1<<20); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("from an object of another package: found %v", err)
	}
	if err := w.WriteRange(t.Context(), o, 0, 10); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("of 10 bytes: found %v", err)
	}
	if err := w.WriteRange(t.Context(), o, 10, 1<<20); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("past the end: found %v", err)
	}
	for _, x := range [][2]int64{{-1, 1 << 20}, {0, -1}, {1<<63 - 1, 1 << 20}} {
		if err := w.WriteRange(t.Context(), o, x[0], x[1]); err == nil || errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("range %d+%d: found %v", x[0], x[1], err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := w.WriteRange(ctx, o, 0, 1<<20); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: found %v", err)
	}
	if _, err := w.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantContent(t, st, "x", "buffered "+string(src[5:1<<20-2])+" end")
}

func TestWriteRangeOfAChangedFileFailsUntilRewound(t *testing.T) {
	dir := t.TempDir()
	st := New(dir)
	put(t, dir, "source", strings.Repeat("x", 1<<20))
	o, err := st.Open(t.Context(), "source")
	if err != nil {
		t.Fatal(err)
	}
	defer o.Close()
	w := created(t, st, "x")
	defer w.Abort()
	if _, err := io.WriteString(w, "kept"); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(filepath.Join(dir, "source"), 1<<19); err != nil {
		t.Fatal(err)
	}
	err = w.WriteRange(t.Context(), o, 0, 1<<20)
	if errors.Is(err, errors.ErrUnsupported) {
		t.Skip("no copying in the kernel here")
	}
	if err == nil {
		t.Fatal("expected an error")
	}
	if _, err := io.WriteString(w, "x"); err == nil {
		t.Error("write behind half a range: expected an error")
	}
	if err := w.Rewind(4); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantContent(t, st, "x", "kept")
}

func TestWriteRangeBetweenFileSystemsFallsBack(t *testing.T) {
	other, err := os.MkdirTemp("/dev/shm", "holdall")
	if err != nil {
		t.Skip(err)
	}
	defer os.RemoveAll(other)
	src := strings.Repeat("0123456789abcdef", 1<<16)
	put(t, other, "source", src)
	o, err := New(other).Open(t.Context(), "source")
	if err != nil {
		t.Fatal(err)
	}
	defer o.Close()
	st := New(t.TempDir())
	w := created(t, st, "x")
	defer w.Abort()
	if _, err := io.WriteString(w, "before "); err != nil {
		t.Fatal(err)
	}
	if err := storekit.WriteRange(t.Context(), w, o, 0, 1<<20); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantContent(t, st, "x", "before "+src)
}
