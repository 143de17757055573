//go:build !linux

package disk

// Allocate makes no room: each write does.
func (f osFile) Allocate(size int64) error { return f.extend(size) }

func (f osFile) Datasync() error { return f.Sync() }
