package sstable

import (
	"bytes"
	"cmp"
	"context"
	"maps"
	"slices"
)

// Tags of the fields of a version edit.
const (
	tagComparator = 1
	tagLog        = 2
	tagNextFile   = 3
	tagLastSeq    = 4
	tagCompactAt  = 5
	tagDelete     = 6
	tagAdd        = 7
	tagPrevLog    = 9
	tagAddSeqs    = 100 // tagAdd and two sequence numbers: dacha
	tagWaterline  = 800 // of compaction: dacha
)

// maxLevel is far above the levels that are in use: LevelDB has 7.
const maxLevel = 63

// A version is the result of a manifest's edits, applied in order.
type version struct {
	num     uint64 // of the manifest
	logNum  uint64
	prevLog uint64
	hasNext bool
	edits   int
	live    map[tableID]*table
}

// tableID is the level and number of a table. A table may change its level.
type tableID struct{ level, num uint64 }

// apply applies one edit. Its deletions are applied before its additions, because LevelDB moves a
// table to another level within one edit.
func (v *version) apply(edit []byte) *Error {
	f := fields{b: edit}
	var added []*table
	for len(f.b) > 0 {
		switch tag := f.number(); tag {
		case tagComparator:
			if name := f.text(); string(name) != bytewise && !f.bad {
				return unsupportedf(-1, "manifest: comparator %q, expected %q", clip(name), bytewise)
			}
		case tagLog:
			v.logNum = f.number()
		case tagPrevLog:
			v.prevLog = f.number()
		case tagNextFile:
			f.number()
			v.hasNext = true
		case tagLastSeq, tagWaterline:
			f.number()
		case tagCompactAt:
			f.number()
			f.text()
		case tagDelete:
			delete(v.live, tableID{f.number(), f.number()})
		case tagAdd, tagAddSeqs:
			p := tableID{f.number(), f.number()}
			size := f.number()
			t := &table{num: p.num, level: int(min(p.level, maxLevel+1)),
				smallest: bytes.Clone(f.text()), largest: bytes.Clone(f.text())}
			if tag == tagAddSeqs {
				f.number()
				f.number()
			}
			if f.bad {
				break
			}
			switch {
			case p.level > maxLevel:
				return corruptf(-1, "manifest: table %d: level %d, expected at most %d", p.num, p.level, maxLevel)
			case size < footerLen || size > 1<<62:
				return corruptf(-1, "manifest: table %d: %d bytes, expected at least %d", p.num, size, footerLen)
			case len(t.smallest) < trailerLen || len(t.largest) < trailerLen || compareInternal(t.smallest, t.largest) > 0:
				return corruptf(-1, "manifest: table %d: from key %q to %q, expected two keys in order", p.num, clip(t.smallest), clip(t.largest))
			}
			t.size = int64(size)
			added = append(added, t)
		default:
			if !f.bad {
				return unsupportedf(-1, "manifest: edit %d has tag %d, which none of the known writers has", v.edits, tag)
			}
		}
	}
	if f.bad {
		return corruptf(-1, "manifest: edit %d is cut off", v.edits)
	}
	for _, t := range added {
		v.live[tableID{uint64(t.level), t.num}] = t
	}
	v.edits++
	return nil
}

// readVersion reads a manifest. It skips nothing, and a truncated end is damage too, because the
// missing edits may have replaced everything before them.
func readVersion(ctx context.Context, w *window) (*version, error) {
	if w.size > maxManifest {
		return nil, faultf(Limit, -1, "manifest: %d bytes, expected at most %d", w.size, maxManifest).at(w.name, -1)
	}
	v := &version{live: map[tableID]*table{}}
	r := logReader{w: w, report: func(e *Error) error {
		e.Class = Corrupt
		return e
	}}
	for r.next(ctx) {
		if f := v.apply(r.record); f != nil {
			return nil, f.at(w.name, r.off)
		}
	}
	if r.err == nil && !v.hasNext {
		r.fault(Corrupt, -1, "manifest: no next file number")
	}
	return v, r.err
}

// A group has the tables of one level, which are of equal age. At level 0 they may overlap; at
// other levels at most one has a given key.
type group struct {
	level    int
	overlaps bool
	tables   []*table
}

// groups sorts the tables: newer groups come before older ones. Within a group, the newer table
// comes first if tables overlap; otherwise they are sorted by key.
func (v *version) groups() (gs []group, f *Error) {
	all := slices.SortedFunc(maps.Values(v.live), func(a, b *table) int {
		return cmp.Or(cmp.Compare(a.level, b.level), compareInternal(a.smallest, b.smallest), cmp.Compare(a.num, b.num))
	})
	seen := map[uint64]bool{}
	for _, t := range all {
		if seen[t.num] {
			return nil, corruptf(-1, "manifest: table %d is at two levels", t.num)
		}
		seen[t.num] = true
		if len(gs) == 0 || gs[len(gs)-1].level != t.level {
			gs = append(gs, group{level: t.level, overlaps: t.level == 0})
		}
		g := &gs[len(gs)-1]
		if n := len(g.tables); n > 0 && compareInternal(g.tables[n-1].largest, t.smallest) >= 0 {
			g.overlaps = true
		}
		g.tables = append(g.tables, t)
	}
	for _, g := range gs {
		if g.overlaps {
			slices.SortFunc(g.tables, func(a, b *table) int { return cmp.Compare(b.num, a.num) })
		}
	}
	return gs, nil
}
