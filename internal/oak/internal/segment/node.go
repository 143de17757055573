package segment

import (
	"context"
	"iter"
)

// A node's parts: stable ID, template, then the parts that the template specifies.
const (
	nodeTemplateAt = recordIDLen
	nodeChildAt    = 2 * recordIDLen
	stableIDLen    = 16 + 4 // a block
)

// A Node is a node of the content tree, without its name, which its parent has.
type Node struct {
	r   *Reader
	rec Record
	t   *Template
}

func (r *Reader) Node(ctx context.Context, id RecordID) (Node, error) {
	rec, err := r.typed(ctx, id, nil, NodeRecord, NodeRecord, nodeChildAt, "node")
	if err != nil {
		return Node{}, err
	}
	tid, err := rec.TemplateID()
	if err != nil {
		return Node{}, err
	}
	t, err := r.template(ctx, tid, rec.seg)
	if err != nil {
		return Node{}, err
	}
	n := Node{r, rec, t}
	size := n.valuesAt()
	if len(t.Properties) > 0 {
		size += recordIDLen
	}
	return n, rec.need(0, size, "node")
}

// TemplateID returns the ID of a node's template, from its record.
func (rec *Record) TemplateID() (RecordID, error) {
	if err := rec.expect(NodeRecord, NodeRecord, nodeChildAt, "node"); err != nil {
		return RecordID{}, err
	}
	return rec.id(nodeTemplateAt)
}

// Down goes from a node to a child, then to a child of that, and so on. If a child does not
// exist, missing is its name, and id is the node without it.
func (r *Reader) Down(ctx context.Context, from RecordID, names ...string) (id RecordID, missing string, err error) {
	id = from
	for _, name := range names {
		n, err := r.Node(ctx, id)
		if err != nil {
			return id, "", err
		}
		child, ok, err := n.Child(ctx, name)
		if err != nil {
			return id, "", err
		}
		if !ok {
			return id, name, nil
		}
		id = child
	}
	return id, "", nil
}

// NodeAt is Down that returns the node itself.
func (r *Reader) NodeAt(ctx context.Context, from RecordID, names ...string) (n Node, missing string, err error) {
	id, missing, err := r.Down(ctx, from, names...)
	if err == nil && missing == "" {
		n, err = r.Node(ctx, id)
	}
	return n, missing, err
}

func (n Node) valuesAt() int {
	if n.t.Rule == NoChild {
		return nodeChildAt
	}
	return nodeChildAt + recordIDLen
}

func (n Node) ID() RecordID        { return n.rec.ID() }
func (n Node) By() *Reader         { return n.r } // reads what belongs to the node
func (n Node) Template() *Template { return n.t } // not to be changed

// StableID returns the ID from before compactions. Two nodes with the same stable ID are equal.
func (n Node) StableID(ctx context.Context) (RecordID, error) {
	id, err := n.rec.id(0)
	if err != nil || id == n.rec.ID() {
		return id, err
	}
	rec, err := n.r.typed(ctx, id, n.rec.seg, Block, Block, stableIDLen, "stable id")
	if err != nil {
		return RecordID{}, err
	}
	return rec.stableID(), nil
}

func (rec *Record) stableID() RecordID {
	return RecordID{ID(rec.bytes(0, 16)), int32(rec.u32(16))}
}

func (n Node) childMap(ctx context.Context) (Map, error) {
	id, err := n.rec.id(nodeChildAt)
	if err != nil {
		return Map{}, err
	}
	return n.r.openMap(ctx, id, n.rec.seg)
}

func (n Node) ChildCount(ctx context.Context) (int, error) {
	if n.t.Rule != ManyChildren {
		return int(n.t.Rule), nil
	}
	m, err := n.childMap(ctx)
	return m.Len(), err
}

func (n Node) Child(ctx context.Context, name string) (id RecordID, ok bool, err error) {
	switch n.t.Rule {
	case OneChild:
		if n.t.Child != name {
			return RecordID{}, false, nil
		}
		id, err = n.rec.id(nodeChildAt)
		return id, err == nil, err
	case ManyChildren:
		m, err := n.childMap(ctx)
		if err != nil {
			return RecordID{}, false, err
		}
		return m.Get(ctx, name)
	}
	return RecordID{}, false, nil
}

// Children yields the children in the reference's order. Errors are those of [Map.All]. Damage
// can make a node its own descendant, so code that descends a tree must count levels.
func (n Node) Children(ctx context.Context) iter.Seq2[Entry, error] {
	return n.children(ctx, Map.All)
}

// ChildrenFrom resumes an iteration over the children; see [Map.From].
func (n Node) ChildrenFrom(ctx context.Context, at *Place) iter.Seq2[Entry, error] {
	if n.t.Rule == OneChild {
		if at.begun {
			return func(func(Entry, error) bool) {}
		}
		at.begun = true
	}
	return n.children(ctx, func(m Map, ctx context.Context) iter.Seq2[Entry, error] { return m.From(ctx, at) })
}

