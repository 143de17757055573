package hdf5

import (
	"context"
	"iter"
	"slices"

	"github.com/holdall/holdall/format/kit/pipe"
)

// A Chunk is a stored part of an array.
type Chunk struct {
	// Offset is the position of the chunk's first element in the array.
	Offset []int64
	// Addr and Size are its offset in the file and its stored size.
	Addr, Size int64
	// Mask has a bit for each filter that was left out, the lowest bit for the first filter.
	Mask uint32
}

// grid describes how an array is divided into chunks.
type grid struct {
	dims, max, chunk []int64
	count            []int64 // chunks along each dimension of the array at its current size
	bytes            int64   // of a chunk without filters
}

func (o *Object) grid() grid {
	g := grid{dims: o.Space.Dims, max: o.Space.Max, chunk: o.Layout.Chunk}
	g.count = make([]int64, len(g.dims))
	for i, d := range g.dims {
		g.count[i] = ceil(d, g.chunk[i])
	}
	g.bytes, _ = multiply(append([]int64{o.Type.Size}, g.chunk...)...)
	return g
}

func ceil(a, b int64) int64 {
	if a <= 0 {
		return 0
	}
	return (a-1)/b + 1
}

// box is a range of chunks in the grid; both ends are included.
type box struct{ from, to []int64 }

// whole returns the box of all chunks. It reports false if there are none.
func (g grid) whole() (box, bool) {
	b := box{make([]int64, len(g.count)), make([]int64, len(g.count))}
	for i, n := range g.count {
		if n == 0 {
			return b, false
		}
		b.to[i] = n - 1
	}
	return b, true
}

func (b box) has(at []int64) bool {
	for i, x := range at {
		if x < b.from[i] || x > b.to[i] {
			return false
		}
	}
	return true
}

// index walks the chunks of a dataset in a box.
type index struct {
	grid
	w    *wave
	o    *Object
	box  box
	tell func(Chunk) error
	// broken is called for a damaged part, and decides whether to continue.
	broken func(error) error
	left   int64   // positions for which no chunk has been reported yet
	slab   []int64 // memory for offsets
	ahead  int     // offsets that the last slab had
}

// found reports a chunk if it is in the box. at is its position in the grid, which found copies.
func (x *index) found(at []int64, addr, size int64, mask uint32) error {
	if addr == undefined || !x.box.has(at) {
		return nil
	}
	if err := x.w.f.extent(addr, size); err != nil {
		return x.broken(x.w.f.place("chunk", addr, err))
	}
	if x.left--; x.left < 0 {
		return x.broken(x.w.f.place("chunk", addr, corrupt("more chunks than the %v of the array", x.count)))
	}
	n := len(at)
	if len(x.slab) < n {
		x.ahead = min(2*x.ahead+4, 256)
		x.slab = make([]int64, x.ahead*n)
	}
	offset := x.slab[:n:n]
	x.slab = x.slab[n:]
	for i := range at {
		offset[i] = at[i] * x.chunk[i]
	}
	return x.tell(Chunk{offset, addr, size, mask})
}

// extent returns an error if a run of bytes is not in the file.
func (f *File) extent(off, n int64) error {
	if off < 0 || n < 0 || off > f.size || n > f.size-off {
		return corrupt("%d bytes exceed the file of %d bytes", n, f.size)
	}
	return nil
}

func (x *index) walk() error {
	if x.o.Layout.Addr == undefined {
		return nil
	}
	switch l := x.o.Layout; l.Index {
	case BTree1:
		return x.btree1()
	case SingleChunk:
		return x.found(make([]int64, len(x.chunk)), l.Addr, l.single.Size, l.single.Mask)
	case Implicit:
		return x.implicit()
	case FixedArray:
		return x.fixedArray()
	case ExtensibleArray:
		return x.extensibleArray()
	}
	return x.btree2()
}

