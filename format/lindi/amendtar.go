package lindi

import (
	"cmp"
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

// tarMedium is a tar that is changed in place.
//
// New members are written over the zeros that end the tar. Commit writes lindi.json and the
// index, never over the current ones: each of them has a second place, which the last change left
// in the trash, or is written at the end. Then Commit waits for the disk, and writes the one
// sector of the entry that says which index counts. Before that the old archive counts, whatever
// has been written, and afterwards the new one. Only then are the old ones renamed into the
// trash, together with removed members.
//
// The next change corrects what an interrupted change left: the index lists names that should be
// in the trash, and the bytes after the last member are examined.
type tarMedium struct {
	name string
	f    store.Amendment
	a    *archive

	rows  []tarRow
	place map[string]int // number in rows
	extra []member
	set   *refset

	pos   int64 // where the next member goes; everything after it is free
	ended bool  // the zeros at the end are written
	front
	spare   [2]slot  // second places of index and lindi.json
	trash   []run    // headers to rename after the next commit: offset, size of content
	renamed []string // members whose headers still have another name
	dirty   bool
	out     kit.Appender
	notes   []string
	texts   [2][]byte // buffers
}

// tarRow is a row that counts, or one without a name.
type tarRow struct {
	row
	text string // as in the index; "" for a row that holdall writes
}

// run is a run of stored bytes.
type run struct{ off, n int64 }

// ownKey is the name of holdall's list in the index, which other tools keep.
const ownKey = "holdall"

// asObject makes an amendment readable as an object.
type asObject struct{ f store.Amendment }

func (o asObject) Info(context.Context) (store.Info, error) { return store.Info{Size: o.f.Size()}, nil }
func (o asObject) ReadAt(ctx context.Context, p []byte, off int64) error {
	return o.f.ReadAt(ctx, p, off)
}
func (o asObject) Close() error               { return nil }
func (o asObject) Can() store.ObjectAbilities { return store.ObjectAbilities{} }

func amendTar(ctx context.Context, st store.Store, name string, o format.OpenOptions) (_ *tarMedium, err error) {
	f, err := storekit.Amend(ctx, st, name)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			f.Close()
		}
	}()
	t := &tarMedium{name: name, f: f, place: map[string]int{}, out: newAppender()}
	t.a = &archive{st: st, name: name, limits: o.Limits.OrDefault(), obj: asObject{f}, size: f.Size(), texts: true}
	if err := t.a.loadTable(ctx, true); err != nil {
		return nil, err
	}
	if err := t.a.loadRFS(ctx); err != nil {
		return nil, err
	}
	if t.a.table.found || len(t.a.notes) > 0 {
		p := t.a.problem(format.BadIndex, format.Error, -1, "the archive is damaged: repair it before changing it")
		if len(t.a.notes) > 0 {
			p = t.a.notes[0]
			p.Message = "the archive is damaged: repair it before changing it: " + p.Message
		}
		return nil, &format.CorruptError{Format: "lindi", Problem: p}
	}
	if err := t.load(); err != nil {
		return nil, err
	}
	if err := t.tidy(ctx); err != nil {
		return nil, err
	}
	t.a.held = nil
	return t, nil
}

// load reads the index.
func (t *tarMedium) load() error {
	table := t.a.table
	for i, r := range table.list() {
		if p := table.fault(r); p != nil {
			p.Message = "repair the archive before changing it: " + p.Message
			return &format.CorruptError{Format: "lindi", Problem: *p}
		}
		t.pos = max(t.pos, r.end())
		switch r.name {
		case entryName:
		case indexName:
			t.index = slot{r.o, r.s, r.s}
		case rfsName:
			t.rfs = slot{r.o, r.s, r.s}
		default:
			x := tarRow{r, table.texts[i]}
			if at, twice := t.place[r.name]; twice {
				t.rows[at] = x
				continue
			}
			t.place[r.name] = len(t.rows)
			t.rows = append(t.rows, x)
		}
	}
	for _, m := range table.extra {
		if string(m.key) == ownKey {
			t.ownList(m.value)
		} else {
			t.extra = append(t.extra, m)
		}
	}
	t.set = newRefset(t.a.rfs)
	return nil
}

