// Package meter counts work while it is done.
package meter

import "sync/atomic"

// A Meter counts the work done, for whoever wants to show it: the library adds,
// others look, at their own pace. Totals are zero as long as they are unknown.
// The zero value is ready; a nil Meter counts nothing.
type Meter struct {
	// WantTotal has the work counted before it is done, or meanwhile, which
	// takes another look at every name.
	WantTotal bool
	// OnEntry is told of each entry that was done, by its name. Several goroutines may
	// call it at once.
	OnEntry func(name string)

	entries, bytes           atomic.Int64
	totalEntries, totalBytes atomic.Int64
}

// Progress is what a Meter says at one moment.
type Progress struct {
	Entries, Bytes           int64
	TotalEntries, TotalBytes int64
}

// Snapshot returns the counts.
func (m *Meter) Snapshot() Progress {
	return Progress{m.entries.Load(), m.bytes.Load(), m.totalEntries.Load(), m.totalBytes.Load()}
}

// WantsTotal reports whether anybody wants to know how much there is to do.
func (m *Meter) WantsTotal() bool { return m != nil && m.WantTotal }

// Expect says how much there is to do.
func (m *Meter) Expect(entries, bytes int64) {
	if m != nil {
		m.totalEntries.Store(entries)
		m.totalBytes.Store(bytes)
	}
}

// Add says that so much has been done.
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
