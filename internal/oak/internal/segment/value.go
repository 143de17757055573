package segment

import (
	"context"
	"fmt"
	"io"
	"iter"
)

type Kind uint8

const (
	Small        Kind = iota + 1 // up to 127 bytes, in the record
	Medium                       // up to 16511 bytes, in the record
	Long                         // in blocks
	External                     // elsewhere: the record has an id of up to 4095 bytes
	ExternalLong                 // elsewhere: the id is a string of its own
)

func (k Kind) String() string {
	return Word("Kind", k, "", "small", "medium", "long", "external", "external, long id")
}

const (
	smallLimit  = 1 << 7
	mediumLimit = smallLimit + 1<<14
	blobIDLimit = 1 << 12

	// BlockSize is the number of bytes in a block, except for the last one of a value.
	BlockSize = 4096

	maxValue    = int64(maxList) * BlockSize
	longLenMask = 1<<61 - 1
	longHeadLen = 8 + recordIDLen
	externalBit = 0xE000
	externalRef = 0xF0 // before the id of a string
)

// valueHead is the beginning of a value: n bytes at off, or the ID of blocks or of a string
// there.
type valueHead struct {
	kind Kind
	n    int64
	off  int
}

// valueHead reads a value's first bytes. All that it finds in the record is there.
func (r *Record) valueHead() (h valueHead, err error) {
	if err := r.expect(ValueRecord, BlobID, 1, "value"); err != nil {
		return h, err
	}
	first, after := r.u8(0), 0
	switch {
	case first>>7 == 0:
		h, after = valueHead{Small, int64(first), 1}, int(first)
	case first>>6 == 0b10:
		if err = r.need(0, 2, "value"); err == nil {
			h = valueHead{Medium, int64(r.u16(0)&0x3fff) + smallLimit, 2}
			after = int(h.n)
		}
	case first>>5 == 0b110:
		if err = r.need(0, longHeadLen, "value"); err == nil {
			h, after = valueHead{Long, int64(r.u64(0)&longLenMask) + mediumLimit, 8}, recordIDLen
			if h.n > maxValue {
				err = r.errorf(Corrupt, 0, "value: expected at most %d bytes, found %d", maxValue, h.n)
			}
		}
	case first>>4 == 0b1110:
		if err = r.need(0, 2, "blob id"); err == nil {
			h = valueHead{External, int64(r.u16(0) & 0xfff), 2}
			after = int(h.n)
		}
	case first>>3 == 0b11110:
		h, after = valueHead{ExternalLong, -1, 1}, recordIDLen
	default:
		err = r.errorf(Corrupt, 0, "value: expected a first byte up to %#x, found %#x", externalRef|7, first)
	}
	if err == nil && (after > r.left()-h.off || r.data == nil) { // words only when they are needed
		err = r.need(h.off, after, h.kind.String()+" value")
	}
	if external := h.kind >= External; err == nil && external != (r.typ == BlobID) {
		err = r.errorf(Corrupt, 0, "value: expected one that suits a %s, found an %s one", r.typ, h.kind)
	}
	return h, err
}

// inline returns the content of a value that has it in the record.
func (h valueHead) inline(r *Record) ([]byte, bool) {
	if h.kind != Small && h.kind != Medium {
		return nil, false
	}
	return r.bytes(h.off, int(h.n)), true
}

type Value struct {
	r   *Reader
	rec Record
	h   valueHead
}

func (r *Reader) Value(ctx context.Context, id RecordID) (Value, error) {
	return r.value(ctx, id, nil)
}

func (r *Reader) value(ctx context.Context, id RecordID, near *Segment) (Value, error) {
	rec, err := r.record(ctx, id, near)
	if err != nil {
		return Value{}, err
	}
	h, err := rec.valueHead()
	return Value{r, rec, h}, err
}

func (v Value) ID() RecordID   { return v.rec.ID() }
func (v Value) Kind() Kind     { return v.h.kind }
func (v Value) External() bool { return v.h.kind >= External } // its content is in another store

// Len returns the content's length in bytes, or -1 if it is external, because the length is then
// not recorded.
func (v Value) Len() int64 {
	if v.External() {
		return -1
	}
	return v.h.n
}

// Inline returns the content of a value that has it in its record, not to be changed.
func (v Value) Inline() ([]byte, bool) { return v.h.inline(&v.rec) }

