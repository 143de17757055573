package tar

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/internal/tarhead"
)

// member is an entry from its headers. Its slices are valid until the next member.
type member struct {
	name, link   []byte
	owner, group []byte
	kind         format.Kind
	mode         uint16
	sec          int64
	nsec         int32
	size         int64
	at           int64 // where its stored content begins
	stored       int64
	sparse       *sparse
	again        bool            // it is the previous entry of that name, packed twice
	fault        *format.Problem // without volume and name
}

// scanner reads a tar member by member.
type scanner struct {
	src    *source
	m      member
	behind int64 // bytes from at to the next header, without padding
	pax    pax
	global pax
	name   []byte // a long name before the next header; empty if there is none
	link   []byte
	long   []byte // a name made from its two halves
	uid    []byte
	gid    []byte
	head   int64 // where the current header begins
	any    bool  // there was a header
	header [blockSize]byte
	start  int64 // where the first header of the member begins
	keep   bool  // keep each header; for repairs
	ended  bool  // the zeros at the end of the tar have been read
	passed bool  // a search has skipped bytes other than zeros
	told   int64 // content of the header at head, if that is damaged
	grid   int64 // where blocks begin, from 0 to 511: bytes before them may have been inserted or lost
	// tornPax is called with pax records that cannot be read, and with their replacement.
	tornPax func(off, n int64, with []byte) error
	decode  func(string) string  // names in headers; nil for UTF-8
	note    func(format.Problem) // reports problems that do not end a tar; may be nil
}

// headerError means that the bytes at head are not a usable header. Others may follow.
type headerError struct{ error }

// mayResync reports whether headers may follow the place of an error: not after an error of the store.
func (s *scanner) mayResync(err error) bool {
	_, header := err.(*headerError)
	return header || err == io.ErrUnexpectedEOF && s.src.in == nil && s.src.err == nil
}

func badHeader(msg string, args ...any) error { return &headerError{fmt.Errorf(msg, args...)} }

// wrong reports a problem with the header at head.
func (s *scanner) wrong(severity format.Severity, msg string) {
	if s.note != nil {
		s.note(format.Problem{Code: format.BadHeader, Severity: severity, Off: s.head, Message: msg})
	}
}

func newScanner(src *source) *scanner { return &scanner{src: src} }

// next reads the next member into m. It returns io.EOF after the last one. Any other error
// concerns the bytes at head, or comes from the store.
func (s *scanner) next() error {
	s.forget()
	s.told = 0
	within := false // a member's other headers were read, and not yet its own
	for first := true; ; first = false {
		if first {
			s.start = s.src.at + s.behind
			s.start += s.padding(s.start)
		}
		if err := s.pass(); err != nil {
			return err
		}
		b, d, err := s.readHeader()
		if err == io.EOF && within && !s.ended {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			return err
		}
		kind := b[156]
		if s.keep {
			b = s.header[:copy(s.header[:], b)]
		}
		size, ok := tarhead.Number(b[124:136])
		if !ok || size < 0 && hasContent(kind) {
			return badHeader("header: %q is not a size", tarhead.Text(b[124:136]))
		}
		switch kind {
		case typePax, typeGlobalPax, typeLongName, typeLongLink:
			if size > maxSpecial {
				return badHeader("header: %d bytes of extended header: expected at most %d", size, maxSpecial)
			}
			content, err := s.src.take(int(size))
			if err != nil {
				return unexpected(err)
			}
			switch kind {
			case typePax:
				err = s.pax.parse(content)
			case typeGlobalPax:
				err = s.global.parse(content)
				s.forget()
			case typeLongName:
				s.name = append(s.name[:0], tarhead.Text(content)...)
			case typeLongLink:
				s.link = append(s.link[:0], tarhead.Text(content)...)
			}
			within = within || kind != typeGlobalPax
			if err != nil {
				s.wrong(format.Error, err.Error()+"; this record and those after it are not used")
				if err := s.repairPax(kind); err != nil {
					return err
				}
			}
			continue
		}
		listed, err := s.describe(b, d, kind, size)
		if err != nil || listed {
			return err
		}
		s.forget()
		within = false
	}
}

// repairPax reports the replacement of damaged pax records: the readable ones.
func (s *scanner) repairPax(kind byte) error {
	if s.tornPax == nil {
		return nil
	}
	p := &s.pax
	if kind == typeGlobalPax {
		p = &s.global
	}
	var with []byte
	if p.good > 0 {
		with = append(resized(s.header[:], int64(p.good)), p.buf[:p.good]...)
		with = append(with, make([]byte, -len(with)&(blockSize-1))...)
	}
	n := blockSize + (int64(len(p.buf))+blockSize-1)&^(blockSize-1)
	return s.tornPax(s.head, n, with)
}

