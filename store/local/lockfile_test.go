//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package local

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdall/holdall/internal/base/sysfile"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storekit"
)

func amend(t *testing.T, st *Store, name string) *amendment {
	t.Helper()
	a, err := st.Amend(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.Close() })
	return a.(*amendment)
}

// wantLocked checks that an object is locked, and returns the error that describes the holder.
func wantLocked(t *testing.T, st *Store, name string) *store.LockedError {
	t.Helper()
	a, err := st.Amend(t.Context(), name)
	if err == nil {
		a.Close()
		t.Fatalf("%s: is let in, expected it to be locked", name)
	}
	l, ok := errors.AsType[*store.LockedError](err)
	if !ok {
		t.Fatalf("%s: expected a LockedError, found %v", name, err)
	}
	return l
}

func closeAll(t *testing.T, all ...io.Closer) {
	t.Helper()
	for _, c := range all {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestLockFileTellsInOneLineWhoHasItAndIsGoneAfterwards(t *testing.T) {
	dir := t.TempDir()
	put(t, dir, "x", "content")
	st := New(dir)
	before := time.Now().Add(-time.Second)
	a := amend(t, st, "x")
	wantFiles(t, dir, ".x.holdall-lock", "x")
	b, err := os.ReadFile(filepath.Join(dir, ".x.holdall-lock"))
	if err != nil {
		t.Fatal(err)
	}
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	who := fmt.Sprintf("process %d on %s (%s)", os.Getpid(), host, filepath.Base(os.Args[0]))
	if s := string(b); !strings.HasPrefix(s, who+" since ") || strings.Index(s, "\n") != len(s)-1 {
		t.Errorf("expected one line beginning %q, found %q", who, s)
	}
	l := wantLocked(t, st, "x")
	if l.Name != filepath.Join(dir, "x") || l.Holder != who || l.Since.Before(before) || l.Since.After(time.Now()) {
		t.Errorf("found %+v", l)
	}
	if got := listed(t, st, ""); len(got) != 1 {
		t.Errorf("listed: %q", got)
	}
	wantContent(t, st, "x", "content") // reading needs no lock
	closeAll(t, a)
	wantFiles(t, dir, "x")
}

func TestHolderTellsTheVerbOfOurCommandAndNoArgumentsElse(t *testing.T) {
	old := os.Args
	defer func() { os.Args = old }()
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"/usr/bin/holdall", "add", "secret.tar", "token"}, "(holdall add)"},
		{[]string{"holdall"}, "(holdall)"},
		{[]string{"holdall", ""}, "(holdall)"},
		{[]string{"holdall", "--token=secret", "add"}, "(holdall)"},
		{[]string{"holdall", "Secret/1"}, "(holdall)"},
		{[]string{"/opt/other", "secret"}, "(other)"},
	} {
		os.Args = c.args
		if got := holder(); !strings.HasSuffix(got, " "+c.want) || strings.Contains(got, "ecret") {
			t.Errorf("%q: expected %q at the end, found %q", c.args, c.want, got)
		}
	}
}

func TestLeftLockFileIsNoLockAndNeitherIsItsTextBelieved(t *testing.T) {
	for name, text := range map[string]string{
		"of a dead process":         "process 1 on host (holdall add) since 2026-01-02T15:04:05Z\n",
		"that never told who it is": "",
		"half of one":               "process 1 on",
	} {
		dir := t.TempDir()
		put(t, dir, "x", "content")
		put(t, dir, ".x.holdall-lock", text)
		st := New(dir)
		a := amend(t, st, "x")
		if l := wantLocked(t, st, "x"); !strings.Contains(l.Holder, fmt.Sprintf("process %d ", os.Getpid())) {
			t.Errorf("%s: found %v", name, l)
		}
		closeAll(t, a)
		wantFiles(t, dir, "x")
	}
}

