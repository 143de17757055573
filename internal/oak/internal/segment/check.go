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
func (s *Segment) Check(report func(Problem)) { new(Checker).Check(s, report) }

// A Checker checks segments, one after the other, in the same memory.
type Checker struct {
	s      *Segment
	out    func(Problem)
	used   []bool     // references
	places []recordAt // of records, by place
	m      measure    // of a record
}

// Check is [Segment.Check].
func (c *Checker) Check(s *Segment, report func(Problem)) {
	if s.version == 0 {
		return
	}
	c.s, c.out = s, report
	c.used = slices.Grow(c.used[:0], s.refs)[:s.refs]
	clear(c.used)
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

type recordAt struct {
	pos    int32
	number int32
	typ    Type
}

func (c *Checker) report(code Code, record int32, off int64, format string, a ...any) {
	c.out(Problem{code, c.s.id, record, off, fmt.Sprintf(format, a...)})
}

func (c *Checker) err(code Code, err error) {
	if e, ok := err.(*Error); ok {
		what := e.What
		if e.Err != nil {
			what += ": " + e.Err.Error()
		}
		c.out(Problem{code, c.s.id, e.Record, e.Off, what})
	}
}

func (c *Checker) reserved() {
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

func (c *Checker) refs() {
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

func (c *Checker) rows() {
	s := c.s
	c.places = slices.Grow(c.places[:0], s.records)[:s.records]
	at := s.records // of the last one in places, which are filled from the end
	last, inOrder := int64(-1), true
	for i := range s.records {
		row, off := s.row(i), int64(s.table+rowLen*i)
		switch n := int64(row.Number); {
		case n <= last:
			c.report(RowOrder, row.Number, off, "row %d: expected a number above %d, found %d", i, last, n)
		case n != last+1:
			c.report(RowGap, row.Number, off, "row %d: expected number %d, found %d", i, last+1, n)
		}
		last = max(last, int64(row.Number))
		pos, ok := s.posOf(row)
		if !ok {
			c.report(RowOffset, row.Number, off+rowOffset, "%s", s.misplaced(row))
			continue
		}
		inOrder = inOrder && (at == s.records || int32(pos) <= c.places[at].pos)
		at--
		c.places[at] = recordAt{int32(pos), row.Number, row.Type}
	}
	if c.places = c.places[at:]; !inOrder { // as no known writer writes them
		slices.Reverse(c.places)
		slices.SortStableFunc(c.places, func(a, b recordAt) int { return cmp.Compare(a.pos, b.pos) })
	}
}

func (c *Checker) gap() {
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

func (c *Checker) record(i int) {
	p, end := c.places[i], len(c.s.b)
	if i+1 < len(c.places) {
		end = int(c.places[i+1].pos)
	}
	m := &c.m
	if err := m.extend(Record{c.s, p.number, p.typ, int(p.pos), c.s.b[p.pos:]}, end); err != nil {
		c.err(BadRecord, err)
		return
	}
	if m.typ == NodeRecord {
		c.node(m, end)
	}
	switch over := m.pos + m.len - end; {
	case over > 0:
		c.report(Overlapping, p.number, int64(end), "%s: expected at most %d bytes, found %d", m.typ, m.len-over, m.len)
		return // its ids are bytes of other records, and checking them could take too long
	case m.exact && -over >= alignment:
		c.report(Hole, p.number, int64(m.pos+m.len), "%s: expected the next record after %d bytes, found it after %d", m.typ, m.len, m.len-over)
	}
	for i := range m.runs {
		c.run(&m.Record, &m.runs[i])
	}
}

// node adds the parts in a node's template or, if that is unknown, all for which there is room.
func (c *Checker) node(m *measure, end int) {
	id, err := m.id(nodeTemplateAt)
	if err != nil {
		return
	}
	if id.Segment == c.s.id && c.s.order != scattered {
		t, err := c.s.Record(id.Number)
		if err != nil {
			return
		}
		if h, err := t.templateHead(); err == nil {
			m.nodeSlots(h.rule, h.properties > 0)
		}
		return
	}
	for m.len+recordIDLen <= min(end-m.pos, nodeChildAt+2*recordIDLen) {
		m.one(m.len, childRole, anyMap|anyNode|anyProperties)
		m.len += recordIDLen
	}
	m.exact = true
}

func (c *Checker) run(rec *Record, r *run) {
	s, b := c.s, rec.bytes(r.off, recordIDLen*r.n)
	wants := [2]typeSet{r.want, r.want}
	if r.paired != 0 {
		wants[1] = r.paired
	}
	for i := range r.n {
		ref, n, ok := s.parts(b[recordIDLen*i:])
		switch {
		case !ok:
			_, err := rec.id(r.at(i).off)
			c.err(DanglingID, err)
			continue
		case ref > 0:
			c.used[ref-1] = true
			if s.Ref(ref-1) != s.id {
				continue
			}
		}
		// Without an order, each number would have to be searched for.
		if s.order == scattered {
			continue
		}
		switch typ, ok := s.typeOf(n); {
		case !ok:
			at := r.at(i)
			c.report(DanglingID, rec.num, int64(rec.pos+at.off), "%s: expected a record, found no record %d", at, n)
		case !wants[i&1].has(typ):
			at := r.at(i)
			c.report(DanglingID, rec.num, int64(rec.pos+at.off), "%s: expected another type, found record %d, a %s", at, n, typ)
		}
	}
}
