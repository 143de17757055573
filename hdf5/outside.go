package hdf5

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/holdall/holdall/store"
)

// A Segment is a part of another file that has elements of a dataset.
type Segment struct {
	File      string
	Off, Size int64
}

// A Mapping is a part of a virtual dataset: the elements of a selection of it are those of a selection of another
// dataset. File is "." if that is in the same file.
type Mapping struct {
	File, Dataset string
	From, In      *Selection
}

const (
	maxSegments = 1 << 12
	maxMappings = 1 << 16
)

// parseSegments parses a list of other files: version, 3 reserved, slots and used slots (u16), the address of a heap
// with their names, and for each the place of its name, an offset, and a size.
func (w *wave) parseSegments(c *cursor) (all []Segment, err error) {
	if version := c.u8(); version != 1 {
		return nil, unsupported("version %d of lists of files is not supported", version)
	}
	c.skip(5)
	n, at := int(c.u16()), c.addr()
	if n > maxSegments {
		return nil, corrupt("expected at most %d files, found %d", maxSegments, n)
	}
	names, err := w.localHeap(at)
	for i := 0; i < n && err == nil; i++ {
		name, off, size := c.length(), c.length(), c.length()
		s := Segment{Off: off, Size: size}
		s.File, err = names.text(name)
		all = append(all, s)
	}
	return all, cmp.Or(err, c.err())
}

// parseMappings parses an object of the global heap: version, their number, for each the names of a file and a dataset
// and two selections, and a checksum. In version 1, flags come before the names: the file (bit 0) or the dataset (bit
// 1) is that of an earlier one, whose number follows instead, or the file is this one (bit 2).
func (f *File) parseMappings(b []byte) (all []Mapping, err error) {
	c := f.cursor(b)
	version := c.u8()
	if version > 1 {
		return nil, unsupported("version %d of mappings is not supported", version)
	}
	earlier := func() (m Mapping) {
		if i := c.length(); i < int64(len(all)) {
			return all[i]
		}
		c.short = true
		return m
	}
	n := c.length()
	if n > maxMappings {
		return nil, corrupt("expected at most %d mappings, found %d", maxMappings, n)
	}
	for range n {
		flags := byte(0)
		if version == 1 {
			flags = c.u8()
		}
		m := Mapping{File: "."}
		if flags&1 != 0 {
			m.File = earlier().File
		} else if flags&4 == 0 {
			m.File = c.text(1)
		}
		if flags&2 != 0 {
			m.Dataset = earlier().Dataset
		} else {
			m.Dataset = c.text(1)
		}
		if m.From, err = parseSelection(c); err == nil {
			m.In, err = parseSelection(c)
		}
		if err = cmp.Or(err, c.err()); err != nil {
			return nil, err
		}
		if m.In.endless() || m.From.endless() {
			return nil, unsupported("virtual datasets without an end are not supported: other files say how long they are")
		}
		m.File, m.Dataset = strings.ReplaceAll(m.File, "%%", "%"), strings.ReplaceAll(m.Dataset, "%%", "%")
		all = append(all, m)
	}
	if at := c.at; at+4 <= len(b) {
		if want, got := c.u32(), lookup3(b[:at]); want != got {
			return nil, badSum(want, got)
		}
	}
	return all, c.err()
}

// mappings reads those of a virtual dataset.
func (w *wave) mappings(at int64, number uint32) ([]Mapping, error) {
	if at == undefined {
		return nil, nil
	}
	heaps, err := w.collections([]int64{at}, nil)
	if err != nil {
		return nil, err
	}
	x := heaps[at]
	b := x.object(number)
	if b == nil {
		return nil, cmp.Or(x.err, error(corrupt("the global heap has no object %d", number)))
	}
	return w.f.parseMappings(b)
}

// other opens another file.
func (f *File) other(ctx context.Context, name string) (store.Object, error) {
	o, err := f.Outside(ctx, name)
	if errors.Is(err, fs.ErrNotExist) {
		err = unsupported("elements are in the file %q, which does not exist", name)
	}
	if err != nil {
		return nil, err
	}
	return o, nil
}

