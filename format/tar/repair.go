package tar

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"

	"github.com/holdall/holdall/codec"
	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/internal/tarhead"
	"github.com/holdall/holdall/format/kit"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storekit"
)

// repair plans a tar with all members that can be read. Members are kept byte by byte, and
// anything else is omitted. A compressed tar is compressed again from what can be decoded.
func repair(ctx context.Context, st store.Store, name string, o format.OpenOptions, report func(format.Problem)) (format.Plan, error) {
	if err := verify(ctx, st, name, o, report); err != nil {
		return format.Plan{}, err
	}
	obj, head, size, err := kit.OpenPart(ctx, st, name, blockSize, storekit.ReadHead)
	if err != nil {
		return format.Plan{}, err
	}
	defer obj.Close()
	from := &reader{obj: obj, name: name, size: size, codec: codecOf(head)}
	m := &repairer{reader: from, limit: o.Limits.OrDefault().Index}
	wrong, err := m.walk(ctx)
	if err == nil && len(wrong) > 0 { // now it is known which members have doubtful content
		m = &repairer{reader: from, limit: m.limit, wrong: wrong}
		_, err = m.walk(ctx)
	}
	if err != nil {
		return format.Plan{}, err
	}
	return m.plan(ctx, st), nil
}

// repairer is the state of a repair. Offsets are those of the decoded tar.
type repairer struct {
	*reader
	limit int64
	p     format.Plan
	edits []edit
	kept  int
	end   int64 // of what can be read
	torn  bool  // it cannot be decoded to its end
	wrong damaged

	// The last member.
	last  member
	start int64 // where its first header begins
	named string
	plain bool // its size is only in its last header
}

// edit replaces bytes.
type edit struct {
	off, n int64
	with   []byte
	pad    int // how many bytes of with are padding of what is before off
}

func (m *repairer) edit(off, n int64, with []byte) error {
	if int64(len(m.edits))*64 > m.limit {
		return &format.CorruptError{Format: "tar", Problem: m.problem(format.Limit, off, fmt.Sprintf("more than %d places to repair", len(m.edits)))}
	}
	e := edit{off: off, n: n, with: with}
	if n == 0 {
		e.pad = len(with)
	}
	for len(m.edits) > 0 && m.edits[len(m.edits)-1].off >= off {
		last := m.edits[len(m.edits)-1]
		m.edits = m.edits[:len(m.edits)-1] // edits of bytes that are omitted as a whole
		if last.off == off {
			e.with, e.pad = slices.Concat(last.with[:last.pad], e.with), last.pad+e.pad
		}
	}
	m.edits = append(m.edits, e)
	return nil
}

// gap omits what is between two members. If the second begins before that, less is omitted than was
// said.
func (m *repairer) gap(from, to int64, why string) error {
	if to < from {
		for i := range m.edits {
			e := &m.edits[i]
			e.n = min(e.n, max(to-e.off, 0))
		}
		return nil
	}
	kit.Say(&m.p.Lost, "bytes %d+%d: %s", from, to-from, why)
	return m.edit(from, to-from, nil)
}

// walk finds what to edit, and which frames are damaged.
func (m *repairer) walk(ctx context.Context) (damaged, error) {
	src := m.source(ctx)
	defer src.close()
	if src.in != nil {
		src.in.rescues = true
	}
	if err := m.members(ctx, src); err != nil {
		return nil, err
	}
	if m.kept == 0 && (len(m.edits) > 0 || m.torn || m.bare(src.at)) {
		return nil, &format.CorruptError{Format: "tar", Problem: m.problem(format.BadHeader, -1, "no member header found")}
	}
	if src.in == nil {
		return nil, nil
	}
	return src.in.wrong, nil
}

