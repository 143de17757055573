package caf

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/formatkit"
	"github.com/holdall/holdall/store"
)

// repair plans a strict index behind data that stays as it is. It
//
//  1. takes the index that the footer names, if it can be read;
//  2. else looks backwards through the object for one: the last whose files end
//     where it begins proves itself, one that breaks off or is damaged within
//     gives its whole rows, and so does that which the footer names if its
//     beginning is damaged;
//  3. moves files that lie elsewhere than their rows say, if their digests
//     prove where;
//  4. cuts rows to the data that is there, and says what that loses.
func repair(ctx context.Context, st store.Store, name string, o format.OpenOptions, report func(format.Problem)) (format.Plan, error) {
	if err := verify(ctx, st, name, o, report); err != nil {
		return format.Plan{}, err
	}
	said, isSaid := endsOf(o.Param["ends"])
	obj, tail, size, err := formatkit.OpenPart(ctx, st, name, footerLen, store.ReadTail)
	if err != nil {
		return format.Plan{}, err
	}
	defer obj.Close()
	m := &mender{ctx: ctx, obj: obj, name: name, size: size, limits: o.Limits.OrDefault(), said: said, isSaid: isSaid, budget: 8*size + 64<<20}
	return m.plan(tail)
}

// mender is the state of one repair.
type mender struct {
	ctx    context.Context
	obj    store.Object
	name   string
	size   int64
	limits format.Limits
	said   ends
	isSaid bool

	t    *table // the rows that will be written
	end  int64  // where the data ends, and the new index begins
	p    format.Plan
	work int64 // bytes that scans of candidates may still read

	searched int64 // bytes hashed in the search for files that lie elsewhere
	budget   int64 // bytes that comparing digests may still read
	tired    bool  // the budget was not enough
}

func (m *mender) fetch(p []byte, off int64) error { return m.obj.ReadAt(m.ctx, p, off) }

func (m *mender) plan(tail []byte) (format.Plan, error) {
	named, err := m.namedIndex(tail)
	if err != nil {
		return format.Plan{}, err
	}
	if !named {
		err := m.find()
		if err == nil && m.t == nil {
			err = m.restOfNamed(tail)
			named = m.t != nil
		}
		if err != nil {
			return format.Plan{}, err
		}
	}
	if m.t == nil {
		return format.Plan{}, &format.CorruptError{Format: "caf", Problem: format.Problem{
			Code: format.MissingIndex, Class: "no-index", Severity: format.Error, Volume: m.name, Off: -1,
			Message: fmt.Sprintf("found neither an index nor index rows in %d bytes: names and offsets of the files are lost", m.size),
		}}
	}
	if m.t.ends == ambiguous {
		return format.Plan{}, m.t.ambiguousError()
	}
	changed := !named || len(m.t.damaged) > 0 || m.t.top.unproven || m.t.top.trailingCommas > 0 || m.t.top.duplicateKeys > 0 || m.t.ends == inclusive || len(m.t.shadowed) > 0 || m.oddRows()
	moved, err := m.move()
	if err != nil {
		return format.Plan{}, err
	}
	cut := m.cut()
	if !changed && !moved && !cut {
		return m.p, nil
	}
	m.explain(named)
	m.p.Edits = []format.Edit{{Object: m.name, Off: m.end, Len: m.size - m.end, Write: func(w io.Writer) error {
		if m.t.lastEnd() == m.end-1 {
			// A row that is gone may have been all that proved ends exclusive.
			// With a byte more of data the others cannot be read otherwise.
			if _, err := w.Write([]byte{'\n'}); err != nil {
				return err
			}
		}
		return m.t.writeIndex(w)
	}}}
	return m.p, nil
}

func (t *table) ambiguousError() error {
	f := &fault{"ambiguous-ends", t.dataLen, "cannot tell whether end_byte is inclusive: set --caf-ends=inclusive or exclusive"}
	return corrupt(t.volume, f)
}

// namedIndex takes the index where the footer says it is. False means that
// there is none, or that it is not whole.
func (m *mender) namedIndex(tail []byte) (bool, error) {
	off, n, f := parseFooter(tail, m.size)
	if f != nil || n > m.limits.Index {
		return false, nil
	}
	t := m.newTable(off)
	s := scanRange(m.fetch, off, off+n, m.limits.Depth, t.add)
	if err := s.scan(); err != nil {
		if _, ok := errors.AsType[*fault](err); ok {
			return false, nil
		}
		return false, err
	}
	if f := checkVersion(s.top.version, off); f != nil && f.class == "version" {
		return false, corrupt(m.name, f) // not ours to change
	}
	t.top = s.top
	t.finish(m.said, m.isSaid)
	m.t, m.end = t, off
	return true, nil
}