// ownList reads holdall's list: [[offset, length], …] of what should be in the trash. Its first
// two elements are the second places of index and lindi.json.
func (t *tarMedium) ownList(value []byte) {
	s := scannerOf(value, 4)
	for s.Begin('['); s.Next(']'); {
		n := append(numbers(s), 0, 0)
		t.trash = append(t.trash, run{n[0], n[1]})
	}
}

// tidy corrects what an interrupted change left, and the end of the tar.
func (t *tarMedium) tidy(ctx context.Context) error {
	pending := t.trash
	t.trash = nil
	used := make(map[int64]bool, t.a.table.Len())
	for r := range t.a.table.all {
		used[r.o] = true
	}
	for i, p := range pending {
		if p.off < frontLen || p.off > t.f.Size()-blockLen || used[p.off] {
			continue
		}
		_, h, ok, err := t.header(ctx, p.off)
		if err != nil {
			return err
		}
		if !ok || h.size != p.n || !h.ours && !strings.HasPrefix(h.name, trashDir) {
			continue
		}
		if err := t.intoTrash(ctx, p.off); err != nil {
			return err
		}
		if i < 2 && p.off+blockLen+padded(p.n) <= t.f.Size() {
			t.spare[i] = slot{p.off, p.n, p.n}
		}
		t.pos = max(t.pos, p.off+blockLen+padded(p.n))
	}
	return t.tail(ctx)
}

// tail examines what is after the last member. Members that another tar has appended are added.
// What a LINDI writer left without a commit goes into the trash, and a truncated member is
// dropped.
func (t *tarMedium) tail(ctx context.Context) error {
	size := t.f.Size()
	if t.pos+terminatorLen == size {
		b, err := t.a.read(ctx, t.pos, terminatorLen)
		if err == nil && zero(b) {
			t.ended = true
		}
		if err != nil || t.ended {
			return err
		}
	}
	t.a.size = size
	w, err := t.a.walk(ctx, min(t.pos, size))
	if err != nil {
		return err
	}
	for _, f := range w.members {
		if f.cut || f.o < t.pos {
			break
		}
		if len(w.holes) > 0 && f.o >= w.holes[0].off {
			break // it follows something unreadable
		}
		switch {
		case f.trash:
		case f.ours:
			if err := t.intoTrash(ctx, f.o); err != nil {
				return err
			}
			t.notes = append(t.notes, fmt.Sprintf("moved %s at %d to the trash: it was written but never committed", f.row.name, f.o))
		case !f.odd && nameFault(f.row.name) == "" && f.d == f.o+blockLen && f.row.name != rfsName:
			t.add(f.row)
			t.dirty = true
			t.notes = append(t.notes, fmt.Sprintf("added %s, which another tar program appended, to the index", f.row.name))
		}
		t.pos = f.row.end()
	}
	return t.end(ctx)
}

// end makes the tar end at pos. The padding of the last block may be missing too.
func (t *tarMedium) end(ctx context.Context) error {
	from := max(min(t.f.Size(), t.pos), t.pos-blockLen)
	if err := t.f.WriteAt(ctx, zeroBlock[:t.pos+terminatorLen-from], from); err != nil {
		return err
	}
	if t.f.Size() > t.pos+terminatorLen {
		if err := t.f.Truncate(ctx, t.pos+terminatorLen); err != nil {
			return err
		}
	}
	t.ended = true
	return nil
}

func (t *tarMedium) header(ctx context.Context, off int64) (b []byte, h header, ok bool, err error) {
	b = make([]byte, blockLen)
	if err = t.f.ReadAt(ctx, b, off); err == nil {
		h, ok = parseHeader(b)
	}
	return b, h, ok, err
}

// intoTrash renames the member whose header is at off. The content stays: it may be needed again,
// and a repair can only read it from there.
func (t *tarMedium) intoTrash(ctx context.Context, off int64) error {
	b, h, ok, err := t.header(ctx, off)
	if err != nil || !ok || strings.HasPrefix(h.name, trashDir) {
		return err
	}
	trashHeader(b, trashName(h.name, tag(off)))
	return t.f.WriteAt(ctx, b, off)
}

func (t *tarMedium) refs() *refset { return t.set }
func (t *tarMedium) members() bool { return true }