// forget drops what preceded a header.
func (s *scanner) forget() {
	s.pax.reset()
	s.name, s.link = s.name[:0], s.link[:0]
}

// pass continues after the stored content of the last member and its padding.
func (s *scanner) pass() error {
	if err := s.src.skip(s.behind); err != nil {
		return err
	}
	s.behind = 0
	return s.src.skip(s.padding(s.src.at))
}

// padding returns how far the next block is from an offset.
func (s *scanner) padding(at int64) int64 { return (s.grid - at) & (blockSize - 1) }

// readHeader reads a header. Two blocks of zeros are the end, and so is a single one at the end
// of the data.
func (s *scanner) readHeader() (block, dialect, error) {
	s.head = s.src.at
	b, err := s.src.take(blockSize)
	if err != nil {
		return nil, 0, err
	}
	if b[0] == 0 && isZero(b) {
		if b, err = s.src.peek(blockSize); err != nil {
			return nil, 0, err
		}
		if isZero(b) {
			s.src.take(blockSize)
			s.ended = true
			return nil, 0, io.EOF
		}
		return nil, 0, badHeader("header: a single block of zeros")
	}
	s.any = true
	d := block(b).dialect()
	if d == noDialect {
		s.told, _ = tarhead.Number(b[124:136])
		return nil, 0, badHeader("header: checksum does not match")
	}
	return b, d, nil
}

// resync continues at the next block that is a header, and reports whether there is one. If the
// size in a damaged header leads to another header, the content is skipped, because it may be a
// tar.
func (s *scanner) resync(ctx context.Context) (bool, error) {
	s.behind = 0
	if at := s.src.at + (s.told+blockSize-1)&^(blockSize-1); s.src.in == nil && s.told > 0 && at > 0 && at <= s.src.size-blockSize {
		var b [blockSize]byte
		if err := s.src.obj.ReadAt(ctx, b[:], at); err != nil {
			return false, err
		}
		if s.plausible(b[:], at) || isZero(b[:]) && s.src.size-at <= maxEmpty {
			return true, s.src.skip(at - s.src.at)
		}
	}
	if s.src.in != nil {
		return s.search(ctx, math.MaxInt64)
	}
	next := int64(math.MaxInt64)
	found, err := s.search(ctx, next)
	if err == nil && s.src.err != nil {
		err = s.src.err
	}
	if found {
		next = s.src.at
	}
	if err == nil {
		if at, merr := s.displaced(ctx, next); merr != nil || at < 0 || found && s.leadsToTheEnd(ctx, next) {
			err = merr
		} else {
			s.src.at, s.src.buf, s.grid, found = at, nil, at&(blockSize-1), true
		}
	}
	return found, err
}

// mostBack is how far before its place a header is searched. As many bytes before it may be lost.
const mostBack = 64 << 10

// displaced returns the first header before next that is not at the beginning of a block, or -1. It
// looks behind the previous header, as bytes before this one may be lost. In the content of a file
// there may be headers, too: leadsToTheEnd tells which are meant.
func (s *scanner) displaced(ctx context.Context, next int64) (int64, error) {
	from := max(s.m.at, s.start-mostBack)
	if s.head > s.start {
		from = s.start + blockSize
	}
	return tarhead.Find(ctx, s.src.obj, s.src.size, from, next, func(b []byte, at int64) bool { return s.padding(at) != 0 && s.plausible(b, at) })
}

// leadsToTheEnd reports whether one header leads to the next from at on, up to the zeros that end the
// tar.
func (s *scanner) leadsToTheEnd(ctx context.Context, at int64) bool {
	var b [blockSize]byte
	for at <= s.src.size-blockSize {
		if s.src.obj.ReadAt(ctx, b[:], at) != nil {
			return false
		}
		if isZero(b[:]) {
			return s.src.size-at <= maxEmpty
		}
		if !s.plausible(b[:], at) {
			return false
		}
		size, _ := tarhead.Number(b[124:136])
		if at += blockSize; hasContent(b[156]) && size < s.src.size {
			at += (size + blockSize - 1) &^ (blockSize - 1)
		}
	}
	return at == s.src.size
}

// search continues at the next block that is a header, if there is one within most bytes.
func (s *scanner) search(ctx context.Context, most int64) (bool, error) {
	for n := int64(0); n < most; n += blockSize {
		if n&(1<<20-1) == 0 && ctx.Err() != nil {
			return false, context.Cause(ctx)
		}
		b, err := s.src.peek(blockSize)
		switch {
		case err == nil && s.plausible(b, s.src.at):
			return true, nil
		case err == errTorn:
			s.src.leap()
			continue
		case err != nil && s.src.in == nil && s.src.err != nil:
			return false, s.src.err
		case err != nil:
			return false, nil // in a compressed tar this may be damage, which is reported as the end
		}
		s.passed = s.passed || !isZero(b)
		s.src.take(blockSize)
	}
	return false, nil
}

