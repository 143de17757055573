package kept

import (
	"bytes"
	"encoding/binary"
	"io/fs"
	"math"
	"math/bits"
	"slices"
	"sort"
	"time"

	"github.com/holdall/holdall/codec"
	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/kit/sorter"
	"github.com/holdall/holdall/internal/base/scan"
)

// A page has rows in blocks of blockRows, and the last one has the rest. A block has columns of
// numbers, and the names and the rare properties of its rows. Each block can be decoded alone.
// docs/bytes/index.md describes the bytes.
const blockRows = 64

// The columns of a block, in their order.
const (
	colShared = iota // bytes of the name before that the name begins with
	colRest          // bytes of the rest of the name
	colHow
	colSize
	colOff
	colStored
	colSkip
	colUnit
	colSec
	colNano
	colRank
	colFirst // number of the first digest of a piece
	colExtra // bytes of rare properties
	columns
)

// kindBits are the bits of the kind in a how.
const kindBits = 0x07

// isChained is the bit of a column whose numbers are relative to those before.
const isChained = 1 << 4

// Bits of a how. The lowest bits of the first byte are the kind.
const (
	howImplied = 1 << (3 + iota)
	howWhole   // not a path
	howPlaced  // the content is one run of a volume, stored as it is or by a codec
	howMode
	howTime
	howElsewhere // only the archive knows where the content lies
	howCoded
	howFilled // the decoded run is the content and nothing else
	howFault
	howProven // the digest is that of the only piece
)

// A how has what many rows of a page have in common.
type how struct {
	bits         uint16
	mode         uint32
	owner, group string
	algo         string // of the digest
	sumLen       uint8
	volume       int
	codec        string
}

func (h *how) is(bit uint16) bool { return h.bits&bit != 0 }
func (h *how) kind() format.Kind  { return format.Kind(h.bits & kindBits) }

func appendHow(b []byte, h *how) []byte {
	b = binary.AppendUvarint(binary.LittleEndian.AppendUint16(b, h.bits), uint64(h.mode))
	b = append(scan.AppendText(scan.AppendText(scan.AppendText(b, h.owner), h.group), h.algo), h.sumLen)
	return scan.AppendText(binary.AppendUvarint(b, uint64(h.volume)), h.codec)
}

func parseHow(c *scan.Scanner, volumes int) (h how) {
	if b := c.Bytes(2); b != nil {
		h.bits = binary.LittleEndian.Uint16(b)
	}
	mode := c.Uvarint()
	h.mode, h.owner, h.group, h.algo, h.sumLen = uint32(mode), string(c.Text()), string(c.Text()), string(c.Text()), c.Byte()
	volume := c.Uvarint()
	h.volume, h.codec = int(volume&math.MaxInt32), string(c.Text())
	c.Must(h.kind() <= format.Property && mode <= math.MaxUint32 && h.bits < howProven<<1)
	c.Must(!h.is(howPlaced) || volume < uint64(volumes) && !h.is(howElsewhere))
	c.Must(!h.is(howProven) || h.algo == "blake3" && h.sumLen == DigestLen && !h.is(howFault))
	c.Must(!h.is(howImplied) || h.bits == uint16(format.Dir)|howImplied && h.sumLen == 0)
	return h
}

// A sheet is a page of rows that can be searched. Its bytes may lie in a file that is mapped, and
// then may be read only by what [Index.guarded] calls.
type sheet struct {
	ref
	hows   []how
	ends   []byte // u32 for each block, from the first block on
	blocks []byte
	sums   []byte
	keys   []string // of the first row of each block
	held   int      // bytes of memory
}

func (x *Index) newSheet(b []byte, r *ref) (*sheet, error) {
	c := &scan.Scanner{B: b}
	h := &sheet{ref: *r, held: 256}
	n, hows := c.Uvarint(), c.Uvarint()
	if c.Must(n == uint64(r.items) && n > 0 && n <= pageRows && hows <= pageRows); !c.Bad {
		h.hows = make([]how, hows)
		for i := range h.hows {
			h.hows[i] = parseHow(c, len(x.Volumes))
		}
		h.held += 128 * len(h.hows)
	}
	h.ends = c.Bytes(4 * uint64((r.items+blockRows-1)/blockRows))
	if c.Bad {
		return nil, x.fail(r.off, errRow)
	}
	rest := b[c.At:]
	end := uint32(0)
	for k := range len(h.ends) / 4 {
		if h.end(k) <= end || int64(h.end(k)) > int64(len(rest)) {
			return nil, x.fail(r.off, errRow)
		}
		head := &scan.Scanner{B: rest[end:h.end(k)]}
		whole := head.Byte() != 0
		dir, base := split(head.Text(), whole)
		h.keys = append(h.keys, string(place{string(dir), string(base), whole}.appendKey(nil)))
		h.held += len(h.keys[k]) + 16
		end = h.end(k)
	}
	h.blocks, h.sums = rest[:end], rest[end:]
	return h, nil
}

