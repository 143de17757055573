//go:build !linux && !darwin && !freebsd

package mount

import "fmt"

// A Mount is a mounted file system of archives.
type Mount struct{}

// New returns an error that wraps [ErrNoFUSE], because this system has no FUSE.
func New(dir string, trees []Tree, o Options) (*Mount, error) {
	return nil, fmt.Errorf("%s: %w that holdall can use", dir, ErrNoFUSE)
}

// Done returns nil.
func (m *Mount) Done() <-chan struct{} { return nil }

// Unmount returns [ErrNoFUSE].
func (m *Mount) Unmount() (lazily bool, err error) { return false, ErrNoFUSE }
