package caf

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/kit"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storekit"
)

// repair plans a strict index after the data, which does not change:
//
//   - It uses the index that the footer names, if that can be read.
//   - Otherwise it searches the object backwards for an index. The last one whose files end where
//     it begins is proven. If an index is truncated or damaged, its complete rows are used; so
//     are those of the index that the footer names if its beginning is damaged.
//   - It changes rows of files that are elsewhere, if their digests prove where.
//   - It cuts rows to the existing data, and reports what that loses.
func repair(ctx context.Context, st store.Store, name string, o format.OpenOptions, report func(format.Problem)) (format.Plan, error) {
	if err := verify(ctx, st, name, o, report); err != nil {
		return format.Plan{}, err
	}
	said, isSaid := endsOf(o.Param["ends"])
	obj, tail, size, err := kit.OpenPart(ctx, st, name, footerLen, storekit.ReadTail)
	if err != nil {
		return format.Plan{}, err
	}
	defer obj.Close()
	m := &repairer{ctx: ctx, obj: obj, name: name, size: size, limits: o.Limits.OrDefault(), said: said, isSaid: isSaid, budget: 8*size + 64<<20}
	return m.plan(tail)
}

// repairer is the state of a repair.
type repairer struct {
	ctx    context.Context
	obj    store.Object
	name   string
	size   int64
	limits format.Limits
	said   ends
	isSaid bool

	t    *table // rows of the new index
	end  int64  // where the data ends and the new index begins
	p    format.Plan
	work int64 // bytes that scans of candidates may still read

	logged bool  // t has the rows of a log
	logEnd int64 // no index before it counts, since contents of a log may look like one

	names    map[string]bool // of all files; nil until it is needed
	index    []byte          // as it is stored; nil until it is needed
	searched int64           // bytes hashed to find files that are elsewhere
	budget   int64           // bytes that comparing digests may still read
	tired    bool            // budget has been used up
}

func (m *repairer) fetch(p []byte, off int64) error { return m.obj.ReadAt(m.ctx, p, off) }

