package caf

import (
	"cmp"
	"slices"
)

// ends reports whether end_byte is the offset after the last byte of a file, or that of the last
// byte.
type ends uint8

const (
	exclusive ends = iota
	inclusive
	ambiguous // it could be either: files are listed but not read
)

func (e ends) String() string { return [...]string{"exclusive", "inclusive", "ambiguous"}[e] }

// endsOf returns the user's setting for an archive; said is false if there is none.
func endsOf(param string) (e ends, said bool) {
	if param == "inclusive" {
		return inclusive, true
	}
	return exclusive, param != ""
}

// couldBeInclusive is a cheap test. With exclusive ends, the last file ends where the index
// begins; with inclusive ends, one byte before that.
func couldBeInclusive(maxEnd, dataLen int64) bool {
	return maxEnd == dataLen-1
}

// decideEnds decides for rows for which couldBeInclusive is true. Ends are inclusive only if the
// files then cover the data without a gap, and if that is unlikely to be chance. A single file
// that ends a byte early proves nothing, unless the index has the trailing commas of the same
// example.
func decideEnds(rows []record, dataLen int64, trailingCommas bool) ends {
	inRange := make([]span, 0, len(rows))
	full := 0
	for _, r := range rows {
		if inData(r.span, r.odd, dataLen) != noEndYet {
			inRange = append(inRange, r.span)
			if r.end >= r.start {
				full++
			}
		}
	}
	slices.SortFunc(inRange, func(a, b span) int {
		return cmp.Or(cmp.Compare(a.start, b.start), cmp.Compare(a.end, b.end))
	})
	var next int64
	for _, r := range inRange {
		if r.start != next {
			return ambiguous
		}
		next = r.end + 1
	}
	if next == dataLen && (full != 1 || trailingCommas) {
		return inclusive
	}
	return ambiguous
}
