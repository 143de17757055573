package segment

import (
	"context"
	"fmt"
	"slices"
)

// A Part is what one record, a node or a part of a map, contains about children.
type Part struct {
	Named   []Entry
	Unnamed []UnnamedEntry // whose names are lost
	Maps    []RecordID     // parts of a map, which have others
}

// An UnnamedEntry is a child whose name is lost. HasHash is not set if the name was in a template.
type UnnamedEntry struct {
	Hash    uint32 // of the name; see [NameHash]
	HasHash bool
	Value   RecordID
}

// NameHash returns the hash that maps have of a name.
func NameHash(name string) uint32 { return mapHash(asJava(name)) }

// Part reads one record, a node or a part of a map, and no other part of the map. If something is
// damaged, lost is why, and the rest is still returned. Damage of names alone is not reported.
func (r *Reader) Part(ctx context.Context, id RecordID) (p Part, lost error) {
	rec, err := r.record(ctx, id, nil)
	if err != nil {
		return p, err
	}
	if rec.typ == NodeRecord {
		return r.nodePart(ctx, rec)
	}
	if err := rec.expect(Leaf, Branch, 4, "map"); err != nil {
		return p, err
	}
	if rec.u32(0) == diffHead {
		d, base, err := rec.diff()
		if err == nil {
			p.Maps, err = []RecordID{base}, r.entry(ctx, d, &p)
		}
		return p, err
	}
	m, err := rec.mapRecord()
	if err != nil {
		return p, err
	}
	if m.branch() {
		below := m.parts()
		p.Maps = slices.DeleteFunc(below.ids[:], func(id RecordID) bool { return id == RecordID{} })
		return p, below.err
	}
	for i := range m.size {
		d := diff{hash: m.hash(i), near: rec.seg}
		d.key, d.value, err = m.pair(i)
		if err == nil {
			err = r.entry(ctx, d, &p)
		}
		if err != nil && lost == nil {
			lost = err
		}
	}
	return p, lost
}

// entry adds an entry of a map. It returns only errors that are not damage.
func (r *Reader) entry(ctx context.Context, d diff, to *Part) error {
	name, err := r.text(ctx, d.key, d.near, maxName)
	if _, damaged := err.(*Error); err != nil && !damaged {
		return err
	}
	if err != nil {
		to.Unnamed = append(to.Unnamed, UnnamedEntry{d.hash, true, d.value})
	} else {
		to.Named = append(to.Named, Entry{name, d.key, d.value})
	}
	return nil
}

func (r *Reader) nodePart(ctx context.Context, rec Record) (p Part, lost error) {
	n, err := r.Node(ctx, rec.ID())
	if err != nil {
		if child, ok := r.childOf(ctx, rec); ok && child.typ == NodeRecord {
			p.Unnamed = []UnnamedEntry{{Value: child.ID()}}
		} else if ok {
			p.Maps = []RecordID{child.ID()}
		}
		return p, err
	}
	if n.t.Rule == NoChild {
		return p, nil
	}
	id, err := rec.id(nodeChildAt)
	switch {
	case err != nil:
	case n.t.Rule == OneChild:
		p.Named = []Entry{{Name: n.t.Child, Value: id}}
	default:
		p.Maps = []RecordID{id}
	}
	return p, err
}

// idsOfNode returns how many IDs the record of a node without its template has after that of the
// template. Without a template, only the next record shows that.
func (rec Record) idsOfNode() int {
	end, err := rec.seg.Bound(rec.num)
	if err != nil {
		return 0
	}
	return min((end-rec.pos-nodeChildAt)/recordIDLen, 2)
}

// childOf returns the child, or the map of children, of a node without its template. The type of
// the record shows whether it is one.
func (r *Reader) childOf(ctx context.Context, rec Record) (child Record, ok bool) {
	if rec.idsOfNode() == 0 {
		return child, false
	}
	id, err := rec.id(nodeChildAt)
	if err == nil {
		child, err = r.record(ctx, id, rec.seg)
	}
	return child, err == nil && (child.typ == NodeRecord || child.typ == Leaf || child.typ == Branch)
}

// Nameless returns the properties of a node whose template is lost, in the order of the template.
// Their names and types are in it, so each is a binary with a number as its name, from 1.
func (r *Reader) Nameless(ctx context.Context, id RecordID) (template RecordID, all []Property, err error) {
	rec, err := r.typed(ctx, id, nil, NodeRecord, NodeRecord, nodeChildAt, "node")
	if err != nil {
		return template, nil, err
	}
	if template, err = rec.id(nodeTemplateAt); err != nil {
		return template, nil, err
	}
	ids, at := rec.idsOfNode(), nodeChildAt
	if _, ok := r.childOf(ctx, rec); ok || ids == 2 {
		ids, at = ids-1, at+recordIDLen
	}
	if ids == 0 {
		return template, nil, nil
	}
	list, err := rec.id(at)
	if err != nil {
		return template, nil, err
	}
	var values []RecordID
	if err := r.flatten(ctx, list, rec.seg, 0, &values); err != nil {
		return template, nil, err
	}
	for i, id := range values {
		p := PropertyName{Name: fmt.Sprint(i + 1), Type: Binary}
		if value, err := r.record(ctx, id, rec.seg); err == nil {
			p.Multi = value.typ == ListRecord
		}
		q, _ := Node{r: r, rec: rec}.property(ctx, p, id) // it has its error
		all = append(all, q)
	}
	return template, all, nil
}

// flatten adds the elements of a list whose length is not known and which contains no buckets.
func (r *Reader) flatten(ctx context.Context, id RecordID, near *Segment, level int, to *[]RecordID) error {
	rec, err := r.record(ctx, id, near)
	switch n := len(*to); {
	case err != nil && level > 0 && n >= bucketIDs: // it could have been a bucket, with any number of elements
		return err
	case err == nil && (rec.typ == Bucket && n%bucketIDs != 0 || n > propertyMask):
		return rec.errorf(Corrupt, 0, "list: expected full buckets, found %d elements", n)
	}
	if err != nil || rec.typ != Bucket || level == 3 {
		*to = append(*to, id)
		return nil
	}
	end, err := rec.seg.Bound(rec.num)
	for i := 0; i < min((end-rec.pos)/recordIDLen, bucketIDs) && err == nil; i++ {
		var sub RecordID
		if sub, err = rec.id(recordIDLen * i); err == nil {
			err = r.flatten(ctx, sub, rec.seg, level+1, to)
		}
	}
	return err
}
