package segment

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"
)

type NewProperty struct {
	Name   string
	Type   PropertyType
	Multi  bool
	Values []NewValue // one, unless Multi
	// List, if not zero, is a result of ValuesOf, and is used instead of Values.
	List RecordID

	hash int32 // of the name
}

// A NewValue is a string, or an existing record.
type NewValue struct {
	Text   string
	Record RecordID
	IsID   bool
}

// A NewNode is a node to be written. Its children are already records.
type NewNode struct {
	Properties []NewProperty
	Children   []Child
	Written    WrittenChildren // in place of Children
	Stable     RecordID        // the previous node; zero if it is new
}

func (b *Builder) Node(ctx context.Context, n NewNode) (_ RecordID, err error) {
	switch len(n.Children) {
	case 0:
	case 1:
		n.Written = WrittenChildren{n: 1, one: n.Children[0]}
	default:
		if n.Written, err = b.Children(ctx, inMapOrder(n.Children)); err != nil {
			return RecordID{}, err
		}
	}
	t, properties, err := b.newTemplate(n)
	if err != nil {
		return RecordID{}, err
	}
	var stable, values RecordID
	if n.Stable != (RecordID{}) {
		stable = b.put(ctx, Block, b.draft().bytes(n.Stable.Segment[:]...).u32(uint32(n.Stable.Number)))
	}
	tid := b.template(ctx, t)
	if len(properties) > 0 {
		var room [16]RecordID
		ids := room[:0]
		for _, p := range properties {
			ids = append(ids, b.property(ctx, p))
		}
		values = b.list(ctx, ids)
	}
	d := b.draft()
	if n.Stable == (RecordID{}) {
		d.own()
	} else {
		d.id(stable)
	}
	d.id(tid)
	switch n.Written.rule() {
	case OneChild:
		d.id(n.Written.one.Node)
	case ManyChildren:
		d.id(n.Written.id)
	}
	if len(properties) > 0 {
		d.id(values)
	}
	return b.done(b.put(ctx, NodeRecord, d))
}

func (b *Builder) property(ctx context.Context, p NewProperty) RecordID {
	switch {
	case p.List != (RecordID{}):
		return p.List
	case !p.Multi:
		return b.value(ctx, p.Values[0])
	}
	ids := make([]RecordID, len(p.Values))
	for i, v := range p.Values {
		ids[i] = b.value(ctx, v)
	}
	return b.values(ctx, b.list(ctx, ids), len(ids))
}

func (b *Builder) value(ctx context.Context, v NewValue) RecordID {
	if v.IsID {
		return v.Record
	}
	return b.text(ctx, v.Text)
}

type templateDraft struct {
	head       uint32
	names      []string // primary type, mixins, the child
	properties []NewProperty
}

// newTemplate returns a node's template, and in order the properties that are not in that. They are
// valid until the next call.
func (b *Builder) newTemplate(n NewNode) (t templateDraft, properties []NewProperty, err error) {
	var mixins []string
	properties = b.ordered[:0]
	for _, p := range n.Properties {
		switch {
		case !p.Multi && len(p.Values) != 1:
			return t, nil, fmt.Errorf("segment: property %.100q: expected one value, found %d", p.Name, len(p.Values))
		case p.Type < String || p.Type > Decimal:
			return t, nil, fmt.Errorf("segment: property %.100q: expected a type, found %d", p.Name, p.Type)
		case p.Name == primaryType && p.Type == Name && !p.Multi && !p.Values[0].IsID:
			t.head |= hasPrimary
			t.names = []string{p.Values[0].Text}
			continue
		case p.Name == mixinTypes && p.Type == Name && p.Multi && p.List == (RecordID{}) && len(p.Values) <= mixinMask && !slices.ContainsFunc(p.Values, func(v NewValue) bool { return v.IsID }):
			t.head |= hasMixins | uint32(len(p.Values))<<mixinShift
			for _, v := range p.Values {
				mixins = append(mixins, v.Text)
			}
			continue
		}
		p.Name = asJava(p.Name)
		p.hash = javaHash(p.Name)
		properties = append(properties, p)
	}
	t.names = append(t.names, mixins...)
	switch n.Written.rule() {
	case NoChild:
		t.head |= noChildren
	case OneChild:
		t.names = append(t.names, n.Written.one.Name)
	case ManyChildren:
		t.head |= manyChildren
	}
	if len(properties) > propertyMask {
		return t, nil, b.limit("node: expected at most %d properties, found %d", propertyMask, len(properties))
	}
	b.ordered = properties
	t.head |= uint32(len(properties))
	slices.SortStableFunc(properties, func(x, y NewProperty) int {
		return PropertyName{Name: x.Name, Type: x.Type, hash: x.hash}.compare(PropertyName{Name: y.Name, Type: y.Type, hash: y.hash})
	})
	for i := 1; i < len(properties); i++ {
		if properties[i].Name == properties[i-1].Name {
			return t, nil, fmt.Errorf("segment: node: expected each property once, found %.100q twice", properties[i].Name)
		}
	}
	t.properties = properties
	return t, properties, nil
}

// appendKey appends a template as text: equal templates have equal ones.
func (t templateDraft) appendKey(k []byte) []byte {
	k = binary.BigEndian.AppendUint32(k, t.head)
	for _, n := range t.names {
		k = append(binary.AppendUvarint(k, uint64(len(n))), n...)
	}
	for _, p := range t.properties {
		k = append(binary.AppendUvarint(k, uint64(len(p.Name))), p.Name...)
		k = append(k, typeByte(p))
	}
	return k
}

func typeByte(p NewProperty) byte {
	if p.Multi {
		return -byte(p.Type)
	}
	return byte(p.Type)
}

func (b *Builder) template(ctx context.Context, t templateDraft) RecordID {
	b.key = t.appendKey(b.key[:0])
	if id, ok := b.known.templates[string(b.key)]; ok {
		return id
	}
	key := string(b.key)
	if id, ok := recall(&b.known, templates, key, len(key)); ok {
		return id
	}
	names := slices.Clip(t.names)
	for _, p := range t.properties {
		names = append(names, p.Name)
	}
	ids := make([]RecordID, len(names))
	for i, name := range names {
		ids[i] = b.text(ctx, name)
	}
	list := b.list(ctx, ids[len(t.names):])
	d := b.draft().u32(t.head).id(ids[:len(t.names)]...)
	if len(t.properties) > 0 {
		d.id(list)
	}
	for _, p := range t.properties {
		d.bytes(typeByte(p))
	}
	id := b.put(ctx, TemplateRecord, d)
	if b.err == nil {
		b.known.room(len(key))
		b.known.templates[key] = id
	}
	return id
}
