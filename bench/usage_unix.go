//go:build linux || darwin || freebsd || netbsd || openbsd

package main

import (
	"os"
	"runtime"
	"syscall"
	"time"
)

// peakRSS returns the peak memory of a process that has ended.
func peakRSS(p *os.ProcessState) int64 {
	u, ok := p.SysUsage().(*syscall.Rusage)
	if !ok {
		return 0
	}
	if runtime.GOOS == "darwin" {
		return int64(u.Maxrss) // bytes on macOS, kilobytes elsewhere
	}
	return int64(u.Maxrss) << 10
}

// syncDisks flushes the caches of the disks.
func syncDisks() { syscall.Sync() }

// cpuTime returns the CPU time that this process has used.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
