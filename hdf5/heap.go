package hdf5

import (
	"bytes"
	"cmp"
	"slices"
)

// localHeap has the names of an old group.
type localHeap struct {
	b    []byte
	room int // bytes left for further names, which share none
}

// localHeap reads a local heap: "HEAP", version, 3 reserved, bytes of its data, a length, and the
// address of the data.
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

// text returns the string at an offset, which a zero byte ends.
func (h *localHeap) text(at int64) (string, error) {
	if at < 0 || at >= int64(len(h.b)) {
		return "", corrupt("a name at %d is outside a local heap of %d bytes", at, len(h.b))
	}
	s, _, ok := bytes.Cut(h.b[at:], []byte{0})
	if !ok {
		return "", corrupt("a name at %d in a local heap has no end", at)
	}
	if h.room -= len(s); h.room < 0 {
		return "", corrupt("names exceed the %d bytes of their local heap", len(h.b))
	}
	return string(s), nil
}

// collection is a part of the global heap.
type collection struct {
	objects []heapObject
	err     error
}

type heapObject struct {
	number uint32
	b      []byte
}

// object returns the object with a number, or nil if there is none.
func (x *collection) object(number uint32) []byte {
	i, ok := slices.BinarySearchFunc(x.objects, number, func(o heapObject, n uint32) int { return cmp.Compare(o.number, n) })
	if !ok {
		return nil
	}
	return x.objects[i].b
}

const heapGuess = 4096 // the size of most collections

// collections returns the collections at the given addresses. It takes those in known from there,
// and drops all others from known. A damaged collection has an error.
func (w *wave) collections(at []int64, known map[int64]*collection) (map[int64]*collection, error) {
	out := map[int64]*collection{}
	var want []span
	for _, a := range at {
		s := span{a, min(heapGuess, w.f.size-a)}
		if x := known[a]; x != nil {
			out[a] = x
		} else if err := w.f.holds(s); err != nil {
			out[a] = &collection{err: w.f.place("global heap", a, err)}
		} else {
			want = append(want, s)
		}
	}
	read, err := w.readAll(want, 0)
	if err != nil {
		return out, err
	}
	var more []span
	for i, b := range read {
		n, err := w.f.collectionSize(b)
		s := span{want[i].off, n}
		if err == nil {
			err = w.f.holds(s)
		}
		switch {
		case err != nil:
			out[s.off] = &collection{err: w.f.place("global heap", s.off, err)}
		case n > int64(len(b)):
			more = append(more, s)
		default:
			out[s.off] = w.collection(s.off, b[:n])
		}
	}
	if read, err = w.readAll(more, 0); err != nil {
		return out, err
	}
	for i, b := range read {
		out[more[i].off] = w.collection(more[i].off, b)
	}
	return out, nil
}

func (f *File) collectionSize(b []byte) (int64, error) {
	c := f.cursor(b)
	if err := c.sign("GCOL", 1); err != nil {
		return 0, err
	}
	c.skip(3)
	n := c.length()
	return n, c.err()
}

// collection parses a collection: "GCOL", version, 3 reserved, bytes of the whole (length), and
// for each object: its number (u16), references (u16), reserved (u32), bytes (length), and these
// bytes. All parts are padded to 8. The number 0 means free space.
func (w *wave) collection(at int64, b []byte) *collection {
	w.saw("global heap", at, int64(len(b)))
	x := &collection{}
	c := w.f.cursor(b)
	head := padded(8+w.f.lengths, 8) // of the collection, and of each object
	c.skip(int64(head))
	for c.left() >= head {
		number := uint32(c.u16())
		c.skip(6)
		n := c.length()
		c.skip(int64(head - 8 - w.f.lengths))
		if number == 0 {
			break
		}
		if n > int64(c.left()) {
			x.err = w.f.place("global heap", at, corrupt("object %d: expected %d bytes, found %d", number, n, c.left()))
			break
		}
		x.objects = append(x.objects, heapObject{number, c.take(n)})
		c.skip(min(int64(padded(int(n), 8))-n, int64(c.left())))
	}
	slices.SortFunc(x.objects, func(a, b heapObject) int { return cmp.Compare(a.number, b.number) })
	return x
}
