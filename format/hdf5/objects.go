package hdf5

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync"

	"github.com/holdall/holdall/codec"
	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/kit"
	h5 "github.com/holdall/holdall/hdf5"
)

// objects presents a file as a tree. Groups are directories. Datasets are files with their
// elements, in the order and types of the file. Attributes are properties: "@NAME" in their
// group, "DATASET@NAME" beside their dataset.
type objects struct {
	*kit.Index
	a   *archive
	all kit.Entries

	mu   sync.Mutex
	last slab
}

// Attributes of entries of datasets.
const (
	typeAttr    = "type"
	shapeAttr   = "shape"
	chunkAttr   = "chunk"
	filtersAttr = "filters"
)

// dataset has what is needed to read a dataset whose elements have a fixed size.
type dataset struct {
	*h5.Object
	path string
	cut  cut

	mu      sync.Mutex
	written []int64 // see rows; nil until it is needed
}

func newObjects(ctx context.Context, a *archive) (*objects, error) {
	r := &objects{a: a}
	t := &texter{a: a, all: true}
	var all kit.Entries
	var texts []*h5.Object // datasets whose elements are elsewhere, and their positions in all
	var textAt []int
	for v, err := range a.tree() {
		if err != nil {
			return nil, err
		}
		if v.link != nil {
			all = append(all, r.link(v))
			continue
		}
		attrs := v.path + "@"
		switch o := v.object; o.Kind {
		case h5.Group:
			if attrs = "@"; v.path != "" {
				attrs = v.path + "/@"
				all = append(all, format.Entry{Name: v.path, Kind: format.Dir})
			}
		case h5.NamedType:
			all = append(all, r.namedType(v))
		case h5.Dataset:
			e := r.dataset(v)
			if e.Fault == nil && leadsOn(o.Type) && e.Size > 0 {
				texts, textAt = append(texts, o), append(textAt, len(all))
			}
			all = append(all, e)
		}
		for i := range v.object.Attributes {
			all = append(all, r.attribute(t, attrs, v.object, &v.object.Attributes[i]))
		}
	}
	if err := r.texts(ctx, t, all, texts, textAt); err != nil {
		return nil, err
	}
	r.all, r.Index = all, kit.NewIndex(all)
	return r, nil
}

// leadsOn reports whether elements of a type are references to data elsewhere.
func leadsOn(t *h5.Datatype) bool {
	switch t.Class {
	case h5.Variable, h5.Reference:
		return true
	case h5.Array:
		return leadsOn(t.Base)
	case h5.Compound:
		return slices.ContainsFunc(t.Fields, func(f h5.Field) bool { return leadsOn(f.Type) })
	}
	return false
}

// texts makes the contents of datasets whose elements are elsewhere: a line of JSON for each
// element.
func (r *objects) texts(ctx context.Context, t *texter, all kit.Entries, of []*h5.Object, at []int) error {
	room := r.a.limits.Index
	for len(of) > 0 {
		n, bytes := 0, int64(0)
		for n < len(of) && (n == 0 || bytes+of[n].Bytes() <= maxObjects) {
			bytes += of[n].Bytes()
			n++
		}
		found, err := r.a.f.Elements(ctx, of[:n], true)
		if err != nil {
			return err
		}
		for i, x := range found {
			e := &all[at[i]]
			var text []byte
			err := x.Err
			s, single := single(of[i].Space, x.Values)
			if single && err == nil {
				text, x.Values = []byte(s), nil
			}
			for _, v := range x.Values {
				if text, err = t.value(text, of[i].Type, v); err != nil {
					break
				}
				text = append(text, '\n')
			}
			if err != nil {
				e.Fault = r.a.fault(e.Name, err)
				continue
			}
			if room -= int64(len(text)); room < 0 {
				return r.a.corrupt("", &h5.Error{File: r.a.name, What: "elements", Off: of[i].Addr, Err: fmt.Errorf("as text they take more than %d bytes: %w", r.a.limits.Index, h5.ErrLimit)})
			}
			e.Ref, e.Size = text, int64(len(text))
		}
		of, at = of[n:], at[n:]
	}
	return nil
}

