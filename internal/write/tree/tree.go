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
	"path"
	"path/filepath"
	"slices"
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

// errTaken is the error for a node whose name a node of an earlier root has.
var errTaken = errors.New("another input has this name")

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
	shared     bool // another root may have the same names
}

// Roots returns the roots at paths. A single folder gets an empty name; several files and folders
// keep their own names. Paths that were listed one by one keep all elements of their names, except
// those that lead up or to the root. Listed folders do not include their contents. Roots leaves out
// a path that comes again, and returns it in again.
func Roots(paths []string, listed bool) (roots []Root, again []string, err error) {
	for _, p := range paths {
		if listed {
			roots = append(roots, Root{Path: p, Name: wholeName(p), Flat: true})
			continue
		}
		abs, err := filepath.Abs(p)
		if err != nil {
			return nil, nil, err
		}
		if _, err := os.Stat(p); err != nil {
			return nil, nil, err
		}
		name := filepath.Base(abs)
		if name == string(filepath.Separator) {
			name = ""
		}
		roots = append(roots, Root{Path: p, Name: name})
	}
	if roots, again = once(roots); len(roots) == 1 && !listed {
		if info, err := os.Stat(roots[0].Path); err == nil && info.IsDir() {
			roots[0].Name = ""
		}
	}
	return roots, again, nil
}

// once removes roots whose path comes again, and marks those with the name of another.
func once(roots []Root) (_ []Root, again []string) {
	order := make([]int, len(roots))
	top := false
	for i := range order {
		order[i] = i
		top = top || roots[i].Name == ""
	}
	slices.SortStableFunc(order, func(a, b int) int { return strings.Compare(roots[a].Name, roots[b].Name) })
	repeated := map[int]bool{}
	for len(order) > 0 {
		n := 1
		for n < len(order) && roots[order[n]].Name == roots[order[0]].Name {
			n++
		}
		if seen := map[string]bool{}; n > 1 || top {
			for _, i := range order[:n] {
				key := roots[i].Path
				if !strings.Contains(key, "..") { // which may lead out of a link
					key = filepath.Clean(key)
				}
				roots[i].shared, repeated[i], seen[key] = true, seen[key], true
			}
		}
		order = order[n:]
	}
	kept := roots[:0]
	for i, r := range roots {
		if repeated[i] {
			again = append(again, r.Path)
		} else {
			kept = append(kept, r)
		}
	}
	return kept, again
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
// sorted by name. Folders of the same name become one. Any other node with the name of an earlier
// root's has an error.
func Walk(ctx context.Context, roots []Root, o Options) iter.Seq[Node] {
	return func(every func(Node) bool) {
		taken := map[string]bool{} // names of roots that share some; true is a folder
		for _, r := range roots {
			yield := every
			if r.shared {
				yield = func(n Node) bool {
					isDir := n.Type.IsDir() && n.Err == nil
					above, known := taken[path.Dir(n.Name)]
					switch folder, again := taken[n.Name]; {
					case again && folder && isDir:
						return true
					case n.Err != nil:
					case again, known && !above:
						n.Err, isDir = errTaken, false
					}
					if !taken[n.Name] {
						taken[n.Name] = isDir
					}
					return every(n)
				}
			}
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
