//go:build linux || darwin || freebsd

package mount

import (
	"context"
	"io"
	"sync"
)

// along reads a long file concurrently with a program that reads it from its beginning, in order
// to compare it with its digest. This is necessary because holdall does not see bytes that the
// kernel copies from file to file.
type along struct {
	in     io.ReadCloser // its last read returns the result of the comparison
	cancel context.CancelFunc

	mu   sync.Mutex
	at   int64         // how far it has read
	to   int64         // how far the program has read
	idle chan struct{} // closed once it has read as far as the program; nil if it has
	err  error
}

// compare records a read of a long file from off to end. At the end of a file that was read from
// its beginning, it waits for the comparison. It returns an error if the file is damaged, as far
// as that is known.
func (x *file) compare(ctx context.Context, off, end int64) error {
	if x == nil || !x.long {
		return nil
	}
	x.mu.Lock()
	a := x.along
	fromStart := x.first == 0
	switch {
	case !x.run || x.closed:
	case !fromStart && a != nil:
		x.f.aheads.ending.Go(a.close)
		a = nil
	case fromStart && off == 0 && a == nil:
		actx, cancel := context.WithCancel(x.f.ctx)
		a = &along{in: x.v.a.Source().ReadFrom(actx, x.e, 0), cancel: cancel}
	}
	x.along = a
	x.mu.Unlock()
	var idle <-chan struct{}
	if a != nil {
		idle = a.catchUp(end)
	}
	if end < x.e.Size || !fromStart {
		return nil
	}
	if idle != nil {
		select {
		case <-idle:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return x.v.a.Source().Settle(ctx, x.e)
}

// catchUp makes a read up to the offset to. It returns a channel that is closed then, or nil.
func (a *along) catchUp(to int64) <-chan struct{} {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.to = max(a.to, to)
	if a.idle == nil && a.at < a.to && a.err == nil {
		a.idle = make(chan struct{})
		go a.read(a.idle)
	}
	return a.idle
}

func (a *along) read(idle chan struct{}) {
	defer close(idle)
	b := make([]byte, aheadBlock)
	for {
		a.mu.Lock()
		n := min(a.to-a.at, int64(len(b)))
		if n <= 0 || a.err != nil {
			a.idle = nil
			a.mu.Unlock()
			return
		}
		a.mu.Unlock()
		k, err := io.ReadFull(a.in, b[:n])
		a.mu.Lock()
		a.at, a.err = a.at+int64(k), err
		a.mu.Unlock()
	}
}

func (a *along) close() {
	a.cancel()
	a.mu.Lock()
	idle := a.idle
	if a.err == nil {
		a.err = context.Canceled
	}
	a.mu.Unlock()
	if idle != nil {
		<-idle
	}
	a.in.Close()
}
