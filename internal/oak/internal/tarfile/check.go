package tarfile

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/bits"
	"strings"

	"github.com/holdall/holdall/internal/oak/internal/segment"
)

// Check reports what Oak's reader does not check and what requires no reading of the file:
// entries that overlap, that leave gaps, or that are not before end, where the binary references
// begin.
func (x *Index) Check(end int64, report func(Problem)) {
	at := int64(0) // where the next header should be
	var before ID
	for _, i := range x.ByPosition() {
		e := x.At(int(i))
		problem := func(c Class, format string, a ...any) {
			report(Problem{Class: c, Off: e.Pos, Len: int64(e.Len), Segment: e.ID, HasSegment: true, What: "index: " + fmt.Sprintf(format, a...)})
		}
		header := e.Pos - BlockSize
		switch {
		case header < 0:
			problem(OutOfBounds, "position %d, expected at least %d", e.Pos, BlockSize)
		case e.end() > end:
			problem(OutOfBounds, "the segment ends at %d, expected at most %d", e.Pos+int64(e.Len), end)
		case header < at:
			problem(Overlap, "the header is at %d, within segment %s", header, before)
		case header > at:
			report(Problem{Class: Gap, Off: at, Len: header - at, What: "bytes that belong to no entry of the index"})
		}
		if e.Len > MaxSegment {
			problem(BadIndex, "%d bytes, expected at most %d", e.Len, MaxSegment)
		}
		switch g := e.Generation; {
		case !e.ID.IsData() && !e.ID.IsBulk():
			problem(BadIndex, "the id is neither of a data segment nor of a bulk segment")
		case g.Gen < 0 || g.Full < 0:
			problem(BadIndex, "generation %s", g)
		case x.step == entryV2 && e.ID.IsBulk() && g != Generation{}:
			problem(BadIndex, "generation %s, expected none of a bulk segment", g)
		}
		if e.end() > at && e.end() <= end {
			at, before = e.end(), e.ID
		}
	}
	if at < end {
		report(Problem{Class: Gap, Off: at, Len: end - at, What: "bytes that belong to no entry of the index"})
	}
}

// crcDigits is the number of digits of the checksum in a name.
const crcDigits = 8

// Whole returns where an entry is: its header, the segment, and the zeros after it.
func (e Entry) Whole() Span { return Span{e.Pos - BlockSize, e.end() - e.Pos + BlockSize} }

// CheckBytes reports the problems of entry i, whose bytes are b, beginning with a wrong checksum.
// It returns whether the segment matches its header. It allocates nothing for an intact entry.
func (t *Tar) CheckBytes(i int, b []byte, report func(Problem)) (sound bool) {
	e := t.index.At(i)
	header, data, rest := b[:BlockSize], b[BlockSize:][:e.Len], b[BlockSize+e.Len:]
	crc := checksum(data)
	sound = true
	if !t.o.Blobs && !isHeader(header, e, crc) {
		sound = t.doubtful(e, header, data, crc, report)
	}
	if !isZero(rest) {
		e.problemTo(report)(BadPadding, e.Pos+int64(e.Len), int64(len(rest)), "segment: expected zeros after it")
	}
	if e.ID.IsData() {
		t.checkHead(e, data, report)
	}
	return sound
}

// doubtful checks an entry whose header does not belong to its segment.
func (t *Tar) doubtful(e Entry, header, data []byte, crc uint32, report func(Problem)) (sound bool) {
	problem := e.problemTo(report)
	want, ok := t.checkHeader(e, header, problem)
	if Compare(e.ID, header, data) == "" {
		return true
	}
	if ok && want != crc {
		flip := ""
		if off, mask, ok := WrongBit(e.ID, data, want); ok {
			flip = fmt.Sprintf(": only bit %d of the byte at %d is wrong", bits.TrailingZeros8(mask), e.Pos+int64(off))
		}
		problem(BadChecksum, e.Pos, int64(e.Len), "segment: checksum %08x, expected %08x%s", crc, want, flip)
	}
	return false
}

// Compare compares a segment with the checksum in its header, and returns what is wrong. A
// damaged header confirms the segment if at most one digit of the checksum differs. One in
// 35,000,000 wrong segments passes that test. Names that were written long ago have no checksum;
// a segment with such a name is accepted.
func Compare(id ID, header, data []byte) (what string) {
	crc, fit := checksum(data), 0
	if isHeader(header, Entry{ID: id, Len: len(data)}, crc) {
		return "" // as nearly always
	}
	for i, c := range fmt.Appendf(nil, "%08x", crc) {
		if header[idText+1+i] == c {
			fit++
		}
	}
	h, err := ParseHeader(header)
	n, named := ParseEntryName(h.Name)
	switch sound := err == nil && h.ChecksumOK && named; {
	case sound && n.ID != id:
		return fmt.Sprintf("the header is of segment %s", n.ID)
	case sound && !n.HasCRC, fit == crcDigits, fit == crcDigits-1 && !sound:
		return ""
	case named && n.HasCRC:
		return fmt.Sprintf("checksum %08x, expected %08x", crc, n.CRC)
	}
	return "the header is damaged, so the segment cannot be verified"
}

