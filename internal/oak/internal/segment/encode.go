package segment

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"io"
	"iter"
	"slices"
	"strings"
)

// inlineValue makes of d the record of a value that has its content with it.
func inlineValue[T string | []byte](d *draft, s T) (*draft, bool) {
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
	if len(s) > writtenText {
		return b.longerText(ctx, s)
	}
	if id, ok := recall(&b.known, texts, s, len(s)); ok {
		return id, nil
	}
	d, _ := inlineValue(b.draft(), s)
	id := b.put(ctx, ValueRecord, d)
	if b.err == nil {
		b.known.room(len(s))
		b.known.text[s] = id
	}
	return b.done(id)
}

// longerText is Text for texts that are not remembered.
func (b *Builder) longerText(ctx context.Context, s string) (RecordID, error) {
	var sum [sha256.Size]byte
	if b.o.Thrifty {
		b.long = append(b.long[:0], s...)
		sum = sha256.Sum256(b.long)
		if id, ok := recall(&b.known, longs, sum, len(sum)); ok {
			return id, nil
		}
	}
	var id RecordID
	if d, ok := inlineValue(b.draft(), s); ok {
		id = b.put(ctx, ValueRecord, d)
	} else {
		var err error
		if id, err = b.longText(ctx, s); err != nil {
			return id, err
		}
	}
	if b.err == nil && b.o.Thrifty {
		b.known.room(len(sum))
		b.known.long[sum] = id
	}
	return b.done(id)
}

// text is Text for a part of something.
func (b *Builder) text(ctx context.Context, s string) RecordID {
	id, err := b.Text(ctx, s)
	b.fail(err)
	return id
}

// LeastLong is the size from which a value is stored in blocks.
const LeastLong = mediumLimit

// Binary writes the content of r, with memory for one bulk segment, whatever its size.
func (b *Builder) Binary(ctx context.Context, r io.Reader) (RecordID, error) {
	var head [LeastLong]byte
	n, err := io.ReadFull(r, head[:])
	switch err {
	case nil:
		v, err := b.Bulk(ctx, io.MultiReader(bytes.NewReader(head[:]), r))
		if err != nil {
			return RecordID{}, err
		}
		return b.BulkValue(ctx, v)
	case io.EOF, io.ErrUnexpectedEOF:
		return b.ShortBinary(ctx, head[:n])
	}
	return RecordID{}, err
}

// ShortBinary writes a binary of less than [LeastLong] bytes.
func (b *Builder) ShortBinary(ctx context.Context, content []byte) (RecordID, error) {
	d, ok := inlineValue(b.draft(), content)
	if !ok {
		return RecordID{}, b.limit("value: expected less than %d bytes, found %d", LeastLong, len(content))
	}
	return b.done(b.put(ctx, ValueRecord, d))
}

// A Bulk is content in bulk segments, all of which are full except the last.
type Bulk struct {
	Len      int64
	Segments []ID
}

// Bulk writes the content of r into bulk segments, without a record. It belongs to no value until
// [Builder.BulkValue] writes one.
func (b *Builder) Bulk(ctx context.Context, r io.Reader) (v Bulk, err error) {
	for {
		if err := ctx.Err(); err != nil {
			return v, context.Cause(ctx)
		}
		chunk := make([]byte, MaxSize) // a new one each time: they are given away
		n, err := io.ReadFull(r, chunk)
		last := err == io.EOF || err == io.ErrUnexpectedEOF
		if err != nil && !last {
			return v, err
		}
		if n > 0 {
			if v.Len += int64(n); v.Len > maxValue {
				return v, b.limit("value: expected at most %d bytes, found more", maxValue)
			}
			id := b.newID(chunk[:n])
			if err := b.write(ctx, Finished{ID: id, Data: chunk[:n:n]}); err != nil {
				return v, err
			}
			v.Segments = append(v.Segments, id)
		}
		if last {
			return v, nil
		}
	}
}

// BulkValue writes the value of some content, of at least [LeastLong] bytes.
func (b *Builder) BulkValue(ctx context.Context, v Bulk) (RecordID, error) {
	return b.LongValue(ctx, v.Len, v.blocks)
}

func (v Bulk) blocks(yield func(RecordID, error) bool) {
	for i, id := range v.Segments {
		n := min(v.Len-int64(i)*MaxSize, MaxSize)
		for at := int64(0); at < n; at += BlockSize {
			if !yield(RecordID{id, int32(MaxSize - n + at)}, nil) {
				return
			}
		}
	}
}

// longText writes a long string. What does not fill a bulk segment is stored within records.
func (b *Builder) longText(ctx context.Context, s string) (RecordID, error) {
	full := len(s) / MaxSize * MaxSize
	v, err := b.Bulk(ctx, strings.NewReader(s[:full]))
	if err != nil {
		return RecordID{}, err
	}
	return b.LongValue(ctx, int64(len(s)), func(yield func(RecordID, error) bool) {
		for id, err := range v.blocks {
			if !yield(id, err) {
				return
			}
		}
		for block := range slices.Chunk([]byte(s[full:]), BlockSize) {
			if id, err := b.Block(ctx, block); !yield(id, err) {
				return
			}
		}
	})
}

