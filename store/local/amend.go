package local

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"

	"github.com/holdall/holdall/store"
)

// amendment is a file being changed in place.
type amendment struct {
	store  *Store
	f      *os.File
	path   string // behind symlinks
	size   int64
	lock   *os.File // the lock file; nil if f's own lock must do
	err    error    // of a Sync that failed
	closed bool
}

// Amend opens a regular file for changes. What a symlink leads to is what is
// changed, and locked: by a lock that readers and Create do not heed, and that
// ends with its holder, however that ends. Where the system or the file system
// has no locks, a lock file that is there is taken for a lock; what a killed
// process leaves has to be removed by hand.
//
// Who has the file open for reading finds store.ErrChanged once its size or
// modification time has changed, within 50 ms. Not noticed is a write that
// leaves the size alone and falls into the same tick of the file system's clock
// as the last change before Open; and what is read before the next look may be
// new already.
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

// errReplaced means that the file that was locked is not the one that has the
// name now.
var errReplaced = errors.New("is replaced repeatedly")

// maxTries ends what no number of others can bring about, but a file system
// might that gives an open file another identity than its name.
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
	// Only now: who had the lock before may have changed the file, or put
	// another in its place.
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

// fail says what could not be done, and where; nil if err is.
func (a *amendment) fail(op string, off, n int64, err error) error {
	return failedAt(op, a.path, off, n, err)
}

// usable says why nothing can be done, nil if it can.
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
		if err == io.EOF { // somebody who heeds no locks has shortened it
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
		// The system forgets what it could not write, and would report
		// success the next time.
		a.err = err
	}
	return a.fail("sync", -1, 0, err)
}

func (a *amendment) Close() error {
	if a.closed {
		return nil
	}
	a.closed = true
	err := a.f.Close() // and with it its own lock: who is refused yet is told by whom
	a.release()
	return a.fail("close", -1, 0, err)
}
