package segment

import (
	"context"
	"errors"
	"slices"
)

// An Edit changes an existing node. Everything that it does not name keeps its records, which are
// not read.
type Edit struct {
	Children   []Child       // replaced or new; the zero id removes a child
	Properties []NewProperty // as above
	Without    []string      // names of properties to remove
	// Readable leaves out the children that cannot be read.
	Readable bool
}

// Edit rewrites a node with few records, however many children it has. The result is a new node
// with a stable ID of its own.
func (b *Builder) Edit(ctx context.Context, n Node, e Edit) (RecordID, error) {
	dropped := func(name string) bool {
		return slices.Contains(e.Without, name) || slices.ContainsFunc(e.Properties, func(p NewProperty) bool { return p.Name == name })
	}
	var to NewNode
	var err error
	if to.Properties, err = n.again(ctx, dropped); err != nil {
		return RecordID{}, err
	}
	to.Properties = append(to.Properties, e.Properties...)
	if to.Written, err = b.edited(ctx, n, e); err != nil {
		return RecordID{}, err
	}
	return b.Node(ctx, to)
}

// again returns the properties of a node as existing records.
func (n Node) again(ctx context.Context, dropped func(name string) bool) (all []NewProperty, err error) {
	if p := n.t.Primary; p != nil && !dropped(primaryType) {
		all = append(all, NewProperty{Name: primaryType, Type: Name, Values: []NewValue{{Text: p.Text}}})
	}
	if n.t.HasMixins && !dropped(mixinTypes) {
		p := NewProperty{Name: mixinTypes, Type: Name, Multi: true}
		for _, m := range n.t.Mixins {
			p.Values = append(p.Values, NewValue{Text: m.Text})
		}
		all = append(all, p)
	}
	if len(n.t.Properties) == 0 {
		return all, nil
	}
	list, err := n.values()
	if err != nil {
		return nil, err
	}
	values := cursor{List: list}
	for _, name := range n.t.Properties {
		if dropped(name.Name) {
			continue
		}
		id, err := values.at(ctx, name.Stored)
		if err != nil {
			return nil, err
		}
		p := NewProperty{Name: name.Name, Type: name.Type, Multi: name.Multi}
		if p.Multi {
			p.List = id
		} else {
			p.Values = []NewValue{{Record: id, IsID: true}}
		}
		all = append(all, p)
	}
	return all, nil
}

// edited writes a node's children with an edit.
func (b *Builder) edited(ctx context.Context, n Node, e Edit) (WrittenChildren, error) {
	switch {
	case e.Readable:
		return b.readable(ctx, n, e)
	case n.t.Rule != ManyChildren:
		all := slices.Clone(e.Children)
		for c, err := range n.Children(ctx) {
			if err != nil {
				return WrittenChildren{}, err
			}
			if !slices.ContainsFunc(all, func(other Child) bool { return other.Name == c.Name }) {
				all = append(all, Child{c.Name, c.Value})
			}
		}
		all = slices.DeleteFunc(all, func(c Child) bool { return c.Node == RecordID{} })
		return b.Children(ctx, inMapOrder(all))
	case len(e.Children) == 0:
		id, err := n.rec.id(nodeChildAt)
		return WrittenChildren{n: 2, id: id}, err // the number is in the map, which stays unchanged
	}
	m, err := n.childMap(ctx)
	if err != nil {
		return WrittenChildren{}, err
	}
	w := mapEdit{b: b, ctx: ctx, r: n.r}
	changes, err := w.changes(m, e.Children)
	if err != nil {
		return WrittenChildren{}, err
	}
	if m.top.branch() && m.top.level != 0 {
		return WrittenChildren{}, m.top.errorf(Corrupt, 0, "map branch: expected level 0, found %d", m.top.level)
	}
	top, err := w.record(m.top, changes, 0)
	if err != nil {
		return WrittenChildren{}, err
	}
	c := WrittenChildren{n: top.n}
	switch {
	case c.n == 1:
		c.one = Child{top.all[0].Name, top.all[0].Node}
		if top.all[0].key != (RecordID{}) {
			c.one.Name, err = n.r.text(ctx, top.all[0].key, nil, maxName)
		}
	case c.n > 1:
		c.id = w.write(top, 0)
	}
	if err == nil {
		err = b.err
	}
	return c, err
}

