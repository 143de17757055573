package hdf5

import (
	"cmp"
	"encoding/binary"
	"math/bits"
	"slices"
	"strings"
	"unicode/utf8"
)

// SuperblockSize is the size of what EncodeSuperblock returns, which a file begins with.
const SuperblockSize = 48

// Limits of what is encoded.
const (
	maxMessage   = 0xffff     // bytes of a message of an object header
	maxDense     = 1<<24 - 64 // bytes of an attribute that is no message
	compactBytes = 1 << 20    // attributes that are in the header of their object
	compactUpTo  = 256        // links that are in the header of their group; the library searches them one by one
	pageBits     = 10         // of a fixed array, as the library has it
	heapLeast    = 4096       // bytes of a collection of a heap, which the library expects
	nowhere      = ^uint64(0) // the address of something that does not exist
)

// EncodeSuperblock returns the superblock of a file: version 3, with the address of the root's header
// and the size of the file.
func EncodeSuperblock(root, end int64) []byte {
	p := append([]byte(signature), 3, 8, 8, 0)
	p = le.AppendUint64(le.AppendUint64(p, 0), nowhere)
	return sum(le.AppendUint64(le.AppendUint64(p, uint64(end)), uint64(root)))
}

var le = binary.LittleEndian

// sum appends the checksum of a structure.
func sum(p []byte) []byte { return le.AppendUint32(p, lookup3(p)) }

// EncodeHeap returns a collection of the global heap with at most 65,535 values, which get the numbers from 1 on.
// Elements of variable length refer to its address and a number.
func EncodeHeap(values [][]byte) []byte {
	p := append([]byte("GCOL"), 1, 0, 0, 0)
	p = le.AppendUint64(p, 0)
	for i, v := range values {
		p = append(le.AppendUint16(p, uint16(i+1)), 1, 0, 0, 0, 0, 0)
		p = append(le.AppendUint64(p, uint64(len(v))), v...)
		p = append(p, make([]byte, padded(len(v), 8)-len(v))...)
	}
	if free := heapLeast - len(p); free >= 16 {
		p = append(p, make([]byte, free)...)
		le.PutUint64(p[len(p)-free+8:], uint64(free))
	} else if free > 0 {
		p = append(p, make([]byte, free)...)
	}
	le.PutUint64(p[8:], uint64(len(p)))
	return p
}

// Encode returns the header of a group or a dataset, and what belongs to it, for the address o.Addr. Of o it
// uses Kind, Attributes, Links, Type, Space, Filters and Fill, and of Layout the Class, Chunk, and for contiguous
// elements Addr and Size. Elements, and what Data of attributes refers to, must be stored elsewhere. chunks are those
// of a chunked layout in the order of the array; one without a place has the Addr -1. The size of the result does not
// depend on addresses.
func (o *Object) Encode(chunks []Chunk) ([]byte, error) {
	e := &encoder{}
	switch o.Kind {
	case Group:
		e.links(o.Links)
	case Dataset:
		e.dataset(o, chunks)
	default:
		return nil, unsupported("a %v is not encoded", o.Kind)
	}
	e.attributes(o.Attributes)
	if e.err != nil {
		return nil, e.err
	}
	p := []byte("OHDR\x02\x02") // the size takes 4 bytes
	p = append(le.AppendUint32(p, uint32(len(e.b))), e.b...)
	head := len(p) - len(e.b)
	size := len(p) + 4
	var rest []byte
	for _, x := range e.parts {
		at := o.Addr + int64(size+len(rest))
		le.PutUint64(p[head+x.slot:], uint64(at))
		rest = append(rest, x.make(at)...)
	}
	return append(sum(p), rest...), nil
}

// encoder makes the messages of an object header.
type encoder struct {
	b     []byte
	parts []after
	err   error
}

// after is a structure after the header, whose address is in a message.
type after struct {
	slot int // where its address is in the messages
	make func(at int64) []byte
}

func (e *encoder) message(kind byte, data []byte) {
	if len(data) > maxMessage {
		e.err = cmp.Or(e.err, error(unsupported("a message of %d bytes does not fit into an object header", len(data))))
		return
	}
	e.b = append(le.AppendUint16(append(e.b, kind), uint16(len(data))), 0)
	e.b = append(e.b, data...)
}

// put has a structure written after the header, and its address in the message that was added last, fromEnd bytes
// before its end.
func (e *encoder) put(fromEnd int, make func(at int64) []byte) {
	e.parts = append(e.parts, after{len(e.b) - fromEnd, make})
}

const noPlaces = "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"

func (e *encoder) links(all []Link) {
	dense := len(all) > compactUpTo
	e.message(msgLinkInfo, []byte("\x00\x00"+noPlaces))
	if dense {
		objects, names := make([][]byte, len(all)), make([]string, len(all))
		for i, l := range all {
			objects[i], names[i] = encodeLink(l), l.Name
		}
		e.dense(objects, names, treeLinkNames)
	}
	const msgGroupInfo = 0x0a
	e.message(msgGroupInfo, []byte{0, 0})
	for _, l := range all {
		p := encodeLink(l)
		if len(l.Name) > maxMessage || len(l.Target) > maxMessage {
			e.err = unsupported("a link of %d bytes is too long", len(p))
		}
		if !dense {
			e.message(msgLink, p)
		}
	}
}

func encodeLink(l Link) []byte {
	p := []byte{1, 1<<4 | 1<<3 | 1, byte(l.Kind), charset(l.Name)} // the size of the name takes 2 bytes
	p = append(le.AppendUint16(p, uint16(len(l.Name))), l.Name...)
	if l.Kind == SoftLink {
		return append(le.AppendUint16(p, uint16(len(l.Target))), l.Target...)
	}
	return le.AppendUint64(p, uint64(l.Addr))
}

// charset returns the number of the character set of a name.
func charset(s string) byte {
	if utf8.ValidString(s) {
		return 1
	}
	return 0
}

func (e *encoder) attributes(all []Attribute) {
	objects, names := make([][]byte, len(all)), make([]string, len(all))
	dense, total := false, 0
	for i, a := range all {
		objects[i], names[i] = e.attribute(a), a.Name
		total += len(objects[i])
		dense = dense || len(objects[i]) > maxMessage || total > compactBytes
	}
	if !dense {
		for _, p := range objects {
			e.message(msgAttribute, p)
		}
		return
	}
	e.message(msgAttrInfo, []byte("\x00\x00"+noPlaces))
	e.dense(objects, names, treeAttrNames)
}

func (e *encoder) attribute(a Attribute) []byte {
	typ, space := encodeType(nil, a.Type), encodeSpace(a.Space)
	p := []byte{3, 0}
	p = le.AppendUint16(p, uint16(len(a.Name)+1))
	p = le.AppendUint16(le.AppendUint16(p, uint16(len(typ))), uint16(len(space)))
	p = append(append(append(p, charset(a.Name)), a.Name...), 0)
	p = append(append(append(p, typ...), space...), a.Data...)
	if len(a.Name) >= maxMessage || len(typ) > maxMessage || len(p) > maxDense {
		e.err = cmp.Or(e.err, error(unsupported("an attribute of %d bytes is too large", len(p))))
	}
	return p
}

