package engine

import (
	"bytes"
	"context"
	"errors"
	"io"
	"iter"
	"runtime"
	"sync"

	"github.com/holdall/holdall/codec"
	"github.com/holdall/holdall/format"
)

var errClosed = errors.New("read after close")

// Reader reads content front to back. It must be closed, which also ends its requests.
type Reader struct {
	g      *Engine
	ctx    context.Context
	cancel context.CancelFunc
	next   func() (format.Extent, error, bool)
	stop   func()
	size   int64
	at     int64 // content read so far
	peeked *format.Extent
	cur    io.Reader // of the current run
	curEnd int64
	stream *stream
	cursor *cursor
	units  ahead
	all    bool // all content will be read
	err    error
}

// Whole declares that the content will be read to its end. Requests then have their full size
// from the beginning.
func (r *Reader) Whole() *Reader {
	r.all = true
	return r
}

// NewReader returns the content that extents describe, of the given size. Holes
// between extents read as zeros.
func (g *Engine) NewReader(ctx context.Context, extents Extents, size int64) *Reader {
	return g.NewReaderAt(ctx, extents, 0, size)
}

// NewReaderAt returns the content from off on. What extents yields for earlier bytes is ignored.
func (g *Engine) NewReaderAt(ctx context.Context, extents Extents, off, size int64) *Reader {
	r := &Reader{g: g, at: off, size: size, units: ahead{keep: g.units.keeps(size - off), most: maxAhead}}
	r.ctx, r.cancel = context.WithCancel(ctx)
	r.next, r.stop = iter.Pull2(extents)
	return r
}

// Close ends the read and what it has under way.
func (r *Reader) Close() error {
	r.closeCursor() // before its context ends, so that other reads can reuse the cursor
	r.cancel()
	r.stop()
	r.closeRun()
	r.units.wg.Wait()
	r.units = ahead{}
	r.err = errClosed
	return nil
}

func (r *Reader) closeCursor() {
	if r.cursor != nil {
		r.g.cursors.put(r.cursor)
		r.cursor = nil
	}
}

func (r *Reader) closeRun() {
	r.closeCursor()
	if r.stream != nil {
		r.stream.wait()
		r.stream = nil
	}
	r.cur = nil
}

func (r *Reader) Read(p []byte) (int, error) {
	for r.err == nil {
		if r.at >= r.size {
			return 0, io.EOF
		}
		if len(p) == 0 {
			return 0, nil
		}
		if r.cur == nil {
			r.err = r.nextRun()
			continue
		}
		n, err := r.cur.Read(p[:min(int64(len(p)), r.curEnd-r.at)])
		r.at += int64(n)
		if r.at == r.curEnd {
			r.closeRun()
		} else if err == io.EOF && r.cursor != nil {
			r.err = wrongUnit(r.cursor.key, err)
		} else if err != nil {
			r.err = short(err)
		}
		if n > 0 {
			return n, nil
		}
	}
	return 0, r.err
}

// short turns the end of a run that should have more content into an error.
func short(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}

// nextRun begins the next run of content: adjacent raw extents, a piece of a unit, or a hole.
func (r *Reader) nextRun() error {
	if r.units.waiting() {
		return r.nextPiece()
	}
	e, ok, err := r.take()
	if err != nil {
		return err
	}
	if !ok || e.At > r.at {
		r.curEnd = r.size
		if ok {
			r.curEnd = min(r.size, e.At)
			r.peeked = &e
		}
		r.cur = zeros{}
		return nil
	}
	e = trim(e, r.at, r.size-r.at)
	if e.Size <= 0 {
		return nil
	}
	r.curEnd = e.At + e.Size
	switch {
	case e.Codec == codec.Zero:
		r.cur = zeros{}
	case e.Codec == codec.Inline:
		b, err := e.Inline(r.ctx)
		if err != nil {
			return err
		}
		r.cur = bytes.NewReader(b)
	case e.Codec == codec.Raw:
		o, err := r.g.Object(r.ctx, e)
		if err != nil {
			return err
		}
		if err := r.join(&e); err != nil {
			return err
		}
		if r.stream = newStream(r.ctx, o, e.Off, e.Len, r.g.limits); r.all {
			r.stream.whole()
		}
		r.cur = r.stream
	case inUnit(e):
		r.peeked = &e
		return r.nextPiece()
	default:
		if r.cursor, err = r.g.cursor(r.ctx, e); err != nil {
			return err
		}
		r.cur = r.cursor
	}
	return nil
}

