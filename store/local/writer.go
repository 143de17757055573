package local

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/holdall/holdall/internal/base/sysfile"
	"github.com/holdall/holdall/store"
)

const (
	// bufferLen is the size of the buffer. Without it, packing small files would take a system
	// call for each of them.
	bufferLen = 64 << 10

	// writebackLen is the number of written bytes after which the system is asked to start
	// writing them, so that the final fsync takes less time.
	writebackLen = 8 << 20
)

// writer writes a temporary file, which Commit renames to its target.
type writer struct {
	store    *Store
	name     string
	target   string // after following symbolic links
	dir      string // the folder of target
	keepMode *fs.FileMode
	once     bool     // existing files must not be replaced
	made     []string // folders created for it

	f      *os.File
	buf    []byte // bytes that follow size bytes in the file
	size   int64  // bytes in the file
	begun  int64  // bytes that the system was asked to write
	err    error  // of a failed write; only Rewind clears it
	torn   error  // of a failed patch; nothing clears it
	closed bool
	ended  bool // nothing more may be written
	can    store.WriterAbilities
}

func (w *writer) Can() store.WriterAbilities { return w.can }

func (w *writer) Write(p []byte) (int, error) {
	if err := w.usable(); err != nil {
		return 0, w.fail("write", int64(len(p)), err)
	}
	if len(w.buf)+len(p) <= bufferLen {
		if w.buf == nil {
			w.buf = make([]byte, 0, bufferLen)
		}
		w.buf = append(w.buf, p...)
		return len(p), nil
	}
	if err := w.flush(); err != nil {
		return 0, err
	}
	if len(p) < bufferLen {
		w.buf = append(w.buf, p...)
		return len(p), nil
	}
	return w.put(p)
}

func (w *writer) flush() error {
	if len(w.buf) == 0 {
		return nil
	}
	_, err := w.put(w.buf)
	w.buf = w.buf[:0]
	return err
}

// put writes p to the file.
func (w *writer) put(p []byte) (int, error) {
	n, err := w.f.WriteAt(p, w.size)
	if err != nil {
		err = w.fail("write", int64(len(p)), err)
		w.err = err
	}
	w.advance(int64(n))
	return n, err
}

func (w *writer) advance(n int64) {
	w.size += n
	if w.size-w.begun >= writebackLen && !w.store.NoSync {
		beginWriteback(w.f, w.begun, w.size-w.begun)
		w.begun = w.size
	}
}

// Rewind discards what was written after the first to bytes.
func (w *writer) Rewind(to int64) error {
	end := w.size + int64(len(w.buf))
	err := error(nil)
	switch {
	case w.closed || w.ended:
		err = fs.ErrClosed
	case w.torn != nil:
		err = w.torn
	case to < 0 || to > end:
		err = fmt.Errorf("to byte %d of %d", to, end)
	case to >= w.size:
		w.buf = w.buf[:to-w.size]
	default:
		err = w.f.Truncate(to)
	}
	if err != nil {
		return failed("rewind", w.target, err)
	}
	if to < w.size {
		w.size, w.begun, w.buf = to, min(w.begun, to), w.buf[:0]
	}
	w.err = nil
	return nil
}

// Patch replaces bytes that were written.
func (w *writer) Patch(ctx context.Context, p []byte, off int64) error {
	err := w.usable()
	if err == nil {
		err = ctx.Err()
	}
	if end := w.size + int64(len(w.buf)); err == nil && (off < 0 || int64(len(p)) > end-off) {
		err = fmt.Errorf("bytes %d+%d of %d written", off, len(p), end)
	}
	if err == nil {
		err = w.patch(p, off)
	}
	return failedAt("patch", w.target, off, int64(len(p)), err)
}

// patch replaces bytes in the file, and those in the buffer after them.
func (w *writer) patch(p []byte, off int64) error {
	if n := w.size - off; n > 0 {
		n = min(n, int64(len(p)))
		if _, err := w.f.WriteAt(p[:n], off); err != nil {
			w.torn = err
			return err
		}
		p, off = p[n:], off+n
	}
	if len(p) > 0 {
		copy(w.buf[off-w.size:], p)
	}
	return nil
}