// Somebody else may have put anything under the name of the lock file, in a
// folder for everybody to do harm. The file's own lock does without it.
func TestWhatLiesInPlaceOfTheLockFileIsLeftAlone(t *testing.T) {
	for what, make := range map[string]func(p string) error{
		"a file of somebody's":   func(p string) error { return os.WriteFile(p, []byte("notes"), 0o666) },
		"a long file":            func(p string) error { return os.WriteFile(p, bytes.Repeat([]byte("process "), 100), 0o666) },
		"a link to a file":       func(p string) error { return os.Symlink("victim", p) },
		"a link to nothing":      func(p string) error { return os.Symlink("nothing", p) },
		"a link to itself":       func(p string) error { return os.Symlink(filepath.Base(p), p) },
		"a pipe":                 func(p string) error { return unix.Mkfifo(p, 0o666) },
		"a folder":               func(p string) error { return os.Mkdir(p, 0o777) },
		"another name of a file": func(p string) error { return os.Link(filepath.Join(filepath.Dir(p), "victim"), p) },
	} {
		t.Run(what, func(t *testing.T) {
			dir := t.TempDir()
			put(t, dir, "x", "content")
			put(t, dir, "victim", "precious")
			p := filepath.Join(dir, ".x.holdall-lock")
			if err := make(p); err != nil {
				t.Fatal(err)
			}
			before, err := os.Lstat(p)
			if err != nil {
				t.Fatal(err)
			}
			st := New(dir)
			a := amend(t, st, "x")
			if l := wantLocked(t, st, "x"); l.Holder != "" {
				t.Errorf("the holder is told as %q", l.Holder)
			}
			closeAll(t, a)
			closeAll(t, amend(t, st, "x"))
			after, err := os.Lstat(p)
			if err != nil || !os.SameFile(before, after) || before.Size() != after.Size() || before.Mode() != after.Mode() {
				t.Errorf("it was %v, and is %v, %v", before, after, err)
			}
			wantContent(t, st, "victim", "precious")
			if _, err := os.Lstat(filepath.Join(dir, "nothing")); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("what the link leads to: %v", err)
			}
		})
	}
}

