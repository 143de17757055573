package caf

import (
	"cmp"
	"fmt"
	"slices"
	"unsafe"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/kit"
	"github.com/holdall/holdall/format/kit/columns"
)

// span is where a file's content is stored, as in the index or, after ends are decided,
// half-open.
type span struct{ start, end int64 }

// record is a row in memory: 32 bytes, and its name in table.names.
type record struct {
	span
	nameOff uint64
	nameLen uint32
	odd     oddity
}

// table has the rows of an index as columns, because a million entries must not take a million
// allocations.
type table struct {
	volume  string
	names   []byte
	rows    []record
	digests []byte // digestLen bytes for each row; empty if no row has one
	objects objects
	extra   map[uint32]string // by row: unknown JSON members
	dataLen int64
	ends    ends
	top     topLevel

	shadowed []record   // earlier rows of names that occur again
	frames   kit.Ranges // of a log: its header and frames
	dead     kit.Ranges // of a log: contents that later rows have replaced or deleted
	maxEnd   int64      // of rows within the data
	damaged  []fault    // places that a salvage skipped
}

func (t *table) add(r *row) error {
	if len(t.rows) == 1<<32-1 {
		return &fault{"index-size", r.off, "index: over 2^32 rows"}
	}
	rec := record{span: span{r.start, r.end}, nameOff: uint64(len(t.names)), nameLen: uint32(len(r.name)), odd: r.odd}
	t.names = append(t.names, r.name...)
	if r.digest != nil && len(t.digests) == 0 {
		t.digests = make([]byte, len(t.rows)*digestLen, max(cap(t.rows), 64)*digestLen)
	}
	if r.digest != nil {
		t.digests = append(t.digests, r.digest...)
	} else if len(t.digests) > 0 {
		t.digests = append(t.digests, make([]byte, digestLen)...)
	}
	t.objects.add(len(t.rows), &r.object)
	if r.extra != nil {
		columns.Rare(&t.extra, uint32(len(t.rows)), string(r.extra))
	}
	t.rows = append(t.rows, rec)
	t.maxEnd = max(t.maxEnd, inData(rec.span, rec.odd, t.dataLen))
	return nil
}

// noEndYet is less than any end: with inclusive ends, an empty file at the start ends at -1.
const noEndYet = -2

// inData returns the end of a row if the row is within the data, and noEndYet otherwise.
func inData(s span, odd oddity, dataLen int64) int64 {
	if odd&unreadable != 0 || s.start < 0 || s.end < s.start-1 || s.end > dataLen {
		return noEndYet
	}
	return s.end
}

// After this many rows, the length of the index shows how many more to allocate for. Before that,
// nothing is allocated because of the footer alone.
const (
	enoughToGuess = 1 << 14
	mostToGuess   = 1 << 20 // for more, append may grow the slices
)

// guess allocates memory for the rest of an index of n bytes, if the first read bytes contained
// the rows so far.
func (t *table) guess(read, n int64) {
	rows := min(int(float64(len(t.rows))*float64(n)/float64(max(read, 1))*1.01), mostToGuess)
	t.rows = slices.Grow(t.rows, max(0, rows-len(t.rows)))
	names := min(int(float64(len(t.names))*float64(n)/float64(max(read, 1))*1.05), 64*mostToGuess)
	t.names = slices.Grow(t.names, max(0, names-len(t.names)))
	if len(t.digests) > 0 {
		t.digests = slices.Grow(t.digests, max(0, rows*digestLen-len(t.digests)))
	}
	if n := len(t.objects.rows); n > 0 {
		t.objects.rows = slices.Grow(t.objects.rows, max(0, rows-n))
	}
}

// finish decides about ends and duplicates, and sorts rows into stored order.
func (t *table) finish(said ends, wasSaid bool) {
	switch {
	case wasSaid:
		t.ends = said
	case t.top.writer == writer: // it has exclusive ends only, and a byte may have been inserted
	case couldBeInclusive(t.maxEnd, t.dataLen):
		t.ends = decideEnds(t.rows, t.dataLen, t.top.trailingCommas > 0)
	}
	if t.ends == inclusive {
		for i := range t.rows {
			t.rows[i].exclude()
		}
		t.maxEnd++
	}
	t.shadow()
	slices.SortFunc(t.shadowed, byPlace)
	if !slices.IsSortedFunc(t.rows, byPlace) {
		t.sort()
	}
	if cap(t.rows) > len(t.rows)*5/4 {
		t.rows = slices.Clone(t.rows)
	}
	if cap(t.names) > len(t.names)*5/4 {
		t.names = slices.Clone(t.names)
	}
	t.objects.finish()
}

// exclude converts an end that is a file's last byte to the offset after it.
func (r *record) exclude() {
	if r.end < 1<<63-1 {
		r.end++
	} else {
		r.odd |= notInt64
	}
}

func byPlace(a, b record) int {
	return cmp.Or(cmp.Compare(a.start, b.start), cmp.Compare(a.end, b.end))
}

// shadow moves all rows of a name except the last to shadowed.
func (t *table) shadow() {
	dead := kit.NewIndex(t).Repeated()
	if len(dead) == 0 {
		return
	}
	live := make([]uint32, 0, len(t.rows)-len(dead))
	for i, r := range t.rows {
		if dead[uint32(i)] {
			t.shadowed = append(t.shadowed, r)
		} else {
			live = append(live, uint32(i))
		}
	}
	t.pick(live)
}

