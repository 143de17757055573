package local

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/holdall/holdall/internal/base/sysfile"
	"github.com/holdall/holdall/store"
)

// stream writes to a pipe, a terminal or a device, which cannot appear as a whole.
type stream struct {
	f      *os.File
	name   string
	path   string
	shared bool // set for standard output and error, which are not closed
	sync   bool
	size   int64
	done   bool
}

// standard returns the open file for a path that refers to the process's standard output or
// error. Opening such a path would start at the beginning of a file that a shell redirected to.
// If the file is regular, committing would replace it.
func standard(p string) *os.File {
	switch filepath.ToSlash(p) {
	case "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1":
		return os.Stdout
	case "/dev/stderr", "/dev/fd/2", "/proc/self/fd/2":
		return os.Stderr
	}
	return nil
}

// openSpecial opens a file that is not regular for writing. It waits for a reader of a pipe until
// ctx ends, which a blocking open could not do.
func openSpecial(ctx context.Context, p string, mode fs.FileMode) (*os.File, error) {
	if mode&fs.ModeNamedPipe == 0 {
		return os.OpenFile(p, os.O_WRONLY, 0)
	}
	for {
		f, err := os.OpenFile(p, os.O_WRONLY|sysfile.DontWait, 0)
		if !errors.Is(err, syscall.ENXIO) {
			return f, err
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func (w *stream) Can() store.WriterAbilities { return store.WriterAbilities{} }

func (w *stream) Write(p []byte) (int, error) {
	n, err := w.f.Write(p)
	off := w.size
	w.size += int64(n)
	return n, failedAt("write", w.path, off, int64(len(p)), err)
}

func (w *stream) Commit(ctx context.Context) (store.Info, error) {
	err := ctx.Err()
	if w.done {
		err = fs.ErrClosed
	}
	if err == nil && w.sync {
		err = w.f.Sync()
	}
	if err == nil {
		err = w.close()
	}
	if err != nil {
		return store.Info{}, failed("commit", w.path, err)
	}
	return store.Info{Name: w.name, Size: w.size}, nil
}

// Abort closes the stream. It cannot undo what was written.
func (w *stream) Abort() error { return failed("abort", w.path, w.close()) }

func (w *stream) close() error {
	if w.done || w.shared {
		w.done = true
		return nil
	}
	w.done = true
	return w.f.Close()
}
