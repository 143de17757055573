//go:build !(linux || darwin || freebsd || netbsd || openbsd || dragonfly || windows)

package local

import (
	"errors"
	"os"
)

const dontWait = 0

// lock cannot tell the living from the dead here: temporary files of killed
// writers stay, and so do their lock files, which then have to be removed by hand.
func lock(*os.File) (held bool, err error) { return false, errors.ErrUnsupported }
