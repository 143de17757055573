package engine

import (
	"context"
	"fmt"
	"io"
	"slices"
	"sync"

	"github.com/holdall/holdall/codec"
	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storekit"
)

// A cursor is an open decoder at a position in the decoded content of a unit. It only moves
// forward. It reads units that are too long to be decoded completely. An idle cursor is reused by
// the next read at or after its position.
//
// It outlives the read that opened it, and so has a context of its own. While it is in use, the
// end of the user's context also ends the cursor.
type cursor struct {
	key    unitKey
	ctx    context.Context
	cancel context.CancelCauseFunc
	leave  func() bool // detaches it from the context of its current user
	in     *stored
	d      io.ReadCloser
	from   int64 // where it was opened
	at     int64
	err    error
}

// cursors are the idle ones, the least recently used first. Each holds what its decoder remembers
// (128 MiB at most, 8 MiB usually) and the windows that its stream has read ahead.
type cursors struct {
	mu     sync.Mutex
	idle   []*cursor
	broken []damage // the latest ones
	closed bool
	// one means that all reads are parts of one task. What a store once failed to deliver is not
	// requested again.
	one bool
}

const maxIdle = 4

// damage is a position that a reader cannot pass if it begins between from and there. Without it,
// each read beyond would decode everything before it to find that out.
type damage struct {
	key      unitKey
	from, at int64
	err      error
}

const maxBroken = 16

// cursor returns a cursor at the beginning of e's content, for use under ctx.
func (g *Engine) cursor(ctx context.Context, e format.Extent) (*cursor, error) {
	k := keyOf(e)
	from := g.pointBefore(ctx, e)
	c, err := g.cursors.take(k, e.Skip, from)
	if err != nil {
		return nil, err
	}
	if c == nil {
		if c, err = g.openCursor(ctx, k, g.point(ctx, e, from)); err != nil {
			return nil, err
		}
	}
	c.leave = context.AfterFunc(ctx, func() { c.cancel(context.Cause(ctx)) })
	if err := c.skipTo(e.Skip); err != nil {
		g.cursors.put(c)
		return nil, err
	}
	return c, nil
}

// Points knows the positions in long units where decoding can begin.
type Points interface {
	// Before returns the position of the last point of the unit of e that is not after e.Skip; 0
	// is the beginning.
	Before(ctx context.Context, e format.Extent) (at int64)
	// Point returns the point of the unit of e at a position that Before returned.
	Point(ctx context.Context, e format.Extent, at int64) (codec.Point, error)
}

// UsePoints makes reads of long units begin at points. It must be called before the engine is
// used.
func (g *Engine) UsePoints(p Points) { g.points = p }

// pointBefore is where reading e can begin.
func (g *Engine) pointBefore(ctx context.Context, e format.Extent) int64 {
	if g.points == nil || e.Skip == 0 {
		return 0
	}
	if at := g.points.Before(ctx, e); at <= e.Skip {
		return at
	}
	return 0
}

// point returns the point at a position. If it is missing or invalid, point returns the beginning.
func (g *Engine) point(ctx context.Context, e format.Extent, at int64) codec.Point {
	if at <= 0 {
		return codec.Point{}
	}
	p, err := g.points.Point(ctx, e, at)
	if err != nil || p.At != at || p.Off <= 0 || p.Off >= e.Len {
		return codec.Point{}
	}
	return p
}

func (g *Engine) openCursor(ctx context.Context, k unitKey, p codec.Point) (*cursor, error) {
	coder, ok := codec.Lookup(k.codecName)
	if !ok {
		return nil, fmt.Errorf("%s at %d: no codec %q", k.object, k.off, k.codecName)
	}
	o, err := g.open(ctx, k.object, k.external)
	if err != nil {
		return nil, err
	}
	if coder.DecodeFrom == nil {
		p = codec.Point{}
	}
	c := &cursor{key: k, from: p.At, at: p.At}
	c.ctx, c.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	c.in = newStored(c.ctx, o, k.off+p.Off, k.len-p.Off, g.limits)
	if p.At == 0 {
		c.d, err = coder.Decode(c.in)
	} else {
		c.d, err = coder.DecodeFrom(c.in, p)
	}
	if err != nil {
		c.cancel(nil)
		c.in.wait()
		return nil, wrongUnit(k, err)
	}
	return c, nil
}

