package sync

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/base/sysfile"
	"github.com/holdall/holdall/internal/read/content"
	"github.com/holdall/holdall/internal/read/kept"
)

// Suffix is that of the folder in which a copy is made, beside its place and with a dot before its name. It stays
// if a sync ends early, for the next one.
const Suffix = ".holdall-sync"

// Names in that folder.
const (
	newName   = "new" // the copy: a file or a folder
	indexName = "index"
	lockName  = "lock"
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
		if t.folder = rest != ""; !ok || t.folder && (rest[0] != '/' || !fs.ValidPath(rest[1:])) || t.folder == (o == name) {
			return nil, fmt.Errorf("%s: an archive of files beside one another: %w", format.Escape(o), errors.ErrUnsupported)
		}
		t.names = append(t.names, newName+rest)
	}
	if len(t.names) == 0 || !t.folder && len(t.names) > 1 {
		return nil, fmt.Errorf("%s: an archive of %d files: %w", format.Escape(name), len(t.names), errors.ErrUnsupported)
	}
	t.dir = filepath.Join(filepath.Dir(t.out), "."+filepath.Base(t.out)+Suffix)
	if err := t.take(); err != nil {
		t.close()
		return nil, err
	}
	if _, err := os.Lstat(t.out); t.folder && err == nil {
		t.leave()
		t.close()
		return nil, fmt.Errorf("%s exists, and a folder is not replaced: choose another name, and give it as an old one: %w", t.out, fs.ErrExist)
	}
	if err := t.size(l); err != nil {
		t.close()
		return nil, err
	}
	return t, nil
}

// take makes the folder, and locks it.
func (t *target) take() (err error) {
	for {
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
		} else if _, lerr := t.root.Lstat(lockName); len(all) > 0 && errors.Is(lerr, fs.ErrNotExist) {
			return fmt.Errorf("%s: not a folder of a sync, which would empty it: %w", t.dir, fs.ErrExist)
		}
		if t.lock, err = t.root.OpenFile(lockName, os.O_RDWR|os.O_CREATE|sysfile.DontWait, 0o666); err != nil {
			return err
		}
		held, err := sysfile.TryLock(t.lock)
		if err == nil && !held {
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
	}
}

// size makes the objects as long as they will be, and removes others that an earlier sync has left.
func (t *target) size(l *content.Layout) error {
	if old, err := t.root.Lstat(newName); err == nil && old.IsDir() != t.folder {
		if err := t.root.RemoveAll(newName); err != nil {
			return err
		}
	}
	var left []string
	ours := map[string]bool{lockName: true}
	for _, name := range t.names {
		ours[name] = true
	}
	err := fs.WalkDir(t.root.FS(), ".", func(p string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && !ours[p] {
			left = append(left, p)
		}
		t.resumes = t.resumes || ours[p] && p != lockName
		return err
	})
	for _, p := range left {
		err = errors.Join(err, t.root.Remove(p))
	}
	if err != nil {
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
		if err = f.Truncate(l.Sizes[i]); err == nil && len(t.names) == 1 {
			t.one = f
			continue
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
		var when time.Time
		if obj, err := src.Object(ctx, l.Objects[i]); err == nil {
			info, err := obj.Info(ctx)
			if err != nil {
				return err
			}
			when = info.ModTime
		}
		if err := t.with(i, func(f *os.File) error { return t.settle(f, o.NoSync) }); err != nil {
			return err
		}
		if !when.IsZero() {
			if err := t.root.Chtimes(name, when, when); err != nil {
				return err
			}
		}
	}
	if o.Index != nil {
		if err := t.root.WriteFile(indexName, o.Index, 0o666); err != nil {
			return err
		}
	}
	if err := ctx.Err(); err != nil {
		return context.Cause(ctx)
	}
	if t.one != nil {
		t.one.Close()
	}
	// An index without its archive does no harm, and a folder cannot be replaced to add one.
	if o.Index != nil {
		if err := os.Rename(filepath.Join(t.dir, indexName), t.out+kept.Suffix); err != nil {
			return err
		}
	}
	if err := os.Rename(filepath.Join(t.dir, newName), t.out); err != nil {
		return err
	}
	t.leave()
	if o.NoSync {
		return nil
	}
	return sysfile.SyncFolder(filepath.Dir(t.out))
}

// leave removes the folder if nothing is in it. What cannot be removed now is removed by the next sync.
func (t *target) leave() {
	_ = t.root.Remove(lockName)
	_ = os.Remove(t.dir)
}

// settle gives a file the mode of the one that it replaces, and writes it to the disk.
func (t *target) settle(f *os.File, fast bool) error {
	if old, err := os.Stat(t.out); err == nil {
		if err := f.Chmod(old.Mode().Perm()); err != nil {
			return err
		}
	}
	if fast {
		return nil
	}
	return f.Sync()
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
