package lindi

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"strconv"
	"strings"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/internal/tarhead"
	"github.com/holdall/holdall/format/kit"
	"github.com/holdall/holdall/format/kit/jsontext"
)

// found is a member from its header.
type found struct {
	header
	row
	cut   bool // its content extends beyond the end of the archive
	odd   bool // not a file: a folder, a link, a pax header
	trash bool
}

// hole is a run without a recognisable header.
type hole struct{ off, n int64 }

// walked is the result of a walk over headers.
type walked struct {
	members []found
	holes   []hole
	end     int64 // where the last member ends, and the terminator should be
	zeros   int64 // zero bytes from there to the end of the archive, in whole blocks
}

const (
	scanBlock = 256 << 10
	maxPax    = 1 << 20 // size of a pax header, which has names and no contents
)

// walk visits the headers from off to the end of the archive. If there is none, it looks for the
// next one at each block. Members of a tar within a content are recognised because LINDI's tools
// write other headers.
func (a *archive) walk(ctx context.Context, off int64) (walked, error) {
	k := &walker{a: a, v: &view{a: a, ctx: ctx}, pos: off, lost: -1, zeros: -1, walked: walked{end: off}}
	for !k.done && k.pos+blockLen <= a.size {
		b, err := k.v.at(k.pos, blockLen)
		if err != nil {
			return k.walked, err
		}
		h, ok := parseHeader(b)
		switch {
		case ok && k.lost >= 0 && !h.ours: // probably of a tar within a content whose header is lost
			ok = false
		case ok && k.lost >= 0 && h.name == entryName: // an archive of LINDI's within a content: skip all of it
			n, err := a.nested(k.v, k.pos)
			if err != nil {
				return k.walked, err
			}
			k.pos += n
			continue
		}
		switch {
		case ok:
			err = k.header(h)
		case k.lost < 0 && !zero(b):
			var at int64
			if at, err = k.displaced(ctx); err == nil && at >= 0 {
				k.moveTo(at)
				continue
			}
			err = errors.Join(err, k.noHeader(false))
		default:
			err = k.noHeader(zero(b))
		}
		if err != nil {
			return k.walked, err
		}
	}
	switch {
	case k.done:
	case k.lost >= 0:
		k.holes = append(k.holes, hole{k.lost, a.size - k.lost})
		k.end = a.size
	case k.zeros >= 0:
		k.walked.zeros = a.size - k.zeros
	case k.end < a.size && off < a.size:
		k.holes = append(k.holes, hole{k.end, a.size - k.end})
	}
	return k.walked, nil
}

// walker is the state of a walk.
type walker struct {
	a     *archive
	v     *view
	pos   int64
	lost  int64 // where a run without headers began; -1 outside such a run
	zeros int64 // where a run of zero blocks began; -1 outside such a run
	long  longName
	done  bool
	walked
}

// displaced returns where the next header of LINDI's tools is if that is not at the beginning of a block,
// because bytes before it were inserted or lost, and -1 otherwise.
func (k *walker) displaced(ctx context.Context) (int64, error) {
	from := max(k.pos-mostBack, 0)
	if n := len(k.members); n > 0 {
		from = max(from, k.members[n-1].d)
	}
	at, err := tarhead.Find(ctx, k.a.obj, k.a.size, from, k.a.size, func(b []byte, _ int64) bool {
		h, ok := parseHeader(b)
		return ok && h.ours
	})
	if (at-k.pos)&(blockLen-1) == 0 {
		at = -1
	}
	return at, err
}

// mostBack is how far before its place a header is searched. As many bytes before it may be lost.
const mostBack = 64 << 10

// moveTo goes on at a header that is not where the last member leads to. If that extends beyond the
// header, bytes of it are lost, and what is left of it gets another name.
func (k *walker) moveTo(at int64) {
	if n := len(k.members); n > 0 && at < k.members[n-1].d+k.members[n-1].s {
		last := &k.members[n-1]
		last.row.name, last.s = last.row.name+kit.DamagedSuffix, at-last.d
	}
	if at > k.end {
		k.holes = append(k.holes, hole{k.end, at - k.end})
	}
	k.pos, k.lost, k.zeros = at, -1, -1
}

// longName is what preceding headers say about a header: a name that is too long for it, and its
// size.
type longName struct {
	from  int64
	any   bool
	name  string
	size  int64
	sized bool
}

