package local

import (
	"os"
	"path/filepath"
	"strings"

	"github.com/holdall/holdall/store"
)

// Adopt makes an object of an open file of this machine, so that a writer of
// this package can copy it without reading it. Closing the object closes f.
func (s *Store) Adopt(f *os.File) (store.Object, error) {
	o, err := s.adopt(f, f.Name())
	if err != nil {
		return nil, failed("open", f.Name(), err)
	}
	return o, nil
}

// Owns reports whether the file at path, of this machine, is the object of that
// name, a temporary of it or its lock. Whoever packs a folder that the archive is
// written into asks, lest it pack itself.
func (s *Store) Owns(path, object string) bool {
	p, err := s.path(object)
	if err != nil {
		return false
	}
	base := filepath.Base(path)
	if isTemp(base) || isLock(base) {
		// These lie beside what a symlink leads to.
		if p, err = follow(p); err != nil {
			return false
		}
	}
	name := filepath.Base(p)
	aside := isTemp(base) && strings.HasPrefix(base, tempStem(name)) || base == lockName(name)
	if !aside && base != name {
		return false // told apart without asking the file system
	}
	a, err := os.Stat(filepath.Dir(path))
	if err != nil {
		return false
	}
	b, err := os.Stat(filepath.Dir(p))
	return err == nil && os.SameFile(a, b)
}
