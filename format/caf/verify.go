package caf

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/kit"
	"github.com/holdall/holdall/format/kit/naming"
	"github.com/holdall/holdall/store"
)

func verify(ctx context.Context, st store.Store, name string, o format.OpenOptions, report func(format.Problem)) error {
	r, err := openReader(ctx, st, name, o)
	var t *table
	if err == nil {
		defer r.Close()
		t, err = r.load(ctx)
	}
	if err != nil {
		return kit.Reported(err, report)
	}
	t.notes(report)
	t.checkRows(report)
	t.checkNames(r.index, report)
	if t.ends != ambiguous {
		if t.top.log != "" && o.Quick && !st.Can().Near {
			t.frames.Add(0, t.dataLen) // frames lie between all contents, and reading them would read all
		} else if err := r.explain(ctx, t); err != nil {
			return err
		}
		t.checkPlaces(report)
	}
	return t.checkSet(ctx, st, o, report)
}

func (t *table) report(report func(format.Problem), sev format.Severity, class string, off int64, entry *string, msg string, args ...any) {
	p := (&fault{class, off, fmt.Sprintf(msg, args...)}).problem(t.volume)
	p.Severity = sev
	if entry != nil {
		p.Entry, p.HasEntry = *entry, true
	}
	report(p)
}

// notes reports what is unusual about the index as a whole, and what was assumed.
func (t *table) notes(report func(format.Problem)) {
	if f := checkVersion(t.top.version, t.dataLen); f != nil {
		t.report(report, format.Warning, f.class, f.off, nil, "%s: read as 1.0", f.msg)
	}
	switch t.ends {
	case inclusive:
		t.report(report, format.Warning, "inclusive-ends", t.dataLen, nil,
			"end_byte is inclusive here: only then do the files fill the data without gaps")
	case ambiguous:
		t.report(report, format.Error, "ambiguous-ends", t.dataLen, nil,
			"the last file ends one byte before the index: cannot tell whether end_byte is inclusive; set --caf-ends=inclusive or exclusive")
	}
	if t.top.unproven {
		report(doubt(t.volume, t.dataLen))
	}
	if n := t.top.trailingCommas; n > 0 {
		t.report(report, format.Warning, "trailing-comma", t.top.trailingCommaOff, nil, "%d trailing commas in the index: other readers refuse it", n)
	}
	if n := t.top.duplicateKeys; n > 0 {
		t.report(report, format.Warning, "duplicate-key", t.top.duplicateKeyOff, nil, "%d duplicate keys in objects of the index: the last counts", n)
	}
}

// doubt returns the problem that an index does not match its digest.
func doubt(volume string, off int64) format.Problem {
	return (&fault{"index-digest", off, "the index is damaged: it does not match its digest, so names and offsets may be wrong"}).problem(volume)
}

// checkRows reports rows that cannot be read or are replaced by later ones, and names that were
// damaged by an earlier program.
func (t *table) checkRows(report func(format.Problem)) {
	for i, r := range t.rows {
		name := t.Name(i)
		if f := t.rowFault(r); f != nil && t.ends != ambiguous {
			t.report(report, format.Error, f.class, f.off, &name, "%s", f.msg)
		}
		t.checkOddName(r, name, report)
		if r.odd&badDigest != 0 {
			p := format.Problem{Code: format.BadIndex, Severity: format.Warning, Volume: t.volume, Off: -1,
				Entry: name, HasEntry: true, Message: `"blake3" is not 64 hexadecimal digits: ignored`}
			report(p)
		}
	}
	for _, r := range t.shadowed {
		name := t.nameOf(r)
		t.report(report, format.Warning, "duplicate-name", r.start, &name, "duplicate name: this entry, bytes %d to %d, is replaced by a later one", r.start, r.end)
		t.checkOddName(r, name, report)
	}
}

