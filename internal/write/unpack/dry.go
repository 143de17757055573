package unpack

import (
	"errors"
	"fmt"
	"io/fs"
	"path"

	"github.com/holdall/holdall/format"
)

// A dry run writes nothing. It finds what would be in the way, and reads and verifies contents.

// nothing is an output that discards everything.
type nothing struct{}

func (nothing) WriteAt(p []byte, _ int64) (int, error) { return len(p), nil }
func (nothing) Truncate(int64) error                   { return nil }
func (nothing) Chown(int, int) error                   { return nil }
func (nothing) Chmod(fs.FileMode) error                { return nil }
func (nothing) Close() error                           { return nil }

// there returns the FileInfo of a name in the folder, or nil if it does not exist.
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

// rehearseFolder returns an error if a folder and its parents could not be made.
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

// rehearse returns an error if a file could not be written.
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

// rehearseLink returns an error if a link or a FIFO could not be made.
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