// readable writes the children that can be read, in the order of maps with those of the edit.
func (b *Builder) readable(ctx context.Context, n Node, e Edit) (WrittenChildren, error) {
	var changes []hashedChild
	for _, c := range e.Children {
		changes = append(changes, hashed(c))
	}
	slices.SortFunc(changes, hashedChild.compare)
	return b.Children(ctx, func(yield func(Child, error) bool) {
		// before yields the changes before a child, or all, and applies the one of the child
		// itself.
		before := func(c *hashedChild) bool {
			for len(changes) > 0 {
				order := -1
				if c != nil {
					order = changes[0].compare(*c)
				}
				if order > 0 {
					return true
				}
				if order == 0 {
					c.Node = changes[0].Node
				} else if (changes[0].Node != RecordID{}) && !yield(changes[0].Child, nil) {
					return false
				}
				changes = changes[1:]
			}
			return true
		}
		for c, err := range n.Children(ctx) {
			if _, lost := errors.AsType[*Error](err); lost {
				continue
			}
			if err != nil {
				yield(Child{}, err)
				return
			}
			h := hashed(Child{c.Name, c.Value})
			if !before(&h) || (h.Node != RecordID{}) && !yield(h.Child, nil) {
				return
			}
		}
		before(nil)
	})
}

// A mapEdit changes names of a map. It reads and writes only the branches and leaves that contain
// them.
type mapEdit struct {
	b   *Builder
	ctx context.Context
	r   *Reader
}

// An editedMap is a record of a map with its changes. It is written already, or is to be written
// as a leaf, or as several records if it has grown too large for a leaf.
type editedMap struct {
	n   int
	id  RecordID
	all []hashedChild
}

// changes returns the changes of a map and of its diffs, in order.
func (w *mapEdit) changes(m Map, said []Child) ([]hashedChild, error) {
	var all []hashedChild
	known := map[string]bool{}
	for _, c := range said {
		h := hashed(c)
		if !known[h.Name] {
			all = append(all, h)
		}
		known[h.Name] = true
	}
	for _, d := range m.diffs { // the last written first
		name, err := w.r.text(w.ctx, d.key, d.near, maxName)
		if err != nil {
			return nil, err
		}
		if !known[name] {
			all = append(all, hashedChild{Child: Child{name, d.value}, hash: d.hash, key: d.key})
		}
		known[name] = true
	}
	slices.SortFunc(all, hashedChild.compare)
	return all, nil
}

func (w *mapEdit) record(m mapRecord, changes []hashedChild, level int) (editedMap, error) {
	if err := w.ctx.Err(); err != nil {
		return editedMap{}, context.Cause(w.ctx)
	}
	if !m.branch() {
		all, err := w.leaf(m, changes)
		return editedMap{n: len(all), all: all}, err
	}
	p := m.parts()
	if p.err != nil {
		return editedMap{}, p.err
	}
	n := m.size
	subs := map[int]editedMap{}
	for len(changes) > 0 {
		index, k := mapIndex(changes[0].hash, level), 1
		for k < len(changes) && mapIndex(changes[k].hash, level) == index {
			k++
		}
		var sub mapRecord // an empty leaf
		var err error
		if p.ids[index] != (RecordID{}) {
			sub, err = w.r.bucket(w.ctx, p.ids[index], m.seg, level, m.size)
		}
		if err == nil && sub.branch() && sub.level != level+1 {
			err = sub.errorf(Corrupt, 0, "map branch: expected level %d, found %d", level+1, sub.level)
		}
		var is editedMap
		if err == nil {
			is, err = w.record(sub, changes[:k], level+1)
		}
		if err != nil {
			return editedMap{}, err
		}
		n += is.n - sub.size
		subs[int(index)] = is
		changes = changes[k:]
	}
	if n <= leafMax {
		return w.gather(m, p, subs)
	}
	var bitmap uint32
	var buckets []RecordID
	for i, id := range p.ids {
		if is, changed := subs[i]; changed {
			id = RecordID{}
			if is.n > 0 {
				id = w.write(is, level+1)
			}
		}
		if id != (RecordID{}) {
			bitmap |= 1 << i
			buckets = append(buckets, id)
		}
	}
	return editedMap{n: n, id: w.b.branch(w.ctx, level, n, bitmap, buckets)}, w.b.err
}

