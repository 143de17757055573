//go:build linux || darwin || freebsd || netbsd || openbsd

package main

import (
	"os"
	"runtime"
	"syscall"
	"time"
)

// peakRSS returns how much memory a process that has ended had at the most.
func peakRSS(p *os.ProcessState) int64 {
	u, ok := p.SysUsage().(*syscall.Rusage)
	if !ok {
		return 0
	}
	if runtime.GOOS == "darwin" {
		return int64(u.Maxrss) // bytes there, kilobytes elsewhere
	}
	return int64(u.Maxrss) << 10
}

// syncDisks waits until nothing is left to be written.
func syncDisks() { syscall.Sync() }

// cpuTime returns what this process has used so far.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
