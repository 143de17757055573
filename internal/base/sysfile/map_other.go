//go:build !(linux || darwin || freebsd || netbsd || openbsd || dragonfly)

package sysfile

import (
	"errors"
	"os"
)

// Map is not supported here: on Windows, a mapped file could not be replaced.
func Map(*os.File, int64) ([]byte, error) { return nil, errors.ErrUnsupported }

// Unmap ends the use of what Map returned.
func Unmap([]byte) error { return nil }
