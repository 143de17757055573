//go:build !(linux || darwin || freebsd || netbsd || openbsd || dragonfly || solaris)

package sysfile

import (
	"errors"
	"os"
)

// LockRecord is for systems without the locks of fcntl: it takes none.
func LockRecord(*os.File) (by string, err error) { return "", errors.ErrUnsupported }

// UnlockRecord closes a file.
func UnlockRecord(f *os.File) error { return f.Close() }

// RecordLocked cannot tell.
func RecordLocked(string) (by string, err error) { return "", errors.ErrUnsupported }
