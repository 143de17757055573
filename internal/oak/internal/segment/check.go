package segment

import (
	"cmp"
	"fmt"
	"slices"
)

type Code string

const (
	BadSize      Code = "segment-size"   // not a multiple of 16
	BadReserved  Code = "reserved-bytes" // not zero
	SelfRef      Code = "self-reference" // the table of references has the segment itself
	DuplicateRef Code = "duplicate-reference"
	UnusedRef    Code = "unused-reference" // no record uses it
	OddRef       Code = "odd-reference"    // neither to a data segment nor to a bulk segment
	RowOrder     Code = "row-order"        // numbers of the record table do not ascend
	RowGap       Code = "row-gap"          // numbers of the record table have gaps
	RowOffset    Code = "row-offset"       // outside of the segment, or not aligned
	GapBytes     Code = "gap-bytes"        // not zero between the record table and the records
	Overlapping  Code = "record-overlap"   // a record overlaps the next one
	Hole         Code = "record-hole"      // unused bytes between two records
	BadRecord    Code = "record"           // a record violates the format
	DanglingID   Code = "record-id"        // a record id leads to no record, or to one of another type
	BadInfo      Code = "segment-info"     // record 0 does not describe the segment's origin
)

// A Problem is a fault of a segment.
type Problem struct {
	Code    Code
	Segment ID
	Record  int32 // -1 if it does not concern one record
	Off     int64 // in the segment, -1 if it has no place
	What    string
}

// Check checks the segment without reading others: its tables, and each record as far as possible
// without other segments. Its time is proportional to the size of the segment, whatever its
// contents.
func (s *Segment) Check(report func(Problem)) {
	if s.version == 0 {
		return
	}
	c := checker{s: s, out: report, used: make([]bool, s.refs)}
	if len(s.b)%sizeFactor != 0 {
		c.report(BadSize, -1, int64(len(s.b)), "size: expected a multiple of %d, found %d", sizeFactor, len(s.b))
	}
	c.reserved()
	c.refs()
	c.rows()
	c.gap()
	for i := range c.places {
		c.record(i)
	}
	for i, used := range c.used {
		if !used {
			c.report(UnusedRef, -1, int64(headerLen+refLen*i), "reference %d: expected a record that has it, found none", i+1)
		}
	}
	if _, err := s.Info(); err != nil {
		c.err(BadInfo, err)
	}
}

type checker struct {
	s      *Segment
	out    func(Problem)
	used   []bool     // references
	places []recordAt // of records, by place
	slots  []slot     // of a record, kept for the next
}

type recordAt struct {
	pos    int32
	number int32
	typ    Type
}

func (c *checker) report(code Code, record int32, off int64, format string, a ...any) {
	c.out(Problem{code, c.s.id, record, off, fmt.Sprintf(format, a...)})
}

func (c *checker) err(code Code, err error) {
	if e, ok := err.(*Error); ok {
		what := e.What
		if e.Err != nil {
			what += ": " + e.Err.Error()
		}
		c.out(Problem{code, c.s.id, e.Record, e.Off, what})
	}
}

func (c *checker) reserved() {
	s := c.s
	zero := func(from, to int) {
		for i := from; i < to; i++ {
			if s.b[i] != 0 {
				c.report(BadReserved, -1, int64(i), "header: expected 0, found %#02x", s.b[i])
				return
			}
		}
	}
	if s.version == 12 {
		zero(fullOff, reservedOff)
	}
	zero(reservedOff, generationOff)
	zero(spareOff, headerLen)
}

func (c *checker) refs() {
	s := c.s
	seen := make(map[ID]int, s.refs)
	for i := range s.refs {
		id, off := s.Ref(i), int64(headerLen+refLen*i)
		first, twice := seen[id]
		switch {
		case id == s.id:
			c.report(SelfRef, -1, off, "reference %d: expected another segment, found this one", i+1)
		case twice:
			c.report(DuplicateRef, -1, off, "reference %d: duplicate of reference %d", i+1, first+1)
		case !id.IsData() && !id.IsBulk():
			c.report(OddRef, -1, off, "reference %d: expected a data or a bulk segment, found %s", i+1, id)
		}
		if !twice {
			seen[id] = i
		}
	}
}

