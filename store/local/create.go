package local

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/holdall/holdall/store"
)

const maxLinks = 40 // the limit of Linux

// CreateAs begins a new file. It creates missing folders in name, but the store's own folder must
// exist. If name is a symbolic link, its target is replaced and the link is kept. Pipes,
// terminals and devices, such as /dev/stdout, are written directly. Nothing is kept for
// Wishes.Resume: an unfinished file is removed with its writer.
func (s *Store) CreateAs(ctx context.Context, name string, wish store.Wishes) (store.Writer, error) {
	p, err := s.path(name)
	if err == nil {
		err = ctx.Err()
	}
	if err == nil && wish.Once {
		// A dangling symbolic link exists too.
		if _, lerr := os.Lstat(p); lerr == nil {
			err = fs.ErrExist
		}
	}
	if err != nil {
		return nil, failed("create", name, err)
	}
	if f := standard(p); f != nil {
		return &stream{f: f, name: name, path: p, shared: true}, nil
	}
	w := &writer{store: s, name: name, target: p, once: wish.Once}
	w.can = store.WriterAbilities{WriteRange: w.WriteRange, Rewind: w.Rewind, Patch: w.Patch, PatchLimit: math.MaxInt64, Finish: w.Finish}
	old, err := os.Stat(p)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, failed("create", p, err)
	case old.IsDir():
		return nil, failed("create", p, syscall.EISDIR)
	case !old.Mode().IsRegular():
		f, err := openSpecial(ctx, p, old.Mode())
		if err != nil {
			return nil, failed("create", p, err)
		}
		return &stream{f: f, name: name, path: p, sync: old.Mode().Type() == fs.ModeDevice && !s.NoSync}, nil
	default:
		mode := old.Mode().Perm()
		w.keepMode = &mode
	}
	if w.target, err = follow(p); err == nil {
		err = w.begin(w.target == p)
	}
	if err != nil {
		return nil, failed("create", p, err)
	}
	return w, nil
}

// follow returns the path that p refers to after following symbolic links.
func follow(p string) (string, error) {
	for range maxLinks {
		fi, err := os.Lstat(p)
		if errors.Is(err, fs.ErrNotExist) || err == nil && fi.Mode()&fs.ModeSymlink == 0 {
			return p, nil
		}
		if err != nil {
			return "", err
		}
		to, err := os.Readlink(p)
		if err != nil {
			return "", err
		}
		if filepath.IsAbs(to) {
			p = to
		} else {
			dir, _ := filepath.Split(p)
			p = dir + to
		}
	}
	return "", fmt.Errorf("a chain of more than %d symlinks", maxLinks)
}

// begin opens the temporary file. If makeFolders is set, it creates missing folders.
func (w *writer) begin(makeFolders bool) error {
	dir, name := filepath.Split(w.target)
	if name == "" || name == "." || name == ".." {
		return errors.New("is not a file name")
	}
	if dir == "" {
		dir = "."
	}
	w.dir = dir
	removeStale(dir, name)
	// Until the end, the file must be writable for us, and must not be readable for anyone who
	// could not read the old file.
	perm := fs.FileMode(0o666)
	if w.keepMode != nil {
		perm = *w.keepMode | 0o600
	}
	f, err := createTemp(dir, name, perm, os.OpenFile)
	for try := 0; makeFolders && errors.Is(err, fs.ErrNotExist) && try < 3; try++ {
		// Try several times, because a writer that aborts may remove the folder again.
		if err = w.makeFolders(); err == nil {
			f, err = createTemp(dir, name, perm, os.OpenFile)
		}
	}
	if err != nil {
		w.removeFolders()
		return err
	}
	w.f = f
	return nil
}

// makeFolders creates the folders in the object's name, and remembers which of them are new.
func (w *writer) makeFolders() error {
	for i := 0; ; {
		n := strings.IndexByte(w.name[i:], '/')
		if n < 0 {
			return nil
		}
		i += n + 1
		p, err := w.store.path(w.name[:i-1])
		if err != nil {
			return err
		}
		switch err := os.Mkdir(p, 0o777); {
		case err == nil:
			w.made = append(w.made, p)
		case !errors.Is(err, fs.ErrExist):
			return err
		}
	}
}

// removeFolders removes the folders that makeFolders created, unless others use them.
func (w *writer) removeFolders() {
	for i := len(w.made) - 1; i >= 0; i-- {
		os.Remove(w.made[i])
	}
	w.made = nil
}