func (m *repairer) plan(tail []byte) (format.Plan, error) {
	named, err := m.namedIndex(tail)
	if err != nil {
		return format.Plan{}, err
	}
	if !named {
		log, lost, err := m.readLog()
		if err == nil {
			err = m.find()
		}
		// If a row had the header, the log would be a file of the archive.
		if err == nil && log != nil && (m.t == nil || m.p.Partial && !slices.ContainsFunc(m.t.rows, func(r record) bool { return r.start == 0 && r.end > 0 })) {
			m.t, m.end, m.logged, m.p = log, log.dataLen, true, format.Plan{Lost: lost, Partial: len(lost) > 0}
		}
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
	if moved {
		m.t.top.log = "" // its frames say otherwise
	}
	cut, err := m.cut(named && len(m.t.damaged) == 0 && !m.t.top.unproven)
	if err != nil {
		return format.Plan{}, err
	}
	if !changed && !moved && !cut {
		return m.p, nil
	}
	m.explain(named)
	m.p.Edits = []format.Edit{{Object: m.name, Off: m.end, Len: m.size - m.end, Write: func(w io.Writer) error {
		if m.t.lastEnd() == m.end-1 {
			// The only row that proved exclusive ends may be lost. One more byte of data ensures
			// that the others are not read as inclusive.
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

// namedIndex reads the index where the footer says it is. It returns false if there is none or it
// is incomplete.
func (m *repairer) namedIndex(tail []byte) (bool, error) {
	off, n, f := parseFooter(tail, m.size)
	if f != nil {
		return false, nil
	}
	if n > m.limits.Index {
		// The footer may be wrong. If it is not, a search would take the index for damaged.
		first := make([]byte, 1)
		if err := m.fetch(first, off); err != nil || first[0] != '{' {
			return false, err
		}
		return false, tooLarge(m.name, off, n, m.limits.Index)
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
		return false, corrupt(m.name, f) // it must not be changed
	}
	t.top = s.top
	t.finish(m.said, m.isSaid)
	m.t, m.end = t, off
	return true, nil
}

// readLog reads the files of a log from its batches. It returns nil if there is none, and what is lost.
func (m *repairer) readLog() (_ *table, lost []string, _ error) {
	l, err := logReader(m.ctx, m.obj, m.size, findLogBlock)
	if err != nil {
		return nil, nil, err
	}
	if l.ID == [logIDLen]byte{} {
		kit.Say(&lost, "the header of the log")
	}
	t := m.newTable(m.size)
	var last *LogBatch
	add := func(x *LogBatch) error {
		before := last
		if last = x; before == nil {
			return nil
		}
		for i := range before.Rows {
			if err := t.addLogged(&before.Rows[i]); err != nil {
				return err
			}
		}
		return nil
	}
	for x, err := range l.Batches(func(from, to int64) {
		if from > 0 {
			kit.Say(&lost, "what bytes %d to %d of the log say: older versions of files that they replace or delete may be in the result", from, to)
		}
	}) {
		if err == nil {
			err = add(x)
		}
		if err != nil {
			return nil, nil, err
		}
	}
	if l.ID == [logIDLen]byte{} {
		return nil, nil, nil
	}
	after := make([]byte, min(findLogBlock, m.size-l.End))
	if err := m.fetch(after, l.End); err != nil {
		return nil, nil, err
	}
	sealed := bytes.HasPrefix(after, []byte{'{'})
	if last != nil && !sealed {
		whole, err := l.Whole(last)
		if err != nil {
			return nil, nil, err
		}
		if !whole {
			kit.Say(&lost, "the last batch, at byte %d, with %d files: not all of its contents are whole, as after a crash before it was acknowledged", last.Off, len(last.Rows))
			l.End, last = last.Off, nil
		}
	}
	if len(bytes.Trim(after, "\x00")) > 0 && !sealed {
		kit.Say(&lost, "a batch at byte %d that is not whole, as after a crash before it was acknowledged", l.End)
	}
	if err := add(nil); err != nil {
		return nil, nil, err
	}
	t.dataLen, m.logEnd = l.End, l.End
	t.finishLogged(l.ID)
	return t, lost, nil
}

// restOfNamed reads the rest of the index that the footer names, if its beginning is damaged.
func (m *repairer) restOfNamed(tail []byte) error {
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

func (m *repairer) newTable(dataLen int64) *table {
	return &table{volume: m.name, dataLen: dataLen, maxEnd: noEndYet}
}

// marks are the possible beginnings of an index, apart from white space.
var marks = [][]byte{[]byte(`"format_version"`), []byte(`"files"`)}

const (
	findBlock   = 1 << 20
	findOverlap = 256    // longest mark with the white space before it
	maxFinds    = 10_000 // places to try, because data may be full of what looks like an index
)

// find searches for an index from the end of the object backwards.
func (m *repairer) find() error {
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

// try reads the bytes at off as an index. It returns nil if there are no rows. whole is true if
// nothing in the index is damaged and its files end where it begins, or digests prove where they
// are.
func (m *repairer) try(off int64) (_ *table, whole bool, _ error) {
	t := m.newTable(off)
	if off < m.logEnd {
		return nil, false, nil
	}
	limit := min(m.size, off+m.limits.Index)
	s := scanRange(m.fetch, off, limit, m.limits.Depth, t.add)
	s.salvage = true
	err := s.scan()
	m.work -= s.Offset() - off
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
		// Rows must at least be within the data before the index.
		if t.maxEnd < 0 {
			return nil, false, nil
		}
		return t, false, nil
	case t.ends == inclusive || t.maxEnd == off || len(t.rows) == 0 && off == 0:
		return t, true, nil
	case t.ends == ambiguous && t.maxEnd == off-1:
		return t, true, nil // it is the right index, and is refused later
	}
	// An index of an archive that is contained in this one looks the same, except that its files
	// are elsewhere. It is used only if digests prove it.
	if proven, err := m.proven(t); err != nil || !proven {
		return nil, false, err
	}
	return t, true, nil
}

// proven reports whether the digests of all files match at their places, or after the same move.
func (m *repairer) proven(t *table) (bool, error) {
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

// oddRows reports whether any row must be rewritten.
func (m *repairer) oddRows() bool {
	return slices.ContainsFunc(m.t.rows, func(r record) bool { return r.odd&(unreadable|badDigest) != 0 || m.t.rowFault(r) != nil })
}

// cut removes rows without data, and shortens those whose data is truncated. If the index is not
// sound, a file without a digest may have lost it, and its content may be wrong: it gets another
// name, unless no file has a digest, or the row still has it in some form. cut reports whether it
// changed any row.
func (m *repairer) cut(sound bool) (changed bool, err error) {
	t := m.t
	var keep []uint32
	for i, r := range t.rows {
		f := t.rowFault(r)
		name := format.Escape(t.Name(i))
		switch {
		case f == nil && !sound && r.end > r.start && len(t.digests) > 0 && t.digest(i) == "" && !strings.HasSuffix(t.Name(i), kit.DamagedSuffix):
			keep = append(keep, uint32(i))
			if mended, err := m.mendDigest(i); err != nil {
				return false, err
			} else if mended {
				changed = true
				continue
			}
			m.p.Lost = append(m.p.Lost, fmt.Sprintf("%s: its digest is lost, so its content may be wrong: it is %s", name, m.aside(i)))
		case f == nil:
			keep = append(keep, uint32(i))
			continue
		case f.class == "range-beyond" && r.start < t.dataLen && r.start >= t.maxEnd:
			// The data ends within the file. If the row begins before the end of other files, it
			// is not truncated but wrong.
			m.p.Lost = append(m.p.Lost, fmt.Sprintf("%s: the last %d of its %d bytes; the rest is %s", name, r.end-t.dataLen, r.end-r.start, m.aside(i)))
			t.rows[i].end = t.dataLen
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
	return changed, nil
}

// aside gives a file of which only a part may be left another name and no digest, and returns that
// name.
func (m *repairer) aside(i int) string {
	t := m.t
	if m.names == nil {
		m.names = make(map[string]bool, len(t.rows))
		for j := range t.rows {
			m.names[t.Name(j)] = true
		}
	}
	part := t.Name(i) + kit.DamagedSuffix
	for m.names[part] {
		part += kit.DamagedSuffix
	}
	m.names[part] = true
	t.rename(i, part)
	t.forgetDigest(i)
	t.objects.forgetETag(i)
	return format.Escape(part)
}

func (t *table) forgetDigest(i int) { t.setDigest(i, string(noDigest[:])) }

func (t *table) setDigest(i int, digest string) {
	if len(t.digests) > 0 {
		copy(t.digests[i*digestLen:], digest)
	}
}

// explain adds sentences about what the plan does.
func (m *repairer) explain(named bool) {
	t := m.t
	note := func(format string, args ...any) { m.p.Notes = append(m.p.Notes, fmt.Sprintf(format, args...)) }
	switch {
	case m.logged:
		note("took %d files from the batches of a log", len(t.rows))
	case !named:
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
	if m.p.Partial && unnamed > 0 && !m.logged {
		m.p.Lost = append(m.p.Lost, fmt.Sprintf("the names of %d bytes of data; the data stay in place", unnamed))
	}
	note("wrote a new index of %d files and a footer at byte %d", len(t.rows), m.end)
}

// lastEnd returns the end of the last content.
func (t *table) lastEnd() int64 {
	end := int64(noEndYet)
	for _, r := range t.rows {
		end = max(end, r.end)
	}
	return end
}

// writeIndex writes a strict index and the footer.
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
