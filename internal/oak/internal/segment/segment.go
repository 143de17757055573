package segment

import (
	"cmp"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"iter"
	"sort"
)

const MaxSize = 256 << 10

// Offsets in the header, and lengths of what follows it.
const (
	magic          = "0aK"
	versionOff     = 3
	fullOff        = 4
	reservedOff    = 8
	generationOff  = 10
	refCountOff    = 14
	recordCountOff = 18
	spareOff       = 22
	headerLen      = 32
	refLen         = 16
	rowLen         = 9 // number 4, type 1, offset 4
	rowType        = 4
	rowOffset      = 5

	compactedBit = 1 << 31
	// Record IDs have 16 bits for a reference; 0 is the segment itself.
	maxRefs    = 0xfffd
	alignment  = 4  // of records
	sizeFactor = 16 // of data segments
)

type Type uint8

const (
	Leaf Type = iota
	Branch
	Bucket
	ListRecord
	ValueRecord
	Block
	TemplateRecord
	NodeRecord
	BlobID

	types = iota
)

var typeNames = [types]string{"leaf", "branch", "bucket", "list", "value", "block", "template", "node", "blob id"}

func (t Type) String() string {
	if int(t) < len(typeNames) {
		return typeNames[t]
	}
	return fmt.Sprintf("type %d", uint8(t))
}

// A Generation is the garbage collection that wrote a segment.
type Generation struct {
	Gen, Full int32
	Compacted bool
}

func (g Generation) String() string {
	return fmt.Sprintf("%d,%d,%t", g.Gen, g.Full, g.Compacted)
}

// Compare orders by Gen, Full, Compacted.
func (g Generation) Compare(other Generation) int {
	c := cmp.Or(cmp.Compare(g.Gen, other.Gen), cmp.Compare(g.Full, other.Full))
	switch {
	case c != 0 || g.Compacted == other.Compacted:
		return c
	case other.Compacted:
		return -1
	}
	return 1
}

// order is the order of the numbers in a record table's rows.
type order uint8

const (
	dense     order = iota // row i has number i
	ascending              // with gaps
	scattered              // as no writer writes them
)

// A Segment is the bytes of a segment, and its decoded header. It never changes.
type Segment struct {
	id      ID
	b       []byte // all of it, or the beginning: see sparse
	size    int
	sparse  *sparse
	version int
	refs    int
	records int
	table   int // where the record table begins
	order   order
}

// Parse checks a segment's header and the order of its record table. It keeps b. Single rows are
// checked when they are used, so that a damaged row affects only its record.
func Parse(id ID, b []byte) (*Segment, error) {
	s := &Segment{id: id, b: b, size: len(b)}
	if err := s.header(); err != nil {
		return nil, err
	}
	s.rows()
	return s, nil
}

// header reads the header from s.b, which contains it as far as the segment does.
func (s *Segment) header() error {
	b := s.b
	switch {
	case s.size == 0:
		return s.errorf(Corrupt, -1, 0, "size: expected 1 to %d bytes, found none", MaxSize)
	case s.size > MaxSize:
		return s.errorf(Corrupt, -1, MaxSize, "size: expected 1 to %d bytes, found %d", MaxSize, s.size)
	case !s.id.IsData():
		return nil
	case len(b) < headerLen:
		return s.errorf(Corrupt, -1, int64(len(b)), "header: expected %d bytes, found %d", headerLen, len(b))
	case string(b[:versionOff]) != magic:
		return s.errorf(Corrupt, -1, 0, "magic: expected %q, found %q", magic, b[:versionOff])
	}
	if s.version, _ = versionOf(b); s.version == 0 {
		return s.errorf(Corrupt, -1, versionOff, "version: expected 12 or 13, found %d", b[versionOff])
	}
	refs := binary.BigEndian.Uint32(b[refCountOff:])
	if refs > maxRefs || headerLen+refLen*int(refs) > s.size {
		return s.errorf(Corrupt, -1, refCountOff, "references: expected at most %d, found %d", min(maxRefs, (s.size-headerLen)/refLen), refs)
	}
	s.refs, s.table = int(refs), headerLen+refLen*int(refs)
	records := binary.BigEndian.Uint32(b[recordCountOff:])
	if most := (s.size - s.table) / rowLen; uint64(records) > uint64(most) {
		return s.errorf(Corrupt, -1, recordCountOff, "records: expected at most %d, found %d", most, records)
	}
	s.records = int(records)
	return nil
}

