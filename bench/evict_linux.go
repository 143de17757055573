//go:build linux && (amd64 || arm64)

package main

import (
	"errors"
	"fmt"
	"os"
	"syscall"
)

const canEvict = true

const fadviseDontNeed = 4 // POSIX_FADV_DONTNEED

// evict drops a file from the page cache, except for pages that a process uses.
func evict(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	_, _, errno := syscall.Syscall6(syscall.SYS_FADVISE64, f.Fd(), 0, 0, fadviseDontNeed, 0, 0)
	if errno != 0 {
		err = fmt.Errorf("evict %s: %w", path, errno)
	}
	return errors.Join(err, f.Close())
}

// freeBytes returns the free space of a folder's file system.
func freeBytes(dir string) int64 {
	var fs syscall.Statfs_t
	if syscall.Statfs(dir, &fs) != nil {
		return 0
	}
	return int64(fs.Bavail) * fs.Bsize
}
