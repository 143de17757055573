package zip

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"math"
	"slices"
	"strings"

	"github.com/holdall/holdall/codec"
	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/internal/charset"
	"github.com/holdall/holdall/format/kit"
	"github.com/holdall/holdall/format/kit/columns"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storekit"
)

// reader is an open archive whose directory has been read.
type reader struct {
	*kit.Index
	table  table
	st     store.Store  // for the other parts; nil if they are not read
	obj    store.Object // of a split archive, all parts as one
	parts  *parts       // nil if it is not split
	name   string
	size   int64
	dirOff int64
	// password decrypts entries; locks has those that it is for, by their numbers.
	password string
	locks    map[int]*lock
	decode   func(string) string // names that are not marked as UTF-8; nil for the usual rule
	notes    []format.Problem
	doubt    *format.Problem // the first problem that is an error

	// For repairs:
	each    func(x row, raw []byte) error
	comment string
}

func open(ctx context.Context, st store.Store, name string, o format.OpenOptions) (_ format.Reader, err error) {
	r := &reader{st: st, name: name, password: o.Password}
	if r.decode, err = charset.Of("zip", o.Param); err != nil {
		return nil, err
	}
	var tail []byte
	if r.obj, tail, r.size, err = kit.OpenPart(ctx, st, name, kit.ProbeSize, storekit.ReadTail); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			r.obj.Close()
		}
	}()
	e, base, err := r.findDirectory(ctx, tail)
	if err != nil {
		return nil, err
	}
	if err := r.readDirectory(ctx, e, base, o.Limits.OrDefault().Index); err != nil {
		return nil, err
	}
	if err := r.readLinks(ctx); err != nil {
		return nil, err
	}
	r.Index = kit.NewIndex(&r.table)
	return r, nil
}

func (r *reader) corrupt(code format.Code, off int64, msg string, args ...any) *format.CorruptError {
	name := r.name
	if r.parts != nil && off >= 0 {
		part := r.parts.in(off)
		name, off = r.parts.names[part], off-r.parts.starts[part]
	}
	return kit.Corrupt("zip", code, name, off, msg, args...)
}

// corruptItem is like corrupt, about an entry.
func (r *reader) corruptItem(p *item, code format.Code, off int64, msg string, args ...any) *format.CorruptError {
	c := r.corrupt(code, off, msg, args...)
	c.Entry, c.HasEntry = r.table.nameOf(p), true
	return c
}

// findDirectory finds the directory, and the difference between stored and real offsets, because
// bytes may precede an archive without its writer knowing about them.
func (r *reader) findDirectory(ctx context.Context, tail []byte) (e end, base int64, err error) {
	at := findEnd(tail)
	if more := min(r.size, endLen+maxComment+locatorLen); at < 0 && int64(len(tail)) < more {
		tail = make([]byte, more)
		if err := r.obj.ReadAt(ctx, tail, r.size-more); err != nil {
			return e, 0, err
		}
		at = findEnd(tail)
	}
	if at < 0 {
		if at = findOdd(tail, r.size-int64(len(tail))); at >= 0 {
			r.behindEnd(tail[at:], r.size-int64(len(tail)-at))
		}
	}
	if at < 0 {
		if err := r.partAlone(ctx); err != nil {
			return e, 0, err
		}
		return e, 0, r.corrupt(format.MissingIndex, -1, "no end of the directory: truncated, or not a zip")
	}
	pos := r.size - int64(len(tail)) + int64(at)
	comment := tail[at+endLen:]
	r.comment = string(comment[:min(len(comment), int(binary.LittleEndian.Uint16(tail[at+20:])))])
	e = parseEnd(tail[at:])
	var locator []byte
	if e.long && pos >= locatorLen {
		b := make([]byte, locatorLen)
		if err := r.obj.ReadAt(ctx, b, pos-locatorLen); err != nil {
			return e, 0, err
		}
		if part, _, parts, ok := parseLocator(b); ok {
			locator = b
			if e.disk = part; parts > 1 { // the record and the end may be in different parts
				e.disk = uint64(parts - 1)
			}
		}
	}
	if e.disk > 0 && e.disk <= mostParts && r.st != nil {
		size := r.size
		if err := r.join(ctx, int(e.disk)); err != nil {
			return e, 0, err
		}
		pos += r.size - size
	}
	if locator != nil {
		part, off, _, _ := parseLocator(locator)
		off, within := r.parts.from(part, off)
		if !within || off > math.MaxInt64 || int64(off) > pos-locatorLen-end64Len {
			return e, 0, r.corrupt(format.OutOfBounds, pos-locatorLen, "the end of the directory cannot be at %d", off)
		}
		b := make([]byte, end64Len)
		if err := r.obj.ReadAt(ctx, b, int64(off)); err != nil {
			return e, 0, err
		}
		if string(b[:4]) != end64Magic {
			// Bytes may precede the archive.
			off = uint64(pos - locatorLen - end64Len)
			if err := r.obj.ReadAt(ctx, b, int64(off)); err != nil {
				return e, 0, err
			}
		}
		var ok bool
		if e, ok = parseEnd64(b); !ok {
			return e, 0, r.corrupt(format.BadIndex, int64(off), "expected the end of the directory")
		}
		pos = int64(off)
	}
	if off, within := r.parts.from(e.start, e.off); within {
		e.off = off
	} else {
		return e, 0, r.corrupt(format.OutOfBounds, pos, "the directory cannot be at %d of part %d", e.off, e.start+1)
	}
	if e.size > uint64(pos) || e.off > uint64(pos)-e.size {
		return e, 0, r.corrupt(format.OutOfBounds, pos, "the directory of %d bytes at %d ends after %d", e.size, e.off, pos)
	}
	return e, pos - int64(e.size) - int64(e.off), nil
}

