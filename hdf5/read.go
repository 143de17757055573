package hdf5

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"runtime"
	"slices"

	"github.com/holdall/holdall/format/kit/pipe"
)

const (
	dataGap  = 16 << 10 // gap between parts of an array that is read with them
	dataRun  = 4 << 20  // largest request for an array, unless a chunk is longer
	slabSize = 16 << 20 // memory of WriteElements
	maxParts = 1 << 14  // largest number of parts in a request
)

// part is a run of stored bytes of an array.
type part struct {
	span
	to   int64   // destination of contiguous bytes
	at   []int64 // first element of a chunk
	mask uint32
}

// run is a run of parts that one request reads.
type run struct {
	span
	parts []part
}

// selection is a range of an array to read: count elements from start in each dimension.
type selection struct {
	start, count []int64
	stride       []int64 // bytes from one element to the next in the result
	bytes        int64
}

// Bytes returns the size of all elements in bytes, or -1 if it is too large for an int64 or there
// is no datatype.
func (o *Object) Bytes() int64 {
	if o.Type == nil || o.Space.Elements() < 0 {
		return -1
	}
	n, ok := multiply(o.Space.Elements(), o.Type.Size)
	if !ok {
		return -1
	}
	return n
}

// Read reads elements into p: in each dimension count elements from start, the last dimension
// varying fastest. If start and count are nil, it reads all elements. The length of p must be the
// size of these elements. The elements are returned as they are stored; those that were never
// written have the fill value.
func (o *Object) Read(ctx context.Context, p []byte, start, count []int64) error {
	if err := o.Readable(); err != nil {
		return err
	}
	s, err := o.selection(start, count)
	if err != nil {
		return err
	}
	if s.bytes != int64(len(p)) {
		return o.misread("expected room for %d bytes, found %d", s.bytes, len(p))
	}
	return o.read(ctx, p, s)
}

// misread returns an error that is the caller's fault.
func (o *Object) misread(format string, a ...any) error {
	return &fs.PathError{Op: "read", Path: o.Path, Err: fmt.Errorf(format+": %w", append(a, fs.ErrInvalid)...)}
}

func (o *Object) selection(start, count []int64) (s selection, err error) {
	dims := o.Space.Dims
	if start == nil && count == nil {
		start, count = make([]int64, len(dims)), dims
	}
	if len(start) != len(dims) || len(count) != len(dims) {
		return s, o.misread("expected %d dimensions, found %d and %d", len(dims), len(start), len(count))
	}
	for i, d := range dims {
		if start[i] < 0 || count[i] < 0 || start[i] > d || count[i] > d-start[i] {
			return s, o.misread("expected a range of dimensions %v, found %v from %v on", dims, count, start)
		}
	}
	s = selection{start: start, count: count, stride: make([]int64, len(dims))}
	ok := true
	if s.bytes, ok = multiply(append([]int64{o.Type.Size}, count...)...); !ok {
		return s, o.f.place("data", o.Layout.Addr, corrupt("%v elements of %d bytes are too many", count, o.Type.Size))
	}
	if o.Space.Null {
		s.bytes = 0
	}
	step := o.Type.Size
	for i := len(dims) - 1; i >= 0; i-- {
		s.stride[i] = step
		step *= max(1, count[i])
	}
	return s, nil
}

func (o *Object) read(ctx context.Context, p []byte, s selection) error {
	if len(p) == 0 {
		return ctx.Err()
	}
	l := o.Layout
	switch l.Class {
	case Compact:
		if len(l.Data) == 0 {
			fill(p, o.Fill)
			return nil
		}
		for x := range o.plainParts(s) {
			copy(p[x.to:], l.Data[x.off:x.end()])
		}
		return nil
	case External:
		return o.readSegments(ctx, p, s)
	case Virtual:
		return o.readMappings(ctx, p, s)
	case Contiguous:
		if l.Addr == undefined {
			fill(p, o.Fill)
			return nil
		}
		if err := o.f.extent(l.Addr, o.Bytes()); err != nil {
			return o.f.place("data", l.Addr, err)
		}
		parts := func(yield func(part, error) bool) {
			for x := range o.plainParts(s) {
				if x.off += l.Addr; !yield(x, nil) {
					return
				}
			}
		}
		return o.runs(ctx, parts, func(x part, b []byte) error {
			copy(p[x.to:], b)
			return nil
		})
	}
	fill(p, o.Fill)
	return o.readChunks(ctx, p, s)
}

