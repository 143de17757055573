package far

import (
	"context"
	"fmt"
	"io/fs"
	"sync"

	"github.com/holdall/holdall/store"
)

const (
	// MaxSize is how many bytes an object may have.
	MaxSize = 5 << 40

	// InMemory is how much of an object waits in memory to be sent, as long as that is
	// three parts; of larger ones there are two.
	InMemory = 48 << 20
)

// Parts are what a writer sends of an object while more of it is written: one part is
// filled, others are on their way. Its methods belong to one goroutine, and so do its
// fields.
type Parts struct {
	// Size is that of the part which begins where so many bytes are in parts.
	Size func(sent int64) int

	// Most is how many parts an object may have, and Word what one is called.
	Most int
	Word string

	// Begin, if there is one, is called before a part is sent.
	Begin func(part []byte) error

	// Put sends a part, the first being number 0. It is called in parallel, and must
	// not keep p.
	Put func(p []byte, number int) error

	// Fail makes err that of a request of the writer.
	Fail func(op string, err error) error

	Ctx     context.Context // of what is sent while more is written
	Buf     []byte          // the part that is being filled
	Written int64           // bytes in all
	Sent    int64           // of these, those given to parts
	Count   int             // of parts
	Ended   bool            // nothing more is written
	Done    bool            // nor sent: the object is there, or will not be

	cancel  context.CancelFunc
	sending sync.WaitGroup

	mu     sync.Mutex // for those that send
	free   *sync.Cond // memory was given back
	held   int        // bytes of parts that are being sent
	spares [][]byte   // buffers of parts that were sent
	failed error
}

// Start makes p ready for Write. ctx holds for all that is sent.
func (p *Parts) Start(ctx context.Context) {
	p.Ctx, p.cancel = context.WithCancel(ctx)
	p.free = sync.NewCond(&p.mu)
}

// Usable says why nothing can be written, nil if it can.
func (p *Parts) Usable() error {
	if p.Ended {
		return fs.ErrClosed
	}
	return p.Failed()
}

// Failed says what went wrong in sending, nil if nothing did.
func (p *Parts) Failed() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.failed
}

// Spoil keeps what holds wrong bytes, or only a part of them, from being committed. It
// returns err.
func (p *Parts) Spoil(err error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.failed == nil {
		p.failed = err
	}
	return err
}

// Write fills parts. A part is sent once more than it is there, so that there is
// always something left for the last one, which alone may be short.
func (p *Parts) Write(b []byte) (int, error) {
	n := 0
	for n < len(b) {
		if err := p.Usable(); err != nil {
			return n, p.Fail("write", err)
		}
		if p.Written == MaxSize {
			return n, p.Fail("write", fmt.Errorf("more than %d bytes, the maximum size of an object", int64(MaxSize)))
		}
		full := p.Size(p.Sent)
		if len(p.Buf) >= full {
			if err := p.Send(); err != nil {
				return n, p.Fail("write", err)
			}
			continue
		}
		k := int(min(int64(len(b)-n), int64(full-len(p.Buf)), MaxSize-p.Written))
		p.reserve(k, full)
		p.Buf = append(p.Buf, b[n:n+k]...)
		n += k
		p.Written += int64(k)
	}
	return n, nil
}

// reserve makes room for k bytes more, without going beyond a part as append would. It
// takes the buffer of a part that was sent if that has room for a full one: without
// them garbage would outgrow what is held.
func (p *Parts) reserve(k, full int) {
	need := len(p.Buf) + k
	if need <= cap(p.Buf) {
		return
	}
	var grown []byte
	p.mu.Lock()
	if n := len(p.spares); n > 0 {
		grown, p.spares = p.spares[n-1], p.spares[:n-1]
	}
	if cap(grown) < full {
		p.spares = nil // parts have grown, and do not shrink again
	}
	p.mu.Unlock()
	if cap(grown) < full {
		grown = make([]byte, 0, min(full, max(need, 2*cap(p.Buf), 64<<10)))
	}
	p.Buf = append(grown[:0], p.Buf...)
}

// Room says why there can be no further part, nil if there can.
func (p *Parts) Room() error {
	if p.Count == p.Most {
		return fmt.Errorf("more than %d %ss", p.Most, p.Word)
	}
	return nil
}

// Send gives the buffer to a goroutine of its own, and waits until there is memory for
// the part after it.
func (p *Parts) Send() error {
	err := p.Room()
	if err == nil && p.Begin != nil {
		err = p.Begin(p.Buf)
	}
	if err != nil {
		return err
	}
	part, number := p.Buf, p.Count
	p.Buf = nil
	p.Count++
	p.Sent += int64(len(part))
	next := p.Size(p.Sent)

	p.mu.Lock()
	defer p.mu.Unlock()
	p.held += len(part)
	p.sending.Go(func() {
		err := p.Put(part, number)
		p.mu.Lock()
		defer p.mu.Unlock()
		p.held -= len(part)
		if err == nil {
			p.spares = append(p.spares, part) // the server has all of it, so it is not read any more
		} else if p.failed == nil {
			p.failed = err
		}
		p.free.Signal()
	})
	for p.held > 0 && p.held+next > InMemory && p.failed == nil {
		if p.held <= len(part) && next > InMemory/3 {
			break // one on its way and one to be filled are the least
		}
		p.free.Wait()
	}
	return p.failed
}

// Copied counts a part of n bytes that the server has made by itself.
func (p *Parts) Copied(n int64) {
	p.Count++
	p.Sent += n
	p.Written += n
}

// EndWith ends all sending when ctx ends, until stop is called.
func (p *Parts) EndWith(ctx context.Context) (stop func() bool) {
	return context.AfterFunc(ctx, p.cancel)
}

// Flush sends what is left, and waits until the server has it all or ctx ends. Nothing
// more can be written.
func (p *Parts) Flush(ctx context.Context) error {
	defer p.EndWith(ctx)()
	if len(p.Buf) > 0 {
		if err := p.Send(); err != nil {
			return err
		}
	}
	p.sending.Wait()
	p.Ended = true
	p.mu.Lock()
	p.spares = nil
	p.mu.Unlock()
	if err := p.Failed(); err != nil {
		return err
	}
	return ctx.Err()
}

// Commit has appear make the object appear, and ends p. It fails if ctx ends, or that of
// Start.
func (p *Parts) Commit(ctx context.Context, name string, appear func() (etag string, err error)) (store.Info, error) {
	err := p.Failed()
	if p.Done {
		err = fs.ErrClosed
	}
	if err == nil {
		err = ctx.Err()
	}
	var etag string
	if err == nil {
		etag, err = appear()
	}
	if err != nil {
		return store.Info{}, p.Fail("commit", err)
	}
	p.Stop()
	return store.Info{Name: name, Size: p.Written, Version: etag}, nil
}

// Wait waits for what is on its way.
func (p *Parts) Wait() { p.sending.Wait() }

// Stop ends all sending and gives back the memory.
func (p *Parts) Stop() {
	p.Ended, p.Done = true, true
	p.cancel()
	p.sending.Wait() // else a part could arrive after the upload is gone
	p.Buf = nil
	p.mu.Lock()
	defer p.mu.Unlock()
	p.spares = nil
}
