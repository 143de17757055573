// Package meter counts work for progress reports.
package meter

import "sync/atomic"

// A Meter counts finished work. The library adds to it, and programs call Snapshot at any time.
// Totals are zero while they are unknown. The zero value is ready to use; a nil Meter counts
// nothing.
type Meter struct {
	// WantTotal makes the library count the total before the work or during it, which takes an
	// additional look at every name.
	WantTotal bool
	// OnEntry is called with the name of each entry that was done. Several goroutines may call it
	// at once.
	OnEntry func(name string)

	entries, bytes           atomic.Int64
	totalEntries, totalBytes atomic.Int64
}

// Progress is the state of a Meter at one moment.
type Progress struct {
	Entries, Bytes           int64
	TotalEntries, TotalBytes int64
}

// Snapshot returns the current counts.
func (m *Meter) Snapshot() Progress {
	return Progress{m.entries.Load(), m.bytes.Load(), m.totalEntries.Load(), m.totalBytes.Load()}
}

// WantsTotal reports whether totals should be counted.
func (m *Meter) WantsTotal() bool { return m != nil && m.WantTotal }

// Expect sets the totals.
func (m *Meter) Expect(entries, bytes int64) {
	if m != nil {
		m.totalEntries.Store(entries)
		m.totalBytes.Store(bytes)
	}
}

// Add adds finished work.
func (m *Meter) Add(entries, bytes int64) {
	if m != nil {
		m.entries.Add(entries)
		m.bytes.Add(bytes)
	}
}

// Done says that the entry of a name has been done.
func (m *Meter) Done(name string) {
	if m != nil && m.OnEntry != nil {
		m.OnEntry(name)
	}
}
