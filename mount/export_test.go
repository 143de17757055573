//go:build linux || darwin || freebsd

package mount

import (
	"math"
	"time"
)

// Shown is what an entry is called in a folder.
var Shown = shown

// Opening returns options by which the system says what is opened and closed, if that is
// wanted, and by which nothing is read ahead after rest that nobody reads.
func Opening(o Options, opens bool, rest time.Duration) Options {
	o.opens, o.rest = opens, rest
	return o
}

// Rest returns options by which nothing is read ahead after rest that nobody reads.
func Rest(o Options, rest time.Duration) Options { return Opening(o, o.opens, rest) }

// Opened is how much has been opened.
func (m *Mount) Opened() uint64 {
	m.fs.handles.mu.RLock()
	defer m.fs.handles.mu.RUnlock()
	return m.fs.handles.last
}

// Forget makes the system forget all that it was told.
func (m *Mount) Forget() {
	for _, t := range m.fs.trees {
		m.invalidate(t)
	}
}

// Readings is how many sequences of reads go on, and how many files are read ahead.
func (m *Mount) Readings() (all, ahead int) {
	m.fs.readings.mu.Lock()
	defer m.fs.readings.mu.Unlock()
	m.fs.aheads.mu.Lock()
	defer m.fs.aheads.mu.Unlock()
	return len(m.fs.readings.all), len(m.fs.aheads.all)
}

// MostReadings is how many there may be.
const MostReadings = mostReadings

// Replaced reports whether the only archive is opened by an index.
func (m *Mount) Replaced() bool {
	v := m.fs.trees[0].use()
	defer v.done()
	return v.a.Index().Used != ""
}

// Known is how many entries the system has been told of.
func (m *Mount) Known() int {
	n := 0
	for _, t := range m.fs.trees {
		inos, _ := m.fs.nodes.all(t)
		n += len(inos)
	}
	return n
}

// Looked says that files are looked up one by one, now and until the mount ends.
func (m *Mount) Looked() { m.fs.looks.last.Store(math.MaxInt64 / 2) }

// Looks is how many files were looked up one by one of late.
func (m *Mount) Looks() int64 { return m.fs.looks.n.Load() }
