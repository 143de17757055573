package engine

import (
	lru "container/list"
	"iter"
	"sync/atomic"

	"github.com/holdall/holdall/codec"
	"github.com/holdall/holdall/format"
)

const (
	sweepBatch  = 1 << 20        // bytes in a batch; an item larger than that is streamed
	sweepItems  = 1 << 12        // items in a batch, however small
	sweepMemory = 64 << 20       // of batches under way
	itemCost    = 1 << 10        // memory of an item without its content
	smallBuf    = sweepBatch / 2 // contents that do not take a buffer for sweepBatch
)

// batch is a run of items that are fetched together.
type batch struct {
	items []sweepItem
	buf   []byte // contents that are not a slice of a unit, end to end
	need  int64  // of buf
	// units are the units that items lie in. Those at the borders may belong to other batches, too.
	// Those in own are decoded with this batch.
	units, own map[unitKey]*unit
	decoded    int64 // bytes of own, decoded
	stored     int64 // bytes of own, as stored
	read       bool  // by the goroutine that made the batch
	stream     bool  // the one item is read by the batch's consumer
	solid      *handover
}

// sweepItem is an item of a batch.
type sweepItem struct {
	Item
	at      int64 // in buf
	in      piece // the content, if it lies in one unit
	content []byte
	err     error
}

func (b *batch) size() int64 {
	n := b.decoded + b.stored + int64(len(b.items))*itemCost
	switch {
	case b.read:
		n += int64(cap(b.buf))
	case b.need > smallBuf:
		n += sweepBatch
	default:
		n += b.need
	}
	if b.stream && b.units != nil {
		n += min(maxAhead, b.items[0].Entry.Size)
	}
	return n
}

func (b *batch) extents() Extents {
	return func(yield func(format.Extent, error) bool) {
		for _, it := range b.items {
			if it.in.u != nil {
				continue
			}
			for e, err := range it.Extents {
				if err == nil {
					err = check(e)
				}
				if e = trim(e, 0, it.Entry.Size); err == nil && e.Size <= 0 {
					continue // beyond the entry; that room is the next item's
				}
				e.At += it.at
				if !yield(e, err) {
					return
				}
			}
		}
	}
}

// A handover lends the stream of a large solid item to the consumer that takes it. The goroutine
// that makes the batches waits until the stream is given back: the next item follows on the same
// cursor.
type handover struct {
	r     *Reader
	state atomic.Int32
	done  chan struct{}
}

// States of a handover.
const (
	offered = iota
	taken
	revoked
)

func (h *handover) take() bool { return h.state.CompareAndSwap(offered, taken) }

// revoke ends the offer. If the stream has been taken, revoke waits.
func (h *handover) revoke() {
	if !h.state.CompareAndSwap(offered, revoked) {
		<-h.done
	}
}

// A place is where the content of an item is stored.
type place struct {
	kind kind
	// For an item in units, keys are those units, without repetitions in a row. For a large item
	// they are only the first and the last unit, which it may share.
	keys []unitKey
	only format.Extent // the only extent, with all of the content; Size is 0 if there is none
}

type kind uint8

const (
	nowhere kind = iota // in the extents themselves
	plain               // does not matter for batches
	inUnits
	solid
)

// look finds out where an item lies, as far as that affects how batches are cut; most is their size. Errors in its
// extents are left to the goroutine that reads them.
func look(it Item, most int64) (p place) {
	if it.Plain {
		return place{kind: plain}
	}
	large := it.Entry.Size > most
	n, decoded := 0, int64(0)
	for e, err := range it.Extents {
		if err != nil || e.Damaged || check(e) != nil {
			return place{kind: plain}
		}
		if e = trim(e, 0, it.Entry.Size); e.Size <= 0 {
			continue
		}
		n++
		switch {
		case e.Codec == codec.Inline || e.Codec == codec.Zero:
			continue
		case !Coded(e):
			if p.kind == nowhere {
				return place{kind: plain}
			}
			continue
		case !inUnit(e):
			return place{kind: solid}
		}
		if p.kind = inUnits; n == 1 {
			p.only = e
		}
		k := keyOf(e)
		switch last := len(p.keys) - 1; {
		case last >= 0 && p.keys[last] == k:
		case large && last == 1:
			p.keys[1] = k
		default:
			p.keys = append(p.keys, k)
			if decoded += k.size; decoded > maxAhead {
				return place{kind: plain} // too much to be held for one item
			}
		}
	}
	if n != 1 || p.only.At != 0 || p.only.Size != it.Entry.Size {
		p.only = format.Extent{}
	}
	return p
}

