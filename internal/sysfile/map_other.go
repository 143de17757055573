//go:build !(linux || darwin || freebsd || netbsd || openbsd || dragonfly)

package sysfile

import (
	"errors"
	"os"
)

// Map is not to be had here: on Windows nobody could replace a file that is mapped.
func Map(*os.File, int64) ([]byte, error) { return nil, errors.ErrUnsupported }

// Unmap ends the use of what Map returned.
func Unmap([]byte) error { return nil }