func (h *sheet) end(k int) uint32 { return binary.LittleEndian.Uint32(h.ends[4*k:]) }

// blockOf returns the last block whose first key is not greater than key, or -1.
func (h *sheet) blockOf(key []byte) int {
	return sort.Search(len(h.keys), func(k int) bool { return h.keys[k] > string(key) }) - 1
}

// A column is a number for each row of a block.
type column struct {
	data         []byte // and what comes after it
	width        uint8
	chained      bool
	least, start uint64
}

// at returns the number of row i without what it is relative to.
func (c *column) at(i int) uint64 {
	if c.width == 0 {
		return c.least
	}
	b := c.data[i*int(c.width):]
	if len(b) >= 8 {
		return c.least + binary.LittleEndian.Uint64(b)&(1<<(8*c.width)-1)
	}
	v := uint64(0)
	for k := range c.width {
		v |= uint64(b[k]) << (8 * k)
	}
	return c.least + v
}

// next returns the number of row i, of those that have one, and prepares the next one, which is
// relative to this one plus a step.
func (c *column) next(i int, step uint64) uint64 {
	v := c.at(i)
	if c.chained {
		v += c.start
		c.start = v + step
	}
	return v
}

// A block is a block of a page. Its names are read one after another, and so are its other
// properties.
type block struct {
	k, n   int // its number, and how many rows it has
	i      int // the next row
	name   []byte
	whole  bool // the first row is not a path
	sumAt  int  // of the digest of the next row
	cols   [columns]column
	texts  scan.Scanner
	extras scan.Scanner
}

// block parses what a block begins with.
func (h *sheet) block(k int, b *block) error {
	begin := uint32(0)
	if k >= len(h.keys) {
		return errRow
	}
	if k > 0 {
		begin = h.end(k - 1)
	}
	c := &scan.Scanner{B: h.blocks[begin:h.end(k)]}
	whole, name := c.Byte() != 0, c.Text()
	*b = block{k: k, n: min(blockRows, int(h.items)-k*blockRows), name: append(b.name[:0], name...), whole: whole}
	sumAt := c.Uvarint()
	long := c.Uvarint()
	mask := c.Bytes(2)
	c.Must(sumAt <= uint64(len(h.sums)))
	if c.Bad {
		return errRow
	}
	b.sumAt = int(sumAt)
	has := binary.LittleEndian.Uint16(mask)
	for i := range b.cols {
		if has>>i&1 == 0 {
			continue
		}
		bits := c.Byte()
		b.cols[i] = column{width: bits &^ isChained, chained: bits&isChained != 0, least: uint64(c.Varint())}
		c.Must(b.cols[i].width <= 8 && (!b.cols[i].chained || i == colOff || i == colSkip || i == colRank || i == colFirst))
		if b.cols[i].chained {
			b.cols[i].start = uint64(c.Varint())
		}
	}
	for i := range b.cols {
		if w := uint64(b.cols[i].width); w > 0 && !c.Bad {
			b.cols[i].data = c.B[c.At:]
			c.Bytes(w * uint64(b.n))
		}
	}
	b.texts.B = c.Bytes(long)
	if c.Must(has>>columns == 0); c.Bad {
		return errRow
	}
	b.extras.B = c.B[c.At:]
	return nil
}

// step goes to the name of row i, after that of the row before.
func (b *block) step(i int) bool {
	if i == 0 {
		return true
	}
	shared, rest := b.cols[colShared].at(i), b.texts.Bytes(b.cols[colRest].at(i))
	if b.texts.Bad || shared > uint64(len(b.name)) {
		return false
	}
	b.name = append(b.name[:shared], rest...)
	return true
}

