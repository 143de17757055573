// Package tree walks local files and folders to be packed. The order is the same on all systems.
// It does not block on files that are not regular, and does not follow links to folders. It knows
// nothing about archives.
package tree

import (
	"context"
	"errors"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/holdall/holdall/internal/base/glob"
)

// A Node is a file or folder that a walk found.
type Node struct {
	Name  string      // slash-separated, relative to where the walk began
	Path  string      // on this machine
	Type  fs.FileMode // type bits
	Info  fs.FileInfo // only if Options.Stat
	Link  string      // target of a symlink, if Options.Stat
	First string      // the first name of a file with several names, if this is a later one; set by callers
	Root  bool        // the walk began here; a link is followed
	Bare  bool        // an empty folder
	Err   error       // why this node or its contents cannot be read
}

// ErrSpecial is the error for a file that cannot be packed.
var ErrSpecial = errors.New("a socket or device cannot be packed")

// Options are options for a walk.
type Options struct {
	// Names selects by name; nil selects everything. Excluded folders are not entered.
	Names *glob.Filter
	// Stat requests Info and Link.
	Stat bool
	// Follow treats symlinks to files as files. Symlinks to folders are followed only if they are
	// roots: otherwise a tree that links to its own top would have no end.
	Follow bool
}

// A Root is a file or folder where a walk begins, and the name it gets. If the name of a folder is
// empty, its contents get names relative to it.
type Root struct {
	Path, Name string
	Flat       bool // without its contents
}

// Roots returns the roots at paths. A single folder gets an empty name; several files and folders
// keep their own names. Paths that were listed one by one keep all elements of their names, except
// those that lead up or to the root. Listed folders do not include their contents.
func Roots(paths []string, listed bool) ([]Root, error) {
	if len(paths) == 1 && !listed {
		info, err := os.Stat(paths[0])
		if err != nil {
			return nil, err
		}
		if info.IsDir() {
			return []Root{{Path: paths[0]}}, nil
		}
	}
	var roots []Root
	for _, p := range paths {
		if listed {
			roots = append(roots, Root{Path: p, Name: wholeName(p), Flat: true})
			continue
		}
		abs, err := filepath.Abs(p)
		if err != nil {
			return nil, err
		}
		if _, err := os.Stat(p); err != nil {
			return nil, err
		}
		name := filepath.Base(abs)
		if name == string(filepath.Separator) {
			name = ""
		}
		roots = append(roots, Root{Path: p, Name: name})
	}
	return roots, nil
}

func wholeName(p string) string {
	name := strings.TrimLeft(filepath.ToSlash(filepath.Clean(p)), "/")
	for strings.HasPrefix(name, "../") {
		name = name[3:]
	}
	if name == "." || name == ".." {
		return ""
	}
	return name
}

// Walk yields everything at roots: folders before their contents, and the contents of a folder
// sorted by name.
func Walk(ctx context.Context, roots []Root, o Options) iter.Seq[Node] {
	return func(yield func(Node) bool) {
		for _, r := range roots {
			if r.Name != "" && o.Names.Excluded(r.Name) {
				continue
			}
			info, err := os.Stat(r.Path) // a root is followed if it is a link
			n := Node{Name: r.Name, Path: r.Path, Root: true, Err: err}
			if err == nil {
				n.Type = info.Mode().Type()
				if o.Stat {
					n.Info = info
				}
			}
			if r.Flat && n.Type.IsDir() {
				if n.Name != "" && !yield(n) {
					return
				}
				continue
			}
			if !visit(ctx, n, o, yield) {
				return
			}
		}
	}
}

// visit yields n and its contents, and reports whether to go on.
func visit(ctx context.Context, n Node, o Options, yield func(Node) bool) bool {
	if ctx.Err() != nil {
		return false
	}
	wanted := o.Names.Includes(n.Name)
	if !n.Type.IsDir() || n.Err != nil {
		return !wanted || yield(n)
	}
	list, err := os.ReadDir(n.Path)
	n.Err, n.Bare = err, len(list) == 0
	if (n.Name != "" && wanted || err != nil) && !yield(n) {
		return false
	}
	for _, d := range list {
		c := Node{Name: d.Name(), Path: filepath.Join(n.Path, d.Name()), Type: d.Type()}
		if n.Name != "" {
			c.Name = n.Name + "/" + d.Name()
		}
		if o.Names.Excludes(c.Name) {
			continue
		}
		if c.Type == fs.ModeSymlink && o.Follow {
			if info, err := os.Stat(c.Path); err == nil && info.Mode().IsRegular() {
				c.Type, c.Info = 0, info
			}
		}
		if o.Stat && c.Info == nil {
			if c.Info, c.Err = d.Info(); errors.Is(c.Err, fs.ErrNotExist) {
				continue // removed since the folder was read
			}
			if c.Type == fs.ModeSymlink && c.Err == nil {
				c.Link, c.Err = os.Readlink(c.Path)
			}
		}
		if !visit(ctx, c, o, yield) {
			return false
		}
	}
	return true
}

// Meta is the metadata of an opened file.
type Meta struct {
	Size     int64
	Mode     fs.FileMode
	ModTime  time.Time
	UID, GID int // -1 if the system has none
	Same     Same
	Several  bool // the file has several names, which share Same
}

// ErrChanged means that the length of a file changed after it was opened.
var ErrChanged = errors.New("changed while it was being read")

var errNotRegular = errors.New("not a regular file")