// readDirectory reads the rows of the directory.
func (r *reader) readDirectory(ctx context.Context, e end, base, limit int64) error {
	r.dirOff = int64(e.off) + base
	behind := int64(0) // bytes between the end of the directory according to the end record, and that record
	if base > 0 && e.count > 0 {
		// The writer may have known about the bytes before or after the directory.
		var b [4]byte
		if err := r.obj.ReadAt(ctx, b[:], int64(e.off)); err != nil {
			return err
		}
		if string(b[:]) == rowMagic {
			behind, base, r.dirOff = base, 0, int64(e.off)
		}
	}
	memory := int64(endLen)
	if memory > limit {
		return r.corrupt(format.Limit, r.dirOff, "an index of %d bytes or more exceeds the limit of %d", memory, limit)
	}
	room := make([]byte, min(int64(e.size)+behind, 256<<10)) // more than the longest row
	buf := room[:0]
	off, stop := r.dirOff, r.dirOff+int64(e.size)
	end := stop + behind // a row may be there if the end record is wrong
	next := off          // offset of the next read
	fill := func() error {
		k := copy(room, buf)
		buf = room[:min(int64(len(room)), int64(k)+end-next)]
		if err := r.obj.ReadAt(ctx, buf[k:], next); err != nil {
			return err
		}
		next += int64(len(buf) - k)
		return nil
	}
	for off < stop {
		x, n, err := parseRow(buf, r.decode)
		if n == 0 && err == nil && next < end {
			if err := fill(); err != nil {
				return err
			}
			continue
		}
		if n == 0 {
			r.wrong(r.corrupt(format.BadIndex, off, "entry %d of the directory: %v; skipped", r.table.Len(), cmp.Or(err, errShort)))
			for skip := 1; ; skip = 0 {
				if i := bytes.Index(buf[skip:], []byte(rowMagic)); i >= 0 {
					buf, off = buf[skip+i:], off+int64(skip+i)
					break
				}
				if next == end {
					off = end
					break
				}
				drop := len(buf) - (len(rowMagic) - 1)
				buf, off = buf[drop:], off+int64(drop)
				if err := fill(); err != nil {
					return err
				}
			}
			continue
		}
		if memory += int64(len(x.name)) + costOfEntry; memory > limit {
			return r.corrupt(format.Limit, off, "%d entries take more memory than the limit of %d bytes", r.table.Len()+1, limit)
		}
		if x.flags&flagEncrypted != 0 && r.password != "" {
			memory += costOfALock
		}
		if err == nil && r.each != nil {
			if err := r.each(x, buf[:n]); err != nil {
				return err
			}
		}
		if err == nil {
			r.add(x, base, off)
		} else {
			r.wrong(r.corrupt(format.BadIndex, off, "entry %d of the directory: %v", r.table.Len(), err))
		}
		buf, off = buf[n:], off+int64(n)
	}
	if e.count&math.MaxUint16 != uint64(r.table.Len())&math.MaxUint16 {
		r.wrong(r.corrupt(format.BadIndex, r.dirOff, "the directory has %d entries, expected %d", r.table.Len(), e.count))
	}
	if r.doubt != nil && r.table.Len() == 0 {
		return &format.CorruptError{Format: "zip", Problem: *r.doubt}
	}
	return nil
}

