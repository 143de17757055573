// Package bytemap shows where everything lies in an archive's bytes, as a
// picture or as numbers.
//
// It is for whoever has the runs of bytes at hand, from a format's extents and
// regions; it opens no archive itself. [Build] takes them in any order and in
// bounded memory, and the [Map] that comes out is drawn by [Map.SVG],
// [Map.PNG] and [Map.Terminal] or told by [Map.JSON].
package bytemap

import (
	"fmt"

	"github.com/holdall/holdall/format"
)

// Use is what a run of bytes is for: one of the format.Use values, or what Build finds out
// by itself.
type Use uint8

const (
	Content   = Use(format.Content)
	Header    = Use(format.Header)
	IndexData = Use(format.IndexData)
	Journal   = Use(format.Journal)
	Padding   = Use(format.Padding)
	Trash     = Use(format.Trash)
	Unknown   = Use(format.Unknown)
	Gap       = Unknown + 1 // for nothing: no span covers it
	Overlap   = Unknown + 2 // covered by a span, and by another one that is not the same
)

const useCount = int(Overlap) + 1

func (u Use) String() string {
	switch {
	case u == Gap:
		return "gap"
	case u == Overlap:
		return "overlap"
	case u < Gap:
		return format.Use(u).String()
	}
	return fmt.Sprintf("Use(%d)", u)
}

// A Volume is one object of an archive.
type Volume struct {
	Name string
	Size int64
}

// A Span is a run of bytes in a volume and what it is for: Content, whose
// Label is the entry's name, or a format.Use, whose Label says more.
type Span struct {
	Volume string
	Off    int64
	Len    int64
	Use    Use
	Label  string
}

// A Run is a span, and how many entries share it, if they are several: a section or a
// record holds many small files.
type Run struct {
	Span
	Files int64
}

// A Map says where everything lies.
type Map struct {
	Volumes []VolumeMap
	Totals  Totals

	// Largest are the largest spans, the largest first, cut to their volumes.
	Largest []Run

	// Shared counts the runs that several files share, such as sections and records,
	// and SharedBy the files that do.
	Shared, SharedBy int64

	// Outside counts the spans that no volume holds, or not all of them.
	Outside int64

	// Parity says what protects the archive.
	Parity string
}

// A VolumeMap says where everything lies in one volume.
type VolumeMap struct {
	Volume

	// Cells are equal parts of the volume, CellSize bytes each; the last may
	// be shorter.
	Cells    []Cell
	CellSize int64
	Totals   Totals

	// Exact says that the totals of gaps and overlaps are exact, since the
	// spans came sorted by offset. Otherwise they were made out cell by cell,
	// where a gap and an overlap in the same cell cancel each other out;
	// without overlaps that is exact too.
	Exact bool
}

// Totals says of each Use how much there is. A byte counts once, however many spans ask
// for it: all but Overlap sum up to the volume's size.
type Totals [useCount]Share

// A Share is how many bytes a use takes and how many spans ask for them. Gaps
// and overlaps have no spans.
type Share struct {
	Bytes int64 `json:"bytes"`
	Spans int64 `json:"spans,omitempty"`
}

// A Cell is a part of a volume. Its bytes, without those of Overlap, sum up to its
// length.
type Cell struct {
	Bytes [useCount]int64
	Spans int64 // that touch it
}

// length returns how many bytes cell i stands for.
func (v *VolumeMap) length(i int) int64 {
	return min(v.CellSize, v.Size-int64(i)*v.CellSize)
}

// mix returns about how many bytes of [from, to) are for what, taking each
// cell's uses to be spread evenly over it.
func (v *VolumeMap) mix(from, to int64) (m mix) {
	to = min(to, v.Size)
	if from >= to {
		return m
	}
	for i := from / v.CellSize; i <= (to-1)/v.CellSize; i++ {
		start := i * v.CellSize
		n := v.length(int(i))
		part := float64(min(to-start, n)-max(from-start, 0)) / float64(n)
		for u, bytes := range v.Cells[i].Bytes {
			m[u] += part * float64(bytes)
		}
	}
	return m
}

// A mix is how many bytes of some place each use takes.
type mix [useCount]float64

// shares returns each use's part of the place, which sum up to 1, and how much
// of it is covered more than once, at most all.
func (m mix) shares() (parts mix, overlap float64) {
	var sum float64
	for u := Content; u < Overlap; u++ {
		sum += m[u]
	}
	if sum == 0 {
		return parts, 0
	}
	for u := Content; u < Overlap; u++ {
		parts[u] = m[u] / sum
	}
	return parts, min(1, m[Overlap]/max(1, sum))
}

// mixed stands for more than one use.
const mixed = Use(useCount)

// only returns the use that takes all of the place, or mixed.
func (m mix) only() Use {
	only := mixed
	for u := Content; u < Overlap; u++ {
		if m[u] == 0 {
			continue
		}
		if only != mixed {
			return mixed
		}
		only = u
	}
	return only
}
