package tarfile

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"iter"
	"math"
	"slices"
	"sync"
)

const (
	entryV1 = 28 // id, position i32, length i32, generation i32
	entryV2 = 33 // and full generation i32, compacted u8

	minLen = 6 * BlockSize // of a tar: a segment, an index, two blocks of zeros
	maxLen = math.MaxInt32 // of a tar that Oak reads
	room   = 2 * BlockSize // minimum size of a segment with its header
)

// An Index records where the segments of a tar are. It keeps the bytes of the file, 33 for each
// segment, or 28 in tars before Oak 1.8, or what a scan found, and 4 for their order once that is
// needed. The zero value is empty.
type Index struct {
	b     []byte
	step  int     // 0 if it is of a scan
	found []Entry // then, by id

	sort  sync.Once
	order []uint32 // by position
}

// NewIndex makes an index from what a scan found, and owns the slice. If an ID occurs twice, the
// later entry in the file counts, as in Oak's recovery.
func NewIndex(found []Entry) *Index {
	slices.SortFunc(found, func(a, b Entry) int {
		return cmp.Or(a.ID.Compare(b.ID), cmp.Compare(b.Pos, a.Pos))
	})
	return &Index{found: slices.Clip(slices.CompactFunc(found, func(a, b Entry) bool { return a.ID == b.ID }))}
}

// An Entry is one segment.
type Entry struct {
	ID         ID
	Pos        int64 // of the segment itself; its header is a block before
	Len        int
	Generation Generation // zero for bulk segments; compacted in a tar before Oak 1.8
}

// end returns where the next entry can begin.
func (e Entry) end() int64 { n := e.Pos + int64(e.Len); return n + pad(n) }

func (x *Index) Len() int {
	if x.step == 0 {
		return len(x.found)
	}
	return len(x.b) / x.step
}

// Version returns 1 for tars before Oak 1.8, otherwise 2.
func (x *Index) Version() int {
	if x.step == entryV1 {
		return 1
	}
	return 2
}

// At returns one entry. They are sorted by id.
func (x *Index) At(i int) Entry {
	if x.step == 0 {
		return x.found[i]
	}
	b := x.b[i*x.step : (i+1)*x.step]
	e := Entry{ID: ID(b), Pos: int64(int32At(b[16:])), Len: int(int32At(b[20:]))}
	e.Generation = parseGeneration(b[24:], x.step == entryV1)
	return e
}

// parseGeneration reads a generation. Before Oak 1.8 it was only a number; now the full generation
// (i32) and compacted (u8) follow.
func parseGeneration(b []byte, v1 bool) Generation {
	gen := int32At(b)
	if v1 {
		return Generation{Gen: gen, Full: gen, Compacted: true}
	}
	return Generation{Gen: gen, Full: int32At(b[4:]), Compacted: b[8] != 0}
}

func appendGeneration(b []byte, g Generation) []byte {
	b = binary.BigEndian.AppendUint32(b, uint32(g.Gen))
	b = binary.BigEndian.AppendUint32(b, uint32(g.Full))
	if g.Compacted {
		return append(b, 1)
	}
	return append(b, 0)
}