// header records a header and moves to the next one.
func (k *walker) header(h header) error {
	if k.lost >= 0 {
		k.holes = append(k.holes, hole{k.lost, k.pos - k.lost})
	}
	k.lost, k.zeros = -1, -1
	data := k.pos + blockLen
	if (h.kind == 'L' || h.kind == 'x' || h.kind == 'g') && h.size <= maxPax && data+h.size <= k.a.size {
		b, err := k.v.at(data, h.size)
		if err != nil {
			return err
		}
		k.long.add(h.kind, k.pos, b)
		k.pos = data + padded(h.size)
		return nil
	}
	f := found{header: h, row: row{name: h.name, o: k.pos, d: data, s: h.size}}
	if k.long.any {
		k.long.apply(&f)
		k.long = longName{}
	}
	if f.odd = !h.isFile(); h.kind >= '1' && h.kind <= '6' {
		f.s = 0 // links, devices and folders have no content, whatever their size field
	}
	f.trash = strings.HasPrefix(f.row.name, trashDir)
	f.cut = f.s > k.a.size-f.d
	k.members = append(k.members, f)
	if f.cut {
		k.end, k.done = k.a.size, true
		return nil
	}
	k.pos = f.row.end()
	k.end = min(k.pos, k.a.size)
	return nil
}

func (l *longName) add(kind byte, at int64, b []byte) {
	if !l.any {
		l.from, l.any = at, true
	}
	switch kind {
	case 'L':
		l.name = string(tarhead.Text(b))
	case 'x':
		name, size, sized := pax(b)
		if name != "" {
			l.name = name
		}
		if sized {
			l.size, l.sized = size, true
		}
	}
}

func (l *longName) apply(f *found) {
	f.o, f.ours = l.from, false
	if l.name != "" {
		f.row.name = l.name
	}
	if l.sized {
		f.s = l.size
	}
}

// noHeader moves to the next block. Two blocks of zeros end a tar, unless members of LINDI's
// follow: the reference appends after the zeros.
func (k *walker) noHeader(zeros bool) error {
	switch {
	case !zeros && k.lost < 0:
		k.lost = k.pos
		if k.zeros >= 0 {
			k.lost = k.zeros // a header that was zeroed
		}
		k.zeros = -1
	case !zeros:
		k.zeros = -1
	case k.zeros < 0:
		k.zeros = k.pos
	}
	k.pos += blockLen
	if k.lost >= 0 || k.zeros < 0 || k.pos-k.zeros < terminatorLen {
		return nil
	}
	next, err := k.a.afterZeros(k.v, k.pos)
	if err != nil {
		return err
	}
	if next < 0 {
		k.walked.zeros, k.done = k.a.size-k.zeros, true
		return nil
	}
	k.holes = append(k.holes, hole{k.zeros, next - k.zeros})
	k.pos, k.zeros = next, -1
	return nil
}

// afterZeros returns the next header after a run of zero blocks, or -1 if only zeros follow. Tars
// end with zeros, and the reference appends after these.
func (a *archive) afterZeros(v *view, pos int64) (int64, error) {
	for ; pos+blockLen <= a.size; pos += blockLen {
		b, err := v.at(pos, blockLen)
		if err != nil {
			return -1, err
		}
		if zero(b) {
			continue
		}
		if h, ok := parseHeader(b); ok && h.ours {
			return pos, nil
		}
	}
	return -1, nil
}

// nested returns the size of the archive within a content that begins at pos.
func (a *archive) nested(v *view, pos int64) (int64, error) {
	from := pos
	for pos+blockLen <= a.size {
		b, err := v.at(pos, blockLen)
		if err != nil {
			return 0, err
		}
		h, ok := parseHeader(b)
		if !ok {
			if pos+terminatorLen <= a.size && zero(b) {
				pos += terminatorLen
			}
			break
		}
		if h.size > a.size-pos-blockLen {
			return a.size - from, nil
		}
		pos += blockLen + padded(h.size)
	}
	return max(pos-from, blockLen), nil
}

// pax returns the relevant records of a pax header.
func pax(b []byte) (name string, size int64, sized bool) {
	for len(b) > 0 {
		digits, rest, ok := bytes.Cut(b, []byte(" "))
		n, good := jsontext.ParseWhole(digits)
		if !ok || !good || n <= int64(len(digits))+1 || n > int64(len(b)) {
			return name, size, sized
		}
		record := rest[:n-int64(len(digits))-1]
		b = b[n:]
		key, value, _ := bytes.Cut(bytes.TrimSuffix(record, []byte("\n")), []byte("="))
		switch string(key) {
		case "path":
			name = string(value)
		case "size":
			size, sized = jsontext.ParseWhole(value)
		}
	}
	return name, size, sized
}

// view reads an archive in blocks, ahead of what is requested.
type view struct {
	a   *archive
	ctx context.Context
	off int64
	b   []byte
}

func (v *view) at(off, n int64) ([]byte, error) {
	if off >= v.off && off+n <= v.off+int64(len(v.b)) {
		return v.b[off-v.off:][:n], nil
	}
	if err := v.ctx.Err(); err != nil {
		return nil, context.Cause(v.ctx)
	}
	ahead := int64(blockLen) // headers are far apart, and on a disk reading a block each is enough
	if !v.a.st.Can().Near {
		ahead = scanBlock
	}
	b, err := v.a.read(v.ctx, off, max(n, min(ahead, v.a.size-off)))
	if err != nil {
		return nil, err
	}
	v.off, v.b = off, b
	return b[:n], nil
}

