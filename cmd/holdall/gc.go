package main

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync/atomic"
	"time"
)

// lateGC delays the first garbage collection until 16 MiB are in use instead
// of 4: most commands end before that, or soon after. Later collections happen
// as usual.
func lateGC() {
	if os.Getenv("GOGC") != "" {
		return
	}
	usualGC.Store(int32(debug.SetGCPercent(400)))
	afterGC(func() { debug.SetGCPercent(int(usualGC.Load())) })
}

// usualGC is how much garbage there may be after the first collection, as a
// percentage of the memory in use.
var usualGC atomic.Int32

// steadyGC makes the collector run more often after its first run, for a
// command that uses most of its memory from beginning to end. Call it when the
// command begins.
func steadyGC(percent int32) { usualGC.Store(percent) }

// afterGC calls do once, after the next collection of garbage.
func afterGC(do func()) {
	runtime.AddCleanup(new([16]byte), func(int) { do() }, 0)
}

const idleCheck = 15 * time.Second

// leanGC tunes the garbage collector for a command that runs for days and
// holds much memory. Garbage is at most so many bytes, or an eighth of the
// memory in use if that is more. When the command is idle, free memory is
// returned to the system.
func leanGC(garbage uint64) {
	if os.Getenv("GOGC") != "" {
		return
	}
	live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	percent := 0
	var adapt func()
	adapt = func() {
		metrics.Read(live)
		n := max(live[0].Value.Uint64(), 1)
		if p := int(min(400, max(12, 100*garbage/n))); p != percent {
			debug.SetGCPercent(p)
			percent = p
		}
		afterGC(adapt)
	}
	adapt()
	go func() {
		s := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}, {Name: "/memory/classes/heap/free:bytes"}, {Name: "/memory/classes/heap/unused:bytes"}}
		was := uint64(0)
		for range time.Tick(idleCheck) {
			metrics.Read(s)
			idle := s[0].Value.Uint64()-was < garbage/16
			if was = s[0].Value.Uint64(); idle && s[1].Value.Uint64()+s[2].Value.Uint64() > garbage/4 {
				debug.FreeOSMemory()
			}
		}
	}()
}
