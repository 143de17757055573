package engine

import (
	"context"
	"io"
	"slices"
	"sync"

	"github.com/holdall/holdall/codec"
	"github.com/holdall/holdall/format"
)

// A reading is what must be fetched for one piece of content, in one step: raw extents are read
// into place, units are decoded, and the wanted parts of them are copied.
type reading struct {
	g     *Engine
	p     []byte // content from off on; nil if only units are wanted
	off   int64
	keep  bool              // units may stay in memory
	front bool              // only the wanted part of the last unit is decoded
	known map[unitKey]*unit // units that are decoded elsewhere, or are in mine
	mine  map[unitKey]*unit // units to be decoded here
	raw   []format.Extent
	solid []format.Extent
	units []piece
	held  int64 // size of the units in mine, except for those that were there first
}

// A piece is content that lies in a unit.
type piece struct {
	format.Extent
	u *unit
}

func (r *reading) add(e format.Extent) {
	switch {
	case !Coded(e):
		if n := len(r.raw); n > 0 && follows(e, r.raw[n-1]) {
			r.raw[n-1].Size += e.Size
			r.raw[n-1].Len += e.Len
			return
		}
		r.raw = append(r.raw, e)
	case inUnit(e):
		r.units = append(r.units, piece{e, r.unit(e)})
	default:
		r.solid = append(r.solid, e)
	}
}

// follows reports whether e comes right after last, both as stored and in the content, so that one
// read without a copy in between serves both. They are raw, and cut to what is wanted.
func follows(e, last format.Extent) bool {
	return e.Off == last.Off+last.Len && e.At == last.At+last.Size && e.Object == last.Object && e.External == last.External
}

// readAll reads what extents describe, in steps that are small enough for the memory limit.
func (r *reading) readAll(ctx context.Context, xs []format.Extent) error {
	for _, e := range xs {
		if r.held > 0 && Coded(e) && inUnit(e) && e.Unit > maxAhead-r.held {
			if err := r.run(ctx); err != nil {
				return err
			}
			*r = reading{g: r.g, p: r.p, off: r.off, keep: r.keep, front: r.front, known: r.known}
		}
		r.add(e)
	}
	return r.run(ctx)
}

// unit returns the unit that contains e, and makes sure that it gets decoded.
func (r *reading) unit(e format.Extent) *unit {
	k := keyOf(e)
	if n := len(r.units); n > 0 && r.units[n-1].u.key == k && !r.front {
		return r.units[n-1].u
	}
	if u := r.known[k]; u != nil {
		return u
	}
	want := k.size
	if r.front {
		want = e.Skip + e.Size
	}
	if u := r.mine[k]; u != nil {
		u.want = max(u.want, want)
		return u
	}
	u, mine := r.g.units.claim(k, r.keep, want)
	if mine {
		if r.mine == nil {
			r.mine = map[unitKey]*unit{}
		}
		r.mine[k] = u
		r.held += k.size
	}
	return u
}

// run does all the work. It gives up the units that it has not decoded.
func (r *reading) run(ctx context.Context) error {
	err := r.fetchAll(ctx)
	if err == nil {
		err = r.copyUnits(ctx)
	}
	for _, u := range r.mine {
		if !u.landed() {
			r.g.units.giveUp(u)
		}
	}
	if err == nil {
		err = r.readSolid(ctx)
	}
	return err
}

// fetchAll fetches the raw content and the units, and lands the units. A damaged unit is not an
// error here. A unit that cannot be fetched is an error and does not land.
func (r *reading) fetchAll(ctx context.Context) error {
	xs := r.raw
	for k, u := range r.mine {
		if !u.landed() {
			xs = append(xs, k.extent())
		}
	}
	reqs := plan(xs, r.g.limits)
	switch len(reqs) {
	case 0:
		return nil
	case 1:
		return r.fetch(ctx, reqs[0])
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wg sync.WaitGroup
	room := make(chan struct{}, r.g.limits.Parallel)
	for _, q := range reqs {
		room <- struct{}{}
		if ctx.Err() != nil {
			break
		}
		wg.Go(func() {
			defer func() { <-room }()
			if err := r.fetch(ctx, q); err != nil {
				cancel(err)
			}
		})
	}
	wg.Wait()
	return context.Cause(ctx)
}

// storedBufs are buffers of *[]byte for stored bytes that are about to be decoded. The decoded
// content is left to the garbage collector, since its readers may keep a part.
var storedBufs = sync.Pool{New: func() any { return new([]byte) }}

func (r *reading) fetch(ctx context.Context, q request) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	o, err := r.g.open(ctx, q.object, q.external)
	if err != nil {
		return err
	}
	if e := q.extents[0]; len(q.extents) == 1 && e.Codec == codec.Raw {
		return o.ReadAt(ctx, r.p[e.At-r.off:][:e.Size], e.Off)
	}
	spare := storedBufs.Get().(*[]byte)
	defer storedBufs.Put(spare)
	*spare = slices.Grow((*spare)[:0], int(q.len))
	buf := (*spare)[:q.len]
	if err := o.ReadAt(ctx, buf, q.off); err != nil {
		if !isCut(err) {
			return err
		}
		if len(q.extents) == 1 {
			r.g.landStored(ctx, o, r.mine[keyOf(q.extents[0])], nil)
			return nil
		}
		for _, e := range q.extents {
			if err := r.fetch(ctx, request{q.object, q.external, e.Off, e.Len, []format.Extent{e}}); err != nil {
				return err
			}
		}
		return nil
	}
	for _, e := range q.extents {
		stored := buf[e.Off-q.off:][:e.Len]
		if e.Codec == codec.Raw {
			copy(r.p[e.At-r.off:][:e.Size], stored)
		} else {
			r.g.landStored(ctx, o, r.mine[keyOf(e)], stored)
		}
	}
	return nil
}

// copyUnits copies the wanted parts of units, and waits for those that other goroutines decode.
// It must be called after all own units have landed, so that two readings never wait for each
// other.
func (r *reading) copyUnits(ctx context.Context) error {
	for i := range r.units {
		pc := &r.units[i]
		if err := r.g.settle(ctx, pc); err != nil {
			return err
		}
		if r.p == nil {
			continue
		}
		b, err := pc.u.slice(pc.Extent)
		if err != nil {
			return err
		}
		copy(r.p[pc.At-r.off:], b)
	}
	return nil
}

// settle waits until as much of a piece's unit is decoded as the piece needs. If the goroutine that
// was to decode it was cancelled, met a different error or wanted less, settle decodes it.
func (g *Engine) settle(ctx context.Context, pc *piece) error {
	for {
		if err := pc.u.wait(ctx); err != nil || !pc.u.gone && pc.u.has(pc.Skip+pc.Size) {
			return err
		}
		var mine bool
		if pc.u, mine = g.units.claim(pc.u.key, true, pc.u.key.size); mine {
			g.decode(ctx, pc.u)
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
		}
	}
}

// readSolid reads content from units that are not decoded completely.
func (r *reading) readSolid(ctx context.Context) error {
	for _, e := range r.solid {
		c, err := r.g.cursor(ctx, e)
		if err != nil {
			return err
		}
		_, err = io.ReadFull(c, r.p[e.At-r.off:][:e.Size])
		r.g.cursors.put(c)
		if err == io.EOF || err == io.ErrUnexpectedEOF {
			err = wrongUnit(c.key, err)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
