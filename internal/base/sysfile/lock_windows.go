package sysfile

import (
	"errors"
	"os"

	"golang.org/x/sys/windows"
)

// lockAt is the position of the one byte that is locked. It is far after all content, because a
// lock of Windows keeps other programs from reading what it covers.
const lockAt = 1 << 62

// DontWait has an open of a pipe not wait for its other end.
const DontWait = 0

// TryLock takes the exclusive lock on f, and reports whether it did: it does not if the lock is
// held already. The system frees the lock when its holder dies.
func TryLock(f *os.File) (held bool, err error) {
	at := &windows.Overlapped{OffsetHigh: lockAt >> 32}
	err = windows.LockFileEx(windows.Handle(f.Fd()), windows.LOCKFILE_EXCLUSIVE_LOCK|windows.LOCKFILE_FAIL_IMMEDIATELY, 0, 1, 0, at)
	if err == windows.ERROR_LOCK_VIOLATION || err == windows.ERROR_IO_PENDING {
		return false, nil
	}
	return err == nil, err
}

// ShareLock is not supported here.
func ShareLock(*os.File) error { return errors.ErrUnsupported }
