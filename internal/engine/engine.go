// Package engine turns extents into content: it plans requests, joins those
// that lie close together, fetches them with bounded parallelism and decodes.
//
// It is the one way in which content is read, for every format and every store.
// Formats never see it.
package engine

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"iter"
	"slices"
	"sync"

	"github.com/holdall/holdall/codec"
	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/store"
)

// Limits bound what the engine does at once.
type Limits struct {
	Gap      int64 // join requests at most this far apart
	Request  int64 // but make none longer than this
	Parallel int   // requests in flight
	Ahead    int   // windows of Request bytes read ahead in a sequential read
}

// For stores behind a network a gap is worth fetching as long as it costs less
// than a round trip; 16 in flight hide 20 ms behind 8 kB reads at 6 MB/s each.
// A disk gains nothing by either.
var (
	Far  = Limits{Gap: 64 << 10, Request: 4 << 20, Parallel: 16, Ahead: 4}
	Near = Limits{Gap: 4 << 10, Request: 1 << 20, Parallel: 2, Ahead: 0}
)

// Open gives the object of that name, or at that address if it is external. The
// engine does not close it.
type Open func(ctx context.Context, name string, external bool) (store.Object, error)

// An Engine reads content from the objects that open gives.
type Engine struct {
	open   Open
	limits Limits
}

// New returns an engine.
func New(open Open, l Limits) *Engine {
	l.Request, l.Parallel = max(l.Request, 1), max(l.Parallel, 1)
	return &Engine{open: open, limits: l}
}

// Object returns the object that e lies in, as the engine reads it.
func (g *Engine) Object(ctx context.Context, e format.Extent) (store.Object, error) {
	return g.open(ctx, e.Object, e.External)
}

// MaxRequest is how much is asked for at once.
func (g *Engine) MaxRequest() int64 { return g.limits.Request }

// Extents yields where the content bytes of something are stored.
type Extents = iter.Seq2[format.Extent, error]

// A request is one range read and the extents that it serves.
type request struct {
	object   string
	external bool
	off, len int64
	extents  []format.Extent
}

// plan joins the stored ranges of extents into requests. Raw extents longer
// than a request are cut; others are one unit and stay whole.
func plan(extents []format.Extent, l Limits) []request {
	x := make([]format.Extent, 0, len(extents))
	for _, e := range extents {
		if e.Codec == codec.Raw {
			for e.Size > l.Request {
				head := e
				head.Size, head.Len = l.Request, l.Request
				x = append(x, head)
				e.At, e.Off = e.At+l.Request, e.Off+l.Request
				e.Size, e.Len = e.Size-l.Request, e.Len-l.Request
			}
		}
		x = append(x, e)
	}
	slices.SortStableFunc(x, func(a, b format.Extent) int {
		if a.External != b.External {
			if b.External {
				return -1
			}
			return 1
		}
		return cmp.Or(cmp.Compare(a.Object, b.Object), cmp.Compare(a.Off, b.Off))
	})
	var reqs []request
	for _, e := range x {
		if n := len(reqs); n > 0 {
			last := &reqs[n-1]
			end := last.off + last.len
			if grown := max(end, e.Off+e.Len) - last.off; last.object == e.Object && last.external == e.External && e.Off-end <= l.Gap && grown <= l.Request {
				last.len = grown
				last.extents = append(last.extents, e)
				continue
			}
		}
		reqs = append(reqs, request{e.Object, e.External, e.Off, e.Len, []format.Extent{e}})
	}
	return reqs
}

// ReadAt fills p with content bytes [off, off+len(p)) described by extents.
// Bytes that no extent covers are zero.
func (g *Engine) ReadAt(ctx context.Context, extents Extents, p []byte, off int64) error {
	var few [2]format.Extent
	xs := few[:0] // to be fetched
	var here []format.Extent
	covered, end := int64(0), int64(0)
	for e, err := range extents {
		if err != nil {
			return err
		}
		if err := check(e); err != nil {
			return err
		}
		if e.At < end {
			return fmt.Errorf("extents overlap: content %d+%d after %d", e.At, e.Size, end)
		}
		end = e.At + e.Size
		if e = trim(e, off, int64(len(p))); e.Size <= 0 {
			continue
		}
		if e.Codec == codec.Inline || e.Codec == codec.Zero {
			here = append(here, e)
		} else {
			xs = append(xs, e)
		}
		covered += e.Size
	}
	if covered < int64(len(p)) {
		clear(p)
	}
	for _, e := range here {
		if dst := p[e.At-off:][:e.Size]; e.Codec == codec.Zero {
			clear(dst)
		} else {
			copy(dst, e.Data[e.Skip:])
		}
	}
	if len(xs) == 1 && xs[0].Codec == codec.Raw && xs[0].Size <= g.limits.Request {
		// By far the most frequent read: one run, straight into the caller's buffer.
		o, err := g.Object(ctx, xs[0])
		if err != nil {
			return err
		}
		return o.ReadAt(ctx, p[xs[0].At-off:][:xs[0].Size], xs[0].Off)
	}
	return g.fetchAll(ctx, plan(xs, g.limits), p, off)
}

