package lindi

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/kit"
	"github.com/holdall/holdall/format/kit/jsontext"
	"github.com/holdall/holdall/internal/base/blake3"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storekit"
)

// form is one of the three forms of an archive.
type form uint8

const (
	tarForm  form = iota // a tar
	jsonForm             // a single lindi.json, under any name
	dirForm              // a folder with lindi.json and blobs
)

func (f form) String() string { return [...]string{"tar", "json", "directory"}[f] }

// formOf returns the form for a name.
func formOf(name string) form {
	switch name = strings.ToLower(strings.TrimRight(name, "/")); {
	case strings.HasSuffix(name, ".json"):
		return jsonForm
	case strings.HasSuffix(name, ".d"):
		return dirForm
	}
	return tarForm
}

// archive is an archive that is being read, checked or changed. Its parts are loaded when they
// are needed.
type archive struct {
	st     store.Store
	name   string
	form   form
	limits format.Limits
	open   func(ctx context.Context, address string) (format.Reader, error) // OpenOptions.Linked

	obj    store.Object // the tar or the JSON; for a folder its lindi.json
	size   int64        // of obj
	held   []piece      // what has been read
	entry  entry
	table  *memberTable
	notes  []format.Problem // problems that did not prevent reading
	doubt  *format.Problem  // the first note that concerns all of index or lindi.json
	rfs    *rfs
	rfsRow row // where the rfs is in the tar
	// rfsSummed means that the text of rfs matches its digest, and rfsWrong that it does not. If
	// there is no digest, neither is set.
	rfsSummed, rfsWrong bool

	texts bool // the table needs the texts of its rows

	// The ends of the texts of index and lindi.json, after which there are blanks; 0 if unknown.
	indexEnd, rfsEnd int64
}

// piece is a run of the object's bytes.
type piece struct {
	off int64
	b   []byte
}

// openArchive opens the object and determines its form. For a tar it keeps what the first read
// returns.
func openArchive(ctx context.Context, st store.Store, name string, o format.OpenOptions) (_ *archive, err error) {
	a := &archive{st: st, name: name, limits: o.Limits.OrDefault(), open: o.Linked}
	trimmed := strings.TrimRight(name, "/")
	if formOf(name) == dirForm {
		if a.obj, err = st.Open(ctx, trimmed+"/"+rfsName); err != nil {
			return nil, err
		}
		a.name, a.form = trimmed, dirForm
		return a, nil
	}
	a.obj, err = st.Open(ctx, name)
	if err != nil {
		// A folder may have any name, so something without bytes of its own may be a folder.
		obj, derr := st.Open(ctx, trimmed+"/"+rfsName)
		if derr == nil {
			if _, derr = obj.Info(ctx); derr == nil {
				a.name, a.form, a.obj = trimmed, dirForm, obj
				return a, nil
			}
			obj.Close()
		}
		return nil, err
	}
	defer func() {
		if err != nil {
			a.obj.Close()
		}
	}()
	head := make([]byte, kit.ProbeSize)
	n, err := storekit.ReadHead(ctx, a.obj, head)
	if err != nil {
		return nil, err
	}
	info, err := a.obj.Info(ctx)
	if err != nil {
		return nil, err
	}
	a.size = info.Size
	a.held = append(a.held, piece{0, head[:n]})
	switch shape := shapeOf(head[:n]); {
	case shape == isTar, shape == isNothing && formOf(name) == tarForm && a.size >= blockLen: // its beginning may be damaged
		a.form = tarForm
	case shape == isJSON:
		a.form = jsonForm
	default:
		return nil, a.corrupt(format.BadMagic, 0, "neither a tar that begins with "+entryName+" nor a JSON text")
	}
	return a, nil
}

func (a *archive) close() error { return a.obj.Close() }

// What an object is according to its first bytes.
const (
	isNothing = iota
	isTar
	isJSON
)

func shapeOf(head []byte) int {
	if len(head) >= frontLen {
		if _, err := parseEntry(head[entryData:frontLen], (format.Limits{}).OrDefault().Depth); err == nil {
			return isTar // even if the header before it is damaged
		}
	}
	if len(head) >= frontLen+blockLen {
		if h, ok := parseHeader(head[frontLen:]); ok && h.name == indexName {
			return isTar // even if both are damaged
		}
	}
	if len(head) >= blockLen && string(head[magicAt:magicAt+6]) == "ustar\x00" {
		same := 0
		for i := range entryName {
			if head[i] == entryName[i] {
				same++
			}
		}
		if _, ok := parseHeader(head); same == len(entryName) && head[same] == 0 || !ok && same > len(entryName)/2 {
			return isTar // the same holds for its name
		}
	}
	if bytes.HasPrefix(bytes.TrimLeft(head, " \t\r\n"), []byte("{")) && bytes.IndexByte(head[:min(len(head), blockLen)], 0) < 0 {
		return isJSON
	}
	return isNothing
}