// split returns the directory of a name, and the name in it. whole says that the name is not a path.
func split(name []byte, whole bool) (dir, base []byte) {
	if whole || len(name) == 0 {
		return nil, name
	}
	i := bytes.LastIndexByte(name[:len(name)-1], '/') // the last byte of an implied name is a slash
	return name[:max(i, 0)], name[i+1:]
}

// find goes to the row with a name and returns its number in the block, or -1 if there is none.
// Names are not put together: matched is how much of the name that of a row begins with.
func (h *sheet) find(b *block, key []byte, name string, whole bool) (int, error) {
	k := h.blockOf(key)
	if k < 0 {
		return -1, nil
	}
	if err := h.block(k, b); err != nil {
		return 0, err
	}
	matched, long := sorter.SharedLen(b.name, name), len(b.name)
	for i := range b.n {
		if i > 0 {
			shared, rest := b.cols[colShared].at(i), b.texts.Bytes(b.cols[colRest].at(i))
			if b.texts.Bad || shared > uint64(long) {
				return 0, errRow
			}
			if int(shared) <= matched {
				matched = int(shared) + sorter.SharedLen(rest, name[shared:])
			}
			long = int(shared) + len(rest)
		}
		if matched == len(name) && long == matched {
			if n := b.cols[colHow].at(i); n >= uint64(len(h.hows)) || h.hows[n].is(howWhole) == whole {
				b.name = append(b.name[:0], name...)
				return i, nil
			}
		}
	}
	return -1, nil
}

// numbers are what the columns of a block have of a row that is not only implied.
type numbers struct {
	*how
	size, off, stored, skip int64
	rank, first             int64 // see handle.proof
	sum, extra              []byte
}

// next reads the numbers of the next row of a block.
func (h *sheet) next(b *block, chunk int64) (n numbers, err error) {
	i := b.i
	b.i++
	k := b.cols[colHow].at(i)
	if k >= uint64(len(h.hows)) {
		return n, errRow
	}
	n.how = &h.hows[k]
	n.size, n.extra = int64(b.cols[colSize].at(i)), b.extras.Bytes(b.cols[colExtra].at(i))
	if n.size < 0 || b.extras.Bad || int(n.sumLen) > len(h.sums)-b.sumAt {
		return n, errRow
	}
	n.sum = h.sums[b.sumAt:][:n.sumLen]
	b.sumAt += len(n.sum)
	if n.is(howImplied) {
		return n, nil
	}
	if n.stored = n.size; n.is(howCoded) {
		n.stored, n.skip = int64(b.cols[colStored].at(i)), int64(b.cols[colSkip].next(i, uint64(n.size)))
	}
	if n.is(howPlaced) {
		n.off = int64(b.cols[colOff].next(i, uint64(n.stored)))
	}
	n.rank = int64(b.cols[colRank].next(i, 1))
	if all := pieces(n.kind(), n.size, chunk); n.is(howProven) {
		n.first = -1 - n.rank
		if all != 1 {
			return n, errRow
		}
	} else if all > 0 && !n.is(howFault) {
		if n.first = int64(b.cols[colFirst].next(i, uint64(all))); n.first < 0 || n.first > maxItems-all {
			return n, errRow
		}
	}
	if min(n.off, n.stored, n.skip, n.off+n.stored) < 0 || n.rank < 0 || n.rank >= maxRows {
		return n, errRow
	}
	return n, nil
}