func (m *repairer) members(ctx context.Context, src *source) error {
	s := newScanner(src)
	s.keep = true
	s.tornPax = func(off, n int64, with []byte) error {
		kit.Say(&m.p.Lost, "bytes %d+%d: damaged pax records", off, n)
		return m.edit(off, n, with)
	}
	for ; ; m.kept++ {
		if m.kept&0xfff == 0 && ctx.Err() != nil {
			return context.Cause(ctx)
		}
		err := s.next()
		if src.in == nil && src.err != nil {
			return src.err
		}
		if err == errTorn {
			if err := m.passTorn(ctx, s); err != nil || m.torn {
				return err
			}
			m.kept--
			continue
		}
		m.end = m.size
		if src.in != nil {
			if m.end = src.at; err != nil && err != io.EOF {
				if _, header := err.(*headerError); !header {
					if err := m.failed(src); err != nil {
						return err
					}
					m.torn, m.end = true, src.in.at
				}
			}
		}
		if err != nil && m.last.stored > m.end-m.last.at || err == nil && src.in == nil && s.m.stored > m.end-s.m.at {
			if err == nil {
				m.remember(s)
				m.kept++
			}
			from, err := m.cut(s, m.end)
			if err == nil && from < m.end {
				err = m.edit(from, m.end-from, nil)
			}
			return errors.Join(err, m.close())
		}
		if err == io.ErrUnexpectedEOF && s.mayResync(err) {
			found, rerr := s.resync(ctx)
			if rerr == nil && found {
				rerr = m.beforeNext(ctx, s, "the archive ends within a header")
			}
			if rerr != nil {
				return rerr
			}
			if found {
				m.kept--
				continue
			}
		}
		switch _, header := err.(*headerError); {
		case err == nil:
			m.remember(s)
			if f := m.last.fault; m.isBad() {
				behind := m.last.at + m.last.stored
				behind += s.padding(behind)
				if src.in == nil {
					behind = min(behind, m.size)
				}
				kit.Say(&m.p.Lost, "%s: %s", format.Escape(m.named), f.Message)
				if err := m.edit(m.start, behind-m.start, nil); err != nil {
					return err
				}
				m.kept--
			} else if m.last.stored > 0 && m.wrong.touches(m.start, m.last.at+m.last.stored) {
				if err := m.doubt(s); err != nil {
					return err
				}
			}
			continue
		case err == io.EOF:
			if src.in != nil {
				m.torn = src.in.drain() != nil
				return m.failed(src)
			}
			if !s.ended && m.padding(m.size) != 0 {
				kit.Say(&m.p.Notes, "added the missing end of the tar")
				return m.close()
			}
			end := src.at
			s.passed = false
			found, err := s.search(ctx, math.MaxInt64)
			if err != nil || !found && !s.passed {
				return err
			}
			if !found {
				return m.gap(end, m.size, "no header, after the end of the tar")
			}
			kit.Say(&m.p.Notes, "removed zeros at byte %d that end the tar: members follow", s.head)
			if err := m.edit(s.head, src.at-s.head, nil); err != nil {
				return err
			}
		case header:
			why := err.Error()
			found, err := s.resync(ctx)
			if err != nil {
				return err
			}
			if !found {
				if src.in != nil {
					m.end, m.torn = src.in.at, src.in.err != nil && src.in.err != io.EOF
				}
				if err := errors.Join(m.failed(src), m.gap(s.start, m.end, why)); err != nil {
					return err
				}
				return m.close()
			}
			if err := m.beforeNext(ctx, s, why); err != nil {
				return err
			}
		default:
			if m.end <= s.start {
				return m.close()
			}
			if err := m.gap(s.start, m.end, "the archive ends within a header"); err != nil {
				return err
			}
			return m.close()
		}
		m.kept--
	}
}

// failed returns why a compressed tar could not be read, unless it is damage.
func (m *repairer) failed(src *source) error {
	if src.in == nil {
		return nil
	}
	src.in.Close() // the decoder may still be reading
	return src.in.stored.object.Err
}

func (m *repairer) remember(s *scanner) {
	m.last, m.start, m.named = s.m, s.start, string(s.m.name)
	m.last.stored = min(m.last.stored, 1<<60) // in case the size is invalid
	m.plain = s.m.sparse == nil && s.m.fault == nil && len(s.pax.size) == 0
}

// isBad reports whether the last member cannot be read although its header can.
func (m *repairer) isBad() bool { return m.last.fault != nil && m.last.fault.Code == format.BadHeader }

// close ends a tar after what is left of it.
func (m *repairer) close() error {
	return m.edit(m.end, 0, make([]byte, m.padding(m.end)+2*blockSize))
}

