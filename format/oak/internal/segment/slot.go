package segment

import (
	"math/bits"
	"strconv"
)

// A slot is a place in a record that holds a record id.
type slot struct {
	off   int // in the record
	role  role
	index int // among those of the role; -1 if there can be one only
	want  typeSet
}

// role is what a slot's record id is for.
type role uint8

const (
	keyRole role = iota
	valueRole
	baseRole
	bucketRole
	elementRole
	blocksRole
	blobIDRole
	stableRole
	templateRole
	childRole
	childNameRole
	primaryRole
	mixinRole
	namesRole
	propertiesRole

	roles = iota
)

var roleNames = [roles]string{"key", "value", "base", "bucket", "element", "blocks", "blob id", "stable id", "template", "child", "child name", "primary type", "mixin", "property names", "properties"}

func (s slot) String() string {
	if s.index < 0 {
		return roleNames[s.role]
	}
	return roleNames[s.role] + " " + strconv.Itoa(s.index)
}

// typeSet is a bit for each type that a record id may lead to.
type typeSet uint16

func oneOf(types ...Type) (s typeSet) {
	for _, t := range types {
		s |= 1 << t
	}
	return s
}

func (s typeSet) has(t Type) bool { return t < types && s>>t&1 != 0 }

var (
	anyMap    = oneOf(Leaf, Branch)
	anyString = oneOf(ValueRecord)
	anyNode   = oneOf(NodeRecord)

	anyStable     = oneOf(NodeRecord, Block)
	anyTemplate   = oneOf(TemplateRecord)
	anyNames      = oneOf(Bucket, ValueRecord)
	anyProperties = oneOf(Bucket, ListRecord, ValueRecord, BlobID)
	anyValues     = oneOf(Bucket, ValueRecord, BlobID)
	anyBlocks     = oneOf(Bucket, Block)
	anyElement    = oneOf(Bucket, ListRecord, ValueRecord, BlobID, Block)
)

// An extent is what a record says of itself, without looking at others.
type extent struct {
	len   int
	exact bool // else it is at least len
	slots []slot
}

// extent reads how long a record is and where it has record ids. Records that do
// not say how long they are reach as far as end, in the segment. The slots are
// appended to buf.
func (rec Record) extent(end int, buf []slot) (e extent, err error) {
	e.exact, e.slots = true, buf
	room := max(0, min(end-rec.pos, len(rec.data)))
	one := func(off int, r role, want typeSet) { e.slots = append(e.slots, slot{off, r, -1, want}) }
	nth := func(off int, r role, i int, want typeSet) { e.slots = append(e.slots, slot{off, r, i, want}) }
	switch rec.typ {
	case Leaf, Branch:
		if err = rec.need(0, 4, "map"); err != nil {
			return e, err
		}
		if rec.u32(0) == diffHead {
			if err = rec.expect(Branch, Branch); err == nil {
				err = rec.need(0, diffLen, "map diff")
			}
			e.len = diffLen
			one(8, keyRole, anyString)
			one(8+recordIDLen, valueRole, anyNode)
			one(8+2*recordIDLen, baseRole, anyMap)
			return e, err
		}
		m, err := rec.mapRecord()
		if err != nil {
			return e, err
		}
		if m.branch() != (rec.typ == Branch) {
			return e, rec.errorf(Corrupt, 0, "map: expected a size and level of a %s, found %d and %d", rec.typ, m.size, m.level)
		}
		if m.branch() {
			n := bits.OnesCount32(m.bitmap)
			e.len = branchHead + recordIDLen*n
			for i := range n {
				nth(branchHead+recordIDLen*i, bucketRole, i, anyMap)
			}
			return e, nil
		}
		e.len = leafHead + (4+pairLen)*m.size
		if e.len > room {
			return e, nil // it overlaps what is next; its ids may be anything
		}
		for i := range m.size {
			off := leafHead + 4*m.size + pairLen*i
			nth(off, keyRole, i, anyString)
			nth(off+recordIDLen, valueRole, i, anyNode)
		}
	case Bucket:
		// Fewer than two were no bucket; what is behind the last id is padding.
		n := min(room/recordIDLen, bucketIDs)
		if n < 2 {
			return e, rec.errorf(Corrupt, 0, "bucket: expected room for 2 ids, found %d bytes", room)
		}
		e.len, e.exact = recordIDLen*n, room-recordIDLen*n < alignment
		for i := range n {
			nth(recordIDLen*i, elementRole, i, anyElement)
		}
	case ListRecord:
		if err = rec.need(0, 4, "list"); err != nil {
			return e, err
		}
		n := rec.u32(0)
		if n > maxList {
			return e, rec.errorf(Corrupt, 0, "list: expected at most %d elements, found %d", maxList, n)
		}
		if e.len = 4; n > 0 {
			e.len += recordIDLen
			one(4, elementRole, anyValues)
		}
	case ValueRecord, BlobID:
		h, err := rec.valueHead()
		switch {
		case err != nil:
			return e, err
		case h.kind == Long:
			e.len = longHeadLen
			one(h.off, blocksRole, anyBlocks)
		case h.kind == ExternalLong:
			e.len = h.off + recordIDLen
			one(h.off, blobIDRole, anyString)
		default:
			e.len = h.off + int(h.n)
		}
	case Block:
		e.len, e.exact = 1, false
	case TemplateRecord:
		h, err := rec.templateHead()
		if err != nil {
			return e, err
		}
		e.len = h.len
		if h.head&hasPrimary != 0 {
			one(4, primaryRole, anyString)
		}
		for i := range h.mixins {
			nth(h.mixinsAt+recordIDLen*i, mixinRole, i, anyString)
		}
		if h.rule == OneChild {
			one(h.childAt, childNameRole, anyString)
		}
		if h.properties > 0 {
			one(h.namesAt, namesRole, anyNames)
		}
	case NodeRecord:
		// Which of the last two there are, the template knows.
		if err = rec.need(0, nodeChildAt, "node"); err != nil {
			return e, err
		}
		e.len, e.exact = nodeChildAt, false
		one(0, stableRole, anyStable)
		one(nodeTemplateAt, templateRole, anyTemplate)
	default:
		return e, rec.errorf(Corrupt, 0, "record: expected a type up to %d, found %d", types-1, uint8(rec.typ))
	}
	if e.len > len(rec.data) {
		return e, rec.need(0, e.len, rec.typ.String())
	}
	return e, nil
}

// nodeSlots adds what a node has by its template.
func (rec Record) nodeSlots(e extent, rule ChildRule, properties bool) extent {
	if rule != NoChild {
		want := anyNode
		if rule == ManyChildren {
			want = anyMap
		}
		e.slots = append(e.slots, slot{e.len, childRole, -1, want})
		e.len += recordIDLen
	}
	if properties {
		e.slots = append(e.slots, slot{e.len, propertiesRole, -1, anyProperties})
		e.len += recordIDLen
	}
	e.exact = true
	return e
}
