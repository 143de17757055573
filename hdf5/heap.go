package hdf5

import (
	"bytes"
	"math/bits"
	"slices"
)

// A localHeap has the names of an old group.
type localHeap struct {
	b    []byte
	room int // bytes that names may still have: they do not share any
}

// localHeap reads one: "HEAP", version, 3 reserved, bytes of its data, a length, and
// the address of the data.
func (w *wave) localHeap(at int64) (*localHeap, error) {
	h, err := w.parseLocalHeap(at)
	return h, w.f.place("local heap", at, err)
}

func (w *wave) parseLocalHeap(at int64) (*localHeap, error) {
	n := int64(8 + 2*w.f.lengths + w.f.offsets)
	b, err := w.read(at, n)
	if err != nil {
		return nil, err
	}
	c := w.f.cursor(b)
	if err := c.sign("HEAP", 0); err != nil {
		return nil, err
	}
	c.skip(3)
	size := c.length()
	c.skip(int64(w.f.lengths))
	data := c.addr()
	w.saw("local heap", at, n)
	if b, err = w.read(data, size); err != nil {
		return nil, err
	}
	w.saw("local heap", data, size)
	return &localHeap{b, len(b)}, nil
}

// text is the string at a place, which a zero ends.
func (h *localHeap) text(at int64) (string, error) {
	if at < 0 || at >= int64(len(h.b)) {
		return "", corrupt("a name at %d is not in a local heap of %d bytes", at, len(h.b))
	}
	s, _, ok := bytes.Cut(h.b[at:], []byte{0})
	if !ok {
		return "", corrupt("a name at %d in a local heap has no end", at)
	}
	if h.room -= len(s); h.room < 0 {
		return "", corrupt("names take more than the %d bytes of their local heap", len(h.b))
	}
	return string(s), nil
}

// A fractalHeap has links and attributes of new groups, found by IDs. Its space is
// made of blocks, which a table has in rows: those of the first two are of the
// smallest size, those of each further row are twice as large as those before. Blocks
// up to maxDirect have objects, larger ones are tables.
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
	offsetSize int // bytes of a place in the heap, in IDs and blocks
	lengthSize int // bytes of an object's length, in IDs
	root       int64
	rows       int   // of the root; 0 if it is a direct block
	room       int64 // bytes that objects may still have: they do not share any
	tables     map[int64][]int64
	huge       map[uint64]span
}

func (w *wave) fractalHeap(at int64) (*fractalHeap, error) {
	h, err := w.parseFractalHeap(at)
	return h, w.f.place("fractal heap", at, err)
}

func (w *wave) parseFractalHeap(at int64) (*fractalHeap, error) {
	f := w.f
	n := int64(26 + 12*f.lengths + 3*f.offsets)
	b, err := w.read(at, n)
	if err != nil {
		return nil, err
	}
	w.saw("fractal heap", at, n)
	c := f.cursor(b)
	if err := c.sign("FRHP", 0); err != nil {
		return nil, err
	}
	h := &fractalHeap{w: w, at: at, tables: map[int64][]int64{}, idSize: int(c.u16()), room: f.size}
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

// blockSize is how large blocks of a row are.
func (h *fractalHeap) blockSize(row int) int64 {
	if row = max(row, 1); row-1 > 62-bits.Len64(uint64(h.start)) {
		return 1 << 62
	}
	return h.start << (row - 1)
}

// A block is where a heap's object lies.
type block struct{ at, off, size int64 }

// find says which direct block has the byte at a place in the heap, or which table has
// to be read first.
func (h *fractalHeap) find(off int64) (b block, table span, err error) {
	if h.rows == 0 {
		if off >= h.start {
			return b, table, corrupt("byte %d is not in a heap of %d bytes", off, h.start)
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
			return b, table, corrupt("byte %d is not in a heap of %d rows", off, h.rows)
		}
		column := (off - from) / size
		i := int64(row)*h.width + column
		if i >= int64(len(entries)) {
			return b, table, corrupt("byte %d is not in the heap", off)
		}
		from += column * size
		if at = entries[i]; size <= h.maxDirect {
			return block{at, from, size}, table, nil
		}
		rows = bits.Len64(uint64(size)) - bits.Len64(uint64(h.start*h.width)) + 1
	}
	return b, table, corrupt("tables are nested too deep")
}

// tableSize is how many bytes an indirect block of so many rows has: "FHIB", version,
// address of the heap, its own place in it, the addresses of all blocks, sum.
func (h *fractalHeap) tableSize(rows int) int64 {
	o := int64(h.w.f.offsets)
	return 9 + o + int64(h.offsetSize) + int64(rows)*h.width*o
}

// readTables reads indirect blocks. A damaged one has no entries.
func (h *fractalHeap) readTables(want []span, broken func(error) error) error {
	all, err := h.w.readAll(want)
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
		return corrupt("it is of a heap at byte %d", heap)
	}
	c.skip(int64(h.offsetSize))
	entries := []int64{}
	for c.left() >= h.w.f.offsets+4 {
		entries = append(entries, c.addr())
	}
	h.tables[at] = entries
	return nil
}

