// Package local keeps objects in files: it is the store behind plain paths and
// file:// addresses.
//
// Programs that open archives by address need only import package store/all;
// this one is for those who want to name the folder themselves. It writes
// through a temporary file, or folder, beside the target, named .NAME.holdall-….tmp, which
// its writer holds locked: what a killed writer leaves behind is cleared away
// by the next one that writes the same name. While a file is changed in place,
// .NAME.holdall-lock lies beside it. Neither is listed.
package local

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/holdall/holdall/internal/sysfile"
	"github.com/holdall/holdall/store"
)

// recheckEvery is how long an open object may go on believing that its file is
// unchanged. An fstat costs about as much as a small read that hits the page
// cache; twenty a second cost nothing.
const recheckEvery = 50 * time.Millisecond

// A Store is the files below a folder. Names are slash-separated and relative
// to it; they may climb out by "..", since they come from the address a user
// typed, but cannot be absolute.
type Store struct {
	// NoSync makes Commit return without waiting for the disk. Objects still
	// appear whole or not at all to every program that looks, but after a
	// power failure a committed one may be missing, empty or torn.
	NoSync bool

	dir          string
	can          store.Abilities
	recheck      time.Duration
	beforeRename func()                                // a place for tests to die at
	lock         func(*os.File) (held bool, err error) // for tests of what others do meanwhile
}

// New returns the store of the files below dir; "" is the working directory.
func New(dir string) *Store {
	if dir == "" {
		dir = "."
	}
	s := &Store{dir: dir, recheck: recheckEvery, lock: sysfile.TryLock}
	s.can = store.Abilities{Near: true, Address: s.Address, List: s.List, OpenGrowing: s.OpenGrowing, Locked: s.Locked, Create: s.CreateAs, Folder: s.Folder, Remove: s.Remove, RemoveAs: s.RemoveAs, Amend: s.Amend, Owns: s.Owns, Adopt: s.Adopt}
	return s
}

// Can returns all that files can do.
func (s *Store) Can() store.Abilities { return s.can }

// Remove deletes a file. A symlink goes itself, not what it leads to.
func (s *Store) Remove(ctx context.Context, name string) error {
	p, err := s.path(name)
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return failed("remove", name, err)
	}
	// os.Remove would take an empty folder too.
	fi, err := os.Lstat(p)
	if err == nil && fi.IsDir() {
		err = syscall.EISDIR
	}
	if err == nil {
		err = os.Remove(p)
	}
	return failed("remove", p, missing(err))
}

// RemoveAs deletes a file that is the version that info tells of.
func (s *Store) RemoveAs(ctx context.Context, info store.Info) error {
	now, err := store.Briefly(s, info.Name).Info(ctx)
	if err == nil {
		err = store.Unchanged(info, now)
	}
	if err == nil {
		err = s.Remove(ctx, info.Name)
	}
	return err
}

// Adopt makes an object of an open file of this machine, so that a writer of
// this package can copy it without reading it. Closing the object closes f.
func (s *Store) Adopt(f *os.File) (store.Object, error) {
	o, err := s.adopt(f, f.Name())
	if err != nil {
		return nil, failed("open", f.Name(), err)
	}
	return o, nil
}

// Owns reports whether the file at path, of this machine, is the object of that
// name, a temporary of it or its lock. Whoever packs a folder that the archive is
// written into asks, lest it pack itself.
func (s *Store) Owns(path, object string) bool {
	p, err := s.path(object)
	if err != nil {
		return false
	}
	for strings.Contains(filepath.Dir(path), tempMark) && !isTemp(filepath.Base(path)) {
		path = filepath.Dir(path) // what lies in a temporary folder is its own
	}
	base := filepath.Base(path)
	if isTemp(base) || isLock(base) {
		// These lie beside what a symlink leads to.
		if p, err = follow(p); err != nil {
			return false
		}
	}
	name := filepath.Base(p)
	aside := isTemp(base) && strings.HasPrefix(base, tempStem(name)) || base == lockName(name)
	if !aside && base != name {
		return false // told apart without asking the file system
	}
	a, err := os.Stat(filepath.Dir(path))
	if err != nil {
		return false
	}
	b, err := os.Stat(filepath.Dir(p))
	return err == nil && os.SameFile(a, b)
}

// path returns where the named object lies. It does not clean what it joins:
// "link/../x" is not "x".
func (s *Store) path(name string) (string, error) {
	switch local := filepath.FromSlash(name); {
	case name == "":
		return "", errors.New("empty name")
	case strings.IndexByte(name, 0) >= 0:
		return "", errors.New("name holds a NUL byte")
	case os.IsPathSeparator(local[0]) || filepath.VolumeName(local) != "":
		return "", errors.New("absolute name in a store of relative names")
	default:
		return join(s.dir, local), nil
	}
}

func join(dir, name string) string {
	switch {
	case dir == ".":
		return name
	case os.IsPathSeparator(dir[len(dir)-1]):
		return dir + name
	default:
		return dir + string(filepath.Separator) + name
	}
}

// failed makes err that of a request which has no range; nil if it is.
func failed(op, path string, err error) error { return failedAt(op, path, -1, 0, err) }

// failedAt makes err that of a request for a range; nil if it is.
func failedAt(op, path string, off, n int64, err error) error {
	if err == nil {
		return nil
	}
	return &store.Error{Op: op, Name: path, Off: off, Len: n, Err: cause(err)}
}

// cause strips the operation and path that package os puts around an error:
// store.Error says both.
func cause(err error) error {
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		return e.Err
	}
	if e, ok := errors.AsType[*os.LinkError](err); ok {
		return e.Err
	}
	return err
}

// missing makes "x/y" not there where x is a file, for names in a store are flat.
func missing(err error) error {
	if errors.Is(err, syscall.ENOTDIR) {
		return fmt.Errorf("%w: a file is in the place of its folder", fs.ErrNotExist)
	}
	return err
}

// onWindows is where an open file can be neither renamed nor removed, and a
// folder cannot be synced.
const onWindows = runtime.GOOS == "windows"