// gather makes one leaf of a branch that has too few names left.
func (w *mapEdit) gather(m mapRecord, p parts, subs map[int]editedMap) (is editedMap, err error) {
	for i, id := range p.ids {
		sub, changed := subs[i]
		if !changed && id != (RecordID{}) {
			rec, err := w.r.bucket(w.ctx, id, m.seg, m.level, leafMax)
			if err == nil {
				sub.all, err = w.leaf(rec, nil)
			}
			if err != nil {
				return is, err
			}
		}
		is.all = append(is.all, sub.all...)
	}
	is.n = len(is.all)
	return is, nil
}

// leaf returns the names of a leaf with changes. It reads only names of the same hash.
func (w *mapEdit) leaf(m mapRecord, changes []hashedChild) ([]hashedChild, error) {
	all := make([]hashedChild, 0, m.size+len(changes))
	for i := range m.size {
		key, value, err := m.pair(i)
		if err != nil {
			return nil, err
		}
		all = append(all, hashedChild{Child: Child{Node: value}, hash: m.hash(i), key: key})
	}
	for _, c := range changes {
		at, found, err := w.place(all, c)
		switch {
		case err != nil:
			return nil, err
		case found && c.Node == RecordID{}:
			all = slices.Delete(all, at, at+1)
		case found:
			all[at].Node = c.Node
		case c.Node != RecordID{}:
			all = slices.Insert(all, at, c)
		}
	}
	return all, nil
}

// place finds where a name is, or belongs.
func (w *mapEdit) place(all []hashedChild, c hashedChild) (at int, found bool, err error) {
	for ; at < len(all) && all[at].hash <= c.hash; at++ {
		if all[at].hash < c.hash {
			continue
		}
		if all[at].Name == "" && all[at].key != (RecordID{}) {
			if all[at].Name, err = w.r.text(w.ctx, all[at].key, nil, maxName); err != nil {
				return 0, false, err
			}
		}
		switch order := all[at].compare(c); {
		case order == 0:
			return at, true, nil
		case order > 0:
			return at, false, nil
		}
	}
	return at, false, nil
}

// write writes what has not been written yet.
func (w *mapEdit) write(m editedMap, level int) RecordID {
	if m.id != (RecordID{}) {
		return m.id
	}
	if m.n <= leafMax || level == leafLevel {
		if m.n > mostLeaf {
			w.b.fail(w.b.limit("map: expected at most %d names of one hash, found more", mostLeaf))
			return RecordID{}
		}
		return w.b.leaf(w.ctx, m.all, level)
	}
	var bitmap uint32
	var buckets []RecordID
	for rest := m.all; len(rest) > 0; {
		index, k := mapIndex(rest[0].hash, level), 1
		for k < len(rest) && mapIndex(rest[k].hash, level) == index {
			k++
		}
		bitmap |= 1 << index
		buckets = append(buckets, w.write(editedMap{n: k, all: rest[:k]}, level+1))
		rest = rest[k:]
	}
	return w.b.branch(w.ctx, level, m.n, bitmap, buckets)
}