// Finish completes the file. Its modification time does not change afterwards.
func (w *writer) Finish(ctx context.Context) (store.Info, error) {
	err := w.usable()
	if err == nil {
		err = ctx.Err()
	}
	if err == nil {
		err = w.settle()
	}
	var fi fs.FileInfo
	if err == nil {
		fi, err = w.f.Stat()
		err = cause(err)
	}
	if err != nil {
		return store.Info{}, failed("finish", w.target, err)
	}
	w.ended = true
	return store.Info{Name: w.name, Size: fi.Size(), ModTime: fi.ModTime()}, nil
}

// Commit makes the file appear under its name. If it fails, it leaves nothing behind, with one
// exception: if the folder could not be synced, the file has already appeared.
func (w *writer) Commit(ctx context.Context) (store.Info, error) {
	err := w.sound()
	if err == nil {
		err = ctx.Err()
	}
	if err == nil && !w.ended {
		err = w.settle()
	}
	if err != nil {
		return store.Info{}, w.failCommit(errors.Join(err, w.Abort()))
	}
	if w.store.beforeRename != nil {
		w.store.beforeRename()
	}
	if onWindows {
		w.f.Close()
	}
	if err := w.appear(); err != nil {
		return store.Info{}, w.failCommit(errors.Join(cause(err), w.Abort()))
	}
	// From here on the temporary file is the target, so Abort must not remove it.
	w.closed = true
	fi, err := os.Lstat(w.target) // renaming changes the change time
	if !onWindows {
		err = errors.Join(err, w.f.Close()) // closing releases the lock, so it must follow the rename
	}
	if err == nil && !w.store.NoSync {
		err = w.syncFolders()
	}
	if err != nil {
		return store.Info{}, w.failCommit(err)
	}
	return infoOf(w.name, fi), nil
}

// appear gives the temporary file its target's name. If nothing may be replaced, it uses a link,
// which fails if the name exists.
func (w *writer) appear() error {
	if !w.once {
		return os.Rename(w.f.Name(), w.target)
	}
	if err := os.Link(w.f.Name(), w.target); err != nil {
		return err
	}
	// The object exists now. If the temporary name cannot be removed, the next writer of the name
	// removes it.
	_ = os.Remove(w.f.Name())
	return nil
}

// settle sets the file's mode and writes its bytes to disk.
func (w *writer) settle() error {
	if err := w.flush(); err != nil {
		return err
	}
	if w.keepMode != nil {
		if err := w.f.Chmod(*w.keepMode); err != nil {
			return cause(err)
		}
	}
	if w.store.NoSync {
		return nil
	}
	return cause(w.f.Sync())
}

// syncFolders makes the new name durable, and the names of new folders.
func (w *writer) syncFolders() error {
	if err := sysfile.SyncFolder(w.dir); err != nil {
		return err
	}
	for _, made := range w.made {
		dir, _ := filepath.Split(made)
		if err := sysfile.SyncFolder(dir); err != nil {
			return err
		}
	}
	return nil
}

// Abort removes the temporary file, and the folders that were created for it.
func (w *writer) Abort() error {
	if w.closed {
		return nil
	}
	w.closed = true
	if onWindows {
		w.f.Close()
	}
	err := os.Remove(w.f.Name())
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	if !onWindows {
		err = errors.Join(err, w.f.Close())
	}
	w.removeFolders()
	return failed("abort", w.target, err)
}

func (w *writer) usable() error {
	if w.ended {
		return fs.ErrClosed
	}
	return w.sound()
}

func (w *writer) sound() error {
	switch {
	case w.closed:
		return fs.ErrClosed
	case w.torn != nil:
		return w.torn
	}
	return w.err
}

// fail wraps the error of a write with its offset.
func (w *writer) fail(op string, n int64, err error) error {
	if e, ok := errors.AsType[*store.Error](err); ok {
		return e // the first error
	}
	return failedAt(op, w.target, w.size+int64(len(w.buf)), n, err)
}

func (w *writer) failCommit(err error) error {
	if e, ok := errors.AsType[*store.Error](err); ok && e.Op == "write" {
		return e
	}
	return failed("commit", w.target, err)
}
