package hdf5

import (
	"cmp"
	"maps"
	"math/bits"
	"slices"
)

// fractalHeap has the links and attributes of new groups, which are found by IDs. Its space
// consists of blocks in the rows of a table. The blocks of the first two rows have the smallest
// size, and those of each further row twice the size of the row before. Blocks up to maxDirect
// contain objects; larger ones are tables.
//
//	"FRHP", version, bytes of an ID (u16), bytes of filters (u16), flags, largest object
//	(u32), next huge ID (length), B-tree of huge objects (address), free space (length
//	and address), four sizes and counts of objects (lengths), two of huge ones and two
//	of tiny ones; width (u16), smallest block, largest direct block (lengths), bits of
//	the heap's size (u16), rows at first (u16), root (address), rows of the root (u16),
//	sum
type fractalHeap struct {
	w          *wave
	at         int64
	idSize     int
	checked    bool // direct blocks have checksums
	hugeTree   int64
	width      int64
	start      int64
	maxDirect  int64
	offsetSize int // bytes of an offset in the heap, in IDs and blocks
	lengthSize int // bytes of the size of an object, in IDs
	root       int64
	rows       int   // of the root; 0 if it is a direct block
	room       int64 // bytes left for further objects, which share none
	tables     map[int64][]int64
	huge       map[uint64]span
	lead       int // see wish
}

// inHeap is the least number of objects that the links of a heap usually lead to.
const inHeap = 8

func (w *wave) fractalHeap(at int64, lead int) (*fractalHeap, error) {
	h, err := w.parseFractalHeap(at, lead)
	return h, w.f.place("fractal heap", at, err)
}

func (w *wave) parseFractalHeap(at int64, lead int) (*fractalHeap, error) {
	f := w.f
	n := int64(26 + 12*f.lengths + 3*f.offsets)
	b, err := w.readLeading(span{at, n}, lead)
	if err != nil {
		return nil, err
	}
	w.saw("fractal heap", at, n)
	c := f.cursor(b)
	if err := c.sign("FRHP", 0); err != nil {
		return nil, err
	}
	h := &fractalHeap{w: w, at: at, lead: lead, tables: map[int64][]int64{}, idSize: int(c.u16()), room: f.size}
	if c.u16() != 0 {
		return nil, unsupported("heaps that are filtered are not supported")
	}
	if _, err := summed(b); err != nil {
		return nil, err
	}
	h.checked = c.u8()&2 != 0
	largest := uint64(c.u32())
	c.skip(int64(f.lengths))
	h.hugeTree = c.addr()
	c.skip(9*int64(f.lengths) + int64(f.offsets))
	h.width, h.start, h.maxDirect = int64(c.u16()), c.length(), c.length()
	size := int(c.u16())
	c.skip(2)
	h.root, h.rows = c.addr(), int(c.u16())
	if err := c.err(); err != nil {
		return nil, err
	}
	power := func(n int64) bool { return n > 0 && n&(n-1) == 0 }
	if !power(h.width) || !power(h.start) || !power(h.maxDirect) || h.maxDirect < h.start || h.maxDirect > 1<<30 || size == 0 || size > 64 || h.rows > 64 || h.idSize < 2 {
		return nil, corrupt("expected a table of blocks, found width %d, blocks of %d to %d bytes, %d bits and %d rows", h.width, h.start, h.maxDirect, size, h.rows)
	}
	h.offsetSize = (size + 7) / 8
	h.lengthSize = min((bits.Len64(uint64(h.maxDirect))+6)/8, encodedSize(largest))
	return h, nil
}

// blockSize returns the size of the blocks of a row.
func (h *fractalHeap) blockSize(row int) int64 {
	if row = max(row, 1); row-1 > 62-bits.Len64(uint64(h.start)) {
		return 1 << 62
	}
	return h.start << (row - 1)
}

// block is where an object of a heap is stored.
type block struct{ at, off, size int64 }

// find returns the direct block with the byte at an offset in the heap, or the table that must be
// read first.
func (h *fractalHeap) find(off int64) (b block, table span, err error) {
	if h.rows == 0 {
		if off >= h.start {
			return b, table, corrupt("byte %d is outside a heap of %d bytes", off, h.start)
		}
		return block{h.root, 0, h.start}, table, nil
	}
	at, rows, from := h.root, h.rows, int64(0)
	for range 64 {
		entries, known := h.tables[at]
		if !known {
			return b, span{at, h.tableSize(rows)}, nil
		}
		row, size := 0, int64(0)
		for ; row < rows; row++ {
			if size = h.blockSize(row); size > 1<<62/h.width || off-from < size*h.width {
				break
			}
			from += size * h.width
		}
		if row >= rows {
			return b, table, corrupt("byte %d is outside a heap of %d rows", off, h.rows)
		}
		column := (off - from) / size
		i := int64(row)*h.width + column
		if i >= int64(len(entries)) {
			return b, table, corrupt("byte %d is outside the heap", off)
		}
		from += column * size
		if at = entries[i]; size <= h.maxDirect {
			return block{at, from, size}, table, nil
		}
		rows = bits.Len64(uint64(size)) - bits.Len64(uint64(h.start*h.width)) + 1
	}
	return b, table, corrupt("tables are nested too deep")
}

