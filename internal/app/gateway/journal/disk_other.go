//go:build !linux

package journal

func (f osFile) Allocate(int64) error { return nil } // each write makes its own room

func (f osFile) Datasync() error { return f.Sync() }
