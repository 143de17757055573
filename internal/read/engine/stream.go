package engine

import (
	"context"
	"io"
	"math"
	"slices"
	"sync/atomic"

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

// stream reads a range of one object front to back, window by window. It cannot know whether all
// of the range will be read, so it begins with a small window, and requests at most twice what
// has been used. Windows grow to mostWindow, and at most l.Ahead of them are read ahead, fewer if
// there are several streams.
type stream struct {
	ctx      context.Context
	o        store.Object
	off, end int64 // not yet requested
	window   int64 // of the next request
	most     int64
	used     int64 // bytes
	asked    int64 // bytes, of the queue
	ahead    int
	queue    []*future
	cur      []byte
	spare    []byte   // the window of cur
	idle     [][]byte // windows to be reused
	counted  bool     // in streaming
}

// streaming counts the streams that read ahead, of all engines. Together they have about mostAhead
// windows under way, but each has at least two.
var streaming atomic.Int32

const (
	firstWindow = 64 << 10
	mostWindow  = 2 << 20
	mostAhead   = 12
)

func newStream(ctx context.Context, o store.Object, off, n int64, l Limits) *stream {
	return &stream{ctx: ctx, o: o, off: off, end: off + n, window: min(firstWindow, l.Request), most: min(l.Request, mostWindow), ahead: l.Ahead}
}

// whole declares that the whole range will be read. Without reading ahead, windows stay
// unchanged.
func (s *stream) whole() {
	if s.ahead > 0 {
		s.window, s.used = s.most, math.MaxInt64/4
	}
}

func (s *stream) wait() {
	for _, f := range s.queue {
		<-f.done
	}
	s.queue = nil
	s.count(false)
}

// count adds the stream to those that read ahead, or removes it.
func (s *stream) count(reads bool) {
	if s.counted == reads {
		return
	}
	if s.counted = reads; reads {
		streaming.Add(1)
	} else {
		streaming.Add(-1)
	}
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

func (s *stream) room(n int64) []byte {
	for i, b := range s.idle {
		if int64(cap(b)) >= n {
			s.idle = slices.Delete(s.idle, i, i+1)
			return b[:n]
		}
	}
	s.idle = nil // they are too short for this stream
	return make([]byte, n)
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
	s.count(true)
	ahead := min(s.ahead, max(2, mostAhead/int(streaming.Load())))
	for s.off < s.end && len(s.queue) < ahead && (len(s.queue) == 0 || s.asked+s.window <= 2*s.used) {
		n := min(s.window, s.end-s.off)
		f := &future{buf: s.room(n), done: make(chan struct{})}
		off := s.off
		go func() {
			defer close(f.done)
			f.err = s.o.ReadAt(s.ctx, f.buf, off)
		}()
		s.off += n
		s.asked += n
		s.grow()
		s.queue = append(s.queue, f)
	}
	if len(s.queue) == 0 {
		s.count(false)
		return io.EOF
	}
	b, err := s.queue[0].wait(s.ctx)
	if err != nil {
		return err // it may still be under way, and is waited for at the end
	}
	if s.spare != nil {
		s.idle = append(s.idle, s.spare)
	}
	s.cur, s.spare, s.queue = b, b, s.queue[1:]
	s.used, s.asked = s.used+int64(len(b)), s.asked-int64(len(b))
	return nil
}
