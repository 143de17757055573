package hdf5

import (
	"bytes"
)

// A LayoutClass is how the elements of a dataset are stored.
type LayoutClass uint8

// Classes of layouts.
const (
	Compact    LayoutClass = iota // in the object header
	Contiguous                    // in one run
	Chunked
	Virtual  // in other datasets
	External // in other files
)

var layoutNames = [...]string{"compact", "contiguous", "chunked", "virtual", "external"}

func (c LayoutClass) String() string { return layoutNames[min(int(c), len(layoutNames)-1)] }

// An IndexKind is the kind of index of a chunked layout.
type IndexKind uint8

// Kinds of indexes.
const (
	BTree1 IndexKind = iota
	SingleChunk
	Implicit
	FixedArray
	ExtensibleArray
	BTree2
)

var indexNames = [...]string{"version 1 B-tree", "single chunk", "implicit", "fixed array", "extensible array", "version 2 B-tree"}

func (k IndexKind) String() string { return indexNames[min(int(k), len(indexNames)-1)] }

// A Layout describes where the elements of a dataset are stored.
type Layout struct {
	Class LayoutClass
	// Addr is the address of contiguous elements, or of the index of chunks. It is -1 if nothing
	// was written.
	Addr int64
	// Size is the stored size in bytes, unless the layout is chunked.
	Size int64
	Data []byte // of Compact
	// Chunk is the shape of a chunk.
	Chunk []int64
	Index IndexKind
	// PlainEdges means that filters are not applied to chunks that extend beyond the array.
	PlainEdges bool
	Segments   []Segment // of External, end to end
	Mappings   []Mapping // of Virtual

	single Chunk
	heap   int64  // the part of the global heap that has the mappings
	number uint32 // of their object there
}

const (
	chunkPlainEdges   = 1 << 0
	chunkSingleFilter = 1 << 1
)

// parseLayout parses a data layout message:
//
//	1, 2  version, rank, class, 5 reserved, address (not if compact), lengths (u32), if
//	      chunked bytes of an element (u32), if compact bytes (u32) and data
//	3     version, class, and what that has: bytes (u16) and data; address and bytes; rank
//	      and 1, address, lengths (u32), bytes of an element (u32)
//	4, 5  as 3, but chunked: flags, rank and 1, bytes of a length, lengths, the last one
//	      that of an element, kind of index, what the index has, address
func parseLayout(c *cursor, s Space, t *Datatype) (l Layout, err error) {
	version := c.u8()
	if version < 1 || version > 5 {
		return l, unsupported("version %d of layouts is not supported", version)
	}
	var rank int
	if version < 3 {
		rank = int(c.u8())
	}
	l.Class = LayoutClass(c.u8())
	if version < 3 {
		c.skip(5)
	}
	switch {
	case l.Class > Virtual || version < 3 && l.Class > Chunked:
		return l, unsupported("layouts of class %d are not supported", uint8(l.Class))
	case l.Class == Virtual:
		l.Addr, l.heap = undefined, c.addr()
		l.number = c.u32()
		return l, c.err()
	case l.Class == Chunked && version < 3:
		l.Addr = c.addr()
		err = l.chunk(c, rank, 4, t)
	case l.Class == Chunked && version == 3:
		rank = int(c.u8())
		l.Addr = c.addr()
		err = l.chunk(c, rank, 4, t)
	case l.Class == Chunked:
		err = l.chunk4(c, t)
	default:
		err = l.plain(c, int(version), rank, s, t)
	}
	if err == nil {
		err = c.err()
	}
	if err == nil && l.Class == Chunked && len(l.Chunk) != len(s.Dims) {
		err = corrupt("expected chunks of %d dimensions, found %d", len(s.Dims), len(l.Chunk))
	}
	return l, err
}

func (l *Layout) plain(c *cursor, version, rank int, s Space, t *Datatype) error {
	n, ok := multiply(max(s.Elements(), 0), t.Size)
	if !ok || s.Elements() < 0 {
		return corrupt("%v elements of %d bytes are too many", s.Dims, t.Size)
	}
	switch {
	case l.Class == Contiguous && version < 3:
		l.Addr, l.Size = c.addr(), n
		c.skip(4 * int64(rank))
		return nil
	case l.Class == Contiguous:
		l.Addr, l.Size = c.addr(), c.length()
		if l.Addr != undefined && l.Size < n {
			return corrupt("expected %d bytes of elements, found %d", n, l.Size)
		}
		return nil
	case version < 3:
		c.skip(4 * int64(rank))
		l.Size = int64(c.u32())
	default:
		l.Size = int64(c.u16())
	}
	l.Addr = undefined
	if l.Data = bytes.Clone(c.take(l.Size)); l.Size < n && l.Size > 0 {
		return corrupt("expected %d bytes of elements, found %d", n, l.Size)
	}
	return nil
}

