//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package local

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdall/holdall/store"
)

// The holder of the lock is named; once it is killed, the lock is free.
func TestAmendLockOutlivesNobody(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "x"), []byte("content"), 0o666); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("x", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	if err := os.Link(filepath.Join(dir, "x"), filepath.Join(dir, "hard")); err != nil {
		t.Fatal(err)
	}
	cmd, _ := startWriter(t, dir, "amending")
	st := New(dir)
	for _, name := range []string{"x", "link", "hard"} {
		_, err := st.Amend(t.Context(), name)
		l, ok := errors.AsType[*store.LockedError](err)
		if !ok {
			t.Fatalf("%s: expected it to be locked, found %v", name, err)
		}
		if name == "hard" {
			continue // a different name, which has no lock file
		}
		if want := fmt.Sprintf("process %d on ", cmd.Process.Pid); !strings.Contains(l.Holder, want) || l.Since.IsZero() {
			t.Errorf("%s: %v; expected %q and a time", name, l, want)
		}
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	a, err := st.Amend(t.Context(), "link")
	if err != nil {
		t.Fatalf("after the kill: %v", err)
	}
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	left, err := os.ReadDir(dir)
	if err != nil || len(left) != 3 {
		t.Errorf("%v, %v", left, err)
	}
}

func TestAmendKeepsModeAndLinks(t *testing.T) {
	dir := t.TempDir()
	p := filepath.Join(dir, "x")
	if err := os.WriteFile(p, []byte("content"), 0o640); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("x", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	st := New(dir)
	a, err := st.Amend(t.Context(), "link")
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(a.WriteAt(t.Context(), []byte("C"), 0), a.Sync(t.Context()), a.Close()); err != nil {
		t.Fatal(err)
	}
	fi, err := os.Stat(p)
	b, rerr := os.ReadFile(p)
	if err != nil || rerr != nil || fi.Mode().Perm() != 0o640 || string(b) != "Content" {
		t.Errorf("%v, %v: mode %v, %q", err, rerr, fi.Mode(), b)
	}
	if _, err := st.Amend(t.Context(), "."); err == nil {
		t.Error("a folder is amended")
	}
}

// A folder that cannot be written has no room for a lock file.
func TestAmendLocksWhereOnlyTheFileCanBeWritten(t *testing.T) {
	if os.Getuid() == 0 {
		t.Skip("root can write everywhere")
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "x"), nil, 0o666); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o555); err != nil {
		t.Fatal(err)
	}
	defer os.Chmod(dir, 0o755)
	a, err := New(dir).Amend(t.Context(), "x")
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	if _, err := New(dir).Amend(t.Context(), "x"); err == nil {
		t.Error("two amend one file")
	}
}