// plausible reports whether b at offset at is a header: its checksum must match. If nothing else
// identifies it as a header, what it describes must exist too.
func (s *scanner) plausible(b block, at int64) bool {
	if b[0] == 0 {
		return false
	}
	d := b.dialect()
	size, ok := tarhead.Number(b[124:136])
	return d != noDialect && ok && size >= 0 && (d != v7 || s.src.in != nil || size <= s.src.size-at-blockSize)
}

// mostBehind is how far headers are searched after the end of a tar.
const mostBehind = 1 << 20

// behindEnd reports what follows the blocks that end a tar. Headers there are not used, as in
// other programs: they may be left from earlier contents, or the end may be damage.
func (s *scanner) behindEnd(ctx context.Context) error {
	if s.src.in != nil {
		return nil
	}
	end := s.src.at
	s.passed = false
	found, err := s.search(ctx, mostBehind)
	switch {
	case found:
		s.head = s.src.at
		s.wrong(format.Error, fmt.Sprintf("a header after the end of the tar at %d: its entry is not listed", end))
	case err == nil && s.passed:
		s.head = end
		s.wrong(format.Error, "bytes after the end of the tar: the zeros that end it may be damage")
	}
	return err
}

var zeros [blockSize]byte

func isZero(b []byte) bool { return bytes.Equal(b, zeros[:]) }

// describe makes a member from a header and what preceded it. Some headers are not members.
func (s *scanner) describe(b block, d dialect, kind byte, size int64) (listed bool, err error) {
	if d == gnu && kind == typeSparse || s.pax.is {
		// Further reads overwrite the block.
		b = s.header[:copy(s.header[:], b)]
	}
	m := &s.m
	*m = member{at: s.src.at}
	name := b.name()
	if p := b.prefix(d); len(p) > 0 {
		s.long = append(append(append(s.long[:0], p...), '/'), name...)
		name = s.long
	}
	name = s.text(s.name, s.pax.path, name)
	link := s.text(s.link, s.pax.linkpath, b.link())
	s.people(b, d)
	mode, _ := tarhead.Number(b[100:108])
	m.mode = uint16(mode & 0o7777)
	m.sec, _ = tarhead.Number(b[136:148])
	if t := or(s.pax.mtime, s.global.mtime); len(t) > 0 {
		sec, nsec, ok := paxTime(t)
		if ok {
			m.sec, m.nsec = sec, nsec
		} else {
			s.wrong(format.Note, fmt.Sprintf("pax record \"mtime\": %q is not a time, so the header's time is used", t))
		}
	}
	if kind == typeOld {
		if kind = typeFile; bytes.HasSuffix(name, []byte("/")) {
			kind = typeDir
		}
	}
	if len(s.pax.size) > 0 {
		ok := false
		if size, ok = decimal(s.pax.size); !ok || size < 0 && hasContent(kind) {
			return false, badHeader("pax record \"size\": %q is not a size", s.pax.size)
		}
	}
	if hasContent(kind) {
		m.size, m.stored, s.behind = size, size, size
	}
	if hasContent(kind) && (kind == typeSparse || s.pax.is) {
		if name, err = s.readSparse(b, d, kind, name); err != nil {
			return false, err
		}
	}
	if s.pax.torn && m.fault == nil {
		m.sparse, m.fault = nil, &format.Problem{Code: format.BadHeader, Class: "sparse", Severity: format.Error, Off: s.head,
			Message: "the pax records of a sparse file are damaged"}
	}
	m.name = plain(name)
	if v := s.global.volumeName; len(v) > 0 && hasContent(kind) { // this member is called otherwise
		from, _ := decimal(s.global.volumeOffset)
		s.continued(v, from, size)
		s.global.volumeName = nil
	}
	switch kind {
	case typeFile, typeSparse, typeCont:
	case typeDir, typeDumpDir:
		m.kind, m.size, m.stored = format.Dir, 0, 0
		if len(m.name) == 0 || string(m.name) == "." {
			return false, nil // the folder that was packed
		}
	case typeSymlink:
		m.kind, m.link = format.Symlink, link
	case typeHardLink:
		m.kind, m.link = format.HardLink, plain(link)
		m.again = bytes.Equal(m.link, m.name)
	case typeFifo:
		m.kind = format.Fifo
	case typeChar, typeBlock:
		m.fault = &format.Problem{Code: format.Unsupported, Class: "device", Severity: format.Error, Off: -1, Message: "devices are not supported"}
	case typeContinued:
		from, _ := tarhead.Number(b[369:381])
		if from == 0 { // all of the file follows, with a header of its own
			s.behind = 0
			return false, nil
		}
		s.continued(name, from, size)
		return false, nil
	default:
		return false, nil
	}
	return true, nil
}

