package audit

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/oak/internal/segment"
	"github.com/holdall/holdall/internal/oak/internal/tarfile"
	"github.com/holdall/holdall/store"
)

// Segments checks the segments of tar i and the headers before them, and compares graph and
// references to binaries with them. It scans a tar without an index. It returns an error only if
// the source fails.
func (a *Audit) Segments(ctx context.Context, i int, report func(Problem)) error {
	var m Memory
	for _, p := range a.Parts(i) {
		err := p.Check(ctx, &m)
		p.Tell(report)
		if err != nil {
			return err
		}
	}
	return nil
}

// A Part is some of the segments of a tar, which Check checks. Parts may be checked in parallel. Tell
// then reports what was found; it must be called in order, for all parts of a tar.
type Part struct {
	of      *tarCheck
	entries []uint32 // none of a tar without an index, which is scanned
	last    bool

	t       *teller
	found   []Problem
	wrong   bool // the graph
	changed bool
}

// A tarCheck is what the parts of a tar have in common.
type tarCheck struct {
	a *Audit
	x *unit
	t *teller

	recorded func(context.Context) (recorded, error) // reads it once
	changed  bool
}

// partLen is how many bytes of segments are checked at once.
const partLen = 8 << 20

// Parts returns the parts of tar i.
func (a *Audit) Parts(i int) []*Part { return a.parts(i, partLen) }

func (a *Audit) parts(i, length int) (parts []*Part) {
	c := &tarCheck{a: a, x: a.tars[i], t: newTeller(nil)}
	if c.x.t == nil {
		if c.x.damage == nil {
			parts = append(parts, &Part{of: c, last: true})
		}
		return parts
	}
	var once sync.Once
	var r recorded
	var err error
	c.recorded = func(ctx context.Context) (recorded, error) {
		once.Do(func() { r, err = c.x.recorded(ctx) })
		return r, err
	}
	order := c.x.ByPosition()
	for from, n, k := 0, 0, 0; k < len(order); k++ {
		if n += c.x.At(int(order[k])).Len; n >= length || k == len(order)-1 {
			parts = append(parts, &Part{of: c, entries: order[from : k+1]})
			from, n = k+1, 0
		}
	}
	parts[len(parts)-1].last = true // an index has at least one entry
	return parts
}

// Tell reports what was found.
func (p *Part) Tell(report func(Problem)) {
	c := p.of
	c.x.wrongGraph = c.x.wrongGraph || p.wrong
	c.t.report = report
	if !c.changed {
		c.t.add(p.t, p.found)
	}
	c.changed = c.changed || p.changed
	p.found, p.t = nil, nil
	if p.last {
		c.t.end()
		c.recorded = nil
	}
}

// Memory is used again for each part. It is for one goroutine.
type Memory struct {
	window []byte
	check  segment.Checker
}

// Check checks the part. It returns an error only if the source fails.
func (p *Part) Check(ctx context.Context, m *Memory) error {
	p.t = newTeller(func(q Problem) { p.found = append(p.found, q) })
	a, x := p.of.a, p.of.x
	if x.t == nil {
		return x.scan(ctx, p.t, x.Number == a.tars[0].Number, a.isWritten(x))
	}
	r, err := p.of.recorded(ctx)
	if err != nil {
		return p.failed(-1, err)
	}
	c := segmentsCheck{x: x, t: p.t, m: m, compare: newComparison(a, x, p.t, r)}
	c.find = func(p tarfile.Problem) { c.found = append(c.found, p) }
	c.record = c.records
	w := window{obj: x.obj, size: x.t.Size(), b: m.window[:0]}
	defer func() { p.wrong, m.window = c.compare.wrongGraph, w.b }()
	for _, k := range p.entries {
		e := x.At(int(k))
		whole := e.Whole()
		if whole.Off < 0 || e.Len > tarfile.MaxSegment || whole.Off+whole.Len > w.size {
			continue // reported by Tail
		}
		b, err := w.at(ctx, whole.Off, int(whole.Len))
		if err != nil {
			return p.failed(whole.Off, err)
		}
		if err := c.entry(ctx, int(k), e, b); err != nil {
			return err
		}
	}
	return nil
}

func (p *Part) failed(off int64, err error) error {
	if err = p.of.x.changed(p.t, off, err); err == nil {
		p.changed = true
	}
	return err
}

// changed reports that a file has changed during the check. It returns other errors.
func (x *unit) changed(t *teller, off int64, err error) error {
	if errors.Is(err, store.ErrChanged) {
		t.about(UnknownFile, Error, x.Name, off, "changed while it was read")
		return nil
	}
	return err
}

