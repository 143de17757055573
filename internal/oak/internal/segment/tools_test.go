package segment

import (
	"context"
	"fmt"
	"math/bits"
	"slices"
)

// Records that readers must understand but that are never written here, and functions that only
// tests need.

// MapDiff writes a map with another node for one of its names. It never writes a diff of a diff:
// one for the same name replaces it, and one for another name becomes a map that shares what has
// not changed with its base.
func (b *Builder) MapDiff(ctx context.Context, base Map, c Child) (RecordID, error) {
	changed := []hashedChild{hashed(c)}
	if _, ok, err := base.Get(ctx, changed[0].Name); err != nil {
		return RecordID{}, err
	} else if !ok {
		return RecordID{}, fmt.Errorf("segment: map diff: expected a name of the map, found %.100q", c.Name)
	}
	for _, d := range base.diffs {
		name, err := base.r.text(ctx, d.key, d.near, maxName)
		if err != nil {
			return RecordID{}, err
		}
		if !slices.ContainsFunc(changed, func(c hashedChild) bool { return c.Name == name }) {
			changed = append(changed, hashed(Child{name, d.value}))
		}
	}
	if len(changed) > 1 {
		return b.changed(ctx, base, base.top, changed)
	}
	return b.diff(ctx, RecordID{base.top.seg.id, base.top.num}, changed[0])
}

func (b *Builder) diff(ctx context.Context, base RecordID, c hashedChild) (RecordID, error) {
	key, err := b.Text(ctx, c.Name)
	if err != nil {
		return RecordID{}, err
	}
	return b.done(b.put(ctx, Branch, b.draft().u32(diffHead).u32(c.hash).id(key).id(c.Node).id(base)))
}

// changed writes a record of a map with other nodes for names that it has.
func (b *Builder) changed(ctx context.Context, in Map, m mapRecord, changes []hashedChild) (RecordID, error) {
	if !m.branch() {
		return b.changedLeaf(ctx, in, m, changes)
	}
	buckets := make([]RecordID, 0, bits.OnesCount32(m.bitmap))
	for rest := m.bitmap; rest != 0; rest &= rest - 1 {
		k, index := len(buckets), uint(bits.TrailingZeros32(rest))
		var below []hashedChild
		for _, c := range changes {
			if mapIndex(c.hash, m.level) == index {
				below = append(below, c)
			}
		}
		id, err := m.id(branchHead + recordIDLen*k)
		if err == nil && below != nil {
			var sub mapRecord
			if sub, err = m.bucket(ctx, in.r, k); err == nil {
				id, err = b.changed(ctx, in, sub, below)
			}
		}
		if err != nil {
			return RecordID{}, err
		}
		buckets = append(buckets, id)
	}
	return b.done(b.branch(ctx, m.level, m.size, m.bitmap, buckets))
}

func (b *Builder) changedLeaf(ctx context.Context, in Map, m mapRecord, changes []hashedChild) (RecordID, error) {
	d := b.draft().u32(mapHead(m.level, m.size))
	for i := range m.size {
		d.u32(m.hash(i))
	}
	for i := range m.size {
		key, value, err := m.pair(i)
		if err != nil {
			return RecordID{}, err
		}
		for _, c := range changes {
			if c.hash != m.hash(i) {
				continue
			}
			same, err := in.r.isName(ctx, key, m.seg, c.Name)
			if err != nil {
				return RecordID{}, err
			}
			if same {
				value = c.Node
			}
		}
		d.id(key).id(value)
	}
	return b.done(b.put(ctx, Leaf, d))
}

// Map writes a map, of any number of children in any order.
func (b *Builder) Map(ctx context.Context, children []Child) (RecordID, error) {
	w, stop := b.mapOf(inMapOrder(children))
	defer stop()
	id, _ := w.record(ctx, 0)
	return b.done(id)
}

// Map opens the map at id.
func (r *Reader) Map(ctx context.Context, id RecordID) (Map, error) { return r.openMap(ctx, id, nil) }

// ListOf reads a record of type list, which contains its length.
func (r *Reader) ListOf(ctx context.Context, id RecordID) (List, error) {
	return r.listOf(ctx, id, nil)
}

// List returns the list of n elements at id.
func (r *Reader) List(id RecordID, n int) (List, error) { return r.list(id, n, nil) }

// Generation returns the generation in the header.
func (s *Segment) Generation() (g Generation) {
	if s.version > 0 {
		_, g = versionOf(s.b)
	}
	return g
}
