package fleet

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdall/holdall/internal/app/catalog"
)

// A Feed notifies workers of chunks that are due, so that they need not poll
// for them. It decides nothing: a chunk belongs to the worker whose claim
// succeeds. Workers find chunks without the feed if it is late or has lost
// them.
type Feed interface {
	// Feed calls work with the chunks of a plan, n at a time at most, until stop
	// is called. Plan 0 means any plan. stop waits for the running calls.
	//
	// work returns when there is nothing more to do for the chunk. If again is not
	// zero, the chunk is not finished, and work is to be called again after that
	// time. The error says why the chunk is not done. The catalogue alone decides
	// whether a chunk is tried again. If ctx ends, work returns, but the chunk may
	// be packed nevertheless.
	Feed(ctx context.Context, plan int64, n int, work func(ctx context.Context, chunk int64) (again time.Duration, err error)) (stop func(), err error)
}

// An offer is a chunk that a feed announced.
type offer struct {
	chunk  int64
	answer chan answer // has room for one
}

type answer struct {
	again time.Duration
	err   error
}

// end reports the outcome of its chunk to the feed. Without a feed, it does
// nothing.
func (o *offer) end(again time.Duration, err error) {
	if o != nil {
		o.answer <- answer{again, err}
	}
}

// offered is the function that the feed calls. It waits until the chunk is
// packed, because a feed shows which worker is busy with what.
func (w *worker) offered(ctx context.Context, chunk int64) (again time.Duration, err error) {
	o := &offer{chunk: chunk, answer: make(chan answer, 1)}
	// An idle goroutine takes the offer at once. If there is none, because all
	// found work without the feed, other machines should get the chunk.
	t := time.NewTimer(w.o.Look / 5)
	defer t.Stop()
	select {
	case w.offers <- o:
	case <-w.over.Done():
		return w.o.Look, nil
	case <-t.C:
		return w.o.Look, nil
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	}
	select {
	case a := <-o.answer:
		return a.again, a.err
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	}
}

// next claims a chunk. With a feed it waits for an offer, but only for a
// limited time: it also looks for chunks of dead workers, which are not
// announced, and for chunks that the feed missed.
func (w *worker) next(ctx context.Context, owner string) (claim, *offer, error) {
	r := catalog.Request{Owner: owner, Lease: w.o.Lease, Plan: w.plan}
	if w.o.Feed == nil {
		k, err := w.claim(ctx, r)
		return k, nil, err
	}
	// First, because those chunks are the oldest work.
	if w.patrols() {
		r.Lapsed = true
		k, err := w.claim(ctx, r)
		if !errors.Is(err, catalog.ErrNone) {
			return k, nil, err
		}
		r.Lapsed = false
	}
	t := time.NewTimer(w.later())
	defer t.Stop()
	for {
		select {
		case o := <-w.offers:
			r.Chunk = o.chunk
			k, err := w.claim(ctx, r)
			if err == nil {
				return k, o, nil
			}
			if !errors.Is(err, catalog.ErrNone) {
				o.end(w.o.Look, nil)
				return k, nil, err
			}
			o.end(w.unclaimed(ctx, o.chunk))
		case <-t.C:
			r.Chunk = 0
			k, err := w.claim(ctx, r)
			return k, nil, err
		case <-ctx.Done():
			return claim{}, nil, context.Cause(ctx)
		}
	}
}

// patrols reports whether it is time to look for chunks whose lease has ended.
// One goroutine does this for all.
func (w *worker) patrols() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if now := time.Now(); now.After(w.patrol) {
		w.patrol = now.Add(w.later())
		return true
	}
	return false
}

// unclaimed decides what happens with an offer that could not be claimed.
func (w *worker) unclaimed(ctx context.Context, chunk int64) (again time.Duration, err error) {
	k, err := w.c.Chunk(ctx, chunk)
	if err != nil {
		return w.o.Look, nil // it is not the chunk's fault
	}
	var until time.Time
	switch k.State {
	case catalog.ChunkDone:
		return 0, nil
	case catalog.ChunkCancelled:
		return 0, catalog.ErrCancelled
	case catalog.ChunkSetAside:
		return 0, fmt.Errorf("set aside: %s", k.Problem)
	case catalog.ChunkLeased:
		until = k.LeaseUntil
	case catalog.ChunkPlanned:
		until = k.NotBefore // zero for the last of parts that are not all done
	}
	// That time is by the database's clock, which may differ from ours.
	return min(max(time.Until(until), w.o.Look), max(w.o.Lease, w.o.Look)), nil
}
