//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package sysfile

import (
	"os"
	"syscall"
)

// DontWait has an open of a pipe not wait for its other end.
const DontWait = syscall.O_NONBLOCK

// TryLock takes the exclusive lock on f, and reports whether it did: it does not if the lock is
// held already. The kernel frees the lock when its holder dies.
func TryLock(f *os.File) (held bool, err error) {
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if err == syscall.EWOULDBLOCK {
		return false, nil
	}
	return err == nil, err
}

// ShareLock takes a shared lock on f, in place of an exclusive one that the caller may hold. It
// waits while a different holder has the lock exclusively.
func ShareLock(f *os.File) error {
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_SH)
		if err != syscall.EINTR {
			return err
		}
	}
}