// fill fills p with copies of an element.
func fill(p, element []byte) {
	if clear(p); !slices.ContainsFunc(element, func(b byte) bool { return b != 0 }) {
		return
	}
	for n := copy(p, element); n < len(p); n *= 2 {
		copy(p[n:], p[:n])
	}
}

// plainParts yields the runs of bytes of a selection from an array that is stored in one piece,
// from its beginning.
func (o *Object) plainParts(s selection) func(yield func(part) bool) {
	dims := o.Space.Dims
	// What is complete in the last dimensions is one run.
	inner, n := len(dims), o.Type.Size
	for inner > 0 {
		inner--
		if n *= s.count[inner]; s.count[inner] != dims[inner] {
			break
		}
	}
	step := make([]int64, len(dims))
	for i, size := len(dims)-1, o.Type.Size; i >= 0; i-- {
		step[i] = size
		size *= dims[i]
	}
	return func(yield func(part) bool) {
		at := make([]int64, inner)
		for {
			x := part{span: span{0, n}}
			for i := range dims {
				x.off += s.start[i] * step[i]
				if i < inner {
					x.off, x.to = x.off+at[i]*step[i], x.to+at[i]*s.stride[i]
				}
			}
			// This keeps requests from becoming too large.
			for y := x; y.n > 0; {
				z := y
				z.n = min(z.n, dataRun)
				if !yield(z) {
					return
				}
				y.off, y.to, y.n = y.off+z.n, y.to+z.n, y.n-z.n
			}
			i := inner - 1
			for ; i >= 0; i-- {
				if at[i]++; at[i] < s.count[i] {
					break
				}
				at[i] = 0
			}
			if i < 0 {
				return
			}
		}
	}
}

// readChunks reads the chunks of a selection, several at a time.
func (o *Object) readChunks(ctx context.Context, p []byte, s selection) error {
	g := o.grid()
	if g.bytes > o.f.Limit {
		return o.f.place("chunk", o.Layout.Addr, overLimit("a chunk", g.bytes, o.f.Limit))
	}
	b := box{make([]int64, len(s.start)), make([]int64, len(s.start))}
	for i := range s.start {
		b.from[i], b.to[i] = s.start[i]/g.chunk[i], (s.start[i]+s.count[i]-1)/g.chunk[i]
	}
	parts := pipe.Told(func(tell func(part) error) error {
		one := func(c Chunk) error {
			return tell(part{span: span{c.Addr, c.Size}, at: c.Offset, mask: c.Mask})
		}
		if o.indexed && o.indexErr == nil {
			at := make([]int64, len(g.chunk))
			for _, c := range o.chunks {
				for i := range at {
					at[i] = c.Offset[i] / g.chunk[i]
				}
				if b.has(at) {
					if err := one(c); err != nil {
						return err
					}
				}
			}
			return nil
		}
		return o.walkChunks(o.f.wave(ctx), b, one, func(err error) error { return err })
	})
	return o.runs(ctx, parts, func(x part, stored []byte) error {
		raw, err := o.chunk(g, x, stored)
		if err != nil {
			return o.f.place("chunk", x.off, err)
		}
		o.copyChunk(g, s, x.at, raw, p)
		return nil
	})
}

// Decode decodes the stored bytes of a chunk. The result has all elements of the chunk, including
// those beyond the end of the array.
func (o *Object) Decode(c Chunk, stored []byte) ([]byte, error) {
	if err := o.Readable(); err != nil {
		return nil, err
	}
	g := o.grid()
	if g.bytes > o.f.Limit {
		return nil, o.f.place("chunk", c.Addr, overLimit("a chunk", g.bytes, o.f.Limit))
	}
	raw, err := o.chunk(g, part{at: c.Offset, mask: c.Mask}, stored)
	return raw, o.f.place("chunk", c.Addr, err)
}

func (o *Object) chunk(g grid, x part, stored []byte) ([]byte, error) {
	if o.Layout.PlainEdges {
		for i, at := range x.at {
			if at > g.dims[i]-g.chunk[i] {
				return unfilter(nil, 0, stored, g.bytes)
			}
		}
	}
	return unfilter(o.Filters, x.mask, stored, g.bytes)
}

