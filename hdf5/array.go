package hdf5

import (
	"math/bits"
	"slices"
)

// Indexes that are arrays have an element for each chunk, in the order of the grid of the largest
// possible array. An element is the chunk's address and, if chunks are filtered, its stored size
// and the filters that were left out (u32).

// places maps the elements of an array to positions in a grid. The dimension that may grow, if
// there is one, comes first.
type places struct {
	first int     // that dimension
	size  []int64 // elements from one position to the next, in each dimension
	count []int64 // positions along each dimension except first
}

func (x *index) places(grows bool) (p places, err error) {
	p.size, p.count = make([]int64, len(x.chunk)), make([]int64, len(x.chunk))
	for i, n := range x.max {
		p.count[i] = max(1, ceil(n, x.chunk[i]))
		if n == Unlimited {
			if !grows {
				return p, corrupt("an index of chunks of this kind cannot grow in dimension %d", i)
			}
			p.first, grows = i, false
		}
	}
	size := int64(1)
	for i := len(p.size) - 1; i >= 0; i-- {
		if i == p.first {
			continue
		}
		p.size[i] = size
		var ok bool
		if size, ok = multiply(size, p.count[i]); !ok {
			return p, corrupt("a grid of %v is too large", p.count)
		}
	}
	p.size[p.first] = size
	return p, nil
}

// number returns the element for a position.
func (p places) number(at []int64) int64 {
	n := int64(0)
	for i, x := range at {
		n += x * p.size[i]
	}
	return n
}

// place sets at to the position of an element.
func (p places) place(n int64, at []int64) {
	at[p.first], n = n/p.size[p.first], n%p.size[p.first]
	for i := range at {
		if i != p.first {
			at[i], n = n/p.size[i], n%p.size[i]
		}
	}
}

// array is what both kinds of array indexes share.
type array struct {
	*index
	places
	from, to    int64 // elements that are needed
	filtered    bool
	elementSize int64
	at          []int64
}

func (x *index) array(grows bool) (*array, error) {
	p, err := x.places(grows)
	if err != nil {
		return nil, err
	}
	a := &array{index: x, places: p, at: make([]int64, len(x.chunk)), filtered: len(x.o.Filters) > 0}
	for i := range x.box.to {
		if n, ok := multiply(x.box.to[i]+1, p.size[i]); !ok || n > 1<<56 {
			return nil, corrupt("a grid of %v chunks is too large", x.count)
		}
	}
	a.from, a.to = p.number(x.box.from), p.number(x.box.to)
	return a, nil
}

// head checks the start of both kinds of headers: signature, version, whether chunks are
// filtered, and the size of an element.
func (a *array) head(c *cursor, letters string) error {
	if err := c.sign(letters, 0); err != nil {
		return err
	}
	if _, err := summed(c.b); err != nil {
		return err
	}
	client := c.u8()
	a.elementSize = int64(c.u8())
	least, most := int64(a.w.f.offsets), int64(a.w.f.offsets)
	if a.filtered {
		least, most = least+5, most+12
	}
	if client > 1 || (client == 1) != a.filtered || a.elementSize < least || a.elementSize > most {
		return corrupt("expected elements of %d to %d bytes, found type %d of %d bytes", least, most, client, a.elementSize)
	}
	return nil
}

// elements reports the chunks of consecutive elements in b, of which n is the first.
func (a *array) elements(b []byte, n int64) error {
	c := a.w.f.cursor(b)
	if skip := a.from - n; skip > 0 {
		c.skip(min(skip*a.elementSize, int64(c.left())))
		n = a.from
	}
	for ; int64(c.left()) >= a.elementSize && n <= a.to; n++ {
		addr, size, mask := c.addr(), a.bytes, uint32(0)
		if a.filtered {
			size, mask = c.size(int(a.elementSize)-a.w.f.offsets-4), c.u32()
		}
		if addr == undefined {
			continue
		}
		a.place(n, a.at)
		if err := a.found(a.at, addr, size, mask); err != nil {
			return err
		}
	}
	return nil
}

