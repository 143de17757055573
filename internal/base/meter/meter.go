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

	asked atomic.Bool // for the next name
	name  atomic.Pointer[string]
}

// Progress is the state of a Meter at one moment.
type Progress struct {
	Entries, Bytes           int64
	TotalEntries, TotalBytes int64
	Name                     string // of an entry that is being read or written
}

// Snapshot returns the current counts.
func (m *Meter) Snapshot() Progress {
	p := Progress{m.entries.Load(), m.bytes.Load(), m.totalEntries.Load(), m.totalBytes.Load(), ""}
	if name := m.name.Load(); name != nil {
		p.Name = *name
	}
	m.asked.Store(true)
	return p
}

// long is the size of entries that take so long that their names are always kept.
const long = 1 << 20

// At says that the work on an entry begins. Of short entries, only the first after each Snapshot is
// kept, so that a million of them cost nothing.
func (m *Meter) At(name string, size int64) {
	if m != nil && (size >= long || m.asked.Load()) {
		m.asked.Store(false)
		kept := name
		m.name.Store(&kept)
	}
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
