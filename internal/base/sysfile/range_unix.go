//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly || solaris

package sysfile

import (
	"errors"
	"io"
	"os"
	"runtime"
	"syscall"
)

// LockRange takes the exclusive lock of fcntl on n bytes of f, which need not exist, and reports
// whether it did. Where the system can, the lock is of this opening of the file: two openings in
// one process exclude each other. Elsewhere it is of the process, and closing any other opening of
// the file gives it up. The kernel frees the lock when its holder dies.
func LockRange(f *os.File, off, n int64) (held bool, err error) {
	err = setRange(f, syscall.F_WRLCK, off, n)
	if errors.Is(err, syscall.EAGAIN) || errors.Is(err, syscall.EACCES) {
		return false, nil
	}
	return err == nil, err
}

// UnlockRange gives up what LockRange took.
func UnlockRange(f *os.File, off, n int64) error { return setRange(f, syscall.F_UNLCK, off, n) }

func setRange(f *os.File, kind int16, off, n int64) error {
	set := syscall.F_SETLK
	if runtime.GOOS == "linux" {
		set = 37 // F_OFD_SETLK
	}
	return syscall.FcntlFlock(f.Fd(), set, &syscall.Flock_t{Type: kind, Whence: io.SeekStart, Start: off, Len: n})
}
