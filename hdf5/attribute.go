package hdf5

import (
	"bytes"
	"cmp"
	"slices"
)

// An Attribute is a named value of an object.
type Attribute struct {
	Name  string
	Type  *Datatype
	Space Space
	// Data are the elements, as they are stored.
	Data []byte
	// Values are the elements as Go values, if they were requested; see File.Values.
	Values []any
	// Order is the number of the attribute in order of creation, or -1 if that is not stored.
	Order int64
	// Err says what of the attribute could not be read.
	Err error
}

const (
	attrTypeShared  = 1 << 0
	attrSpaceShared = 1 << 1
)

// attribute parses an attribute:
//
//	1  version, reserved, bytes of name, type and space (u16 each), those padded to 8, data
//	2  version, flags, bytes of name, type and space, those, data
//	3  as 2, with a character set before the name
func (w *wave) attribute(m message) (a Attribute) {
	a.Order = m.order
	a.Err = w.f.place("attribute", m.off, w.parseAttribute(&a, m))
	return a
}

func (w *wave) parseAttribute(a *Attribute, m message) error {
	f := w.f
	m, _, err := w.resolve(m)
	if err != nil {
		return err
	}
	c := f.cursor(m.data)
	version, flags := c.u8(), c.u8()
	nameSize, typeSize, spaceSize := int(c.u16()), int(c.u16()), int(c.u16())
	pad := 1
	switch version {
	case 1:
		pad, flags = 8, 0
	case 2:
	case 3:
		c.skip(1)
	default:
		return unsupported("version %d of attributes is not supported", version)
	}
	part := func(n int) []byte { return c.take(int64(padded(n, pad))) }
	a.Name = f.cursor(append(part(nameSize), 0)).text(1)
	typ, space := part(typeSize), part(spaceSize)
	if err := c.err(); err != nil {
		return err
	}
	if a.Type, err = w.typeOf(message{kind: msgType, data: typ, flags: flags & attrTypeShared << 1}); err != nil {
		return err
	}
	shape, _, err := w.resolve(message{kind: msgSpace, data: space, flags: flags & attrSpaceShared})
	if err == nil {
		a.Space, err = parseSpace(f.cursor(shape.data))
	}
	if err != nil {
		return err
	}
	n, ok := multiply(max(a.Space.Elements(), 0), a.Type.Size)
	if !ok || a.Space.Elements() < 0 || n > int64(c.left()) {
		return corrupt("expected elements %v of %d bytes, found %d bytes", a.Space.Dims, a.Type.Size, c.left())
	}
	if err := w.spend(&w.room.values, n, "bytes of attributes"); err != nil {
		return err
	}
	a.Data = bytes.Clone(c.take(n)) // what it is a part of may be large
	return nil
}

// typeOf parses a datatype message, which may refer to a committed datatype.
func (w *wave) typeOf(m message) (*Datatype, error) {
	if m.flags&flagShared != 0 {
		w.f.mu.Lock()
		t := w.f.types[string(m.data)]
		w.f.mu.Unlock()
		if t != nil {
			return t, nil
		}
	}
	x, at, err := w.resolve(m)
	if err != nil {
		return nil, err
	}
	t, err := parseType(w.f.cursor(x.data), 0)
	if err != nil || m.flags&flagShared == 0 {
		return t, err
	}
	t.Committed = at
	w.f.mu.Lock()
	defer w.f.mu.Unlock()
	if len(w.f.types) >= maxTypes {
		clear(w.f.types)
	}
	w.f.types[string(m.data)] = t
	return t, nil
}

const maxTypes = 4096 // datatypes that are remembered

// attributes reads the attributes of an object, from messages of its header or from a heap.
func (w *wave) attributes(h *header) (all []Attribute, err error) {
	for _, m := range h.messages {
		switch m.kind {
		case msgAttribute:
			all = append(all, w.attribute(m))
		case msgAttrInfo:
			var dense []Attribute
			dense, err = w.denseAttributes(m)
			all = append(all, dense...)
		}
	}
	slices.SortFunc(all, func(a, b Attribute) int { return cmp.Compare(a.Name, b.Name) })
	return all, err
}

// denseAttributes reads the attributes that an attribute info message refers to: version, flags,
// the highest order (u16, if bit 0), addresses of a heap, of a B-tree by name, and of one by
// order (if bit 1).
func (w *wave) denseAttributes(m message) (all []Attribute, err error) {
	c := w.f.cursor(m.data)
	if v := c.u8(); v != 0 {
		return nil, unsupported("version %d of attribute info is not supported", v)
	}
	tracked := c.u8()&1 != 0
	if tracked {
		c.skip(2)
	}
	heap, names := c.addr(), c.addr()
	if err := c.err(); err != nil || heap == undefined {
		return nil, err
	}
	// A record is the ID in the heap (8), flags of the message, order (u32), and hash (u32).
	err = w.dense(heap, names, treeAttrNames, 0, func(rec, b []byte) error {
		r := w.f.cursor(rec)
		r.skip(8)
		m := message{data: b, flags: r.u8() &^ flagShared, order: -1, off: heap}
		if order := int64(r.u32()); tracked {
			m.order = order
		}
		all = append(all, w.attribute(m))
		return nil
	})
	return all, err
}