// Blocks returns the list of a long value's blocks.
func (v Value) Blocks() (List, error) {
	if v.h.kind != Long {
		return List{}, v.rec.errorf(Corrupt, 0, "value: expected a long one, found a %s one", v.h.kind)
	}
	id, err := v.rec.id(v.h.off)
	if err != nil {
		return List{}, err
	}
	return v.r.list(id, int((v.h.n+BlockSize-1)/BlockSize), v.rec.seg)
}

// A Piece is a part of a value's content: bytes [Off, Off+Len) of a segment.
type Piece struct {
	Segment ID
	Off     int
	Len     int
}

// Pieces yields bytes [off, off+n) of the content in order. It reads only the buckets and blocks
// that it needs, and no bulk segments if the source is a [Sizer]. Adjacent bytes in one segment
// are one piece. Bytes that cannot be found are a piece without a segment, with an error, and
// those after it follow.
func (v Value) Pieces(ctx context.Context, off, n int64) iter.Seq2[Piece, error] {
	return func(yield func(Piece, error) bool) {
		if v.External() {
			yield(Piece{}, v.rec.errorf(Missing, 0, "value: the content is in another store"))
			return
		}
		if off < 0 || n < 0 || n > v.h.n-off {
			yield(Piece{}, fmt.Errorf("segment: bytes %d to %d of a value of %d: %w", off, off+n, v.h.n, io.ErrUnexpectedEOF))
			return
		}
		if n == 0 {
			return
		}
		if v.h.kind != Long {
			yield(Piece{v.rec.seg.id, v.rec.pos + v.h.off + int(off), int(n)}, nil)
			return
		}
		v.longPieces(ctx, off, n, yield)
	}
}

func (v Value) longPieces(ctx context.Context, off, n int64, yield func(Piece, error) bool) {
	blocks, err := v.Blocks()
	if err != nil {
		for ; n > 0 && yield(Piece{Len: int(min(n, MaxSize))}, err); n -= MaxSize {
		}
		return
	}
	where := locator{r: v.r, near: v.rec.seg}
	var held Piece // not yielded yet, because it may grow
	at := off - off%BlockSize
	for id, err := range blocks.Range(ctx, int(at/BlockSize), int((off+n+BlockSize-1)/BlockSize)) {
		whole := int(min(BlockSize, v.h.n-at)) // stored bytes of the block
		from, to := max(at, off), min(at+int64(whole), off+n)
		p := Piece{Len: int(to - from)}
		if err == nil {
			if p.Off, err = where.block(ctx, id, whole); err == nil {
				p.Segment, p.Off = id.Segment, p.Off+int(from-at)
			}
		}
		at += int64(whole)
		if err == nil && held.Len > 0 && held.Segment == p.Segment && held.Off+held.Len == p.Off {
			held.Len += p.Len
			continue
		}
		if held.Len > 0 && !yield(held, nil) {
			return
		}
		held = p
		if err != nil {
			if !yield(p, err) || ctx.Err() != nil {
				return
			}
			held = Piece{}
		}
	}
	if held.Len > 0 {
		yield(held, nil)
	}
}

// A locator finds blocks. It keeps the size of the last bulk segment, because its blocks follow
// each other.
type locator struct {
	r    *Reader
	near *Segment
	bulk ID
	size int
}

// block returns where in its segment a block of n bytes is.
func (l *locator) block(ctx context.Context, id RecordID, n int) (int, error) {
	if id.Segment.IsData() {
		rec, err := l.r.typed(ctx, id, l.near, Block, Block, n, "block")
		l.near = rec.seg
		return rec.pos, err
	}
	if l.size == 0 || l.bulk != id.Segment {
		size, err := l.r.size(ctx, id)
		if err != nil {
			return 0, err
		}
		l.bulk, l.size = id.Segment, size
	}
	pos, err := bulkPos(id, l.size)
	if err == nil && n > l.size-pos {
		err = &Error{Class: Corrupt, Segment: id.Segment, Record: id.Number, Off: int64(pos),
			What: fmt.Sprintf("block: expected %d bytes, found %d to the segment's end", n, l.size-pos)}
	}
	return pos, err
}