// External writes the name of a binary that is in another store.
func (b *Builder) External(ctx context.Context, blobID string) (RecordID, error) {
	var d *draft
	if n := len(blobID); n < blobIDLimit {
		d = b.draft()
		d.b = append(binary.BigEndian.AppendUint16(d.b, externalBit|uint16(n)), blobID...)
	} else {
		text := b.text(ctx, blobID)
		d = b.draft().bytes(externalRef).id(text)
	}
	id := b.put(ctx, BlobID, d)
	b.blobIDs = append(b.blobIDs, blobID)
	return b.done(id)
}

// A listWriter writes a list from the bottom: a level keeps less than a bucket of ids.
type listWriter struct {
	b      *Builder
	n      int
	levels [3][]RecordID
}

func (w *listWriter) add(ctx context.Context, id RecordID) {
	if w.n++; w.n > maxList {
		w.b.fail(w.b.limit("list: expected at most %d elements, found more", maxList))
	}
	w.push(ctx, 0, id)
}

func (w *listWriter) push(ctx context.Context, level int, id RecordID) {
	l := &w.levels[level]
	*l = append(*l, id)
	if len(*l) >= bucketIDs && level < len(w.levels)-1 {
		w.push(ctx, level+1, w.bucket(ctx, level))
	}
}

// bucket moves a level into a bucket. A single ID needs none.
func (w *listWriter) bucket(ctx context.Context, level int) RecordID {
	ids := w.levels[level]
	w.levels[level] = ids[:0]
	return w.b.bucket(ctx, ids)
}

func (b *Builder) bucket(ctx context.Context, ids []RecordID) RecordID {
	if len(ids) == 1 {
		return ids[0]
	}
	return b.put(ctx, Bucket, b.draft().id(ids...))
}

// list writes a list. An empty one has no record.
func (b *Builder) list(ctx context.Context, ids []RecordID) RecordID {
	switch n := len(ids); {
	case n == 0:
		return RecordID{}
	case n <= bucketIDs:
		return b.bucket(ctx, ids)
	}
	w := listWriter{b: b}
	for _, id := range ids {
		w.add(ctx, id)
	}
	return w.close(ctx)
}

// listOf writes a list of any length, which it returns.
func (b *Builder) listOf(ctx context.Context, ids iter.Seq2[RecordID, error]) (list RecordID, n int, err error) {
	w := listWriter{b: b}
	for id, err := range ids {
		if err == nil {
			w.add(ctx, id)
			err = b.err
		}
		if err != nil {
			return RecordID{}, 0, err
		}
	}
	list = w.close(ctx)
	return list, w.n, b.err
}

// close returns the ID of the list, which is zero if the list is empty.
func (w *listWriter) close(ctx context.Context) (id RecordID) {
	for level := range w.levels {
		if len(w.levels[level]) == 0 {
			continue
		}
		last := !slices.ContainsFunc(w.levels[level+1:], func(above []RecordID) bool { return len(above) > 0 })
		if id = w.bucket(ctx, level); last {
			break
		}
		w.levels[level+1] = append(w.levels[level+1], id)
	}
	return id
}

// Values writes the values of a property that may have any number.
func (b *Builder) Values(ctx context.Context, ids []RecordID) (RecordID, error) {
	return b.done(b.values(ctx, b.list(ctx, ids), len(ids)))
}

// ValuesOf is Values for more values than may fit into memory.
func (b *Builder) ValuesOf(ctx context.Context, ids iter.Seq2[RecordID, error]) (RecordID, error) {
	list, n, err := b.listOf(ctx, ids)
	if err != nil {
		return RecordID{}, err
	}
	return b.done(b.values(ctx, list, n))
}

func (b *Builder) values(ctx context.Context, list RecordID, n int) RecordID {
	d := b.draft().u32(uint32(n))
	if n > 0 {
		d.id(list)
	}
	return b.put(ctx, ListRecord, d)
}

// Block writes up to [BlockSize] bytes of a long value.
func (b *Builder) Block(ctx context.Context, data []byte) (RecordID, error) {
	if len(data) == 0 || len(data) > BlockSize {
		return RecordID{}, fmt.Errorf("segment: block: expected 1 to %d bytes, found %d", BlockSize, len(data))
	}
	return b.done(b.put(ctx, Block, &draft{b: data}))
}

// LongValue writes a value of n bytes whose blocks are already records.
func (b *Builder) LongValue(ctx context.Context, n int64, blocks iter.Seq2[RecordID, error]) (RecordID, error) {
	if n < mediumLimit || n > maxValue {
		return RecordID{}, fmt.Errorf("segment: long value: expected %d to %d bytes, found %d", mediumLimit, maxValue, n)
	}
	list, found, err := b.listOf(ctx, blocks)
	if err != nil {
		return RecordID{}, err
	}
	if want := (n + BlockSize - 1) / BlockSize; int64(found) != want {
		return RecordID{}, fmt.Errorf("segment: long value: expected %d blocks, found %d", want, found)
	}
	d := &draft{b: binary.BigEndian.AppendUint64(nil, 3<<62|uint64(n-mediumLimit))}
	return b.done(b.put(ctx, ValueRecord, d.id(list)))
}
