// Package bytemap shows what each byte of an archive is for, as a picture or as numbers.
//
//	m, err := bytemap.Of(ctx, archive)
//	…
//	err = m.SVG(w)
//
// [Of] makes a [Map] of an archive. [Build] makes one from spans in any order and in bounded
// memory. A Map can be drawn with [Map.SVG], [Map.PNG] and [Map.Terminal], and written as numbers
// with [Map.JSON]. The package does not open archives.
package bytemap

import (
	"fmt"

	"github.com/holdall/holdall/format"
)

// A Use is the use of a run of bytes: a value of format.Use, or one that Build derives.
type Use uint8

const (
	Content   = Use(format.Content)
	Header    = Use(format.Header)
	IndexData = Use(format.IndexData)
	Journal   = Use(format.Journal)
	Padding   = Use(format.Padding)
	Trash     = Use(format.Trash)
	Unknown   = Use(format.Unknown)
	Gap       = Unknown + 1 // unused: no span covers it
	Overlap   = Unknown + 2 // covered by several spans that differ
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

// A Volume is an object of an archive.
type Volume struct {
	Name string
	Size int64
}

// A Span is a run of bytes in a volume and its use. If the use is Content, Label is the name of
// the entry; otherwise it describes the use further.
type Span struct {
	Volume string
	Off    int64
	Len    int64
	Use    Use
	Label  string
}

// A Run is a span, and the number of entries that share it if there are several. For example, a
// section or a record may contain many small files.
type Run struct {
	Span
	Files int64
}

// A Map has the uses of all bytes of an archive.
type Map struct {
	Volumes []VolumeMap
	Totals  Totals

	// Largest are the largest spans, longest first, cut to their volumes.
	Largest []Run

	// Shared is the number of runs that several files share, such as sections and records, and
	// SharedBy the number of these files.
	Shared, SharedBy int64

	// Outside is the number of spans that are not in a volume, or only partly.
	Outside int64

	// Parity describes the parity of the archive.
	Parity string

	Unproven Unproven
}

// Unproven is the content in which nothing detects damage.
type Unproven struct {
	Files int64 `json:"files"`
	Bytes int64 `json:"bytes"`
}

// A VolumeMap has the uses of the bytes of one volume.
type VolumeMap struct {
	Volume

	// Cells are equal parts of the volume of CellSize bytes each; the last one may be shorter.
	Cells    []Cell
	CellSize int64
	Totals   Totals

	// Exact means that the totals of gaps and overlaps are exact because the spans were sorted by
	// offset. Otherwise they were derived from cells, where a gap and an overlap in the same cell
	// cancel each other out. Without overlaps they are exact in any case.
	Exact bool
}

// Totals has the size of each Use. A byte is counted once, however many spans cover it: without
// Overlap, the sum is the size of the volume.
type Totals [useCount]Share

// A Share is the number of bytes of a use, and the number of its spans. Gaps and overlaps have no
// spans.
type Share struct {
	Bytes int64 `json:"bytes"`
	Spans int64 `json:"spans,omitempty"`
}

// A Cell is a part of a volume. The sum of its bytes, without those of Overlap, is its length.
type Cell struct {
	Bytes [useCount]int64
	Spans int64 // number of spans that touch it
}

func (v *VolumeMap) length(i int) int64 {
	return min(v.CellSize, v.Size-int64(i)*v.CellSize)
}

// mix returns the approximate uses of bytes [from, to), assuming that the uses of a cell are
// spread evenly over it.
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

// mix is the number of bytes of each use.
type mix [useCount]float64

// shares returns the share of each use, with a sum of 1, and the share that is covered several
// times, at most 1.
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

// mixed means more than one use.
const mixed = Use(useCount)

// only returns the only use in m, or mixed.
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
