//go:build !(linux || darwin || freebsd || netbsd || openbsd || dragonfly)

package main

import "errors"

// lock is not supported here, so what a killed run left stays.
func lock(string) (unlock func(), err error) { return nil, errors.ErrUnsupported }