// Proves reports whether a segment has the checksum that its header has.
func Proves(id ID, header, data []byte) bool {
	h, err := ParseHeader(header)
	n, named := ParseEntryName(h.Name)
	none := err == nil && h.ChecksumOK && named && !n.HasCRC
	return !none && Compare(id, header, data) == ""
}

// isHeader reports whether b is the header of a segment with this checksum, to the
// last byte.
func isHeader(b []byte, e Entry, crc uint32) bool {
	var name [nameText]byte
	var h [BlockSize]byte
	fillHeader(&h, appendEntryName(name[:0], e.ID, crc), int64(e.Len))
	copy(h[mtimeAt:mtimeAt+sizeDigits], b[mtimeAt:])
	for _, c := range h[mtimeAt : mtimeAt+sizeDigits] {
		if c < '0' || c > '7' {
			return false
		}
	}
	sumHeader(&h)
	return bytes.Equal(h[:], b)
}

func (e Entry) problemTo(report func(Problem)) problemf {
	return func(c Class, off, n int64, format string, a ...any) {
		report(Problem{Class: c, Off: off, Len: n, Segment: e.ID, HasSegment: true, What: fmt.Sprintf(format, a...)})
	}
}

type problemf func(c Class, off, n int64, format string, a ...any)

// checkHeader returns the checksum that the header has for the segment.
func (t *Tar) checkHeader(e Entry, b []byte, problem problemf) (crc uint32, ok bool) {
	off := e.Pos - BlockSize
	h, err := ParseHeader(b)
	if err != nil {
		problem(BadHeader, off, BlockSize, "%v", err)
		return 0, false
	}
	if !h.ChecksumOK {
		problem(BadHeader, off, BlockSize, "header: checksum does not match")
	}
	if h.Size != int64(e.Len) {
		problem(BadHeader, off, BlockSize, "header: %d bytes, expected %d as in the index", h.Size, e.Len)
	}
	n, ok := ParseEntryName(h.Name)
	switch {
	case !ok:
		problem(BadHeader, off, BlockSize, "header: name %q, expected one of segment %s", h.Name, e.ID)
		return 0, false
	case n.ID != e.ID:
		problem(BadHeader, off, BlockSize, "header: of segment %s, expected %s", n.ID, e.ID)
	case !n.HasCRC:
		problem(BadHeader, off, BlockSize, "header: name %q has no checksum", h.Name)
	}
	return n.CRC, n.HasCRC
}

// checkHead compares the generation in a data segment with the one in the index.
func (t *Tar) checkHead(e Entry, data []byte, report func(Problem)) {
	h, ok := segment.ParseHead(data)
	if !ok {
		e.problemTo(report)(BadSegment, e.Pos, int64(e.Len), "segment: begins with %x, expected the header of a data segment", data[:min(len(data), 4)])
		return
	}
	g := h.Generation
	if t.index.step == entryV1 { // which does not contain more
		g = Generation{Gen: g.Gen, Full: g.Gen, Compacted: true}
	}
	if g != e.Generation {
		e.problemTo(report)(BadSegment, e.Pos, int64(e.Len), "segment: generation %s, expected %s as in the index", g, e.Generation)
	}
}

// A Layout has the places of a tar's parts, with headers and zeros. A missing part has length 0.
type Layout struct {
	Segments, Binaries, Graph, Index, Trailer Span
}

// Layout finds the parts of a tar.
func (t *Tar) Layout(ctx context.Context) (Layout, error) {
	return t.CheckLayout(ctx, func(Problem) {})
}

// CheckLayout finds the parts of a tar. It reports what is wrong with all parts that are not
// segments, and where parts contradict each other. It reads graph and binary references, but no
// segments. It returns an error only if the store fails.
func (t *Tar) CheckLayout(ctx context.Context, report func(Problem)) (Layout, error) {
	c := layoutCheck{t: t, w: window{t: t}, report: report}
	err := c.run(ctx)
	return c.l, err
}

type layoutCheck struct {
	t      *Tar
	w      window
	report func(Problem)
	l      Layout
}

func (c *layoutCheck) problem(class Class, off, n int64, format string, a ...any) {
	c.report(Problem{Class: class, Off: off, Len: n, What: fmt.Sprintf(format, a...)})
}

