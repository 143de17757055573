//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly || solaris

package sysfile

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
)

// recorded are the files whose locks this process has by [LockRecord]. A lock of fcntl is
// of the process: closing any descriptor of the file gives it up.
var recorded struct {
	sync.Mutex
	files []*os.File
}

// LockRecord takes the lock of fcntl over all of f, as Java's FileLock does. If a different
// process has the lock, it returns which one. f is to be closed by [UnlockRecord].
func LockRecord(f *os.File) (by string, err error) {
	recorded.Lock()
	defer recorded.Unlock()
	lock := syscall.Flock_t{Type: syscall.F_WRLCK, Whence: io.SeekStart}
	err = syscall.FcntlFlock(f.Fd(), syscall.F_SETLK, &lock)
	if errors.Is(err, syscall.EAGAIN) || errors.Is(err, syscall.EACCES) {
		if by, err = holder(f); by == "" && err == nil {
			by = "another program" // it has ended since, or the system does not tell
		}
		return by, err
	}
	if err == nil {
		recorded.files = append(recorded.files, f)
	}
	return "", err
}

// UnlockRecord gives up a lock, and closes its file.
func UnlockRecord(f *os.File) error {
	recorded.Lock()
	defer recorded.Unlock()
	recorded.files = slices.DeleteFunc(recorded.files, func(o *os.File) bool { return o == f })
	return f.Close()
}

// RecordLocked says which other process has the lock of fcntl on a file, or on a part of
// it; empty is none. It takes no lock.
func RecordLocked(name string) (by string, err error) {
	recorded.Lock()
	defer recorded.Unlock()
	fi, err := os.Stat(name)
	if err != nil {
		return "", err
	}
	for _, f := range recorded.files {
		if mine, err := f.Stat(); err == nil && os.SameFile(fi, mine) {
			return "", nil
		}
	}
	f, err := openRegular(name, fi)
	if err != nil {
		return "", err
	}
	by, err = holder(f)
	return by, errors.Join(err, f.Close())
}

func openRegular(name string, fi os.FileInfo) (*os.File, error) {
	if !fi.Mode().IsRegular() {
		return nil, fmt.Errorf("%s: expected a regular file", name)
	}
	return os.OpenFile(name, os.O_RDONLY|DontWait, 0)
}

// holder returns which other process has a lock on f.
func holder(f *os.File) (by string, err error) {
	lock := syscall.Flock_t{Type: syscall.F_RDLCK, Whence: io.SeekStart}
	if err := syscall.FcntlFlock(f.Fd(), syscall.F_GETLK, &lock); err != nil || lock.Type == syscall.F_UNLCK {
		return "", err
	}
	if lock.Pid <= 0 {
		return "another program", nil
	}
	by = fmt.Sprintf("process %d", lock.Pid)
	if b, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", lock.Pid)); err == nil {
		by += " (" + strings.TrimSpace(string(b)) + ")"
	}
	return by, nil
}