// chunk parses the shape of chunks. rank counts the size of an element as another dimension.
func (l *Layout) chunk(c *cursor, rank, lengthSize int, t *Datatype) error {
	if rank < 2 || rank > MaxRank+1 {
		return corrupt("expected chunks of 1 to %d dimensions, found %d", MaxRank, rank-1)
	}
	sizes := make([]int64, rank)
	for i := range sizes {
		sizes[i] = c.size(lengthSize)
	}
	if err := c.err(); err != nil {
		return err
	}
	l.Chunk = sizes[:rank-1]
	if n, ok := multiply(sizes...); !ok || n == 0 || sizes[rank-1] != t.Size {
		return corrupt("expected chunks of elements of %d bytes, found %v", t.Size, sizes)
	}
	return nil
}

func (l *Layout) chunk4(c *cursor, t *Datatype) error {
	flags := c.u8()
	l.PlainEdges = flags&chunkPlainEdges != 0
	rank, lengthSize := int(c.u8()), int(c.u8())
	if lengthSize < 1 || lengthSize > 8 {
		return corrupt("expected lengths of 1 to 8 bytes, found %d", lengthSize)
	}
	if err := l.chunk(c, rank, lengthSize, t); err != nil {
		return err
	}
	l.Index = IndexKind(c.u8())
	switch l.Index {
	case SingleChunk:
		l.single.Size, _ = multiply(append([]int64{t.Size}, l.Chunk...)...)
		if flags&chunkSingleFilter != 0 {
			l.single.Size, l.single.Mask = c.length(), c.u32()
		}
	case Implicit:
	case FixedArray:
		c.skip(1) // the index repeats it
	case ExtensibleArray:
		c.skip(5)
	case BTree2:
		c.skip(6)
	default:
		return unsupported("index %d of chunks is not supported", l.Index)
	}
	l.Addr = c.addr()
	return nil
}

// parseFill parses a fill value; nil if there is none:
//
//	old   bytes (u32), value
//	1, 2  version, two times, defined, if so (in version 1 always) bytes (u32) and value
//	3     version, flags, if bit 5 bytes (u32) and value
func parseFill(c *cursor, kind int, t *Datatype) ([]byte, error) {
	if kind == msgFill {
		switch version := c.u8(); version {
		case 1, 2:
			c.skip(2)
			if defined := c.u8(); version == 2 && defined == 0 {
				return nil, c.err()
			}
		case 3:
			if flags := c.u8(); flags&(1<<5) == 0 {
				return nil, c.err()
			}
		default:
			return nil, unsupported("version %d of fill values is not supported", version)
		}
	}
	n := int64(int32(c.u32()))
	if n <= 0 {
		return nil, c.err()
	}
	if n != t.Size {
		return nil, corrupt("expected a fill value of %d bytes, found %d", t.Size, n)
	}
	b := bytes.Clone(c.take(n))
	return b, c.err()
}

// A Filter is a filter that was applied to chunks when they were written.
type Filter struct {
	ID       int
	Name     string // from the file, or the usual name
	Optional bool   // it may have been left out: see Chunk.Mask
	Values   []uint32
}

const maxFilters = 32

// parseFilters parses a filter pipeline:
//
//	1  version, count, 6 reserved; for each: ID, bytes of the name, flags, values (u16
//	   each), name, values (u32 each), 4 bytes if their number is odd
//	2  version, count; for each: ID, bytes of the name (only if the ID is 256 or more),
//	   flags, values, name, values
func parseFilters(c *cursor) ([]Filter, error) {
	version, n := c.u8(), int(c.u8())
	switch {
	case version == 1:
		c.skip(6)
	case version != 2:
		return nil, unsupported("version %d of filter pipelines is not supported", version)
	}
	if n > maxFilters {
		return nil, corrupt("expected at most %d filters, found %d", maxFilters, n)
	}
	var all []Filter
	for range n {
		x := Filter{ID: int(c.u16())}
		nameSize := 0
		if version == 1 || x.ID >= 256 {
			nameSize = int(c.u16())
		}
		x.Optional = c.u16()&1 != 0
		values := int(c.u16())
		if version == 1 {
			nameSize = padded(nameSize, 8)
		}
		name, _, _ := bytes.Cut(c.take(int64(nameSize)), []byte{0})
		if x.Name = string(name); x.Name == "" {
			x.Name = filterName(x.ID)
		}
		raw := c.f.cursor(c.take(4 * int64(values)))
		if err := c.err(); err != nil {
			return nil, err
		}
		for range values {
			x.Values = append(x.Values, raw.u32())
		}
		if version == 1 && values%2 != 0 {
			c.skip(4)
		}
		all = append(all, x)
	}
	return all, c.err()
}