type segmentsCheck struct {
	x       *unit
	t       *teller
	m       *Memory
	compare *comparison
	e       tarfile.Entry     // the entry being checked
	found   []tarfile.Problem // of header, checksum, padding and segment: a few
	// This is shared by all entries, because a closure for each costs more than most checks.
	find   func(tarfile.Problem)
	record func(segment.Problem)
}

// entry checks one entry: b is header, segment and zeros.
func (c *segmentsCheck) entry(ctx context.Context, k int, e tarfile.Entry, b []byte) error {
	data := b[tarfile.BlockSize:][:e.Len]
	c.e, c.found = e, c.found[:0]
	sound := c.x.t.CheckBytes(k, b, c.find)
	_, head := segment.ParseHead(data)
	readable := head || !e.ID.IsData()
	for _, p := range c.found {
		switch p.Class {
		case tarfile.BadChecksum:
			if !readable {
				p.What += "; and the bytes there are not a segment"
			}
			c.x.pass(c.t, BadChecksum, Error, p)
		case tarfile.BadSegment:
			switch {
			case !sound: // already reported as such
			case !readable:
				c.x.pass(c.t, BadSegment, Error, p)
			default:
				c.x.pass(c.t, BadGeneration, Warning, p)
			}
		case tarfile.BadPadding:
			c.x.pass(c.t, BadPadding, Warning, p)
		default:
			severity := Warning
			if !sound {
				severity = Error // the segment may be unproven
			}
			c.x.pass(c.t, BadHeader, severity, p)
		}
	}
	if !e.ID.IsData() || !sound || !readable {
		return nil
	}
	s, err := segment.Parse(e.ID, data)
	if err != nil {
		c.t.of(BadSegment, Error, c.x.Name, e.Pos, e.ID, "%v", err)
		return nil
	}
	c.m.check.Check(s, c.record)
	if c.compare.graph != nil {
		c.compare.edges(e, s)
	}
	if c.compare.refs != nil {
		return c.compare.binaries(ctx, e, s)
	}
	return nil
}

// records reports what is wrong with the records of a segment whose checksum is correct. They
// were written like that.
func (c *segmentsCheck) records(p segment.Problem) {
	s := Error
	switch p.Code {
	case segment.BadReserved, segment.UnusedRef, segment.RowGap, segment.GapBytes, segment.Hole, segment.BadInfo:
		s = Note
	case segment.BadSize, segment.SelfRef, segment.DuplicateRef, segment.OddRef:
		s = Warning
	}
	what := fmt.Sprintf("%s: %s", p.Code, p.What)
	if p.Record >= 0 {
		what = fmt.Sprintf("%s: record %d: %s", p.Code, p.Record, p.What)
	}
	c.t.of(BadRecords, s, c.x.Name, c.e.Pos+max(p.Off, 0), c.e.ID, "%s", what)
}

// windowLen is read at once. An entry that begins at its end fits after it.
const windowLen = 1 << 20

type window struct {
	obj  store.Object
	size int64
	b    []byte
	off  int64
}

// at returns n bytes, which are valid until the next call.
func (w *window) at(ctx context.Context, off int64, n int) ([]byte, error) {
	end := w.off + int64(len(w.b))
	if off < w.off || off+int64(n) > end {
		if w.b == nil {
			w.b = make([]byte, 0, windowLen)
		}
		b := w.b[:min(int64(cap(w.b)), w.size-off)]
		have := 0
		if off >= w.off && off < end {
			have = copy(b, w.b[off-w.off:])
		}
		w.b = w.b[:0] // empty, if the read fails
		if err := w.obj.ReadAt(ctx, b[have:], off+int64(have)); err != nil {
			return nil, err
		}
		w.b, w.off = b, off
	}
	return w.b[off-w.off:][:n], nil
}

