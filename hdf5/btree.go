package hdf5

import (
	"slices"
)

// tree1 walks a version 1 B-tree:
//
//	"TREE", kind, level, entries (u16), two siblings (addresses), key, child, key, …, key
//
// It reads level by level, several hundred nodes at a time. A tree cannot have more bytes than
// its file, so the walk ends even if a tree refers to itself.
type tree1 struct {
	w       *wave
	kind    byte
	keySize int
	k       int
	leaf    func(key []byte, child int64) error
	outside func(from, to []byte) bool // reports whether nothing between two keys is needed; may be nil
	broken  func(error) error          // decides whether to continue after a damaged node
	room    int64
}

func (t *tree1) walk(root int64) error {
	t.room = t.w.f.size
	if t.broken == nil {
		t.broken = func(err error) error { return err }
	}
	return t.level([]int64{root}, -1)
}

// level walks the nodes of a level, which is -1 if it is not known yet.
func (t *tree1) level(nodes []int64, level int) error {
	f := t.w.f
	head := 8 + 2*f.offsets
	size := int64(head + (2*t.k+1)*t.keySize + 2*t.k*f.offsets)
	guess := min(size, 64<<10)
	lead := 0
	switch {
	case t.kind == 0:
		lead = inSymbolNode
	case level == 0:
		lead = -1
	}
	for batch := range slices.Chunk(nodes, nodesAtOnce) {
		want := make([]span, len(batch))
		for i, at := range batch {
			want[i] = span{at, max(int64(head), min(guess, f.size-at))}
			t.room -= want[i].n
		}
		if t.room < 0 {
			return corrupt("a B-tree has more nodes than fit into the file")
		}
		var below []int64
		next := level
		err := t.w.structures("B-tree node", want, lead, t.broken, func(i int, b []byte) error {
			n := level
			children, err := t.node(want[i].off, b, size, &n)
			if err == nil {
				below, next = append(below, children...), n
			}
			return err
		})
		if err == nil && len(below) > 0 {
			err = t.level(below, next-1)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// node parses a node that begins with b, and returns its children if these are nodes.
func (t *tree1) node(at int64, b []byte, size int64, level *int) (below []int64, err error) {
	f := t.w.f
	c := f.cursor(b)
	if s := c.take(4); string(s) != "TREE" {
		return nil, corrupt("expected \"TREE\", found %q", s)
	}
	kind, own, n := c.u8(), int(c.u8()), int(c.u16())
	switch {
	case kind != t.kind:
		return nil, corrupt("expected kind %d, found %d", t.kind, kind)
	case *level >= 0 && own != *level:
		return nil, corrupt("expected level %d, found %d", *level, own)
	case n > 2*t.k:
		return nil, corrupt("expected at most %d entries, found %d", 2*t.k, n)
	}
	*level = own
	c.skip(2 * int64(f.offsets))
	t.w.saw("B-tree node", at, min(size, f.size-at))
	if need := int64(c.at + (n+1)*t.keySize + n*f.offsets); need > int64(len(b)) {
		if c.b, err = t.w.read(at, need); err != nil {
			return nil, err
		}
	}
	key := c.take(int64(t.keySize))
	for range n {
		child := c.addr()
		after := c.take(int64(t.keySize))
		switch {
		case c.short:
			return nil, c.err()
		case own > 0 && t.outside != nil && t.outside(key, after):
		case own > 0:
			below = append(below, child)
		default:
			if err := t.leaf(key, child); err != nil {
				return nil, err
			}
		}
		key = after
	}
	return below, nil
}

// The types of version 2 B-trees, which determine the records.
const (
	treeHugeByID       = 1
	treeHugeDirect     = 3
	treeLinkNames      = 5
	treeAttrNames      = 8
	treeChunks         = 10
	treeFilteredChunks = 11
)

// tree2 walks a version 2 B-tree:
//
//	"BTHD", version, type, bytes of a node (u32), bytes of a record (u16), depth (u16),
//	two percentages, root (address), records of the root (u16), all records (length), sum
//	"BTIN", version, type, records, for each child: address, records, and all records
//	below it if it is not a leaf; sum
//	"BTLF", version, type, records, sum
//
// The size of the counts follows from how many records a node can have.
type tree2 struct {
	w          *wave
	kind       byte
	nodeSize   int64
	recordSize int
	depth      int
	root       int64
	rootCount  int
	counts     []int // bytes of the number of all records below a node of a depth
	record     func(rec []byte) error
	// outside reports whether no record between two records is needed; either may be nil. It may
	// be nil itself.
	outside func(from, to []byte) bool
	broken  func(error) error
	room    int64
}

// node2 is the position of a node. The records on either side of it in its parent are limits for
// its records.
type node2 struct {
	at       int64
	count    int
	from, to []byte
}

func (w *wave) tree2(at int64, kind byte) (*tree2, error) {
	t, err := w.parseTree2(at, kind)
	return t, w.f.place("B-tree header", at, err)
}

func (w *wave) parseTree2(at int64, kind byte) (*tree2, error) {
	n := int64(22 + w.f.offsets + w.f.lengths)
	b, err := w.read(at, n)
	if err != nil {
		return nil, err
	}
	w.saw("B-tree header", at, n)
	c := w.f.cursor(b)
	if err := c.sign("BTHD", 0); err != nil {
		return nil, err
	}
	if _, err := summed(b); err != nil {
		return nil, err
	}
	if k := c.u8(); k != kind {
		return nil, corrupt("expected type %d, found %d", kind, k)
	}
	t := &tree2{w: w, kind: kind, nodeSize: int64(c.u32()), recordSize: int(c.u16()), depth: int(c.u16())}
	c.skip(2)
	t.root, t.rootCount = c.addr(), int(c.u16())
	if err := c.err(); err != nil {
		return nil, err
	}
	// A tree of this depth would have more records than any file.
	if t.depth > 40 || t.recordSize == 0 {
		return nil, corrupt("expected a tree of records, found depth %d and records of %d bytes", t.depth, t.recordSize)
	}
	most := (t.nodeSize - 10) / int64(t.recordSize)
	if most < 1 {
		return nil, corrupt("a record of %d bytes does not fit into a node of %d", t.recordSize, t.nodeSize)
	}
	all := uint64(most)
	t.counts = append(t.counts, encodedSize(all), 0)
	for depth := 1; depth <= t.depth; depth++ {
		pointer := int64(t.pointer(depth))
		most := (t.nodeSize - 10 - pointer) / (int64(t.recordSize) + pointer)
		if most < 1 {
			return nil, corrupt("no record fits into a node of %d bytes", t.nodeSize)
		}
		if all > 1<<56 {
			all = 1 << 63 // the count takes all eight bytes
		} else {
			all = uint64(most+1)*all + uint64(most)
		}
		t.counts = append(t.counts, encodedSize(all))
	}
	return t, nil
}

// pointer returns the size of a pointer to a child in a node of a depth.
func (t *tree2) pointer(depth int) int {
	return t.w.f.offsets + t.counts[0] + t.counts[depth]
}

func (t *tree2) walk() error {
	if t.root == undefined || t.rootCount == 0 {
		return nil
	}
	t.room = t.w.f.size
	if t.broken == nil {
		t.broken = func(err error) error { return err }
	}
	return t.level([]node2{{at: t.root, count: t.rootCount}}, t.depth)
}

func (t *tree2) level(nodes []node2, depth int) error {
	for batch := range slices.Chunk(nodes, nodesAtOnce) {
		want := make([]span, len(batch))
		for i, x := range batch {
			n := int64(10 + x.count*t.recordSize)
			if depth > 0 {
				n += int64((x.count + 1) * t.pointer(depth))
			}
			want[i] = span{x.at, n}
			t.room -= n
		}
		if t.room < 0 {
			return corrupt("a B-tree has more nodes than fit into the file")
		}
		var below []node2
		err := t.w.structures("B-tree node", want, 0, t.broken, func(i int, b []byte) error {
			children, err := t.node(batch[i], b, depth)
			below = append(below, children...)
			return err
		})
		if err == nil && len(below) > 0 {
			err = t.level(below, depth-1)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (t *tree2) node(x node2, b []byte, depth int) (below []node2, err error) {
	if int64(len(b)) > t.nodeSize {
		return nil, corrupt("%d records do not fit into a node of %d bytes", x.count, t.nodeSize)
	}
	t.w.saw("B-tree node", x.at, min(t.nodeSize, t.w.f.size-x.at))
	letters := "BTLF"
	if depth > 0 {
		letters = "BTIN"
	}
	c := t.w.f.cursor(b)
	if err := c.sign(letters, 0); err != nil {
		return nil, err
	}
	if _, err := summed(b); err != nil {
		return nil, err
	}
	if k := c.u8(); k != t.kind {
		return nil, corrupt("expected type %d, found %d", t.kind, k)
	}
	records := make([][]byte, x.count)
	for i := range records {
		records[i] = c.take(int64(t.recordSize))
	}
	if depth > 0 {
		from := x.from
		for i := range x.count + 1 {
			child := node2{at: c.addr(), count: int(c.uint(t.counts[0])), from: from, to: x.to}
			c.skip(int64(t.counts[depth]))
			if i < len(records) {
				child.to = records[i]
			}
			if from = child.to; t.outside == nil || !t.outside(child.from, child.to) {
				below = append(below, child)
			}
		}
	}
	if err := c.err(); err != nil {
		return nil, err
	}
	for _, rec := range records {
		if err := t.record(rec); err != nil {
			return nil, err
		}
	}
	return below, nil
}
