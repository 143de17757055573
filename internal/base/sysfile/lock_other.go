//go:build !(linux || darwin || freebsd || netbsd || openbsd || dragonfly || windows)

package sysfile

import (
	"errors"
	"os"
)

// DontWait has an open of a pipe not wait for its other end.
const DontWait = 0

// TryLock cannot tell the living from the dead here: temporary files of killed
// writers stay, and so do their lock files, which then have to be removed by hand.
func TryLock(*os.File) (held bool, err error) { return false, errors.ErrUnsupported }

// ShareLock is not supported here.
func ShareLock(*os.File) error { return errors.ErrUnsupported }
