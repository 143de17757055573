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

	"github.com/holdall/holdall/internal/sysfile"
	"github.com/holdall/holdall/store"
)

// List yields the regular files, and symlinks that lead to one, whose names
// begin with prefix. It enters folders but not symlinks to folders, which may
// form rings. A folder that cannot be read is yielded as an error; the rest
// goes on. It holds one folder of each level in memory.
func (s *Store) List(ctx context.Context, prefix string) iter.Seq2[store.Info, error] {
	return func(yield func(store.Info, error) bool) {
		i := strings.LastIndexByte(prefix, '/') + 1
		dir := s.dir
		if i > 0 {
			var err error
			if dir, err = s.path(prefix[:i]); err != nil {
				return // no name can begin like that
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

// folder lists what lies in dir, whose name (with a slash) is parent, as far as
// it begins with prefix. It reports whether to go on.
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
			continue // gone since, a dangling symlink, or no object
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

// entriesOf returns what in dir begins with prefix and may be or hold an
// object, in the order of the names that it stands for.
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
		return found, nil // a prefix that nothing begins with is no error
	}
	return found, err
}

// byName puts folders where the names below them belong: "a.b" comes before
// "a/x", so "a" is compared as if its slash were there.
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