func (t *table) checkOddName(r record, name string, report func(format.Problem)) {
	switch {
	case r.odd&notUTF8 != 0:
		t.report(report, format.Warning, "name-utf8", -1, &name, "the name is not valid UTF-8: other readers replace the invalid bytes")
	case r.odd&loneSurrogate != 0:
		t.report(report, format.Warning, "lone-surrogate", -1, &name, "the name has half a surrogate pair, read as U+FFFD")
	case r.odd&replaced != 0:
		t.report(report, format.Warning, "replacement-character", -1, &name, "the name contains U+FFFD: its writer replaced bytes that are not UTF-8")
	}
}

// checkNames reports names that are not extracted: unsafe ones, and those below a file.
func (t *table) checkNames(x *kit.Index, report func(format.Problem)) {
	lastDir, lastConflict := "", ""
	for i, r := range t.rows {
		name := t.Name(i)
		if class := naming.Fault(name); class != "" {
			t.report(report, format.Warning, class, -1, &name, "the name is not extracted: %s", naming.Advice(class))
			continue
		}
		// Neighbours usually have the same directory, so each directory is looked up once.
		slash := strings.LastIndexByte(name, '/')
		if slash < 0 {
			continue
		}
		dir := name[:slash]
		if dir != lastDir {
			lastDir, lastConflict = dir, x.FileAbove(name)
		}
		if lastConflict != "" {
			t.reportConflict(x, r, name, lastConflict, report)
		}
	}
}

// reportConflict reports the later, in stored order, of a file and another file that needs the
// first one to be a directory.
func (t *table) reportConflict(x *kit.Index, r record, name, above string, report func(format.Problem)) {
	e, err := x.Lookup(context.Background(), above)
	start, ok := e.Ref.(int64)
	if err != nil || !ok {
		return
	}
	if start > r.start {
		name, above = above, name
	}
	t.report(report, format.Warning, "name-conflict", -1, &name, "%q is a file, but this name needs a directory there, or vice versa: the entry stored first is extracted", above)
}

// checkPlaces reports bytes that belong to two files or to none. Files that share all their bytes
// are equal, and are only counted.
func (t *table) checkPlaces(report func(format.Problem)) {
	var furthest, last record
	for i, r := range t.rows {
		if r.end == r.start || t.rowFault(r) != nil {
			continue
		}
		name := t.Name(i)
		switch {
		case r.span == last.span:
		case r.start < furthest.end:
			t.report(report, format.Warning, "overlap", r.start, &name, "begins at %d, within %q, which ends at %d", r.start, t.nameOf(furthest), furthest.end)
		}
		if last = r; r.end > furthest.end {
			furthest = r
		}
	}
	if n, bytes := t.shared(); n > 0 {
		t.report(report, format.Note, "shared", -1, nil, "%d files share all their bytes with another file, %d bytes in total", n, bytes)
	}
	for _, gap := range t.gaps() {
		n := gap.To - gap.From
		if gap.To == t.dataLen {
			t.report(report, format.Warning, "tail-gap", gap.From, nil,
				"%d bytes before the index belong to no file: bytes were inserted at the start, or a writer miscounted; ranges may be wrong", n)
			continue
		}
		t.report(report, format.Note, "gap", gap.From, nil, "%d bytes belong to no file", n)
	}
}

// shared returns the number of files with the same place as an earlier file, and their bytes.
func (t *table) shared() (n int, bytes int64) {
	var last record
	for _, r := range t.rows {
		if r.end == r.start || t.rowFault(r) != nil {
			continue
		}
		if r.span == last.span {
			n, bytes = n+1, bytes+r.end-r.start
		}
		last = r
	}
	return n, bytes
}

// gaps returns the runs of data that no row covers, including replaced rows and what a log explains.
func (t *table) gaps() []kit.Range {
	used := kit.Ranges{All: slices.Concat(t.frames.All, t.dead.All)}
	for _, rows := range [][]record{t.rows, t.shadowed} {
		for _, r := range rows {
			if t.rowFault(r) == nil {
				used.Add(r.start, r.end)
			}
		}
	}
	used.Join()
	return used.Gaps(0, t.dataLen)
}
