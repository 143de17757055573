package lindi

import (
	"bytes"
	"context"
	"strconv"
	"strings"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/store"
)

// A found is a member as its header has it.
type found struct {
	header
	row
	cut   bool // its content reaches beyond the end of the archive
	odd   bool // no file: a folder, a link, a pax header of its own
	trash bool
}

// A hole is a run in which no header could be recognised.
type hole struct{ off, n int64 }

// walked is what a walk over headers found.
type walked struct {
	members []found
	holes   []hole
	end     int64 // where the last member ends, and the terminator should be
	zeros   int64 // zero bytes from there to the end of the archive, in whole blocks
}

const (
	scanBlock = 256 << 10
	maxPax    = 1 << 20 // of one pax header: names, not contents
)

// walk goes over the headers from off to the end of the archive. Where there is
// none it looks for the next at each block: content that holds a tar of its own
// is told from members by the way in which LINDI's tools write headers.
func (a *archive) walk(ctx context.Context, off int64) (w walked, err error) {
	v := &view{a: a, ctx: ctx}
	var long struct {
		name  string
		size  int64
		sized bool
		from  int64
		any   bool
	}
	lost := int64(-1)
	w.end = off
	zeroFrom := int64(-1)
	for pos := off; pos+blockLen <= a.size; {
		b, err := v.at(pos, blockLen)
		if err != nil {
			return w, err
		}
		h, ok := parseHeader(b)
		if ok && lost >= 0 && !h.ours {
			ok = false // most likely a tar within a content whose header is lost
		}
		if ok && pos > 0 && lost >= 0 && h.name == entryName {
			// An archive of ours within a content: all of it.
			n, err := a.nested(v, pos)
			if err != nil {
				return w, err
			}
			pos += n
			continue
		}
		if !ok {
			if zero(b) {
				if zeroFrom < 0 {
					zeroFrom = pos
				}
				if lost < 0 && zeroFrom+terminatorLen <= pos+blockLen {
					// The end of the tar, unless something follows.
					next, err := a.afterZeros(v, pos+blockLen)
					if err != nil || next < 0 {
						w.zeros = a.size - zeroFrom
						return w, err
					}
					w.holes = append(w.holes, hole{zeroFrom, next - zeroFrom})
					pos, zeroFrom = next, -1
					continue
				}
			} else {
				if lost < 0 {
					lost = pos
					if zeroFrom >= 0 {
						lost = zeroFrom // a header that was zeroed
					}
				}
				zeroFrom = -1
			}
			pos += blockLen
			continue
		}
		if lost >= 0 {
			w.holes = append(w.holes, hole{lost, pos - lost})
			lost = -1
		}
		zeroFrom = -1
		data := pos + blockLen
		switch h.kind {
		case 'L', 'x', 'g':
			if h.size > maxPax || data+h.size > a.size {
				break
			}
			b, err := v.at(data, h.size)
			if err != nil {
				return w, err
			}
			if !long.any {
				long.from, long.any = pos, true
			}
			if h.kind == 'L' {
				long.name = text(b)
			} else if h.kind == 'x' {
				name, size, sized := pax(b)
				if name != "" {
					long.name = name
				}
				if sized {
					long.size, long.sized = size, true
				}
			}
			pos = data + padded(h.size)
			continue
		}
		f := found{header: h, row: row{name: h.name, o: pos, d: data, s: h.size}}
		if long.any {
			f.o = long.from
			if f.ours = false; long.name != "" {
				f.row.name = long.name
			}
			if long.sized {
				f.s = long.size
			}
			long.name, long.sized, long.any = "", false, false
		}
		f.odd = !h.isFile()
		if f.odd && h.kind != 'S' && h.kind != 'K' {
			f.s = 0 // folders, links and devices have no content, whatever they say
			if h.size > 0 && (h.kind < '1' || h.kind > '6') {
				f.s = h.size
			}
		}
		f.trash = strings.HasPrefix(f.row.name, trashDir)
		f.cut = f.s > a.size-f.d
		w.members = append(w.members, f)
		if f.cut {
			w.end = a.size
			return w, nil
		}
		pos = f.row.end()
		w.end = min(pos, a.size)
	}
	if lost >= 0 {
		w.holes = append(w.holes, hole{lost, a.size - lost})
		w.end = a.size
	} else if zeroFrom >= 0 {
		w.zeros = a.size - zeroFrom
	} else if w.end < a.size && off < a.size {
		w.holes = append(w.holes, hole{w.end, a.size - w.end})
	}
	return w, nil
}