// scan finds the segments of a tar that a recovery would find.
func (x *unit) scan(ctx context.Context, t *teller, newest, written bool) error {
	var found []tarfile.Entry
	refs := map[tarfile.ID]tarfile.IDs{}
	report := func(p tarfile.Problem) {
		if written && p.Class == tarfile.Truncated {
			return
		}
		s := Error
		if newest && p.Class == tarfile.Truncated {
			s = Warning // it was just being written; Across reports it if a revision needs it
		}
		x.pass(t, Unrecoverable, s, p)
	}
	info, err := x.obj.Info(ctx)
	if err != nil {
		return x.changed(t, 0, err)
	}
	for s, err := range tarfile.Scan(ctx, x.obj, info.Size, report) {
		if err != nil {
			return x.changed(t, s.DataPos, err)
		}
		if s.Mask != 0 {
			continue // Oak does not correct it
		}
		e := tarfile.Entry{ID: s.ID, Pos: s.DataPos, Len: s.Len}
		if s.ID.IsData() {
			h, ok := segment.ParseHead(s.Data)
			if !ok {
				t.of(BadSegment, Error, x.Name, s.DataPos, s.ID, "segment: begins with %x, expected the header of a data segment; with it Oak recovers nothing of this tar", s.Data[:min(len(s.Data), 4)])
			}
			e.Generation, refs[s.ID] = h.Generation, bytes.Clone(h.Refs)
		}
		found = append(found, e)
	}
	if len(found) == 0 && !written && x.Size > 2*tarfile.BlockSize {
		t.about(EmptyTar, Error, x.Name, 0, "file: %d bytes, expected a segment", x.Size)
	}
	x.Index, x.refs = tarfile.NewIndex(found), refs
	return nil
}

// Tail checks the parts at the end of tar i: index, graph and references to binaries. It reads no
// segments. It returns an error only if the source fails.
func (a *Audit) Tail(ctx context.Context, i int, report func(Problem)) error {
	x := a.tars[i]
	t := newTeller(report)
	defer t.end()
	if x.t == nil {
		x.noIndex(t, x.Number == a.tars[0].Number, a.isWritten(x))
		return nil
	}
	var gaps []tarfile.Problem
	var damaged bool
	l, err := x.t.CheckLayout(ctx, func(p tarfile.Problem) {
		switch p.Class {
		case tarfile.Gap:
			gaps = append(gaps, p) // at most one more than the number of segments
		case tarfile.BadGraph, tarfile.BadBinaries, tarfile.Truncated, tarfile.Limit:
			damaged = damaged || !p.HasSegment && p.Len == 0
			x.part(t, p)
		default:
			x.tail(t, p)
		}
	})
	if err != nil {
		return x.changed(t, -1, err)
	}
	for _, p := range gaps {
		// A graph that cannot be read looks like a gap.
		if !damaged || p.Off+p.Len != l.Index.Off {
			x.tail(t, p)
		}
	}
	return nil
}

// noIndex reports a tar without an index. If it is the newest tar, usually it was not closed.
func (x *unit) noIndex(t *teller, newest, written bool) {
	if x.damage != nil {
		t.about(UnknownFile, Error, x.Name, -1, "%v", x.damage)
		return
	}
	unfinished := x.none.Reason == tarfile.UnknownMagic || x.none.Reason == tarfile.LengthNotBlocks || x.none.Reason == tarfile.TooShort
	if written && unfinished {
		return
	}
	if x.Size <= 2*tarfile.BlockSize {
		t.about(EmptyTar, Error, x.Name, 0, "file: %d bytes, expected a segment", x.Size)
		return
	}
	if newest && unfinished {
		t.about(NotClosed, Warning, x.Name, x.none.Offset, "%s", x.none.What)
		return
	}
	t.about(NoIndex, Error, x.Name, x.none.Offset, "%s", x.none.What)
}

// part reports what is wrong with graph or references. A problem without a segment and a length
// concerns the whole part.
func (x *unit) part(t *teller, p tarfile.Problem) {
	whole := !p.HasSegment && p.Len == 0
	c, s := BadGraph, Error
	switch {
	case p.Class == tarfile.Limit:
		c, s = TooLarge, Warning
	case p.Class == tarfile.BadBinaries && whole:
		c = BadBinaries
	case p.Class == tarfile.BadBinaries:
		c, s = OddBinaries, Warning
	case !whole:
		c, s = OddGraph, Warning
	}
	// Without a graph, the references are read from the segments.
	x.noGraph = x.noGraph || c == BadGraph || c == TooLarge
	x.pass(t, c, s, p)
}

func (x *unit) tail(t *teller, p tarfile.Problem) {
	switch c := p.Class; {
	case c == tarfile.Gap:
		p.What = fmt.Sprintf("%d %s", p.Len, p.What)
		x.pass(t, Gap, Warning, p)
	// The index could be read, so something unusual in the whole index is not serious.
	case c == tarfile.BadHeader, c == tarfile.BadPadding, c == tarfile.BadIndex && !p.HasSegment:
		x.pass(t, BadTail, Warning, p)
	default:
		x.pass(t, BadIndex, Error, p)
	}
}

func (x *unit) pass(t *teller, c Class, s format.Severity, p tarfile.Problem) {
	t.tell(Problem{c, s, x.Name, p.Off, p.Segment, p.HasSegment, p.What})
}