// versionOf reads from a header the version, 0 if it is an unknown one, and the generation.
func versionOf(b []byte) (version int, g Generation) {
	g.Gen = int32(binary.BigEndian.Uint32(b[generationOff:]))
	switch b[versionOff] {
	case 12:
		g.Full, g.Compacted = g.Gen, true
	case 13:
		full := binary.BigEndian.Uint32(b[fullOff:])
		g.Full, g.Compacted = int32(full&^compactedBit), full&compactedBit != 0
	default:
		return 0, Generation{}
	}
	return int(b[versionOff]), g
}

// A Head is what a data segment contains about itself that its tar repeats in index and graph.
type Head struct {
	Generation Generation
	Refs       IDs // in the segment
}

// GenerationLen is how many bytes of a data segment are needed for its generation.
const GenerationLen = headerLen

// GenerationOf reads the generation of a data segment that begins with b.
func GenerationOf(b []byte) (g Generation, ok bool) {
	if len(b) < headerLen || string(b[:versionOff]) != magic {
		return g, false
	}
	version, g := versionOf(b)
	return g, version != 0
}

// ParseHead reads the header and the table of references of a data segment.
func ParseHead(b []byte) (h Head, ok bool) {
	if len(b) < headerLen || string(b[:versionOff]) != magic {
		return Head{}, false
	}
	version, g := versionOf(b)
	refs := int64(binary.BigEndian.Uint32(b[refCountOff:]))
	if version == 0 || refs > int64(len(b)-headerLen)/refLen {
		return Head{}, false
	}
	return Head{g, IDs(b[headerLen:][:refLen*refs])}, true
}

// rows determines the order of the record table.
func (s *Segment) rows() {
	last := int64(-1)
	for i := range s.records {
		n := s.row(i).Number
		if int64(n) <= last {
			s.order = scattered
			return
		}
		if int(n) != i {
			s.order = ascending
		}
		last = int64(n)
	}
}

func (s *Segment) errorf(c Class, record int32, off int64, format string, a ...any) *Error {
	return &Error{Class: c, Segment: s.id, Record: record, Off: off, What: fmt.Sprintf(format, a...)}
}

func (s *Segment) ID() ID           { return s.id }
func (s *Segment) Size() int        { return s.size }
func (s *Segment) Bytes() []byte    { return s.b }       // of the complete segment, unless it is sparse; read-only
func (s *Segment) Version() int     { return s.version } // 12 or 13, or 0 if there are no records
func (s *Segment) RefCount() int    { return s.refs }
func (s *Segment) RecordCount() int { return s.records } // rows of the record table

// Ref returns the i-th reference, from 0. It panics if i is out of range.
func (s *Segment) Ref(i int) ID {
	if uint(i) >= uint(s.refs) {
		panic("segment: reference out of range")
	}
	return ID(s.b[headerLen+refLen*i:])
}

// A Row is a row of the record table, as stored.
type Row struct {
	Number int32
	Type   Type
	Offset int32
}

func (s *Segment) row(i int) Row {
	b := s.b[s.table+rowLen*i:][:rowLen]
	return Row{
		Number: int32(binary.BigEndian.Uint32(b)),
		Type:   Type(b[rowType]),
		Offset: int32(binary.BigEndian.Uint32(b[rowOffset:])),
	}
}

// Records yields the rows of the record table in stored order, unchecked.
func (s *Segment) Records() iter.Seq[Row] {
	return func(yield func(Row) bool) {
		for i := range s.records {
			if !yield(s.row(i)) {
				return
			}
		}
	}
}

// External yields the external values in the record table, unchecked.
func (s *Segment) External() iter.Seq[RecordID] {
	return func(yield func(RecordID) bool) {
		for row := range s.Records() {
			if row.Type == BlobID && !yield(RecordID{s.id, row.Number}) {
				return
			}
		}
	}
}

func (s *Segment) find(n int32) (row Row, at int, ok bool) {
	switch s.order {
	case dense:
		if n < 0 || int(n) >= s.records {
			return Row{}, 0, false
		}
		return s.row(int(n)), int(n), true
	case ascending:
		i := sort.Search(s.records, func(i int) bool { return s.row(i).Number >= n })
		if i < s.records {
			row = s.row(i)
		}
		return row, i, i < s.records && row.Number == n
	}
	// The reference fills a table row by row: the last one counts.
	for i := s.records - 1; i >= 0; i-- {
		if row = s.row(i); row.Number == n {
			return row, i, true
		}
	}
	return Row{}, 0, false
}

