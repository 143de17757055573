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
	nodeLen      = 20 // of a list without targets: key, count i32
	minGraphStep = 34 // what Oak asks of each list, and 4 in all
)

// A Graph says which segments the data segments of a tar refer to. It holds the
// bytes of the file, and four more for each list.
type Graph struct {
	b     []byte
	lists []uint32 // where lists begin, by key; of two with one key the last
	twice int      // lists that are not there for that reason
}

// checkGraph says why a footer is not that of a graph that ends at end; the graph
// may be shorter than its size says.
func checkGraph(f footer, end int64) *Error {
	bad := func(off int64, format string, a ...any) *Error { return badGraph(end+off, format, a...) }
	switch {
	case f.magic != graphV1:
		return bad(-4, "magic %08x, expected %08x", f.magic, graphV1)
	case f.count < 0:
		return bad(-12, "%d lists", f.count)
	case int64(f.size) < 4+int64(f.count)*minGraphStep:
		return bad(-8, "%d bytes, expected at least %d for %d lists", f.size, 4+int64(f.count)*minGraphStep, f.count)
	case f.size < footerLen || int64(f.size) > end-BlockSize:
		return bad(-8, "%d bytes, expected %d to %d", f.size, footerLen, end-BlockSize)
	}
	return nil
}

func badGraph(off int64, format string, a ...any) *Error {
	return &Error{Class: BadGraph, Offset: off, What: fmt.Sprintf("graph: "+format, a...)}
}

// parseGraph takes b, the content before the footer. Offsets in errors are in b.
func parseGraph(b []byte, f footer) (*Graph, *Error) {
	bad := func(off int, format string, a ...any) (*Graph, *Error) {
		return nil, badGraph(int64(off), format, a...)
	}
	if got := checksum(b); got != f.crc {
		return bad(0, "checksum %08x, expected %08x", got, f.crc)
	}
	g := &Graph{b: b, lists: make([]uint32, 0, min(int(f.count), len(b)/nodeLen))}
	p := 0
	for i := range int(f.count) {
		if len(b)-p < nodeLen {
			return bad(p, "list %d of %d: %d bytes are left, expected at least %d", i, f.count, len(b)-p, nodeLen)
		}
		n := int32At(b[p+16:])
		if n < 0 || int(n) > (len(b)-p-nodeLen)/len(ID{}) {
			return bad(p+16, "list %d of %d: %d targets, expected at most %d", i, f.count, n, (len(b)-p-nodeLen)/len(ID{}))
		}
		g.lists = append(g.lists, uint32(p))
		p += nodeLen + int(n)*len(ID{})
	}
	if p != len(b) {
		// The checksum does not cover the count. Oak takes the lists that are counted.
		return bad(p, "%d bytes behind the last of %d lists", len(b)-p, f.count)
	}
	byKey := func(x, y uint32) int { return compareIDs(b[x:], b[y:]) }
	slices.SortFunc(g.lists, func(x, y uint32) int { return cmp.Or(byKey(x, y), cmp.Compare(y, x)) }) // the last first
	all := len(g.lists)
	g.lists = slices.CompactFunc(g.lists, func(x, y uint32) bool { return byKey(x, y) == 0 })
	g.twice = all - len(g.lists)
	return g, nil
}

// Held is how many bytes a graph takes in memory.
func (g *Graph) Held() int { return len(g.b) + 4*len(g.lists) }

func (g *Graph) Len() int { return len(g.lists) }

func (g *Graph) at(i int) (ID, IDs) {
	b := g.b[g.lists[i]:]
	n := int(int32At(b[16:])) * len(ID{})
	return ID(b), IDs(b[nodeLen : nodeLen+n : nodeLen+n])
}

// Targets returns what a segment refers to; ok is false if it has no list.
func (g *Graph) Targets(id ID) (targets IDs, ok bool) {
	i, ok := slices.BinarySearchFunc(g.lists, id, func(at uint32, id ID) int { return compareIDs(g.b[at:], id[:]) })
	if !ok {
		return nil, false
	}
	_, targets = g.at(i)
	return targets, true
}

// All enumerates the lists by key, in the order of [ID.Compare].
func (g *Graph) All() iter.Seq2[ID, IDs] {
	return func(yield func(ID, IDs) bool) {
		for i := range g.lists {
			if !yield(g.at(i)) {
				return
			}
		}
	}
}

// A graphBuilder collects lists as they stand in a file, at most one of each key.
type graphBuilder struct {
	b     []byte
	lists []uint32
}

// add keeps a list, unless it is empty: Oak takes a graph of many such for damaged.
func (g *graphBuilder) add(id ID, targets IDs) {
	if len(targets) == 0 {
		return
	}
	g.lists = append(g.lists, uint32(len(g.b)))
	g.b = append(g.b, id[:]...)
	g.b = binary.BigEndian.AppendUint32(g.b, uint32(targets.Len()))
	g.b = append(g.b, targets...)
}

// size is how long content and footer are.
func (g *graphBuilder) size() int { return len(g.b) + footerLen }

// append appends graph and footer to b: lists by key.
func (g *graphBuilder) append(b []byte) []byte {
	slices.SortFunc(g.lists, func(x, y uint32) int { return compareIDs(g.b[x:], g.b[y:]) })
	from := len(b)
	for _, at := range g.lists {
		n := nodeLen + int(int32At(g.b[at+16:]))*len(ID{})
		b = append(b, g.b[at:int(at)+n]...)
	}
	return footer{checksum(b[from:]), int32(len(g.lists)), int32(g.size()), graphV1}.append(b)
}

const (
	generationV1   = 8  // of a generation without segments: generation i32, count i32
	generationV2   = 13 // and full generation i32, compacted u8
	minBinaryStep  = 22 // what Oak asks of each generation, besides the footer
	segmentRefsLen = 20 // of a segment without references: id, count i32
)

// BinaryRefs says which binaries outside of the store the segments of a tar refer
// to: the collection of the garbage among these goes by it. It holds the bytes of
// the file.
type BinaryRefs struct {
	b        []byte
	count    int // generations
	v1       bool
	segments int
}

// checkBinaries says why a footer is not that of binary references that end at end.
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

// parseBinaries takes b, the content before the footer. Offsets in errors are in b.
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
		// The checksum does not cover the count. Oak takes the generations that are
		// counted.
		return bad(p, "%d bytes behind the last of %d generations", len(b)-p, r.count)
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

// Texts is a list of strings, one after another as they stand in files.
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
	refs string // as they stand in a file, in order, none twice
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

// maxSize is how long content and footer are at most.
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