func (t *table) sort() {
	order := make([]uint32, len(t.rows))
	for i := range order {
		order[i] = uint32(i)
	}
	slices.SortStableFunc(order, func(a, b uint32) int { return byPlace(t.rows[a], t.rows[b]) })
	t.pick(order)
}

// pick rebuilds the columns from the given rows, in that order.
func (t *table) pick(order []uint32) {
	rows := make([]record, 0, len(order))
	var digests []byte
	if len(t.digests) > 0 {
		digests = make([]byte, 0, len(order)*digestLen)
	}
	var extra map[uint32]string
	for _, i := range order {
		if x, ok := t.extra[i]; ok {
			columns.Rare(&extra, uint32(len(rows)), x)
		}
		rows = append(rows, t.rows[i])
		if digests != nil {
			digests = append(digests, t.digests[int(i)*digestLen:][:digestLen]...)
		}
	}
	t.rows, t.digests, t.extra = rows, digests, extra
	t.objects.pick(order)
}

func (t *table) Len() int { return len(t.rows) }

func (t *table) Name(i int) string { return t.nameOf(t.rows[i]) }

// rename gives a row another name.
func (t *table) rename(i int, name string) {
	t.rows[i].nameOff, t.rows[i].nameLen = uint64(len(t.names)), uint32(len(name))
	t.names = append(t.names, name...)
}

// nameOf returns a name without copying it. names is only appended to.
func (t *table) nameOf(r record) string {
	if r.nameLen == 0 {
		return ""
	}
	return unsafe.String(&t.names[r.nameOff], int(r.nameLen))
}

var noDigest [digestLen]byte

// digest returns the digest of row i, or "" if it has none.
func (t *table) digest(i int) string {
	if len(t.digests) == 0 {
		return ""
	}
	d := t.digests[i*digestLen : (i+1)*digestLen : (i+1)*digestLen]
	if [digestLen]byte(d) == noDigest {
		return ""
	}
	return unsafe.String(&d[0], digestLen)
}

func (t *table) Entry(i int) format.Entry {
	r := t.rows[i]
	e := t.entry(r)
	if d := t.digest(i); d != "" {
		e.Digest = format.Digest{Algo: "blake3", Sum: d}
	}
	if x := t.extra[uint32(i)]; x != "" {
		e.Attr = map[string]string{extraAttr: x}
	}
	t.objects.at(i).tell(&e)
	return e
}

// extraAttr is the attribute of entries with unknown JSON members.
const extraAttr = "caf.json"

func (t *table) entry(r record) format.Entry {
	e := format.Entry{Name: t.nameOf(r), Kind: format.File}
	if f := t.rowFault(r); f != nil {
		p := f.problem(t.volume)
		p.Entry, p.HasEntry = e.Name, true
		e.Fault = &p
		return e
	}
	e.Size = r.end - r.start
	e.Ref = r.start
	return e
}

// rowFault returns why the content of a row cannot be read, or nil if it can.
func (t *table) rowFault(r record) *fault {
	switch {
	case r.odd&notInteger != 0:
		return &fault{"range-type", -1, "an offset is not a plain integer"}
	case r.odd&notInt64 != 0:
		return &fault{"range-overflow", -1, "an offset exceeds 63 bits"}
	case r.odd&noStart != 0:
		return &fault{"range-missing", -1, "start_byte is missing"}
	case r.odd&noEnd != 0:
		return &fault{"range-missing", -1, "end_byte is missing"}
	case t.ends == ambiguous:
		return &fault{"ambiguous-ends", r.start, fmt.Sprintf("end_byte %d may be inclusive or exclusive: set --caf-ends (inclusive reads bytes %d to %d, exclusive %d to %d)",
			r.end, r.start, r.end+1, r.start, r.end)}
	case r.start < 0 || r.end < r.start:
		return &fault{"range-negative", -1, fmt.Sprintf("bytes %d to %d are not a range", r.start, r.end)}
	case r.end > t.dataLen:
		return &fault{"range-beyond", min(r.start, t.dataLen), fmt.Sprintf("bytes %d to %d, but the data ends at %d", r.start, r.end, t.dataLen)}
	}
	return nil
}

// codes has the general code for each of the format's own words.
var codes = map[string]format.Code{
	"unsealed-log": format.MissingIndex, "too-short": format.Truncated, "no-index": format.MissingIndex, "index-size": format.BadIndex,
	"index-json": format.BadIndex, "index-digest": format.BadChecksum, "index-depth": format.Limit, "index-shape": format.BadIndex,
	"version": format.Unsupported, "unknown-minor-version": format.Unsupported,
	"range-negative": format.OutOfBounds, "range-beyond": format.OutOfBounds, "range-overflow": format.OutOfBounds,
	"range-missing": format.BadIndex, "range-type": format.BadIndex, "ambiguous-ends": format.BadIndex,
	"chunk-missing": format.MissingVolume,
	"gap":           format.Gap, "tail-gap": format.Gap, "overlap": format.Overlap, "shared": format.Overlap,
	"duplicate-name": format.Duplicate, "duplicate-key": format.Duplicate,
	"trailing-comma": format.BadIndex, "inclusive-ends": format.BadIndex,
	"name-utf8": format.BadIndex, "lone-surrogate": format.BadIndex, "replacement-character": format.BadIndex,
}

func (f *fault) problem(volume string) format.Problem {
	code, ok := codes[f.class]
	if !ok {
		code = format.UnsafePath // the name-* words
	}
	return format.Problem{Code: code, Class: f.class, Severity: format.Error, Volume: volume, Off: f.off, Message: f.msg}
}
