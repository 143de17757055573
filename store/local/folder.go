package local

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/holdall/holdall/internal/base/sysfile"
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
	f := &folder{w: writer{store: s, name: name, target: p}}
	if err := f.begin(); err != nil {
		f.w.removeFolders()
		return nil, failed("create", p, err)
	}
	temp := name[:len(name)-len(filepath.Base(p))] + filepath.Base(f.w.f.Name())
	create := func(ctx context.Context, object string, wish store.Wishes) (store.Writer, error) {
		rest, below := strings.CutPrefix(object, name+"/")
		if !below {
			return nil, failed("create", object, errors.New("is not in the folder "+name))
		}
		return s.CreateAs(ctx, temp+"/"+rest, wish)
	}
	return &store.Folder{Path: f.w.f.Name(), Create: create, Commit: f.commit, Abort: f.abort}, nil
}

// folder is a folder that is written like the file of a writer.
type folder struct{ w writer }

func (f *folder) begin() error {
	dir, base := filepath.Split(f.w.target)
	if base == "" || base == "." || base == ".." {
		return errors.New("is not a folder name")
	}
	if f.w.dir = dir; dir == "" {
		f.w.dir = "."
	}
	removeStale(f.w.dir, base)
	var err error
	open := func(p string, _ int, _ fs.FileMode) (*os.File, error) {
		if err := os.Mkdir(p, 0o777); err != nil {
			return nil, err
		}
		return os.Open(p)
	}
	if f.w.f, err = createTemp(f.w.dir, base, 0, open); errors.Is(err, fs.ErrNotExist) {
		if err = f.w.makeFolders(); err == nil {
			f.w.f, err = createTemp(f.w.dir, base, 0, open)
		}
	}
	return err
}

func (f *folder) commit(ctx context.Context) error {
	err := ctx.Err()
	if f.w.closed {
		err = fs.ErrClosed
	}
	if err == nil && !f.w.store.NoSync {
		err = sysfile.SyncFolder(f.w.f.Name())
	}
	if err == nil {
		if f.w.store.beforeRename != nil {
			f.w.store.beforeRename()
		}
		err = os.Rename(f.w.f.Name(), f.w.target)
	}
	if err != nil {
		return failed("commit", f.w.target, errors.Join(cause(err), f.abort()))
	}
	f.w.closed = true
	err = f.w.f.Close()
	if err == nil && !f.w.store.NoSync {
		err = f.w.syncFolders()
	}
	return failed("commit", f.w.target, err)
}

func (f *folder) abort() error {
	if f.w.closed {
		return nil
	}
	f.w.closed = true
	err := errors.Join(os.RemoveAll(f.w.f.Name()), f.w.f.Close())
	f.w.removeFolders()
	return failed("abort", f.w.target, err)
}
