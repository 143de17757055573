package hdf5

import "context"

// Elements has all elements of a dataset.
type Elements struct {
	Data   []byte // as they are stored
	Values []any  // as returned by File.Values, if they were requested
	Err    error  // why they could not be read
}

const maxWhole = 64 << 20 // size of a dataset that Elements reads

// Elements reads the elements of several datasets, in as many rounds of requests as a single one
// takes. It is for many small datasets. If values is true, it also sets Elements.Values.
func (f *File) Elements(ctx context.Context, all []*Object, values bool) ([]Elements, error) {
	w := f.wave(ctx)
	found := make([]Elements, len(all))
	for first := 0; first < len(all); first += objectsAtOnce {
		n := min(objectsAtOnce, len(all)-first)
		tasks := make([]func(), n)
		for i := range n {
			o, e := all[first+i], &found[first+i]
			tasks[i] = func() {
				own := w
				if o.f != f { // of another file
					own = o.f.wave(ctx)
				}
				if ready := o.ready.Swap(nil); ready != nil {
					*e = *ready
				} else {
					e.Data, e.Err = o.whole(own)
				}
				if e.Err == nil && values {
					d := decoder{w: own}
					e.Values, e.Err = d.all(o.Type, e.Data)
				}
			}
		}
		if w.together(tasks...); w.failed != nil {
			return nil, w.failed
		}
	}
	return found, nil
}

// whole reads all elements of a dataset as a task of a wave.
func (o *Object) whole(w *wave) ([]byte, error) {
	if err := o.Readable(); err != nil {
		return nil, err
	}
	n := o.Bytes()
	if o.Space.Null {
		n = 0
	}
	if n < 0 || n > maxWhole {
		return nil, o.f.place("data", o.Layout.Addr, overLimit("all of it", n, maxWhole))
	}
	s, err := o.selection(nil, nil)
	p := make([]byte, n)
	switch l := o.Layout; {
	case err != nil || n == 0:
	case l.Class == Contiguous && l.Addr != undefined:
		if p, err = w.read(l.Addr, n); err != nil {
			err = o.f.place("data", l.Addr, err)
		}
	case l.Class != Chunked:
		err = o.read(w.ctx, p, s) // this reads memory
	default:
		fill(p, o.Fill)
		err = o.wholeChunks(w, p, s)
	}
	return p, err
}

func (o *Object) wholeChunks(w *wave, p []byte, s selection) error {
	if !o.indexed {
		o.readIndex(w)
	}
	if o.indexErr != nil {
		return o.indexErr
	}
	g := o.grid()
	if g.bytes > o.f.Limit {
		return o.f.place("chunk", o.Layout.Addr, overLimit("a chunk", g.bytes, o.f.Limit))
	}
	want := make([]span, len(o.chunks))
	for i, c := range o.chunks {
		want[i] = span{c.Addr, c.Size}
	}
	stored, err := w.readAll(want, -1)
	if err != nil {
		return err
	}
	for i, c := range o.chunks {
		raw, err := o.chunk(g, part{at: c.Offset, mask: c.Mask}, stored[i])
		if err != nil {
			return o.f.place("chunk", c.Addr, err)
		}
		o.copyChunk(g, s, c.Offset, raw, p)
	}
	return nil
}
