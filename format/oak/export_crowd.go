package oak

import (
	"context"
	"io"
	"runtime"
	"sync"

	"github.com/holdall/holdall/format/oak/internal/nodejson"
	"github.com/holdall/holdall/format/oak/internal/segment"
)

// A crowd writes nodes as JSON, several at once, in the order in which they are told.
// Of what is ahead of its turn it holds a few pieces of exportPiece bytes.
type crowd struct {
	records *segment.Reader
	how     nodejson.Options
	to      io.Writer

	hand   []told
	work   chan handful
	order  chan handful
	cancel context.CancelCauseFunc
	wg     sync.WaitGroup
	spare  sync.Pool // of *[]byte

	mu   sync.Mutex
	lost int64
}

// told is a node that is to be written, or is lost.
type told struct {
	path string
	id   segment.RecordID
	lost *nodejson.Lost
}

// A handful of nodes is written by one.
type handful struct {
	nodes []told
	out   chan []byte
}

const (
	exportHandful = 64
	exportPiece   = 256 << 10
)

// newCrowd starts a crowd, which goes on until done or the context it returns ends.
func newCrowd(ctx context.Context, records *segment.Reader, to io.Writer, how nodejson.Options) (*crowd, context.Context) {
	n := runtime.GOMAXPROCS(0)
	c := &crowd{records: records, how: how, to: to, work: make(chan handful), order: make(chan handful, 2*n)}
	ctx, c.cancel = context.WithCancelCause(ctx)
	for range n {
		c.wg.Go(func() {
			for h := range c.work {
				c.write(ctx, h)
			}
		})
	}
	c.wg.Go(func() { c.gather(ctx) })
	return c, ctx
}

// tell adds a node.
func (c *crowd) tell(ctx context.Context, n told) error {
	if c.hand = append(c.hand, n); len(c.hand) < exportHandful {
		return nil
	}
	return c.pass(ctx)
}

// pass gives the hand away: first a place in the order, then the work.
func (c *crowd) pass(ctx context.Context) error {
	h := handful{c.hand, make(chan []byte, 2)}
	c.hand = make([]told, 0, exportHandful)
	for _, to := range []chan handful{c.order, c.work} {
		select {
		case to <- h:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// done waits until all is written, unless err says that something went wrong.
func (c *crowd) done(ctx context.Context, err error) (lost int64, _ error) {
	if err == nil {
		err = c.pass(ctx)
	}
	if err != nil {
		c.cancel(err)
	}
	close(c.work)
	close(c.order)
	c.wg.Wait()
	if err == nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	c.cancel(nil)
	return c.lost, err
}

func (c *crowd) write(ctx context.Context, h handful) {
	defer close(h.out)
	w := &pieces{ctx: ctx, out: h.out, spare: &c.spare}
	enc := nodejson.NewEncoder(w, c.how)
	for _, t := range h.nodes {
		if err := c.node(ctx, enc, t); err != nil {
			c.cancel(err)
			return
		}
	}
	if err := w.flush(); err != nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lost += enc.Lost()
}

func (c *crowd) node(ctx context.Context, enc *nodejson.Encoder, t told) error {
	if t.lost != nil {
		return enc.LostNode(t.path, *t.lost)
	}
	n, err := c.records.Node(ctx, t.id)
	if err != nil {
		return err
	}
	return enc.Node(ctx, t.path, n)
}

// gather writes what the others made.
func (c *crowd) gather(ctx context.Context) {
	for h := range c.order {
		for more := true; more; {
			select {
			case b, ok := <-h.out:
				if more = ok; ok {
					if _, err := c.to.Write(b); err != nil {
						c.cancel(err)
					}
					if b = b[:0]; cap(b) == exportPiece {
						c.spare.Put(&b)
					}
				}
			case <-ctx.Done():
				more = false
			}
		}
	}
}

// pieces is a Writer that gives away what it has in pieces.
type pieces struct {
	ctx   context.Context
	out   chan<- []byte
	b     []byte
	spare *sync.Pool
}

func (w *pieces) Write(p []byte) (int, error) {
	if len(w.b)+len(p) > exportPiece {
		if err := w.flush(); err != nil {
			return 0, err
		}
	}
	if w.b == nil {
		if b, ok := w.spare.Get().(*[]byte); ok {
			w.b = *b
		} else {
			w.b = make([]byte, 0, exportPiece)
		}
	}
	w.b = append(w.b, p...)
	return len(p), nil
}

func (w *pieces) flush() error {
	if len(w.b) == 0 {
		return nil
	}
	select {
	case w.out <- w.b:
		w.b = nil
		return nil
	case <-w.ctx.Done():
		return context.Cause(w.ctx)
	}
}
