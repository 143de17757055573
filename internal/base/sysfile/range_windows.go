package sysfile

import (
	"os"

	"golang.org/x/sys/windows"
)

// LockRange takes the exclusive lock on n bytes of f, which need not exist, and reports whether it
// did. The system frees the lock when its holder dies.
func LockRange(f *os.File, off, n int64) (held bool, err error) {
	err = windows.LockFileEx(windows.Handle(f.Fd()), windows.LOCKFILE_EXCLUSIVE_LOCK|windows.LOCKFILE_FAIL_IMMEDIATELY, 0, uint32(n), uint32(n>>32), rangeAt(off))
	if err == windows.ERROR_LOCK_VIOLATION || err == windows.ERROR_IO_PENDING {
		return false, nil
	}
	return err == nil, err
}

// UnlockRange gives up what LockRange took.
func UnlockRange(f *os.File, off, n int64) error {
	return windows.UnlockFileEx(windows.Handle(f.Fd()), 0, uint32(n), uint32(n>>32), rangeAt(off))
}

func rangeAt(off int64) *windows.Overlapped {
	return &windows.Overlapped{Offset: uint32(off), OffsetHigh: uint32(off >> 32)}
}