// typeOf returns the type that find would find.
func (s *Segment) typeOf(n int32) (t Type, ok bool) {
	if s.order == dense && uint32(n) < uint32(s.records) {
		return Type(s.b[s.table+rowLen*int(n)+rowType]), true
	}
	return s.foundType(n)
}

func (s *Segment) foundType(n int32) (Type, bool) {
	row, _, ok := s.find(n)
	return row.Type, ok
}

// A Record is a record of a segment: its bytes from its place to the end of the segment. Only its
// contents show how long it is.
type Record struct {
	seg  *Segment
	num  int32
	typ  Type
	pos  int
	data []byte // nil if the segment is sparse
}

func (r Record) ID() RecordID { return RecordID{r.seg.id, r.num} }
func (r Record) Type() Type   { return r.typ } // by the record table
func (r Record) Pos() int     { return r.pos } // in the segment

// Record finds a record by its number. In a segment without a record table, any position is a
// record of type Block.
func (s *Segment) Record(n int32) (Record, error) {
	if s.version == 0 {
		pos, err := bulkPos(RecordID{s.id, n}, s.size)
		if err != nil {
			return Record{}, err
		}
		return Record{s, n, Block, pos, s.from(pos)}, nil
	}
	row, at, ok := s.find(n)
	if !ok {
		return Record{}, s.errorf(Missing, n, -1, "no such record; the segment has %d", s.records)
	}
	pos, ok := s.posOf(row)
	if !ok {
		return Record{}, s.errorf(Corrupt, n, int64(s.table+rowLen*at+rowOffset), "%s", s.misplaced(row))
	}
	return Record{s, n, row.Type, pos, s.from(pos)}, nil
}

// bulkPos returns the offset of a block in a segment of bare bytes of that size.
func bulkPos(id RecordID, size int) (int, error) {
	pos := int64(size) - (MaxSize - int64(id.Number))
	if pos < 0 || pos >= int64(size) {
		return 0, &Error{Class: Corrupt, Segment: id.Segment, Record: id.Number, Off: -1,
			What: fmt.Sprintf("block: expected a number in %d to %d, found %d", MaxSize-size, MaxSize-1, id.Number)}
	}
	return int(pos), nil
}

// posOf returns where the record of a row begins in the segment. If the row is wrong, misplaced
// says why.
func (s *Segment) posOf(row Row) (pos int, ok bool) {
	at := int64(s.size) - (MaxSize - int64(row.Offset))
	return int(at), row.Offset%alignment == 0 && at >= int64(s.table+rowLen*s.records) && at < int64(s.size)
}

func (s *Segment) misplaced(row Row) string {
	if row.Offset%alignment != 0 {
		return fmt.Sprintf("offset: expected a multiple of %d, found %d", alignment, row.Offset)
	}
	lo := MaxSize - (int64(s.size) - int64(s.table+rowLen*s.records))
	return fmt.Sprintf("offset: expected %d to %d, found %d", lo, MaxSize-1, row.Offset)
}

// Bound returns how far record n can extend: to the beginning of the next record, or to the
// segment's end. It reads the whole table.
func (s *Segment) Bound(n int32) (int, error) {
	r, err := s.Record(n)
	if err != nil {
		return 0, err
	}
	end := s.size
	for i := range s.records { // none in a segment of bare bytes
		if pos, ok := s.posOf(s.row(i)); ok && pos > r.pos && pos < end {
			end = pos
		}
	}
	return end, nil
}

// Info returns what record 0 contains about the segment's writer, for journal recovery.
type Info struct {
	Writer string `json:"wid"`
	Number int64  `json:"sno"`
	Millis int64  `json:"t"` // since 1970
	JSON   string `json:"-"` // as it is stored
}

// Info reads record 0, which is by convention a short string of JSON.
func (s *Segment) Info() (Info, error) {
	r, err := s.Record(0)
	if err != nil {
		return Info{}, err
	}
	if r.typ != ValueRecord {
		return Info{}, r.errorf(Corrupt, 0, "segment info: expected a value, found a %s", r.typ)
	}
	h, err := r.valueHead()
	if err != nil {
		return Info{}, err
	}
	text, ok := h.inline(&r)
	if !ok {
		return Info{}, r.errorf(Corrupt, 0, "segment info: expected a short string")
	}
	info := Info{JSON: string(text)}
	if err := json.Unmarshal(text, &info); err != nil {
		e := r.errorf(Corrupt, 0, "segment info: expected JSON")
		e.Err = err
		return Info{JSON: info.JSON}, e
	}
	return info, nil
}