// afterZeros returns where the next header is behind a run of zero blocks, -1
// where only zeros follow. Tars pad their end with zeros; the reference appends
// behind those.
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

// nested returns how long the archive within a content is that begins at pos.
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

// pax reads the records of a pax header that matter here.
func pax(b []byte) (name string, size int64, sized bool) {
	for len(b) > 0 {
		digits, rest, ok := bytes.Cut(b, []byte(" "))
		n, good := whole(digits)
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
			size, sized = whole(value)
		}
	}
	return name, size, sized
}

// view reads an archive in blocks, ahead of where it is asked.
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
	ahead := int64(blockLen) // headers lie apart: on a disk a block each is enough
	if !store.IsNear(v.a.st) {
		ahead = scanBlock
	}
	b, err := v.a.read(v.ctx, off, max(n, min(ahead, v.a.size-off)))
	if err != nil {
		return nil, err
	}
	v.off, v.b = off, b
	return b[:n], nil
}

// scan makes a table of what headers say. Of several members of one name the
// last one counts that is whole; of lindi.json, the last that can be read.
func (a *archive) scan(ctx context.Context) (*table, error) {
	w, err := a.walk(ctx, 0)
	if err != nil {
		return nil, err
	}
	t := &table{found: true, size: a.size, holes: w.holes}
	any := false
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
				t.rows = append(t.rows, f.row)
			}
		default:
			t.rows = append(t.rows, f.row)
		}
	}
	if !any {
		return nil, a.corrupt(format.BadMagic, 0, "no header of a LINDI tar anywhere in it")
	}
	if rfs != nil {
		t.rows = append(t.rows, *rfs)
	}
	t.dedup()
	return t, nil
}

// readable reports whether a member is a lindi.json that can be used.
func (a *archive) readable(ctx context.Context, f found) (bool, error) {
	if f.cut || f.s > a.limits.Index || f.s >= 1<<32 {
		return false, nil
	}
	b, err := a.read(ctx, f.d, min(f.s, 64))
	if err != nil || !bytes.HasPrefix(bytes.TrimLeft(b, " \t\r\n"), []byte("{")) {
		return false, err // most often the dashes over what was given up
	}
	if b, err = a.read(ctx, f.d, f.s); err != nil {
		return false, err
	}
	_, err = parseRFS(bytes.TrimRight(b, " \t\r\n"), a.limits.Depth)
	return err == nil, nil
}

// dedup drops rows whose name a later row has, but for one that is cut off.
func (t *table) dedup() {
	lastOf := map[string]int{}
	for i, r := range t.rows {
		if _, twice := lastOf[r.name]; twice && r.d > t.size-r.s {
			continue // the earlier one is whole, this one is not
		}
		lastOf[r.name] = i
	}
	kept := t.rows[:0]
	for i, r := range t.rows {
		if lastOf[r.name] == i {
			kept = append(kept, r)
		}
	}
	t.rows = kept
}

// tag makes ten letters out of a number, for names in the trash.
func tag(n int64) string {
	const letters = "abcdefghijklmnopqrstuvwxyz"
	b := make([]byte, 0, 10)
	for range 10 {
		b = append(b, letters[n%26])
		n /= 26
	}
	return string(b)
}

// shownRange is for messages.
func shownRange(off, n int64) string {
	return strconv.FormatInt(off, 10) + " to " + strconv.FormatInt(off+n, 10)
}