// restOfNamed takes what is left of the index that the footer names, if its beginning is
// damaged.
func (m *mender) restOfNamed(tail []byte) error {
	off, n, f := parseFooter(tail, m.size)
	if f != nil || n > m.limits.Index {
		return nil
	}
	t := m.newTable(off)
	s := scanRange(m.fetch, off, off+n, m.limits.Depth, t.add)
	err := s.rest()
	if _, isFault := errors.AsType[*fault](err); err != nil && !isFault && err != errSalvaged {
		return err
	}
	if t.finish(m.said, m.isSaid); len(t.rows) > 0 && t.maxEnd >= 0 {
		t.damaged = s.damaged
		m.t, m.end, m.p.Partial = t, off, true
	}
	return nil
}

func (m *mender) newTable(dataLen int64) *table {
	return &table{volume: m.name, dataLen: dataLen, maxEnd: noEndYet}
}

// marks are how an index can begin, apart from white space.
var marks = [][]byte{[]byte(`"format_version"`), []byte(`"files"`)}

const (
	findBlock   = 1 << 20
	findOverlap = 256    // a mark and the white space before it, at most
	maxFinds    = 10_000 // places tried: data may be full of what looks like an index
)

// find looks for an index from the end of the object backwards.
func (m *mender) find() error {
	buf := make([]byte, min(findBlock+findOverlap, m.size))
	tried := 0
	m.work = 4*m.size + findBlock
	var partial *table
	for end := m.size; end > 0 && tried < maxFinds; end -= findBlock {
		if m.ctx.Err() != nil {
			return context.Cause(m.ctx)
		}
		start := max(0, end-findBlock)
		b := buf[:min(m.size, end+findOverlap)-start]
		if err := m.fetch(b, start); err != nil {
			return err
		}
		for i := len(b) - 1; i >= 0 && tried < maxFinds && m.work > 0; i-- {
			if b[i] != '{' || start+int64(i) >= end || !beginsIndex(b[i:]) {
				continue
			}
			tried++
			t, whole, err := m.try(start + int64(i))
			if err != nil {
				return err
			}
			if t == nil {
				continue
			}
			if whole {
				m.t, m.end = t, start+int64(i)
				return nil
			}
			if partial == nil {
				partial = t
			}
		}
	}
	if partial != nil {
		m.t, m.end = partial, partial.dataLen
		m.p.Partial = true
		if len(partial.damaged) == 0 {
			m.p.Lost = append(m.p.Lost, "everything in the index after its last complete row")
		}
	}
	return nil
}

func beginsIndex(b []byte) bool {
	b = bytes.TrimLeft(b[1:], " \t\r\n")
	for _, mark := range marks {
		if bytes.HasPrefix(b, mark) {
			return true
		}
	}
	return false
}

// try reads what begins at off as an index. It is whole if nothing in it is
// damaged and its files end where it begins, or digests prove where they are;
// nil if it has nothing to give.
func (m *mender) try(off int64) (_ *table, whole bool, _ error) {
	t := m.newTable(off)
	limit := min(m.size, off+m.limits.Index)
	s := scanRange(m.fetch, off, limit, m.limits.Depth, t.add)
	s.salvage = true
	err := s.scan()
	m.work -= s.at() - off
	if _, isFault := errors.AsType[*fault](err); err != nil && !isFault && err != errSalvaged {
		return nil, false, err
	}
	t.top, t.damaged = s.top, s.damaged
	broken := err != nil || len(s.damaged) > 0
	if broken && (!s.top.hasFiles || len(t.rows) == 0) {
		return nil, false, nil
	}
	t.finish(m.said, m.isSaid)
	switch {
	case broken:
		// Rows must at least lie within what is before the index.
		if t.maxEnd < 0 {
			return nil, false, nil
		}
		return t, false, nil
	case t.ends == inclusive || t.maxEnd == off || len(t.rows) == 0 && off == 0:
		return t, true, nil
	case t.ends == ambiguous && t.maxEnd == off-1:
		return t, true, nil // it is the right one; it is refused later
	}
	// An index of an archive that lies within this one looks the same, only
	// that its files are elsewhere: without proof it is not ours.
	if proven, err := m.proven(t); err != nil || !proven {
		return nil, false, err
	}
	return t, true, nil
}

