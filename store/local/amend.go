package local

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"

	"github.com/holdall/holdall/store"
)

// amendment is a file that is open for changes in place.
type amendment struct {
	store  *Store
	f      *os.File
	path   string // after following symbolic links
	size   int64
	lock   *os.File // the lock file; nil if there is only the lock of f itself
	err    error    // of a failed Sync
	closed bool
}

// Amend opens a regular file for changes in place and locks it. If the name is a symbolic link,
// its target is changed and locked. Readers and Create ignore the lock. It ends when its holder
// ends, for whatever reason. If the system or the file system has no locks, the existence of a
// lock file is the lock; if a process is killed, its lock file must then be removed by hand.
//
// A program that has the file open for reading gets [store.ErrChanged] within 50 ms of a change
// of its size or modification time. It does not notice a change that keeps the size and happens
// in the same tick of the file system's clock as the last change before Open. What it reads
// before its next check may be new already.
func (s *Store) Amend(ctx context.Context, name string) (store.Amendment, error) {
	p, err := s.path(name)
	if err != nil {
		return nil, failed("amend", name, err)
	}
	err = errReplaced
	for try := 0; try < maxTries && errors.Is(err, errReplaced); try++ {
		if err := ctx.Err(); err != nil {
			return nil, failed("amend", p, err)
		}
		var a *amendment
		if a, err = s.amend(p); err == nil {
			return a, nil
		}
	}
	if _, ok := errors.AsType[*store.LockedError](err); ok {
		return nil, err
	}
	return nil, failed("amend", p, missing(err))
}

// errReplaced means that the locked file is no longer the file of that name.
var errReplaced = errors.New("is replaced repeatedly")

// maxTries ends attempts on file systems that give an open file another identity than its name.
// Other programs alone cannot cause so many attempts.
const maxTries = 100

func (s *Store) amend(p string) (_ *amendment, err error) {
	target, err := follow(p)
	if err != nil {
		return nil, err
	}
	f, err := openRegular(target, os.O_RDWR, os.OpenFile, os.Stat)
	if err != nil {
		return nil, err
	}
	a := &amendment{store: s, f: f, path: target}
	defer func() {
		if err != nil {
			a.Close()
		}
	}()
	if err := a.take(); err != nil {
		return nil, err
	}
	// This must follow the lock, because its previous holder may have changed or replaced the
	// file.
	if !sameFile(f, target) {
		return nil, errReplaced
	}
	fi, err := f.Stat()
	if err == nil {
		err = refusal(fi.Mode())
	}
	if err != nil {
		return nil, err
	}
	a.size = fi.Size()
	return a, nil
}

func (a *amendment) Size() int64 { return a.size }

// fail wraps err with the operation and the range; nil stays nil.
func (a *amendment) fail(op string, off, n int64, err error) error {
	return failedAt(op, a.path, off, n, err)
}

// usable returns why the amendment cannot be used, or nil if it can.
func (a *amendment) usable(ctx context.Context) error {
	switch {
	case a.closed:
		return fs.ErrClosed
	case a.err != nil:
		return a.err
	}
	return ctx.Err()
}

func (a *amendment) ReadAt(ctx context.Context, p []byte, off int64) error {
	if len(p) == 0 {
		return nil
	}
	err := a.usable(ctx)
	switch {
	case err != nil:
	case off < 0:
		err = fs.ErrInvalid
	case int64(len(p)) > a.size-off:
		err = io.ErrUnexpectedEOF
	default:
		_, err = a.f.ReadAt(p, off)
		if err == io.EOF { // a program that ignores locks has shortened it
			err = io.ErrUnexpectedEOF
		}
	}
	return a.fail("read", off, int64(len(p)), err)
}

var errHole = errors.New("a write beyond the end would leave a hole")

func (a *amendment) WriteAt(ctx context.Context, p []byte, off int64) error {
	err := a.usable(ctx)
	switch {
	case err != nil:
	case off < 0:
		err = fs.ErrInvalid
	case off > a.size:
		err = errHole
	default:
		var n int
		n, err = a.f.WriteAt(p, off)
		a.size = max(a.size, off+int64(n))
	}
	return a.fail("write", off, int64(len(p)), err)
}

func (a *amendment) Truncate(ctx context.Context, size int64) error {
	err := a.usable(ctx)
	if err == nil && (size < 0 || size > a.size) {
		err = fs.ErrInvalid
	}
	if err == nil {
		err = a.f.Truncate(size)
	}
	if err == nil {
		a.size = size
	}
	return a.fail("truncate", size, 0, err)
}

func (a *amendment) Sync(ctx context.Context) error {
	err := a.usable(ctx)
	if err == nil && !a.store.NoSync {
		err = a.f.Sync()
		// The system forgets that it could not write, and would report success the next time.
		a.err = err
	}
	return a.fail("sync", -1, 0, err)
}

func (a *amendment) Close() error {
	if a.closed {
		return nil
	}
	a.closed = true
	err := a.f.Close() // this also releases its lock; programs that are refused until then still learn who holds it
	a.release()
	return a.fail("close", -1, 0, err)
}
