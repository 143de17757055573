package segment

import (
	"errors"
	"testing"
)

// craft makes a segment of records that only a test would write.
type craft struct {
	t testing.TB
	b *Builder
	m *memory
}

func newCraft(t testing.TB) craft {
	b, m := newTestBuilder(11)
	return craft{t, b, m}
}

func (c craft) put(typ Type, d *draft) RecordID {
	c.t.Helper()
	id, err := c.b.done(c.b.put(c.t.Context(), typ, d))
	return made(c.t)(id, err)
}

func (c craft) reader() *Reader {
	flush(c.t, c.b)
	return NewReader(c.m)
}

func class(err error) Class {
	var e *Error
	if errors.As(err, &e) {
		return e.Class
	}
	return 0
}

func TestRecordsThatLeadToThemselvesEnd(t *testing.T) {
	c, ctx := newCraft(t), t.Context()
	key := made(t)(c.b.Text(ctx, "key"))
	diff := c.put(Branch, (&draft{}).u32(diffHead).u32(mapHash("other")).id(key).id(key).own())
	branch := c.put(Branch, (&draft{}).u32(100).u32(1).own())
	longID := c.put(BlobID, (&draft{}).bytes(externalRef).own())
	ring := c.put(Bucket, (&draft{}).own().own())
	long := c.put(ValueRecord, (&draft{b: []byte{0xC0, 0, 0, 0x0E, 0, 0, 0, 0}}).id(ring))
	huge := c.put(ValueRecord, (&draft{b: []byte{0xDF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF}}).id(ring))
	list := c.put(ListRecord, (&draft{}).u32(maxList).id(ring))
	longList := c.put(ListRecord, (&draft{}).u32(maxList+1).id(ring))
	r := c.reader()

	if _, err := r.Map(ctx, diff); class(err) != Limit {
		t.Error(err)
	}
	m, err := r.Map(ctx, branch)
	if err != nil {
		t.Fatal(err)
	}
	if all, err := collect(m.All(ctx)); class(err) != Corrupt || len(all) > 0 {
		t.Error(len(all), err)
	}
	for _, name := range manyNames(64) {
		if _, _, err := m.Get(ctx, name); err != nil && class(err) != Corrupt {
			t.Error(err)
		}
	}
	v, err := r.Value(ctx, longID)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := v.BlobID(ctx, 1<<20); class(err) != Corrupt {
		t.Error(err)
	}
	if v, err = r.Value(ctx, long); err != nil {
		t.Fatal(err)
	}
	if _, err := v.Text(ctx, 1<<30); class(err) != Corrupt && class(err) != Limit {
		t.Error(err)
	}
	if _, err := r.Value(ctx, huge); class(err) != Corrupt {
		t.Error(err)
	}
	if _, err := r.ListOf(ctx, longList); class(err) != Corrupt {
		t.Error(err)
	}
	l, err := r.ListOf(ctx, list)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.At(ctx, maxList-1); class(err) != Corrupt {
		t.Error(err)
	}
}

func TestAMapThatClaimsMoreThanItHasSaysSo(t *testing.T) {
	c, ctx := newCraft(t), t.Context()
	key := made(t)(c.b.Text(ctx, "name0"))
	leaf := c.put(Leaf, (&draft{}).u32(1).u32(mapHash("name0")).id(key).id(key))
	// A leaf in each bucket, where it belongs in one.
	all := (&draft{}).u32(40).u32(1<<32 - 1)
	for range 32 {
		all.id(leaf)
	}
	everywhere := c.put(Branch, all)
	few := c.put(Branch, (&draft{}).u32(40).u32(1<<mapIndex(mapHash("name0"), 0)).id(leaf))
	none := c.put(Branch, (&draft{}).u32(40).u32(0))
	level := c.put(Branch, (&draft{}).u32(3<<mapSizeBits|40).u32(1).id(few))
	leafed := c.put(Leaf, (&draft{}).u32(30))
	r := c.reader()

	count := func(id RecordID) (good, bad int) {
		t.Helper()
		m, err := r.Map(ctx, id)
		if err != nil {
			t.Fatal(err)
		}
		for _, err := range m.All(ctx) {
			if err == nil {
				good++
			} else if bad++; class(err) != Corrupt {
				t.Error(err)
			}
		}
		return good, bad
	}
	if good, bad := count(everywhere); good != 1 || bad != 32 {
		t.Error(good, bad)
	}
	if good, bad := count(few); good != 1 || bad != 1 {
		t.Error(good, bad)
	}
	if good, bad := count(level); good != 0 || bad != 1 {
		t.Error(good, bad)
	}
	for _, id := range []RecordID{none, leafed} {
		if _, err := r.Map(ctx, id); id == none && class(err) != Corrupt {
			t.Error(err)
		}
	}
}

func TestTemplatesHaveALimit(t *testing.T) {
	c, ctx := newCraft(t), t.Context()
	name := made(t)(c.b.Text(ctx, string(make([]byte, 200000))))
	names := listWriter{b: c.b}
	for range 100 {
		names.add(ctx, name)
	}
	list := made(t)(c.b.done(names.close(ctx)))
	d := (&draft{}).u32(noChildren | 100).id(list)
	for range 100 {
		d.bytes(1)
	}
	id := c.put(TemplateRecord, d)
	both := c.put(TemplateRecord, (&draft{}).u32(noChildren|manyChildren))
	odd := c.put(TemplateRecord, (&draft{}).u32(noChildren|1).id(name).bytes(13))
	r := c.reader()
	if _, err := r.Template(ctx, id); class(err) != Limit {
		t.Error(err)
	}
	for _, id := range []RecordID{both, odd} {
		if _, err := r.Template(ctx, id); class(err) != Corrupt {
			t.Error(err)
		}
	}
}

func TestADamagedSegmentCostsOnlyWhatItHolds(t *testing.T) {
	s := loadStore(t, "corrupt-segment-magic")
	head, err := ParseRecordID(loadExpected(t, "corrupt-segment-magic").Head.Revision)
	if err != nil {
		t.Fatal(err)
	}
	r, nodes, lost := NewReader(s), 0, 0
	var walk func(id RecordID)
	walk = func(id RecordID) {
		n, err := r.Node(t.Context(), id)
		if err != nil {
			lost++
			return
		}
		nodes++
		for c, err := range n.Children(t.Context()) {
			if err != nil {
				lost++
				continue
			}
			walk(c.Value)
		}
	}
	walk(head)
	if nodes < 400 || lost != 1 {
		t.Errorf("%d nodes, %d lost; the reference gives up at 6", nodes, lost)
	}
}