// proven reports whether every file's digest is right at its place, or all are
// after the same move.
func (m *mender) proven(t *table) (bool, error) {
	if len(t.rows) == 0 || len(t.digests) == 0 {
		return false, nil
	}
	for _, by := range []int64{0, t.dataLen - t.maxEnd} {
		ok, err := m.allRight(t, by)
		if err != nil || ok {
			return ok, err
		}
	}
	return false, nil
}

// oddRows reports whether any row must be written differently from how it is.
func (m *mender) oddRows() bool {
	return slices.ContainsFunc(m.t.rows, func(r record) bool { return r.odd&(unreadable|badDigest) != 0 || m.t.rowFault(r) != nil })
}

// cut takes out rows that have no data, and shortens those whose data breaks
// off. It says whether it changed any.
func (m *mender) cut() bool {
	t := m.t
	var keep []uint32
	changed := false
	for i, r := range t.rows {
		f := t.rowFault(r)
		name := format.Escape(t.Name(i))
		switch {
		case f == nil:
			keep = append(keep, uint32(i))
			continue
		case f.class == "range-beyond" && r.start < t.dataLen && r.start >= t.maxEnd:
			// The data breaks off within it. One that begins before the end of
			// others is not cut off, it is wrong.
			m.p.Lost = append(m.p.Lost, fmt.Sprintf("%s: the last %d of its %d bytes", name, r.end-t.dataLen, r.end-r.start))
			t.rows[i].end = t.dataLen
			t.forgetDigest(i)
			t.objects.forgetETag(i)
			keep = append(keep, uint32(i))
		default:
			m.p.Lost = append(m.p.Lost, fmt.Sprintf("%s: %s", name, f.msg))
		}
		changed = true
		m.p.Partial = true
	}
	if len(keep) < len(t.rows) {
		t.pick(keep)
	}
	return changed
}

func (t *table) forgetDigest(i int) {
	if len(t.digests) > 0 {
		copy(t.digests[i*digestLen:], noDigest[:])
	}
}

// explain says what the plan does.
func (m *mender) explain(named bool) {
	t := m.t
	note := func(format string, args ...any) { m.p.Notes = append(m.p.Notes, fmt.Sprintf(format, args...)) }
	if !named {
		note("found an index with %d files at byte %d, which the footer does not point to", len(t.rows), m.end)
	}
	for _, d := range t.damaged {
		m.p.Lost = append(m.p.Lost, fmt.Sprintf("rows of the index at byte %d: %s", d.off, d.msg))
	}
	if t.ends == inclusive {
		note("made end_byte exclusive in all rows")
	}
	if t.top.unproven {
		note("the index does not match its digest: names and offsets are kept unchanged")
	}
	if t.top.trailingCommas > 0 {
		note("removed %d trailing commas", t.top.trailingCommas)
	}
	if len(t.shadowed) > 0 {
		note("removed %d rows that later ones replace; their bytes stay", len(t.shadowed))
	}
	unnamed := int64(0)
	for _, gap := range t.gaps() {
		unnamed += gap.To - gap.From
	}
	if m.p.Partial && unnamed > 0 {
		m.p.Lost = append(m.p.Lost, fmt.Sprintf("the names of %d bytes of data; the data stay in place", unnamed))
	}
	note("wrote a new index of %d files and a footer at byte %d", len(t.rows), m.end)
}

// lastEnd returns where the last content ends.
func (t *table) lastEnd() int64 {
	end := int64(noEndYet)
	for _, r := range t.rows {
		end = max(end, r.end)
	}
	return end
}

// writeIndex writes index and footer, in the strict form.
func (t *table) writeIndex(w io.Writer) error {
	plain := len(t.digests) == 0 && t.top.writer != writer
	text := newIndexText(plain, func(b []byte) error {
		_, err := w.Write(b)
		return err
	})
	b := appendHead(nil, t.top.members(), plain)
	for i, r := range t.rows {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendRow(b, t.Name(i), r.start, r.end, t.digest(i), t.extra[uint32(i)], t.objects.at(i).appendTo(nil))
		if len(b) >= 64<<10 {
			if err := text.add(b); err != nil {
				return err
			}
			b = b[:0]
		}
	}
	if err := text.add(b); err != nil {
		return err
	}
	if err := text.end(); err != nil {
		return fmt.Errorf("%s: %w", t.volume, err)
	}
	return nil
}
