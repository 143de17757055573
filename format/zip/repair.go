package zip

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"math"
	"slices"

	"github.com/holdall/holdall/codec"
	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/internal/charset"
	"github.com/holdall/holdall/format/kit"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storekit"
)

// repair plans a directory with all files whose contents match their checksums. Contents stay
// where they are. Correct rows of the directory are kept. Damaged headers before contents are
// made from rows, and missing rows from headers.
func repair(ctx context.Context, st store.Store, name string, o format.OpenOptions, report func(format.Problem)) (format.Plan, error) {
	split, sound, err := check(ctx, st, name, o, report)
	switch {
	case err != nil || split && sound:
		return format.Plan{}, err
	case split:
		return format.Plan{}, fmt.Errorf("%s: a split zip is not repaired: join its parts first, with zip -s 0 %[1]s --out OUTPUT: %w", format.Escape(name), errors.ErrUnsupported)
	}
	decode, err := charset.Of("zip", o.Param)
	if err != nil {
		return format.Plan{}, err
	}
	obj, tail, size, err := kit.OpenPart(ctx, st, name, kit.ProbeSize, storekit.ReadTail)
	if err != nil {
		return format.Plan{}, err
	}
	defer obj.Close()
	m := &repairer{reader: &reader{name: name, decode: decode, obj: obj, size: size, dirOff: size}, ctx: ctx, limit: o.Limits.OrDefault().Index, names: map[string]bool{}}
	dirOff := int64(0)
	m.each = func(x row, raw []byte) error {
		m.base = m.dirOff - dirOff
		return m.remember(found{row: x, at: int64(x.off) + m.base, raw: bytes.Clone(raw)})
	}
	e, base, err := m.findDirectory(ctx, tail)
	if dirOff = int64(e.off); err == nil {
		err = m.readDirectory(ctx, e, base, m.limit)
	}
	damaged := err != nil || m.doubt != nil
	if _, corrupt := errors.AsType[*format.CorruptError](err); err != nil && !corrupt {
		return format.Plan{}, err
	} else if corrupt {
		m.base, m.dirOff, m.found = 0, size, nil
		kit.Say(&m.p.Notes, "cannot read the directory: %v", err)
	}
	if err := m.check(); err != nil {
		return format.Plan{}, err
	}
	wrong := func() bool { return damaged || len(m.missing) > 0 }
	if wrong() && !m.placed(m.found) {
		// It is not where the end record says, and nor are its files.
		for _, x := range m.found {
			if m.names[x.name] {
				m.missing = append(m.missing, x.name)
			}
		}
		clear(m.names)
		m.base, m.dirOff, m.found = 0, size, nil
	}
	if wrong() {
		if err := m.sweep(); err != nil {
			return format.Plan{}, err
		}
	}
	return m.plan(damaged)
}

// found is a file with a row or a header.
type found struct {
	row
	at   int64  // offset of its header
	end  int64  // end of its content
	raw  []byte // its row
	fine bool   // its header is valid, and its content is correct or cannot be checked
	sure bool   // its content proves that it is at this place
	// named means that its header has its name, although nothing else may prove the place.
	named bool
	head  int64 // length of the header that can be made from the row, if only the header is damaged
}

// repairer is the state of a repair.
type repairer struct {
	*reader
	ctx     context.Context
	limit   int64
	memory  int64
	base    int64
	found   []found
	listed  int             // how many of them the directory lists
	names   map[string]bool // of fine files
	missing []string        // names of rows that are not fine
	p       format.Plan
}

func (m *repairer) remember(x found) error {
	if m.memory += int64(len(x.name)+len(x.raw)) + 200; m.memory > m.limit {
		return m.corrupt(format.Limit, -1, "%d entries take more memory than the limit of %d bytes", len(m.found)+1, m.limit)
	}
	m.found = append(m.found, x)
	return nil
}