func (a *archive) problem(code format.Code, sev format.Severity, off int64, msg string, args ...any) format.Problem {
	if a.obj != nil && a.form != dirForm {
		off = min(off, a.size) // bytes that should be after the end are reported as missing at the end
	}
	return format.Problem{Code: code, Severity: sev, Volume: a.objectName(), Off: off, Message: fmt.Sprintf(msg, args...)}
}

func (a *archive) corrupt(code format.Code, off int64, msg string, args ...any) error {
	return &format.CorruptError{Format: "lindi", Problem: a.problem(code, format.Error, off, msg, args...)}
}

// objectName returns the name of the object with lindi.json or the tar.
func (a *archive) objectName() string {
	if a.form == dirForm {
		return a.name + "/" + rfsName
	}
	return a.name
}

// folder returns the folder to which paths out of the archive are relative.
func (a *archive) folder() string {
	if a.form == dirForm {
		return a.name
	}
	return path.Dir(a.name)
}

// read returns n bytes at off, from memory if they have been read before. The caller must check
// that they are in the object.
func (a *archive) read(ctx context.Context, off, n int64) ([]byte, error) {
	if b := a.heldAt(off, n); b != nil {
		return b, nil
	}
	b := make([]byte, n)
	return b, a.obj.ReadAt(ctx, b, off)
}

// heldAt returns n bytes at off that have been read before, or nil.
func (a *archive) heldAt(off, n int64) []byte {
	for _, p := range a.held {
		if off >= p.off && off+n <= p.off+int64(len(p.b)) {
			return p.b[off-p.off:][:n:n]
		}
	}
	return nil
}

// fetch reads a range before it is needed.
func (a *archive) fetch(ctx context.Context, off, n int64) error {
	b, err := a.read(ctx, off, n)
	if err == nil {
		a.held = append(a.held, piece{off, b})
	}
	return err
}

const (
	// firstFetch is how much of a JSON member is requested first, whatever part of it is padding.
	firstFetch = 64 << 10
	// joinGap is the largest gap between two short ranges that are fetched together.
	joinGap = 64 << 10
	// A long index is read in blocks.
	nearBlock = 256 << 10
	farBlock  = 4 << 20
)

// checkRoom checks the place of a JSON text.
func (a *archive) checkRoom(off, room int64) error {
	if room > a.limits.Index || room >= 1<<32 {
		return a.corrupt(format.Limit, off, "%d bytes of index are more than the limit of %d", room, a.limits.Index)
	}
	if room > a.size-off {
		return a.corrupt(format.Truncated, off, "%d bytes of index extend beyond the end of the archive at %d", room, a.size)
	}
	return nil
}

// firstLen returns how much of a JSON text is requested first. hint is its length, or 0 if it is
// not known.
func (a *archive) firstLen(room, hint int64) int64 {
	switch {
	case a.st.Can().Near && room <= 4*firstFetch:
		return room
	case hint <= 0 || hint > room:
		// A text that the reference has just placed fills at most a quarter of its room.
		return min(room, max(room/4, firstFetch))
	}
	return hint
}

// text calls parse with the JSON text of a member of room bytes at off, without its padding if
// that is long. hint is the length of the text, or 0 if it is not known. parse may be called
// twice, first with less than the text. If the whole room is not JSON, the part of the hint is
// used, because something else may have been written after it.
func (a *archive) text(ctx context.Context, off, room, hint int64, parse func([]byte) error) error {
	if err := a.checkRoom(off, room); err != nil {
		return err
	}
	n := a.firstLen(room, hint)
	for {
		b, err := a.read(ctx, off, n)
		if err != nil {
			return err
		}
		err = parse(bytes.TrimRight(b, " \t\r\n"))
		if t, ok := errors.AsType[*jsontext.Error](err); !ok || n == room || !t.Early {
			if ok && 0 < hint && hint < n && parse(b[:hint]) == nil {
				return nil
			}
			return err
		}
		rest, err := a.read(ctx, off+n, min(n, room-n))
		if err != nil {
			return err
		}
		a.held = append(a.held, piece{off, append(b[:n:n], rest...)})
		n += int64(len(rest))
	}
}

