//go:build !(linux || darwin || freebsd || netbsd || openbsd)

package main

import (
	"os"
	"time"
)

// These systems do not report the peak memory of a process, and cannot flush their disks. The
// figures lack both.

func peakRSS(*os.ProcessState) int64 { return 0 }

func syncDisks() {}

// cpuTime always returns 0 here.
func cpuTime() time.Duration { return 0 }
