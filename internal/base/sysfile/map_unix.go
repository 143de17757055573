//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package sysfile

import (
	"os"
	"syscall"
)

// Map maps the first size bytes of f into memory, for reading. If the file is truncated while it
// is mapped, reading faults.
func Map(f *os.File, size int64) ([]byte, error) {
	if int64(int(size)) != size {
		return nil, syscall.EFBIG
	}
	return syscall.Mmap(int(f.Fd()), 0, int(size), syscall.PROT_READ, syscall.MAP_SHARED)
}

// Unmap ends the use of what Map returned.
func Unmap(b []byte) error { return syscall.Munmap(b) }