// readSegments reads elements from other files.
func (o *Object) readSegments(ctx context.Context, p []byte, s selection) (err error) {
	files := map[string]store.Object{}
	for x := range o.plainParts(s) {
		at := int64(0) // of a segment
		for _, seg := range o.Layout.Segments {
			end := at + min(seg.Size, math.MaxInt64-at)
			if from, to := max(x.off, at), min(x.end(), end); from < to {
				if files[seg.File] == nil {
					if files[seg.File], err = o.f.other(ctx, seg.File); err != nil {
						return err
					}
				}
				if err := files[seg.File].ReadAt(ctx, p[x.to+from-x.off:][:to-from], seg.Off+from-at); err != nil {
					return err
				}
			}
			at = end
		}
		if x.end() > at {
			return o.f.place("data", -1, corrupt("other files have %d bytes of it, expected %d", at, o.Bytes()))
		}
	}
	return nil
}

// A budget limits how many mappings one call follows: those of other virtual datasets, too.
type budget struct{ left atomic.Int64 }

type budgetKey struct{}

// readMappings reads elements of a virtual dataset.
func (o *Object) readMappings(ctx context.Context, p []byte, s selection) error {
	fill(p, o.Fill)
	if ctx.Value(budgetKey{}) == nil {
		b := &budget{}
		b.left.Store(maxMappings)
		ctx = context.WithValue(ctx, budgetKey{}, b)
	}
	for _, m := range o.Layout.Mappings {
		if err := o.readMapping(ctx, p, s, m); err != nil {
			return o.f.place("virtual dataset", -1, fmt.Errorf("%q in %q: %w", m.Dataset, m.File, err))
		}
	}
	return nil
}

func (o *Object) readMapping(ctx context.Context, p []byte, s selection, m Mapping) error {
	to, err := m.In.axes(o.Space.Dims)
	if err != nil {
		return err
	}
	for i, axis := range to {
		if !axis.meets(s.start[i], s.start[i]+s.count[i]) {
			return nil
		}
	}
	if ctx.Value(budgetKey{}).(*budget).left.Add(-1) < 0 {
		return overLimit("a virtual dataset", maxMappings+1, maxMappings)
	}
	f := o.f
	if m.File != "." {
		other, err := o.f.other(ctx, m.File)
		if err != nil {
			return err
		}
		if f, err = Open(ctx, other); err != nil {
			return err
		}
		f.Limit, f.Outside = o.f.Limit, o.f.Outside
	}
	src, err := f.Find(ctx, m.Dataset)
	if err == nil {
		err = src.Readable()
	}
	switch {
	case err != nil:
		return err
	case m.File == "." && src.Layout.Class == Virtual:
		return unsupported("a virtual dataset of a virtual dataset in the same file is not supported")
	case src.Type.Size != o.Type.Size || src.Type.String() != o.Type.String() || src.Type.BigEndian != o.Type.BigEndian:
		return unsupported("elements of type %v that become %v are not supported", src.Type, o.Type)
	}
	from, err := m.From.axes(src.Space.Dims)
	if err != nil {
		return err
	}
	pairs, err := pair(to, from)
	if err != nil {
		return err
	}
	start, count := make([]int64, len(from)), make([]int64, len(from))
	at := make([]int64, len(to)) // in p, in bytes
	return each(pairs, func(some []pieced) error {
		n := o.Type.Size
		for i, x := range some {
			a, b := x.to, x.from
			length := x.n
			if a >= 0 {
				lo, hi := max(x.start, s.start[a]), min(x.start+x.n, s.start[a]+s.count[a])
				if lo >= hi {
					return nil
				}
				at[a], length = (lo-s.start[a])*s.stride[a], hi-lo
				if b >= 0 {
					start[b] = x.source + lo - x.start
				}
			} else {
				start[b] = x.source
			}
			if b >= 0 {
				count[b] = length
			}
			some[i].count = length
			if n, _ = multiply(n, length); n > f.Limit {
				return overLimit("a part of it", n, f.Limit)
			}
		}
		b := make([]byte, n)
		if err := src.Read(ctx, b, start, count); err != nil {
			return err
		}
		spread(p, b, o.Type.Size, some, at, s.stride)
		return nil
	})
}

// An axis has what a selection has along an axis: runs of elements.
type axis []run1

type run1 struct{ start, n int64 }

func (a axis) total() (n int64) {
	for _, r := range a {
		n += r.n
	}
	return n
}

// meets reports whether it may have elements in a range.
func (a axis) meets(from, to int64) bool {
	for _, r := range a {
		if r.start < to && r.start+r.n > from {
			return true
		}
	}
	return false
}

