package local

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"iter"
	"os"
	"slices"
	"strings"

	"github.com/holdall/holdall/internal/base/sysfile"
	"github.com/holdall/holdall/store"
)

// List yields the regular files whose names begin with prefix, and symbolic links to such files.
// It enters folders but not symbolic links to folders, which may form cycles. For a folder that
// cannot be read it yields an error and continues. It holds one folder of each level in memory.
func (s *Store) List(ctx context.Context, prefix string) iter.Seq2[store.Info, error] {
	return func(yield func(store.Info, error) bool) {
		i := strings.LastIndexByte(prefix, '/') + 1
		dir := s.dir
		if i > 0 {
			var err error
			if dir, err = s.path(prefix[:i]); err != nil {
				return // no valid name begins with that
			}
		}
		l := lister{ctx, yield, os.OpenFile, os.Stat}
		l.folder(dir, prefix[:i], prefix[i:])
	}
}

type lister struct {
	ctx   context.Context
	yield func(store.Info, error) bool
	open  func(name string, flag int, perm fs.FileMode) (*os.File, error)
	stat  func(name string) (fs.FileInfo, error)
}

// folder lists the files in dir that begin with prefix. The names begin with parent, which ends
// with a slash. It reports whether to continue.
func (l *lister) folder(dir, parent, prefix string) bool {
	found, err := l.entriesOf(dir, prefix)
	if err != nil && !l.yield(store.Info{}, failed("list", dir, err)) {
		return false
	}
	for _, e := range found {
		if err := l.ctx.Err(); err != nil {
			l.yield(store.Info{}, failed("list", dir, err))
			return false
		}
		name, p := parent+e.Name(), join(dir, e.Name())
		if e.IsDir() {
			if !l.folder(p, name+"/", "") {
				return false
			}
			continue
		}
		fi, err := l.stat(p)
		switch {
		case errors.Is(err, fs.ErrNotExist) || err == nil && !fi.Mode().IsRegular():
			continue // removed since, a dangling link, or not an object
		case err != nil:
			if !l.yield(store.Info{}, failed("list", p, err)) {
				return false
			}
		case !l.yield(infoOf(name, fi), nil):
			return false
		}
	}
	return true
}

// entriesOf returns the entries of dir that begin with prefix and may be or contain an object, in
// the order of object names.
func (l *lister) entriesOf(dir, prefix string) ([]fs.DirEntry, error) {
	d, err := l.open(dir, os.O_RDONLY|sysfile.DontWait, 0)
	if err == nil {
		defer d.Close()
	}
	var found []fs.DirEntry
	for err == nil {
		var some []fs.DirEntry
		some, err = d.ReadDir(1024)
		for _, e := range some {
			kind := e.Type()
			if strings.HasPrefix(e.Name(), prefix) && !isTemp(e.Name()) && !isLock(e.Name()) &&
				(kind.IsRegular() || kind.IsDir() || kind&fs.ModeSymlink != 0) {
				found = append(found, e)
			}
		}
	}
	slices.SortFunc(found, byName)
	if err == io.EOF || errors.Is(missing(err), fs.ErrNotExist) {
		return found, nil // it is not an error that no name has the prefix
	}
	return found, err
}

// byName compares folders with a slash after their names, because "a.b" comes before "a/x".
func byName(a, b fs.DirEntry) int {
	n := min(len(a.Name()), len(b.Name()))
	if c := strings.Compare(a.Name()[:n], b.Name()[:n]); c != 0 {
		return c
	}
	return int(byteAt(a, n)) - int(byteAt(b, n))
}

func byteAt(e fs.DirEntry, i int) byte {
	switch {
	case i < len(e.Name()):
		return e.Name()[i]
	case e.IsDir():
		return '/'
	default:
		return 0
	}
}
