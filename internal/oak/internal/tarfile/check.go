package tarfile

import (
	"bytes"
	"fmt"
	"math/bits"

	"github.com/holdall/holdall/internal/oak/internal/segment"
)

// Check reports what Oak's reader does not look at, which takes no reading of the
// file: entries that overlap, that leave gaps, that are not before end, where the
// binary references begin.
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

// Whole is where an entry is: its header, the segment, and the zeros behind it.
func (e Entry) Whole() Span { return Span{e.Pos - BlockSize, e.end() - e.Pos + BlockSize} }

// CheckBytes reports what is wrong with entry i, of which b is the whole: that its
// checksum does not fit, first of all. It returns whether the segment is what was
// written, as far as its header says. It allocates nothing for a sound entry.
func (t *Tar) CheckBytes(i int, b []byte, report func(Problem)) (sound bool) {
	e := t.index.At(i)
	header, data, rest := b[:BlockSize], b[BlockSize:][:e.Len], b[BlockSize+e.Len:]
	crc := checksum(data)
	sound = true
	if !isHeader(header, e, crc, false) {
		sound = t.doubtful(e, header, data, crc, report)
	}
	if !isZero(rest) {
		e.problemTo(report)(BadPadding, e.Pos+int64(e.Len), int64(len(rest)), "segment: something else than zeros behind it")
	}
	if e.ID.IsData() {
		t.checkHead(e, data, report)
	}
	return sound
}

// doubtful looks at an entry whose header is not that of its segment.
func (t *Tar) doubtful(e Entry, header, data []byte, crc uint32, report func(Problem)) (sound bool) {
	problem := e.problemTo(report)
	if h, err := ParseHeader(header); err == nil && !h.ChecksumOK && isHeader(header, e, crc, true) {
		// Its own checksum, which is a sum of bytes, is right with that of the segment
		// and wrong without.
		problem(BadHeader, e.Pos-BlockSize, BlockSize, "header: the checksum of the segment in it is damaged, expected %08x", crc)
		return true
	}
	want, ok := t.checkHeader(e, header, problem)
	if !ok || want == crc {
		return true
	}
	flip := ""
	if off, mask, ok := FindFlip(data, want); ok {
		flip = fmt.Sprintf(": one bit is wrong, bit %d of the byte at %d", bits.TrailingZeros8(mask), e.Pos+int64(off))
	}
	problem(BadChecksum, e.Pos, int64(e.Len), "segment: checksum %08x, expected %08x%s", crc, want, flip)
	return false
}

// isHeader reports whether b is the header of a segment with this checksum, to the
// last byte. anyCRC leaves out the digits of the checksum itself.
func isHeader(b []byte, e Entry, crc uint32, anyCRC bool) bool {
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
	if anyCRC {
		copy(h[idText+1:nameText], b[idText+1:])
	}
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
		problem(BadHeader, off, BlockSize, "header: its checksum is wrong")
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
		problem(BadHeader, off, BlockSize, "header: it is of segment %s, expected %s", n.ID, e.ID)
	case !n.HasCRC:
		problem(BadHeader, off, BlockSize, "header: name %q has no checksum", h.Name)
	}
	return n.CRC, n.HasCRC
}

// checkHead compares what a data segment says of its generation with the index.
func (t *Tar) checkHead(e Entry, data []byte, report func(Problem)) {
	h, ok := segment.ParseHead(data)
	if !ok {
		e.problemTo(report)(BadSegment, e.Pos, int64(e.Len), "segment: begins with %x, expected the header of a data segment", data[:min(len(data), 4)])
		return
	}
	g := h.Generation
	if t.index.step == entryV1 { // which has no more of it
		g = Generation{Gen: g.Gen, Full: g.Gen, Compacted: true}
	}
	if g != e.Generation {
		e.problemTo(report)(BadSegment, e.Pos, int64(e.Len), "segment: generation %s, expected %s as in the index", g, e.Generation)
	}
}
