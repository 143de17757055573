package segment

import (
	"context"
	"encoding/hex"
	"fmt"
	"strconv"
	"unicode/utf8"
)

// A Description is a readable form of a record.
type Description struct {
	ID       string  `json:"id"`
	Type     string  `json:"type"`
	Tar      string  `json:"tar"`      // set by the caller
	Position int     `json:"position"` // in the segment
	Size     int     `json:"size"`     // of the fields, or the minimum of the record
	Fields   []Field `json:"fields"`
	Problem  string  `json:"problem,omitempty"` // why fields are missing

	end int // where the next record begins, or the segment ends
}

type Field struct {
	Name     string `json:"name"`
	Position int    `json:"position"` // in the segment
	Size     int    `json:"size"`
	Value    string `json:"value,omitempty"`
	Record   string `json:"record,omitempty"`  // to which it refers
	Problem  string `json:"problem,omitempty"` // with it, or with the record to which it refers
}

const (
	describedText  = 4096 // of a value's own content
	describedBrief = 80   // of a record to which a field refers
)

// Describe decodes a record by its type. Damage is described where it is. Only a missing record
// is an error.
func (r *Reader) Describe(ctx context.Context, id RecordID) (d Description, err error) {
	rec, err := r.record(ctx, id, nil)
	if err != nil {
		return d, err
	}
	d = Description{ID: id.String(), Type: rec.typ.String(), Position: rec.pos, Fields: []Field{}}
	if d.end, err = rec.seg.Bound(id.Number); err != nil {
		return d, err
	}
	if rec.seg.version == 0 {
		d.Size = d.end - d.Position
		d.add(rec, "content", 0, d.Size, content(rec.data, describedText))
		return d, nil
	}
	var e measure
	err = e.extend(rec, d.end)
	if err == nil && rec.typ == NodeRecord {
		err = r.nodeExtent(ctx, rec, &e.extent, d.end)
	}
	d.Size = e.len
	d.scalars(rec, err == nil)
	for _, run := range e.runs {
		for i := range run.n {
			s := run.at(i)
			if s.off+recordIDLen > len(rec.data) {
				break
			}
			f := Field{Name: s.String(), Position: rec.pos + s.off, Size: recordIDLen}
			if err := r.describeSlot(ctx, rec, s, &f); err != nil {
				f.Problem = err.Error()
			}
			d.Fields = append(d.Fields, f)
		}
	}
	if err != nil {
		d.Problem = err.Error()
	} else if rec.typ == TemplateRecord {
		d.propertyTypes(rec)
	}
	return d, nil
}

// nodeExtent adds the parts in a node's template or, if that is unknown, all that fit.
func (r *Reader) nodeExtent(ctx context.Context, rec Record, e *extent, end int) error {
	id, err := rec.TemplateID()
	if err == nil {
		var t Record
		var h templateHead
		if t, err = r.record(ctx, id, rec.seg); err == nil {
			if h, err = t.templateHead(); err == nil {
				e.nodeSlots(h.rule, h.properties > 0)
				return nil
			}
		}
	}
	n := max(0, min(end-rec.pos, nodeChildAt+2*recordIDLen)-e.len) / recordIDLen
	e.many(e.len, n, childRole, anyMap|anyNode|anyProperties, 0)
	e.len += recordIDLen * n
	return err
}

func (d *Description) add(rec Record, name string, off, n int, value string) {
	d.Fields = append(d.Fields, Field{Name: name, Position: rec.pos + off, Size: n, Value: value})
}

