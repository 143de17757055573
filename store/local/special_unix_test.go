//go:build unix

package local

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/holdall/holdall/store/storekit"
)

func fifo(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	if err := syscall.Mkfifo(filepath.Join(dir, "pipe"), 0o666); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestOpenRefusesSpecialFilesWithoutWaiting(t *testing.T) {
	dir := fifo(t)
	l, err := net.Listen("unix", filepath.Join(dir, "socket"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for _, c := range []struct{ dir, name, want string }{
		{dir, "pipe", "named pipe"},
		{dir, "socket", "socket"},
		{"/dev", "null", "device"},
		{"/dev", "zero", "device"},
	} {
		// Were one of these waited for, the test would never end.
		if _, err := New(c.dir).Open(t.Context(), c.name); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: expected an error with %q, found %v", c.name, c.want, err)
		}
	}
}

func TestReadOnlyFileInReadOnlyFolderOpens(t *testing.T) {
	dir := t.TempDir()
	put(t, dir, "sub/x", "bytes")
	if err := os.Chmod(filepath.Join(dir, "sub/x"), 0o444); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Join(dir, "sub"), 0o555); err != nil {
		t.Fatal(err)
	}
	defer os.Chmod(filepath.Join(dir, "sub"), 0o755)
	wantContent(t, New(filepath.Join(dir, "sub")), "x", "bytes")
}

func TestWriterGivesAPipeItsBytesDirectly(t *testing.T) {
	dir := fifo(t)
	got := make(chan string)
	go func() {
		b, err := os.ReadFile(filepath.Join(dir, "pipe"))
		got <- fmt.Sprint(string(b), err)
	}()
	w, err := storekit.Create(t.Context(), New(dir), "pipe")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(w, "through the pipe"); err != nil {
		t.Fatal(err)
	}
	info, err := w.Commit(t.Context())
	if err != nil || info.Size != 16 || info.Name != "pipe" {
		t.Errorf("commit: %+v, %v", info, err)
	}
	if got := <-got; got != "through the pipe<nil>" {
		t.Errorf("found %q", got)
	}
	if _, err := w.Commit(t.Context()); err == nil {
		t.Error("second commit: expected an error")
	}
	if err := w.Abort(); err != nil {
		t.Errorf("abort after commit: %v", err)
	}
	wantFiles(t, dir, "pipe")
}

func TestCreateOfAPipeNobodyReadsEndsWithItsContext(t *testing.T) {
	dir := fifo(t)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() {
		_, err := storekit.Create(ctx, New(dir), "pipe")
		done <- err
	}()
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("found %v", err)
	}
}

func TestWriterToAPipeWhoseReaderLeftFails(t *testing.T) {
	dir := fifo(t)
	go func() {
		if f, err := os.Open(filepath.Join(dir, "pipe")); err == nil {
			f.Close()
		}
	}()
	w, err := storekit.Create(t.Context(), New(dir), "pipe")
	if err != nil {
		t.Fatal(err)
	}
	defer w.Abort()
	for err == nil {
		_, err = w.Write(make([]byte, 4096))
	}
	if !errors.Is(err, syscall.EPIPE) || !strings.Contains(err.Error(), filepath.Join(dir, "pipe")) {
		t.Errorf("found %v", err)
	}
}

func TestDevNullIsWrittenAndStays(t *testing.T) {
	w, err := storekit.Create(t.Context(), New("/dev"), "null")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(make([]byte, 1<<20)); err != nil {
		t.Fatal(err)
	}
	if info, err := w.Commit(t.Context()); err != nil || info.Size != 1<<20 {
		t.Errorf("commit: %+v, %v", info, err)
	}
	if fi, err := os.Stat("/dev/null"); err != nil || fi.Mode()&os.ModeDevice == 0 {
		t.Errorf("/dev/null is now %v, %v", fi.Mode(), err)
	}
}

func TestStandardOutputIsWrittenWhereItStandsAndNotClosed(t *testing.T) {
	dir := t.TempDir()
	f, err := os.Create(filepath.Join(dir, "redirected"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	old := os.Stdout
	os.Stdout = f
	defer func() { os.Stdout = old }()
	if _, err := f.WriteString("before|"); err != nil {
		t.Fatal(err)
	}
	st, name, err := Open(t.Context(), "/dev/stdout")
	if err != nil {
		t.Fatal(err)
	}
	w, err := storekit.Create(t.Context(), st, name)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(w, "archive|"); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString("after"); err != nil {
		t.Fatal(err)
	}
	wantContent(t, New(dir), "redirected", "before|archive|after")
	wantFiles(t, dir, "redirected")
}

// full is a device that takes nothing: a disk without room.
const full = "/dev/full"

func TestWriteErrorsNameTargetAndOffset(t *testing.T) {
	if _, err := os.Stat(full); err != nil {
		t.Skip(err)
	}
	f, err := os.OpenFile(full, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	w := created(t, New(dir), "x")
	defer w.Abort()
	if _, err := w.Write(make([]byte, 1<<20)); err != nil {
		t.Fatal(err)
	}
	disk := w.f
	w.f = f
	for range 2 { // the second time, because the first has left a hole
		_, err = w.Write(make([]byte, 1<<20))
		if !errors.Is(err, syscall.ENOSPC) || !strings.Contains(err.Error(), "write "+filepath.Join(dir, "x")+" 1048576 bytes at 1048576: ") {
			t.Errorf("found %v", err)
		}
	}
	f.Close()
	w.f = disk
	if _, err := w.Commit(t.Context()); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("commit after a failed write: found %v", err)
	}
	wantFiles(t, dir)
}

func TestRewindRepairsAFailedWrite(t *testing.T) {
	if _, err := os.Stat(full); err != nil {
		t.Skip(err)
	}
	f, err := os.OpenFile(full, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	dir := t.TempDir()
	st := New(dir)
	w := created(t, st, "x")
	defer w.Abort()
	if _, err := io.WriteString(w, "whole"); err != nil {
		t.Fatal(err)
	}
	if err := w.flush(); err != nil {
		t.Fatal(err)
	}
	disk := w.f
	w.f = f
	if _, err := w.Write(make([]byte, 1<<20)); !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
	w.f = disk
	if err := w.Rewind(5); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantContent(t, st, "x", "whole")
}
