package main

import (
	"os"
	"runtime"
	"runtime/debug"
)

// lateGC lets the first collection of garbage wait until there are 16 MiB instead of 4: most
// commands end before, or soon after. From then on it is as usual.
func lateGC() {
	if os.Getenv("GOGC") != "" {
		return
	}
	usual := debug.SetGCPercent(400)
	runtime.AddCleanup(new([16]byte), func(int) { debug.SetGCPercent(usual) }, 0)
}
