package local

import (
	"cmp"
	"context"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"strings"

	"github.com/holdall/holdall/store"
)

// Within returns a read-only store of the files below a root. Unlike a [Store], it opens nothing
// outside the root, whatever names or symbolic links are used.
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
	var o *object
	if err == nil {
		o, err = w.s.open(filepath.FromSlash(name), name, w.root.OpenFile, w.root.Stat)
	}
	if err != nil {
		return nil, failed("open", name, err)
	}
	return o, nil
}

// List is like [Store.List], without anything that leads out of the root.
func (w *within) List(ctx context.Context, prefix string) iter.Seq2[store.Info, error] {
	return func(yield func(store.Info, error) bool) {
		i := strings.LastIndexByte(prefix, '/') + 1
		dir := cmp.Or(strings.TrimSuffix(prefix[:i], "/"), ".")
		if !fs.ValidPath(dir) {
			return // no valid name begins with that
		}
		l := lister{ctx, yield, w.root.OpenFile, w.stat}
		l.folder(filepath.FromSlash(dir), prefix[:i], prefix[i:])
	}
}

// stat returns an error for files that were removed since, and for symbolic links out of the
// root.
func (w *within) stat(name string) (fs.FileInfo, error) {
	fi, err := w.root.Stat(name)
	if err != nil {
		return nil, fs.ErrNotExist
	}
	return fi, nil
}
