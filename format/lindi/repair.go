package lindi

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/internal/tarhead"
	"github.com/holdall/holdall/format/kit"
	"github.com/holdall/holdall/internal/base/blake3"
	"github.com/holdall/holdall/store"
)

// dropOrphans is the parameter that omits blobs to which no key refers.
const dropOrphans = "drop-orphans"

// repair plans a new archive from everything that can be recovered: entry, index and lindi.json
// at the front, then the members in their order, without gaps.
func repair(ctx context.Context, st store.Store, name string, o format.OpenOptions, report func(format.Problem)) (format.Plan, error) {
	a, err := openArchive(ctx, st, name, o)
	if err != nil {
		return format.Plan{}, err
	}
	defer a.close()
	c := &checker{a: a, report: report}
	if err := c.check(ctx); err != nil {
		return format.Plan{}, err
	}
	drop := o.Param[dropOrphans] == "true"
	r := &rebuild{a: a}
	left := c.left
	if c.repairs > 0 {
		if left, err = r.settle(ctx, left); err != nil {
			return format.Plan{}, err
		}
	}
	for i, p := range left {
		if i == 20 {
			r.lose("and %d keys more", len(left)-i)
			break
		}
		r.lose("%s: %s", format.Escape(p.Entry), p.Message)
	}
	if a.form != tarForm && c.repairs > 0 {
		r.lose("%s: nothing to rebuild it from", rfsName)
	}
	if a.form != tarForm || c.repairs == 0 && !drop {
		return format.Plan{Lost: r.lost, Partial: r.partial}, nil
	}
	if err := r.gather(ctx, drop); err != nil {
		return format.Plan{}, err
	}
	if drop && c.repairs == 0 && r.orphans == 0 {
		return format.Plan{Lost: r.lost, Partial: r.partial}, nil
	}
	return r.plan(), nil
}

// rebuild is the state of a repair.
type rebuild struct {
	a       *archive
	members []row // members that are kept, with their current places
	rfs     []byte
	lost    []string
	notes   []string
	orphans int
	partial bool
}

func (r *rebuild) lose(msg string, args ...any) {
	r.lost = append(r.lost, fmt.Sprintf(msg, args...))
	r.partial = true
}

// settle corrects the sizes of rows to those in the headers, if digests or keys agree with the
// headers. It returns the remaining problems.
func (r *rebuild) settle(ctx context.Context, left []format.Problem) ([]format.Problem, error) {
	a := r.a
	if a.form != tarForm || a.table.found {
		return left, nil
	}
	reach := map[string]int64{} // how far keys refer
	if a.rfs != nil {
		for _, x := range a.rfs.refs {
			if name, t, ok := a.rfs.inside(a.rfs.value(x)); ok && t.off < 1<<60 && t.n < 1<<60 {
				reach[name] = max(reach[name], t.off+t.n)
			}
		}
	}
	v := &view{a: a, ctx: ctx}
	settled := false
	for i, m := range a.table.list() {
		if m.o > a.size-blockLen || m.d != m.o+blockLen {
			continue
		}
		b, err := v.at(m.o, blockLen)
		if err != nil {
			return nil, err
		}
		h, ok := parseHeader(b)
		if !ok || h.name != m.name || h.size == m.s || h.size > a.size-m.d {
			continue
		}
		agreed := reach[m.name] == h.size
		if want := m.sum; !agreed && want != "" {
			hash := blake3.New()
			if _, err := io.Copy(hash, &kit.RangeReader{Ctx: ctx, Object: a.obj, Off: m.d, End: m.d + h.size}); err != nil {
				return nil, err
			}
			agreed = string(hash.Sum(nil)) == want
		}
		if !agreed {
			continue
		}
		r.notes = append(r.notes, fmt.Sprintf("%s has %d bytes by its header; the index had %d", format.Escape(m.name), h.size, m.s))
		m.s, settled = h.size, true
		*a.table.rows.At(i) = a.table.pack(m)
	}
	if settled && a.rfs != nil {
		k := keysOf(a)
		left = slices.DeleteFunc(slices.Clone(left), func(p format.Problem) bool {
			at, ok := k.byKey.find(p.Entry)
			return ok && p.Code != format.BadData && k.entry(a.rfs.refs[at]).Fault == nil
		})
	}
	return left, nil
}