// check looks for the contents of the rows.
func (m *repairer) check() error {
	slices.SortStableFunc(m.found, func(a, b found) int { return cmp.Compare(a.at, b.at) })
	for i := range m.found {
		x := &m.found[i]
		if m.ctx.Err() != nil {
			return context.Cause(m.ctx)
		}
		behind := m.dirOff
		if i+1 < len(m.found) {
			behind = min(behind, m.found[i+1].at)
		}
		if err := m.checkOne(x, behind); err != nil {
			return err
		}
		if m.names[x.name] = m.names[x.name] || x.fine; !x.fine {
			m.missing = append(m.missing, x.name)
		}
	}
	// A header is only made where there is no readable content.
	behind := m.dirOff
	for i := range m.found {
		if x := &m.found[len(m.found)-1-i]; x.fine {
			behind = x.at
		} else if x.head > behind-x.at {
			x.head = 0
		}
	}
	return nil
}

// checkOne looks for the content of a row; the next content begins at behind.
func (m *repairer) checkOne(x *found, behind int64) error {
	var b [localLen]byte
	if x.at < 0 || x.at > m.dirOff-localLen {
		return nil
	}
	if err := m.obj.ReadAt(m.ctx, b[:], x.at); err != nil {
		return err
	}
	n, sound := parseLocal(b[:])
	if flags, method := binary.LittleEndian.Uint16(b[6:]), binary.LittleEndian.Uint16(b[8:]); sound && !x.proves() && (flags != x.flags || method != x.method) {
		return nil // either the row or the header is damaged
	}
	// If the header is damaged, the content may begin where the header says, or end where the
	// next one begins, with sizes between them.
	tries := []int64{n}
	if gap := behind - x.at - int64(x.stored); !sound && x.flags&flagBehind != 0 {
		tries = append(tries, gap-16, gap-24, gap-12, gap-20)
	} else if !sound {
		tries = append(tries, gap)
	}
	for _, n := range tries {
		if !sound && (n < int64(localLen+len(rowName(x.raw))) || n > localLen+2*math.MaxUint16) || int64(x.stored) > m.dirOff-x.at-n {
			continue
		}
		fine, err := m.matches(&x.row, x.at+n)
		if x.size == 0 && x.stored > 0 && !sound {
			fine, err = m.decodes(&x.row, x.at+n)
		}
		if err != nil {
			return err
		}
		if x.end = x.at + n + int64(x.stored); !fine || !sound && (x.stored >= math.MaxUint32 || x.size >= math.MaxUint32) {
			continue
		}
		if x.fine = sound; !sound {
			x.head = n
		}
		x.sure = x.size > 0 && x.proves() // nearly anything can be decoded as an empty content
		x.named, err = m.isNamed(x)
		return err
	}
	return nil
}

// placed reports whether a content, or the names of at least half of the rows, prove where the
// archive begins. That need not be proven if it begins at 0.
func (m *repairer) placed(rows []found) bool {
	named := 0
	for _, x := range rows {
		if !x.fine && x.head == 0 {
			continue
		}
		if x.sure || m.base == 0 {
			return true
		}
		if x.named {
			named++
		}
	}
	return named > 0 && 2*named >= len(rows)
}

// isNamed reports whether the header at the place of x has its name.
func (m *repairer) isNamed(x *found) (bool, error) {
	name := rowName(x.raw)
	b := make([]byte, localLen+len(name))
	if len(name) == 0 || int64(len(b)) > m.dirOff-x.at {
		return false, nil
	}
	err := m.obj.ReadAt(m.ctx, b, x.at)
	return err == nil && int(binary.LittleEndian.Uint16(b[26:])) == len(name) && bytes.Equal(b[localLen:], name), err
}

