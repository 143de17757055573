package hdf5

import "slices"

// sharedHeap has messages that several object headers share.
type sharedHeap struct {
	kinds uint16 // a bit for each type of message
	heap  int64
}

// resolve returns the message that a shared message refers to, and the address of the header that
// contains it, or 0 if it is not in a header.
//
//	1  version, type, 6 reserved, a length, address
//	2  version, type, address
//	3  version, type (1 in a heap, 2 in a header), ID in the heap (8) or address
func (w *wave) resolve(m message) (_ message, at int64, err error) {
	if m.flags&flagShared == 0 {
		return m, 0, nil
	}
	m.flags &^= flagShared
	c := w.f.cursor(m.data)
	version, kind := c.u8(), c.u8()
	switch {
	case version < 1 || version > 3:
		return m, 0, unsupported("version %d of shared messages is not supported", version)
	case version == 1:
		c.skip(6 + int64(w.f.lengths))
	case version == 3 && kind == 1:
		m.data, err = w.sharedInHeap(m.kind, c.take(8))
		return m, 0, err
	}
	at = c.addr()
	if err := c.err(); err != nil {
		return m, 0, err
	}
	h, err := w.header(at)
	if err != nil {
		return m, 0, err
	}
	i := slices.IndexFunc(h.messages, func(x message) bool { return x.kind == m.kind && x.flags&flagShared == 0 })
	if i < 0 {
		return m, 0, corrupt("the object at byte %d lacks the shared message of type %d", at, m.kind)
	}
	return h.messages[i], at, nil
}

// sharedInHeap reads a message from the heap for messages of its type.
func (w *wave) sharedInHeap(kind int, id []byte) (b []byte, err error) {
	i := slices.IndexFunc(w.f.shared, func(s sharedHeap) bool { return s.kinds>>kind&1 != 0 })
	if i < 0 || id == nil {
		return nil, corrupt("no heap has shared messages of type %d", kind)
	}
	h, err := w.fractalHeap(w.f.shared[i].heap, 0)
	if err != nil {
		return nil, err
	}
	if h.idSize != len(id) {
		return nil, corrupt("expected IDs of %d bytes in the heap of shared messages, found %d", len(id), h.idSize)
	}
	err = h.objects([][]byte{id}, func(_ int, object []byte) error {
		b = object
		return nil
	}, func(err error) error { return err })
	return b, err
}

// sharedTable parses a message that says where shared messages are: version, address of a table,
// heaps (u8). The table: "SMTB", for each heap version, kind of an index, types of messages
// (u16), limits (8 bytes), number of messages (u16), addresses of the index and of the heap; sum.
func (w *wave) sharedTable(m message) error {
	f := w.f
	c := f.cursor(m.data)
	if v := c.u8(); v != 0 {
		return unsupported("version %d of shared messages is not supported", v)
	}
	at, n := c.addr(), int(c.u8())
	if err := c.err(); err != nil {
		return err
	}
	size := int64(8 + n*(14+2*f.offsets))
	b, err := w.read(at, size)
	if err != nil {
		return f.place("table of shared messages", at, err)
	}
	w.saw("table of shared messages", at, size)
	c = f.cursor(b)
	if string(c.take(4)) != "SMTB" {
		return f.place("table of shared messages", at, corrupt("expected \"SMTB\", found %q", b[:4]))
	}
	if _, err := summed(b); err != nil {
		return f.place("table of shared messages", at, err)
	}
	for range n {
		c.skip(2)
		s := sharedHeap{kinds: c.u16()}
		c.skip(10 + int64(f.offsets))
		s.heap = c.addr()
		f.shared = append(f.shared, s)
	}
	return c.err()
}