// A name is free when no current member has it; removed members are elsewhere.
func (t *tarMedium) taken(name string) bool { return t.has(name) }

func (t *tarMedium) has(name string) bool {
	_, ok := t.place[name]
	return ok
}

// add adds a row, in place of one of the same name.
func (t *tarMedium) add(r row) {
	t.drop(r.name)
	t.place[r.name] = len(t.rows)
	t.rows = append(t.rows, tarRow{row: r})
	t.dirty = true
}

func (t *tarMedium) drop(name string) {
	i, ok := t.place[name]
	if !ok {
		return
	}
	t.trash = append(t.trash, run{t.rows[i].o, t.rows[i].s})
	delete(t.place, name)
	t.rows[i].name = ""
	t.dirty = true
}

// rename gives a member another name. Its header is changed after the commit. Readers use the
// index, so a header with the old name does no harm.
func (t *tarMedium) rename(from, to string) error {
	i := t.place[from]
	r := &t.rows[i]
	if r.d != r.o+blockLen {
		return kit.Refuse(from, "its header has more than one block and cannot be rewritten in place")
	}
	delete(t.place, from)
	t.place[to] = i
	r.name, r.text = to, ""
	t.renamed = append(t.renamed, to)
	t.dirty = true
	return nil
}

func (t *tarMedium) put(ctx context.Context, name string, e format.Entry, r io.Reader) error {
	if e.Size > maxSize {
		return kit.Refuse(e.Name, "%d bytes exceed the limit of a tar header (%d)", e.Size, int64(maxSize))
	}
	w := &behind{t: t, ctx: ctx, at: t.pos}
	t.ended = false
	t.out.Out, t.out.Err = w, nil
	err := t.out.Append(appendHeader(nil, name, e.Size))
	var sum string
	if err == nil {
		sum, err = t.out.Content(ctx, e, r, false)
	}
	if err == nil {
		err = t.out.Append(zeroBlock[:padded(e.Size)-e.Size])
	}
	if ferr := t.out.Flush(); err != nil || ferr != nil {
		return cmp.Or(err, ferr) // the next member overwrites it
	}
	t.add(row{name: name, o: t.pos, d: t.pos + blockLen, s: e.Size, sum: sum})
	t.pos = w.at
	return nil
}

// behind writes after the last member.
type behind struct {
	t   *tarMedium
	ctx context.Context
	at  int64
}

func (w *behind) Write(p []byte) (int, error) {
	err := w.t.f.WriteAt(w.ctx, p, w.at)
	w.at += int64(len(p))
	return len(p), err
}

// commit makes all changes take effect.
func (t *tarMedium) commit(ctx context.Context) (int64, []string, error) {
	notes := t.notes
	t.notes = nil
	if !t.dirty && !t.set.changed {
		if !t.ended {
			if err := t.end(ctx); err != nil {
				return 0, nil, err
			}
		}
		return t.f.Size(), notes, nil
	}
	oldIndex, oldRFS := t.index, t.rfs
	var rfsText []byte
	if t.set.changed {
		rfsText = t.set.appendText(t.texts[1][:0])
		t.texts[1] = rfsText
		t.rfs = t.take(&t.spare[1], int64(len(rfsText)))
	}
	// The place of the index and its size are in its own text, so it is generated once to measure
	// it.
	t.index = slot{t.pos, 1 << 40, 0}
	n := int64(len(t.indexText(oldIndex, oldRFS))) + 32
	t.index = t.take(&t.spare[0], n)
	indexText := t.indexText(oldIndex, oldRFS)
	if int64(len(indexText)) > t.index.room {
		return 0, nil, fmt.Errorf("%s: an index of %d bytes does not fit into its place of %d", t.name, len(indexText), t.index.room)
	}
	if t.set.changed {
		if err := t.fill(ctx, rfsName, &t.rfs, rfsText); err != nil {
			return 0, nil, err
		}
	}
	if err := t.fill(ctx, indexName, &t.index, indexText); err != nil {
		return 0, nil, err
	}
	if err := t.end(ctx); err != nil {
		return 0, nil, err
	}
	if err := t.f.Sync(ctx); err != nil {
		return 0, nil, err
	}
	if !t.set.changed {
		rfsText = t.a.rfs.text
		if oldRFS.used < oldRFS.room {
			rfsText = rfsText[:min(oldRFS.used, int64(len(rfsText)))]
		}
	}
	block := appendEntry(make([]byte, 0, commitLen), t.entry(textProof{n: int64(len(indexText)), sum: sumOf(indexText, ourIndex)}, rfsText))
	if err := t.f.WriteAt(ctx, pad(block, commitLen), entryData); err != nil {
		return 0, nil, err
	}
	if err := t.f.Sync(ctx); err != nil {
		return 0, nil, err
	}
	// The change has taken effect. The rest is only for other tars.
	t.spare[0] = oldIndex
	gone := append(t.trash, run{oldIndex.o, oldIndex.room})
	if t.set.changed {
		t.spare[1] = oldRFS
		gone = append(gone, run{oldRFS.o, oldRFS.room})
	}
	for _, g := range gone {
		if err := t.intoTrash(ctx, g.off); err != nil {
			return 0, nil, err
		}
	}
	for _, name := range t.renamed {
		i, ok := t.place[name]
		if !ok {
			continue
		}
		if err := t.f.WriteAt(ctx, appendHeader(nil, name, t.rows[i].s), t.rows[i].o); err != nil {
			return 0, nil, err
		}
	}
	t.renamed = t.renamed[:0]
	t.trash, t.dirty, t.set.changed = t.trash[:0], false, false
	t.forget()
	return t.f.Size(), notes, nil
}