// padding is how many bytes are missing to whole blocks, up to an offset, in what has been edited.
func (m *repairer) padding(at int64) int64 {
	for _, e := range m.edits {
		at += int64(len(e.with)) - e.n
	}
	return -at & (blockSize - 1)
}

// cut shortens the last member to what exists of it. It returns the offset from which nothing is
// kept.
func (m *repairer) cut(s *scanner, end int64) (from int64, err error) {
	have := end - m.last.at
	if !m.plain || have <= 0 {
		if !m.isBad() {
			m.kept--
			kit.Say(&m.p.Lost, "%s: its %d bytes", format.Escape(m.named), m.last.size)
		}
		return m.start, nil
	}
	kit.Say(&m.p.Lost, "%s: the last %d of its %d bytes; the rest is %s", format.Escape(m.named), m.last.size-have, m.last.size, format.Escape(m.part()))
	return end, m.rename(s, have)
}

// part is the name of what is left of the last member.
func (m *repairer) part() string { return m.named + kit.DamagedSuffix }

// rename gives what is left of the last member another name, and its size.
func (m *repairer) rename(s *scanner, size int64) error {
	return m.edit(m.start, m.last.at-m.start, headersOf(m.part(), size, s.header[:]))
}

// inDamaged says why content is not right for sure.
const inDamaged = "its piece of the compressed tar is damaged, so it may be wrong"

// doubt gives the last member another name, since its content may be wrong.
func (m *repairer) doubt(s *scanner) error {
	if m.plain {
		kit.Say(&m.p.Lost, "%s: %s; it is %s", format.Escape(m.named), inDamaged, format.Escape(m.part()))
		return m.rename(s, m.last.size)
	}
	kit.Say(&m.p.Lost, "%s: %s", format.Escape(m.named), inDamaged)
	m.kept--
	end := m.last.at + m.last.stored
	return m.edit(m.start, end+s.padding(end)-m.start, nil)
}

// beforeNext omits what is before the next header. If that is not where blocks begin, bytes were
// inserted or lost: if it may have been in the last member, what is left of this gets another name.
func (m *repairer) beforeNext(ctx context.Context, s *scanner, why string) error {
	next, end := s.src.at, m.last.at+m.last.stored
	defer func() { m.last.stored = 0 }() // what comes later is not about this member
	follows := s.head > s.start          // the header of records is where it should be
	if follows || (next-s.start)&(blockSize-1) == 0 || m.kept == 0 || m.last.stored == 0 || s.start-end >= blockSize {
		return m.gap(s.start, next, why)
	}
	whole, err := m.isWhole(ctx, s.start-end, next-s.start)
	if err != nil || whole && next >= s.start {
		return errors.Join(err, m.gap(s.start, next, why))
	}
	if whole {
		return m.edit(next, 0, make([]byte, s.start-next))
	}
	if have := next - m.last.at; m.plain {
		kit.Say(&m.p.Lost, "%s: bytes of it were inserted or lost; what is there is %s, with %d bytes instead of %d", format.Escape(m.named), format.Escape(m.part()), have, m.last.size)
		if err := m.rename(s, have); err != nil {
			return err
		}
		return m.edit(next, 0, make([]byte, -have&(blockSize-1)))
	}
	m.kept--
	return m.gap(m.start, next, format.Escape(m.named)+": bytes of it were inserted or lost")
}

// isWhole reports whether the last member, with so many bytes of padding, is not changed although the
// next header is by so many bytes too far. Then its padding is where it was, and if bytes are lost,
// those before it are not zeros, too.
func (m *repairer) isWhole(ctx context.Context, padding, by int64) (bool, error) {
	end := m.last.at + m.last.stored
	if padding == 0 || by < -padding {
		return false, nil
	}
	b := make([]byte, padding+min(by, 0))
	if err := m.obj.ReadAt(ctx, b, end); err != nil || len(bytes.Trim(b, "\x00")) > 0 || by >= 0 {
		return err == nil && len(bytes.Trim(b, "\x00")) == 0, err
	}
	b = make([]byte, min(-by, m.last.stored))
	err := m.obj.ReadAt(ctx, b, end-int64(len(b)))
	return len(bytes.Trim(b, "\x00")) > 0, err
}