// implicit has no array: the chunks are stored consecutively.
func (x *index) implicit() error {
	a, err := x.array(false)
	if err != nil {
		return err
	}
	total, ok := multiply(a.to+1, x.bytes)
	if !ok {
		total = noSize
	}
	if err := x.w.f.extent(x.o.Layout.Addr, total); err != nil {
		return err
	}
	for n := a.from; n <= a.to; n++ {
		a.place(n, a.at)
		if err := x.found(a.at, x.o.Layout.Addr+n*x.bytes, x.bytes, 0); err != nil {
			return err
		}
	}
	return nil
}

// page is a run of elements that is followed by a checksum.
type page struct {
	off   int64
	count int64
	first int64 // number of the first element
}

// pages reads the pages that contain needed elements, many at a time. If a page looks like a
// block of its own, head is the number of bytes before its elements.
func (a *array) pages(all []page, what string, head int64, check func(b []byte) error) error {
	wanted := slices.DeleteFunc(all, func(p page) bool { return p.first > a.to || p.first+p.count <= a.from })
	for batch := range slices.Chunk(wanted, nodesAtOnce) {
		want := make([]span, len(batch))
		for i, p := range batch {
			n, ok := multiply(p.count, a.elementSize)
			if !ok {
				n = noSize
			}
			want[i] = span{p.off, n + head + 4}
		}
		err := a.w.structures(what, want, -1, a.broken, func(i int, b []byte) error {
			a.w.saw(what, want[i].off, want[i].n)
			b, err := summed(b)
			if err == nil && check != nil {
				err = check(b)
			}
			if err != nil {
				return err
			}
			return a.elements(b[head:], batch[i].first)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// paged returns the pages of a block of elements, without those that were never written. The
// bitmap written has a bit for each page, starting at bit, highest bit first. All pages beyond
// the end of the file become a single page, which is an error.
func (a *array) paged(off, count, perPage, first int64, written []byte, bit int64) []page {
	var all []page
	for i := int64(0); i*perPage < count; i++ {
		if k := bit + i; written[k/8]&(0x80>>(k%8)) == 0 {
			continue
		}
		p := page{off + i*(perPage*a.elementSize+4), min(perPage, count-i*perPage), first + i*perPage}
		if all = append(all, p); p.off > a.w.f.size {
			break
		}
	}
	return all
}

// fixedArray walks a fixed array: "FAHD", version, type, bytes of an element, bits of a page,
// elements (length), address of a block, sum.
//
// The block: "FADB", version, type, address of the header. If the elements fit in one page, they
// and a sum follow; otherwise a bit for each page that was written, a sum, and the pages, each
// with a sum.
func (x *index) fixedArray() error {
	a, err := x.array(false)
	if err != nil {
		return err
	}
	f := x.w.f
	at := x.o.Layout.Addr
	n := int64(12 + f.lengths + f.offsets)
	b, err := x.w.read(at, n)
	if err != nil {
		return err
	}
	x.w.saw("fixed array", at, n)
	c := f.cursor(b)
	if err := a.head(c, "FAHD"); err != nil {
		return err
	}
	pageBits, count, data := c.u8(), c.length(), c.addr()
	if data == undefined {
		return nil
	}
	if count > f.size/a.elementSize && (pageBits < 8 || count>>min(pageBits, 62) > 8*f.size) || pageBits > 40 {
		return corrupt("%d elements do not fit into a file of %d bytes", count, f.size)
	}
	a.to = min(a.to, count-1)
	head := int64(6 + f.offsets)
	if count <= 1<<pageBits {
		return a.pages([]page{{data, count, 0}}, "fixed array", head, func(b []byte) error { return a.ofHeader(b, "FADB", at) })
	}
	perPage := int64(1) << pageBits
	pages := ceil(count, perPage)
	if b, err = x.w.read(data, head+ceil(pages, 8)+4); err == nil {
		x.w.saw("fixed array", data, int64(len(b)))
		if b, err = summed(b); err == nil {
			err = a.ofHeader(b, "FADB", at)
		}
	}
	if err != nil {
		return f.place("fixed array's block", data, err)
	}
	all := a.paged(data+head+ceil(pages, 8)+4, min(count, (a.to/perPage+1)*perPage), perPage, 0, b[head:], 0)
	return a.pages(all, "fixed array's page", 0, nil)
}

// ofHeader checks the start of a block: signature, version, type, and address of the header.
func (a *array) ofHeader(b []byte, letters string, header int64) error {
	c := a.w.f.cursor(b)
	if err := c.sign(letters, 0); err != nil {
		return err
	}
	if c.skip(1); c.addr() != header {
		return corrupt("it belongs to another header than that at byte %d", header)
	}
	return c.err()
}

// extensible is an extensible array. Its first elements are in an index block, and the next ones
// in data blocks. The index block has the addresses of the first data blocks; super blocks have
// those of the others. Data blocks are grouped: group g has 2^(g/2) blocks with 2^((g+1)/2) times
// the minimum number of elements. A super block has the addresses of one group.
//
//	"EAHD", version, type, bytes of an element, bits of the largest number, elements of
//	the index block, least elements of a data block, least addresses of a super block,
//	bits of a page (u8 each), four lengths, largest number that is set and a count
//	(lengths), address of the index block, sum
//	"EAIB", version, type, header, elements, addresses of data blocks, of super blocks, sum
//	"EASB", version, type, header, place, bits of pages, addresses, sum
//	"EADB", version, type, header, place, elements, sum; of many elements only a sum, and
//	then pages
type extensible struct {
	*array
	header              int64
	numberBits, inIndex int
	least               int64 // minimum number of elements of a data block
	pageBits            int
	placeSize           int64
	blocks, inPages     []page // data blocks, and pages of larger ones, that are still to be read
}

func (x *index) extensibleArray() error {
	a, err := x.array(true)
	if err != nil {
		return err
	}
	f := x.w.f
	e := extensible{array: a, header: x.o.Layout.Addr}
	n := int64(16 + 6*f.lengths + f.offsets)
	b, err := x.w.read(e.header, n)
	if err != nil {
		return err
	}
	x.w.saw("extensible array", e.header, n)
	c := f.cursor(b)
	if err := a.head(c, "EAHD"); err != nil {
		return err
	}
	e.numberBits, e.inIndex, e.least = int(c.u8()), int(c.u8()), int64(c.u8())
	pointers := int(c.u8())
	e.pageBits = int(c.u8())
	c.skip(4 * int64(f.lengths))
	set := c.length()
	c.skip(int64(f.lengths))
	block := c.addr()
	if e.least == 0 || e.least&(e.least-1) != 0 || pointers == 0 || pointers&(pointers-1) != 0 || e.numberBits == 0 || e.numberBits > 64 || e.pageBits > 40 {
		return corrupt("expected an array of blocks, found %d elements, %d addresses, %d and %d bits", e.least, pointers, e.numberBits, e.pageBits)
	}
	e.placeSize = int64(e.numberBits+7) / 8
	if a.to = min(a.to, set-1); block == undefined || a.to < a.from {
		return nil
	}
	groups := max(0, 1+e.numberBits-(bits.Len64(uint64(e.least))-1))
	direct := min(groups, 2*(bits.Len(uint(pointers))-1)) // groups whose addresses are in the index block
	blocks := 2 * (pointers - 1)
	head := int64(6 + f.offsets)
	n = head + int64(e.inIndex)*a.elementSize + int64(blocks+groups-direct)*int64(f.offsets) + 4
	if b, err = x.w.read(block, n); err == nil {
		x.w.saw("extensible array", block, n)
		if b, err = summed(b); err == nil {
			err = a.ofHeader(b, "EAIB", e.header)
		}
	}
	if err != nil {
		return f.place("extensible array's index block", block, err)
	}
	c = f.cursor(b)
	c.skip(head)
	if err := a.elements(c.take(int64(e.inIndex)*a.elementSize), 0); err != nil {
		return err
	}
	first := int64(e.inIndex)
	var all []page
	for g := range direct {
		for range int64(1) << (g / 2) {
			if all = append(all, page{c.addr(), e.groupElements(g), first}); c.short {
				return c.err()
			}
			first += e.groupElements(g)
		}
	}
	if err := e.data(all, nil); err != nil {
		return err
	}
	var supers []group
	var want []span
	for g := direct; g < groups && first <= a.to; g++ {
		x := group{at: c.addr(), first: first, count: int64(1) << (g / 2), size: e.groupElements(g)}
		next := first + x.size*x.count
		if x.at != undefined && next > a.from {
			want = append(want, span{x.at, e.superSize(&x)})
			supers = append(supers, x)
		}
		if first = next; first > 1<<58 {
			break
		}
	}
	if err := c.err(); err != nil {
		return err
	}
	err = a.w.structures("extensible array's super block", want, 0, e.broken, func(i int, b []byte) error {
		return e.super(supers[i], b)
	})
	if err != nil {
		return err
	}
	return e.flush()
}

// group is a group of data blocks whose addresses are in a super block.
type group struct {
	at          int64
	first       int64 // number of the first element
	count, size int64 // of the data blocks, and of the elements of each
	bitmap      int64 // bytes for each data block
}

// groupElements returns the number of elements in a data block of a group.
func (e *extensible) groupElements(g int) int64 { return e.least << ((g + 1) / 2) }

// superSize returns the size of a super block.
func (e *extensible) superSize(x *group) int64 {
	if perPage := int64(1) << e.pageBits; x.size > perPage {
		x.bitmap = ceil(x.size/perPage, 8) // more than is used: the bitmaps have no gaps
	}
	n, ok := multiply(x.count, x.bitmap+int64(e.w.f.offsets))
	if !ok {
		return noSize
	}
	return int64(6+e.w.f.offsets) + e.placeSize + n + 4
}

// super takes note of the data blocks of a super block.
func (e *extensible) super(x group, b []byte) error {
	e.w.saw("extensible array", x.at, int64(len(b)))
	b, err := summed(b)
	if err == nil {
		err = e.ofHeader(b, "EASB", e.header)
	}
	if err != nil {
		return err
	}
	c := e.w.f.cursor(b)
	c.skip(int64(6+e.w.f.offsets) + e.placeSize)
	written := c.take(x.count * x.bitmap)
	all := make([]page, x.count)
	for i := range all {
		all[i] = page{c.addr(), x.size, x.first + int64(i)*x.size}
	}
	return e.data(all, written)
}

// data takes note of the data blocks of a group. written has a bit for each page that exists.
func (e *extensible) data(all []page, written []byte) error {
	head := int64(6+e.w.f.offsets) + e.placeSize
	perPage := int64(1) << e.pageBits
	for i, p := range all {
		switch {
		case p.off == undefined || p.first > e.to || p.first+p.count <= e.from:
		case p.count <= perPage:
			e.blocks = append(e.blocks, p)
		case written == nil:
			return unsupported("pages in blocks of the index block are not supported")
		default:
			e.inPages = append(e.inPages, e.paged(p.off+head+4, p.count, perPage, p.first, written, int64(i)*(p.count/perPage))...)
		}
		if len(e.blocks)+len(e.inPages) >= 1<<16 {
			if err := e.flush(); err != nil {
				return err
			}
		}
	}
	return nil
}

// flush reads the elements of the data blocks that are known.
func (e *extensible) flush() error {
	head := int64(6+e.w.f.offsets) + e.placeSize
	blocks, pages := e.blocks, e.inPages
	e.blocks, e.inPages = nil, nil
	err := e.pages(blocks, "extensible array's block", head, func(b []byte) error { return e.ofHeader(b, "EADB", e.header) })
	if err != nil {
		return err
	}
	return e.pages(pages, "extensible array's page", 0, nil)
}
