package segment

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
)

// PropertyType is the type of a property's values.
type PropertyType uint8

const (
	String PropertyType = iota + 1
	Binary
	Integer
	Double
	Date
	Boolean
	Name
	Path
	Reference
	WeakReference
	URI
	Decimal
)

var propertyTypeNames = [...]string{"?", "String", "Binary", "Long", "Double", "Date", "Boolean", "Name", "Path", "Reference", "WeakReference", "URI", "Decimal"}

// TypeNames has the names of the types, from String on.
var TypeNames = propertyTypeNames[1:]

// TypeNamed returns the type of that name, or 0.
func TypeNamed(name string) PropertyType { return PropertyType(slices.Index(TypeNames, name) + 1) }

func (t PropertyType) String() string { return Word("PropertyType", t, propertyTypeNames[:]...) }

// Names of properties that are special fields of a template.
const (
	primaryType = "jcr:primaryType"
	mixinTypes  = "jcr:mixinTypes"
)

// Bits of a template's head.
const (
	hasPrimary    = 1 << 31
	hasMixins     = 1 << 30
	noChildren    = 1 << 29
	manyChildren  = 1 << 28
	mixinShift    = 18
	mixinMask     = 1<<10 - 1
	propertyMask  = 1<<mixinShift - 1
	templateLimit = 16 << 20 // bytes of all names together
)

// A ChildRule is how a node's children are stored.
type ChildRule uint8

const (
	NoChild ChildRule = iota
	OneChild
	ManyChildren
)

func (c ChildRule) String() string { return Word("ChildRule", c, "none", "one", "many") }

// A Template is what nodes of the same shape share.
type Template struct {
	ID        RecordID
	Primary   *NamedRecord // jcr:primaryType, nil if the node has none, or one of another type
	Mixins    []NamedRecord
	HasMixins bool // jcr:mixinTypes, which may be empty
	Rule      ChildRule
	Child     string // the name of the only child, if there is one
	// Properties is in the reference's order: by Java hash of the name, name, type.
	Properties []PropertyName

	bytes int // of all names
}

// A NamedRecord is a string and where it is stored.
type NamedRecord struct {
	Text string
	ID   RecordID
}

// A PropertyName is a property without its value.
type PropertyName struct {
	Name   string
	Type   PropertyType
	Multi  bool
	Stored int // the place of its value in a node's list
	hash   int32
}

func (p PropertyName) compareName(q PropertyName) int {
	if c := cmp.Compare(p.hash, q.hash); c != 0 {
		return c
	}
	return compareUTF16(p.Name, q.Name)
}

func (p PropertyName) compare(q PropertyName) int {
	return cmp.Or(p.compareName(q), cmp.Compare(p.Type, q.Type))
}

func (t *Template) find(name string) (int, bool) {
	return slices.BinarySearchFunc(t.Properties, PropertyName{Name: name, hash: javaHash(name)}, PropertyName.compareName)
}

// templateHead is a template without its names. Its parts have been checked to exist.
type templateHead struct {
	head       uint32
	mixins     int
	properties int
	mixinsAt   int // ids
	childAt    int // one id, if the rule is OneChild
	namesAt    int // one id, if there are properties, then types
	rule       ChildRule
	len        int
}

func (rec *Record) templateHead() (h templateHead, err error) {
	if err = rec.expect(TemplateRecord, TemplateRecord, 4, "template"); err != nil {
		return h, err
	}
	h.head = rec.u32(0)
	h.properties = int(h.head & propertyMask)
	at := 4
	if h.head&hasPrimary != 0 {
		at += recordIDLen
	}
	h.mixinsAt = at
	if n := int(h.head >> mixinShift & mixinMask); h.head&hasMixins != 0 {
		h.mixins = n
		at += recordIDLen * n
	} else if n > 0 {
		return h, rec.errorf(Corrupt, 0, "template: expected no mixins, found %d", n)
	}
	h.childAt = at
	switch h.head & (noChildren | manyChildren) {
	case 0:
		h.rule = OneChild
		at += recordIDLen
	case manyChildren:
		h.rule = ManyChildren
	case noChildren | manyChildren:
		return h, rec.errorf(Corrupt, 0, "template: expected no children or many, found both")
	}
	h.namesAt = at
	if h.properties > 0 {
		at += recordIDLen + h.properties
	}
	h.len = at
	return h, rec.need(0, at, "template")
}

