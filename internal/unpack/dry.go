package unpack

import (
	"errors"
	"fmt"
	"io/fs"
	"path"

	"github.com/holdall/holdall/format"
)

// A dry run writes nothing: it finds what would be in the way, and reads and compares contents.

// nothing is an output that keeps nothing.
type nothing struct{}

func (nothing) WriteAt(p []byte, _ int64) (int, error) { return len(p), nil }
func (nothing) Truncate(int64) error                   { return nil }
func (nothing) Chown(int, int) error                   { return nil }
func (nothing) Chmod(fs.FileMode) error                { return nil }
func (nothing) Close() error                           { return nil }

// there returns what has a name in the folder, nil if nothing has.
func (x *extraction) there(name string) fs.FileInfo {
	if x.root == nil {
		return nil
	}
	info, err := x.root.Lstat(name)
	if err != nil {
		return nil
	}
	return info
}

// rehearseFolder says what would keep a folder and those above it from being made.
func (x *extraction) rehearseFolder(name string) error {
	for dir := name; dir != "."; dir = path.Dir(dir) {
		if x.there(dir) == nil {
			continue
		}
		if info, err := x.root.Stat(dir); err != nil || !info.IsDir() {
			return &fs.PathError{Op: "mkdir", Path: dir, Err: fs.ErrExist}
		}
		break
	}
	return nil
}

// rehearse says what would keep a file from being written.
func (x *extraction) rehearse(e format.Entry, content func(*sink) error) error {
	if err := x.rehearseFolder(path.Dir(e.Name)); err != nil {
		return err
	}
	if info := x.there(e.Name); info != nil {
		if !x.o.Overwrite {
			return &fs.PathError{Op: "extract", Path: e.Name, Err: errExists}
		}
		if info.IsDir() {
			return &fs.PathError{Op: "extract", Path: e.Name, Err: fs.ErrExist}
		}
	}
	to := &sink{f: nothing{}}
	if err := content(to); err != nil {
		return &unreadable{err: err}
	}
	return nil
}

// rehearseLink says what would keep a link or a FIFO from being made.
func (x *extraction) rehearseLink(e format.Entry) error {
	if err := x.rehearseFolder(path.Dir(e.Name)); err != nil {
		return err
	}
	switch e.Kind {
	case format.Symlink, format.HardLink:
		if err := x.linkFault(e); err != nil {
			return err
		}
	case format.Fifo:
	default:
		return fmt.Errorf("%s: cannot extract a %s: %w", format.Escape(e.Name), e.Kind, errors.ErrUnsupported)
	}
	if info := x.there(e.Name); info != nil && (info.IsDir() || !x.o.Overwrite) {
		return &fs.PathError{Op: "extract", Path: e.Name, Err: fs.ErrExist}
	}
	return nil
}
