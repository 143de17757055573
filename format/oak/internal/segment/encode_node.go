package segment

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"slices"
)

// A Child is a name and the node that it stands for.
type Child struct {
	Name string
	Node RecordID
}

type hashedChild struct {
	Child
	hash uint32
}

// Map writes a map. It puts children into the order of maps.
func (b *Builder) Map(ctx context.Context, children []Child) (RecordID, error) {
	all := make([]hashedChild, len(children))
	for i, c := range children {
		c.Name = asJava(c.Name)
		all[i] = hashedChild{c, mapHash(c.Name)}
	}
	slices.SortFunc(all, func(x, y hashedChild) int {
		if c := cmp.Compare(x.hash, y.hash); c != 0 {
			return c
		}
		return compareUTF16(x.Name, y.Name)
	})
	for i := 1; i < len(all); i++ {
		if all[i].Name == all[i-1].Name {
			return RecordID{}, fmt.Errorf("segment: map: expected each name once, found %.100q twice", all[i].Name)
		}
	}
	if len(all) > mapSizeMask {
		return RecordID{}, &Error{Class: Limit, Segment: b.id, Record: -1, Off: -1, What: fmt.Sprintf("map: expected at most %d names, found %d", mapSizeMask, len(all))}
	}
	return b.mapRecord(ctx, all, 0)
}

func (b *Builder) mapRecord(ctx context.Context, all []hashedChild, level int) (RecordID, error) {
	if len(all) <= leafMax || level == leafLevel {
		return b.leaf(ctx, all, level)
	}
	// Ordered by hash is ordered by bucket, at each level.
	var bitmap uint32
	var buckets []RecordID
	for n := len(all); len(all) > 0; {
		index := mapIndex(all[0].hash, level)
		end := 1
		for end < len(all) && mapIndex(all[end].hash, level) == index {
			end++
		}
		id, err := b.mapRecord(ctx, all[:end], level+1)
		if err != nil {
			return RecordID{}, err
		}
		buckets, bitmap = append(buckets, id), bitmap|1<<index
		if all = all[end:]; len(all) == 0 {
			d := (&draft{}).u32(uint32(level)<<mapSizeBits | uint32(n)).u32(bitmap)
			for _, id := range buckets {
				d.id(id)
			}
			return b.put(ctx, Branch, d)
		}
	}
	panic("unreachable")
}

func (b *Builder) leaf(ctx context.Context, all []hashedChild, level int) (RecordID, error) {
	keys := make([]RecordID, len(all))
	for i, c := range all {
		var err error
		if keys[i], err = b.Text(ctx, c.Name); err != nil {
			return RecordID{}, err
		}
	}
	d := (&draft{}).u32(uint32(level)<<mapSizeBits | uint32(len(all)))
	for _, c := range all {
		d.u32(c.hash)
	}
	for i, c := range all {
		d.id(keys[i]).id(c.Node)
	}
	return b.put(ctx, Leaf, d)
}

// MapDiff writes the map base with another node for one of its names.
func (b *Builder) MapDiff(ctx context.Context, base RecordID, c Child) (RecordID, error) {
	key, err := b.Text(ctx, c.Name)
	if err != nil {
		return RecordID{}, err
	}
	return b.put(ctx, Branch, (&draft{}).u32(diffHead).u32(mapHash(c.Name)).id(key).id(c.Node).id(base))
}

// A NewProperty is a property to be written.
type NewProperty struct {
	Name   string
	Type   PropertyType
	Multi  bool
	Values []NewValue // one, unless Multi
}

// A NewValue is a string, or a record that has been written.
type NewValue struct {
	Text   string
	Record RecordID
	IsID   bool
}

// A NewNode is a node to be written. Its children are records already.
type NewNode struct {
	Properties []NewProperty
	Children   []Child
	Stable     RecordID // what the node was before; zero if it is new
}

// Node writes a node with its properties, its map of children and its template.
func (b *Builder) Node(ctx context.Context, n NewNode) (RecordID, error) {
	t, properties, err := newTemplate(n)
	if err != nil {
		return RecordID{}, err
	}
	d := &draft{}
	if n.Stable == (RecordID{}) {
		d.own()
	} else {
		block, err := b.put(ctx, Block, &draft{b: binary.BigEndian.AppendUint32(slices.Clone(n.Stable.Segment[:]), uint32(n.Stable.Number))})
		if err != nil {
			return RecordID{}, err
		}
		d.id(block)
	}
	tid, err := b.template(ctx, t)
	if err != nil {
		return RecordID{}, err
	}
	d.id(tid)
	switch t.rule {
	case OneChild:
		d.id(n.Children[0].Node)
	case ManyChildren:
		id, err := b.Map(ctx, n.Children)
		if err != nil {
			return RecordID{}, err
		}
		d.id(id)
	}
	if len(properties) > 0 {
		values := listWriter{b: b}
		for _, p := range properties {
			id, err := b.property(ctx, p)
			if err == nil {
				err = values.add(ctx, id)
			}
			if err != nil {
				return RecordID{}, err
			}
		}
		id, err := values.close(ctx)
		if err != nil {
			return RecordID{}, err
		}
		d.id(id)
	}
	return b.put(ctx, NodeRecord, d)
}

