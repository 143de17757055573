package local

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/holdall/holdall/store"
)

// Folder begins a folder that appears as a whole: it is written beside its name as a locked
// temporary folder, and renamed by Commit. If the name exists, the error wraps
// [errors.ErrUnsupported].
func (s *Store) Folder(ctx context.Context, name string) (*store.Folder, error) {
	name = strings.TrimRight(name, "/")
	p, err := s.path(name)
	if err == nil {
		err = ctx.Err()
	}
	if err == nil {
		if _, lerr := os.Lstat(p); lerr == nil || onWindows { // Windows cannot rename an open folder
			err = errors.ErrUnsupported
		}
	}
	if err != nil {
		return nil, failed("create", name, err)
	}
	f := &folder{writer: writer{store: s, name: name, target: p}}
	if err := f.begin(); err != nil {
		f.removeFolders()
		return nil, failed("create", p, err)
	}
	temp := name[:len(name)-len(filepath.Base(p))] + filepath.Base(f.f.Name())
	create := func(ctx context.Context, object string, wish store.Wishes) (store.Writer, error) {
		rest, below := strings.CutPrefix(object, name+"/")
		if !below {
			return nil, failed("create", object, errors.New("is not in the folder "+name))
		}
		return s.CreateAs(ctx, temp+"/"+rest, wish)
	}
	return &store.Folder{Create: create, Commit: f.commit, Abort: f.abort}, nil
}

// folder is a writer whose file is a folder.
type folder struct{ writer }

func (f *folder) begin() error {
	dir, base := filepath.Split(f.target)
	if base == "" || base == "." || base == ".." {
		return errors.New("is not a folder name")
	}
	if f.dir = dir; dir == "" {
		f.dir = "."
	}
	removeStale(f.dir, base)
	var err error
	open := func(p string, _ int, _ fs.FileMode) (*os.File, error) {
		if err := os.Mkdir(p, 0o777); err != nil {
			return nil, err
		}
		return os.Open(p)
	}
	if f.f, err = createTemp(f.dir, base, 0, open); errors.Is(err, fs.ErrNotExist) {
		if err = f.makeFolders(); err == nil {
			f.f, err = createTemp(f.dir, base, 0, open)
		}
	}
	return err
}

func (f *folder) commit(ctx context.Context) error {
	err := ctx.Err()
	if f.closed {
		err = fs.ErrClosed
	}
	if err == nil && !f.store.NoSync {
		err = syncFolder(f.f.Name())
	}
	if err == nil {
		if f.store.beforeRename != nil {
			f.store.beforeRename()
		}
		err = os.Rename(f.f.Name(), f.target)
	}
	if err != nil {
		return failed("commit", f.target, errors.Join(cause(err), f.abort()))
	}
	f.closed = true
	err = f.f.Close()
	if err == nil && !f.store.NoSync {
		err = f.syncFolders()
	}
	return failed("commit", f.target, err)
}

func (f *folder) abort() error {
	if f.closed {
		return nil
	}
	f.closed = true
	err := errors.Join(os.RemoveAll(f.f.Name()), f.f.Close())
	f.removeFolders()
	return failed("abort", f.target, err)
}