// btree1 walks a version 1 B-tree. A key is the stored size (u32), the mask (u32), the position
// of the chunk's first element (8 bytes each), and 8 bytes of zeros.
func (x *index) btree1() error {
	n := len(x.chunk)
	at := make([]int64, n)
	place := func(key []byte) ([]int64, error) {
		c := x.w.f.cursor(key[8:])
		for i := range at {
			v := c.size(8)
			if at[i] = v / x.chunk[i]; v%x.chunk[i] != 0 {
				return at, corrupt("expected a chunk at multiples of %v, found %d", x.chunk, v)
			}
		}
		return at, nil
	}
	t := tree1{w: x.w, kind: 1, keySize: 16 + 8*n, k: x.w.f.chunkK, broken: x.broken}
	t.leaf = func(key []byte, child int64) error {
		at, err := place(key)
		if err != nil {
			return x.broken(x.w.f.place("chunk", child, err))
		}
		c := x.w.f.cursor(key)
		return x.found(at, child, int64(c.u32()), c.u32())
	}
	t.outside = func(from, to []byte) bool {
		before, err := place(from)
		if err == nil && slices.Compare(before, x.box.to) > 0 {
			return true
		}
		// The last key is that of the last chunk, with values other than zeros at the end.
		behind, err := place(to)
		least := 0
		if x.w.f.cursor(to[len(to)-8:]).size(8) > 0 {
			least = -1
		}
		return err == nil && slices.Compare(behind, x.box.from) <= least
	}
	return t.walk(x.o.Layout.Addr)
}

// btree2 walks a version 2 B-tree. A record is the address; for filtered chunks the stored size,
// in as many bytes as the record has room for, and the mask (u32); and the position in the grid
// (8 bytes each).
func (x *index) btree2() error {
	n := len(x.chunk)
	kind, extra := byte(treeChunks), 0
	filtered := len(x.o.Filters) > 0
	if filtered {
		kind = treeFilteredChunks
	}
	t, err := x.w.tree2(x.o.Layout.Addr, kind)
	if err != nil {
		return err
	}
	if extra = t.recordSize - x.w.f.offsets - 8*n; filtered {
		extra -= 4
	}
	if extra < 0 || extra > 8 || !filtered && extra != 0 || filtered && extra == 0 {
		return x.w.f.place("B-tree header", x.o.Layout.Addr, corrupt("expected records of chunks of %d dimensions, found %d bytes", n, t.recordSize))
	}
	at := make([]int64, n)
	place := func(rec []byte) []int64 {
		c := x.w.f.cursor(rec[len(rec)-8*n:])
		for i := range at {
			at[i] = c.size(8)
		}
		return at
	}
	t.broken = x.broken
	t.record = func(rec []byte) error {
		c := x.w.f.cursor(rec)
		addr, size, mask := c.addr(), x.bytes, uint32(0)
		if filtered {
			size, mask = c.size(extra), c.u32()
		}
		return x.found(place(rec), addr, size, mask)
	}
	t.outside = func(from, to []byte) bool {
		return from != nil && slices.Compare(place(from), x.box.to) >= 0 || to != nil && slices.Compare(place(to), x.box.from) <= 0
	}
	return t.walk()
}

// Chunks yields the stored chunks, in no particular order. If a part of the index is damaged, it
// yields an error that wraps [ErrCorrupt], and continues with the rest.
func (o *Object) Chunks(ctx context.Context) iter.Seq2[Chunk, error] {
	return func(yield func(Chunk, error) bool) {
		if o.indexed {
			for _, c := range o.chunks {
				if !yield(c, nil) {
					return
				}
			}
			if o.indexErr != nil {
				yield(Chunk{}, o.indexErr)
			}
			return
		}
		walk := func(tell func(Chunk) error) error {
			box, ok := o.wholeBox()
			if !ok {
				return nil
			}
			return o.walkChunks(o.f.wave(ctx), box, tell, func(err error) error {
				if !yield(Chunk{}, err) {
					return errStop
				}
				return nil
			})
		}
		for c, err := range pipe.Told(walk) {
			if err == errStop || !yield(c, err) {
				return
			}
		}
	}
}

var errStop = &marked{text: "stopped"}

// wholeBox returns the box of all chunks. It reports false if there are none.
func (o *Object) wholeBox() (box, bool) {
	if o.Kind != Dataset || o.Layout.Class != Chunked || o.dataErr != nil || o.Space.Null {
		return box{}, false
	}
	return o.grid().whole()
}

// walkChunks reports the chunks in a box.
func (o *Object) walkChunks(w *wave, b box, tell func(Chunk) error, broken func(error) error) error {
	x := &index{grid: o.grid(), w: w, o: o, box: b, tell: tell, broken: broken}
	var ok bool
	if x.left, ok = multiply(x.count...); !ok {
		x.left = noSize
	}
	err := o.f.place("chunk index", o.Layout.Addr, x.walk())
	if err != nil && ofFile(err) {
		return broken(err)
	}
	return err
}