// mostNotes is the number of problems of a directory that are reported.
const mostNotes = 1000

// wrong records a problem that does not prevent reading the rest.
func (r *reader) wrong(c *format.CorruptError) {
	if len(r.notes) < mostNotes {
		r.notes = append(r.notes, c.Problem)
	}
	if r.doubt == nil && c.Severity == format.Error {
		r.doubt = &c.Problem
	}
}

// behindEnd records what is unusual about an archive that ends with tail.
func (r *reader) behindEnd(tail []byte, off int64) {
	comment := int(binary.LittleEndian.Uint16(tail[20:]))
	c := r.corrupt(format.Gap, off+endLen+int64(comment), "%d bytes after the end of the archive", len(tail)-endLen-comment)
	if comment > len(tail)-endLen {
		c = r.corrupt(format.Truncated, off, "comment of %d bytes, but only %d bytes are left", comment, len(tail)-endLen)
	}
	c.Severity = format.Warning
	r.wrong(c)
}

// Can returns the optional functions of the reader.
func (r *reader) Can() format.Abilities {
	can := r.Index.Can()
	can.Doubt = func() *format.Problem { return r.doubt }
	can.Made = func(name string) store.Object {
		if r.parts != nil && name == r.joined() {
			return r.parts.whole
		}
		return r.decrypted(name)
	}
	can.Compares = func(e format.Entry) format.Proof {
		if i, ok := e.Ref.(int); ok && r.locks[i] != nil {
			return format.Summed
		}
		return format.Unproven
	}
	return can
}

// add adds the entry of a row.
func (r *reader) add(x row, base, rowOff int64) {
	mode, known := x.mode()
	off, within := r.parts.from(uint64(x.part), x.off)
	name := strings.TrimSuffix(x.name, "/")
	t := &r.table
	e := item{off: int64(off) + base, stored: int64(x.stored), size: int64(x.size), crc: x.crc, mode: mode &^ fs.ModeType,
		nameLen: uint32(len(name)), owner: t.people.ID([]byte(x.owner)), group: t.people.ID([]byte(x.group))}
	e.name = t.names.Add([]byte(name))
	if known {
		e.flags |= hasMode
	}
	if !x.time.IsZero() {
		e.sec, e.nsec = x.time.Unix(), int32(x.time.Nanosecond())
		e.flags |= hasTime
	}
	var wrong *format.Problem
	fault := func(code format.Code, class, msg string, args ...any) {
		wrong = &r.corrupt(code, rowOff, msg, args...).Problem
		wrong.Class, wrong.Entry, wrong.HasEntry = class, name, true
	}
	switch {
	case name != x.name, mode&fs.ModeType == fs.ModeDir, !known && x.size == 0 && x.external&dosDir != 0:
		e.kind = format.Dir
	case mode&fs.ModeType == fs.ModeSymlink:
		e.kind = format.Symlink
	case mode&fs.ModeType != 0:
		fault(format.Unsupported, "device", "not a file, folder or link: not supported")
	}
	var l *lock
	extra := uint64(0)
	if x.flags&flagEncrypted != 0 {
		if l = lockOf(&x); l != nil && e.kind != format.Dir {
			before, after := l.around()
			extra = uint64(before + after)
		}
		if x.strength > 0 {
			x.method = x.hidden
		}
		if x.version > 1 {
			e.flags |= isUnsummed
		}
	}
	coder, read := methods[x.method]
	e.method = uint8(x.method)
	if x.open() {
		e.flags |= isOpen
	}
	switch {
	case !read:
		fault(format.Unsupported, "unsupported-compression", "compression %s is not supported", cmp.Or(unread[x.method], fmt.Sprintf("method %d", x.method)))
	case coder != codec.Raw:
	case x.stored != x.size+extra:
		fault(format.BadIndex, "", "%d bytes stored, expected %d", x.stored, x.size+extra)
	}
	switch {
	case x.flags&flagEncrypted == 0:
	case l == nil:
		fault(format.Unsupported, "encryption", "encryption of this kind is not supported")
	case r.password == "":
		fault(format.Unsupported, "encrypted", "encrypted: it needs a password")
	default:
		columns.Rare(&r.locks, t.Len(), l)
	}
	if e.kind == format.File && e.size == 0 {
		e.stored = 0 // an empty stream
	}
	if !within {
		fault(format.OutOfBounds, "", "expected at %d of part %d, which ends before that", x.off, x.part+1)
	} else if e.kind != format.Dir && e.off > r.dirOff-localLen-e.stored {
		fault(format.OutOfBounds, "", "%d bytes expected at %d, but the directory begins at %d", e.stored, e.off, r.dirOff)
	}
	t.items.Add(e)
	if wrong != nil {
		t.fault(t.Len()-1, wrong)
	}
}