// skipTo goes forward to a position.
func (c *cursor) skipTo(at int64) error {
	const step = 1 << 20 // then checks whether ctx has ended
	for c.at < at {
		if _, err := io.CopyN(io.Discard, c, min(at-c.at, step)); err == io.EOF {
			return wrongUnit(c.key, err)
		} else if err != nil {
			return err
		}
		if c.ctx.Err() != nil {
			return context.Cause(c.ctx)
		}
	}
	return nil
}

// Read reads the next bytes. At the end of the unit it checks that nothing follows. If a checksum
// does not match, the last read fails.
func (c *cursor) Read(p []byte) (int, error) {
	if c.err != nil {
		return 0, c.err
	}
	if c.key.size > 0 {
		p = p[:min(int64(len(p)), c.key.size-c.at)]
		if len(p) == 0 {
			return 0, io.EOF
		}
	}
	n, err := c.d.Read(p)
	ends := c.key.size > 0 && c.at+int64(n) == c.key.size
	if ends && err == nil {
		err = atEnd(c.d, c.key.size)
	}
	if ends && err != nil && err != io.EOF {
		n = 0
	}
	c.at += int64(n)
	switch {
	case c.ctx.Err() != nil && err != nil:
		err = context.Cause(c.ctx)
	case err == io.EOF && c.at < c.key.size, err != nil && err != io.EOF:
		err = wrongUnit(c.key, err)
	}
	c.err = err
	return n, err
}

// close ends the cursor and what it has under way.
func (c *cursor) close() {
	c.cancel(nil)
	c.d.Close()
	c.in.wait()
}

// take returns the nearest idle cursor before a position that is not before the given point, or
// nil if there is none. If damage is known on the way, it returns the error that a read would
// meet there.
func (c *cursors) take(k unitKey, at, point int64) (*cursor, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, d := range c.broken {
		if d.key == k && at >= d.at && d.from <= point && point <= d.at {
			return nil, d.err
		}
	}
	best := -1
	for i, x := range c.idle {
		if x.key == k && x.at <= at && x.at >= point && (best < 0 || x.at > c.idle[best].at) {
			best = i
		}
	}
	if best < 0 {
		return nil, nil
	}
	x := c.idle[best]
	c.idle = slices.Delete(c.idle, best, best+1)
	return x, nil
}

// put returns a cursor after use.
func (c *cursors) put(x *cursor) {
	left := x.leave() && x.ctx.Err() == nil
	if !left || x.err != nil || x.at == x.key.size {
		x.close()
		if left && x.err != nil && x.err != io.EOF && c.stays(x.in.failed) {
			c.remember(damage{x.key, x.from, x.at, x.err})
		}
		return
	}
	c.mu.Lock()
	var old *cursor
	if c.closed {
		old = x
	} else if c.idle = append(c.idle, x); len(c.idle) > maxIdle {
		old = c.idle[0]
		c.idle = slices.Delete(c.idle, 0, 1)
	}
	c.mu.Unlock()
	if old != nil {
		old.close()
	}
}

// stays reports whether damage will be there the next time. failed is the error of the store, if
// that is the cause.
func (c *cursors) stays(failed error) bool {
	return failed == nil || c.one && !storekit.Temporary(failed)
}

func (c *cursors) remember(d damage) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.broken = append(c.broken, d); len(c.broken) > maxBroken {
		c.broken = slices.Delete(c.broken, 0, 1)
	}
}

func (c *cursors) close() {
	c.mu.Lock()
	idle := c.idle
	c.idle, c.closed = nil, true
	c.mu.Unlock()
	for _, x := range idle {
		x.close()
	}
}

// stored reads the stored bytes of a unit front to back. If the object is truncated, it still reads
// the bytes that are there.
type stored struct {
	*stream
	l      Limits
	at, to int64
	cut    error // the error of the store at the end of a truncated object
	failed error // why the store could not deliver them
}

func newStored(ctx context.Context, o store.Object, off, n int64, l Limits) *stored {
	return &stored{stream: newStream(ctx, o, off, n, l), l: l, at: off, to: off + n}
}

func (s *stored) Read(p []byte) (int, error) {
	n, err := s.stream.Read(p)
	if isCut(err) && s.cut == nil {
		if info, ierr := s.o.Info(s.ctx); ierr != nil {
			err = ierr
		} else if info.Size < s.to {
			s.cut, s.to = err, info.Size
			s.stream.wait()
			s.stream = newStream(s.ctx, s.o, s.at, max(s.to-s.at, 0), s.l)
			n, err = s.stream.Read(p)
		}
	}
	s.at += int64(n)
	if err == io.EOF && s.cut != nil {
		return n, s.cut
	}
	if err != nil && err != io.EOF {
		s.failed = err
	}
	return n, err
}