// gather collects members: those in the index, and those that have only a header.
func (r *rebuild) gather(ctx context.Context, drop bool) error {
	a := r.a
	referred := map[string]bool{}
	if a.rfs != nil {
		if r.rfs = a.rfs.text; a.rfsWrong {
			r.lose("%s: does not match its digest, so keys, attributes and places may be wrong; it has no digest in the repaired archive", rfsName)
		}
		referred = (&keys{a: a}).referred()
	} else {
		r.rfs = []byte("{\n \"refs\": {\n  \".zgroup\": {\"zarr_format\": 2}\n }\n}")
		r.lose("lindi.json: no readable copy, so all keys, arrays and attributes are lost; the blobs are kept")
	}
	rows, err := r.relocated(ctx, a.table.list())
	if err != nil {
		return err
	}
	listed := rows
	known := map[string]bool{}
	for _, m := range rows {
		known[m.name] = true
	}
	if err := r.renamed(ctx, rows, known, referred); err != nil {
		return err
	}
	holed, err := r.fromHoles(ctx, known)
	if err != nil {
		return err
	}
	rows = append(rows, holed...)
	found, err := r.unlisted(ctx, rows)
	if err != nil {
		return err
	}
	for _, f := range found {
		switch {
		case f.trash || f.odd:
		case f.row.name == rfsName || f.row.name == indexName || f.row.name == entryName:
		case f.cut:
			r.lose("%s: only %d of its %d bytes exist; its writer was interrupted, and the index does not list it", f.row.name, max(0, a.size-f.d), f.s)
		case known[f.row.name]:
			r.notes = append(r.notes, fmt.Sprintf("left out %s at %d: the index lists another member with this name", f.row.name, f.o))
		default:
			rows = append(rows, f.row)
			known[f.row.name] = true
			r.notes = append(r.notes, fmt.Sprintf("added %s at %d to the index", f.row.name, f.o))
		}
	}
	// Of equal names, the last row of the index counts.
	counts := map[string]row{}
	for _, m := range listed {
		counts[m.name] = m
	}
	slices.SortStableFunc(rows, func(x, y row) int { return cmp.Compare(x.d, y.d) })
	end := int64(0)
	for _, m := range rows {
		if c, ok := counts[m.name]; ok && (c.o != m.o || c.d != m.d || c.s != m.s) {
			continue
		}
		switch {
		case m.name == entryName || m.name == indexName || m.name == rfsName:
			continue
		case a.table.fault(m) != nil:
			r.lose("%s: only %d of its %d bytes exist", m.name, min(max(0, a.size-m.d), m.s), m.s)
			continue
		case m.d < end:
			r.lose("%s: overlaps another member", m.name)
			continue
		case drop && isOrphan(m.name, referred):
			r.orphans++
			continue
		case nameFault(m.name) != "" || m.s > maxSize:
			r.lose("%s: %s", format.Escape(m.name), cmp.Or(nameFault(m.name), "too long for a tar header"))
			continue
		}
		end = m.d + m.s
		r.members = append(r.members, m)
	}
	if r.orphans > 0 {
		r.notes = append(r.notes, "left out: "+many(r.orphans, "blob")+" without a key")
	}
	return nil
}

// relocated corrects the places of rows whose headers are elsewhere, because bytes before them were
// inserted or lost, and leaves out those of members that are nowhere. Where all headers are in their
// places, it changes nothing.
func (r *rebuild) relocated(ctx context.Context, rows []row) ([]row, error) {
	a := r.a
	if a.table.found {
		return rows, nil
	}
	v := &view{a: a, ctx: ctx}
	there := func(m row) (bool, error) {
		if m.o < 0 || m.d-blockLen < m.o || m.d > a.size {
			return false, nil
		}
		b, err := v.at(m.d-blockLen, blockLen)
		if err != nil {
			return false, err
		}
		h, ok := parseHeader(b)
		return ok && h.size == m.s, nil
	}
	away := map[int]bool{}
	for i, m := range rows {
		if ok, err := there(m); err != nil {
			return nil, err
		} else if !ok {
			away[i] = true
		}
	}
	if len(away) == 0 {
		return rows, nil
	}
	w, err := a.walk(ctx, 0)
	if err != nil {
		return nil, err
	}
	at := map[string]found{}
	moved := 0
	for _, f := range w.members {
		at[f.row.name] = f
	}
	for i := range away {
		if f, ok := at[rows[i].name]; ok && f.s == rows[i].s && !f.cut && !f.odd {
			if f.o != rows[i].o {
				moved++
			}
			rows[i].o, rows[i].d = f.o, f.d
			delete(away, i)
		}
	}
	if moved == 0 {
		return rows, nil
	}
	r.notes = append(r.notes, many(moved, "member")+" found at other places, by their headers")
	kept := rows[:0:0]
	for i, m := range rows {
		if !away[i] {
			kept = append(kept, m)
		} else if m.name != entryName && m.name != indexName && m.name != rfsName {
			r.lose("%s: its %d bytes were found nowhere", format.Escape(m.name), m.s)
		}
	}
	return kept, nil
}

// renamed corrects the names of rows to those in the headers, if keys refer to the latter and not
// to the former.
func (r *rebuild) renamed(ctx context.Context, rows []row, known, referred map[string]bool) error {
	if r.a.table.found {
		return nil
	}
	v := &view{a: r.a, ctx: ctx}
	for i, m := range rows {
		if referred[m.name] || !strings.HasPrefix(m.name, blobDir) || m.o > r.a.size-blockLen {
			continue
		}
		b, err := v.at(m.o, blockLen)
		if err != nil {
			return err
		}
		if h, ok := parseHeader(b); ok && referred[h.name] && !known[h.name] && h.size == m.s {
			r.notes = append(r.notes, fmt.Sprintf("renamed %s back to %s, as in its header and as keys expect", m.name, h.name))
			rows[i].name, known[h.name] = h.name, true
		}
	}
	return nil
}