// headersOf returns the headers of a member with another name and size: the given one, after one
// with the name in the form of GNU tar.
func headersOf(name string, size int64, header []byte) []byte {
	long := make([]byte, blockSize)
	copy(long, "././@LongLink")
	long[156] = typeLongName
	b := resized(long, int64(len(name)+1))
	b = append(b, name...)
	b = append(b, make([]byte, blockSize-len(name)%blockSize)...)
	return append(b, resized(header, size)...)
}

// passTorn continues after the lost part of a compressed tar.
func (m *repairer) passTorn(ctx context.Context, s *scanner) (err error) {
	at := s.src.in.at
	from := min(at, s.start)
	kit.Say(&m.p.Lost, "everything after byte %d of the tar up to the next piece with a header", at)
	if m.last.stored > at-m.last.at {
		if from, err = m.cut(s, at); err != nil {
			return err
		}
		m.last.stored = 0
	}
	s.behind = 0
	found, err := s.search(ctx, math.MaxInt64)
	if err != nil {
		return err
	}
	if found {
		return errors.Join(m.edit(from, 0, make([]byte, m.padding(from))), m.edit(from, s.src.at-from, nil))
	}
	m.end, m.torn = s.src.in.at, true
	return errors.Join(m.failed(s.src), m.edit(from, m.end-from, nil), m.close())
}

// resized returns a header with another size.
func resized(header []byte, size int64) []byte {
	b := make([]byte, blockSize)
	copy(b, header)
	if copy(b[124:136], fmt.Sprintf("%011o\x00", size)); size >= 1<<33 {
		clear(b[124:136])
		b[124] = 0x80
		for i := range 8 {
			b[135-i] = byte(size >> (8 * i))
		}
	}
	copy(b[148:156], fmt.Sprintf("%06o\x00 ", tarhead.Sum(b)))
	return b
}

// plan converts edits of the tar to edits of what is stored.
func (m *repairer) plan(ctx context.Context, st store.Store) format.Plan {
	if len(m.edits) == 0 && !m.torn && len(m.wrong) == 0 {
		return m.p
	}
	for i := range m.edits { // padding may be missing at the end
		e := &m.edits[i]
		e.n = min(e.n, max(m.end-e.off, 0))
	}
	m.p.Partial = len(m.p.Lost) > 0 || m.torn
	kit.Say(&m.p.Notes, "kept %d members", m.kept)
	if m.codec == codec.Raw {
		for _, e := range m.edits {
			m.p.Edits = append(m.p.Edits, format.Edit{Object: m.name, Off: e.off, Len: e.n, Write: func(w io.Writer) error {
				_, err := w.Write(e.with)
				return err
			}})
		}
		return m.p
	}
	if m.torn {
		kit.Say(&m.p.Lost, "everything after byte %d of the tar; the content before it in the same piece cannot be verified", m.end)
	}
	by := m.codec
	switch by {
	case codec.Bzip2, codec.Lzip, codec.Compress, codec.LZMAFile:
		by = codec.Zstd // there is no compressor for these
	}
	kit.Say(&m.p.Notes, "compressed the readable content again, with %s", by)
	m.p.Edits = []format.Edit{{Object: m.name, Len: m.size, Write: func(w io.Writer) (err error) {
		obj, err := st.Open(ctx, m.name)
		if err != nil {
			return err
		}
		defer obj.Close()
		z, err := compressor(w, by, "")
		if err != nil {
			return err
		}
		f := rescued{newFrames(ctx, obj, m.size, m.codec)}
		f.rescues = true
		defer f.Close()
		at := int64(0)
		for _, e := range append(m.edits, edit{off: m.end}) {
			if _, err := io.CopyN(struct{ io.Writer }{z}, f, e.off-at); err != nil {
				return unexpected(err)
			}
			if _, err := io.CopyN(io.Discard, f, e.n); err != nil {
				return unexpected(err)
			}
			if _, err := z.Write(e.with); err != nil {
				return err
			}
			at = e.off + e.n
		}
		return z.Close()
	}}}
	return m.p
}