// link returns the entry of a soft link, or of a link that is only named.
func (r *objects) link(v visit) format.Entry {
	e := format.Entry{Name: v.path, Kind: format.Symlink, Link: v.link.Target}
	if v.link.Kind != h5.SoftLink {
		e = format.Entry{Name: v.path, Fault: r.a.fault(v.path, linkError(v.link))}
	} else if to, absolute := strings.CutPrefix(e.Link, "/"); absolute { // relative to the folder of the link
		e.Link = strings.Repeat("../", strings.Count(v.path, "/")) + to
	}
	return e
}

func (r *objects) namedType(v visit) format.Entry {
	e := format.Entry{Name: v.path, Kind: format.Property}
	if v.object.Type == nil {
		e.Fault = r.a.fault(v.path, v.object.Err)
		return e
	}
	text := []byte(v.object.Type.String() + "\n")
	e.Ref, e.Size = text, int64(len(text))
	return e
}

func (r *objects) dataset(v visit) format.Entry {
	o := v.object
	e := format.Entry{Name: v.path}
	if o.Type != nil {
		e.Attr = map[string]string{typeAttr: o.Type.String(), shapeAttr: "scalar"}
		if dims := o.Space.Dims; o.Space.Null {
			e.Attr[shapeAttr] = "empty"
		} else if len(dims) > 0 {
			e.Attr[shapeAttr] = byX(dims)
		}
		if o.Layout.Class == h5.Chunked {
			e.Attr[chunkAttr] = byX(o.Layout.Chunk)
		}
		var names []string
		for _, f := range o.Filters {
			names = append(names, f.Name)
		}
		if names != nil {
			e.Attr[filtersAttr] = strings.Join(names, ", ")
		}
	}
	err := o.Readable()
	if err == nil && !o.Space.Null {
		if e.Size = o.Bytes(); e.Size < 0 {
			err = unsupported("its elements have too many bytes")
		} else if leadsOn(o.Type) && e.Size > maxObjects {
			err = unsupported("%d bytes of elements of type %v are too many to be shown as text", e.Size, o.Type)
		}
	}
	if err != nil {
		e.Size, e.Fault = 0, r.a.fault(v.path, err)
		return e
	}
	e.Ref = &dataset{Object: o, path: v.path, cut: cutOf(o)}
	return e
}

// byX returns a shape as people write it.
func byX(dims []int64) string {
	var b strings.Builder
	for i, n := range dims {
		if i > 0 {
			b.WriteString(" × ")
		}
		fmt.Fprint(&b, n)
	}
	return b.String()
}

// attribute returns an entry whose content is text: the string if it is one, otherwise JSON.
func (r *objects) attribute(t *texter, in string, o *h5.Object, at *h5.Attribute) format.Entry {
	e := format.Entry{Name: in + strings.ReplaceAll(at.Name, "/", "∕"), Kind: format.Property}
	var text []byte
	err := at.Err
	if s, ok := single(at.Space, at.Values); ok && err == nil {
		text = []byte(s)
	} else if err == nil && !at.Space.Null {
		text, err = t.attribute(nil, at)
	}
	if err != nil {
		e.Fault = r.a.fault(e.Name, err)
		return e
	}
	e.Ref, e.Size = text, int64(len(text))
	return e
}

// single returns the value of a single string.
func single(space h5.Space, values []any) (string, bool) {
	if len(space.Dims) > 0 || len(values) != 1 {
		return "", false
	}
	s, ok := values[0].(string)
	return s, ok
}

func (r *objects) Can() format.Abilities {
	can := r.Index.Can()
	can.Run, can.Doubt, can.Decoder, can.Verify = r.Run, r.a.doubt, r.decoder, r.a.checks(r.Index)
	return can
}