// continued reports that a volume has only a part of a file. The next volume may have the rest.
func (s *scanner) continued(name []byte, from, size int64) {
	if s.note != nil {
		s.note(format.Problem{Code: format.MissingVolume, Class: "continued", Severity: format.Error, Off: s.head, Entry: string(plain(name)), HasEntry: true,
			Message: fmt.Sprintf("this is a later volume of an archive: only the bytes from %d on, of %d, of this file can be here", from, from+size)})
	}
}

// text returns the first of three texts that is not empty, decoded. Those of pax records are in UTF-8.
func (s *scanner) text(long, record, field []byte) []byte {
	if len(long) == 0 && len(record) > 0 {
		return record
	}
	b := or(long, field)
	if s.decode != nil {
		b = []byte(s.decode(string(b)))
	}
	return b
}

// people sets owner and group: names or, if there are none, numbers.
func (s *scanner) people(b block, d dialect) {
	m := &s.m
	if d != v7 {
		m.owner, m.group = b.owner(), b.group()
	}
	m.owner = or(s.pax.uname, or(s.global.uname, m.owner))
	m.group = or(s.pax.gname, or(s.global.gname, m.group))
	if len(m.owner) == 0 {
		s.uid = appendID(s.uid[:0], or(s.pax.uid, s.global.uid), b[108:116])
		m.owner = s.uid
	}
	if len(m.group) == 0 {
		s.gid = appendID(s.gid[:0], or(s.pax.gid, s.global.gid), b[116:124])
		m.group = s.gid
	}
}

func appendID(to, record, field []byte) []byte {
	n, ok := decimal(record)
	if !ok {
		n, _ = tarhead.Number(field)
	}
	return strconv.AppendInt(to, n, 10)
}

func or(a, b []byte) []byte {
	if len(a) > 0 {
		return a
	}
	return b
}

// readSparse reads the map of a sparse file, and returns the name of the file. An invalid map is
// a fault of the file only, because the place of the next header is known.
func (s *scanner) readSparse(b block, d dialect, kind byte, name []byte) ([]byte, error) {
	m, p := &s.m, &s.pax
	fault := func(code format.Code, msg string) {
		m.fault = &format.Problem{Code: code, Class: "sparse", Severity: format.Error, Off: s.head, Message: msg}
	}
	var spans []span
	var err error
	real := m.size
	version := string(p.sparseMajor) + "." + string(p.sparseMinor)
	switch {
	case kind == typeSparse && d != gnu:
		fault(format.Unsupported, "sparse file of an unknown kind")
		return name, nil
	case kind == typeSparse:
		ok := false
		if real, ok = tarhead.Number(b[483:495]); !ok {
			err, real = &mapError{errors.New("sparse map: the size of the file is not a number")}, 0
		}
		var failed error
		if spans, failed = s.oldMap(b); failed != nil {
			err = failed
		}
		m.at = s.src.at
	case version == "." && len(p.sparseMap) == 0:
		return name, nil
	case version != "." && version != "0.0" && version != "0.1" && version != "1.0":
		fault(format.Unsupported, fmt.Sprintf("sparse file of version %q is not supported", version))
		return name, nil
	default:
		name = or(p.sparseName, name)
		if size := or(p.sparseSize, p.sparseReal); len(size) > 0 {
			ok := false
			if real, ok = decimal(size); !ok {
				err, real = &mapError{fmt.Errorf("sparse map: %q is not a size", size)}, 0
			}
		}
		if version == "1.0" {
			var read int64
			var failed error
			if spans, read, failed = s.leadingMap(m.stored); failed != nil {
				err = failed
			}
			m.at, m.stored, s.behind = m.at+read, m.stored-read, m.stored-read
		} else if list, failed := listedMap(p.sparseBlocks, p.sparseMap); failed != nil {
			err = failed
		} else {
			spans = list
		}
	}
	if err == nil && real < 0 {
		err = &mapError{fmt.Errorf("sparse map: the size of the file is %d", real)}
	}
	m.size = max(real, 0)
	m.sparse = &sparse{at: m.at, spans: spans}
	if err == nil {
		if err = m.sparse.check(m.size, m.stored); err != nil {
			err = &mapError{err}
		}
	}
	if e, ok := errors.AsType[*mapError](err); ok {
		fault(format.BadHeader, e.Error())
		m.sparse, err = nil, nil
	}
	return name, unexpected(err)
}
