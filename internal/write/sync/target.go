package sync

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/base/sysfile"
	"github.com/holdall/holdall/internal/read/content"
	"github.com/holdall/holdall/store"
)

// Suffix is that of the folder in which a copy is made, beside its place and with a dot before its name. It stays
// if a sync ends early, for the next one.
const Suffix = ".holdall-sync"

// Names in that folder.
const (
	newName  = "new" // the copy: a file or a folder
	lockName = "lock"
)

// A target is a copy that is being made.
type target struct {
	out     string
	dir     string
	root    *os.Root
	lock    *os.File
	names   []string // of the objects, in root
	one     *os.File // the only object
	resumes bool     // an earlier sync has begun
	folder  bool
}

// begin begins or continues a copy.
func begin(out, name string, l *content.Layout) (t *target, err error) {
	t = &target{}
	if t.out, err = filepath.EvalSymlinks(out); errors.Is(err, fs.ErrNotExist) {
		t.out, err = filepath.Clean(out), nil
	}
	if err != nil {
		return nil, err
	}
	name = strings.TrimRight(name, "/")
	for _, o := range l.Objects {
		rest, ok := strings.CutPrefix(o, name)
		if t.folder = rest != ""; !ok || t.folder && (rest[0] != '/' || !fs.ValidPath(rest[1:])) {
			return nil, fmt.Errorf("%s: an archive of files beside one another: %w", format.Escape(o), errors.ErrUnsupported)
		}
		t.names = append(t.names, newName+rest)
	}
	if len(t.names) == 0 || !t.folder && len(t.names) > 1 {
		return nil, fmt.Errorf("%s: an archive of %d files: %w", format.Escape(name), len(t.names), errors.ErrUnsupported)
	}
	t.dir = filepath.Join(filepath.Dir(t.out), "."+filepath.Base(t.out)+Suffix)
	if _, err := os.Lstat(t.out); t.folder && err == nil {
		t.tidy()
		return nil, fmt.Errorf("%s exists, and a folder is not replaced: choose another name, and give it as an old one: %w", t.out, fs.ErrExist)
	}
	if err = t.take(); err == nil {
		err = t.size(l)
	}
	if err != nil {
		t.close()
	}
	return t, err
}

// take makes the folder, and locks it.
func (t *target) take() (err error) {
	if err = os.MkdirAll(filepath.Dir(t.dir), 0o777); err != nil {
		return err
	}
	// Nobody else may read what they may not read in the end.
	if err = os.Mkdir(t.dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	if t.root, err = os.OpenRoot(t.dir); err != nil {
		return err
	}
	if all, err := fs.ReadDir(t.root.FS(), "."); err != nil {
		return err
	} else if len(all) > 0 && !slices.ContainsFunc(all, func(d fs.DirEntry) bool { return d.Name() == lockName }) {
		return fmt.Errorf("%s: not a folder of a sync, which would empty it: %w", t.dir, fs.ErrExist)
	}
	if t.lock, err = t.root.OpenFile(lockName, os.O_RDWR|os.O_CREATE|sysfile.DontWait, 0o666); err != nil {
		return err
	}
	if held, err := sysfile.TryLock(t.lock); err == nil && !held {
		return fmt.Errorf("%s: another sync of it is under way", t.out)
	}
	opened, err := t.lock.Stat()
	if err != nil {
		return err
	}
	if named, err := os.Lstat(filepath.Join(t.dir, lockName)); err == nil && os.SameFile(opened, named) {
		return nil
	}
	t.close() // its holder has just ended, and removed it
	return t.take()
}

// size makes the objects as long as they will be, and removes others that an earlier sync has left.
func (t *target) size(l *content.Layout) error {
	if old, err := t.root.Lstat(newName); err == nil && old.IsDir() != t.folder {
		if err := t.root.RemoveAll(newName); err != nil {
			return err
		}
	}
	ours := map[string]bool{}
	for _, name := range t.names {
		ours[name] = true
	}
	if err := fs.WalkDir(t.root.FS(), ".", func(p string, d fs.DirEntry, err error) error {
		t.resumes = t.resumes || ours[p]
		if err == nil && !d.IsDir() && !ours[p] && p != lockName {
			err = t.root.Remove(p)
		}
		return err
	}); err != nil {
		return err
	}
	for i, name := range t.names {
		if err := t.root.MkdirAll(filepath.Dir(name), 0o777); err != nil {
			return err
		}
		f, err := t.root.OpenFile(name, os.O_RDWR|os.O_CREATE|sysfile.DontWait, 0o666)
		if err != nil {
			return err
		}
		if err = f.Truncate(l.Sizes[i]); err == nil && !t.folder {
			t.one = f
			return nil
		}
		if err := errors.Join(err, f.Close()); err != nil {
			return err
		}
	}
	return nil
}

// with calls do with an object.
func (t *target) with(object int, do func(*os.File) error) error {
	if t.one != nil {
		return do(t.one)
	}
	f, err := t.root.OpenFile(t.names[object], os.O_RDWR|sysfile.DontWait, 0)
	if err != nil {
		return err
	}
	return errors.Join(do(f), f.Close())
}

// writeAt does nothing in a dry run.
func (t *target) writeAt(object int, b []byte, off int64) error {
	if t == nil {
		return nil
	}
	return t.with(object, func(f *os.File) error { _, err := f.WriteAt(b, off); return err })
}

// publish makes the copy appear under its name, with the time of what it is a copy of.
func (t *target) publish(ctx context.Context, src *content.Source, l *content.Layout, o Options) error {
	for i, name := range t.names {
		var info store.Info
		if from, err := src.Object(ctx, l.Objects[i]); err == nil {
			if info, err = from.Info(ctx); err != nil {
				return err
			}
		}
		err := t.with(i, func(f *os.File) (err error) {
			if old, none := os.Stat(t.out); none == nil {
				err = f.Chmod(old.Mode().Perm())
			}
			if err == nil && !o.NoSync {
				err = f.Sync()
			}
			return err
		})
		if err == nil && !info.ModTime.IsZero() {
			err = t.root.Chtimes(name, info.ModTime, info.ModTime)
		}
		if err != nil {
			return err
		}
	}
	if err := o.Before(ctx); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if t.one != nil {
		t.one.Close()
	}
	if err := os.Rename(filepath.Join(t.dir, newName), t.out); err != nil {
		return err
	}
	t.remove()
	if o.NoSync {
		return nil
	}
	return sysfile.SyncFolder(filepath.Dir(t.out))
}

// remove removes the folder once the copy has left it. What cannot be removed now is removed by the
// next sync.
func (t *target) remove() {
	_ = t.root.Remove(lockName)
	_ = os.Remove(t.dir)
}

// tidy removes the folder of a sync that was killed after its copy had appeared: it has nothing but a
// lock, which is empty and which nobody holds.
func (t *target) tidy() {
	all, err := os.ReadDir(t.dir)
	if err != nil || len(all) > 1 || len(all) == 1 && all[0].Name() != lockName {
		return
	}
	for _, lock := range all {
		if info, err := lock.Info(); err != nil || !info.Mode().IsRegular() || info.Size() > 0 {
			return
		}
	}
	if t.take() == nil {
		t.remove()
	}
	t.close()
}

func (t *target) close() {
	for _, f := range []*os.File{t.one, t.lock} {
		if f != nil {
			f.Close()
		}
	}
	if t.root != nil {
		t.root.Close()
	}
}
