//go:build unix

package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// lockRepository takes the lock of a segment store, which is one of fcntl over all of
// repo.lock. Oak waits for it without a word; this says who has it.
func lockRepository(dir string) (unlock func(), err error) {
	name := filepath.Join(dir, "repo.lock")
	_, existed := os.Lstat(name)
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o666)
	if err != nil {
		return nil, err
	}
	lock := unix.Flock_t{Type: unix.F_WRLCK, Whence: io.SeekStart}
	err = unix.FcntlFlock(f.Fd(), unix.F_SETLK, &lock)
	if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EACCES) {
		who := "another program"
		if unix.FcntlFlock(f.Fd(), unix.F_GETLK, &lock) == nil && lock.Type != unix.F_UNLCK && lock.Pid > 0 {
			who = fmt.Sprintf("process %d", lock.Pid)
			if b, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", lock.Pid)); err == nil {
				who += " (" + strings.TrimSpace(string(b)) + ")"
			}
		}
		err = fmt.Errorf("the store is open: %s has the lock on %s", who, name)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return func() {
		if existed != nil {
			os.Remove(name) // it was not there before
		}
		f.Close()
	}, nil
}