// makeHeader makes the header of x, unless there may be something else in its place: it must
// directly follow another content, the last of which ends at before, or still have the name.
func (m *repairer) makeHeader(x *found, before int64) error {
	length := x.head
	x.head = 0
	if x.at < before {
		return nil
	}
	b := make([]byte, length)
	if err := m.obj.ReadAt(m.ctx, b, x.at); err != nil {
		return err
	}
	n := x.at - before
	placed := n == 0 || before > 0 && (n == 16 || n == 24 || n == 12 || n == 20) || bytes.HasPrefix(b[localLen:], rowName(x.raw))
	if x.fine = placed && !bytes.Contains(b, []byte(localMagic)); !x.fine {
		return nil
	}
	m.names[x.name] = true
	kit.Say(&m.p.Notes, "rebuilt the header of %s from the directory", format.Escape(x.name))
	header := x.header(rowName(x.raw), int(length))
	m.p.Edits = append(m.p.Edits, format.Edit{Object: m.name, Off: x.at, Len: length, Write: func(w io.Writer) error {
		_, err := w.Write(header)
		return err
	}})
	if !x.proves() {
		kit.Say(&m.p.Lost, "%s: content not verified, because it is compressed with method %d or encrypted", format.Escape(x.name), x.method)
	}
	return nil
}

// rowName returns the name as stored in a row.
func rowName(raw []byte) []byte { return raw[rowLen:][:binary.LittleEndian.Uint16(raw[28:])] }

// header returns a header of n bytes for a content.
func (r *row) header(name []byte, n int) []byte {
	x := *r
	x.name, x.flags = string(name), x.flags&^flagBehind // the sizes are known
	b := x.appendLocal(nil)[:localLen]
	le := binary.LittleEndian
	le.PutUint16(b[26:], uint16(len(name)))
	le.PutUint16(b[28:], uint16(n-localLen-len(name)))
	le.PutUint16(b[6:], r.flags)
	b = append(b, name...)
	if room := n - len(b); room >= 4 {
		const padding = 0xd935 // as in Android's tools
		b = le.AppendUint16(le.AppendUint16(b, padding), uint16(room-4))
	}
	return append(b, make([]byte, n-len(b))...)
}

// proves reports whether reading the content shows whether it is correct.
func (r *row) proves() bool {
	_, read := methods[r.method]
	return r.flags&flagEncrypted == 0 && read
}

// open reports whether a decoder may read beyond the end of the content.
func (r *row) open() bool { return r.method == lzma && r.flags&flagMarked == 0 }

// matches reports whether a content at off matches its checksum, as far as that can be
// determined.
func (m *repairer) matches(x *row, off int64) (bool, error) {
	if x.method == stored && x.stored != x.size && x.flags&flagEncrypted == 0 {
		return false, nil
	}
	if !x.proves() || x.size == 0 && x.crc == 0 {
		return true, nil // it cannot be decoded
	}
	return m.decodes(x, off)
}

func (m *repairer) decodes(x *row, off int64) (bool, error) {
	in := &kit.RangeReader{Ctx: m.ctx, Object: m.obj, Off: off, End: off + int64(x.stored)}
	var r io.Reader = bufio.NewReaderSize(in, room(min(int64(x.stored), 64<<10)))
	if name := methods[x.method]; name != codec.Raw {
		c, _ := codec.Lookup(name)
		d, err := c.Decode(r)
		if err != nil {
			return false, in.Err
		}
		defer d.Close()
		r = d
	}
	sum := crc32.NewIEEE()
	most := int64(x.size) + 1
	if x.open() {
		most--
	}
	n, err := io.Copy(sum, io.LimitReader(r, most))
	if in.Err != nil {
		return false, in.Err
	}
	return err == nil && n == int64(x.size) && sum.Sum32() == x.crc, nil
}

