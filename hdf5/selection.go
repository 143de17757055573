package hdf5

import (
	"math"
	"slices"
)

// A Selection is a part of the elements of a dataset: All, blocks, or single points.
type Selection struct {
	All    bool
	Blocks []Block // in the order in which they are stored
	// Regular is set instead of Blocks if blocks repeat along each axis.
	Regular []Repeat
}

// A Block has the first element along each axis, and the number of elements.
type Block struct{ Start, Count []int64 }

// A Repeat is what a regular selection has along an axis: Count blocks of Block elements, from Start on, Stride apart.
// Count is Unlimited if there are as many as the dataset has.
type Repeat struct{ Start, Stride, Count, Block int64 }

// parseSelection parses a selection, of a dataset of any rank:
//
//	kind (u32: none, points, blocks, all), version (u32), and
//	  none, all  8 bytes
//	  points 1   8 bytes, rank (u32), number (u32), coordinates (u32 each)
//	  points 2   bytes of a number, rank (u32), number, coordinates
//	  blocks 1   8 bytes, rank (u32), number (u32), first and last corners (u32 each)
//	  blocks 2   flags, 4 bytes, rank (u32), for each axis start, stride, count, block (u64)
//	  blocks 3   flags, bytes of a number, rank (u32), as 2 if flags have bit 0, otherwise as 1
func parseSelection(c *cursor) (*Selection, error) {
	const none, points, blocks, all = 0, 1, 2, 3
	kind, version := c.u32(), c.u32()
	if err := c.err(); err != nil {
		return nil, err
	}
	s := &Selection{}
	size, regular := 4, false
	switch {
	case (kind == none || kind == all) && version == 1:
		s.All = kind == all
		c.skip(8)
		return s, c.err()
	case kind == points && version == 1, kind == blocks && version == 1:
		c.skip(8)
	case kind == points && version == 2:
		size = int(c.u8())
	case kind == blocks && version == 2:
		regular, size = c.u8()&1 != 0, 8
		c.skip(4)
	case kind == blocks && version == 3:
		regular = c.u8()&1 != 0
		size = int(c.u8())
	default:
		return nil, unsupported("version %d of selections of kind %d is not supported", version, kind)
	}
	rank := int(c.u32())
	if rank < 1 || rank > MaxRank || size != 2 && size != 4 && size != 8 {
		return nil, corrupt("expected a selection of 1 to %d dimensions, found %d in numbers of %d bytes", MaxRank, rank, size)
	}
	number := func() int64 {
		if v := c.uint(size); v != math.MaxUint64>>(64-8*size) {
			return int64(min(v, math.MaxInt64/4))
		}
		return Unlimited
	}
	if regular {
		for range rank {
			r := Repeat{number(), number(), number(), number()}
			if r.Start < 0 || r.Stride < 1 || r.Block < 1 && r.Block != Unlimited || r.Count < 0 && r.Count != Unlimited || r.Block > r.Stride && r.Count != 1 {
				return nil, corrupt("blocks of %d elements, %d apart, are no selection", r.Block, r.Stride)
			}
			s.Regular = append(s.Regular, r)
		}
		return s, c.err()
	}
	n := int64(c.uint(map[bool]int{true: size, false: 4}[version > 1]))
	corners := 1
	if kind == blocks {
		corners = 2
	}
	if n < 0 || n > int64(c.left())/int64(corners*rank*size) {
		return nil, corrupt("%d blocks do not fit into %d bytes", n, c.left())
	}
	for range n {
		b := Block{make([]int64, rank), make([]int64, rank)}
		for i := range rank {
			b.Start[i], b.Count[i] = number(), 1
		}
		for i := 0; i < rank && kind == blocks; i++ {
			b.Count[i] = number() - b.Start[i] + 1
		}
		for i := range rank {
			if b.Start[i] < 0 || b.Count[i] < 1 {
				return nil, corrupt("a block of %v elements at %v is no selection", b.Count, b.Start)
			}
		}
		s.Blocks = append(s.Blocks, b)
	}
	return s, c.err()
}

// endless reports whether a selection goes on with the dataset.
func (s *Selection) endless() bool {
	return slices.ContainsFunc(s.Regular, func(r Repeat) bool { return r.Count == Unlimited || r.Block == Unlimited })
}

// bounded is a limit of blocks that a regular selection becomes.
const bounded = 1 << 16

// In returns the blocks of a selection of a dataset of these dimensions, in the order of its elements.
func (s *Selection) In(dims []int64) ([]Block, error) {
	switch {
	case s.All:
		return []Block{{make([]int64, len(dims)), append([]int64{}, dims...)}}, nil
	case s.Regular == nil:
		for _, b := range s.Blocks {
			for i := range b.Start {
				if len(b.Start) != len(dims) || b.Start[i] > dims[i]-b.Count[i] {
					return nil, corrupt("a block of %v elements at %v does not fit into %v", b.Count, b.Start, dims)
				}
			}
		}
		return s.Blocks, nil
	case s.endless():
		return nil, unsupported("a selection without an end")
	case len(s.Regular) != len(dims):
		return nil, corrupt("a selection of %d dimensions of a dataset of %d", len(s.Regular), len(dims))
	}
	all := []Block{{}}
	for i, r := range s.Regular {
		if r.Block == r.Stride && r.Count > 1 && r.Count < math.MaxInt64/r.Block { // they are one
			r.Block, r.Count = r.Block*r.Count, 1
		}
		if r.Count > bounded/int64(max(len(all), 1)) {
			return nil, overLimit("a selection", r.Count*int64(len(all)), bounded)
		}
		if last := r.Start + max(r.Count-1, 0)*r.Stride + r.Block; r.Count > 0 && (last > dims[i] || last < 0) {
			return nil, corrupt("a selection up to %d does not fit into %v", last, dims)
		}
		var next []Block
		for _, b := range all {
			for k := range r.Count {
				next = append(next, Block{append(b.Start[:i:i], r.Start+k*r.Stride), append(b.Count[:i:i], r.Block)})
			}
		}
		all = next
	}
	return all, nil
}

// Region parses the selection of a region reference.
func (f *File) Region(v RegionValue) (*Selection, error) {
	s, err := parseSelection(f.cursor(v.Selection))
	return s, f.place("region reference", -1, err)
}
