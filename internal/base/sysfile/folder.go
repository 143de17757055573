package sysfile

import (
	"errors"
	"os"
	"runtime"
	"syscall"
)

// SyncFolder makes the names in a folder durable.
func SyncFolder(dir string) error {
	if runtime.GOOS == "windows" {
		return nil
	}
	if dir == "" {
		dir = "."
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	err = d.Sync()
	if errors.Is(err, syscall.EINVAL) || errors.Is(err, errors.ErrUnsupported) {
		return nil // some network file systems cannot do it and do not need it
	}
	return err
}