// dense has objects in a fractal heap, and a tree of their names, the addresses of which are the last in the message
// that was added last. The heap is one block, and the tree one node.
func (e *encoder) dense(objects [][]byte, names []string, kind byte) {
	const head, block, offsetBits = 146, 21, 32 // bytes of a heap's header, and of that of a block
	total, largest := block, 0
	for _, o := range objects {
		total, largest = total+len(o), max(largest, len(o))
	}
	// The library expects IDs of 7 bytes for links, and of 8 for attributes. How many of them are the length of an
	// object follows from the sizes of the block and of the largest object.
	lengthSize, least := 2, 1<<9
	if kind == treeAttrNames {
		lengthSize, least = 3, 1<<17
	}
	size := max(least, 1<<bits.Len(uint(total-1)))
	mostObject := uint32(min(1<<(8*lengthSize)-1, size-block))
	if largest > int(mostObject) || total > 1<<30 || len(objects) > 8<<20 {
		e.err = cmp.Or(e.err, error(unsupported("%d bytes of links or attributes are too many", total)))
		return
	}
	type record struct {
		hash uint32
		name string
		id   []byte
	}
	records := make([]record, len(objects))
	offset := block
	for i, o := range objects {
		id := le.AppendUint32([]byte{0}, uint32(offset))
		for k := range lengthSize {
			id = append(id, byte(len(o)>>(8*k)))
		}
		records[i] = record{lookup3([]byte(names[i])), names[i], id}
		offset += len(o)
	}
	slices.SortFunc(records, func(a, b record) int { return cmp.Or(cmp.Compare(a.hash, b.hash), strings.Compare(a.name, b.name)) })
	e.put(16, func(at int64) []byte {
		p := append([]byte("FRHP"), 0)
		p = le.AppendUint16(p, uint16(1+4+lengthSize))
		p = append(le.AppendUint16(p, 0), 2) // blocks have checksums
		p = le.AppendUint32(p, mostObject)
		for _, v := range []uint64{0, nowhere, uint64(size - total), nowhere, uint64(size), uint64(size), uint64(size), uint64(len(objects)), 0, 0, 0, 0} {
			p = le.AppendUint64(p, v)
		}
		p = le.AppendUint16(p, 4)
		p = le.AppendUint64(le.AppendUint64(p, uint64(size)), uint64(size))
		p = le.AppendUint16(le.AppendUint16(p, offsetBits), 1)
		p = sum(le.AppendUint16(le.AppendUint64(p, uint64(at+head)), 0))
		from := len(p)
		p = append(append(p, "FHDB"...), 0)
		p = append(le.AppendUint64(p, uint64(at)), make([]byte, 8)...) // its offset in the heap, and the sum
		sumAt := len(p) - 4
		for _, o := range objects {
			p = append(p, o...)
		}
		p = append(p, make([]byte, size-total)...)
		le.PutUint32(p[sumAt:], lookup3(p[from:]))
		return p
	})
	e.put(8, func(at int64) []byte {
		size := 4 + len(records[0].id)
		if kind == treeAttrNames {
			size += 5
		}
		all := make([]byte, 0, len(records)*size)
		for i, r := range records {
			if kind == treeLinkNames {
				all = append(le.AppendUint32(all, r.hash), r.id...)
				continue
			}
			all = le.AppendUint32(append(append(all, r.id...), 0), uint32(i))
			all = le.AppendUint32(all, r.hash)
		}
		return encodeTree(at, kind, all, size)
	})
}

// encodeTree returns a B-tree of version 2 with records of a size, in order, for an address: a leaf, or leaves and a
// node with the records between them.
func encodeTree(at int64, kind byte, records []byte, size int) []byte {
	const head, around, leafMost = 38, 10, 4096
	n := len(records) / size
	leaves := n/(leafMost+1) + 1
	most := min(n, leafMost)
	countSize := encodedSize(uint64(most))
	node := around + most*size
	if leaves > 1 { // all nodes have the same size, from which that of counts follows
		node = max(node, around+(leaves-1)*size+leaves*(8+countSize))
		countSize = encodedSize(uint64((node - around) / size))
	}
	part := func(letters string, records []byte) []byte {
		return append(append([]byte(letters), 0, kind), records...)
	}
	whole := func(p []byte) []byte {
		p = sum(p)
		return append(p, make([]byte, node-len(p))...)
	}
	depth, inRoot := 0, n
	var nodes []byte
	if leaves == 1 {
		nodes = whole(part("BTLF", records))
	} else {
		depth, inRoot = 1, leaves-1
		var between, pointers []byte
		for i := range leaves {
			from, to := i*(n+1)/leaves, (i+1)*(n+1)/leaves-1
			pointers = le.AppendUint64(pointers, uint64(at+head+int64(node)*int64(i+1)))
			for k := range countSize {
				pointers = append(pointers, byte((to-from)>>(8*k)))
			}
			nodes = append(nodes, whole(part("BTLF", records[from*size:to*size]))...)
			if i < leaves-1 {
				between = append(between, records[to*size:(to+1)*size]...)
			}
		}
		nodes = append(whole(append(part("BTIN", between), pointers...)), nodes...)
	}
	p := append([]byte("BTHD"), 0, kind)
	p = le.AppendUint16(le.AppendUint32(p, uint32(node)), uint16(size))
	p = append(le.AppendUint16(p, uint16(depth)), 100, 40)
	p = le.AppendUint16(le.AppendUint64(p, uint64(at+head)), uint16(inRoot))
	return append(sum(le.AppendUint64(p, uint64(n))), nodes...)
}