func (r *Reader) Template(ctx context.Context, id RecordID) (*Template, error) {
	return r.template(ctx, id, nil)
}

func (r *Reader) template(ctx context.Context, id RecordID, near *Segment) (*Template, error) {
	if t := r.templates.get(id); t != nil {
		return t, nil
	}
	rec, err := r.record(ctx, id, near)
	if err != nil {
		return nil, err
	}
	h, err := rec.templateHead()
	if err != nil {
		return nil, err
	}
	t := &Template{ID: id, Rule: h.rule, HasMixins: h.head&hasMixins != 0}
	// named reads the string whose ID is at off, unless there is an error.
	named := func(off int) (n NamedRecord) {
		if err == nil {
			n.ID, err = rec.id(off)
		}
		if err == nil {
			n.Text, err = r.templateText(ctx, n.ID, rec.seg, t)
		}
		return n
	}
	if h.head&hasPrimary != 0 {
		p := named(4)
		t.Primary = &p
	}
	for i := range h.mixins {
		t.Mixins = append(t.Mixins, named(h.mixinsAt+recordIDLen*i))
	}
	if h.rule == OneChild {
		t.Child = named(h.childAt).Text
	}
	if err == nil && h.properties > 0 {
		err = r.propertyNames(ctx, rec, h, t)
	}
	if err != nil {
		return nil, err
	}
	r.templates.put(t)
	return t, nil
}

// templateText reads a string. A few strings could be named very often.
func (r *Reader) templateText(ctx context.Context, id RecordID, near *Segment, t *Template) (string, error) {
	s, err := r.text(ctx, id, near, maxName)
	if t.bytes += len(s) + 64; t.bytes > templateLimit && err == nil {
		err = &Error{Class: Limit, Segment: t.ID.Segment, Record: t.ID.Number, Off: -1, What: fmt.Sprintf("template: expected at most %d bytes of names, found more", templateLimit)}
	}
	return s, err
}

func (r *Reader) propertyNames(ctx context.Context, rec Record, h templateHead, t *Template) error {
	id, err := rec.id(h.namesAt)
	if err != nil {
		return err
	}
	names, err := r.list(id, h.properties, rec.seg)
	if err != nil {
		return err
	}
	for id, err := range names.All(ctx) {
		p := PropertyName{Stored: len(t.Properties)}
		if err == nil {
			p.Type, p.Multi, err = rec.propertyType(h.namesAt + recordIDLen + p.Stored)
		}
		if err == nil {
			p.Name, err = r.templateText(ctx, id, rec.seg, t)
		}
		if err != nil {
			return err
		}
		p.hash = javaHash(p.Name)
		t.Properties = append(t.Properties, p)
	}
	slices.SortStableFunc(t.Properties, PropertyName.compare)
	return nil
}

// propertyType reads a type byte, which is negative if there are several values.
func (rec *Record) propertyType(off int) (typ PropertyType, multi bool, err error) {
	v := int(int8(rec.u8(off)))
	n := max(v, -v)
	if n < int(String) || n > int(Decimal) {
		return 0, false, rec.errorf(Corrupt, off, "property type: expected 1 to %d or their negatives, found %d", Decimal, v)
	}
	return PropertyType(n), v < 0, nil
}

// A templateCache keeps templates, which many nodes share. When it is full, it starts again.
type templateCache struct {
	mu    sync.RWMutex
	byID  map[RecordID]*Template
	bytes int
}

const templateCacheLimit = 8 << 20

func (c *templateCache) get(id RecordID) *Template {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.byID[id]
}

func (c *templateCache) put(t *Template) {
	size := t.bytes + 256
	if size > templateCacheLimit/8 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.byID == nil || c.bytes+size > templateCacheLimit {
		c.byID, c.bytes = map[RecordID]*Template{}, 0
	}
	c.byID[t.ID] = t
	c.bytes += size
}