func (n Node) children(ctx context.Context, all func(Map, context.Context) iter.Seq2[Entry, error]) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		switch n.t.Rule {
		case OneChild:
			id, err := n.rec.id(nodeChildAt)
			yield(Entry{Name: n.t.Child, Value: id}, err)
		case ManyChildren:
			m, err := n.childMap(ctx)
			if err != nil {
				yield(Entry{}, err)
				return
			}
			all(m, ctx)(yield)
		}
	}
}

// A Property is a property of a node. Its values are read on request.
type Property struct {
	Name  string
	Type  PropertyType
	Multi bool

	r    *Reader
	near *Segment
	one  RecordID
	many List
	ids  []NamedRecord // of jcr:mixinTypes, in the place of many
	lost error         // why the values cannot be found
}

func (n Node) primary() Property {
	return Property{Name: primaryType, Type: Name, r: n.r, one: n.t.Primary.ID}
}

func (n Node) mixins() Property {
	return Property{Name: mixinTypes, Type: Name, Multi: true, r: n.r, ids: n.t.Mixins}
}

func (n Node) values() (List, error) {
	id, err := n.rec.id(n.valuesAt())
	if err != nil {
		return List{}, err
	}
	return n.r.list(id, len(n.t.Properties), n.rec.seg)
}

func (n Node) property(ctx context.Context, name PropertyName, id RecordID) (Property, error) {
	p := Property{Name: name.Name, Type: name.Type, Multi: name.Multi, r: n.r, near: n.rec.seg, one: id}
	if !name.Multi {
		return p, nil
	}
	p.many, p.lost = n.r.listOf(ctx, id, n.rec.seg)
	return p, p.lost
}

func (n Node) Property(ctx context.Context, name string) (p Property, ok bool, err error) {
	switch {
	case name == primaryType && n.t.Primary != nil:
		return n.primary(), true, nil
	case name == mixinTypes && n.t.HasMixins:
		return n.mixins(), true, nil
	}
	i, ok := n.t.find(name)
	if !ok {
		return Property{}, false, nil
	}
	values, err := n.values()
	if err != nil {
		return Property{}, false, err
	}
	id, err := values.At(ctx, n.t.Properties[i].Stored)
	if err != nil {
		return Property{}, false, err
	}
	p, err = n.property(ctx, n.t.Properties[i], id)
	return p, err == nil, err
}

// Properties yields the properties in the reference's order: type, mixins, then as in the
// template. A property whose values cannot be found has its name and an error, and the others
// follow.
func (n Node) Properties(ctx context.Context) iter.Seq2[Property, error] {
	return func(yield func(Property, error) bool) {
		if n.t.Primary != nil && !yield(n.primary(), nil) {
			return
		}
		if n.t.HasMixins && !yield(n.mixins(), nil) || len(n.t.Properties) == 0 {
			return
		}
		all, lost := n.values()
		values := cursor{List: all}
		for _, name := range n.t.Properties {
			var id RecordID
			err := lost
			if err == nil {
				id, err = values.at(ctx, name.Stored)
			}
			p := Property{Name: name.Name, Type: name.Type, Multi: name.Multi, lost: err}
			if err == nil {
				p, err = n.property(ctx, name, id)
			}
			if !yield(p, err) {
				return
			}
		}
	}
}

// ID returns the ID of the value's record or, if there are several values, of the record that
// lists them. The mixins of a template are in no record, and have the zero ID.
func (p Property) ID() RecordID { return p.one }

// Len returns the number of values. It is 1 if they cannot be found; that value is an error.
func (p Property) Len() int {
	switch {
	case !p.Multi, p.lost != nil:
		return 1
	case p.ids != nil:
		return len(p.ids)
	}
	return p.many.Len()
}

// At opens value i, from 0. It panics if i is out of range.
func (p Property) At(ctx context.Context, i int) (Value, error) {
	if uint(i) >= uint(p.Len()) {
		panic("segment: property value out of range")
	}
	id := p.one
	switch {
	case p.lost != nil:
		return Value{}, p.lost
	case p.ids != nil:
		id = p.ids[i].ID
	case p.Multi:
		var err error
		if id, err = p.many.At(ctx, i); err != nil {
			return Value{}, err
		}
	}
	return p.value(ctx, id)
}

// value opens a value. Only a binary may be in another store.
func (p Property) value(ctx context.Context, id RecordID) (Value, error) {
	v, err := p.r.value(ctx, id, p.near)
	if err == nil && v.External() && p.Type != Binary {
		return Value{}, v.rec.errorf(Corrupt, 0, "property %.60q: expected a %s, found a %s", p.Name, p.Type, v.rec.typ)
	}
	return v, err
}

// Values yields the values. A value that cannot be read is an error in its place.
func (p Property) Values(ctx context.Context) iter.Seq2[Value, error] {
	return func(yield func(Value, error) bool) {
		if !p.Multi || p.ids != nil || p.lost != nil {
			for i := range p.Len() {
				if !yield(p.At(ctx, i)) {
					return
				}
			}
			return
		}
		for id, err := range p.many.All(ctx) {
			var v Value
			if err == nil {
				v, err = p.value(ctx, id)
			}
			if !yield(v, err) {
				return
			}
		}
	}
}