func (e *encoder) dataset(o *Object, chunks []Chunk) {
	e.message(msgSpace, encodeSpace(o.Space))
	e.message(msgType, encodeType(nil, o.Type))
	const late, incremental, ifSet, defined = 2, 3, 2 << 2, 1 << 5
	fill := []byte{3, late | ifSet}
	if o.Layout.Class == Chunked {
		fill[1] = incremental | ifSet
	}
	if o.Fill != nil {
		fill[1] |= defined
		fill = append(le.AppendUint32(fill, uint32(len(o.Fill))), o.Fill...)
	}
	e.message(msgFill, fill)
	if len(o.Filters) > 0 {
		e.message(msgFilters, encodeFilters(o.Filters))
	}
	switch o.Layout.Class {
	case Contiguous:
		p := le.AppendUint64([]byte{4, byte(Contiguous)}, uint64(o.Layout.Addr))
		e.message(msgLayout, le.AppendUint64(p, uint64(o.Layout.Size)))
	case Chunked:
		e.chunked(o, chunks)
	default:
		e.err = unsupported("a %v layout is not encoded", o.Layout.Class)
	}
}

// chunked adds the layout of a chunked dataset, with a fixed array, or for one chunk of the whole dataset with its
// place alone.
func (e *encoder) chunked(o *Object, chunks []Chunk) {
	g := o.grid()
	if n, ok := multiply(g.count...); !ok || n != int64(len(chunks)) || n == 0 || g.bytes > 1<<32-1 {
		e.err = cmp.Or(e.err, error(unsupported("%d chunks of %v elements, of %d bytes each, are not encoded for %v", len(chunks), o.Layout.Chunk, g.bytes, o.Space.Dims)))
		return
	}
	filtered := len(o.Filters) > 0
	single := slices.Equal(o.Layout.Chunk, o.Space.Dims) && slices.Equal(o.Space.Dims, o.Space.Max)
	lengths := append(slices.Clip(o.Layout.Chunk), o.Type.Size)
	lengthSize := encodedSize(uint64(slices.Max(lengths)))
	p := []byte{4, byte(Chunked), 0, byte(len(lengths)), byte(lengthSize)}
	for _, n := range lengths {
		for k := range lengthSize {
			p = append(p, byte(n>>(8*k)))
		}
	}
	if single {
		p = append(p, byte(SingleChunk))
		if filtered {
			p[2] |= chunkSingleFilter
			p = le.AppendUint32(le.AppendUint64(p, uint64(max(chunks[0].Size, 0))), chunks[0].Mask)
		}
		e.message(msgLayout, le.AppendUint64(p, uint64(chunks[0].Addr)))
		return
	}
	p = append(p, byte(FixedArray), pageBits)
	e.message(msgLayout, le.AppendUint64(p, 0))
	sizeSize := min(8, 1+(bits.Len64(uint64(g.bytes))+7)/8)
	client, element := byte(0), 8
	if filtered {
		client, element = 1, 8+sizeSize+4
	}
	e.put(8, func(at int64) []byte {
		const head = 28
		p := append([]byte("FAHD"), 0, client, byte(element), pageBits)
		p = sum(le.AppendUint64(le.AppendUint64(p, uint64(len(chunks))), uint64(at+head)))
		p = slices.Grow(p, len(chunks)*(element+1)+64)
		block := len(p)
		p = le.AppendUint64(append(p, 'F', 'A', 'D', 'B', 0, client), uint64(at))
		pages := (len(chunks)-1)>>pageBits + 1
		if pages > 1 {
			bitmap := make([]byte, (pages+7)/8)
			for i := range pages {
				bitmap[i/8] |= 0x80 >> (i % 8)
			}
			p = append(p, bitmap...)
			p = le.AppendUint32(p, lookup3(p[block:]))
			block = len(p)
		}
		for some := range slices.Chunk(chunks, 1<<pageBits) {
			for _, c := range some {
				if p = le.AppendUint64(p, uint64(c.Addr)); filtered {
					for k := range sizeSize {
						p = append(p, byte(max(c.Size, 0)>>(8*k)))
					}
					p = le.AppendUint32(p, c.Mask)
				}
			}
			p = le.AppendUint32(p, lookup3(p[block:]))
			block = len(p)
		}
		return p
	})
}