// loadTable finds the members: by entry and index or, if these cannot be used, by headers.
func (a *archive) loadTable(ctx context.Context, wantRFS bool) error {
	if a.table != nil {
		return nil
	}
	t, why, err := a.indexed(ctx, wantRFS)
	if err != nil {
		return err
	}
	if why != nil {
		a.note(*why)
		if t, err = a.scan(ctx); err != nil {
			return err
		}
	}
	t.volume, t.size = a.name, a.size
	a.table = t
	return a.missesDigests(ctx)
}

// missesDigests adds a note if members have lost their digests: those without one in an archive whose
// index is lost, unless the reference wrote it, or whose index says that a repair has not found them.
func (a *archive) missesDigests(ctx context.Context) error {
	t := a.table
	if !t.lost && t.found {
		text, err := a.read(ctx, entryData, min(max(a.size-entryData, 0), int64(len(theirs))+8))
		if err != nil {
			return err
		}
		if t.lost = t.recalled || !isTheirEntry(text); t.lost && !t.recalled {
			if r, ok := t.last(rfsName); ok && t.fault(r) == nil {
				if text, err = a.read(ctx, r.d, min(r.s, int64(len(theirs)))); err != nil {
					return err
				}
				t.lost = string(text) != theirs
			}
		}
	}
	if t.lost {
		if n := t.withoutDigest(); n > 0 {
			a.lacks(format.LostDigest, a.entry.d, "%s lost the digest when the index was damaged, and may be wrong", many(n, "member"))
		}
	}
	return nil
}

// lacks adds a note about lost digests, which no repair brings back.
func (a *archive) lacks(code format.Code, off int64, msg string, args ...any) {
	p := a.problem(code, format.Warning, off, msg, args...)
	p.Class = string(format.LostDigest)
	a.note(p)
}

// indexed reads entry and index. It returns why they cannot be used.
func (a *archive) indexed(ctx context.Context, wantRFS bool) (*memberTable, *format.Problem, error) {
	bad := func(code format.Code, off int64, msg string, args ...any) (*memberTable, *format.Problem, error) {
		p := a.problem(code, format.Error, off, msg, args...)
		return nil, &p, nil
	}
	if a.size < frontLen {
		return bad(format.Truncated, a.size, "%d bytes are too short for %s", a.size, entryName)
	}
	b, err := a.read(ctx, entryData, entryLen)
	if err != nil {
		return nil, nil, err
	}
	e, err := parseEntry(b, a.limits.Depth)
	if err != nil {
		return bad(format.BadIndex, entryData, "cannot read %s: %v", entryName, err)
	}
	if e.s > a.size || e.d > a.size-e.s {
		return bad(format.OutOfBounds, entryData, "%s points to an index of %d bytes at %d, but the archive has %d bytes", entryName, e.s, e.d, a.size)
	}
	a.entry = e
	if err := a.fetchTogether(ctx, e, wantRFS); err != nil {
		return nil, nil, err
	}
	t, err := a.readIndex(ctx, e)
	if _, ok := errors.AsType[*jsontext.Error](err); ok {
		return bad(format.BadIndex, e.d, "cannot read %s: %v", indexName, err)
	}
	if c, ok := errors.AsType[*format.CorruptError](err); ok && c.Code != format.Limit {
		return nil, &c.Problem, nil
	}
	if err != nil {
		return nil, nil, err
	}
	for _, odd := range t.odd {
		a.note(a.problem(format.BadIndex, format.Warning, e.d+odd.at, "ignored a row of the index: %s", odd.msg))
	}
	if more := t.odds - len(t.odd); more > 0 {
		a.notes = append(a.notes, a.problem(format.BadIndex, format.Warning, e.d, "ignored %s more of the index", many(more, "row")))
	}
	listed := false
	for r := range t.all {
		if listed = r.name == indexName && r.o == e.o && r.d == e.d && r.s == e.s; listed {
			break
		}
	}
	if !listed {
		return bad(format.BadIndex, e.d, "the index does not list itself at the offset in %s", entryName)
	}
	return t, nil, nil
}

