package tarfile

import (
	"context"
	"fmt"
	"iter"
	"math/bits"
	"strings"

	"github.com/holdall/holdall/store"
)

// Found is a segment that a scan has found.
type Found struct {
	ID        ID
	HeaderPos int64
	DataPos   int64
	Len       int
	CRC       uint32 // of the segment
	HasCRC    bool   // its name has a checksum, and the segment matches it
	Bit       int    // where the byte is of which a bit was wrong
	Mask      byte   // which bit; 0 is none. Data has it corrected
	Doubt     Doubt
	Data      []byte // until the next one
}

// Doubt is a set of reasons not to trust a segment that was found.
type Doubt uint8

const (
	// DoubtID means that the header's checksum is wrong and that the damage may be in the id. The
	// bytes are correct.
	DoubtID Doubt = 1 << iota
	// DoubtPlace means that the segment was found after a lost header, so near that it may be
	// part of that header's segment: a tar may be stored in a binary.
	DoubtPlace
)

const (
	scanRun    = 1 << 20 // read at once
	scanWindow = BlockSize + MaxSegment + BlockSize

	// scanEffort limits how many times the bytes of a file are summed in the search after damage;
	// scanStart is the number of additional bytes. Without a limit, a file that consists only of
	// headers could keep a scan busy for hours.
	scanEffort = 16
	scanStart  = 64 << 20
)

// Scan reads a tar from its beginning, without its index, in some 1.3 MiB of memory, and yields
// the segments in the order of the file. A segment whose name has a checksum is yielded only if
// the checksum matches, or does with one bit corrected; see [WrongBit]. If a segment occurs twice,
// both are yielded; Oak's recovery uses the later one.
//
// After damage, Scan examines each block until one is the header of a segment again. It tries to
// repair a damaged header; see repair.go. It reports what it found and what it skipped. It returns
// an error only if the store fails.
func Scan(ctx context.Context, obj store.Object, size int64, report func(Problem)) iter.Seq2[Found, error] {
	return ScanFrom(ctx, obj, 0, size, report)
}

// ScanFrom is Scan starting at the end of an entry.
func ScanFrom(ctx context.Context, obj store.Object, from, size int64, report func(Problem)) iter.Seq2[Found, error] {
	return func(yield func(Found, error) bool) {
		s := &scan{ctx: ctx, obj: obj, at: from, base: from, size: size, report: report, lost: -1, effort: scanEffort*(size-from) + scanStart}
		s.buf = make([]byte, 0, min(scanRun+scanWindow, max(size-from, 0)))
		for s.at < size {
			w, err := s.view()
			if err != nil {
				yield(Found{}, err)
				return
			}
			if f, ok := s.step(w); ok && !yield(f, nil) {
				return
			}
		}
		// A file ends with zeros.
		if s.lost < 0 || !s.blank || s.size-s.lost > trailerLen {
			s.flush()
		}
	}
}

type scan struct {
	ctx    context.Context
	obj    store.Object
	size   int64
	report func(Problem)

	at   int64  // the next block to examine
	buf  []byte // bytes of the file
	base int64  // where buf begins in it

	lost   int64   // where unrecognized bytes begin; -1 if there are none
	reason Problem // the problem of the first of them
	blank  bool    // all of them are zeros
	effort int64   // how many bytes may still be summed

	// doubtful is where a segment whose header was lost may end. An entry whose header is before
	// that may be a part of it.
	doubtful int64
}

// view returns the bytes at s.at: a whole entry and the next header, or the rest of the file.
func (s *scan) view() ([]byte, error) {
	want := min(scanWindow, s.size-s.at)
	if have := s.base + int64(len(s.buf)); s.at+want > have {
		n := 0
		if s.at < have {
			n = copy(s.buf[:cap(s.buf)], s.buf[s.at-s.base:])
		}
		s.base = s.at
		to := min(int64(cap(s.buf)), s.size-s.base)
		s.buf = s.buf[:to]
		if err := s.obj.ReadAt(s.ctx, s.buf[n:], s.base+int64(n)); err != nil {
			return nil, err
		}
	}
	return s.buf[s.at-s.base:][:want], nil
}

// step examines a block, and continues after its entry or at the next block.
func (s *scan) step(w []byte) (Found, bool) {
	if len(w) < BlockSize {
		return s.skip(w, Problem{Class: Truncated, What: "file: ends within a block"})
	}
	block := w[:BlockSize]
	h, err := ParseHeader(block)
	if err != nil {
		return s.skip(block, Problem{Class: Gap, What: "zeros where a header should be"})
	}
	if !h.ChecksumOK {
		return s.damaged(w)
	}
	n, ok := ParseEntryName(h.Name)
	if !ok {
		return s.other(w, h)
	}
	problem := func(c Class, format string, a ...any) Problem {
		return Problem{Class: c, Segment: n.ID, HasSegment: true, What: fmt.Sprintf(format, a...)}
	}
	switch {
	case h.Size < 1 || h.Size > MaxSegment:
		return s.skip(block, problem(BadHeader, "header: %d bytes, expected 1 to %d", h.Size, MaxSegment))
	case h.Size > int64(len(w)-BlockSize):
		return s.skip(block, problem(Truncated, "segment: the file ends after %d of %d bytes", len(w)-BlockSize, h.Size))
	}
	crc := checksum(w[BlockSize:][:h.Size])
	if n.HasCRC && crc != n.CRC {
		return s.wrong(w, h, n, crc)
	}
	return s.found(w, n, int(h.Size), crc, 0), true
}