// direct checks a direct block: "FHDB", version, address of the heap, its place in it,
// and a checksum, if the heap has some, of the block without it.
func (h *fractalHeap) direct(x block, b []byte) error {
	h.w.saw("fractal heap", x.at, x.size)
	c := h.w.f.cursor(b)
	if err := c.sign("FHDB", 0); err != nil {
		return err
	}
	if heap := c.addr(); heap != h.at {
		return corrupt("it is of a heap at byte %d", heap)
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

// objects calls do with the bytes of the objects that IDs name, in their order. What
// a damaged block has is given to broken.
func (h *fractalHeap) objects(ids [][]byte, do func(i int, b []byte) error, broken func(error) error) error {
	const atOnce = 1 << 12
	for from := 0; from < len(ids); from += atOnce {
		if err := h.some(ids[from:min(from+atOnce, len(ids))], func(i int, b []byte) error { return do(from+i, b) }, broken); err != nil {
			return err
		}
	}
	return nil
}

func (h *fractalHeap) some(ids [][]byte, do func(i int, b []byte) error, broken func(error) error) error {
	where := make([]span, len(ids)) // in the heap, or in the file where huge
	huge := make([]bool, len(ids))
	tiny := make([][]byte, len(ids))
	for i, id := range ids {
		c := h.w.f.cursor(id)
		switch head := c.u8(); head >> 4 {
		case 0:
			where[i] = span{c.size(h.offsetSize), c.size(h.lengthSize)}
		case 1:
			s, err := h.hugeAt(c)
			if err != nil {
				if err := broken(h.w.f.place("huge object of a fractal heap", h.at, err)); err != nil {
					return err
				}
				s.off = -1
			}
			where[i], huge[i] = s, true
		case 2:
			n := int64(head&15) + 1
			if h.idSize > 17 {
				n = int64(head&15)<<8 + int64(c.u8()) + 1
			}
			if tiny[i] = c.take(n); tiny[i] == nil {
				tiny[i] = []byte{}
			}
		default:
			if err := broken(h.w.f.place("fractal heap", h.at, corrupt("expected an ID of an object, found %x", id))); err != nil {
				return err
			}
			where[i].off = -1
		}
	}
	blocks, err := h.blocks(where, huge, tiny, broken)
	if err != nil {
		return err
	}
	// All that has to be read, each block once.
	index := map[span]int{}
	var want []span
	for i, x := range blocks {
		s := span{x.at, x.size}
		if _, ok := index[s]; ok || x.at < 0 {
			continue
		}
		if err := h.w.f.holds(s); err != nil {
			if err := broken(h.w.f.place("fractal heap's block", x.at, err)); err != nil {
				return err
			}
			blocks[i].at = -1
			continue
		}
		index[s] = len(want)
		want = append(want, s)
	}
	read, err := h.w.readAll(want)
	if err != nil {
		return err
	}
	checked := map[int64]error{}
	for i, x := range blocks {
		b := tiny[i]
		if b == nil {
			if x.at < 0 {
				continue
			}
			b = read[index[span{x.at, x.size}]]
			if !huge[i] {
				err, known := checked[x.at]
				if !known {
					err = h.w.f.place("fractal heap's block", x.at, h.direct(x, b))
					checked[x.at] = err
				}
				s := where[i]
				if err == nil && (s.off < x.off || s.n > x.size || s.off-x.off > x.size-s.n) {
					err = h.w.f.place("fractal heap's block", x.at, corrupt("%d bytes at %d are not in it", s.n, s.off-x.off))
				}
				if err != nil {
					if err := broken(err); err != nil {
						return err
					}
					continue
				}
				b = b[s.off-x.off:][:s.n]
			} else {
				h.w.saw("huge object of a fractal heap", x.at, x.size)
			}
		}
		if h.room -= int64(len(b)); h.room < 0 {
			return h.w.f.place("fractal heap", h.at, corrupt("its objects take more than the file"))
		}
		if err := do(i, b); err != nil {
			return err
		}
	}
	return nil
}

// blocks finds out in which blocks objects lie. It reads tables as it meets them, those
// of a level at once.
func (h *fractalHeap) blocks(where []span, huge []bool, tiny [][]byte, broken func(error) error) ([]block, error) {
	out := make([]block, len(where))
	done := make([]bool, len(where))
	for {
		var want []span
		asked := map[int64]bool{}
		for i, s := range where {
			switch {
			case done[i]:
				continue
			case tiny[i] != nil || s.off < 0:
				out[i].at, done[i] = -1, true
				continue
			case huge[i]:
				out[i], done[i] = block{s.off, 0, s.n}, true
				continue
			}
			x, table, err := h.find(s.off)
			if err == nil && table.n > 0 {
				if err = h.w.f.holds(table); err == nil {
					if !asked[table.off] {
						asked[table.off], want = true, append(want, table)
					}
					continue
				}
			}
			if done[i], out[i] = true, x; err != nil {
				if err := broken(h.w.f.place("fractal heap", h.at, err)); err != nil {
					return nil, err
				}
				out[i].at = -1
			}
		}
		if len(want) == 0 {
			return out, nil
		}
		if err := h.readTables(want, broken); err != nil {
			return nil, err
		}
	}
}

// hugeAt says where a huge object is: its ID says so, or has a number that a B-tree
// knows.
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

// dense calls do with each record of a B-tree, of links or attributes, and the object of
// the heap that it names by an ID at some place. It goes on after what is damaged, and
// returns that.
func (w *wave) dense(heap, tree int64, kind byte, idAt int, do func(rec, b []byte) error) error {
	var h *fractalHeap
	var t *tree2
	var heapErr, treeErr error
	w.together(
		func() { h, heapErr = w.fractalHeap(heap) },
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
		return w.f.place("B-tree header", tree, corrupt("an ID of %d bytes is not in records of %d", h.idSize, t.recordSize))
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
		return nil
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
