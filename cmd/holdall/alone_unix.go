//go:build unix

package main

import (
	"os/exec"
	"syscall"
)

// alone keeps a daemon from ending with the terminal, or by its Ctrl-C.
func alone(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} }
