package segment

import (
	"context"
	"encoding/binary"
	"slices"
	"sync/atomic"
)

// A Source returns the segments of a store, or fs.ErrNotExist for one that it does not have. It
// should cache segments that are often requested, because decoders request a segment each time
// they follow a reference to it.
type Source interface {
	Segment(ctx context.Context, id ID) (*Segment, error)
}

// A Sizer is a Source that returns the size of a segment without reading it.
type Sizer interface {
	Size(ctx context.Context, id ID) (int, error)
}

// A Recent is a Source for one goroutine that keeps the most recently requested segments.
type Recent struct {
	Load    func(context.Context, ID) (*Segment, error)
	Most    int      // how many are kept
	Current *Segment // the current one, which is tried first; or nil
	kept    []*Segment
}

// Segment returns a segment for decoding.
func (r *Recent) Segment(ctx context.Context, id ID) (*Segment, error) {
	if r.Current != nil && r.Current.id == id {
		return r.Current, nil
	}
	if i := slices.IndexFunc(r.kept, func(s *Segment) bool { return s.id == id }); i >= 0 {
		return r.kept[i], nil
	}
	s, err := r.Load(ctx, id)
	if err != nil {
		return nil, err
	}
	r.kept = slices.Insert(r.kept[:min(len(r.kept), r.Most-1)], 0, s)
	return s, nil
}

const recordIDLen = 6 // reference 2, number 4

func (r *Record) errorf(c Class, off int, format string, a ...any) *Error {
	return r.seg.errorf(c, r.num, int64(r.pos+off), format, a...)
}

// need checks whether the record has n bytes from off.
func (r *Record) need(off, n int, what string) error {
	if n >= 0 && n <= len(r.data)-off {
		return nil
	}
	return r.needMore(off, n, what)
}

// needMore is need for what is not there, or for a sparse segment.
func (r *Record) needMore(off, n int, what string) error {
	if left := r.left() - off; n < 0 || n > left || left < 0 {
		return r.errorf(Corrupt, off, "%s: expected %d bytes, found %d to the segment's end", what, n, max(0, left))
	}
	if r.data == nil && r.pos+off+n > len(r.seg.b) {
		return r.seg.sparse.cover(r.pos+off, n, r.seg.size)
	}
	return nil
}

func (r *Record) left() int { return r.seg.size - r.pos }

// bytes returns n bytes from off, which need has found to be there.
func (r *Record) bytes(off, n int) []byte {
	if r.data != nil {
		return r.data[off:][:n]
	}
	return r.sparseBytes(off, n)
}

func (r *Record) sparseBytes(off, n int) []byte {
	if off += r.pos; off+n <= len(r.seg.b) {
		return r.seg.b[off:][:n]
	}
	return r.seg.sparse.at(off, n)
}

func (r *Record) u8(off int) byte    { return r.bytes(off, 1)[0] }
func (r *Record) u16(off int) uint16 { return binary.BigEndian.Uint16(r.bytes(off, 2)) }
func (r *Record) u32(off int) uint32 { return binary.BigEndian.Uint32(r.bytes(off, 4)) }
func (r *Record) u64(off int) uint64 { return binary.BigEndian.Uint64(r.bytes(off, 8)) }

// parts reads a record id: ref is the number of a reference, or 0 for this segment. It returns
// whether there is such a reference, and n is the number of a record.
func (s *Segment) parts(b []byte) (ref int, n int32, ok bool) {
	_ = b[recordIDLen-1]
	ref, n = int(binary.BigEndian.Uint16(b)), int32(binary.BigEndian.Uint32(b[2:]))
	return ref, n, n >= 0 && ref <= s.refs
}

// id reads the record id at off, which need has found to be there.
func (r *Record) id(off int) (RecordID, error) {
	ref, n, ok := r.seg.parts(r.bytes(off, recordIDLen))
	switch {
	case !ok && n < 0:
		return RecordID{}, r.errorf(Corrupt, off, "record id: expected a number, found %d", n)
	case !ok:
		return RecordID{}, r.errorf(Corrupt, off, "record id: expected at most reference %d, found %d", r.seg.refs, ref)
	case ref == 0:
		return RecordID{r.seg.id, n}, nil
	}
	return RecordID{r.seg.Ref(ref - 1), n}, nil
}

// ids reads the record ids that follow each other from off, as id does.
func (r *Record) ids(off int, to ...*RecordID) (err error) {
	for i := range to {
		if *to[i], err = r.id(off + recordIDLen*i); err != nil {
			return err
		}
	}
	return nil
}

// expect checks whether a record is of one of two types, and has n bytes.
func (r *Record) expect(a, b Type, n int, what string) error {
	switch {
	case r.typ == a || r.typ == b:
		return r.need(0, n, what)
	case a == b:
		return r.errorf(Corrupt, 0, "record: expected a %s, found a %s", a, r.typ)
	}
	return r.errorf(Corrupt, 0, "record: expected a %s or a %s, found a %s", a, b, r.typ)
}

// A Reader decodes records of a Source. It may be used in parallel if that may.
type Reader struct {
	src       Source
	templates templateCache
	recent    [32]atomic.Pointer[Segment] // each at a place from its ID
}

func NewReader(src Source) *Reader { return &Reader{src: src} }

func (r *Reader) Source() Source { return r.src }

// segment requests a segment from the source, unless it was used recently, as is common when many
// goroutines read in parallel.
func (r *Reader) segment(ctx context.Context, id ID) (*Segment, error) {
	slot := &r.recent[int(id[len(id)-1])%len(r.recent)]
	if s := slot.Load(); s != nil && s.id == id {
		return s, nil
	}
	s, err := r.src.Segment(ctx, id)
	if err == nil && id.IsData() {
		slot.Store(s)
	}
	return s, err
}

func (r *Reader) Segment(ctx context.Context, id ID) (*Segment, error) {
	s, err := r.segment(ctx, id)
	return s, sourceError(RecordID{id, -1}, err)
}

func (r *Reader) Record(ctx context.Context, id RecordID) (Record, error) {
	return r.record(ctx, id, nil)
}

// record finds a record, which may be in the segment near.
func (r *Reader) record(ctx context.Context, id RecordID, near *Segment) (Record, error) {
	if near == nil || near.id != id.Segment {
		s, err := r.segment(ctx, id.Segment)
		if err != nil {
			return Record{}, sourceError(id, err)
		}
		near = s
	}
	return near.Record(id.Number)
}

// typed is record for a known type and minimum length.
func (r *Reader) typed(ctx context.Context, id RecordID, near *Segment, a, b Type, n int, what string) (Record, error) {
	rec, err := r.record(ctx, id, near)
	if err == nil {
		err = rec.expect(a, b, n, what)
	}
	return rec, err
}