// fromHoles finds members whose headers are damaged. A run without a header is used if a single
// missing member that keys refer to fits it exactly, or if the name can still be read.
func (r *rebuild) fromHoles(ctx context.Context, known map[string]bool) (rows []row, err error) {
	if r.a.rfs == nil || len(r.a.table.holes) == 0 {
		return nil, nil
	}
	missing := map[string]int64{}
	for _, x := range r.a.rfs.refs {
		name, t, ok := r.a.rfs.inside(r.a.rfs.value(x))
		if ok && !known[name] && t.off < 1<<60 && t.n < 1<<60 {
			missing[name] = max(missing[name], t.off+t.n)
		}
	}
	for _, h := range r.a.table.holes {
		var fits []string
		for name, n := range missing {
			if blockLen+padded(n) == h.n {
				fits = append(fits, name)
			}
		}
		b, err := r.a.read(ctx, h.off, min(blockLen, h.n))
		if err != nil {
			return nil, err
		}
		name := string(tarhead.Text(b[:min(nameEnd, len(b))]))
		if len(fits) == 1 {
			name = fits[0]
		}
		n, ok := missing[name]
		if !ok || blockLen+padded(n) > h.n {
			continue
		}
		delete(missing, name)
		rows = append(rows, row{name: name, o: h.off, d: h.off + blockLen, s: n})
		r.notes = append(r.notes, fmt.Sprintf("%s at %d has no readable header, but fits what keys expect", name, h.off))
	}
	return rows, nil
}

// unlisted finds members by headers where the index has none.
func (r *rebuild) unlisted(ctx context.Context, rows []row) (list []found, err error) {
	if r.a.table.found {
		return nil, nil
	}
	rows = slices.Clone(rows)
	slices.SortFunc(rows, func(x, y row) int { return cmp.Compare(x.o, y.o) })
	end := int64(0)
	look := func(to int64) error {
		if to-end < blockLen {
			return nil
		}
		// The archive is treated as if it ended where the next member begins.
		part := *r.a
		part.size = to
		w, err := part.walk(ctx, end)
		list = append(list, w.members...)
		return err
	}
	for _, m := range rows {
		if m.o > end && m.o <= r.a.size {
			if err := look(m.o); err != nil {
				return nil, err
			}
		}
		end = max(end, m.end())
	}
	return list, look(r.a.size)
}

// plan converts a rebuild to edits: contents stay, and everything between them is new.
func (r *rebuild) plan() format.Plan {
	a := r.a
	lost := a.rfsWrong || a.table.lost && !a.rfsSummed || a.table.lost && slices.ContainsFunc(r.members, func(m row) bool { return m.sum == "" && m.s > 0 })
	index := func(f front, first int64) ([]byte, textProof) {
		t := tarSink{lost: lost}
		at := first
		for _, m := range r.members {
			m.o, m.d = at, at+blockLen
			t.members.add(m)
			at = m.end()
		}
		return t.wholeIndex(f, 0)
	}
	// Places have at most this many digits, so the text does not grow.
	_, is := index(frontAt(1<<50, 1<<50, 1<<50), 1<<50)
	f := frontAt(frontLen, padded(is.n), padded(int64(len(r.rfs))+1))
	text, is := index(f, f.rfs.end())
	e := f.entry(is, r.rfs)
	if lost && !a.rfsSummed {
		e.rfsSum = ""
	}
	head := append(entryBlocks(e), f.members(text, r.rfs)...)
	p := format.Plan{Notes: r.notes, Lost: r.lost, Partial: r.partial}
	at, fill := int64(0), int64(0)
	for _, m := range r.members {
		p.Edits = append(p.Edits, edit(a.name, at, m.d-at, head, fill, m))
		at, fill, head = m.d+m.s, padded(m.s)-m.s, nil
	}
	p.Edits = append(p.Edits, edit(a.name, at, a.size-at, append(head, make([]byte, fill+terminatorLen)...), 0, row{}))
	p.Notes = append(p.Notes, "rewrote the archive, with "+many(len(r.members), "member")+" after a new index")
	return p
}

// edit writes the head of the archive, if it is the first edit, and what precedes the content of
// a member.
func edit(object string, off, n int64, head []byte, fill int64, m row) format.Edit {
	return format.Edit{Object: object, Off: off, Len: n, Write: func(w io.Writer) error {
		b := head
		if m.name != "" {
			b = appendHeader(append(b[:len(b):len(b)], make([]byte, fill)...), m.name, m.s)
		}
		_, err := w.Write(b)
		return err
	}}
}