// Run returns the extent of a dataset's elements, if they are one run.
func (r *objects) Run(e format.Entry) (format.Extent, bool) {
	d, ok := e.Ref.(*dataset)
	if !ok || e.Size == 0 || d.Layout.Class != h5.Contiguous || d.Layout.Addr < 0 || d.Layout.Addr > r.a.f.Size()-e.Size {
		return format.Extent{}, false
	}
	return format.Extent{Size: e.Size, Object: r.a.name, Off: d.Layout.Addr, Len: e.Size}, true
}

func (r *objects) Extents(ctx context.Context, e format.Entry, off, n int64) iter.Seq2[format.Extent, error] {
	return func(yield func(format.Extent, error) bool) {
		if e.Fault != nil {
			yield(format.Extent{}, e.Unreadable("hdf5"))
			return
		}
		if n <= 0 || e.Size == 0 {
			return
		}
		if x, ok := r.Run(e); ok {
			yield(x, nil)
			return
		}
		switch ref := e.Ref.(type) {
		case []byte:
			yield(format.Extent{Size: e.Size, Object: r.a.name, Codec: codec.Inline, Data: ref}, nil)
		case *dataset:
			r.slabs(ctx, ref, off, min(off+n, e.Size))(yield)
		default:
			yield(format.Extent{}, e.Unreadable("hdf5"))
		}
	}
}

// slab is a run of consecutive elements of a dataset.
type slab struct {
	addr, at int64
	data     []byte
}

// The usual and the largest size of a slab.
const (
	slabSize = 4 << 20
	slabMost = 64 << 20
)

// cut specifies which elements of an array are read together: step positions along one dimension, at
// one position of the dimensions before it, and all of those after it.
type cut struct {
	axis      int
	step, row int64 // bytes of one position along axis
}

func cutOf(o *h5.Object) cut {
	c := cut{step: 1, row: o.Bytes()}
	for d, n := range o.Space.Dims {
		if n == 0 || c.row <= 0 {
			break
		}
		c.axis, c.row, c.step = d, c.row/n, 1
		if o.Layout.Class == h5.Chunked {
			c.step = min(o.Layout.Chunk[d], n)
		}
		if c.row <= slabMost/c.step {
			break
		}
		if d == len(o.Space.Dims)-1 {
			c.step = max(1, slabMost/c.row)
		}
	}
	c.step *= max(1, slabSize/max(c.row*c.step, 1))
	return c
}

// slab returns the elements that are read together for the byte at, and their range of bytes.
func (d *dataset) slab(at int64) (start, count []int64, from, n int64) {
	dims, c := d.Space.Dims, d.cut
	if len(dims) == 0 {
		return nil, nil, 0, c.row
	}
	start, count = make([]int64, len(dims)), slices.Clone(dims)
	i := at / c.row
	place, in := i/dims[c.axis], i%dims[c.axis]
	first := in / c.step * c.step
	start[c.axis], count[c.axis] = first, min(c.step, dims[c.axis]-first)
	from, n = (i-in+first)*c.row, count[c.axis]*c.row
	for j := c.axis - 1; j >= 0; j-- {
		start[j], count[j], place = place%dims[j], 1, place/dims[j]
	}
	return start, count, from, n
}

// hole returns how many bytes from the start of a slab were never written.
func (d *dataset) hole(ctx context.Context, start, count []int64, from, n int64) int64 {
	switch d.Layout.Class {
	case h5.Contiguous:
		if d.Layout.Addr < 0 {
			return d.Bytes() - from
		}
		return 0
	case h5.Chunked:
	default:
		return 0
	}
	rows, err := d.rows(ctx)
	if err != nil {
		return 0 // reading them reports the error
	}
	axis := d.cut.axis
	lo := d.number(start)
	hi := lo + (start[axis]+count[axis]-1)/d.Layout.Chunk[axis] - start[axis]/d.Layout.Chunk[axis]
	i, _ := slices.BinarySearch(rows, lo)
	switch {
	case i < len(rows) && rows[i] <= hi:
		return 0
	case axis > 0 && len(rows) > 0:
		return n
	case i == len(rows):
		return d.Bytes() - from
	}
	return rows[i]*d.Layout.Chunk[0]/d.cut.step*d.cut.step*d.cut.row - from
}

