package recipe

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/holdall/holdall/format/rvn/internal/shlib"
	"github.com/holdall/holdall/format/rvn/internal/ucl"
)

// maxPath is the longest path that is searched. File systems do not let programs open longer
// ones, so the packer cannot either.
const maxPath = 4095

// libraries are the libraries that ELF files of a folder provide and need. Files are visited in
// the order of records: in each folder first the subfolders, then the files, both sorted by name.
type libraries struct {
	root    *os.Root
	list    *whitelist // nil if everything is packed
	besides bool       // also search what is not packed
	system  []string   // folders of libraries that belong to no package
	said    *notices

	provided, required, adjacent names
	ofSystem                     map[string]bool // libraries that were looked up there
}

func (l *libraries) folder(ctx context.Context, dir string) error {
	if len(dir) > maxPath {
		l.said.add("%s: not searched for libraries: its name is longer than %d bytes", shown(dir), maxPath)
		return nil
	}
	entries, err := l.readDir(dir)
	if err != nil {
		l.said.add("%s: not searched for libraries: %v", shown(dir), cause(err))
		return nil
	}
	for _, e := range entries {
		name := path.Join(dir, e.Name())
		if e.IsDir() && (l.list == nil || l.besides || l.list.packed[name]) {
			if err := l.folder(ctx, name); err != nil {
				return err
			}
		}
	}
	for _, e := range entries {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		name := path.Join(dir, e.Name())
		packed := l.list == nil
		if !packed {
			_, packed = l.list.only[name]
		}
		if e.Type().IsRegular() && (packed || l.besides) {
			if err := l.file(name, packed); err != nil {
				return err
			}
		}
	}
	return nil
}

func (l *libraries) readDir(dir string) ([]fs.DirEntry, error) {
	f, err := l.root.Open(dir)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	entries, err := f.ReadDir(-1)
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	return entries, err
}

func (l *libraries) file(name string, packed bool) error {
	f, err := l.root.OpenFile(name, os.O_RDONLY|nonBlocking, 0)
	if err != nil {
		l.said.add("%s: not searched for libraries: %v", shown(name), cause(err))
		return nil
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() || hasSeveralNames(info) {
		return err
	}
	soname, needed, ok := shlib.Names(f, info.Size())
	if !ok {
		return nil
	}
	if !packed {
		return l.adjacent.add(soname)
	}
	for _, n := range needed {
		if l.belongsToSystem(n) {
			continue
		}
		if err := l.required.add(n); err != nil {
			return err
		}
	}
	return l.provided.add(soname)
}

// belongsToSystem reports whether the library is in a folder of the packing machine's system; see
// Make.
func (l *libraries) belongsToSystem(name string) bool {
	is, known := l.ofSystem[name]
	if known || strings.Contains(name, "/") { // a path names the file itself
		return is
	}
	for _, dir := range l.system {
		if _, err := os.Lstat(filepath.Join(dir, name)); err == nil {
			is = true
		}
	}
	l.ofSystem[name] = is
	return is
}

// names are distinct names in order of appearance, at most as many as metadata may have.
type names struct {
	order []string
	has   map[string]bool
	bytes int
}

func (n *names) add(name string) error {
	if name == "" || n.has[name] {
		return nil
	}
	if n.bytes += len(name); n.bytes > ucl.MaxText {
		return fmt.Errorf("shared libraries: expected names of at most %d bytes in all, found more", ucl.MaxText)
	}
	if n.has == nil {
		n.has = map[string]bool{}
	}
	n.has[name] = true
	n.order = append(n.order, name)
	return nil
}

func (n *names) values() []ucl.Value {
	var list []ucl.Value
	for _, name := range n.order {
		list = append(list, ucl.String(name))
	}
	return list
}