// scalars adds the fields that are not record IDs. The record is complete, or damaged.
func (d *Description) scalars(rec Record, whole bool) {
	if len(rec.data) < 4 && rec.typ != ValueRecord && rec.typ != BlobID && rec.typ != Block {
		return
	}
	switch rec.typ {
	case Leaf, Branch:
		head := rec.u32(0)
		if head == diffHead {
			d.add(rec, "head", 0, 4, "diff")
			if len(rec.data) >= 8 {
				d.add(rec, "hash", 4, 4, fmt.Sprintf("%#08x", rec.u32(4)))
			}
			return
		}
		d.add(rec, "head", 0, 4, fmt.Sprintf("level %d, %d entries", head>>mapSizeBits, head&mapSizeMask))
		if rec.typ == Branch && len(rec.data) >= branchHead {
			d.add(rec, "bitmap", 4, 4, fmt.Sprintf("%032b", rec.u32(4)))
		}
		if rec.typ == Leaf && whole {
			for i := range int(head & mapSizeMask) {
				d.add(rec, "hash "+strconv.Itoa(i), leafHead+4*i, 4, fmt.Sprintf("%#08x", rec.u32(leafHead+4*i)))
			}
		}
	case ListRecord:
		d.add(rec, "count", 0, 4, strconv.Itoa(int(int32(rec.u32(0)))))
	case ValueRecord, BlobID:
		h, err := rec.valueHead()
		if err != nil {
			d.add(rec, "content", 0, min(16, len(rec.data)), content(rec.data, 16))
			return
		}
		if h.n < 0 {
			d.add(rec, "head", 0, h.off, h.kind.String())
		} else {
			d.add(rec, "head", 0, h.off, fmt.Sprintf("%s, %d bytes", h.kind, h.n))
		}
		if h.kind != Long && h.kind != ExternalLong {
			d.add(rec, "content", h.off, int(h.n), content(rec.data[h.off:][:h.n], describedText))
		}
	case Block:
		d.Size = d.end - d.Position
		d.add(rec, "content", 0, d.Size, content(rec.data[:d.Size], describedText))
		if d.Size == stableIDLen {
			d.add(rec, "as a stable id", 0, d.Size, rec.stableID().String())
		}
	case TemplateRecord:
		head := rec.u32(0)
		rule := ManyChildren
		switch head & (noChildren | manyChildren) {
		case 0:
			rule = OneChild
		case noChildren:
			rule = NoChild
		}
		d.add(rec, "head", 0, 4, fmt.Sprintf("primary type %t, mixins %t (%d), children %s, %d properties",
			head&hasPrimary != 0, head&hasMixins != 0, head>>mixinShift&mixinMask, rule, head&propertyMask))
	}
}

func (d *Description) propertyTypes(rec Record) {
	h, err := rec.templateHead()
	if err != nil {
		return
	}
	for i := range h.properties {
		off := h.namesAt + recordIDLen + i
		typ, multi, err := rec.propertyType(off)
		f := Field{Name: "property type " + strconv.Itoa(i), Position: rec.pos + off, Size: 1, Value: typ.String()}
		if multi {
			f.Value += "[]"
		}
		if err != nil {
			f.Problem = err.Error()
		}
		d.Fields = append(d.Fields, f)
	}
}

// describeSlot describes the record to which a record ID refers.
func (r *Reader) describeSlot(ctx context.Context, rec Record, s slot, f *Field) error {
	id, err := rec.id(s.off)
	if err != nil {
		return err
	}
	f.Record = id.String()
	if !id.Segment.IsData() {
		f.Value = "bytes of a bulk segment"
		return nil
	}
	to, err := r.record(ctx, id, rec.seg)
	if err != nil {
		return err
	}
	f.Value = to.typ.String()
	if !s.want.has(to.typ) {
		return to.errorf(Corrupt, 0, "%s: unexpected type %s", s, to.typ)
	}
	switch to.typ {
	case ValueRecord, BlobID:
		h, err := to.valueHead()
		switch {
		case err != nil:
			return err
		case h.kind == Long || h.kind == ExternalLong:
			f.Value = h.kind.String() + " " + to.typ.String()
		default:
			f.Value = content(to.data[h.off:][:h.n], describedBrief)
		}
	case Block:
		if s.role == stableRole && len(to.data) >= stableIDLen {
			f.Value = to.stableID().String()
		}
	}
	return nil
}

// content returns a string in quotes, or other bytes in hex, up to limit.
func content(b []byte, limit int) string {
	rest := ""
	whole := b
	if len(b) > limit {
		rest = fmt.Sprintf("… (%d bytes)", len(b))
		b = b[:limit]
		for n := 1; n < utf8.UTFMax && n < len(b); n++ {
			if utf8.Valid(b[:len(b)-n]) && !utf8.Valid(b) {
				b = b[:len(b)-n] // a rune was cut
			}
		}
	}
	if utf8.Valid(b) && utf8.Valid(whole) {
		return strconv.Quote(string(b)) + rest
	}
	return hex.EncodeToString(b) + rest
}