// readIndex reads the index in blocks, without keeping its text. What is after the text is not
// looked at, because something else may have been written there, unless the length of the text is
// not known.
func (a *archive) readIndex(ctx context.Context, e entry) (*memberTable, error) {
	if err := a.checkRoom(e.d, e.s); err != nil {
		return nil, err
	}
	first := a.firstLen(e.s, e.indexText)
	block := int64(nearBlock)
	if !a.st.Can().Near {
		block = farBlock
	}
	var buf []byte
	var sum *blake3.Hasher
	next := int64(0)
	s := scannerOf(nil, a.limits.Depth)
	s.More = func(from int) ([]byte, error) {
		rest := s.Buf[from:]
		n := min(max(block, int64(len(rest))), e.s-next)
		if next < first {
			n = min(n, first-next)
		}
		if n == 0 {
			return rest, nil
		}
		p := a.heldAt(e.d+next, n)
		b := p
		if from := len(rest); from > 0 || p == nil {
			if int64(cap(buf)-from) < n {
				buf = make([]byte, from+int(n))
			}
			b = buf[:from+int(n)]
			copy(b, rest)
			if copy(b[from:], p) == 0 {
				if err := a.obj.ReadAt(ctx, b[from:], e.d+next); err != nil {
					return nil, err
				}
			}
			p = b[from:]
		}
		if next == 0 && e.indexSum != "" && !bytes.HasPrefix(p, []byte(theirs)) {
			sum = blake3.New()
		}
		if sum != nil && next < e.indexText {
			sum.Write(p[:min(n, e.indexText-next)])
		}
		next += n
		return b, nil
	}
	t := &memberTable{keep: a.texts}
	if err := t.parse(s); err != nil {
		return nil, err
	}
	end := s.Offset()
	if said := e.indexText - s.Base; end <= e.indexText && said < int64(len(s.Buf)) {
		s.Buf = s.Buf[:said]
	}
	s.More = nil
	if s.End(); s.Err != nil {
		return nil, s.Err
	}
	if a.indexEnd = e.d + end; sum != nil && string(sum.Sum(nil)) != e.indexSum {
		a.damaged(e.d, indexName)
		t.lost = true
	}
	return t, nil
}

// damaged adds a note that a text does not match its digest.
func (a *archive) damaged(off int64, what string) {
	a.note(a.problem(format.BadChecksum, format.Error, off, "%s is damaged: it does not match its digest, so names and offsets may be wrong", what))
}

// checkRFS compares the text of lindi.json with its digest, if there is one and the reference has
// not rewritten the text. A damaged text adds a note; it is used nevertheless.
func (a *archive) checkRFS(text []byte, off int64) {
	e := a.entry
	if e.rfsAt != off || e.rfsSum == "" || bytes.HasPrefix(text, []byte(theirs)) {
		return
	}
	if a.rfsSummed = sumOf(text[:max(0, min(e.rfsText, int64(len(text))))], ourRFS) == e.rfsSum; !a.rfsSummed {
		a.rfsWrong = true
		a.damaged(off, rfsName)
	}
}

// findProofs finds out which digests in the entry are those of the texts in the tar.
func (a *archive) findProofs(ctx context.Context) error {
	for i, p := range [...]textProof{{a.entry.d, a.entry.indexText, a.entry.indexSum}, {a.entry.rfsAt, a.entry.rfsText, a.entry.rfsSum}} {
		if p.sum == "" || p.d < 0 || p.n < int64(len(theirs)) || p.n > a.size || p.d > a.size-p.n {
			continue
		}
		b, err := a.read(ctx, p.d, int64(len(theirs)))
		if err != nil {
			return err
		}
		if string(b) != theirs {
			a.table.proofs[i] = p
		}
	}
	if a.table.proofs[0].sum == "" {
		return nil
	}
	// The entry has no digest. But all of it follows from what was read, if holdall wrote it.
	text, err := a.read(ctx, entryData, entryLen)
	if err == nil && !isTheirEntry(text) {
		sum := blake3.Sum256(pad(appendEntry(nil, a.entry), entryLen))
		a.table.proofs[2] = textProof{entryData, entryLen, string(sum[:])}
	}
	return err
}

// isTheirEntry reports whether the reference wrote the text of an entry.
func isTheirEntry(text []byte) bool {
	return bytes.HasPrefix(text, []byte(theirs)) || bytes.HasPrefix(text, []byte(`{"index"`))
}

// note adds a note that entries may be missing or wrong.
func (a *archive) note(p format.Problem) {
	weight := []format.Code{format.LostDigest, format.BadChecksum}
	if a.doubt == nil || slices.Index(weight, p.Code) > slices.Index(weight, a.doubt.Code) {
		a.doubt = &p
	}
	a.notes = append(a.notes, p)
}

func (a *archive) doubts() *format.Problem { return a.doubt }