// batches cuts items into runs that are fetched together, so that items in one
// unit are in one batch. Units that two batches share are decoded with the first.
func (s *sweep) batches(items iter.Seq2[Item, error]) iter.Seq2[*batch, error] {
	return func(yield func(*batch, error) bool) {
		b := &batch{items: getItems()}
		flush := func() bool {
			full := b
			b = &batch{items: getItems()}
			return len(full.items) == 0 || s.room.take(s.ctx, full.size()) == nil && yield(full, nil)
		}
		for it, err := range items {
			if err != nil {
				yield(nil, err)
				return
			}
			p := look(it, s.large)
			if it.Entry.Size > s.large {
				if !flush() {
					return
				}
				if p.kind == solid {
					if !s.handOver(it, yield) {
						return
					}
					continue
				}
				b.stream = true
				s.put(b, it, p)
				if !flush() {
					return
				}
				continue
			}
			if !s.fits(b, it, p) && !flush() {
				return
			}
			s.put(b, it, p)
		}
		flush()
	}
}

func (s *sweep) fits(b *batch, it Item, p place) bool {
	if len(b.items) == 0 {
		return true
	}
	most := s.room.most() / sweepParts
	if int64(len(b.items)) >= min(sweepItems, most/itemCost) || p.kind != nowhere && b.read != (p.kind == solid) {
		return false
	}
	if most = min(most, s.large); p.only.Size == 0 && it.Entry.Size > most-b.need {
		return false
	}
	more := int64(0)
	for _, k := range p.keys {
		if b.units[k] == nil && s.recall(k) == nil {
			more += k.size
		}
	}
	return more == 0 || more <= most-b.decoded-b.need
}

func (s *sweep) put(b *batch, it Item, p place) {
	x := sweepItem{Item: it, at: b.need}
	var last []*unit // of this item
	for i, k := range p.keys {
		u := b.units[k]
		if b.stream && i+1 < len(p.keys) && s.recall(k) == nil {
			continue // not shared
		}
		if u == nil {
			if b.units == nil {
				b.units, b.own = map[unitKey]*unit{}, map[unitKey]*unit{}
			}
			if u = s.recall(k); u == nil {
				u = newUnit(k)
				b.own[k] = u
				b.decoded += k.size
				b.stored += k.len
			}
			b.units[k] = u
		}
		last = append(last, u)
	}
	if last != nil {
		s.keep(last)
		s.last = last
	}
	switch {
	case b.stream:
	case p.only.Size > 0:
		x.in = piece{p.only, last[0]}
	default:
		b.need += it.Entry.Size
	}
	if p.kind == solid || b.read {
		b.read = true
		if b.buf == nil {
			b.buf = getBuf(s.large)
		}
		x.content = b.buf[x.at:b.need]
		x.err = s.g.ReadAt(s.ctx, it.Extents, x.content, 0)
	}
	b.items = append(b.items, x)
}

// recall returns a unit that the item before also lies in, or one that is kept.
func (s *sweep) recall(k unitKey) *unit {
	for _, u := range s.last {
		if u.key == k {
			return u
		}
	}
	if e := s.kept[k]; e != nil {
		s.order.MoveToFront(e)
		return e.Value.(*unit)
	}
	return nil
}

// sweepKept is how many bytes of units are kept if items come in no order, such as when a shuffle
// mixes files.
const sweepKept = 64 << 20

// keep keeps the units of an item if items do not come in stored order, because later items may lie
// in them. When it detects that, it also keeps the units of the item before.
func (s *sweep) keep(of []*unit) {
	for _, u := range of {
		if s.at.object == u.key.object && u.key.off < s.at.off && !s.mixed {
			s.mixed, s.kept = true, map[unitKey]*lru.Element{}
			s.keep(s.last)
		}
		s.at = u.key
		if !s.mixed || s.kept[u.key] != nil {
			continue
		}
		s.kept[u.key] = s.order.PushFront(u)
		for s.held += u.key.size + unitCost; s.held > sweepKept; {
			old := s.order.Remove(s.order.Back()).(*unit)
			delete(s.kept, old.key)
			s.held -= old.key.size + unitCost
		}
	}
}

// handOver lends a large solid item to the consumer that takes it, and waits.
func (s *sweep) handOver(it Item, yield func(*batch, error) bool) bool {
	h := &handover{r: s.g.NewReader(s.ctx, it.Extents, it.Entry.Size), done: make(chan struct{})}
	defer h.r.Close()
	b := &batch{items: []sweepItem{{Item: it}}, read: true, solid: h}
	if !yield(b, nil) {
		h.revoke()
		return false
	}
	select {
	case <-h.done:
	case <-s.ctx.Done():
		h.revoke()
	}
	return true
}