// take returns a place for a text of n bytes: the second place if it is large enough, or a new
// one at the end.
func (t *tarMedium) take(spare *slot, n int64) slot {
	if s := *spare; s.room >= n && s.room > 0 {
		*spare = slot{}
		return s
	}
	s := slot{o: t.pos, room: roomFor(n)}
	s.used = s.room
	t.pos += blockLen + s.room
	return s
}

// fill writes a text into its place, with blanks over the rest. The header is written separately,
// in a single sector: a torn header would hide the size of the place.
func (t *tarMedium) fill(ctx context.Context, name string, s *slot, text []byte) error {
	used := int64(len(text))
	n := max(used, s.used)
	s.used = used
	b := appendHeader(make([]byte, 0, blockLen+n), name, s.room)
	b = pad(append(b, text...), blockLen+n)
	if s.o+blockLen > t.f.Size() {
		return t.f.WriteAt(ctx, b, s.o) // what is torn after the end is cut off
	}
	if err := t.f.WriteAt(ctx, b[blockLen:], s.o+blockLen); err != nil {
		return err
	}
	return t.f.WriteAt(ctx, b[:blockLen], s.o)
}

// indexText returns the new index, with holdall's list of what will be in the trash.
func (t *tarMedium) indexText(oldIndex, oldRFS slot) []byte {
	p := append(t.texts[0][:0], '{')
	for _, m := range t.extra {
		p = append(appendMember(p, m), ", "...)
	}
	p = append(p, `"`+ownKey+`": [`...)
	second := t.spare[1]
	if t.set.changed {
		second = oldRFS
	}
	for i, r := range append([]run{{oldIndex.o, oldIndex.room}, {second.o, second.room}}, t.trash...) {
		if i > 0 {
			p = append(p, ',')
		}
		p = fmt.Appendf(p, "[%d,%d]", r.off, r.n)
	}
	p = append(append(p, "], "...), indexHead[1:]...)
	p = t.appendRows(p)
	for _, r := range t.rows {
		switch {
		case r.name == "":
		case r.text != "":
			p = append(append(p, ",\n"...), r.text...)
		default:
			p = appendRow(append(p, ','), r.row)
		}
	}
	p = append(p, indexTail...)
	t.texts[0] = p
	return p
}

// forget drops removed rows when there are many.
func (t *tarMedium) forget() {
	if len(t.rows) < 2*len(t.place)+64 {
		return
	}
	t.rows = slices.DeleteFunc(t.rows, func(r tarRow) bool { return r.name == "" })
	for i, r := range t.rows {
		t.place[r.name] = i
	}
}

// close undoes a change that was not committed.
func (t *tarMedium) close() error {
	var err error
	if !t.ended {
		err = t.end(context.Background())
	}
	return errors.Join(err, t.f.Close())
}
