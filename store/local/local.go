// Package local is the store of local files, which plain paths and file:// addresses refer to.
// Programs that open archives by address only need to import store/all. Use [New] for the store
// of a given folder.
//
// A file or folder is written under a temporary name beside its target, .NAME.holdall-….tmp, and
// renamed when it is committed. Its writer keeps it locked. If a writer is killed, the next
// writer of the same name removes its temporary file. While a file is changed in place, there is
// a lock file .NAME.holdall-lock beside it. Neither is listed.
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

	"github.com/holdall/holdall/internal/base/sysfile"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storekit"
)

// recheckEvery is how long an open object assumes that its file has not changed. An fstat costs
// about as much as a small read from the page cache; twenty per second cost nothing.
const recheckEvery = 50 * time.Millisecond

// A Store is the files below a folder. Names are relative to the folder, with slashes. They may
// contain "..", because they come from addresses that users type, but cannot be absolute.
type Store struct {
	// NoSync makes Commit return without waiting for the disk. For other programs, objects still
	// appear completely or not at all. After a power failure, a committed object may be missing,
	// empty or incomplete.
	NoSync bool

	dir          string
	can          store.Abilities
	recheck      time.Duration
	beforeRename func()                                // where tests stop a writer
	lock         func(*os.File) (held bool, err error) // lets tests act between the steps of a lock
}

// New returns the store of the files below dir; "" means the working directory.
func New(dir string) *Store {
	if dir == "" {
		dir = "."
	}
	s := &Store{dir: dir, recheck: recheckEvery, lock: sysfile.TryLock}
	s.can = store.Abilities{Near: true, Address: s.Address, List: s.List, OpenGrowing: s.OpenGrowing, Locked: s.Locked, Create: s.CreateAs, Folder: s.Folder, Remove: s.Remove, RemoveAs: s.RemoveAs, Amend: s.Amend, Owns: s.Owns, Adopt: s.Adopt}
	return s
}

// Can returns all abilities of local files.
func (s *Store) Can() store.Abilities { return s.can }

// Remove deletes a file. If name is a symbolic link, the link is deleted and not its target.
func (s *Store) Remove(ctx context.Context, name string) error {
	p, err := s.path(name)
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return failed("remove", name, err)
	}
	// os.Remove would also remove an empty folder.
	fi, err := os.Lstat(p)
	if err == nil && fi.IsDir() {
		err = syscall.EISDIR
	}
	if err == nil {
		err = os.Remove(p)
	}
	return failed("remove", p, missing(err))
}

// RemoveAs deletes a file if it is still the version of info.
func (s *Store) RemoveAs(ctx context.Context, info store.Info) error {
	now, err := storekit.Briefly(s, info.Name).Info(ctx)
	if err == nil {
		err = storekit.Unchanged(info, now)
	}
	if err == nil {
		err = s.Remove(ctx, info.Name)
	}
	return err
}

// Adopt returns an object for an open local file, so that a writer of this package can copy it
// without reading it. Closing the object closes f.
func (s *Store) Adopt(f *os.File) (store.Object, error) {
	o, err := s.adopt(f, f.Name())
	if err != nil {
		return nil, failed("open", f.Name(), err)
	}
	return o, nil
}

// Owns reports whether the local file at path is the named object, a temporary file of it, or its
// lock file. It is used to avoid packing an archive into itself.
func (s *Store) Owns(path, object string) bool {
	p, err := s.path(object)
	if err != nil {
		return false
	}
	for dir := path; strings.Contains(dir, tempMark); {
		if dir = filepath.Dir(dir); isTemp(filepath.Base(dir)) {
			path = dir // the contents of a temporary folder belong to it
		}
	}
	base := filepath.Base(path)
	if isTemp(base) || isLock(base) {
		// These are beside the target of a symbolic link.
		if p, err = follow(p); err != nil {
			return false
		}
	}
	name := filepath.Base(p)
	aside := isTemp(base) && strings.HasPrefix(base, tempStem(name)) || isLock(base) && base == lockName(name)
	if !aside && base != name {
		return false // decided without a system call
	}
	a, err := os.Stat(filepath.Dir(path))
	if err != nil {
		return false
	}
	b, err := os.Stat(filepath.Dir(p))
	return err == nil && os.SameFile(a, b)
}

// path returns the path of the named object. It does not clean the path, because "link/../x" is
// not "x".
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

// failed wraps err as that of a request without a range; nil stays nil.
func failed(op, path string, err error) error { return failedAt(op, path, -1, 0, err) }

// failedAt wraps err as that of a request for a range; nil stays nil.
func failedAt(op, path string, off, n int64, err error) error {
	if err == nil {
		return nil
	}
	return &store.Error{Op: op, Name: path, Off: off, Len: n, Err: cause(err)}
}

// cause strips the operation and path that package os adds to an error, because store.Error has
// both.
func cause(err error) error {
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		return e.Err
	}
	if e, ok := errors.AsType[*os.LinkError](err); ok {
		return e.Err
	}
	return err
}

// missing replaces the error for "x/y" where x is a file by fs.ErrNotExist, because names in a
// store are flat.
func missing(err error) error {
	if errors.Is(err, syscall.ENOTDIR) {
		return fmt.Errorf("%w: a file is in the place of its folder", fs.ErrNotExist)
	}
	return err
}

// onWindows is true on Windows, where an open file can be neither renamed nor removed, and a folder
// cannot be synced.
const onWindows = runtime.GOOS == "windows"
