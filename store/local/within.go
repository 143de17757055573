package local

import (
	"context"
	"errors"
	"io/fs"
	"iter"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/holdall/holdall/store"
)

// Within returns the store of the files below a root, to be read. Unlike a Store it
// opens nothing that is not below it, by whatever names or symlinks.
func Within(root *os.Root) store.Store { return &within{root, New("")} }

type within struct {
	root *os.Root
	s    *Store
}

func (w *within) Can() store.Abilities { return store.Abilities{Near: true, List: w.List} }

func (w *within) Open(ctx context.Context, name string) (store.Object, error) {
	_, err := w.s.path(name)
	if err == nil {
		err = ctx.Err()
	}
	p := filepath.FromSlash(name)
	if err == nil {
		// As in Store: look before opening.
		var fi fs.FileInfo
		if fi, err = w.root.Stat(p); err == nil {
			err = refusal(fi.Mode())
		}
	}
	if err != nil {
		return nil, failed("open", name, missing(cause(err)))
	}
	f, err := w.root.OpenFile(p, os.O_RDONLY|dontWait, 0)
	if err != nil {
		return nil, failed("open", name, err)
	}
	o, err := w.s.adopt(f, name)
	if err != nil {
		return nil, errors.Join(failed("open", name, err), f.Close())
	}
	return o, nil
}

// List is as that of a Store, of what does not lead out of the root.
func (w *within) List(ctx context.Context, prefix string) iter.Seq2[store.Info, error] {
	return func(yield func(store.Info, error) bool) {
		i := strings.LastIndexByte(prefix, '/') + 1
		if dir := strings.TrimSuffix(prefix[:i], "/"); dir == "" || fs.ValidPath(dir) {
			w.folder(ctx, dir, prefix[i:], yield)
		}
	}
}

// folder lists what lies in dir as far as it begins with prefix, and reports whether to
// go on.
func (w *within) folder(ctx context.Context, dir, prefix string, yield func(store.Info, error) bool) bool {
	all, err := fs.ReadDir(w.root.FS(), path.Join(".", dir))
	if err != nil && !errors.Is(missing(cause(err)), fs.ErrNotExist) && !yield(store.Info{}, failed("list", dir, err)) {
		return false
	}
	slices.SortFunc(all, byName)
	for _, e := range all {
		if err := ctx.Err(); err != nil {
			yield(store.Info{}, failed("list", dir, err))
			return false
		}
		if !strings.HasPrefix(e.Name(), prefix) || isTemp(e.Name()) || isLock(e.Name()) {
			continue
		}
		name := path.Join(dir, e.Name())
		if e.IsDir() {
			if !w.folder(ctx, name, "", yield) {
				return false
			}
			continue
		}
		fi, err := w.root.Stat(filepath.FromSlash(name))
		if err != nil || !fi.Mode().IsRegular() {
			continue // gone since, a symlink that leads nowhere or out, or no object
		}
		if !yield(infoOf(name, fi), nil) {
			return false
		}
	}
	return true
}
