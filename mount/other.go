//go:build !linux && !darwin && !freebsd

package mount

import "fmt"

// A Mount is a file system of archives.
type Mount struct{}

// New would mount archives at dir, if there were a way.
func New(dir string, trees []Tree, o Options) (*Mount, error) {
	return nil, fmt.Errorf("%s: %w that holdall can use", dir, ErrNoFUSE)
}

// Done is closed when nothing is mounted any more.
func (m *Mount) Done() <-chan struct{} { return nil }

// Unmount ends the mount.
func (m *Mount) Unmount() (lazily bool, err error) { return false, ErrNoFUSE }
