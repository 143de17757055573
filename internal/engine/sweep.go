package engine

import (
	"bytes"
	"context"
	"io"
	"iter"
	"runtime"
	"sync"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/pipe"
)

// An Item is content to be read in a sweep.
type Item struct {
	Entry   format.Entry
	Extents Extents // all of it
}

// Each is called for each item of a sweep with its content, or with the error
// that kept it from being read. What it returns ends the sweep.
type Each func(it Item, content io.Reader, err error) error

// batch is a run of items that are fetched together.
type batch struct {
	items []Item
	buf   []byte // contents end to end; nil if the one item is to be streamed
	errs  []error
}

const (
	sweepBatch = 1 << 20 // bytes in a batch; an item larger than that is streamed
	sweepItems = 1 << 12 // items in a batch, however small
)

// Sweep reads the contents of many items, neighbours in joined requests and
// several requests at once. Ordered, each is called one by one in the order of
// items; otherwise by several goroutines at once, in any order.
func (g *Engine) Sweep(ctx context.Context, items iter.Seq2[Item, error], ordered bool, each Each) error {
	workers := g.limits.Parallel
	if g.limits.Ahead == 0 {
		workers = min(max(runtime.GOMAXPROCS(0), 2), 16)
	}
	if ordered {
		return pipe.Ordered(ctx, batches(items), workers, g.fill,
			func(b *batch) error {
				defer putBuf(b.buf)
				return g.deliver(ctx, b, each)
			},
			func(b *batch) { putBuf(b.buf) })
	}
	return pipe.Each(ctx, batches(items), workers, func(ctx context.Context, b *batch) error {
		g.fill(ctx, b)
		defer putBuf(b.buf)
		return g.deliver(ctx, b, each)
	})
}

// batches cuts items into runs that are fetched together.
func batches(items iter.Seq2[Item, error]) iter.Seq2[*batch, error] {
	return func(yield func(*batch, error) bool) {
		b := &batch{}
		var size int64
		for it, err := range items {
			if err != nil {
				yield(nil, err)
				return
			}
			if n := it.Entry.Size; len(b.items) > 0 && (n > sweepBatch-size || len(b.items) == sweepItems) {
				if !yield(b, nil) {
					return
				}
				b, size = &batch{}, 0
			}
			b.items = append(b.items, it)
			size += it.Entry.Size
		}
		if len(b.items) > 0 {
			yield(b, nil)
		}
	}
}

var bufs sync.Pool // of *[]byte with room for a batch

func getBuf(n int64) []byte {
	if p, ok := bufs.Get().(*[]byte); ok {
		return (*p)[:n]
	}
	return make([]byte, n, sweepBatch)
}

func putBuf(b []byte) {
	if b != nil {
		bufs.Put(&b)
	}
}

// fill fetches a batch.
func (g *Engine) fill(ctx context.Context, b *batch) {
	var size int64
	for _, it := range b.items {
		size += it.Entry.Size
	}
	if size > sweepBatch {
		return // one item, to be streamed
	}
	b.buf = getBuf(size)
	all := func(yield func(format.Extent, error) bool) {
		at := int64(0)
		for _, it := range b.items {
			for e, err := range it.Extents {
				if err == nil {
					err = check(e)
				}
				if e = trim(e, 0, it.Entry.Size); err == nil && e.Size <= 0 {
					continue // sticks out; what is there is the next item's
				}
				e.At += at
				if !yield(e, err) {
					return
				}
			}
			at += it.Entry.Size
		}
	}
	if g.ReadAt(ctx, all, b.buf, 0) == nil {
		return
	}
	// One of them is at fault: find out which.
	b.errs = make([]error, len(b.items))
	at := int64(0)
	for i, it := range b.items {
		b.errs[i] = g.ReadAt(ctx, it.Extents, b.buf[at:][:it.Entry.Size], 0)
		at += it.Entry.Size
	}
}

func (g *Engine) deliver(ctx context.Context, b *batch, each Each) error {
	at := int64(0)
	for i, it := range b.items {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		var err error
		if b.buf == nil {
			r := g.NewReader(ctx, it.Extents, it.Entry.Size)
			err = each(it, r, nil)
			r.Close()
		} else {
			var fault error
			if b.errs != nil {
				fault = b.errs[i]
			}
			err = each(it, bytes.NewReader(b.buf[at:][:it.Entry.Size]), fault)
		}
		if err != nil {
			return err
		}
		at += it.Entry.Size
	}
	return nil
}
