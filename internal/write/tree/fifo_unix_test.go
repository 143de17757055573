//go:build unix

package tree

import "syscall"

func mkfifo(p string) error { return syscall.Mkfifo(p, 0o666) }