func (c *layoutCheck) run(ctx context.Context) error {
	t := c.t
	trailer := t.size - trailerLen
	c.l.Trailer = Span{trailer, trailerLen}
	c.l.Index = Span{t.place.header, trailer - t.place.header}
	b, err := c.w.at(ctx, trailer-footerLen, footerLen+trailerLen)
	if err != nil {
		return err
	}
	if !isZero(b[footerLen:]) {
		c.problem(BadPadding, trailer, trailerLen, "file: expected %d zeros at the end", trailerLen)
	}
	if size := int64(parseFooter(b[:footerLen]).size); size != c.l.Index.Len-BlockSize {
		c.problem(BadIndex, trailer-8, 4, "index: %d bytes, expected %d", size, c.l.Index.Len-BlockSize)
	}
	if _, err := c.header(ctx, c.l.Index, t.place.from, ".idx", true); err != nil {
		return err
	}
	end := c.l.Index.Off
	g, p, err := c.w.graph(ctx)
	if c.l.Graph, err = c.part(ctx, p, err, ".gph"); err != nil {
		return err
	}
	if c.l.Graph.Len > 0 {
		end = c.l.Graph.Off
	}
	if g != nil {
		c.checkGraph(g)
	}
	r, p, err := c.w.binaries(ctx)
	if c.l.Binaries, err = c.part(ctx, p, err, ".brf"); err != nil {
		return err
	}
	if c.l.Binaries.Len > 0 {
		end = min(end, c.l.Binaries.Off)
	}
	if r != nil {
		c.checkBinaries(r)
	}
	c.l.Segments = Span{0, end}
	t.index.Check(end, c.report)
	return nil
}

// part reports why a part cannot be read, and checks its header. If the content of a part is
// damaged, the place that its footer gives is used only if its header is there.
func (c *layoutCheck) part(ctx context.Context, p part, bad error, suffix string) (Span, error) {
	if e, ok := errors.AsType[*Error](bad); ok {
		c.problem(e.Class, e.Offset, 0, "%s", e.What)
	} else if bad != nil || p.Len == 0 {
		return Span{}, bad
	}
	if p.Len == 0 {
		return Span{}, nil
	}
	ok, err := c.header(ctx, p.Span, p.content(), suffix, bad == nil)
	if bad != nil && !ok {
		return Span{}, err
	}
	return p.Span, err
}

// header checks the header and zeros of a part, and returns whether the header is that of the
// part. If requested, it also reports what is wrong.
func (c *layoutCheck) header(ctx context.Context, s Span, content int64, suffix string, tell bool) (ok bool, err error) {
	b, err := c.w.at(ctx, s.Off, content-s.Off)
	if err != nil {
		return false, err
	}
	h, err := ParseHeader(b[:BlockSize])
	problem := func(class Class, off, n int64, format string, a ...any) {
		if tell {
			c.problem(class, off, n, format, a...)
		}
		ok = false
	}
	ok = true
	switch {
	case err != nil:
		problem(BadHeader, s.Off, BlockSize, "%v", err)
	case !h.ChecksumOK:
		problem(BadHeader, s.Off, BlockSize, "header of %s: checksum does not match", suffix)
	case !strings.HasSuffix(h.Name, suffix) && len(h.Name) < nameLen:
		problem(BadHeader, s.Off, BlockSize, "header: name %q, expected one with %s", h.Name, suffix)
	case h.Size != s.Len-BlockSize:
		problem(BadHeader, s.Off, BlockSize, "header of %s: %d bytes, expected %d", suffix, h.Size, s.Len-BlockSize)
	}
	if !isZero(b[BlockSize:]) {
		problem(BadPadding, s.Off+BlockSize, int64(len(b))-BlockSize, "expected zeros before the content of %s", suffix)
	}
	return ok, nil
}

// about reports a problem with what a part contains about a segment.
func (c *layoutCheck) about(class Class, s Span, id ID, format string, a ...any) {
	c.report(Problem{Class: class, Off: s.Off, Len: s.Len, Segment: id, HasSegment: true, What: fmt.Sprintf(format, a...)})
}

func (c *layoutCheck) checkGraph(g *Graph) {
	at := c.l.Graph
	if g.twice > 0 {
		c.problem(BadGraph, at.Off, at.Len, "graph: %d duplicate lists of segments", g.twice)
	}
	for id, targets := range g.All() {
		switch _, ok := c.t.index.Find(id); {
		case !ok:
			c.about(BadGraph, at, id, "graph: a list of a segment that is not in the index")
		case !id.IsData():
			c.about(BadGraph, at, id, "graph: a list of a segment that is not a data segment")
		case targets.Len() == 0:
			c.about(BadGraph, at, id, "graph: a list without targets")
		}
		for to := range targets.All() {
			if to == id {
				c.about(BadGraph, at, id, "graph: the segment refers to itself")
			}
		}
	}
}

func (c *layoutCheck) checkBinaries(r *BinaryRefs) {
	at := c.l.Binaries
	for s := range r.All() {
		i, ok := c.t.index.Find(s.ID)
		switch {
		case !ok:
			c.about(BadBinaries, at, s.ID, "binary references: of a segment that is not in the index")
		case c.t.index.At(i).Generation != s.Generation:
			c.about(BadBinaries, at, s.ID, "binary references: generation %s, expected %s as in the index", s.Generation, c.t.index.At(i).Generation)
		}
	}
}