// entry sets e, which must be empty, and c to the row with these numbers, whose name b has. What is
// not one raw run is appended to extents.
func (b *block) entry(n *numbers, e *format.Entry, c *handle, extents []byte) ([]byte, error) {
	i := b.i - 1
	e.Kind = n.kind()
	if i == 0 && n.is(howWhole) != b.whole {
		return nil, errRow
	}
	if n.is(howImplied) {
		if len(b.name) < 2 || b.name[len(b.name)-1] != '/' || len(n.extra) > 0 {
			return nil, errRow
		}
		return extents, nil
	}
	e.Size, e.HasMode, e.Mode, e.Owner, e.Group = n.size, n.is(howMode), fs.FileMode(n.mode), n.owner, n.group
	if n.is(howTime) {
		nsec := b.cols[colNano].at(i)
		if nsec >= 1e9 {
			return nil, errRow
		}
		e.ModTime = time.Unix(int64(b.cols[colSec].at(i)), int64(nsec)).UTC()
	}
	if n.sumLen > 0 || n.algo != "" {
		e.Digest = format.Digest{Algo: n.algo, Sum: string(n.sum)}
	}
	*c = handle{off: n.off, proof: n.first, volume: int32(n.volume), one: n.is(howPlaced) && !n.is(howCoded), elsewhere: n.is(howElsewhere)}
	before := len(extents)
	if n.is(howPlaced) && n.is(howCoded) {
		x := format.Extent{Size: n.size, Off: n.off, Len: n.stored, Skip: n.skip, Unit: n.size, Codec: n.codec}
		if !n.is(howFilled) {
			x.Unit = int64(b.cols[colUnit].at(i))
		}
		extents = appendExtents(extents, []format.Extent{x}, []int{n.volume})
	}
	s := scan.Scanner{B: n.extra}
	if len(n.extra) > 0 {
		if rare := decodeRare(&s, e); rare&hasExtents != 0 && !s.Bad {
			s.Must(!n.is(howElsewhere | howPlaced))
			extents = append(extents, n.extra[s.At:]...)
			s.At = len(n.extra)
		}
	}
	if s.Must(s.At == len(n.extra) && (e.Fault != nil) == n.is(howFault)); !c.one {
		c.volume = int32(len(extents) - before) // the length of extents, until these are a text
	}
	return extents, parsed(&s)
}

// A record is a row as a block has it.
type record struct {
	name  []byte // an implied one ends with a slash
	how   how
	v     [columns]int64
	has   uint16 // the columns that it has values in
	sum   []byte // the digest
	extra []byte // rare properties

	xs      []format.Extent // of one row
	volumes []int
	hows    []byte // the last how that was read
}

func (d *record) set(column int, v int64) {
	d.v[column] = v
	d.has |= 1 << column
}

func (d *record) take(r *row) {
	e := r.entry
	d.name, d.sum, d.extra, d.has, d.v = d.name[:0], append(d.sum[:0], e.Digest.Sum...), d.extra[:0], 0, [columns]int64{}
	if r.dir != "" {
		d.name = append(append(d.name, r.dir...), '/')
	}
	d.name = append(d.name, r.base...)
	if d.how = (how{bits: uint16(e.Kind)}); r.implied {
		d.how.bits |= howImplied
		return
	}
	d.how = how{mode: uint32(e.Mode), owner: e.Owner, group: e.Group, algo: e.Digest.Algo, sumLen: uint8(len(e.Digest.Sum)), bits: d.how.bits |
		bit(r.whole, howWhole) | bit(e.HasMode, howMode) | bit(!e.ModTime.IsZero(), howTime) | bit(r.elsewhere, howElsewhere) |
		bit(e.Fault != nil, howFault) | bit(r.same, howProven)}
	if d.set(colSize, e.Size); !e.ModTime.IsZero() {
		d.set(colSec, e.ModTime.Unix())
		d.set(colNano, int64(e.ModTime.Nanosecond()))
	}
	if d.set(colRank, r.rank); r.proofs > 0 {
		d.set(colFirst, r.proof)
	}
	rare := bit(e.Link != "", hasLink) | bit(len(e.Attr) > 0, hasAttr) | bit(e.Fault != nil, hasFault) | bit(e.Internal, isInternal)
	if x, volume, ok := d.run(r); ok {
		d.how.bits |= howPlaced
		d.how.volume, d.how.codec = volume, x.Codec
		if d.set(colOff, x.Off); x.Codec != codec.Raw {
			d.set(colStored, x.Len)
			d.set(colSkip, x.Skip)
			d.how.bits |= howCoded
			if x.Unit == e.Size {
				d.how.bits |= howFilled
			} else {
				d.set(colUnit, x.Unit)
			}
		}
	} else {
		rare |= bit(len(r.extents) > 0 && !r.elsewhere, hasExtents)
	}
	if rare != 0 {
		d.extra = appendRare(append(d.extra, byte(rare)), e, byte(rare))
		if rare&hasExtents != 0 {
			d.extra = append(d.extra, r.extents...)
		}
	}
}

