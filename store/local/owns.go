package local

import (
	"os"
	"path/filepath"
	"strings"
)

// Near says that a read is answered without a round trip.
func (s *Store) Near() bool { return true }

// Owns reports whether the file at path, of this machine, is the object of that
// name or a temporary of it. Whoever packs a folder that the archive is written
// into asks, lest it pack itself.
func (s *Store) Owns(path, object string) bool {
	p, err := s.path(object)
	if err != nil {
		return false
	}
	base := filepath.Base(path)
	temp := isTemp(base) && strings.HasPrefix(base, tempStem(filepath.Base(p)))
	if !temp && base != filepath.Base(p) {
		return false // told apart without asking the file system
	}
	a, err := os.Stat(filepath.Dir(path))
	if err != nil {
		return false
	}
	b, err := os.Stat(filepath.Dir(p))
	return err == nil && os.SameFile(a, b)
}