// sweep scans the archive. It makes headers from rows if possible, and looks for headers of files
// without a row.
func (m *repairer) sweep() error {
	next := 0 // of the rows of the directory, which are in stored order
	m.listed = len(m.found)
	in := &kit.RangeReader{Ctx: m.ctx, Object: m.obj, End: m.dirOff}
	buf := bufio.NewReaderSize(in, room(m.dirOff))
	at, before := int64(0), int64(0) // where the last content ends
	to := func(off int64) {
		in.Off, at = off, off
		buf.Reset(in)
	}
	for m.ctx.Err() == nil {
		for ; next < m.listed && m.found[next].at <= at; next++ {
			x := &m.found[next]
			if x.head > 0 {
				if err := m.makeHeader(x, before); err != nil {
					return err
				}
			}
			if x.fine {
				before = max(before, x.end)
			}
		}
		if before > at {
			to(before)
			continue
		}
		b, err := buf.Peek(localLen)
		if err != nil {
			break
		}
		if string(b[:4]) != localMagic {
			b, _ = buf.Peek(max(buf.Buffered(), localLen))
			skip := bytes.Index(b[1:], []byte(localMagic[:1])) + 1
			if skip == 0 {
				skip = len(b)
			}
			if next < m.listed {
				skip = int(min(int64(skip), m.found[next].at-at))
			}
			buf.Discard(skip)
			at += int64(skip)
			continue
		}
		x, behind, err := m.local(at)
		if err != nil {
			return err
		}
		if behind > 0 {
			to(behind)
		} else {
			buf.Discard(4)
			at += 4
		}
		if x == nil {
			continue
		}
		if before = max(before, x.end); m.names[x.name] {
			continue
		}
		kit.Say(&m.p.Notes, "listed %s from its header at byte %d", format.Escape(x.name), x.at)
		m.names[x.name] = true
		if err := m.remember(*x); err != nil {
			return err
		}
	}
	return errors.Join(context.Cause(m.ctx), in.Err)
}

// local makes a row from the header at off, or returns nil if its content is wrong. next is where
// to continue, or 0 if it is not known.
func (m *repairer) local(off int64) (_ *found, next int64, _ error) {
	x, raw, n, err := m.localRow(m.ctx, off)
	if err != nil || x.name == "" {
		return nil, 0, err
	}
	x.off = uint64(off)
	if x.name[len(x.name)-1] == '/' {
		x.external = dosDir
	}
	at := off + n
	behind := at + int64(x.stored)
	if x.flags&flagBehind != 0 && x.crc == 0 {
		if behind, err = m.behind(&x, at); err != nil || behind == 0 {
			return nil, 0, err
		}
	}
	if int64(x.stored) > m.dirOff-at {
		kit.Say(&m.p.Lost, "%s: content of %d bytes at byte %d is truncated", format.Escape(x.name), x.stored, at)
		return nil, 0, nil
	}
	fine, err := m.matches(&x, at)
	if fine && !x.proves() {
		if fine = x.method <= 20 || x.method >= 93 && x.method <= 99; fine { // one that there is
			kit.Say(&m.p.Lost, "%s: content not verified, because it is compressed with method %d or encrypted", format.Escape(x.name), x.method)
		}
	}
	if err != nil || fine {
		f := &found{row: x, at: off, end: behind, fine: fine}
		x.name, x.off = string(rowName(raw)), uint64(off-m.base)
		f.raw = x.append(nil)
		return f, behind, err
	}
	kit.Say(&m.p.Lost, "%s: content at byte %d does not match its checksum", format.Escape(x.name), at)
	if m.dirOff-behind >= 4 {
		var b [2]byte
		if err := m.obj.ReadAt(m.ctx, b[:], behind); err != nil {
			return nil, 0, err
		}
		if string(b[:]) == "PK" {
			return nil, behind, nil // skip the content, because it may be an archive
		}
	}
	return nil, 0, nil
}

// programs is how a program begins that unpacks the zip behind it.
var programs = []string{"MZ", "\x7fELF", "#!"}

// room returns the size of the reads for n bytes.
func room(n int64) int { return int(min(n, 256<<10)) }

