package segment

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"slices"
	"strings"
)

// inlineValue is the record of a value that has its content with it.
func inlineValue[T string | []byte](s T) (*draft, bool) {
	d := &draft{b: make([]byte, 0, len(s)%mediumLimit+2)}
	switch n := len(s); {
	case n < smallLimit:
		d.bytes(byte(n))
	case n < mediumLimit:
		d.b = binary.BigEndian.AppendUint16(d.b, uint16(n-smallLimit)|0x8000)
	default:
		return nil, false
	}
	d.b = append(d.b, s...)
	return d, true
}

// Text writes a string. What is not UTF-8 is written as Java would read it.
func (b *Builder) Text(ctx context.Context, s string) (RecordID, error) {
	s = asJava(s)
	if id, ok := b.known.text[s]; ok {
		return id, nil
	}
	d, ok := inlineValue(s)
	if !ok {
		return b.long(ctx, strings.NewReader(s), true)
	}
	id, err := b.put(ctx, ValueRecord, d)
	if err == nil && len(s) <= writtenText {
		b.known.room(len(s))
		b.known.text[s] = id
	}
	return id, err
}

// Binary writes what r has, in memory for one bulk segment, whatever its size.
func (b *Builder) Binary(ctx context.Context, r io.Reader) (RecordID, error) {
	var head [mediumLimit]byte
	n, err := io.ReadFull(r, head[:])
	switch err {
	case nil:
		return b.long(ctx, io.MultiReader(bytes.NewReader(head[:]), r), false)
	case io.EOF, io.ErrUnexpectedEOF:
		d, _ := inlineValue(head[:n])
		return b.put(ctx, ValueRecord, d)
	}
	return RecordID{}, err
}

// long writes a value in blocks: those of whole bulk segments, then, of a string,
// the rest beside the other records, of a binary in a shorter bulk segment.
func (b *Builder) long(ctx context.Context, r io.Reader, text bool) (RecordID, error) {
	blocks := listWriter{b: b}
	total := int64(0)
	for {
		if err := ctx.Err(); err != nil {
			return RecordID{}, err
		}
		chunk := make([]byte, MaxSize) // a new one each time: they are given away
		n, err := io.ReadFull(r, chunk)
		switch err {
		case nil, io.EOF:
			chunk = chunk[:n]
		case io.ErrUnexpectedEOF:
			chunk = slices.Clone(chunk[:n])
		default:
			return RecordID{}, err
		}
		if n == 0 {
			break
		}
		if total += int64(len(chunk)); total > maxValue {
			return RecordID{}, &Error{Class: Limit, Segment: b.id, Record: -1, Off: -1, What: fmt.Sprintf("value: expected at most %d bytes, found more", maxValue)}
		}
		if text && len(chunk) < MaxSize {
			err = b.blocks(ctx, chunk, &blocks)
		} else {
			err = b.bulkBlocks(ctx, chunk, &blocks)
		}
		if err != nil {
			return RecordID{}, err
		}
	}
	list, err := blocks.close(ctx)
	if err != nil {
		return RecordID{}, err
	}
	d := &draft{b: binary.BigEndian.AppendUint64(nil, 3<<62|uint64(total-mediumLimit))}
	return b.put(ctx, ValueRecord, d.id(list))
}

func (b *Builder) blocks(ctx context.Context, data []byte, list *listWriter) error {
	for block := range slices.Chunk(data, BlockSize) {
		id, err := b.put(ctx, Block, &draft{b: block})
		if err == nil {
			err = list.add(ctx, id)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (b *Builder) bulkBlocks(ctx context.Context, data []byte, list *listWriter) error {
	first, err := b.bulk(ctx, data)
	if err != nil {
		return err
	}
	for at := 0; at < len(data); at += BlockSize {
		if err := list.add(ctx, RecordID{first.Segment, first.Number + int32(at)}); err != nil {
			return err
		}
	}
	return nil
}

// External writes the name that another store has a binary under.
func (b *Builder) External(ctx context.Context, blobID string) (id RecordID, err error) {
	d := &draft{}
	if n := len(blobID); n < blobIDLimit {
		d.b = append(binary.BigEndian.AppendUint16(nil, externalBit|uint16(n)), blobID...)
	} else {
		text, err := b.Text(ctx, blobID)
		if err != nil {
			return RecordID{}, err
		}
		d.bytes(externalRef).id(text)
	}
	if id, err = b.put(ctx, BlobID, d); err == nil {
		b.blobIDs = append(b.blobIDs, blobID)
	}
	return id, err
}

// A listWriter writes a list from the bottom: each level keeps fewer ids than a
// bucket has.
type listWriter struct {
	b      *Builder
	n      int
	levels [3][]RecordID
}

func (w *listWriter) add(ctx context.Context, id RecordID) error {
	if w.n++; w.n > maxList {
		return &Error{Class: Limit, Segment: w.b.id, Record: -1, Off: -1, What: fmt.Sprintf("list: expected at most %d elements, found more", maxList)}
	}
	return w.push(ctx, 0, id)
}

func (w *listWriter) push(ctx context.Context, level int, id RecordID) error {
	l := &w.levels[level]
	*l = append(*l, id)
	if len(*l) < bucketIDs || level == len(w.levels)-1 {
		return nil
	}
	id, err := w.bucket(ctx, level)
	if err != nil {
		return err
	}
	return w.push(ctx, level+1, id)
}

// bucket empties a level into a bucket. One id needs none.
func (w *listWriter) bucket(ctx context.Context, level int) (RecordID, error) {
	ids := w.levels[level]
	w.levels[level] = ids[:0]
	if len(ids) == 1 {
		return ids[0], nil
	}
	d := &draft{}
	for _, id := range ids {
		d.id(id)
	}
	return w.b.put(ctx, Bucket, d)
}

// close returns what names the list, which must not be empty.
func (w *listWriter) close(ctx context.Context) (id RecordID, err error) {
	for level := range w.levels {
		if len(w.levels[level]) == 0 {
			continue
		}
		last := true
		for _, above := range w.levels[level+1:] {
			last = last && len(above) == 0
		}
		if id, err = w.bucket(ctx, level); err != nil || last {
			return id, err
		}
		w.levels[level+1] = append(w.levels[level+1], id)
	}
	return id, err
}

// list writes a list of at least one element.
func (b *Builder) list(ctx context.Context, ids []RecordID) (RecordID, error) {
	w := listWriter{b: b}
	for _, id := range ids {
		if err := w.add(ctx, id); err != nil {
			return RecordID{}, err
		}
	}
	return w.close(ctx)
}

// Values writes the values of a property that may have any number.
func (b *Builder) Values(ctx context.Context, ids []RecordID) (RecordID, error) {
	d := (&draft{}).u32(uint32(len(ids)))
	if len(ids) > 0 {
		list, err := b.list(ctx, ids)
		if err != nil {
			return RecordID{}, err
		}
		d.id(list)
	}
	return b.put(ctx, ListRecord, d)
}