// axes returns what a selection has along each axis, if its blocks are those of a grid.
func (s *Selection) axes(dims []int64) ([]axis, error) {
	out := make([]axis, len(dims))
	if s.Regular == nil {
		blocks, err := s.In(dims)
		if err != nil {
			return nil, err
		}
		all := int64(1)
		for i := range dims {
			for _, b := range blocks {
				out[i] = append(out[i], run1{b.Start[i], b.Count[i]})
			}
			slices.SortFunc(out[i], func(a, b run1) int { return cmp.Or(cmp.Compare(a.start, b.start), cmp.Compare(a.n, b.n)) })
			out[i] = slices.Compact(out[i])
			for k := 1; k < len(out[i]); k++ {
				if out[i][k].start < out[i][k-1].start+out[i][k-1].n {
					all = 0
				}
			}
			all *= int64(min(len(out[i]), bounded))
		}
		// As many as a grid has, none of which meet, are all of it.
		if all != int64(len(blocks)) && len(blocks) > 0 {
			return nil, unsupported("a selection of %d blocks that are no grid is not supported", len(blocks))
		}
		return out, nil
	}
	if len(s.Regular) != len(dims) {
		return nil, corrupt("a selection of %d dimensions of a dataset of %d", len(s.Regular), len(dims))
	}
	for i, r := range s.Regular {
		one := &Selection{Regular: []Repeat{r}}
		blocks, err := one.In(dims[i : i+1])
		if err != nil {
			return nil, err
		}
		for _, b := range blocks {
			out[i] = append(out[i], run1{b.Start[0], b.Count[0]})
		}
	}
	return out, nil
}

// A pieced is a run of elements along an axis of each of two selections; -1 if only one has the axis.
type pieced struct {
	to, from         int // axes
	start, source, n int64
	count            int64 // of those that are wanted
}

// pair matches the runs of two selections. Axes with one element need no other.
func pair(to, from []axis) (all [][]pieced, err error) {
	i, j := 0, 0
	for i < len(to) || j < len(from) {
		switch {
		case i < len(to) && (j == len(from) || to[i].total() == 1 && from[j].total() != 1):
			if to[i].total() != 1 {
				return nil, unsupported("selections of different shapes are not supported")
			}
			all = append(all, []pieced{{to: i, from: -1, start: to[i][0].start, n: 1}})
			i++
		case j < len(from) && (i == len(to) || from[j].total() == 1 && to[i].total() != 1):
			if from[j].total() != 1 {
				return nil, unsupported("selections of different shapes are not supported")
			}
			all = append(all, []pieced{{to: -1, from: j, source: from[j][0].start, n: 1}})
			j++
		default:
			a, b := to[i], from[j]
			var some []pieced
			for x, y, u, v := 0, 0, int64(0), int64(0); x < len(a) && y < len(b); {
				n := min(a[x].n-u, b[y].n-v)
				if n > 0 {
					some = append(some, pieced{to: i, from: j, start: a[x].start + u, source: b[y].start + v, n: n})
				}
				if u += n; u == a[x].n {
					x, u = x+1, 0
				}
				if v += n; v == b[y].n {
					y, v = y+1, 0
				}
			}
			all = append(all, some)
			i, j = i+1, j+1
		}
	}
	return all, nil
}

// each calls do with every combination of one of each.
func each(all [][]pieced, do func([]pieced) error) error {
	some := make([]pieced, len(all))
	var step func(i int) error
	step = func(i int) error {
		if i == len(all) {
			return do(some)
		}
		for _, x := range all[i] {
			some[i] = x
			if err := step(i + 1); err != nil {
				return err
			}
		}
		return nil
	}
	return step(0)
}

// spread copies elements, which lie end to end, to their places.
func spread(p, b []byte, item int64, some []pieced, at, stride []int64) {
	to := int64(0)
	for _, n := range at {
		to += n
	}
	var step func(i int, to int64)
	step = func(i int, to int64) {
		if i == len(some) {
			copy(p[to:to+item], b)
			b = b[item:]
			return
		}
		x := some[i]
		if x.to < 0 {
			step(i+1, to)
			return
		}
		if i == len(some)-1 && stride[x.to] == item {
			copy(p[to:to+x.count*item], b)
			b = b[x.count*item:]
			return
		}
		for k := range x.count {
			step(i+1, to+k*stride[x.to])
		}
	}
	step(0, to)
}