// run returns the content of a row if it is one run that columns have room for.
func (d *record) run(r *row) (x format.Extent, volume int, ok bool) {
	if r.one {
		return format.Extent{Size: r.entry.Size, Off: r.off, Len: r.entry.Size}, r.volume, true
	}
	if r.elsewhere || len(r.extents) == 0 {
		return x, 0, false
	}
	d.xs, d.volumes = d.xs[:0], d.volumes[:0]
	err := decodeExtents(r.extents, func(x format.Extent, volume int) {
		d.xs, d.volumes = append(d.xs, x), append(d.volumes, volume)
	})
	if err != nil || len(d.xs) != 1 {
		return x, 0, false
	}
	x = d.xs[0]
	return x, d.volumes[0], isPlain(&x, r.entry.Size) || x.Codec != codec.Inline && x.Codec != codec.Raw && x.At == 0 && x.Size == r.entry.Size
}

// append appends a record in the form in which it is sorted.
func (d *record) append(b []byte) []byte {
	d.hows = appendHow(d.hows[:0], &d.how)
	b = binary.AppendUvarint(scan.AppendText(b, string(d.hows)), uint64(d.has))
	for k := range columns {
		if d.has>>k&1 != 0 {
			b = binary.AppendVarint(b, d.v[k])
		}
	}
	return append(scan.AppendText(scan.AppendText(b, string(d.name)), string(d.sum)), d.extra...)
}

// read reads what append appended.
func (d *record) read(b []byte) error {
	c := &scan.Scanner{B: b}
	if hows := c.Text(); !bytes.Equal(hows, d.hows) {
		d.hows = append(d.hows[:0], hows...)
		d.how = parseHow(&scan.Scanner{B: d.hows}, math.MaxInt32)
	}
	d.has = uint16(c.Uvarint())
	for k := range columns {
		if d.v[k] = 0; d.has>>k&1 != 0 {
			d.v[k] = c.Varint()
		}
	}
	d.name, d.sum = c.Text(), c.Text()
	if c.Bad {
		return errRow
	}
	d.extra = b[c.At:]
	return nil
}

// rowPages writes rows into pages.
type rowPages struct {
	w            *binder
	chunk        int64
	first        []byte // key of the first row of the page
	number, from int64
	hows         []how
	last         int // the how of the row before
	ends, blocks []byte
	sums         []byte // digests of rows
	names        int    // bytes of names in the page
	refs         []ref

	// The block that is not in blocks yet.
	n      int
	head   []byte // what it begins with
	name   []byte // of the row before
	texts  []byte
	extras []byte
	cols   [columns][blockRows]int64
	has    [columns]uint64 // a bit for each row that has a number
	stored [blockRows]int64
	pieces [blockRows]int64
}

// add adds a row. first is greater than the keys of all rows before it, and not greater than its
// own key.
func (w *rowPages) add(d *record, first []byte) error {
	if w.number == w.from {
		w.first = slices.Clone(first)
	}
	w.append(d)
	if len(w.texts)+len(w.extras)+len(w.sums) >= pageLong || w.names >= pageNames || w.number-w.from == pageRows ||
		w.n == 0 && len(w.blocks)*3/4+len(w.sums) >= pageStored {
		return w.flush()
	}
	return nil
}

// append appends a row to the page.
func (w *rowPages) append(d *record) {
	if w.number == w.from {
		w.hows, w.last = w.hows[:0], 0
	}
	if w.last >= len(w.hows) || w.hows[w.last] != d.how {
		if w.last = slices.Index(w.hows, d.how); w.last < 0 {
			w.last = len(w.hows)
			w.hows = append(w.hows, d.how)
		}
	}
	d.set(colHow, int64(w.last))
	d.set(colExtra, int64(len(d.extra)))
	if w.n == 0 {
		w.head = scan.AppendText(append(w.head[:0], byte(bit(d.how.is(howWhole), 1))), string(d.name))
		w.head = binary.AppendUvarint(w.head, uint64(len(w.sums)))
	} else {
		k := sorter.SharedLen(w.name, d.name)
		d.set(colShared, int64(k))
		d.set(colRest, int64(len(d.name)-k))
		w.texts = append(w.texts, d.name[k:]...)
	}
	for k := range columns {
		if d.has>>k&1 != 0 {
			w.cols[k][w.n] = d.v[k]
			w.has[k] |= 1 << w.n
		}
	}
	if w.stored[w.n] = d.v[colSize]; d.how.is(howCoded) {
		w.stored[w.n] = d.v[colStored]
	}
	w.pieces[w.n] = pieces(d.how.kind(), d.v[colSize], w.chunk)
	w.name, w.extras, w.sums = append(w.name[:0], d.name...), append(w.extras, d.extra...), append(w.sums, d.sum...)
	w.number++
	w.names += len(d.name)
	if w.n++; w.n == blockRows {
		w.flushBlock()
	}
}