func TestTextOfALockFileCannotReachTheTerminal(t *testing.T) {
	dir := t.TempDir()
	put(t, dir, "x", "content")
	st := New(dir)
	amend(t, st, "x")
	for text, want := range map[string]string{
		"process 1 \x1b[2J\u202e\x00\xff since 2026\n": "process 1 ?[2J??\ufffd since 2026",
		"other text": "",
		"process 1 on h since 2026-01-02T15:04:05Z\nmore\n": "process 1 on h",
	} {
		if err := os.WriteFile(filepath.Join(dir, ".x.holdall-lock"), []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
		if l := wantLocked(t, st, "x"); l.Holder != want {
			t.Errorf("expected %q, found %q", want, l.Holder)
		}
	}
}

func TestLockFileThatWasRemovedByHandIsMadeAgainAndNotTakenAway(t *testing.T) {
	dir := t.TempDir()
	put(t, dir, "x", "content")
	st := New(dir)
	a := amend(t, st, "x")
	if err := os.Remove(filepath.Join(dir, ".x.holdall-lock")); err != nil {
		t.Fatal(err)
	}
	wantLocked(t, st, "x") // by the file's own lock
	// A file put in its place by a program that ignores locks can be locked; then there are two
	// lock files of the name, and each holder has its own.
	put(t, dir, "new", "new content")
	if err := os.Rename(filepath.Join(dir, "new"), filepath.Join(dir, "x")); err != nil {
		t.Fatal(err)
	}
	b := amend(t, st, "x")
	closeAll(t, a)
	wantFiles(t, dir, ".x.holdall-lock", "x")
	wantLocked(t, st, "x")
	closeAll(t, b)
	wantFiles(t, dir, "x")
}

func TestLockIsOnWhatSymlinksLeadTo(t *testing.T) {
	dir := t.TempDir()
	put(t, dir, "real/target", "content")
	put(t, dir, "real/other", "content")
	for link, to := range map[string]string{"link": "hop", "hop": "real/target", "folder": "real"} {
		if err := os.Symlink(to, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Link(filepath.Join(dir, "real/target"), filepath.Join(dir, "hard")); err != nil {
		t.Fatal(err)
	}
	st := New(dir)
	for _, first := range []string{"link", "hop", "real/target", "folder/target", "hard"} {
		a := amend(t, st, first)
		for _, second := range []string{"link", "hop", "real/target", "folder/target", "hard"} {
			wantLocked(t, st, second)
		}
		closeAll(t, amend(t, st, "real/other"), a)
	}
	wantFiles(t, dir, "folder", "hard", "hop", "link", "real/")
	wantFiles(t, filepath.Join(dir, "real"), "other", "target")
}

// meanwhile is a lock before which others do something.
func meanwhile(do func(f *os.File)) func(*os.File) (bool, error) {
	return func(f *os.File) (bool, error) {
		do(f)
		return sysfile.TryLock(f)
	}
}

// Where there are no locks, a lock file that is there is one.
func TestWithoutLocksALockFileLocksUntilItIsRemoved(t *testing.T) {
	dir := t.TempDir()
	put(t, dir, "x", "content")
	p := filepath.Join(dir, ".x.holdall-lock")
	st := New(dir)
	st.lock = func(*os.File) (bool, error) { return false, errors.ErrUnsupported }
	a := amend(t, st, "x")
	if l := wantLocked(t, st, "x"); !strings.Contains(l.Holder, fmt.Sprintf("process %d ", os.Getpid())) {
		t.Errorf("found %v", l)
	}
	closeAll(t, a)
	wantFiles(t, dir, "x")
	put(t, dir, ".x.holdall-lock", "process 1 on host since 2026-01-02T15:04:05Z\n")
	wantLocked(t, st, "x")
	if _, err := st.Amend(t.Context(), "x"); err == nil || !strings.HasSuffix(err.Error(), "; if that process has ended, remove "+p) {
		t.Errorf("found %v", err)
	}
	if err := os.Remove(p); err != nil {
		t.Fatal(err)
	}
	closeAll(t, amend(t, st, "x"))
	if err := os.Mkdir(p, 0o777); err != nil {
		t.Fatal(err)
	}
	if _, err := st.Amend(t.Context(), "x"); !errors.Is(err, errors.ErrUnsupported) || !errors.Is(err, unix.EISDIR) {
		t.Errorf("without any lock: found %v", err)
	}
	wantFiles(t, dir, ".x.holdall-lock/", "x")
}

// Who replaces a file while it holds its lock lets the next one change what is
// there then, not what was when that came.
func TestFileReplacedBetweenOpenAndLockIsNotTheOneThatIsChanged(t *testing.T) {
	dir := t.TempDir()
	put(t, dir, "x", "old")
	put(t, dir, "next", "replacement")
	st := New(dir)
	tries := 0
	st.lock = meanwhile(func(f *os.File) {
		if f.Name() != filepath.Join(dir, "x") {
			return
		}
		if tries++; tries == 1 {
			if err := os.Rename(filepath.Join(dir, "next"), filepath.Join(dir, "x")); err != nil {
				t.Error(err)
			}
		}
	})
	a := amend(t, st, "x")
	if tries != 2 || a.Size() != 11 {
		t.Errorf("after %d tries, of %d bytes; expected the replacement of 11 at the second", tries, a.Size())
	}
	if err := a.WriteAt(t.Context(), []byte("R"), 0); err != nil {
		t.Error(err)
	}
	closeAll(t, a)
	wantContent(t, st, "x", "Replacement")
	wantFiles(t, dir, "x")
}

// The classic race: two programs open one lock file, the first ends and removes it, and a third
// makes a new one. The second must not think that it has the lock.
func TestLockOnALockFileThatWasTakenAwayIsNone(t *testing.T) {
	dir := t.TempDir()
	put(t, dir, "x", "content")
	p := filepath.Join(dir, ".x.holdall-lock")
	put(t, dir, ".x.holdall-lock", "process 1 on host since 2026-01-02T15:04:05Z\n")
	st := New(dir)
	var third *os.File
	tries := 0
	st.lock = meanwhile(func(f *os.File) {
		if f.Name() != p {
			return
		}
		if tries++; tries > 1 {
			return
		}
		err := os.Remove(p)
		if err == nil {
			third, err = os.OpenFile(p, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o666)
		}
		if err == nil {
			_, err = sysfile.TryLock(third)
		}
		if err != nil {
			t.Error(err)
		}
	})
	wantLocked(t, st, "x")
	if tries != 2 {
		t.Errorf("expected it to try the new lock file too, found %d tries", tries)
	}
	closeAll(t, third)
	closeAll(t, amend(t, st, "x"))
	wantFiles(t, dir, "x")
}

func TestNameThatIsAlwaysAnotherFileIsGivenUp(t *testing.T) {
	dir := t.TempDir()
	put(t, dir, "x", "content")
	st := New(dir)
	st.lock = meanwhile(func(f *os.File) {
		if f.Name() == filepath.Join(dir, "x") {
			put(t, dir, "next", "content")
			if err := os.Rename(filepath.Join(dir, "next"), filepath.Join(dir, "x")); err != nil {
				t.Error(err)
			}
		}
	})
	if _, err := st.Amend(t.Context(), "x"); !errors.Is(err, errReplaced) {
		t.Errorf("found %v", err)
	}
	wantFiles(t, dir, "x")
}

func TestManyWhoReplaceAFileUnderItsLockLoseNothing(t *testing.T) {
	dir := t.TempDir()
	put(t, dir, "x", "0")
	st := New(dir)
	st.NoSync = true
	var wg sync.WaitGroup
	var mu sync.Mutex
	done := 0
	for range 4 {
		wg.Go(func() {
			for range 50 {
				a, err := st.Amend(t.Context(), "x")
				if err != nil {
					if _, ok := errors.AsType[*store.LockedError](err); !ok {
						t.Errorf("amend: %v", err)
					}
					continue
				}
				p := make([]byte, a.Size())
				if err := a.ReadAt(t.Context(), p, 0); err != nil {
					t.Error(err)
				}
				if err := replace(t.Context(), st, "x", append(p, '+')); err != nil {
					t.Error(err)
				}
				mu.Lock()
				done++
				mu.Unlock()
				if err := a.Close(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	wantContent(t, st, "x", "0"+strings.Repeat("+", done))
	wantFiles(t, dir, "x")
	if done == 0 {
		t.Error("nobody was let in")
	}
}

func replace(ctx context.Context, st *Store, name string, content []byte) error {
	w, err := storekit.Create(ctx, st, name)
	if err != nil {
		return err
	}
	defer w.Abort()
	if _, err := w.Write(content); err != nil {
		return err
	}
	_, err = w.Commit(ctx)
	return err
}

func TestReaderNoticesAWriteInPlaceOfTheSameSize(t *testing.T) {
	dir := t.TempDir()
	put(t, dir, "x", "0123456789")
	past := time.Now().Add(-time.Hour) // a later tick of the clock, however long its ticks are
	if err := os.Chtimes(filepath.Join(dir, "x"), past, past); err != nil {
		t.Fatal(err)
	}
	st := New(dir)
	st.recheck = 0
	o, err := st.Open(t.Context(), "x")
	if err != nil {
		t.Fatal(err)
	}
	defer o.Close()
	was, err := o.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	a := amend(t, st, "x")
	if err := o.ReadAt(t.Context(), make([]byte, 10), 0); err != nil {
		t.Errorf("before the write: %v", err)
	}
	if err := a.WriteAt(t.Context(), []byte("abc"), 3); err != nil {
		t.Fatal(err)
	}
	if err := o.ReadAt(t.Context(), make([]byte, 1), 9); !errors.Is(err, store.ErrChanged) {
		t.Errorf("after the write: expected ErrChanged, found %v", err)
	}
	closeAll(t, a)
	wantContent(t, st, "x", "012abc6789")
	again, err := st.Open(t.Context(), "x")
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	if is, err := again.Info(t.Context()); err != nil || is.Version == was.Version || is.Size != was.Size {
		t.Errorf("before %+v, afterwards %+v, %v", was, is, err)
	}
}

func TestNothingIsWrittenAfterASyncThatFailed(t *testing.T) {
	dir := t.TempDir()
	put(t, dir, "x", "content")
	a := amend(t, New(dir), "x")
	r, w, err := os.Pipe() // which cannot be synced
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	disk := a.f
	a.f = w
	ctx := t.Context()
	first := a.Sync(ctx)
	a.f = disk
	if first == nil {
		t.Fatal("sync of a pipe: expected an error")
	}
	for what, err := range map[string]error{
		"sync": a.Sync(ctx), "write": a.WriteAt(ctx, []byte("x"), 0), "truncate": a.Truncate(ctx, 0),
	} {
		if !errors.Is(err, errors.Unwrap(first)) {
			t.Errorf("%s: expected it to fail as the sync did, %v; found %v", what, first, err)
		}
	}
	closeAll(t, a)
	wantContent(t, New(dir), "x", "content")
}

func TestStoreThatDoesNotSyncDoesNotSyncAmendments(t *testing.T) {
	dir := t.TempDir()
	put(t, dir, "x", "content")
	st := New(dir)
	st.NoSync = true
	a := amend(t, st, "x")
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	disk := a.f
	a.f = w
	if err := a.Sync(t.Context()); err != nil {
		t.Error(err)
	}
	a.f = disk
	closeAll(t, w, a)
}

func TestAmendErrorsNameFileAndPlace(t *testing.T) {
	dir := t.TempDir()
	put(t, dir, "x", "content")
	if err := os.Mkdir(filepath.Join(dir, "folder"), 0o777); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mkfifo(filepath.Join(dir, "pipe"), 0o666); err != nil {
		t.Fatal(err)
	}
	st := New(dir)
	for name, want := range map[string]string{
		"folder": "is a directory", "pipe": "is a named pipe", "x/y": "a file is in the place of its folder",
		"": "empty name", "/x": "absolute name",
	} {
		if _, err := st.Amend(t.Context(), name); err == nil || !strings.Contains(err.Error(), "amend ") || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: expected an error with %q, found %v", name, want, err)
		}
	}
	wantFiles(t, dir, "folder/", "pipe", "x")
	a := amend(t, st, "x")
	p := filepath.Join(dir, "x")
	for want, err := range map[string]error{
		"read " + p + " 3 bytes at 5: unexpected EOF":  a.ReadAt(t.Context(), make([]byte, 3), 5),
		"write " + p + " 2 bytes at 8: a write beyond": a.WriteAt(t.Context(), []byte("ab"), 8),
		"truncate " + p + " 0 bytes at 8: ":            a.Truncate(t.Context(), 8),
	} {
		if err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("expected %q, found %v", want, err)
		}
	}
}

// Whoever packs a folder into an archive in it must not meet what lies beside
// that while it is changed.
func TestOwnsTheLockAndTheTemporaryBesideASymlinksTarget(t *testing.T) {
	dir := t.TempDir()
	put(t, dir, "real/target", "content")
	put(t, dir, "y", "")
	if err := os.Symlink("real/target", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	st := New(dir)
	for _, c := range []struct {
		path, object string
		want         bool
	}{
		{"y", "y", true},
		{".y.holdall-lock", "y", true},
		{".y.holdall-0123456789abcdef.tmp", "y", true},
		{".z.holdall-lock", "y", false},
		{"real/.y.holdall-lock", "y", false},
		{"real/.target.holdall-lock", "link", true},
		{"real/.target.holdall-0123456789abcdef.tmp", "link", true},
		{".link.holdall-lock", "link", false},
	} {
		if got := st.Owns(filepath.Join(dir, c.path), c.object); got != c.want {
			t.Errorf("%s of %s: expected %v, found %v", c.path, c.object, c.want, got)
		}
	}
}

func TestFailedPatchIsNotCommittedNorRewound(t *testing.T) {
	dir := t.TempDir()
	st := New(dir)
	put(t, dir, "x", "old")
	w := created(t, st, "x")
	defer w.Abort()
	if _, err := w.Write(make([]byte, 2*bufferLen)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(w, "in the buffer"); err != nil {
		t.Fatal(err)
	}
	disk := w.f
	f, err := os.Open(filepath.Join(dir, "x")) // which cannot be written
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	w.f = f
	err = w.Patch(t.Context(), []byte("abc"), 2*bufferLen-1)
	w.f = disk
	if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("patch %s 3 bytes at %d: ", filepath.Join(dir, "x"), 2*bufferLen-1)) {
		t.Errorf("found %v", err)
	}
	if err := w.Rewind(0); err == nil {
		t.Error("rewind after half a patch: expected an error")
	}
	if _, err := w.Commit(t.Context()); err == nil {
		t.Error("commit after half a patch: expected an error")
	}
	wantContent(t, st, "x", "old")
	wantFiles(t, dir, "x")
}

func TestPatchWorksAtEveryPlaceInFileAndBuffer(t *testing.T) {
	st := New(t.TempDir())
	st.NoSync = true
	for _, buffered := range []int{0, 1, 1000, bufferLen} {
		const flushed = 2 * bufferLen
		w := created(t, st, "x")
		want := bytes.Repeat([]byte("f"), flushed)
		if _, err := w.Write(want); err != nil {
			t.Fatal(err)
		}
		tail := bytes.Repeat([]byte("b"), buffered)
		if _, err := w.Write(tail); err != nil {
			t.Fatal(err)
		}
		want = append(want, tail...)
		if w.size != flushed || len(w.buf) != buffered {
			t.Fatalf("%d bytes are in the file and %d in the buffer, expected %d and %d", w.size, len(w.buf), flushed, buffered)
		}
		for i, x := range [][2]int{{0, 1}, {flushed - 1, flushed}, {flushed - 5, flushed + 1}, {flushed, flushed + 1}, {flushed - 1, len(want)}, {len(want) - 1, len(want)}, {len(want), len(want)}} {
			if x[1] > len(want) {
				continue
			}
			p := bytes.Repeat([]byte{byte('0' + i)}, x[1]-x[0])
			if err := w.Patch(t.Context(), p, int64(x[0])); err != nil {
				t.Fatal(err)
			}
			copy(want[x[0]:], p)
		}
		if len(w.buf) != buffered {
			t.Errorf("a patch has written the buffer of %d bytes", buffered)
		}
		if _, err := io.WriteString(w, "end"); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
		wantContent(t, st, "x", string(want)+"end")
	}
}

// A writer that replaces a file removes the lock file that a killed program left, and no other.
func TestAStaleLockFileIsRemovedByTheNextWriter(t *testing.T) {
	for what, left := range map[string]string{"": lockBegin + "1 on a machine\n", "empty": "", "a user's": "mine"} {
		dir := t.TempDir()
		st, lock := New(dir), filepath.Join(dir, lockName("x"))
		replace := func() {
			if _, err := storekit.Write(t.Context(), st, "x", func(w store.Writer) error { _, err := w.Write([]byte("new")); return err }); err != nil {
				t.Fatal(err)
			}
		}
		replace()
		a, err := st.Amend(t.Context(), "x")
		if err != nil {
			t.Fatal(err)
		}
		replace()
		if _, err := os.Stat(lock); err != nil {
			t.Errorf("%s: the lock of a running program is gone: %v", what, err)
		}
		a.Close()
		if err := os.WriteFile(lock, []byte(left), 0o666); err != nil {
			t.Fatal(err)
		}
		replace()
		if _, err := os.Stat(lock); (err == nil) != (left == "mine") {
			t.Errorf("%q: %v", left, err)
		}
	}
}
