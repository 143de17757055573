package segment

import (
	"context"
	"iter"
	"math/bits"
	"slices"
)

// Same reports whether two properties are equal because they are the same records.
// Others may be equal as well.
func (p Property) Same(q Property) bool {
	if p.Name != q.Name || p.Type != q.Type || p.Multi != q.Multi || p.lost != nil || q.lost != nil {
		return false
	}
	switch {
	case !p.Multi:
		return p.one == q.one
	case p.ids != nil || q.ids != nil:
		return slices.Equal(p.ids, q.ids)
	}
	return p.many.id == q.many.id && p.many.n == q.many.n
}

// A ChildChange is a name that refers to different children in two nodes.
type ChildChange struct {
	Name          string
	Before, After RecordID // zero if there is none
}

// ChildChanges yields the names that refer to different records among the children of two nodes.
// It does not read what the maps share. It keeps no segment in memory between names, except where
// a map was rebuilt. Where damage hides names of one node, it yields an error in their place, and
// it is not known whether the other node's names are new.
func (r *Reader) ChildChanges(ctx context.Context, before, after RecordID) iter.Seq2[ChildChange, error] {
	return func(yield func(ChildChange, error) bool) {
		c := &comparison{r: r, ctx: ctx, yield: yield}
		if err := c.nodes(before, after); err != nil {
			yield(ChildChange{}, err)
		}
	}
}

// A comparison compares two maps. Its methods return false if it is over.
type comparison struct {
	r     *Reader
	ctx   context.Context
	yield func(ChildChange, error) bool
	done  map[string]bool // names of diffs, which have been compared
}

// nodes compares the children of two nodes.
func (c *comparison) nodes(before, after RecordID) error {
	a, err := c.r.Node(c.ctx, before)
	if err != nil {
		return err
	}
	b, err := c.r.Node(c.ctx, after)
	if err != nil {
		return err
	}
	if a.t.Rule != ManyChildren || b.t.Rule != ManyChildren {
		c.merge(a.Children(c.ctx), b.Children(c.ctx))
		return nil
	}
	x, err := a.childMap(c.ctx)
	if err != nil {
		return err
	}
	y, err := b.childMap(c.ctx)
	if err == nil && c.replaced(x, y) && x.top.ID() != y.top.ID() {
		c.maps(x.top, y.top)
	}
	return err
}

func (c *comparison) tell(name string, before, after RecordID) bool {
	return before == after || c.done[name] || c.yield(ChildChange{name, before, after}, nil)
}

// replaced compares the names that diffs have.
func (c *comparison) replaced(a, b Map) bool {
	names := map[string]bool{}
	for _, d := range slices.Concat(a.diffs, b.diffs) {
		name, err := c.r.text(c.ctx, d.key, d.near, maxName)
		var before, after RecordID
		if err == nil && names[name] {
			continue
		}
		if err == nil {
			before, _, err = a.Get(c.ctx, name)
		}
		if err == nil {
			after, _, err = b.Get(c.ctx, name)
		}
		if err != nil {
			if !c.yield(ChildChange{}, err) {
				return false
			}
			continue
		}
		names[name] = true
		if !c.tell(name, before, after) {
			return false
		}
	}
	c.done = names
	return true
}

// maps compares two different records. Buckets with the same number at the same level have the
// same names, so each is compared with its counterpart.
func (c *comparison) maps(a, b mapRecord) bool {
	if err := c.ctx.Err(); err != nil {
		return c.yield(ChildChange{}, err)
	}
	switch {
	case a.branch() && b.branch() && a.level == b.level:
		return c.branches(a.parts(), b.parts())
	case !a.branch() && !b.branch():
		return c.leaves(a, b)
	}
	return c.merge(c.all(a), c.all(b))
}

func (c *comparison) all(m mapRecord) iter.Seq2[Entry, error] {
	return Map{r: c.r, top: m}.All(c.ctx)
}

// parts are the contents of a branch, without its segment.
type parts struct {
	size, level int
	ids         [1 << levelBits]RecordID // zero if there is none
	err         error
}

func (m mapRecord) parts() (p parts) {
	p.size, p.level = m.size, m.level
	k := 0
	for rest := m.bitmap; rest != 0 && p.err == nil; rest &= rest - 1 {
		p.ids[bits.TrailingZeros32(rest)], p.err = m.id(branchHead + recordIDLen*k)
		k++
	}
	return p
}

// bucket opens a bucket of a branch. Its entries are subtracted from the number that others may
// have. Otherwise the same bucket in many places could make a small map look endless.
func (p *parts) bucket(ctx context.Context, r *Reader, index int) (mapRecord, error) {
	m, err := r.bucket(ctx, p.ids[index], nil, p.level, p.size)
	p.size -= m.size
	return m, err
}

