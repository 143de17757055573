package segment

import (
	"math/bits"
	"strconv"
)

// A slot is a place in a record that contains a record ID.
type slot struct {
	off   int // in the record
	role  role
	index int // among those of the role; -1 if there can be one only
	want  typeSet
}

// role is the purpose of a slot's record ID.
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

// typeSet has a bit for each type to which a record ID may refer.
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

// An extent is what a record contains about itself, without reading others.
type extent struct {
	len   int
	exact bool // otherwise the length is at least len
	slots []slot
}

// extent determines the length of a record and where it has record IDs. Records that do not
// contain their length extend to end, in the segment. The slots are appended to buf.
func (rec Record) extent(end int, buf []slot) (extent, error) {
	if rec.typ >= types {
		return extent{exact: true, slots: buf}, rec.errorf(Corrupt, 0, "record: expected a type up to %d, found %d", types-1, uint8(rec.typ))
	}
	x := measure{Record: rec, room: max(0, min(end-rec.pos, len(rec.data))), extent: extent{exact: true, slots: buf}}
	err := measures[rec.typ](&x)
	if err == nil && x.len > len(rec.data) && !x.loose {
		err = rec.need(0, x.len, rec.typ.String())
	}
	return x.extent, err
}

type measure struct {
	Record
	extent
	room  int  // bytes up to the next record
	loose bool // it may be longer than that
}

// measures has a method for each type.
var measures = [types]func(*measure) error{
	Leaf: (*measure).ofMap, Branch: (*measure).ofMap, Bucket: (*measure).ofBucket, ListRecord: (*measure).ofList,
	ValueRecord: (*measure).ofValue, BlobID: (*measure).ofValue, TemplateRecord: (*measure).ofTemplate, NodeRecord: (*measure).ofNode,
	Block: func(x *measure) error {
		x.len, x.exact = 1, false
		return nil
	},
}

func (x *measure) one(off int, r role, want typeSet) { x.nth(off, r, -1, want) }

func (x *measure) nth(off int, r role, i int, want typeSet) {
	x.slots = append(x.slots, slot{off, r, i, want})
}

func (x *measure) ofMap() error {
	if err := x.need(0, 4, "map"); err != nil {
		return err
	}
	if x.u32(0) == diffHead {
		err := x.expect(Branch, Branch, diffLen, "map diff")
		x.len, x.loose = diffLen, true
		x.one(8, keyRole, anyString)
		x.one(8+recordIDLen, valueRole, anyNode)
		x.one(8+2*recordIDLen, baseRole, anyMap)
		return err
	}
	m, err := x.mapRecord()
	if err != nil {
		return err
	}
	if m.branch() != (x.typ == Branch) {
		return x.errorf(Corrupt, 0, "map: expected a size and level of a %s, found %d and %d", x.typ, m.size, m.level)
	}
	if m.branch() {
		n := bits.OnesCount32(m.bitmap)
		x.len, x.loose = branchHead+recordIDLen*n, true
		for i := range n {
			x.nth(branchHead+recordIDLen*i, bucketRole, i, anyMap)
		}
		return nil
	}
	if x.len = leafHead + (4+pairLen)*m.size; x.len > x.room {
		x.loose = true // it overlaps the next record; its ids may be invalid
		return nil
	}
	for i := range m.size {
		off := leafHead + 4*m.size + pairLen*i
		x.nth(off, keyRole, i, anyString)
		x.nth(off+recordIDLen, valueRole, i, anyNode)
	}
	return nil
}

func (x *measure) ofBucket() error {
	// A bucket has at least two IDs. What follows the last ID is padding.
	n := min(x.room/recordIDLen, bucketIDs)
	if n < 2 {
		return x.errorf(Corrupt, 0, "bucket: expected room for 2 ids, found %d bytes", x.room)
	}
	x.len, x.exact = recordIDLen*n, x.room-recordIDLen*n < alignment
	for i := range n {
		x.nth(recordIDLen*i, elementRole, i, anyElement)
	}
	return nil
}

func (x *measure) ofList() error {
	if err := x.need(0, 4, "list"); err != nil {
		return err
	}
	n := x.u32(0)
	if n > maxList {
		return x.errorf(Corrupt, 0, "list: expected at most %d elements, found %d", maxList, n)
	}
	if x.len = 4; n > 0 {
		x.len += recordIDLen
		x.one(4, elementRole, anyValues)
	}
	return nil
}

func (x *measure) ofValue() error {
	h, err := x.valueHead()
	switch {
	case err != nil:
		return err
	case h.kind == Long:
		x.len = longHeadLen
		x.one(h.off, blocksRole, anyBlocks)
	case h.kind == ExternalLong:
		x.len = h.off + recordIDLen
		x.one(h.off, blobIDRole, anyString)
	default:
		x.len = h.off + int(h.n)
	}
	return nil
}

func (x *measure) ofTemplate() error {
	h, err := x.templateHead()
	if err != nil {
		return err
	}
	x.len = h.len
	if h.head&hasPrimary != 0 {
		x.one(4, primaryRole, anyString)
	}
	for i := range h.mixins {
		x.nth(h.mixinsAt+recordIDLen*i, mixinRole, i, anyString)
	}
	if h.rule == OneChild {
		x.one(h.childAt, childNameRole, anyString)
	}
	if h.properties > 0 {
		x.one(h.namesAt, namesRole, anyNames)
	}
	return nil
}

func (x *measure) ofNode() error {
	if err := x.need(0, nodeChildAt, "node"); err != nil {
		return err
	}
	x.len, x.exact = nodeChildAt, false // the template determines which of the last two IDs exist
	x.one(0, stableRole, anyStable)
	x.one(nodeTemplateAt, templateRole, anyTemplate)
	return nil
}

// nodeSlots adds the slots that a node has according to its template.
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