// maxLink is the longest target of a link.
const maxLink = 64 << 10

// readLinks reads the targets of symbolic links, which are their contents.
func (r *reader) readLinks(ctx context.Context) error {
	for i := range r.table.Len() {
		if r.table.items.At(i).kind != format.Symlink || !r.table.readable(i) {
			continue
		}
		err := r.readLink(ctx, i)
		if c, damaged := err.(*format.CorruptError); damaged {
			r.table.fault(i, &c.Problem)
		} else if err != nil {
			return err
		}
	}
	return nil
}

func (r *reader) readLink(ctx context.Context, i int) error {
	p := r.table.items.At(i)
	if p.stored > maxLink {
		return r.corruptItem(p, format.Limit, p.off, "link target of %d bytes: expected at most %d", p.stored, maxLink)
	}
	obj, _, off, n, err := r.place(ctx, i, p)
	if err != nil {
		return err
	}
	b := make([]byte, n)
	if err := obj.ReadAt(ctx, b, off); err != nil {
		return err
	}
	if p.method != stored {
		z, _ := codec.Lookup(p.codec())
		d, err := z.Decode(strings.NewReader(string(b)))
		if err == nil {
			b, err = io.ReadAll(io.LimitReader(d, min(p.size, maxLink+1)))
			err = errors.Join(err, d.Close())
		}
		if err != nil || len(b) > maxLink {
			return r.corruptItem(p, format.BadData, off, "cannot decode the link target")
		}
	}
	r.table.link(i, string(b))
	return nil
}

// contentOff returns where an entry's content begins, which only the header before it shows.
func (r *reader) contentOff(ctx context.Context, p *item) (int64, error) {
	var b [localLen]byte
	if err := r.obj.ReadAt(ctx, b[:], p.off); err != nil {
		return 0, err
	}
	n, ok := parseLocal(b[:])
	if !ok {
		return 0, r.corruptItem(p, format.BadHeader, p.off, "the entry begins with %x, expected %x", b[:4], localMagic)
	}
	if p.off+n > r.dirOff-p.stored {
		return 0, r.corruptItem(p, format.OutOfBounds, p.off, "%d bytes stored from %d on, but the directory begins at %d", p.stored, p.off+n, r.dirOff)
	}
	return p.off + n, nil
}

