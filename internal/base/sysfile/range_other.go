//go:build !(linux || darwin || freebsd || netbsd || openbsd || dragonfly || solaris || windows)

package sysfile

import (
	"errors"
	"os"
)

// LockRange is not supported here.
func LockRange(*os.File, int64, int64) (held bool, err error) { return false, errors.ErrUnsupported }

// UnlockRange is not supported here.
func UnlockRange(*os.File, int64, int64) error { return errors.ErrUnsupported }
