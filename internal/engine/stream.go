package engine

import (
	"bytes"
	"context"
	"errors"
	"io"
	"iter"

	"github.com/holdall/holdall/codec"
	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/store"
)

// A future is a window that is being fetched.
type future struct {
	buf  []byte
	err  error
	done chan struct{}
}

func (f *future) wait(ctx context.Context) ([]byte, error) {
	select {
	case <-f.done:
		return f.buf, f.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// stream reads a range of one object front to back, window by window. It cannot
// know whether all of the range will be read, so it begins with small windows,
// one at a time, and goes up to l.Request and l.Ahead as they are used up.
type stream struct {
	ctx      context.Context
	o        store.Object
	off, end int64 // not yet asked for
	window   int64 // of the next request
	most     int64
	used     int // windows
	ahead    int
	queue    []*future
	cur      []byte
	spare    []byte
}

const firstWindow = 64 << 10

func newStream(ctx context.Context, o store.Object, off, n int64, l Limits) *stream {
	return &stream{ctx: ctx, o: o, off: off, end: off + n, window: min(firstWindow, l.Request), most: l.Request, ahead: l.Ahead}
}

// wait ends when nothing is under way any more; cancel ctx to make it soon.
func (s *stream) wait() {
	for _, f := range s.queue {
		<-f.done
	}
	s.queue = nil
}

func (s *stream) Read(p []byte) (int, error) {
	if len(s.cur) == 0 {
		// Without read-ahead a large buffer is filled directly.
		if n := min(int64(len(p)), s.end-s.off); s.ahead == 0 && n >= s.window {
			err := s.o.ReadAt(s.ctx, p[:n], s.off)
			if err != nil {
				return 0, err
			}
			s.off += n
			return int(n), nil
		}
		if err := s.next(); err != nil {
			return 0, err
		}
	}
	n := copy(p, s.cur)
	s.cur = s.cur[n:]
	return n, nil
}

func (s *stream) grow() { s.window = min(2*s.window, s.most) }

// next makes the next window current.
func (s *stream) next() error {
	if s.ahead == 0 {
		n := min(s.window, s.end-s.off)
		if n == 0 {
			return io.EOF
		}
		if int64(cap(s.spare)) < n {
			s.spare = make([]byte, n)
		}
		s.grow()
		s.cur = s.spare[:n]
		if err := s.o.ReadAt(s.ctx, s.cur, s.off); err != nil {
			s.cur = nil
			return err
		}
		s.off += n
		return nil
	}
	for len(s.queue) < min(s.used, s.ahead-1)+1 && s.off < s.end {
		n := min(s.window, s.end-s.off)
		f := &future{buf: make([]byte, n), done: make(chan struct{})}
		off := s.off
		go func() {
			defer close(f.done)
			f.err = s.o.ReadAt(s.ctx, f.buf, off)
		}()
		s.off += n
		s.grow()
		s.queue = append(s.queue, f)
	}
	s.used++
	if len(s.queue) == 0 {
		return io.EOF
	}
	b, err := s.queue[0].wait(s.ctx)
	if err != nil {
		return err // it may still be under way, and is waited for at the end
	}
	s.cur, s.queue = b, s.queue[1:]
	return nil
}

var errClosed = errors.New("read after close")

// Reader reads content front to back. It must be closed, which ends what it
// has under way.
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
	closer io.Closer
	stream *stream
	err    error
}

// NewReader returns the content that extents describe, of the given size. Holes
// between extents read as zeros.
func (g *Engine) NewReader(ctx context.Context, extents Extents, size int64) *Reader {
	return g.NewReaderAt(ctx, extents, 0, size)
}

// NewReaderAt returns the content from off on; what extents say of earlier
// bytes does not matter.
func (g *Engine) NewReaderAt(ctx context.Context, extents Extents, off, size int64) *Reader {
	r := &Reader{g: g, at: off, size: size}
	r.ctx, r.cancel = context.WithCancel(ctx)
	r.next, r.stop = iter.Pull2(extents)
	return r
}

// Close ends the read and what it has under way.
func (r *Reader) Close() error {
	r.cancel()
	r.stop()
	r.closeRun()
	r.err = errClosed
	return nil
}

func (r *Reader) closeRun() {
	if r.closer != nil {
		r.closer.Close()
		r.closer = nil
	}
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
		} else if err != nil {
			r.err = short(err)
		}
		if n > 0 {
			return n, nil
		}
	}
	return 0, r.err
}

// nextRun begins the next run of content: neighbouring raw extents together,
// a unit of another codec, a hole.
func (r *Reader) nextRun() error {
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
	switch e.Codec {
	case codec.Zero:
		r.cur = zeros{}
		return nil
	case codec.Inline:
		r.cur = bytes.NewReader(e.Data[e.Skip:][:e.Size])
		return nil
	}
	o, err := r.g.Object(r.ctx, e)
	if err != nil {
		return err
	}
	if e.Codec == codec.Raw {
		if err := r.join(&e); err != nil {
			return err
		}
		r.stream = newStream(r.ctx, o, e.Off, e.Len, r.g.limits)
		r.cur = r.stream
		return nil
	}
	r.stream = newStream(r.ctx, o, e.Off, e.Len, r.g.limits)
	d, err := decoder(e, r.stream)
	if err != nil {
		return err
	}
	r.cur, r.closer = d, d
	return nil
}

// join lengthens e by the raw extents that follow it both in content and in the
// object, so that blocks stored one behind the other are one read.
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
		err = check(e)
	}
	return e, ok, err
}

// zeros is a hole.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }
