package local

import "path/filepath"

// Address returns the absolute path of the named object.
func (s *Store) Address(name string) string {
	p, err := s.path(name)
	if err == nil {
		p, err = filepath.Abs(p)
	}
	if err != nil {
		return ""
	}
	return filepath.ToSlash(p)
}
