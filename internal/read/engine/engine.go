// Package engine turns extents into content. It plans requests, joins those that are close
// together, fetches them with bounded parallelism, and decodes the results. It reads all formats
// from all stores. Formats do not depend on it.
package engine

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"iter"

	"github.com/holdall/holdall/codec"
	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/store"
)

// Limits bound what the engine does at once.
type Limits struct {
	Gap      int64 // join requests at most this far apart
	Request  int64 // but make none longer than this
	Parallel int   // requests in flight
	Ahead    int   // windows read ahead in a sequential read; see stream
	Units    int64 // bytes of decoded units that are kept; 0 is 64 MiB
}

const usualUnits = 64 << 20

// For stores on a network, a gap is worth fetching as long as it costs less than a round trip. With
// a latency of 20 ms, 16 requests of 8 kB in flight transfer 6 MB/s. A disk gains nothing from
// either.
var (
	Far  = Limits{Gap: 64 << 10, Request: 4 << 20, Parallel: 16, Ahead: 8}
	Near = Limits{Gap: 4 << 10, Request: 1 << 20, Parallel: 2, Ahead: 0}
)

// Open returns the object of that name, or at that address if it is external. The engine does not
// close it.
type Open func(ctx context.Context, name string, external bool) (store.Object, error)

// An Engine reads content from the objects that open returns.
type Engine struct {
	open    Open
	limits  Limits
	units   *units
	cursors cursors
	points  Points
	doubts  bool // returns content of units with a wrong checksum

	// OnHeal, if it is not nil, is called when a codec has corrected damaged data.
	OnHeal func()
}

// New returns an engine. It must be closed before its objects are.
func New(open Open, l Limits) *Engine {
	l.Request, l.Parallel = max(l.Request, 1), max(l.Parallel, 1)
	return &Engine{open: open, limits: l, units: newUnits(cmp.Or(l.Units, usualUnits))}
}

// Over returns an engine with the same limits that reads other objects.
func (g *Engine) Over(open Open) *Engine {
	o := New(open, g.limits)
	o.OnHeal = g.OnHeal
	return o
}

// Doubting returns an engine of the same objects that also returns the decoded content of units
// with a wrong checksum, as far as they can be decoded. Its callers must verify the content by
// other means. It keeps few units in memory.
func (g *Engine) Doubting() *Engine {
	d := g.Over(g.open)
	d.doubts, d.units.limit = true, usualUnits/4
	return d
}

func (g *Engine) Close() { g.cursors.close() }

// Object returns the object that e lies in, as the engine reads it.
func (g *Engine) Object(ctx context.Context, e format.Extent) (store.Object, error) {
	return g.open(ctx, e.Object, e.External)
}

// Stored reads n stored bytes of an object front to back.
func (g *Engine) Stored(ctx context.Context, o store.Object, off, n int64) io.ReadCloser {
	ctx, cancel := context.WithCancel(ctx)
	return &storedReader{newStream(ctx, o, off, n, g.limits), cancel}
}

type storedReader struct {
	*stream
	cancel context.CancelFunc
}

func (s *storedReader) Close() error {
	s.cancel()
	s.wait()
	return nil
}

func (g *Engine) MaxRequest() int64 { return g.limits.Request }

// Extents yields where the content bytes of something are stored.
type Extents = iter.Seq2[format.Extent, error]

// ReadAt fills p with content bytes [off, off+len(p)) described by extents.
// Bytes that no extent covers are zero.
func (g *Engine) ReadAt(ctx context.Context, extents Extents, p []byte, off int64) error {
	var few [2]format.Extent
	xs := few[:0]
	if err := g.fillHere(ctx, extents, p, off, &xs); err != nil {
		return err
	}
	if len(xs) == 1 && xs[0].Codec == codec.Raw && xs[0].Size <= g.limits.Request {
		// By far the most frequent read: one run, straight into the caller's buffer.
		o, err := g.Object(ctx, xs[0])
		if err != nil {
			return err
		}
		return o.ReadAt(ctx, p[xs[0].At-off:][:xs[0].Size], xs[0].Off)
	}
	if len(xs) == 0 {
		return nil
	}
	if e := xs[0]; len(xs) == 1 && e.Size == e.Unit && Coded(e) && inUnit(e) {
		if done, err := g.readPlain(ctx, e, p[e.At-off:][:e.Size]); done || err != nil {
			return err
		}
	}
	r := reading{g: g, p: p, off: off, keep: g.units.keeps(int64(len(p))), front: true}
	return r.readAll(ctx, xs)
}

// fillHere fills the parts of p that need no request: holes, zeros and inline content. It appends
// the other extents, cut to what p wants, to xs.
func (g *Engine) fillHere(ctx context.Context, extents Extents, p []byte, off int64, xs *[]format.Extent) error {
	var here []format.Extent
	covered, end := int64(0), int64(0)
	for e, err := range extents {
		if err != nil {
			return err
		}
		if err := g.admit(e); err != nil {
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
			*xs = append(*xs, e)
		}
		covered += e.Size
	}
	if covered < int64(len(p)) {
		clear(p)
	}
	for _, e := range here {
		if dst := p[e.At-off:][:e.Size]; e.Codec == codec.Zero {
			clear(dst)
		} else if b, err := e.Inline(ctx); err != nil {
			return err
		} else {
			copy(dst, b)
		}
	}
	return nil
}