func (b *Builder) property(ctx context.Context, p NewProperty) (RecordID, error) {
	ids := make([]RecordID, len(p.Values))
	for i, v := range p.Values {
		if ids[i] = v.Record; v.IsID {
			continue
		}
		var err error
		if ids[i], err = b.Text(ctx, v.Text); err != nil {
			return RecordID{}, err
		}
	}
	if p.Multi {
		return b.Values(ctx, ids)
	}
	return ids[0], nil
}

// templateDraft is a template before it is written.
type templateDraft struct {
	head       uint32
	rule       ChildRule
	names      []string // primary type, mixins, the child
	properties []NewProperty
}

// newTemplate returns a node's template, and its properties in their order
// without those that are in the template.
func newTemplate(n NewNode) (t templateDraft, properties []NewProperty, err error) {
	var mixins []string
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
		case p.Name == mixinTypes && p.Type == Name && p.Multi && len(p.Values) <= mixinMask && !slices.ContainsFunc(p.Values, func(v NewValue) bool { return v.IsID }):
			t.head |= hasMixins | uint32(len(p.Values))<<mixinShift
			for _, v := range p.Values {
				mixins = append(mixins, v.Text)
			}
			continue
		}
		p.Name = asJava(p.Name)
		properties = append(properties, p)
	}
	t.names = append(t.names, mixins...)
	switch len(n.Children) {
	case 0:
		t.head |= noChildren
	case 1:
		t.rule = OneChild
		t.names = append(t.names, n.Children[0].Name)
	default:
		t.rule = ManyChildren
		t.head |= manyChildren
	}
	if len(properties) > propertyMask {
		return t, nil, &Error{Class: Limit, Record: -1, Off: -1, What: fmt.Sprintf("node: expected at most %d properties, found %d", propertyMask, len(properties))}
	}
	t.head |= uint32(len(properties))
	slices.SortStableFunc(properties, func(x, y NewProperty) int {
		return comparePropertyNames(PropertyName{Name: x.Name, Type: x.Type, hash: javaHash(x.Name)}, PropertyName{Name: y.Name, Type: y.Type, hash: javaHash(y.Name)})
	})
	for i := 1; i < len(properties); i++ {
		if properties[i].Name == properties[i-1].Name {
			return t, nil, fmt.Errorf("segment: node: expected each property once, found %.100q twice", properties[i].Name)
		}
	}
	t.properties = properties
	return t, properties, nil
}

// key is a template as text: equal templates have equal ones.
func (t templateDraft) key() string {
	k := binary.BigEndian.AppendUint32(nil, t.head)
	for _, n := range t.names {
		k = append(binary.AppendUvarint(k, uint64(len(n))), n...)
	}
	for _, p := range t.properties {
		k = append(binary.AppendUvarint(k, uint64(len(p.Name))), p.Name...)
		k = append(k, typeByte(p))
	}
	return string(k)
}

func typeByte(p NewProperty) byte {
	if p.Multi {
		return -byte(p.Type)
	}
	return byte(p.Type)
}

func (b *Builder) template(ctx context.Context, t templateDraft) (RecordID, error) {
	key := t.key()
	if id, ok := b.known.templates[key]; ok {
		return id, nil
	}
	d := (&draft{}).u32(t.head)
	for _, n := range t.names {
		id, err := b.Text(ctx, n)
		if err != nil {
			return RecordID{}, err
		}
		d.id(id)
	}
	if len(t.properties) > 0 {
		names := listWriter{b: b}
		for _, p := range t.properties {
			id, err := b.Text(ctx, p.Name)
			if err == nil {
				err = names.add(ctx, id)
			}
			if err != nil {
				return RecordID{}, err
			}
		}
		list, err := names.close(ctx)
		if err != nil {
			return RecordID{}, err
		}
		d.id(list)
		for _, p := range t.properties {
			d.bytes(typeByte(p))
		}
	}
	id, err := b.put(ctx, TemplateRecord, d)
	if err == nil {
		b.known.room(len(key))
		b.known.templates[key] = id
	}
	return id, err
}