// flushBlock appends the block to the page.
func (w *rowPages) flushBlock() {
	var ones [blockRows]int64
	for i := range ones {
		ones[i] = 1
	}
	steps := [columns]*[blockRows]int64{colOff: &w.stored, colSkip: &w.cols[colSize], colRank: &ones, colFirst: &w.pieces}
	mask := uint16(0)
	var heads, data []byte
	for i := range w.cols {
		k := len(heads)
		if heads, data = appendColumn(heads, data, w.cols[i][:w.n], w.has[i], steps[i]); len(heads) > k {
			mask |= 1 << i
		}
	}
	b := binary.AppendUvarint(w.head, uint64(len(w.texts)))
	b = binary.LittleEndian.AppendUint16(b, mask)
	w.blocks = slices.Concat(w.blocks, b, heads, data, w.texts, w.extras)
	w.ends = binary.LittleEndian.AppendUint32(w.ends, uint32(len(w.blocks)))
	w.n, w.texts, w.extras = 0, w.texts[:0], w.extras[:0]
	w.has = [columns]uint64{}
}

// appendColumn appends a column to heads and data, unless all its numbers are 0. has are the rows
// that have a number. With steps, numbers may be relative to the number before plus its step.
func appendColumn(heads, data []byte, v []int64, has uint64, steps *[blockRows]int64) ([]byte, []byte) {
	if has == 0 {
		return heads, data
	}
	first := bits.TrailingZeros64(has)
	var d [blockRows]int64
	least, width := span(v, has)
	copy(d[:], v)
	head, start := byte(width), int64(0)
	if rest := has &^ (1 << first); steps != nil && width > 0 && rest != 0 {
		var c [blockRows]int64
		next := int64(0)
		for i := range v {
			if has>>i&1 != 0 {
				c[i] = v[i] - next
				next = v[i] + steps[i]
			}
		}
		if l, n := span(c[:len(v)], rest); n < width {
			d, least, width, start = c, l, n, v[first]-l
			d[first] = l
			head = byte(n) | isChained
		}
	}
	if head == 0 && least == 0 {
		return heads, data
	}
	if heads = binary.AppendVarint(append(heads, head), least); head&isChained != 0 {
		heads = binary.AppendVarint(heads, start)
	}
	for i := range v {
		n := uint64(0)
		if has>>i&1 != 0 {
			n = uint64(d[i]) - uint64(least)
		}
		for k := range width {
			data = append(data, byte(n>>(8*k)))
		}
	}
	return heads, data
}

// span returns the least of the numbers that has has, and in how many bytes the difference to it
// has room.
func span(v []int64, has uint64) (least int64, width int) {
	least, most := int64(math.MaxInt64), int64(math.MinInt64)
	for i := range v {
		if has>>i&1 != 0 {
			least, most = min(least, v[i]), max(most, v[i])
		}
	}
	return least, (bits.Len64(uint64(most)-uint64(least)) + 7) / 8
}

// encoded returns the page of the rows that were added, and begins another one.
func (w *rowPages) encoded() []byte {
	if w.n > 0 {
		w.flushBlock()
	}
	b := binary.AppendUvarint(nil, uint64(w.number-w.from))
	b = binary.AppendUvarint(b, uint64(len(w.hows)))
	for i := range w.hows {
		b = appendHow(b, &w.hows[i])
	}
	b = slices.Concat(b, w.ends, w.blocks, w.sums)
	w.ends, w.blocks, w.sums, w.names, w.from = w.ends[:0], w.blocks[:0], w.sums[:0], 0, w.number
	return b
}

func (w *rowPages) flush() error {
	from := w.from
	if w.number == from {
		return nil
	}
	b := w.encoded()
	ref, err := w.w.page(b, w.first, from, w.number-from, false)
	w.refs = append(w.refs, ref)
	return err
}