// behind looks for the sizes after a content that begins at an offset. They contain the distance
// to that offset.
func (m *repairer) behind(x *row, at int64) (int64, error) {
	in := &kit.RangeReader{Ctx: m.ctx, Object: m.obj, Off: at, End: m.dirOff}
	buf := bufio.NewReaderSize(in, room(m.dirOff-at))
	le := binary.LittleEndian
	for off := at; ; {
		b, _ := buf.Peek(256 << 10)
		i := bytes.Index(b, []byte(behindMagic))
		if i < 0 {
			if i = len(b) - 3; i <= 0 || len(b) < 256<<10 {
				return 0, in.Err
			}
		} else if d := b[i:]; len(d) >= 16 {
			n := off + int64(i) - at
			x.crc = le.Uint32(d[4:])
			if int64(le.Uint32(d[8:])) == n {
				x.stored, x.size = uint64(n), uint64(le.Uint32(d[12:]))
				return off + int64(i) + 16, nil
			}
			if len(d) >= 24 && le.Uint64(d[8:]) == uint64(n) && le.Uint64(d[16:]) < math.MaxInt64/4 {
				x.stored, x.size = uint64(n), le.Uint64(d[16:])
				return off + int64(i) + 24, nil
			}
			i += 4
		} else if len(b) < 256<<10 {
			return 0, in.Err
		}
		i = max(i, 1)
		buf.Discard(i)
		off += int64(i)
	}
}

func (m *repairer) plan(damaged bool) (format.Plan, error) {
	for _, name := range m.missing {
		if !m.names[name] {
			kit.Say(&m.p.Lost, "%s: content not found at its offset, or does not match its checksum", format.Escape(name))
			damaged = true
		}
	}
	placed := m.placed(m.found[:m.listed])
	fine := slices.DeleteFunc(m.found, func(x found) bool { return !x.fine })
	if !damaged && len(m.p.Edits) == 0 && len(m.missing) == 0 {
		return format.Plan{}, nil
	}
	if len(fine) == 0 {
		return format.Plan{}, m.corrupt(format.MissingIndex, -1, "found no file whose content matches its checksum")
	}
	for _, x := range fine {
		if mode, _ := x.mode(); mode&fs.ModeIrregular != 0 {
			kit.Say(&m.p.Lost, "%s: not a file by its mode, so not read", format.Escape(x.name))
		}
	}
	slices.SortStableFunc(fine, func(a, b found) int { return cmp.Compare(a.at, b.at) })
	if before := int64(0); m.listed == 0 { // nothing tells what else there was
		var b [4]byte
		if err := m.obj.ReadAt(m.ctx, b[:], 0); err != nil {
			return format.Plan{}, err
		}
		for _, x := range fine {
			isProgram := before == 0 && slices.ContainsFunc(programs, func(begins string) bool { return bytes.HasPrefix(b[:], []byte(begins)) })
			if n := x.at - before; n > 0 && !isProgram {
				kit.Say(&m.p.Lost, "%d bytes at byte %d belong to no file that was found, and no directory tells what they are", n, before)
			}
			before = max(before, x.end)
		}
	}
	if fine[0].at < m.base || m.base != 0 && !placed {
		// What the end record says about bytes before the archive cannot be right.
		m.base, m.dirOff = 0, m.size
		for i := range fine {
			x := fine[i].row
			x.name, x.off = string(rowName(fine[i].raw)), uint64(fine[i].at)
			fine[i].raw = x.append(nil)
		}
	}
	if m.dirOff == m.size {
		m.dirOff = 0
		for _, x := range fine {
			m.dirOff = max(m.dirOff, x.end)
		}
	}
	m.p.Partial = len(m.p.Lost) > 0
	kit.Say(&m.p.Notes, "wrote a new directory of %d entries at byte %d", len(fine), m.dirOff)
	m.p.Edits = append(m.p.Edits, format.Edit{Object: m.name, Off: m.dirOff, Len: m.size - m.dirOff, Write: func(w io.Writer) error {
		e := end{count: uint64(len(fine)), off: uint64(m.dirOff - m.base), comment: m.comment}
		for _, x := range fine {
			if _, err := w.Write(x.raw); err != nil {
				return err
			}
			e.size += uint64(len(x.raw))
		}
		_, err := w.Write(appendEnd(nil, e))
		return err
	}})
	return m.p, nil
}