// fetchTogether requests the index and lindi.json, or its beginning, in one request, if the entry says that they are
// close together.
func (a *archive) fetchTogether(ctx context.Context, e entry, wantRFS bool) error {
	if a.st.Can().Near || len(a.held) == 0 || e.indexText <= 0 || e.rfsText <= 0 || e.indexText > e.s {
		return nil
	}
	want, most := e.rfsText, a.limits.Index
	if !wantRFS { // only how lindi.json begins, and not if holding the index takes much memory
		want, most = min(want, int64(len(theirs))), min(most, farBlock)
	}
	from, to := min(e.d, e.rfsAt), max(e.d+e.indexText, e.rfsAt+want)
	if to > a.size || from < 0 || to-from > (e.indexText+want)*9/8+joinGap || to-from > most {
		return nil
	}
	if head := int64(len(a.held[0].b)); from < head {
		from = min(head, to)
	}
	if from == to {
		return nil
	}
	if err := a.fetch(ctx, from, to-from); err != nil {
		return err
	}
	// A range that begins in the head and continues after it becomes one piece.
	if p, head := a.held[len(a.held)-1], a.held[0]; p.off == int64(len(head.b)) {
		a.held[0].b = append(head.b[:len(head.b):len(head.b)], p.b...)
	}
	return nil
}

// loadRFS reads lindi.json: the one that the index names or, if that cannot be read, the last
// readable one. This happens if a writer was killed between writing the two.
func (a *archive) loadRFS(ctx context.Context) error {
	if a.rfs != nil {
		return nil
	}
	err := a.readRFS(ctx)
	c, ok := errors.AsType[*format.CorruptError](err)
	if !ok || a.form != tarForm || a.table == nil || a.table.found || c.Code == format.Limit {
		return err
	}
	t, serr := a.scan(ctx)
	if serr != nil {
		return err
	}
	r, ok := t.last(rfsName)
	if old, had := a.table.last(rfsName); !ok || had && old.o == r.o {
		return err
	}
	a.note(c.Problem)
	t.volume, t.size = a.name, a.size
	t.lost = a.table.lost
	if a.table, a.entry.rfsAt = t, 0; !t.lost {
		err = a.missesDigests(ctx)
	}
	if err != nil {
		return err
	}
	return a.readRFS(ctx)
}

func (a *archive) readRFS(ctx context.Context) error {
	off, room, hint := int64(0), int64(0), int64(0)
	if a.form == tarForm {
		if err := a.loadTable(ctx, true); err != nil {
			return err
		}
		r, ok := a.table.last(rfsName)
		if !ok {
			return a.corrupt(format.MissingIndex, -1, "no %s: the keys are unknown, only the members are known", rfsName)
		}
		if p := a.table.fault(r); p != nil {
			return &format.CorruptError{Format: "lindi", Problem: *p}
		}
		off, room, a.rfsRow = r.d, r.s, r
		if a.entry.rfsAt == r.d {
			hint = a.entry.rfsText
		}
	} else {
		info, err := a.obj.Info(ctx)
		if err != nil {
			return err
		}
		a.size, room, hint = info.Size, info.Size, info.Size
	}
	err := a.text(ctx, off, room, hint, func(text []byte) (err error) {
		switch a.rfs, err = parseRFS(text, a.limits.Depth); {
		case err != nil:
		case a.form == tarForm:
			a.rfsEnd = off + int64(len(text))
			a.checkRFS(text, off)
		default:
			a.checkSeal(text)
		}
		return err
	})
	switch {
	case err != nil:
		a.rfs = nil
	case a.form == tarForm && a.table.lost && !a.rfsSummed && !a.rfsWrong && !a.rfs.bare():
		a.lacks(format.BadChecksum, off, "%s lost its digest when the archive was damaged, so names and offsets may be wrong", rfsName)
	}
	if t, ok := errors.AsType[*jsontext.Error](err); ok {
		return a.corrupt(format.BadIndex, off+t.Off, "cannot read %s: %v", rfsName, err)
	}
	return err
}

// last returns the row of a name that counts.
func (t *memberTable) last(name string) (row, bool) {
	for i := t.Len() - 1; i >= 0; i-- {
		if t.Name(i) == name {
			return t.row(i), true
		}
	}
	return row{}, false
}

// bareRFS reports whether lindi.json exists only because the reference does not open an archive
// without it. Long ones are not examined.
func (a *archive) bareRFS(ctx context.Context) (bool, error) {
	r, ok := a.table.last(rfsName)
	if !ok || r.s > firstRoom || a.table.fault(r) != nil {
		return false, nil
	}
	b, err := a.read(ctx, r.d, r.s)
	if err != nil {
		return false, err
	}
	x, err := parseRFS(b, a.limits.Depth)
	if err != nil {
		a.note(a.problem(format.BadIndex, format.Error, r.d, "cannot read %s: %v", rfsName, err))
		return false, nil
	}
	return x.bare(), nil
}

// bare reports whether there is nothing except the root that each file has.
func (x *rfs) bare() bool {
	return len(x.top) == 0 && (len(x.refs) == 0 || len(x.refs) == 1 && x.refs[0].key == ".zgroup")
}