// copyChunk copies the elements of a selection that are in a chunk.
func (o *Object) copyChunk(g grid, s selection, chunkAt []int64, raw, p []byte) {
	rank := len(g.chunk)
	n := make([]int64, rank)     // elements that both have
	steps := make([]int64, rank) // bytes from one element of the chunk to the next
	var from, to int64
	step := o.Type.Size
	for i := rank - 1; i >= 0; i-- {
		first := max(chunkAt[i], s.start[i])
		if n[i] = min(chunkAt[i]+g.chunk[i], s.start[i]+s.count[i]) - first; n[i] <= 0 {
			return
		}
		from += (first - chunkAt[i]) * step
		to += (first - s.start[i]) * s.stride[i]
		steps[i] = step
		step *= g.chunk[i]
	}
	// What is contiguous in both is copied at once.
	inner, size := rank, o.Type.Size
	for inner > 0 && steps[inner-1] == size && s.stride[inner-1] == size {
		inner--
		size *= n[inner]
	}
	at := make([]int64, inner)
	for {
		copy(p[to:to+size], raw[from:])
		i := inner - 1
		for ; i >= 0; i-- {
			from, to = from+steps[i], to+s.stride[i]
			if at[i]++; at[i] < n[i] {
				break
			}
			from, to = from-n[i]*steps[i], to-n[i]*s.stride[i]
			at[i] = 0
		}
		if i < 0 {
			return
		}
	}
}

// runs reads parts, several requests at a time; parts that are close together share a request.
// stored is valid only until do returns.
func (o *Object) runs(ctx context.Context, parts func(yield func(part, error) bool), do func(x part, stored []byte) error) error {
	most := int64(1)
	if o.Layout.Class == Chunked {
		most = o.grid().bytes
	}
	workers := int(max(1, min(atOnce, o.f.Limit/(3*(most+dataRun)), int64(8*runtime.GOMAXPROCS(0)))))
	joined := func(yield func(run, error) bool) {
		var r run
		for x, err := range parts {
			if err != nil {
				yield(r, err)
				return
			}
			// Chunks do not always come in the order in which they are stored.
			if len(r.parts) > 0 {
				end := max(r.end(), x.end())
				if x.off < r.off || x.off > r.end()+dataGap || end-r.off > dataRun || len(r.parts) == maxParts {
					if !yield(r, nil) {
						return
					}
					r = run{}
				} else {
					r.n = end - r.off
				}
			}
			if len(r.parts) == 0 {
				r.span = x.span
			}
			r.parts = append(r.parts, x)
		}
		if len(r.parts) > 0 {
			yield(r, nil)
		}
	}
	return pipe.Each(ctx, joined, workers, func(ctx context.Context, r run) error {
		if r.n > o.f.Limit {
			return o.f.place("chunk", r.off, overLimit("stored data", r.n, o.f.Limit))
		}
		b := o.f.cache.find(r.span)
		if b == nil {
			b = make([]byte, r.n)
			if err := o.f.obj.ReadAt(ctx, b, r.off); err != nil {
				return err
			}
		}
		for _, x := range r.parts {
			if err := do(x, b[x.off-r.off:][:x.n:x.n]); err != nil {
				return err
			}
		}
		return nil
	})
}

// WriteElements writes all elements, as Read returns them, to w. It holds several rows of the
// array in memory, and at least a row of chunks.
func (o *Object) WriteElements(ctx context.Context, w io.Writer) error {
	return o.Slabs(ctx, func(b []byte) error {
		_, err := w.Write(b)
		return err
	})
}

// Slabs calls fn with all elements in order, several rows of the array at a time. The slice is
// valid only until fn returns.
func (o *Object) Slabs(ctx context.Context, fn func([]byte) error) error {
	if err := o.Readable(); err != nil {
		return err
	}
	all, err := o.selection(nil, nil)
	if err != nil || all.bytes == 0 {
		return err
	}
	rows, step := int64(1), int64(1)
	if len(all.count) > 0 {
		rows = all.count[0]
		if o.Layout.Class == Chunked {
			step = o.Layout.Chunk[0]
		}
	}
	row := all.bytes / rows
	if least, ok := multiply(row, min(step, rows)); !ok || least > o.f.Limit {
		return o.f.place("data", o.Layout.Addr, overLimit("a row of chunks", least, o.f.Limit))
	}
	step = min(rows, max(1, slabSize/row/step)*step)
	buf := make([]byte, step*row)
	for first := int64(0); first < rows; first += step {
		n := min(step, rows-first)
		start, count := slices.Clone(all.start), slices.Clone(all.count)
		if len(start) > 0 {
			start[0], count[0] = first, n
		}
		s, err := o.selection(start, count)
		if err != nil {
			return err
		}
		b := buf[:n*row]
		if err := o.read(ctx, b, s); err != nil {
			return err
		}
		if err := fn(b); err != nil {
			return err
		}
	}
	return nil
}
