package tarfile

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"iter"
	"slices"
)

const (
	nodeLen      = 20 // of a list without targets: key, count i32
	minGraphStep = 34 // Oak's minimum for each list, and 4 in all
)

// A Graph lists which segments the data segments of a tar refer to. It holds the
// bytes of the file, and four more for each list.
type Graph struct {
	b     []byte
	lists []uint32 // where lists begin, by key; of two with the same key, the last
	twice int      // lists that were omitted as duplicates
}

// checkGraph returns why a footer is not that of a graph that ends at end; the graph
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

// parseGraph parses b, the content before the footer. Offsets in errors are relative to b.
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
		// The checksum does not cover the count. Oak reads as many lists as the count.
		return bad(p, "%d bytes after the last of %d lists", len(b)-p, f.count)
	}
	byKey := func(x, y uint32) int { return compareIDs(b[x:], b[y:]) }
	slices.SortFunc(g.lists, func(x, y uint32) int { return cmp.Or(byKey(x, y), cmp.Compare(y, x)) }) // the last first
	all := len(g.lists)
	g.lists = slices.CompactFunc(g.lists, func(x, y uint32) bool { return byKey(x, y) == 0 })
	g.twice = all - len(g.lists)
	return g, nil
}

func (g *Graph) Held() int { return len(g.b) + 4*len(g.lists) }

func (g *Graph) Len() int { return len(g.lists) }

func (g *Graph) at(i int) (ID, IDs) {
	b := g.b[g.lists[i]:]
	n := int(int32At(b[16:])) * len(ID{})
	return ID(b), IDs(b[nodeLen : nodeLen+n : nodeLen+n])
}

// Targets returns the segments to which a segment refers. ok is false if it has no list.
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

// A graphBuilder collects lists in the form that they have in a file, at most one for each key.
type graphBuilder struct {
	b     []byte
	lists []uint32
}

// add adds a list, unless it is empty, because Oak treats a graph with many empty lists as
// damaged.
func (g *graphBuilder) add(id ID, targets IDs) {
	if len(targets) == 0 {
		return
	}
	g.lists = append(g.lists, uint32(len(g.b)))
	g.b = append(g.b, id[:]...)
	g.b = binary.BigEndian.AppendUint32(g.b, uint32(targets.Len()))
	g.b = append(g.b, targets...)
}

// size returns the size of content and footer.
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