// number returns the number of the row of chunks with these elements, in the dimensions up to
// that of the cut.
func (d *dataset) number(at []int64) (n int64) {
	for j, chunk := range d.Layout.Chunk[:d.cut.axis+1] {
		n = n*((d.Space.Dims[j]+chunk-1)/chunk) + at[j]/chunk
	}
	return n
}

// rows returns the numbers of those rows of chunks that have a stored chunk.
func (d *dataset) rows(ctx context.Context) ([]int64, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.written != nil {
		return d.written, nil
	}
	all := []int64{}
	for c, err := range d.Chunks(ctx) {
		if err != nil {
			return nil, err
		}
		n := d.number(c.Offset)
		if last := len(all) - 1; last < 0 || all[last] != n {
			all = append(all, n)
		}
	}
	slices.Sort(all)
	d.written = slices.Compact(all)
	return d.written, nil
}

// slabs yields the extents of bytes off to end of a dataset.
func (r *objects) slabs(ctx context.Context, d *dataset, off, end int64) iter.Seq2[format.Extent, error] {
	return func(yield func(format.Extent, error) bool) {
		blank := !slices.ContainsFunc(d.Fill, func(b byte) bool { return b != 0 })
		var hole format.Extent // a hole that has not been yielded yet
		for at := off; at < end; {
			start, count, from, n := d.slab(at)
			at = from + n
			if blank {
				if m := d.hole(ctx, start, count, from, n); m > 0 {
					if hole.Size == 0 {
						hole = format.Extent{At: from, Codec: codec.Zero}
					}
					hole.Size += m
					at = from + m
					continue
				}
			}
			if hole.Size > 0 && !yield(hole, nil) {
				return
			}
			hole.Size = 0
			if !yield(format.Extent{At: from, Size: n, Object: r.a.name, Codec: codec.Inline, Make: func(ctx context.Context) ([]byte, error) {
				return r.read(ctx, d, start, count, from, n)
			}}, nil) {
				return
			}
		}
		if hole.Size > 0 {
			yield(hole, nil)
		}
	}
}

// read reads a slab, and keeps it, because it may be requested in parts.
func (r *objects) read(ctx context.Context, d *dataset, start, count []int64, at, n int64) ([]byte, error) {
	r.mu.Lock()
	s := r.last
	r.mu.Unlock()
	if s.addr == d.Addr && s.at == at && s.data != nil {
		return s.data, nil
	}
	s = slab{addr: d.Addr, at: at, data: make([]byte, n)}
	if err := d.Read(ctx, s.data, start, count); err != nil {
		return nil, r.a.corrupt(d.path, err)
	}
	r.mu.Lock()
	r.last = s
	r.mu.Unlock()
	return s.data, nil
}

// Regions yields all bytes that are not the elements of a dataset in one run.
func (r *objects) Regions(ctx context.Context) iter.Seq2[format.Region, error] {
	return func(yield func(format.Region, error) bool) {
		var used kit.Ranges
		for e, err := range r.Entries(ctx) {
			if err != nil {
				yield(format.Region{}, err)
				return
			}
			if x, ok := r.Run(e); ok {
				used.Add(x.Off, x.Off+x.Len)
			}
		}
		used.Join()
		r.a.regions(ctx, &used)(yield)
	}
}

func (r *objects) About(context.Context) (format.About, error) { return r.a.about(), nil }

func (r *objects) Close() error { return r.a.close() }
