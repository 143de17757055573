package hdf5

import (
	"cmp"
	"slices"
)

// A LinkKind is the kind of a link.
type LinkKind uint8

// Kinds of links. Those from UserLink on are defined by programs.
const (
	HardLink     LinkKind = 0
	SoftLink     LinkKind = 1
	ExternalLink LinkKind = 64
	UserLink     LinkKind = 65
)

// A Link is a name in a group.
type Link struct {
	Name string
	Kind LinkKind
	// Addr is the address of the object header that a hard link refers to.
	Addr int64
	// Target is the path of a soft link, or that of an external link within File.
	Target string
	File   string
	// Order is the number of the link in order of creation, or -1 if that is not stored.
	Order int64

	table table // of the group that it refers to, as the link says, or zero
}

// table is where the links of an old group are: the addresses of a B-tree and of a local heap.
type table struct{ tree, heap int64 }

// inSymbolNode is the number of objects that a node of a symbol table usually has.
const inSymbolNode = 6

// isGroup reports whether an object's messages are those of a group.
func (h *header) isGroup() bool {
	return slices.ContainsFunc(h.messages, func(m message) bool {
		return m.kind == msgSymbolTable || m.kind == msgLinkInfo || m.kind == msgLink
	})
}

// table returns where the links of an old group are, if it has no others.
func (w *wave) table(h *header) (t table, ok bool) {
	for _, m := range h.messages {
		switch {
		case m.kind == msgLinkInfo || m.kind == msgLink || m.kind == msgSymbolTable && ok:
			return t, false
		case m.kind == msgSymbolTable:
			var err error
			t, err = w.f.parseTable(m.data)
			ok = err == nil
		}
	}
	return t, ok
}

// links reads the links of a group, sorted by name. The error reports what could not be read.
func (w *wave) links(h *header) (all []Link, err error) {
	for _, m := range h.messages {
		var more []Link
		var wrong error
		switch m.kind {
		case msgSymbolTable:
			var t table
			if t, wrong = w.f.parseTable(m.data); wrong == nil {
				more, wrong = w.symbolTable(t)
			}
		case msgLinkInfo:
			more, wrong = w.denseLinks(m)
		case msgLink:
			var l Link
			if l, wrong = w.f.parseLink(m.data); wrong == nil {
				more = []Link{l}
			}
		}
		all = append(all, more...)
		err = cmp.Or(err, w.f.place("link", m.off, wrong))
	}
	sortLinks(all)
	return all, err
}

func sortLinks(all []Link) {
	slices.SortFunc(all, func(a, b Link) int { return cmp.Compare(a.Name, b.Name) })
}

// parseLink parses a link message: version, flags, kind (if bit 3), order (8 bytes, if bit 2),
// character set (if bit 4), bytes of the name (1, 2, 4 or 8 by the lower bits), name, and an
// address, a path, or a file and a path.
func (f *File) parseLink(b []byte) (l Link, err error) {
	c := f.cursor(b)
	if v := c.u8(); v != 1 {
		return l, unsupported("version %d of links is not supported", v)
	}
	flags := c.u8()
	if l.Order = -1; flags&(1<<3) != 0 {
		l.Kind = LinkKind(c.u8())
	}
	if flags&(1<<2) != 0 {
		l.Order = c.size(8)
	}
	if flags&(1<<4) != 0 {
		c.skip(1)
	}
	l.Name = string(c.take(c.size(1 << (flags & 3))))
	switch l.Kind {
	case HardLink:
		l.Addr = c.addr()
	case SoftLink:
		l.Target = string(c.take(int64(c.u16())))
	case ExternalLink:
		x := f.cursor(c.take(int64(c.u16())))
		if v := x.u8(); v>>4 != 0 {
			return l, unsupported("version %d of external links is not supported", v>>4)
		}
		l.File, l.Target = x.text(1), x.text(1)
		if err := x.err(); err != nil {
			return l, err
		}
	}
	if l.Name == "" && c.err() == nil {
		return l, corrupt("a link without a name")
	}
	return l, c.err()
}

