package engine

import (
	"bytes"
	lru "container/list"
	"context"
	"io"
	"iter"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/kit/pipe"
)

// An Item is content to be read in a sweep.
type Item struct {
	Entry   format.Entry
	Extents Extents // all of it
	Plain   bool    // it is known that no extent is coded
	// Check, if it is not nil, is called with content that is held in memory, by the goroutine that
	// reads it. Its result is Right.
	Check func(e *format.Entry, content []byte) bool
	Right bool
}

// Each is called for each item of a sweep with its content, or with the error that kept it from
// being read. If it returns an error, the sweep ends.
type Each func(it Item, content io.Reader, err error) error

// Sweep reads the contents of many items, with joined requests for neighbours and several requests
// in parallel. With ordered, each is called for one item after the other, in the order of items.
// Otherwise several goroutines call it at once, in any order.
//
// If items come in stored order, each unit is decoded once: units of known size by the workers, in
// parallel, and solid content by the goroutine that makes the batches, front to back. Otherwise the
// most recent units are kept.
//
// The memory of a sweep is bounded: sweepMemory for batches, including the units that they decode
// and what a stream over units decodes ahead; at most 32 MiB for the units of the last item that
// was put in a batch; sweepKept for units if items come in no order; and four idle cursors. In
// addition, each worker may stream one large raw item, with the windows that any Reader has.
func (g *Engine) Sweep(ctx context.Context, items iter.Seq2[Item, error], ordered bool, each Each) error {
	return g.sweep(ctx, items, ordered, 0, each)
}

// Send is Sweep in order for a client that may stop reading. At first, it reads little ahead: 64 KiB
// of a disk, 256 KiB of a network, or one batch; items of a disk over 128 KiB are streamed. The system may hold
// 8 MiB for a client that reads nothing. After these, it reads ahead half of what the client has taken, as
// long as all such sweeps together have no more than mostSending.
func (g *Engine) Send(ctx context.Context, items iter.Seq2[Item, error], each Each) error {
	first := int64(farFirst)
	if g.limits.Ahead == 0 {
		first = nearFirst
	}
	return g.sweep(ctx, items, true, first, each)
}