// join lengthens e by the raw extents that follow it both in the content and in the object, so
// that consecutive blocks are one read.
func (r *Reader) join(e *format.Extent) error {
	for {
		x, ok, err := r.take()
		if err != nil || !ok {
			return err
		}
		t := trim(x, r.curEnd, r.size-r.curEnd)
		if x.Codec != codec.Raw || x.Object != e.Object || x.External != e.External || x.At != r.curEnd || t.Off != e.Off+e.Len {
			r.peeked = &x
			return nil
		}
		e.Len += t.Len
		e.Size += t.Size
		r.curEnd += t.Size
	}
}

func (r *Reader) take() (e format.Extent, ok bool, err error) {
	if r.peeked != nil {
		e, r.peeked = *r.peeked, nil
		return e, true, nil
	}
	e, err, ok = r.next()
	if ok && err == nil {
		err = r.g.admit(e)
	}
	return e, ok, err
}

// zeros is a hole.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// ahead is what a Reader has decoded and is decoding ahead: groups of pieces in neighbouring units.
// It cannot know how much will be read. So it begins with one unit and goes up to as many groups as
// there are processors, each as long as one request.
type ahead struct {
	keep   bool
	known  map[unitKey]*unit // by the sweep that this is a part of
	wg     sync.WaitGroup
	groups []*group // the current one first
	held   int64    // bytes of their units, decoded
	most   int64    // limit of held, except for the first unit
	used   int      // groups that were read to their end
	step   int64    // how long the next one should be
	last   piece    // the last one that was taken
	later  error    // the error after last
}

// maxAhead bounds what a Reader holds of decoded units.
const maxAhead = 32 << 20

// A group is decoded by one goroutine.
type group struct {
	reading
	held int64
	done chan struct{}
	err  error
}

func (a *ahead) waiting() bool { return len(a.groups) > 0 || a.later != nil }

// nextPiece makes the next piece of a unit the current run.
func (r *Reader) nextPiece() error {
	a := &r.units
	if len(a.groups) > 0 && len(a.groups[0].units) == 0 {
		a.held -= a.groups[0].held
		a.groups = a.groups[1:]
		a.used++
	}
	if len(a.groups) == 0 {
		a.last = piece{}
	}
	for len(a.groups) < min(a.used, max(runtime.GOMAXPROCS(0), 2)-1)+1 && a.later == nil {
		gr := r.nextGroup()
		if gr == nil {
			break
		}
		a.groups = append(a.groups, gr)
		a.held += gr.held
		a.wg.Go(func() {
			defer close(gr.done)
			gr.err = gr.run(r.ctx)
		})
	}
	if len(a.groups) == 0 {
		return a.later
	}
	gr := a.groups[0]
	select {
	case <-gr.done:
	case <-r.ctx.Done():
		return context.Cause(r.ctx)
	}
	// This is an error of the group's request. Errors of units are in the units.
	if gr.err != nil {
		return gr.err
	}
	pc := gr.units[0]
	gr.units = gr.units[1:]
	b, err := pc.u.slice(pc.Extent)
	r.curEnd = pc.At + pc.Size
	if r.cur = bytes.NewReader(b); err != nil {
		r.cur = io.MultiReader(r.cur, wrong{err})
	}
	return nil
}

// wrong is content that cannot be read.
type wrong struct{ err error }

func (w wrong) Read([]byte) (int, error) { return 0, w.err }

// nextGroup returns the group of the pieces that follow those taken before, nil if there are none
// or no room for them.
func (r *Reader) nextGroup() *group {
	a := &r.units
	gr := &group{reading: reading{g: r.g, keep: a.keep, known: a.known}, done: make(chan struct{})}
	for len(gr.units) < sweepItems {
		at := r.at
		if a.last.u != nil {
			at = a.last.At + a.last.Size
		}
		if at >= r.size {
			break
		}
		e, ok, err := r.take()
		if err != nil {
			a.later = err
		}
		if err != nil || !ok {
			break
		}
		k := keyOf(e)
		same := a.last.u != nil && a.last.u.key == k
		room := a.held+gr.held == 0 || e.Unit <= a.most-a.held-gr.held && (len(gr.units) == 0 || e.Unit <= a.step-gr.held)
		if !Coded(e) || !inUnit(e) || e.At > at || !same && !room {
			r.peeked = &e
			break
		}
		if e = trim(e, at, r.size-at); e.Size <= 0 {
			continue
		}
		if same {
			gr.units = append(gr.units, piece{e, a.last.u})
		} else {
			gr.add(e)
			gr.held += e.Unit
		}
		a.last = gr.units[len(gr.units)-1]
	}
	if len(gr.units) == 0 {
		return nil
	}
	a.step = min(max(2*a.step, gr.held), r.g.limits.Request)
	return gr
}
