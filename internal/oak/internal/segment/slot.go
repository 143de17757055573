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

// A run is slots that follow each other without a gap.
type run struct {
	slot
	n      int
	paired typeSet // what every other slot may refer to, whose role is the next one; or 0
}

func (r run) at(i int) slot {
	s := r.slot
	s.off += recordIDLen * i
	if r.paired != 0 {
		if i&1 == 1 {
			s.role, s.want = s.role+1, r.paired
		}
		i /= 2
	}
	if s.index >= 0 {
		s.index = i
	}
	return s
}

// An extent is what a record contains about itself, without reading others.
type extent struct {
	len   int
	exact bool // otherwise the length is at least len
	runs  []run
}

func (e *extent) one(off int, r role, want typeSet) {
	e.runs = append(e.runs, run{slot: slot{off, r, -1, want}, n: 1})
}

func (e *extent) many(off, n int, r role, want, paired typeSet) {
	e.runs = append(e.runs, run{slot{off, r, 0, want}, n, paired})
}

// A measure determines the extent of its record.
type measure struct {
	Record
	extent
	room  int  // bytes up to the next record
	loose bool // it may be longer than that
}

// extend determines the length of a record and where it has record IDs. Records that do not
// contain their length extend to end, in the segment. The memory of former runs is used again.
func (x *measure) extend(rec Record, end int) (err error) {
	x.Record, x.room, x.loose = rec, max(0, min(end-rec.pos, len(rec.data))), false
	x.len, x.exact, x.runs = 0, true, x.runs[:0]
	switch x.typ {
	case Leaf, Branch:
		err = x.ofMap()
	case Bucket:
		err = x.ofBucket()
	case ListRecord:
		err = x.ofList()
	case ValueRecord, BlobID:
		err = x.ofValue()
	case Block:
		x.len, x.exact = 1, false
	case TemplateRecord:
		err = x.ofTemplate()
	case NodeRecord:
		err = x.ofNode()
	default:
		err = x.errorf(Corrupt, 0, "record: expected a type up to %d, found %d", types-1, uint8(x.typ))
	}
	if err == nil && x.len > len(x.data) && !x.loose {
		err = x.need(0, x.len, x.typ.String())
	}
	return err
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
		x.many(branchHead, n, bucketRole, anyMap, 0)
		return nil
	}
	if x.len = leafHead + (4+pairLen)*m.size; x.len > x.room {
		x.loose = true // it overlaps the next record; its ids may be invalid
		return nil
	}
	x.many(leafHead+4*m.size, 2*m.size, keyRole, anyString, anyNode)
	return nil
}

func (x *measure) ofBucket() error {
	// A bucket has at least two IDs. What follows the last ID is padding.
	n := min(x.room/recordIDLen, bucketIDs)
	if n < 2 {
		return x.errorf(Corrupt, 0, "bucket: expected room for 2 ids, found %d bytes", x.room)
	}
	x.len, x.exact = recordIDLen*n, x.room-recordIDLen*n < alignment
	x.many(0, n, elementRole, anyElement, 0)
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
	x.many(h.mixinsAt, h.mixins, mixinRole, anyString, 0)
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
func (e *extent) nodeSlots(rule ChildRule, properties bool) {
	if rule != NoChild {
		want := anyNode
		if rule == ManyChildren {
			want = anyMap
		}
		e.one(e.len, childRole, want)
		e.len += recordIDLen
	}
	if properties {
		e.one(e.len, propertiesRole, anyProperties)
		e.len += recordIDLen
	}
	e.exact = true
}