func (g *Engine) sweep(ctx context.Context, items iter.Seq2[Item, error], ordered bool, first int64, each Each) error {
	workers := g.limits.Parallel
	if g.limits.Ahead == 0 {
		workers = min(max(runtime.GOMAXPROCS(0), 2), 16)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	// Its cursors are its own, so no other read moves them.
	own := &Engine{open: g.open, limits: g.limits, units: g.units, cursors: cursors{one: true}}
	defer own.Close()
	s := &sweep{g: own, ctx: ctx, each: each, large: sweepBatch, room: room{first: first, freed: make(chan struct{}, 1)}}
	if first == nearFirst {
		s.large = nearLarge
	}
	defer s.room.end()
	deliver := func(ctx context.Context, b *batch) error {
		defer s.finish(b)
		err := s.deliver(ctx, b)
		if err != nil {
			cancel(err) // the goroutine that makes the batches may be waiting for this one
		}
		return err
	}
	if ordered {
		return pipe.Ordered(ctx, s.batches(items), workers, s.fill,
			func(b *batch) error { return deliver(ctx, b) }, s.finish)
	}
	return pipe.Each(ctx, s.batches(items), workers, func(ctx context.Context, b *batch) error {
		s.fill(ctx, b)
		return deliver(ctx, b)
	})
}

// A sweep is the state of one Sweep.
type sweep struct {
	g     *Engine
	ctx   context.Context
	each  Each
	room  room
	large int64   // an item larger than that is streamed
	last  []*unit // of the last item that was put in a batch

	// mixed is set if items come in no order. The units used last are then kept, the latest in
	// front.
	mixed bool
	at    unitKey
	kept  map[unitKey]*lru.Element
	order lru.List
	held  int64
}

// fill fetches and decodes a batch.
func (s *sweep) fill(ctx context.Context, b *batch) {
	if b.read {
		return
	}
	r := reading{g: s.g, known: b.units, mine: b.own}
	var xs []format.Extent
	var err error
	if !b.stream {
		if b.need > 0 {
			b.buf = getBuf(b.need)
		}
		r.p = b.buf
		if err = s.g.fillHere(ctx, b.extents(), b.buf, 0, &xs); err != nil {
			xs = nil
		}
	}
	if rerr := r.readAll(ctx, xs); err == nil {
		err = rerr
	}
	for i := range b.items {
		it := &b.items[i]
		switch {
		case b.stream:
		case it.in.u == nil:
			it.content = b.buf[it.at:][:it.Entry.Size]
			if err != nil { // one of them is at fault: find out which
				it.err = s.g.ReadAt(ctx, it.Extents, it.content, 0)
			}
		default:
			if it.err = s.g.settle(ctx, &it.in); it.err == nil {
				it.content, it.err = it.in.u.slice(it.in.Extent)
			}
		}
		if it.Check != nil && !b.stream && it.err == nil {
			it.Right = it.Check(&it.Entry, it.content)
		}
	}
}

func (s *sweep) deliver(ctx context.Context, b *batch) error {
	for i := range b.items {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		it := &b.items[i]
		var err error
		switch {
		case b.solid != nil:
			if !b.solid.take() {
				return context.Cause(ctx)
			}
			err = s.each(it.Item, b.solid.r, nil)
		case b.stream:
			r := s.g.NewReader(ctx, it.Extents, it.Entry.Size)
			r.units.known, r.units.keep = b.units, false
			if b.units == nil {
				r.units.most = 0 // the batch has no room for them
			}
			err = s.each(it.Item, r, nil)
			r.Close()
		default:
			err = s.each(it.Item, bytes.NewReader(it.content), it.err)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// finish releases a batch that was passed on, delivered or not.
func (s *sweep) finish(b *batch) {
	putBuf(b.buf)
	size, solid := b.size(), b.solid
	if s.room.first > 0 {
		for i := range b.items {
			s.room.sent.Add(b.items[i].Entry.Size + headCost)
		}
	}
	putItems(b.items)
	*b = batch{} // a holder of the old batch must not keep its content alive
	s.room.give(size)
	if solid != nil {
		close(solid.done)
	}
}

var bufs sync.Pool // of *[]byte with room for a batch

func getBuf(n int64) []byte {
	if n <= smallBuf {
		return make([]byte, n)
	}
	if p, ok := bufs.Get().(*[]byte); ok {
		return (*p)[:n]
	}
	return make([]byte, n, sweepBatch)
}

func putBuf(b []byte) {
	if cap(b) == sweepBatch {
		bufs.Put(&b)
	}
}

var itemLists sync.Pool // of *[]sweepItem, which are empty

func getItems() []sweepItem {
	if p, ok := itemLists.Get().(*[]sweepItem); ok {
		return *p
	}
	return nil
}

func putItems(items []sweepItem) {
	clear(items)
	items = items[:0]
	itemLists.Put(&items)
}

// room bounds the batches under way by their size. One goroutine takes from it.
type room struct {
	first int64 // most that is held at first; 0 if that does not depend on what is taken
	mu    sync.Mutex
	held  int64
	sent  atomic.Int64
	freed chan struct{}

	borrowed int64 // of held, from the others
}

// sending is what all rooms with a first one hold together besides that.
var sending atomic.Int64

const mostSending = 64 << 20

const (
	nearFirst  = 64 << 10
	nearLarge  = 128 << 10
	farFirst   = 256 << 10
	headCost   = 128     // what is sent of an item besides its content
	unread     = 8 << 20 // what the system may hold of what was sent
	sweepParts = 4       // batches that the room has space for
)

// most returns how much may be held.
func (r *room) most() int64 {
	if r.first == 0 {
		return sweepMemory
	}
	return min(max(r.first, (r.sent.Load()-unread)/2), sweepMemory)
}

func (r *room) take(ctx context.Context, n int64) error {
	for {
		most := r.most()
		r.mu.Lock()
		ok := r.held == 0 || n <= most-r.held
		if ok && r.first > 0 && r.held > 0 && n > r.first-r.held {
			if ok = sending.Add(n) <= mostSending; ok {
				r.borrowed += n
			} else {
				sending.Add(-n)
			}
		}
		if ok {
			r.held += n
		}
		r.mu.Unlock()
		if ok {
			return nil
		}
		select {
		case <-r.freed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// giveBack gives up to n bytes to the others.
func (r *room) giveBack(n int64) {
	n = min(n, r.borrowed)
	r.borrowed -= n
	sending.Add(-n)
}

func (r *room) end() { r.giveBack(r.borrowed) }

func (r *room) give(n int64) {
	r.mu.Lock()
	r.held -= n
	r.giveBack(n)
	r.mu.Unlock()
	select {
	case r.freed <- struct{}{}:
	default:
	}
}