func (x *Index) Find(id ID) (i int, ok bool) {
	if x.step == 0 {
		return slices.BinarySearchFunc(x.found, id, func(e Entry, id ID) int { return e.ID.Compare(id) })
	}
	msb := int64(binary.BigEndian.Uint64(id[:]))
	lsb := int64(binary.BigEndian.Uint64(id[8:]))
	lo, hi := 0, x.Len()
	for lo < hi {
		mid := int(uint(lo+hi) >> 1)
		b := x.b[mid*x.step:]
		m := int64(binary.BigEndian.Uint64(b))
		if m < msb || m == msb && int64(binary.BigEndian.Uint64(b[8:])) < lsb {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return lo, lo < x.Len() && bytes.Equal(x.b[lo*x.step:lo*x.step+len(id)], id[:])
}

// All enumerates the entries by id.
func (x *Index) All() iter.Seq2[int, Entry] {
	return func(yield func(int, Entry) bool) {
		for i := range x.Len() {
			if !yield(i, x.At(i)) {
				return
			}
		}
	}
}

// ByPosition returns the numbers of the entries in the order in which they are in
// the file, which is the order in which they were written. It is not to be changed.
func (x *Index) ByPosition() []uint32 {
	x.sort.Do(func() {
		places := make([]int64, x.Len())
		x.order = make([]uint32, x.Len())
		for i, e := range x.All() {
			places[i], x.order[i] = e.Pos, uint32(i)
		}
		slices.SortFunc(x.order, func(a, b uint32) int { return cmp.Or(cmp.Compare(places[a], places[b]), cmp.Compare(a, b)) })
	})
	return x.order
}

// Plain returns an entry as Oak writes it since 1.8: only data segments have a generation.
func (e Entry) Plain() Entry {
	if !e.ID.IsData() {
		e.Generation = Generation{}
	}
	return e
}

// Bits has a bit for each entry of an index.
type Bits []uint64

func NewBits(n int) Bits      { return make(Bits, (n+63)/64) }
func (b Bits) Has(i int) bool { return b[i/64]>>(i%64)&1 != 0 }
func (b Bits) Set(i int)      { b[i/64] |= 1 << (i % 64) }
func (b Bits) Unset(i int)    { b[i/64] &^= 1 << (i % 64) }

// indexPlace is where an index is in its file, according to its footer.
type indexPlace struct {
	step   int
	count  int
	crc    uint32
	from   int64 // of its entries
	header int64 // of its header block, where the graph ends
}

// locateIndex parses the footer in the last bytes of a file of the given length. These must
// include the third block from the end. Its conditions are in Oak's order.
func locateIndex(tail []byte, length int64) (indexPlace, *NoIndex) {
	none := func(r Reason, off int64, format string, a ...any) (indexPlace, *NoIndex) {
		return indexPlace{}, &NoIndex{Reason: r, Offset: off, What: fmt.Sprintf(format, a...)}
	}
	switch {
	case length%BlockSize != 0:
		return none(LengthNotBlocks, length, "file: %d bytes, expected a multiple of %d", length, BlockSize)
	case length < minLen:
		return none(TooShort, length, "file: %d bytes, expected at least %d", length, minLen)
	case length > maxLen:
		return none(TooLong, length, "file: %d bytes, expected at most %d", length, maxLen)
	}
	end := length - trailerLen
	f := parseFooter(tail[:len(tail)-trailerLen])
	p := indexPlace{step: entryV2, crc: f.crc}
	switch f.magic {
	case indexV1:
		p.step = entryV1
	case indexV2:
	default:
		return none(UnknownMagic, end-4, "index: magic %08x, expected %08x or %08x", f.magic, indexV1, indexV2)
	}
	switch {
	case f.count < 1:
		return none(NoEntries, end-12, "index: %d entries, expected at least 1", f.count)
	case int64(f.size) < int64(f.count)*entryV1+footerLen: // for both versions, as in Oak
		return none(SizeTooSmall, end-8, "index: %d bytes, expected at least %d for %d entries", f.size, int64(f.count)*entryV1+footerLen, f.count)
	case f.size%BlockSize != 0:
		return none(SizeNotBlocks, end-8, "index: %d bytes, expected a multiple of %d", f.size, BlockSize)
	case int64(f.count) > length/room:
		// Oak has no such condition. It limits memory to a thirtieth of the file.
		return none(CountTooLarge, end-12, "index: %d entries, expected at most %d in a file of %d bytes", f.count, length/room, length)
	}
	p.count = int(f.count)
	n := int64(p.count)*int64(p.step) + footerLen
	p.from = end - n
	p.header = p.from - pad(n) - BlockSize
	if p.header < 0 {
		return none(CountTooLarge, end-12, "index: %d entries, expected at most what fits into a file of %d bytes", f.count, length)
	}
	return p, nil
}

// parseIndex parses the entries of an index, b, and keeps b.
func parseIndex(b []byte, p indexPlace) (*Index, *NoIndex) {
	if got := checksum(b); got != p.crc {
		return nil, &NoIndex{Reason: WrongChecksum, Offset: p.from, What: fmt.Sprintf("index: checksum of entries %08x, expected %08x", got, p.crc)}
	}
	x := &Index{b: b, step: p.step}
	var before ID
	for i := range p.count {
		e := x.At(i)
		none := func(r Reason, format string, a ...any) (*Index, *NoIndex) {
			return nil, &NoIndex{Reason: r, Offset: p.from + int64(i*p.step),
				What: fmt.Sprintf("index: entry %d: %s: ", i, e.ID) + fmt.Sprintf(format, a...)}
		}
		switch {
		case i > 0 && before.Compare(e.ID) >= 0:
			return none(WrongOrder, "comes after %s", before)
		case e.Pos < 0:
			return none(NegativePosition, "position %d", e.Pos)
		case e.Pos%BlockSize != 0:
			return none(PositionNotAtABlock, "position %d, expected a multiple of %d", e.Pos, BlockSize)
		case e.Len < 1:
			return none(NoLength, "%d bytes, expected at least 1", e.Len)
		}
		before = e.ID
	}
	return x, nil
}

func appendEntry(b []byte, e Entry) []byte {
	b = append(b, e.ID[:]...)
	b = binary.BigEndian.AppendUint32(b, uint32(e.Pos))
	b = binary.BigEndian.AppendUint32(b, uint32(e.Len))
	return appendGeneration(b, e.Generation)
}

// appendIndex appends index and footer, zeros before them, to b: entries by id.
func appendIndex(b, entries []byte) []byte {
	entries = slices.Concat(slices.SortedFunc(slices.Chunk(entries, entryV2), compareIDs)...)
	size := len(entries) + footerLen
	b = append(b, zeros[:pad(size)]...)
	b = append(b, entries...)
	return footer{checksum(entries), int32(len(entries) / entryV2), int32(size + pad(size)), indexV2}.append(b)
}
