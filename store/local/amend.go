package local

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/holdall/holdall/store"
)

// lockEnd ends the name of the file that says who is changing another one:
// .NAME.holdall-lock. It is locked itself, by its holder and as long as that
// lives, so one that a killed process has left locks nothing.
const lockEnd = ".holdall-lock"

// amendment is a file being changed in place.
type amendment struct {
	store  *Store
	f      *os.File
	path   string
	size   int64
	lock   *os.File // the lock file; nil if f itself is locked
	closed bool
}

var _ store.Amender = (*Store)(nil)

// Amend opens a regular file for changes. What a symlink leads to is what is
// changed, and locked. Whoever has the file open for reading is told of a change
// as far as its size or time tell: see Open.
func (s *Store) Amend(ctx context.Context, name string) (store.Amendment, error) {
	p, err := s.path(name)
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return nil, failed("amend", name, err)
	}
	target, err := follow(p)
	if err != nil {
		return nil, failed("amend", p, err)
	}
	fi, err := os.Stat(target)
	if err == nil {
		err = refusal(fi.Mode())
	}
	if err != nil {
		return nil, failed("amend", p, missing(err))
	}
	f, err := os.OpenFile(target, os.O_RDWR|dontWait, 0)
	if err != nil {
		return nil, failed("amend", p, err)
	}
	a := &amendment{store: s, f: f, path: target}
	if err = a.take(); err == nil {
		// Only now: who held the lock before may have changed it.
		if fi, err = f.Stat(); err == nil {
			err = refusal(fi.Mode())
		}
	}
	if err != nil {
		a.Close()
		if _, ok := errors.AsType[*store.LockedError](err); ok {
			return nil, err
		}
		return nil, failed("amend", p, err)
	}
	a.size = fi.Size()
	return a, nil
}

// take gets the lock.
func (a *amendment) take() error {
	dir, name := filepath.Split(a.path)
	// Two who change one file under two names of it must meet: in the folder
	// of the file, symlinks resolved. Hard links remain; those meet at the
	// file's own lock.
	if held, err := lock(a.f); err == nil && !held {
		return a.locked(dir + lockName(name))
	}
	p := dir + lockName(name)
	for {
		f, err := os.OpenFile(p, os.O_RDWR|os.O_CREATE, 0o666)
		if err != nil {
			return nil // the file's own lock must do
		}
		held, err := lock(f)
		switch {
		case err != nil: // no locks on this system, or file system: the name is all there is
			f.Close()
			return nil
		case !held:
			f.Close()
			return a.locked(p)
		case !sameFile(f, p): // somebody has just ended, and took it away
			f.Close()
			continue
		}
		a.lock = f
		_ = f.Truncate(0)
		_, _ = fmt.Fprintf(f, "%s\n%s\n", holder(), time.Now().UTC().Format(time.RFC3339))
		return nil
	}
}

// locked says who has the lock, as the lock file tells.
func (a *amendment) locked(p string) error {
	e := &store.LockedError{Name: a.path}
	f, err := os.Open(p)
	if err != nil {
		return e
	}
	defer f.Close()
	b := make([]byte, 512)
	n, _ := io.ReadFull(f, b)
	who, since, _ := strings.Cut(strings.TrimSpace(string(b[:n])), "\n")
	e.Holder = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return '?'
		}
		return r
	}, who)
	if t, err := time.Parse(time.RFC3339, since); err == nil {
		e.Since = t.Local()
	}
	return e
}

func lockName(name string) string {
	stem := strings.TrimSuffix(tempStem(name), tempMark)
	return stem + lockEnd
}

// isLock reports whether a name is that of a lock file, which is no object.
func isLock(name string) bool { return name[0] == '.' && strings.HasSuffix(name, lockEnd) }

// holder names this process: what it is doing, but not to what.
func holder() string {
	host, err := os.Hostname()
	if err != nil {
		host = "this machine"
	}
	return fmt.Sprintf("process %d on %s (%s)", os.Getpid(), host, filepath.Base(os.Args[0]))
}

func (a *amendment) Size() int64 { return a.size }

func (a *amendment) fail(op string, off, n int64, err error) error {
	if err == nil {
		return nil
	}
	return &store.Error{Op: op, Name: a.path, Off: off, Len: n, Err: cause(err)}
}

// usable says why nothing can be done, nil if it can.
func (a *amendment) usable(ctx context.Context) error {
	if a.closed {
		return fs.ErrClosed
	}
	return ctx.Err()
}

func (a *amendment) ReadAt(ctx context.Context, p []byte, off int64) error {
	err := a.usable(ctx)
	if err == nil && (off < 0 || int64(len(p)) > a.size-off) {
		err = io.ErrUnexpectedEOF
	}
	if err == nil {
		_, err = io.ReadFull(io.NewSectionReader(a.f, off, int64(len(p))), p)
	}
	return a.fail("read", off, int64(len(p)), err)
}

var errHole = errors.New("a write behind the end would leave a hole")

func (a *amendment) WriteAt(ctx context.Context, p []byte, off int64) error {
	err := a.usable(ctx)
	if err == nil && (off < 0 || off > a.size) {
		err = errHole
	}
	if err == nil {
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
		if err = a.f.Truncate(size); err == nil {
			a.size = size
		}
	}
	return a.fail("truncate", size, 0, err)
}

func (a *amendment) Sync(ctx context.Context) error {
	err := a.usable(ctx)
	if err == nil && !a.store.NoSync {
		err = a.f.Sync()
	}
	return a.fail("sync", -1, 0, err)
}

func (a *amendment) Close() error {
	if a.closed {
		return nil
	}
	a.closed = true
	if a.lock != nil {
		// Before it is let go of, so that nobody takes away another's.
		os.Remove(a.lock.Name())
		a.lock.Close()
	}
	return a.fail("close", -1, 0, a.f.Close())
}
