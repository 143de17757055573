package tarfile

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"iter"
	"slices"
	"strings"
)

const (
	generationV1   = 8  // of a generation without segments: generation i32, count i32
	generationV2   = 13 // and full generation i32, compacted u8
	minBinaryStep  = 22 // Oak's minimum for each generation, besides the footer
	segmentRefsLen = 20 // of a segment without references: id, count i32
)

// BinaryRefs lists which binaries outside of the store the segments of a tar refer to. The
// garbage collection of the data store uses it. It keeps the bytes of the file in memory.
type BinaryRefs struct {
	b        []byte
	count    int // generations
	v1       bool
	segments int
}

// checkBinaries returns why a footer is not that of binary references that end at end.
func checkBinaries(f footer, end int64) *Error {
	bad := func(off int64, format string, a ...any) *Error { return badBinaries(end+off, format, a...) }
	switch {
	case f.magic != binariesV1 && f.magic != binariesV2:
		return bad(-4, "magic %08x, expected %08x or %08x", f.magic, binariesV1, binariesV2)
	case f.count < 0:
		return bad(-12, "%d generations", f.count)
	case int64(f.size) < int64(f.count)*minBinaryStep+footerLen:
		return bad(-8, "%d bytes, expected at least %d for %d generations", f.size, int64(f.count)*minBinaryStep+footerLen, f.count)
	case int64(f.size) > end-BlockSize:
		return bad(-8, "%d bytes, expected at most %d", f.size, end-BlockSize)
	}
	return nil
}

func badBinaries(off int64, format string, a ...any) *Error {
	return &Error{Class: BadBinaries, Offset: off, What: fmt.Sprintf("binary references: "+format, a...)}
}

// parseBinaries parses b, the content before the footer. Offsets in errors are relative to b.
func parseBinaries(b []byte, f footer) (*BinaryRefs, *Error) {
	if got := checksum(b); got != f.crc {
		return nil, badBinaries(0, "checksum %08x, expected %08x", got, f.crc)
	}
	r := &BinaryRefs{b: b, count: int(f.count), v1: f.magic == binariesV1}
	return r, r.each(func(SegmentBinaries) bool {
		r.segments++
		return true
	})
}

// each calls do with the segments in the order of the file, until it returns false.
func (r *BinaryRefs) each(do func(SegmentBinaries) bool) *Error {
	bad := func(off int, format string, a ...any) *Error { return badBinaries(int64(off), format, a...) }
	step := generationV2
	if r.v1 {
		step = generationV1
	}
	b, p := r.b, 0
	for i := range r.count {
		if len(b)-p < step {
			return bad(p, "generation %d of %d: %d bytes are left, expected at least %d", i, r.count, len(b)-p, step)
		}
		g, n := parseGeneration(b[p:], r.v1), int(int32At(b[p+step-4:]))
		p += step
		if n < 0 || n > (len(b)-p)/segmentRefsLen {
			return bad(p-4, "generation %d of %d: %d segments, expected at most %d", i, r.count, n, (len(b)-p)/segmentRefsLen)
		}
		for k := range n {
			if len(b)-p < segmentRefsLen {
				return bad(p, "segment %d of generation %d: %d bytes are left, expected at least %d", k, i, len(b)-p, segmentRefsLen)
			}
			s := SegmentBinaries{ID(b[p:]), g, Texts{n: int(int32At(b[p+16:]))}}
			p += segmentRefsLen
			s.Refs.b = b[p:]
			if s.Refs.n < 0 || s.Refs.n > (len(b)-p)/4 {
				return bad(p-4, "segment %d of generation %d: %d references, expected at most %d", k, i, s.Refs.n, (len(b)-p)/4)
			}
			for range s.Refs.n {
				if len(b)-p < 4 {
					return bad(p, "segment %d of generation %d: %d bytes are left, expected at least 4", k, i, len(b)-p)
				}
				n := int(int32At(b[p:]))
				p += 4
				if n < 0 || n > len(b)-p {
					return bad(p-4, "segment %d of generation %d: a reference of %d bytes, expected at most %d", k, i, n, len(b)-p)
				}
				p += n
			}
			if !do(s) {
				return nil
			}
		}
	}
	if p != len(b) {
		// The checksum does not cover the count. Oak reads as many generations as the count.
		return bad(p, "%d bytes after the last of %d generations", len(b)-p, r.count)
	}
	return nil
}

func (r *BinaryRefs) Len() int { return r.segments }

// A SegmentBinaries is one segment with the ids of the binaries that it refers to.
type SegmentBinaries struct {
	ID         ID
	Generation Generation
	Refs       Texts
}

// Texts is a list of strings, one after another as in files.
type Texts struct {
	b []byte
	n int
}

func (l Texts) All() iter.Seq[string] {
	return func(yield func(string) bool) {
		b := l.b
		for range l.n {
			n := 4 + int(int32At(b))
			if !yield(string(b[4:n])) {
				return
			}
			b = b[n:]
		}
	}
}

// All enumerates the segments in the order of the file.
func (r *BinaryRefs) All() iter.Seq[SegmentBinaries] {
	return func(yield func(SegmentBinaries) bool) { r.each(yield) }
}

// A binariesBuilder collects references: of each segment once.
type binariesBuilder struct {
	segments []segmentRefs
	n        int // bytes of segments in the file
}

type segmentRefs struct {
	id   ID
	gen  Generation
	refs string // as stored in a file, in order, without duplicates
	n    int
}

func (w *binariesBuilder) add(id ID, gen Generation, refs []string) {
	if len(refs) == 0 {
		return
	}
	refs = slices.Compact(slices.Sorted(slices.Values(refs)))
	var b strings.Builder
	for _, ref := range refs {
		b.Write(binary.BigEndian.AppendUint32(nil, uint32(len(ref))))
		b.WriteString(ref)
	}
	w.segments = append(w.segments, segmentRefs{id, gen, b.String(), len(refs)})
	w.n += segmentRefsLen + b.Len()
}

// maxSize returns the maximum size of content and footer.
func (w *binariesBuilder) maxSize() int {
	return w.n + len(w.segments)*generationV2 + footerLen
}

// append appends references and footer to b: by generation and id.
func (w *binariesBuilder) append(b []byte) []byte {
	slices.SortFunc(w.segments, func(x, y segmentRefs) int {
		return cmp.Or(x.gen.Compare(y.gen), x.id.Compare(y.id))
	})
	from, generations, countAt := len(b), 0, 0
	for i, s := range w.segments {
		if i == 0 || w.segments[i-1].gen != s.gen {
			generations++
			b = appendGeneration(b, s.gen)
			countAt = len(b)
			b = append(b, 0, 0, 0, 0)
		}
		binary.BigEndian.PutUint32(b[countAt:], binary.BigEndian.Uint32(b[countAt:])+1)
		b = append(b, s.id[:]...)
		b = binary.BigEndian.AppendUint32(b, uint32(s.n))
		b = append(b, s.refs...)
	}
	return footer{checksum(b[from:]), int32(generations), int32(len(b) - from + footerLen), binariesV2}.append(b)
}