func (r *Reader) size(ctx context.Context, id RecordID) (int, error) {
	if s, ok := r.src.(Sizer); ok {
		n, err := s.Size(ctx, id.Segment)
		if err == nil && (n <= 0 || n > MaxSize) {
			err = &Error{Class: Corrupt, Segment: id.Segment, Record: -1, Off: -1, What: fmt.Sprintf("size: expected 1 to %d bytes, found %d", MaxSize, n)}
		}
		return n, sourceError(id, err)
	}
	s, err := r.segment(ctx, id.Segment)
	if err != nil {
		return 0, sourceError(id, err)
	}
	return s.Size(), nil
}

// ReadAt reads len(p) bytes of the content from off.
func (v Value) ReadAt(ctx context.Context, p []byte, off int64) error {
	return v.each(ctx, off, int64(len(p)), func(b []byte) { p = p[copy(p, b):] })
}

// each calls do with the parts of n bytes of the content.
func (v Value) each(ctx context.Context, off, n int64, do func([]byte)) error {
	for piece, err := range v.Pieces(ctx, off, n) {
		var b []byte
		if err == nil {
			b, err = v.r.bytes(ctx, piece, v.rec.seg)
		}
		if err != nil {
			return err
		}
		do(b)
	}
	return nil
}

func (r *Reader) bytes(ctx context.Context, p Piece, near *Segment) ([]byte, error) {
	if near == nil || near.id != p.Segment {
		var err error
		if near, err = r.Segment(ctx, p.Segment); err != nil {
			return nil, err
		}
	}
	// A [Sizer] may have returned another length.
	if p.Off+p.Len > near.Size() {
		return nil, near.errorf(Corrupt, -1, int64(p.Off), "segment: expected %d bytes, found %d", p.Off+p.Len, near.Size())
	}
	return near.Slice(p.Off, p.Len)
}

// Text returns the content, which may have at most limit bytes.
func (v Value) Text(ctx context.Context, limit int) (string, error) {
	if v.h.n > int64(limit) {
		return "", v.rec.errorf(Limit, 0, "value: expected at most %d bytes, found %d", limit, v.h.n)
	}
	if b, ok := v.h.inline(&v.rec); ok {
		return string(b), nil
	}
	b, err := v.whole(ctx)
	return string(b), err
}

// whole reads the content. Its memory grows with the bytes found, not with the recorded length.
func (v Value) whole(ctx context.Context) (b []byte, err error) {
	err = v.each(ctx, 0, v.h.n, func(part []byte) { b = append(b, part...) })
	return b, err
}

// BlobID returns the name under which another store has the content of an external value. The
// name may have at most limit bytes.
func (v Value) BlobID(ctx context.Context, limit int) (string, error) {
	switch {
	case !v.External():
		return "", v.rec.errorf(Corrupt, 0, "value: expected an external one, found a %s one", v.h.kind)
	case v.h.n > int64(limit):
		return "", v.rec.errorf(Limit, 0, "blob id: expected at most %d bytes, found %d", limit, v.h.n)
	case v.h.kind == External:
		return string(v.rec.bytes(v.h.off, int(v.h.n))), nil
	}
	id, err := v.rec.id(v.h.off)
	if err != nil {
		return "", err
	}
	return v.r.text(ctx, id, v.rec.seg, limit)
}

// BlobID returns the blob ID of the external value at id.
func (r *Reader) BlobID(ctx context.Context, id RecordID, limit int) (string, error) {
	v, err := r.Value(ctx, id)
	if err != nil {
		return "", err
	}
	return v.BlobID(ctx, limit)
}

func (r *Reader) text(ctx context.Context, id RecordID, near *Segment, limit int) (string, error) {
	v, err := r.value(ctx, id, near)
	if err != nil {
		return "", err
	}
	if v.External() {
		return "", v.rec.errorf(Corrupt, 0, "string: expected a value, found a %s", v.rec.typ)
	}
	return v.Text(ctx, limit)
}

// BlockBytes returns the content of a block, which has n bytes, not to be changed.
func (r *Reader) BlockBytes(ctx context.Context, id RecordID, n int) ([]byte, error) {
	off, err := (&locator{r: r}).block(ctx, id, n)
	if err != nil {
		return nil, err
	}
	return r.bytes(ctx, Piece{id.Segment, off, n}, nil)
}
