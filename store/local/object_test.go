package local

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storekit"
)

// touch sets a modification time that no other file of the test has, as a
// rewriting process would some moments later. Clocks of file systems are
// coarse, and tests do not sleep.
func touch(t *testing.T, p string) {
	t.Helper()
	if err := os.Chtimes(p, time.Time{}, time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
}

func TestWhatGrowsIsReadAsItWas(t *testing.T) {
	dir := t.TempDir()
	put(t, dir, "x", "0123456789")
	st := New(dir)
	st.recheck = 0
	o, err := storekit.OpenGrowing(t.Context(), st, "x")
	if err != nil {
		t.Fatal(err)
	}
	defer o.Close()
	want := func(what string) {
		t.Helper()
		b := make([]byte, 10)
		if err := o.ReadAt(t.Context(), b, 0); err != nil || string(b) != "0123456789" {
			t.Errorf("%s: %q, %v", what, b, err)
		}
		if info, err := o.Info(t.Context()); err != nil || info.Size != 10 {
			t.Errorf("%s: %+v, %v", what, info, err)
		}
		if _, err := o.Can().File(t.Context()); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	want("first")
	f, err := os.OpenFile(filepath.Join(dir, "x"), os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString("abc"); err != nil {
		t.Fatal(err)
	}
	f.Close()
	touch(t, filepath.Join(dir, "x"))
	want("grown")
	if err := o.ReadAt(t.Context(), make([]byte, 11), 0); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("past its end: %v", err)
	}
	if err := os.Truncate(filepath.Join(dir, "x"), 9); err != nil {
		t.Fatal(err)
	}
	if err := o.ReadAt(t.Context(), make([]byte, 2), 0); !errors.Is(err, store.ErrChanged) {
		t.Errorf("shorter: expected ErrChanged, found %v", err)
	}
}

func TestReadOfAFileChangedInPlaceFailsAndStaysFailed(t *testing.T) {
	const before = "0123456789"
	for name, change := range map[string]func(t *testing.T, p string) error{
		"shrunk":    func(_ *testing.T, p string) error { return os.Truncate(p, 3) },
		"emptied":   func(_ *testing.T, p string) error { return os.Truncate(p, 0) },
		"grown":     func(_ *testing.T, p string) error { return os.Truncate(p, 30) },
		"rewritten": func(t *testing.T, p string) error { defer touch(t, p); return os.WriteFile(p, []byte("abcdefghij"), 0) },
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			put(t, dir, "x", before)
			st := New(dir)
			st.recheck = 0
			o, err := st.Open(t.Context(), "x")
			if err != nil {
				t.Fatal(err)
			}
			defer o.Close()
			if err := o.ReadAt(t.Context(), make([]byte, 10), 0); err != nil {
				t.Fatal(err)
			}
			if err := change(t, filepath.Join(dir, "x")); err != nil {
				t.Fatal(err)
			}
			for range 2 {
				err := o.ReadAt(t.Context(), make([]byte, 2), 1)
				if !errors.Is(err, store.ErrChanged) {
					t.Errorf("expected ErrChanged, found %v", err)
				}
			}
			// What was there once must not come back as if nothing had been.
			put(t, dir, "x", before)
			if err := o.ReadAt(t.Context(), make([]byte, 2), 1); !errors.Is(err, store.ErrChanged) {
				t.Errorf("after changing back: expected ErrChanged, found %v", err)
			}
		})
	}
}

func TestShortReadTellsAChangeBeforeTheNextLookIsDue(t *testing.T) {
	dir := t.TempDir()
	put(t, dir, "x", "0123456789")
	st := New(dir)
	st.recheck = time.Hour
	for _, x := range []struct {
		to  int64 // the size that it changes to
		off int64
		n   int
	}{{4, 2, 5}, {4, 6, 1}, {20, 8, 5}} {
		put(t, dir, "x", "0123456789")
		o, err := st.Open(t.Context(), "x")
		if err != nil {
			t.Fatal(err)
		}
		defer o.Close()
		if err := os.Truncate(filepath.Join(dir, "x"), x.to); err != nil {
			t.Fatal(err)
		}
		if err := o.ReadAt(t.Context(), make([]byte, x.n), x.off); !errors.Is(err, store.ErrChanged) {
			t.Errorf("read at %d+%d after a change to %d bytes: expected ErrChanged, found %v", x.off, x.n, x.to, err)
		}
	}
}

func TestFileReplacedByRenameIsReadToItsEnd(t *testing.T) {
	dir := t.TempDir()
	put(t, dir, "x", "old bytes")
	put(t, dir, "y", "new, and more of them")
	st := New(dir)
	st.recheck = 0
	o, err := st.Open(t.Context(), "x")
	if err != nil {
		t.Fatal(err)
	}
	defer o.Close()
	if err := os.Rename(filepath.Join(dir, "y"), filepath.Join(dir, "x")); err != nil {
		t.Skip(err) // Windows, while it is open
	}
	p := make([]byte, 9)
	for range 2 {
		if err := o.ReadAt(t.Context(), p, 0); err != nil || string(p) != "old bytes" {
			t.Errorf("expected the old bytes, found %q, %v", p, err)
		}
	}
	wantContent(t, st, "x", "new, and more of them")
}

func TestVersionTellsSameSizeAndTimeApart(t *testing.T) {
	if onWindows {
		t.Skip("no inodes")
	}
	dir := t.TempDir()
	now := time.Now()
	versions := map[string]string{}
	for _, name := range []string{"x", "y"} {
		put(t, dir, name, "bytes")
		if err := os.Chtimes(filepath.Join(dir, name), now, now); err != nil {
			t.Fatal(err)
		}
		for info, err := range New(dir).List(t.Context(), name) {
			if err != nil {
				t.Fatal(err)
			}
			versions[info.Version] = name
		}
	}
	if len(versions) != 2 {
		t.Errorf("expected two versions, found %q", versions)
	}
}

func TestReadErrorsNameFileAndRange(t *testing.T) {
	dir := t.TempDir()
	put(t, dir, "x", "0123456789")
	o, err := New(dir).Open(t.Context(), "x")
	if err != nil {
		t.Fatal(err)
	}
	err = o.ReadAt(t.Context(), make([]byte, 5), 8)
	e, ok := errors.AsType[*store.Error](err)
	if !ok || e.Name != filepath.Join(dir, "x") || e.Off != 8 || e.Len != 5 || !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("found %#v", err)
	}
	if err := o.Close(); err != nil {
		t.Fatal(err)
	}
	if err := o.ReadAt(t.Context(), make([]byte, 5), 0); !errors.Is(err, fs.ErrClosed) || strings.Count(err.Error(), dir) != 1 {
		t.Errorf("after close: expected fs.ErrClosed and the path once, found %v", err)
	}
	_, err = New(dir).Open(t.Context(), "missing")
	if !errors.Is(err, fs.ErrNotExist) || strings.Count(err.Error(), "missing") != 1 {
		t.Errorf("expected fs.ErrNotExist and the path once, found %v", err)
	}
}

func TestOpenRefusesAFolder(t *testing.T) {
	dir := t.TempDir()
	st, name, err := Open(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := st.Open(t.Context(), name); err == nil || !strings.Contains(err.Error(), "directory") {
		t.Errorf("found %v", err)
	}
}