// localRow returns the header before a content as a row of the directory, without what only rows have,
// and its length. The name is empty if it is none.
func (r *reader) localRow(ctx context.Context, off int64) (x row, raw []byte, n int64, err error) {
	b := make([]byte, localLen)
	if err := r.obj.ReadAt(ctx, b, off); err != nil {
		return row{}, nil, 0, err
	}
	n, _ = parseLocal(b)
	if n > r.dirOff-off {
		return row{}, nil, 0, nil
	}
	raw = append(make([]byte, rowLen, rowLen+n), make([]byte, max(n-localLen, 0))...)
	if err := r.obj.ReadAt(ctx, raw[rowLen:], off+localLen); err != nil {
		return row{}, nil, 0, err
	}
	copy(raw, rowMagic)
	copy(raw[6:], b[4:localLen])
	if x, _, err = parseRow(raw, r.decode); err != nil {
		return row{}, nil, 0, nil
	}
	return x, raw, n, nil
}

// place returns where the content of an entry is, decrypted: the object, its name and the range.
func (r *reader) place(ctx context.Context, i int, p *item) (obj store.Object, name string, off, n int64, err error) {
	if l := r.locks[i]; l != nil {
		if obj, err = r.unlock(ctx, i, p, l); err != nil {
			return nil, "", 0, 0, err
		}
		before, after := l.around()
		return obj, r.decryptedName(i), 0, p.stored - before - after, nil
	}
	off, err = r.contentOff(ctx, p)
	return r.obj, r.name, off, p.stored, err
}

func (r *reader) Close() error { return r.obj.Close() }

func (r *reader) Extents(ctx context.Context, e format.Entry, off, n int64) iter.Seq2[format.Extent, error] {
	return func(yield func(format.Extent, error) bool) {
		i, ok := e.Ref.(int)
		if !ok || e.Fault != nil || !e.Kind.HasContent() || n <= 0 || off >= e.Size {
			return
		}
		p := r.table.items.At(i)
		_, name, at, n, err := r.place(ctx, i, p)
		x := format.Extent{Size: e.Size, Object: name, Off: at, Len: n, Codec: p.codec()}
		if p.method != stored && p.flags&isOpen == 0 {
			x.Unit = e.Size
		}
		if err != nil || r.locks[i] != nil {
			yield(x, err)
			return
		}
		r.places(x, yield)
	}
}

// byPlace returns the readable entries in stored order.
func (r *reader) byPlace() []uint32 {
	order := make([]uint32, 0, r.table.Len())
	for i := range r.table.Len() {
		if r.table.readable(i) {
			order = append(order, uint32(i))
		}
	}
	place := func(a, b uint32) int { return cmp.Compare(r.table.items.At(int(a)).off, r.table.items.At(int(b)).off) }
	if !slices.IsSortedFunc(order, place) {
		slices.SortFunc(order, place)
	}
	return order
}

// Regions yields the headers before contents, what follows contents, and the directory.
func (r *reader) Regions(ctx context.Context) iter.Seq2[format.Region, error] {
	headers := kit.Between(r.name, r.dirOff, "zip headers", func(yield func(format.Extent, error) bool) {
		for _, i := range r.byPlace() {
			p := r.table.items.At(int(i))
			if p.kind != format.File || p.size == 0 {
				continue
			}
			off, err := r.contentOff(ctx, p)
			if _, damaged := err.(*format.CorruptError); damaged {
				continue
			}
			if !yield(format.Extent{Off: off, Len: p.stored}, err) {
				return
			}
		}
	})
	return func(yield func(format.Region, error) bool) {
		placed := func(g format.Region) bool {
			if r.parts == nil {
				return yield(g, nil)
			}
			return r.parts.split(g.Off, g.Len, func(part int, off, n int64) bool {
				g.Object, g.Off, g.Len = r.parts.names[part], off, n
				return yield(g, nil)
			})
		}
		for g, err := range headers {
			if err != nil {
				yield(g, err)
				return
			}
			if !placed(g) {
				return
			}
		}
		if n := r.size - r.dirOff; n > 0 {
			placed(format.Region{Object: r.name, Off: r.dirOff, Len: n, Use: format.IndexData, Label: "directory"})
		}
	}
}

func (r *reader) About(context.Context) (format.About, error) {
	volumes := []string{r.name}
	if r.parts != nil {
		volumes = r.parts.names
	}
	return format.About{Version: "zip", Volumes: volumes, IndexBytes: r.size - r.dirOff, Notes: r.notes}, nil
}