func (c *comparison) branches(a, b parts) bool {
	for _, p := range []parts{a, b} {
		if p.err != nil {
			return c.yield(ChildChange{}, p.err)
		}
	}
	for i := range a.ids {
		if a.ids[i] == b.ids[i] {
			continue
		}
		var x, y mapRecord // an empty leaf if there is none
		var err error
		if a.ids[i] != (RecordID{}) {
			x, err = a.bucket(c.ctx, c.r, i)
		}
		if err == nil && b.ids[i] != (RecordID{}) {
			y, err = b.bucket(c.ctx, c.r, i)
		}
		if err != nil && !c.yield(ChildChange{}, err) || err == nil && !c.maps(x, y) {
			return false
		}
	}
	return true
}

// leaves compares two leaves. Names are read only if they have to be.
func (c *comparison) leaves(a, b mapRecord) bool {
	type found struct {
		ChildChange
		err error
	}
	var changes []found
	note := func(key RecordID, near *Segment, before, after RecordID) {
		if before != after {
			name, err := c.r.text(c.ctx, key, near, maxName)
			changes = append(changes, found{ChildChange{name, before, after}, err})
		}
	}
	for i, k := 0, 0; i < a.size || k < b.size; {
		switch {
		case k == b.size || i < a.size && a.hash(i) < b.hash(k):
			key, value, err := a.pair(i)
			if i++; err != nil {
				return c.yield(ChildChange{}, err)
			}
			note(key, a.seg, value, RecordID{})
		case i == a.size || a.hash(i) > b.hash(k):
			key, value, err := b.pair(k)
			if k++; err != nil {
				return c.yield(ChildChange{}, err)
			}
			note(key, b.seg, RecordID{}, value)
		default:
			same, before, after, key, err := c.pair(a, i, b, k)
			if err != nil {
				return c.yield(ChildChange{}, err)
			}
			if !same { // names with one hash, or a rebuilt map: compare the names
				return c.merge(c.all(a), c.all(b))
			}
			note(key, a.seg, before, after)
			i, k = i+1, k+1
		}
	}
	for _, x := range changes {
		if x.err != nil && !c.yield(ChildChange{}, x.err) || x.err == nil && !c.tell(x.Name, x.Before, x.After) {
			return false
		}
	}
	return true
}

// pair reads entries with the same hash, and reports whether they have the same name.
func (c *comparison) pair(a mapRecord, i int, b mapRecord, k int) (same bool, before, after, key RecordID, err error) {
	var other RecordID
	if key, before, err = a.pair(i); err == nil {
		other, after, err = b.pair(k)
	}
	if err != nil || key == other {
		return err == nil, before, after, key, err
	}
	name, err := c.r.text(c.ctx, key, a.seg, maxName)
	if err == nil {
		same, err = c.r.isName(c.ctx, other, b.seg, name)
	}
	return same, before, after, key, err
}

// A stream is one of two merged streams.
type stream struct {
	next  func() (Entry, error, bool)
	entry Entry
	ok    bool
	doubt bool // names before entry were lost
}

// advance moves to the next entry that can be read.
func (s *stream) advance(c *comparison) bool {
	s.doubt = false
	for {
		e, err, ok := s.next()
		if !ok || err == nil {
			s.entry, s.ok = e, ok
			return true
		}
		if s.doubt = true; !c.yield(ChildChange{}, err) {
			return false
		}
	}
}

func (c *comparison) merge(before, after iter.Seq2[Entry, error]) bool {
	var a, b stream
	var stopA, stopB func()
	a.next, stopA = iter.Pull2(before)
	defer stopA()
	b.next, stopB = iter.Pull2(after)
	defer stopB()
	more := a.advance(c) && b.advance(c)
	for more && (a.ok || b.ok) {
		order := 0
		switch {
		case !b.ok:
			order = -1
		case !a.ok:
			order = 1
		case a.entry.Name != b.entry.Name:
			order = hashed(Child{Name: a.entry.Name}).compare(hashed(Child{Name: b.entry.Name}))
		}
		switch {
		case order < 0:
			more = (b.doubt || c.tell(a.entry.Name, a.entry.Value, RecordID{})) && a.advance(c)
		case order > 0:
			more = (a.doubt || c.tell(b.entry.Name, RecordID{}, b.entry.Value)) && b.advance(c)
		default:
			more = c.tell(a.entry.Name, a.entry.Value, b.entry.Value) && a.advance(c) && b.advance(c)
		}
	}
	return more
}