// found continues after a segment.
func (s *scan) found(w []byte, n EntryName, size int, crc uint32, doubt Doubt) Found {
	s.flush()
	if s.at < s.doubtful {
		doubt |= DoubtPlace
	}
	f := Found{ID: n.ID, HeaderPos: s.at, DataPos: s.at + BlockSize, Len: size, CRC: crc, HasCRC: n.HasCRC, Doubt: doubt, Data: w[BlockSize:][:size:size]}
	end := BlockSize + size
	rest := w[end:min(end+pad(size), len(w))]
	if !isZero(rest) {
		s.report(Problem{Class: BadPadding, Off: s.at + int64(end), Len: int64(len(rest)), Segment: n.ID, HasSegment: true, What: "segment: expected zeros after it"})
	}
	s.at += int64(end + len(rest))
	return f
}

// wrong continues after a segment that does not match its name. It continues at the segment's end
// if only a bit is wrong or the next entry is there, and otherwise within it, because a piece of
// the file may be missing.
func (s *scan) wrong(w []byte, h Header, n EntryName, crc uint32) (none Found, no bool) {
	data := w[BlockSize:][:h.Size]
	p := Problem{Class: BadChecksum, Off: s.at, Segment: n.ID, HasSegment: true, What: fmt.Sprintf("segment: checksum %08x, expected %08x", crc, n.CRC)}
	end := BlockSize + h.Size + pad(h.Size)
	p.Len = min(end, int64(len(w)))
	if s.spend(2 * len(data)) {
		if off, mask, ok := WrongBit(n.ID, data, n.CRC); ok {
			p.What += fmt.Sprintf(": only bit %d of the byte at %d is wrong", bits.TrailingZeros8(mask), s.at+BlockSize+int64(off))
			data[off] ^= mask
			f := s.found(w, n, int(h.Size), n.CRC, 0)
			f.Bit, f.Mask, p.Healed = off, mask, true
			s.report(p)
			return f, true
		}
		if !s.follows(w, end) {
			return s.skip(w[:BlockSize], p)
		}
	}
	s.flush()
	s.report(p)
	s.at += p.Len
	return none, false
}

// follows reports whether an intact header, or the end of the file, is at end.
func (s *scan) follows(w []byte, end int64) bool {
	if s.at+end >= s.size {
		return true
	}
	if end+BlockSize > int64(len(w)) {
		return false
	}
	h, err := ParseHeader(w[end:][:BlockSize])
	return err == nil && h.ChecksumOK
}

// spend takes n bytes of the effort. It returns false if none is left.
func (s *scan) spend(n int) bool {
	if s.effort < 0 {
		return false
	}
	s.effort -= int64(n)
	if s.effort < 0 {
		s.report(Problem{Class: Limit, Off: s.at, What: "scan: too much damage: headers are not repaired from here on"})
	}
	return s.effort >= 0
}

// other continues after an entry that is not a segment.
func (s *scan) other(w []byte, h Header) (none Found, no bool) {
	known := strings.HasSuffix(h.Name, ".brf") || strings.HasSuffix(h.Name, ".gph") || strings.HasSuffix(h.Name, ".idx")
	if h.Size > s.size-s.at-BlockSize {
		return s.skip(w[:BlockSize], Problem{Class: Truncated, What: fmt.Sprintf("entry %.100q: the file ends after %d of %d bytes", h.Name, s.size-s.at-BlockSize, h.Size)})
	}
	if !known {
		// Its size is used only if something recognizable follows it.
		if end := BlockSize + h.Size + pad(h.Size); !s.follows(w, end) {
			return s.skip(w[:BlockSize], Problem{Class: BadHeader, What: fmt.Sprintf("header: name %.100q, expected one of a segment", h.Name)})
		}
		s.flush()
		s.report(Problem{Class: Gap, Off: s.at, Len: BlockSize + h.Size, What: fmt.Sprintf("entry %.100q: not part of a store", h.Name)})
	}
	s.flush()
	s.at = min(s.at+BlockSize+h.Size+pad(h.Size), s.size)
	return none, false
}

// skip skips the rest of a block in which nothing was found.
func (s *scan) skip(block []byte, p Problem) (none Found, no bool) {
	p.Off = s.at
	blank := isZero(block)
	if s.lost >= 0 && p.HasSegment {
		s.flush() // each lost segment is reported
	}
	if s.lost < 0 {
		s.lost, s.reason, s.blank = s.at, p, true
	} else if s.blank && !blank {
		s.flush()
		s.lost, s.reason = s.at, p
	}
	s.blank = s.blank && blank
	s.at += int64(len(block))
	return none, false
}

// flush reports what was lost before s.at.
func (s *scan) flush() {
	if s.lost >= 0 {
		s.reason.Len = s.at - s.lost
		s.doubtful = s.at + MaxSegment
		s.report(s.reason)
	}
	s.lost = -1
}