// denseLinks reads the links that a link info message refers to: version, flags, the highest
// order (8 bytes, if bit 0), addresses of a heap, of a B-tree by name, and of one by order (if
// bit 1).
func (w *wave) denseLinks(m message) (all []Link, err error) {
	c := w.f.cursor(m.data)
	if v := c.u8(); v != 0 {
		return nil, unsupported("version %d of link info is not supported", v)
	}
	if c.u8()&1 != 0 {
		c.skip(8)
	}
	heap, names := c.addr(), c.addr()
	if err := c.err(); err != nil || heap == undefined {
		return nil, err
	}
	// A record is a hash (u32) and the ID in the heap.
	var wrong error
	err = w.dense(heap, names, treeLinkNames, 4, func(_, b []byte) error {
		l, err := w.f.parseLink(b)
		if err != nil {
			wrong = cmp.Or(wrong, w.f.place("link", heap, err))
			return nil
		}
		all = append(all, l)
		return nil
	})
	return all, cmp.Or(err, wrong)
}

// parseTable parses a symbol table message.
func (f *File) parseTable(b []byte) (table, error) {
	c := f.cursor(b)
	t := table{c.addr(), c.addr()}
	return t, c.err()
}

// symbolTable reads the links of an old group.
func (w *wave) symbolTable(at table) (all []Link, err error) {
	f := w.f
	var names *localHeap
	var heapErr error
	var nodes []int64
	var wrong error
	keep := func(err error) error {
		wrong = cmp.Or(wrong, err)
		return nil
	}
	t := tree1{w: w, kind: 0, keySize: f.lengths, k: f.groupK, broken: keep, leaf: func(_ []byte, child int64) error {
		nodes = append(nodes, child)
		return w.spend(&w.room.records, 1, "nodes of symbol tables")
	}}
	w.together(
		func() { names, heapErr = w.localHeap(at.heap) },
		func() { err = t.walk(at.tree) },
	)
	if err = cmp.Or(heapErr, err); err != nil {
		return nil, err
	}
	size := f.symbolNodeSize()
	for batch := range slices.Chunk(nodes, nodesAtOnce) {
		want := make([]span, len(batch))
		for i, at := range batch {
			want[i] = span{at, min(size, max(8, f.size-at))}
		}
		err := w.structures("symbol table node", want, inSymbolNode, keep, func(i int, b []byte) error {
			w.saw("symbol table node", want[i].off, want[i].n)
			more, err := f.symbols(b, names)
			all = append(all, more...)
			return cmp.Or(err, w.spend(&w.room.records, int64(len(more)), "links"))
		})
		if err != nil {
			return all, err
		}
	}
	return all, wrong
}

// symbolNodeSize and groupNodeSize return the sizes of the nodes of symbol tables, and of the trees
// of these.
func (f *File) symbolNodeSize() int64 { return 8 + 2*int64(f.leafK)*int64(2*f.offsets+24) }

func (f *File) groupNodeSize() int64 {
	return int64(8 + 2*f.offsets + (2*f.groupK+1)*f.lengths + 2*f.groupK*f.offsets)
}

// symbol parses an entry of a symbol table without the offset of its name.
func (f *File) symbol(c *cursor) (at int64, kind uint32, rest []byte) {
	at, kind = c.addr(), c.u32()
	c.skip(4)
	return at, kind, c.take(16)
}

// symbols parses a node of a symbol table: "SNOD", version, reserved, entries (u16). An entry is
// the offset of its name in the heap, the address of its object header, kind (u32), reserved
// (u32), and 16 bytes. Kind 1 is a group; its 16 bytes are its symbol table message. Kind 2 is a
// soft link; its 16 bytes begin with the offset of the path in the heap (u32).
func (f *File) symbols(b []byte, names *localHeap) (all []Link, err error) {
	c := f.cursor(b)
	if err := c.sign("SNOD", 1); err != nil {
		return nil, err
	}
	c.skip(1)
	for range c.u16() {
		l := Link{Order: -1}
		at := c.size(f.offsets)
		var kind uint32
		var rest []byte
		l.Addr, kind, rest = f.symbol(c)
		if err := c.err(); err != nil {
			return all, err
		}
		if l.Name, err = names.text(at); err != nil {
			return all, err
		}
		switch kind {
		case 1:
			l.table, _ = f.parseTable(rest)
		case 2:
			l.Kind, l.Addr = SoftLink, 0
			if l.Target, err = names.text(int64(f.cursor(rest).u32())); err != nil {
				return all, err
			}
		}
		all = append(all, l)
	}
	return all, nil
}