// tableSize returns the size of an indirect block with that many rows: "FHIB", version, address
// of the heap, its own offset in it, the addresses of all blocks, sum.
func (h *fractalHeap) tableSize(rows int) int64 {
	o := int64(h.w.f.offsets)
	return 9 + o + int64(h.offsetSize) + int64(rows)*h.width*o
}

// readTables reads indirect blocks. A damaged one has no entries.
func (h *fractalHeap) readTables(want []span, broken func(error) error) error {
	all, err := h.w.readAll(want, 0)
	if err != nil {
		return err
	}
	for i, b := range all {
		if err := h.table(want[i].off, b); err != nil {
			h.tables[want[i].off] = []int64{}
			if err := broken(h.w.f.place("fractal heap's table", want[i].off, err)); err != nil {
				return err
			}
		}
	}
	return nil
}

func (h *fractalHeap) table(at int64, b []byte) error {
	h.w.saw("fractal heap", at, int64(len(b)))
	c := h.w.f.cursor(b)
	if err := c.sign("FHIB", 0); err != nil {
		return err
	}
	if _, err := summed(b); err != nil {
		return err
	}
	if heap := c.addr(); heap != h.at {
		return corrupt("it belongs to a heap at byte %d", heap)
	}
	c.skip(int64(h.offsetSize))
	entries := []int64{}
	for c.left() >= h.w.f.offsets+4 {
		entries = append(entries, c.addr())
	}
	h.tables[at] = entries
	return nil
}

// direct checks a direct block: "FHDB", version, address of the heap, its offset in it, and, if
// the heap has checksums, that of the block without it.
func (h *fractalHeap) direct(x block, b []byte) error {
	h.w.saw("fractal heap", x.at, x.size)
	c := h.w.f.cursor(b)
	if err := c.sign("FHDB", 0); err != nil {
		return err
	}
	if heap := c.addr(); heap != h.at {
		return corrupt("it belongs to a heap at byte %d", heap)
	}
	c.skip(int64(h.offsetSize))
	if !h.checked {
		return c.err()
	}
	from := c.at
	want := c.u32()
	if err := c.err(); err != nil {
		return err
	}
	b = slices.Clone(b)
	clear(b[from : from+4])
	if got := lookup3(b); got != want {
		return badSum(want, got)
	}
	return nil
}

// objects calls do with the bytes of the objects of the given IDs, in order. It calls broken for
// objects in damaged blocks.
func (h *fractalHeap) objects(ids [][]byte, do func(i int, b []byte) error, broken func(error) error) error {
	const atOnce = 1 << 12
	for from := 0; from < len(ids); from += atOnce {
		if err := h.some(ids[from:min(from+atOnce, len(ids))], func(i int, b []byte) error { return do(from+i, b) }, broken); err != nil {
			return err
		}
	}
	return nil
}

// item is an object to be read.
type item struct {
	in     span   // its place in the heap, and later in its block
	block  block  // the block that contains it
	b      []byte // its bytes
	inHeap bool   // neither huge nor tiny
	found  bool   // its block is known, or it is lost
	lost   bool
}

func (h *fractalHeap) some(ids [][]byte, do func(i int, b []byte) error, broken func(error) error) error {
	items := make([]item, len(ids))
	lose := func(x *item, what string, at int64, err error) error {
		x.found, x.lost = true, true
		return broken(h.w.f.place(what, at, err))
	}
	for i, id := range ids {
		if err := h.item(&items[i], id); err != nil {
			if err := lose(&items[i], "object of a fractal heap", h.at, err); err != nil {
				return err
			}
		}
	}
	if err := h.findBlocks(items, lose, broken); err != nil {
		return err
	}
	// Each block is read once.
	index := map[span]int{}
	var want []span
	for i := range items {
		x := &items[i]
		s := span{x.block.at, x.block.size}
		if _, ok := index[s]; ok || x.lost || x.b != nil {
			continue
		}
		if err := h.w.f.holds(s); err != nil {
			if err := lose(x, "fractal heap's block", s.off, err); err != nil {
				return err
			}
			continue
		}
		index[s] = len(want)
		want = append(want, s)
	}
	read, err := h.w.readAll(want, h.lead)
	if err != nil {
		return err
	}
	checked := map[int64]error{}
	for i := range items {
		x := &items[i]
		if x.lost {
			continue
		}
		if x.b == nil {
			b := read[index[span{x.block.at, x.block.size}]]
			err, known := checked[x.block.at]
			if x.inHeap && !known {
				err = h.direct(x.block, b)
				checked[x.block.at] = err
			}
			if err == nil && (x.in.off < 0 || x.in.n > x.block.size || x.in.off > x.block.size-x.in.n) {
				err = corrupt("%d bytes at %d are outside it", x.in.n, x.in.off)
			}
			if err != nil {
				if err := lose(x, "fractal heap's block", x.block.at, err); err != nil {
					return err
				}
				continue
			}
			if x.b = b[x.in.off:][:x.in.n]; !x.inHeap {
				h.w.saw("huge object of a fractal heap", x.block.at, x.block.size)
			}
		}
		if h.room -= int64(len(x.b)); h.room < 0 {
			return h.w.f.place("fractal heap", h.at, corrupt("its objects are larger than the file"))
		}
		if err := do(i, x.b); err != nil {
			return err
		}
	}
	return nil
}