func (g *Engine) fetchAll(ctx context.Context, reqs []request, p []byte, off int64) error {
	switch len(reqs) {
	case 0:
		return nil
	case 1:
		return g.fetch(ctx, reqs[0], p, off)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wg sync.WaitGroup
	room := make(chan struct{}, g.limits.Parallel)
	for _, r := range reqs {
		room <- struct{}{}
		if ctx.Err() != nil {
			break
		}
		wg.Go(func() {
			defer func() { <-room }()
			if err := g.fetch(ctx, r, p, off); err != nil {
				cancel(err)
			}
		})
	}
	wg.Wait()
	return context.Cause(ctx)
}

// check refuses extents that are no ranges, before anything is made of them.
func check(e format.Extent) error {
	const most = 1 << 62
	if e.At < 0 || e.Size < 0 || e.Off < 0 || e.Len < 0 || e.Skip < 0 ||
		e.At > most || e.Size > most || e.Off > most || e.Len > most || e.Skip > most ||
		e.Codec == codec.Raw && e.Len-e.Skip < e.Size ||
		e.Codec == codec.Inline && int64(len(e.Data))-e.Skip < e.Size {
		return fmt.Errorf("extent is no range: content %d+%d, stored %d+%d, skip %d", e.At, e.Size, e.Off, e.Len, e.Skip)
	}
	return nil
}

// trim cuts e to [off, off+n); stored bytes too when they are the content.
func trim(e format.Extent, off, n int64) format.Extent {
	if cut := off - e.At; cut > 0 {
		e.At, e.Size, e.Skip = e.At+cut, e.Size-cut, e.Skip+cut
	}
	e.Size = min(e.Size, off+n-e.At)
	if e.Codec == codec.Raw {
		e.Off, e.Len, e.Skip = e.Off+e.Skip, e.Size, 0
	}
	return e
}

func (g *Engine) fetch(ctx context.Context, r request, p []byte, off int64) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	o, err := g.open(ctx, r.object, r.external)
	if err != nil {
		return err
	}
	if len(r.extents) == 1 {
		e := r.extents[0]
		dst := p[e.At-off:][:e.Size]
		if e.Codec == codec.Raw {
			return o.ReadAt(ctx, dst, e.Off)
		}
		// One unit by itself is streamed: it may be far longer than what is
		// wanted of it.
		s := newStream(ctx, o, e.Off, e.Len, Limits{Request: g.limits.Request})
		defer s.wait()
		return decode(e, s, dst)
	}
	buf := make([]byte, r.len)
	if err := o.ReadAt(ctx, buf, r.off); err != nil {
		return err
	}
	for _, e := range r.extents {
		stored := buf[e.Off-r.off:][:e.Len]
		dst := p[e.At-off:][:e.Size]
		if e.Codec == codec.Raw {
			copy(dst, stored)
			continue
		}
		if err := decode(e, bytes.NewReader(stored), dst); err != nil {
			return err
		}
	}
	return nil
}

// decode fills dst with what e's codec makes of stored.
func decode(e format.Extent, stored io.Reader, dst []byte) error {
	d, err := decoder(e, stored)
	if err != nil {
		return err
	}
	defer d.Close()
	if _, err := io.ReadFull(d, dst); err != nil {
		return fmt.Errorf("%s at %d: decode %s: %w", e.Object, e.Off, e.Codec, short(err))
	}
	return nil
}

// decoder returns what e's codec makes of stored, from e.Skip on.
func decoder(e format.Extent, stored io.Reader) (io.ReadCloser, error) {
	c, ok := codec.Lookup(e.Codec)
	if !ok {
		return nil, fmt.Errorf("%s at %d: no codec %q", e.Object, e.Off, e.Codec)
	}
	d, err := c.Decode(stored)
	if err == nil {
		if _, err = io.CopyN(io.Discard, d, e.Skip); err != nil {
			d.Close()
		}
	}
	if err != nil {
		return nil, fmt.Errorf("%s at %d: decode %s: %w", e.Object, e.Off, e.Codec, short(err))
	}
	return d, nil
}

// short makes the end of a unit where content should be what it is: an error.
func short(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}