// scan makes a table from headers. If several members have the same name, the last complete one
// counts; for lindi.json, the last one that can be read.
func (a *archive) scan(ctx context.Context) (*memberTable, error) {
	w, err := a.walk(ctx, 0)
	if err != nil {
		return nil, err
	}
	t := &memberTable{found: true, size: a.size, holes: w.holes}
	any := false
	var rows []row
	var rfs *row
	for _, f := range w.members {
		if f.trash || f.odd {
			continue
		}
		any = any || f.ours
		switch f.row.name {
		case rfsName:
			ok, err := a.readable(ctx, f)
			if err != nil {
				return nil, err
			}
			if ok {
				rfs = &f.row
			}
		case entryName, indexName:
			if f.o == 0 || f.row.name == indexName {
				rows = append(rows, f.row)
			}
		default:
			rows = append(rows, f.row)
		}
	}
	if !any {
		return nil, a.corrupt(format.BadMagic, 0, "found no header of a LINDI tar")
	}
	if rfs != nil {
		rows = append(rows, *rfs)
	}
	rows = a.dedup(rows)
	t.recalled, err = a.recall(ctx, rows)
	for _, r := range rows {
		t.add(r)
	}
	return t, err
}

// recall takes digests from an index that is otherwise not used: a row with the place, size and
// name of a header has the digest of that member. It reports whether there are digests in it.
func (a *archive) recall(ctx context.Context, rows []row) (any bool, err error) {
	at := a.entry // if its header is damaged, the entry says where it is
	for _, r := range rows {
		if r.name == indexName {
			at.d, at.s = r.d, r.s
		}
	}
	n := min(at.s, a.limits.Index, a.size-at.d)
	if n <= 0 || n >= 1<<32 {
		return false, nil
	}
	text, err := a.read(ctx, at.d, n)
	if err != nil {
		return false, err
	}
	type key struct {
		name string
		d, s int64
	}
	const anywhere = -1 // for a member that is elsewhere, if only one has its name and size
	sums := map[key]string{}
	for from := 0; ; from++ {
		i := bytes.IndexByte(text[from:], '{')
		if i < 0 {
			break
		}
		from += i
		s := scannerOf(text[from:], a.limits.Depth)
		if r, ok := parseRow(s, new([digestLen]byte)); s.Err == nil && ok && r.sum != "" {
			sums[key{r.name, r.d, r.s}] = r.sum
			if old, twice := sums[key{r.name, anywhere, r.s}]; !twice || old == r.sum {
				sums[key{r.name, anywhere, r.s}] = r.sum
			} else {
				sums[key{r.name, anywhere, r.s}] = ""
			}
			from += s.At - 1
		}
	}
	for i, r := range rows {
		rows[i].sum = cmp.Or(sums[key{r.name, r.d, r.s}], sums[key{r.name, anywhere, r.s}])
	}
	return len(sums) > 0, nil
}

// readable reports whether a member is a usable lindi.json.
func (a *archive) readable(ctx context.Context, f found) (bool, error) {
	if f.cut || f.s > a.limits.Index || f.s >= 1<<32 {
		return false, nil
	}
	b, err := a.read(ctx, f.d, min(f.s, 64))
	if err != nil || !bytes.HasPrefix(bytes.TrimLeft(b, " \t\r\n"), []byte("{")) {
		return false, err // usually the dashes that overwrite an abandoned one
	}
	if b, err = a.read(ctx, f.d, f.s); err != nil {
		return false, err
	}
	_, err = parseRFS(bytes.TrimRight(b, " \t\r\n"), a.limits.Depth)
	return err == nil, nil
}

// dedup drops rows whose name occurs in a later row, unless the later one is truncated.
func (a *archive) dedup(rows []row) []row {
	lastOf := map[string]int{}
	for i, r := range rows {
		if _, twice := lastOf[r.name]; twice && r.d > a.size-r.s {
			continue // the earlier one is complete
		}
		lastOf[r.name] = i
	}
	kept := rows[:0]
	for i, r := range rows {
		if lastOf[r.name] == i {
			kept = append(kept, r)
		}
	}
	return kept
}

// tag converts a number to ten letters, for names in the trash.
func tag(n int64) string {
	const letters = "abcdefghijklmnopqrstuvwxyz"
	b := make([]byte, 0, 10)
	for range 10 {
		b = append(b, letters[n%26])
		n /= 26
	}
	return string(b)
}

// shownRange returns a range as a text.
func shownRange(off, n int64) string {
	return strconv.FormatInt(off, 10) + " to " + strconv.FormatInt(off+n, 10)
}
