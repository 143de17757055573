//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package sysfile

import (
	"os"
	"syscall"
)

// DontWait has an open of a pipe not wait for its other end.
const DontWait = syscall.O_NONBLOCK

// TryLock takes the exclusive lock on f if nobody else has it. The kernel frees it
// when its holder dies.
func TryLock(f *os.File) (held bool, err error) {
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if err == syscall.EWOULDBLOCK {
		return false, nil
	}
	return err == nil, err
}

// ShareLock takes the lock on f together with others who share it, and gives up an exclusive
// one for it. It waits for whoever has it alone.
func ShareLock(f *os.File) error {
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_SH)
		if err != syscall.EINTR {
			return err
		}
	}
}