// item parses an ID. Its upper four bits are a version, which is 0, and say whether the object is
// in the heap, elsewhere in the file, or in the ID.
func (h *fractalHeap) item(x *item, id []byte) (err error) {
	c := h.w.f.cursor(id)
	switch head := c.u8(); head >> 4 {
	case 0:
		x.in, x.inHeap = span{c.size(h.offsetSize), c.size(h.lengthSize)}, true
	case 1:
		var s span
		s, err = h.hugeAt(c)
		x.in, x.block, x.found = span{0, s.n}, block{s.off, 0, s.n}, true
	case 2:
		n := int64(head&15) + 1
		if h.idSize > 17 {
			n = int64(head&15)<<8 + int64(c.u8()) + 1
		}
		x.b, x.found = c.take(n), true
	default:
		return corrupt("expected an ID, found %x", id)
	}
	return cmp.Or(err, c.err())
}

// findBlocks finds the blocks that contain objects. It reads the tables on the way, all of a
// level at the same time.
func (h *fractalHeap) findBlocks(items []item, lose func(x *item, what string, at int64, err error) error, broken func(error) error) error {
	for {
		tables := map[int64]span{}
		for i := range items {
			x := &items[i]
			if x.found {
				continue
			}
			b, table, err := h.find(x.in.off)
			if err == nil && table.n > 0 {
				if err = h.w.f.holds(table); err == nil {
					tables[table.off] = table
					continue
				}
			}
			x.block, x.found = b, true
			x.in.off -= b.off
			if err != nil {
				if err := lose(x, "fractal heap", h.at, err); err != nil {
					return err
				}
			}
		}
		if len(tables) == 0 {
			return nil
		}
		if err := h.readTables(slices.Collect(maps.Values(tables)), broken); err != nil {
			return err
		}
	}
}

// hugeAt returns where a huge object is. Its ID contains that, or the key of a B-tree.
func (h *fractalHeap) hugeAt(c *cursor) (span, error) {
	f := h.w.f
	if f.offsets+f.lengths <= h.idSize-1 {
		s := span{c.addr(), c.length()}
		return s, c.err()
	}
	if h.huge == nil {
		h.huge = map[uint64]span{}
		t, err := h.w.tree2(h.hugeTree, treeHugeByID)
		if err != nil {
			return span{}, err
		}
		t.record = func(rec []byte) error {
			r := f.cursor(rec)
			s := span{r.addr(), r.length()}
			h.huge[r.uint(f.lengths)] = s
			return r.err()
		}
		if err := t.walk(); err != nil {
			return span{}, err
		}
	}
	id := c.uint(min(8, h.idSize-1))
	s, ok := h.huge[id]
	if !ok {
		return s, corrupt("huge object %d is not in the B-tree", id)
	}
	return s, nil
}

// dense calls do with each record of a B-tree of links or attributes, and with the object of the
// heap whose ID is at idAt in the record. It continues after damage, and returns the error.
func (w *wave) dense(heap, tree int64, kind byte, idAt int, do func(rec, b []byte) error) error {
	var h *fractalHeap
	var t *tree2
	var heapErr, treeErr error
	lead := 0
	if kind == treeLinkNames {
		lead = inHeap
	}
	w.together(
		func() { h, heapErr = w.fractalHeap(heap, lead) },
		func() { t, treeErr = w.tree2(tree, kind) },
	)
	if heapErr != nil {
		return heapErr
	}
	if treeErr != nil {
		return treeErr
	}
	var first error
	broken := func(err error) error {
		if first == nil {
			first = err
		}
		return nil
	}
	if idAt+h.idSize > t.recordSize {
		return w.f.place("B-tree header", tree, corrupt("an ID of %d bytes does not fit into records of %d", h.idSize, t.recordSize))
	}
	var records, ids [][]byte
	t.record = func(rec []byte) error {
		id := rec[idAt : idAt+h.idSize]
		if kind == treeAttrNames && len(rec) > 8 && rec[8]&flagShared != 0 {
			b, err := w.sharedInHeap(msgAttribute, id)
			if err != nil {
				return err
			}
			return do(rec, b)
		}
		records, ids = append(records, rec), append(ids, id)
		return w.spend(&w.room.records, 1, "links and attributes")
	}
	t.broken = broken
	if err := t.walk(); err != nil {
		return err
	}
	if err := h.objects(ids, func(i int, b []byte) error { return do(records[i], b) }, broken); err != nil {
		return err
	}
	return first
}