func encodeFilters(all []Filter) []byte {
	p := []byte{2, byte(len(all))}
	for _, x := range all {
		if p = le.AppendUint16(p, uint16(x.ID)); x.ID >= 256 {
			p = le.AppendUint16(p, 0) // no name
		}
		flags := uint16(0)
		if x.Optional {
			flags = 1
		}
		p = le.AppendUint16(le.AppendUint16(p, flags), uint16(len(x.Values)))
		for _, v := range x.Values {
			p = le.AppendUint32(p, v)
		}
	}
	return p
}

func encodeSpace(s Space) []byte {
	switch {
	case s.Null:
		return []byte{2, 0, 0, 2}
	case len(s.Dims) == 0:
		return []byte{2, 0, 0, 0}
	}
	p := []byte{2, byte(len(s.Dims)), 0, 1}
	for _, n := range s.Dims {
		p = le.AppendUint64(p, uint64(n))
	}
	if s.Max != nil && !slices.Equal(s.Max, s.Dims) {
		p[2] = 1
		for _, n := range s.Max {
			p = le.AppendUint64(p, uint64(n))
		}
	}
	return p
}

// encodeType appends a datatype.
func encodeType(p []byte, t *Datatype) []byte {
	const version = 3
	head := func(flags uint32) {
		p = le.AppendUint32(le.AppendUint32(p, uint32(t.Class)|version<<4|flags<<8), uint32(t.Size))
	}
	flags := uint32(0)
	if t.BigEndian {
		flags |= 1
	}
	if t.vax {
		flags |= 1 | 1<<6
	}
	switch t.Class {
	case Time:
		head(flags)
		p = le.AppendUint16(p, uint16(t.Precision))
	case Complex:
		head(0)
		p = encodeType(p, t.Base)
	case Integer, BitField:
		if t.Signed {
			flags |= 8
		}
		head(flags)
		p = le.AppendUint16(le.AppendUint16(p, uint16(t.BitOffset)), uint16(t.Precision))
	case Float:
		x := t.Float
		if x.Implied {
			flags |= 2 << 4
		}
		head(flags | uint32(x.Sign)<<8)
		p = le.AppendUint16(le.AppendUint16(p, uint16(t.BitOffset)), uint16(t.Precision))
		p = append(p, byte(x.ExponentAt), byte(x.ExponentBits), byte(x.MantissaAt), byte(x.MantissaBits))
		p = le.AppendUint32(p, uint32(x.Bias))
	case String:
		head(uint32(t.Padding) | charsetFlag(t)<<4)
	case Opaque:
		tag := append([]byte(t.Tag), make([]byte, padded(len(t.Tag)+1, 8)-len(t.Tag))...)
		head(uint32(len(tag)))
		p = append(p, tag...)
	case Compound:
		head(uint32(len(t.Fields)))
		for _, f := range t.Fields {
			p = append(append(p, f.Name...), 0)
			for k := range encodedSize(uint64(t.Size)) {
				p = append(p, byte(f.Offset>>(8*k)))
			}
			p = encodeType(p, f.Type)
		}
	case Reference:
		head(uint32(t.Ref))
	case Enum:
		head(uint32(len(t.Members)))
		p = encodeType(p, t.Base)
		for _, m := range t.Members {
			p = append(append(p, m.Name...), 0)
		}
		for _, m := range t.Members {
			p = append(p, m.Value...)
		}
	case Variable:
		if t.IsString {
			flags = 1 | uint32(t.Padding)<<4 | charsetFlag(t)<<8
		}
		head(flags)
		p = encodeType(p, t.Base)
	case Array:
		head(0)
		p = append(p, byte(len(t.Dims)))
		for _, n := range t.Dims {
			p = le.AppendUint32(p, uint32(n))
		}
		p = encodeType(p, t.Base)
	}
	return p
}

func charsetFlag(t *Datatype) uint32 {
	if t.UTF8 {
		return 1
	}
	return 0
}