func (c *checker) rows() {
	s := c.s
	c.places = make([]recordAt, 0, s.records)
	last := int64(-1)
	for i := range s.records {
		row, off := s.row(i), int64(s.table+rowLen*i)
		switch n := int64(row.Number); {
		case n <= last:
			c.report(RowOrder, row.Number, off, "row %d: expected a number above %d, found %d", i, last, n)
		case n != last+1:
			c.report(RowGap, row.Number, off, "row %d: expected number %d, found %d", i, last+1, n)
		}
		last = max(last, int64(row.Number))
		pos, what := s.place(row)
		if what != "" {
			c.report(RowOffset, row.Number, off+rowOffset, "%s", what)
			continue
		}
		c.places = append(c.places, recordAt{int32(pos), row.Number, row.Type})
	}
	slices.Reverse(c.places) // then those of known writers are in order
	if !slices.IsSortedFunc(c.places, byPlace) {
		slices.Reverse(c.places)
		slices.SortStableFunc(c.places, byPlace)
	}
}

func byPlace(a, b recordAt) int { return cmp.Compare(a.pos, b.pos) }

func (c *checker) gap() {
	s := c.s
	end := len(s.b)
	if len(c.places) > 0 {
		end = int(c.places[0].pos)
	}
	for i := s.table + rowLen*s.records; i < end; i++ {
		if s.b[i] != 0 {
			c.report(GapBytes, -1, int64(i), "bytes before the first record: expected 0, found %#02x", s.b[i])
			return
		}
	}
}

func (c *checker) record(i int) {
	p, end := c.places[i], len(c.s.b)
	if i+1 < len(c.places) {
		end = int(c.places[i+1].pos)
	}
	rec := Record{c.s, p.number, p.typ, int(p.pos), c.s.b[p.pos:]}
	e, err := rec.extent(end, c.slots[:0])
	if err != nil {
		c.err(BadRecord, err)
		return
	}
	if rec.typ == NodeRecord {
		e = c.node(rec, e, end)
	}
	switch over := rec.pos + e.len - end; {
	case over > 0:
		c.report(Overlapping, p.number, int64(end), "%s: expected at most %d bytes, found %d", rec.typ, e.len-over, e.len)
		return // its ids are bytes of other records, and checking them could take too long
	case e.exact && -over >= alignment:
		c.report(Hole, p.number, int64(rec.pos+e.len), "%s: expected the next record after %d bytes, found it after %d", rec.typ, e.len, e.len-over)
	}
	for _, slot := range e.slots {
		c.slot(rec, slot)
	}
	c.slots = e.slots
}

// node adds the parts in a node's template or, if that is unknown, all for which there is room.
func (c *checker) node(rec Record, e extent, end int) extent {
	id, err := rec.id(nodeTemplateAt)
	if err != nil {
		return e
	}
	if id.Segment == c.s.id && c.s.order != scattered {
		t, err := c.s.Record(id.Number)
		if err != nil {
			return e
		}
		if h, err := t.templateHead(); err == nil {
			return rec.nodeSlots(e, h.rule, h.properties > 0)
		}
		return e
	}
	for e.len+recordIDLen <= min(end-rec.pos, nodeChildAt+2*recordIDLen) {
		e.slots = append(e.slots, slot{e.len, childRole, -1, anyMap | anyNode | anyProperties})
		e.len += recordIDLen
	}
	e.exact = true
	return e
}

func (c *checker) slot(rec Record, s slot) {
	id, err := rec.id(s.off)
	if err != nil {
		c.err(DanglingID, err)
		return
	}
	if ref := rec.u16(s.off); ref > 0 {
		c.used[ref-1] = true
	}
	// Without an order, each number would have to be searched for.
	if id.Segment != c.s.id || c.s.order == scattered {
		return
	}
	row, _, ok := c.s.find(id.Number)
	switch {
	case !ok:
		c.report(DanglingID, rec.num, int64(rec.pos+s.off), "%s: expected a record, found no record %d", s, id.Number)
	case !s.want.has(row.Type):
		c.report(DanglingID, rec.num, int64(rec.pos+s.off), "%s: expected another type, found record %d, a %s", s, id.Number, row.Type)
	}
}
