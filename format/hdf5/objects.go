package hdf5

import (
	"context"
	"iter"
	"slices"
	"strings"
	"sync"

	"github.com/holdall/holdall/codec"
	"github.com/holdall/holdall/format"
	h5 "github.com/holdall/holdall/hdf5"
	"github.com/holdall/holdall/internal/formatkit"
)

// objects is the view of a file as a tree: groups are directories, datasets are files of
// their elements, in the order and the types that the file has, and attributes are
// properties: "@NAME" in their group, "DATASET@NAME" beside their dataset.
type objects struct {
	*format.Index
	a *archive

	mu   sync.Mutex
	last slab
}

// A slab is some rows of an array.
type slab struct {
	addr, at int64
	data     []byte
}

func newObjects(_ context.Context, a *archive) (*objects, error) {
	r := &objects{a: a}
	t := &texter{a: a}
	var all format.Entries
	for v, err := range a.tree() {
		if err != nil {
			return nil, err
		}
		if v.link != nil {
			all = append(all, linkEntry(v))
			continue
		}
		attrs := v.path + "@"
		switch v.object.Kind {
		case h5.Group:
			if attrs = "@"; v.path != "" {
				attrs = v.path + "/@"
				all = append(all, format.Entry{Name: v.path, Kind: format.Dir})
			}
		default:
			all = append(all, r.dataset(v))
		}
		for i := range v.object.Attributes {
			all = append(all, r.attribute(t, attrs, v.object, &v.object.Attributes[i]))
		}
	}
	r.Index = format.NewIndex(all)
	return r, nil
}

// linkEntry is a soft link, or a link that is named only.
func linkEntry(v visit) format.Entry {
	e := format.Entry{Name: v.path, Kind: format.Symlink, Link: v.link.Target}
	switch v.link.Kind {
	case h5.SoftLink:
		if to, absolute := strings.CutPrefix(e.Link, "/"); absolute { // from where the link is
			e.Link = strings.Repeat("../", strings.Count(v.path, "/")) + to
		}
	case h5.ExternalLink:
		e.Link = v.link.File + ":" + v.link.Target
	}
	return e
}

func (r *objects) dataset(v visit) format.Entry {
	o := v.object
	e := format.Entry{Name: v.path, Ref: o}
	if o.Kind == h5.NamedType {
		e.Ref = []byte(o.Type.String() + "\n")
		e.Size = int64(len(e.Ref.([]byte)))
		return e
	}
	if err := o.Readable(); err != nil {
		p := r.a.problem(v.path, err)
		e.Fault = &p
		return e
	}
	e.Size = max(o.Bytes(), 0)
	if o.Space.Null {
		e.Size = 0
	}
	return e
}

// attribute is an entry whose content is text: of a string itself, of all else JSON.
func (r *objects) attribute(t *texter, in string, o *h5.Object, at *h5.Attribute) format.Entry {
	e := format.Entry{Name: in + strings.ReplaceAll(at.Name, "/", "∕"), Kind: format.Property}
	var text []byte
	err := at.Err
	if s, ok := single(at); ok {
		text = []byte(s)
	} else if err == nil && !at.Space.Null {
		text, err = t.attribute(nil, at)
	}
	if err != nil {
		p := r.a.problem(o.Path, err)
		p.Entry = e.Name
		e.Fault = &p
		return e
	}
	e.Ref, e.Size = text, int64(len(text))
	return e
}

// single is the value of an attribute that is one string.
func single(at *h5.Attribute) (string, bool) {
	if at.Err != nil || len(at.Space.Dims) > 0 || len(at.Values) != 1 {
		return "", false
	}
	s, ok := at.Values[0].(string)
	return s, ok
}

func (r *objects) Can() format.Abilities {
	can := r.Index.Can()
	can.Run, can.Doubt = r.Run, r.a.doubt
	return can
}

// Run returns where the elements of a dataset lie that are one run.
func (r *objects) Run(e format.Entry) (format.Extent, bool) {
	o, ok := e.Ref.(*h5.Object)
	if !ok || e.Size == 0 || o.Layout.Class != h5.Contiguous || o.Layout.Addr < 0 || o.Layout.Addr > r.a.f.Size()-e.Size {
		return format.Extent{}, false
	}
	return format.Extent{Size: e.Size, Object: r.a.name, Off: o.Layout.Addr, Len: e.Size}, true
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
		inline := func(at int64, b []byte) bool {
			return yield(format.Extent{At: at, Size: int64(len(b)), Object: r.a.name, Len: int64(len(b)), Codec: codec.Inline, Data: b}, nil)
		}
		o, ok := e.Ref.(*h5.Object)
		if text, is := e.Ref.([]byte); is {
			inline(0, text)
			return
		}
		if !ok {
			yield(format.Extent{}, e.Unreadable("hdf5"))
			return
		}
		for at := off; at < min(off+n, e.Size); {
			s, err := r.slab(ctx, o, at)
			if err != nil {
				yield(format.Extent{}, r.a.corrupt(err))
				return
			}
			if !inline(s.at, s.data) {
				return
			}
			at = s.at + int64(len(s.data))
		}
	}
}

// slabSize is about how many bytes of an array are read together.
const slabSize = 4 << 20

// slab returns the rows of an array that have a byte of its elements. The last one is kept,
// since it is read piece by piece.
func (r *objects) slab(ctx context.Context, o *h5.Object, at int64) (slab, error) {
	r.mu.Lock()
	s := r.last
	r.mu.Unlock()
	if s.addr == o.Addr && at >= s.at && at < s.at+int64(len(s.data)) {
		return s, nil
	}
	all := o.Bytes()
	s = slab{addr: o.Addr}
	if dims := o.Space.Dims; len(dims) == 0 {
		s.data = make([]byte, all)
		if err := o.Read(ctx, s.data, nil, nil); err != nil {
			return s, err
		}
	} else {
		row, step := all/dims[0], int64(1)
		if o.Layout.Class == h5.Chunked {
			step = min(o.Layout.Chunk[0], dims[0])
		}
		step *= max(1, slabSize/max(row*step, 1))
		if row > r.a.f.Limit/step {
			return s, &h5.Error{File: r.a.name, What: "data", Off: o.Layout.Addr, Err: h5.ErrLimit}
		}
		first := at / row / step * step
		n := min(step, dims[0]-first)
		start, count := make([]int64, len(dims)), slices.Clone(dims)
		start[0], count[0] = first, n
		s.at, s.data = first*row, make([]byte, n*row)
		if err := o.Read(ctx, s.data, start, count); err != nil {
			return s, err
		}
	}
	r.mu.Lock()
	r.last = s
	r.mu.Unlock()
	return s, nil
}

func (r *objects) Regions(ctx context.Context) iter.Seq2[format.Region, error] {
	var used formatkit.Ranges
	for _, o := range r.a.byAddr {
		if o.Kind == h5.Dataset && o.Readable() == nil {
			if x, ok := r.Run(format.Entry{Ref: o, Size: o.Bytes()}); ok {
				used.Add(x.Off, x.Off+x.Len)
			}
		}
	}
	used.Join()
	return r.a.regions(ctx, &used)
}

func (r *objects) About(context.Context) (format.About, error) { return r.a.about(), nil }

func (r *objects) Close() error { return r.a.close() }
