package segment

import (
	"context"
	"encoding/binary"
	"fmt"
	"iter"
)

// Block writes up to [BlockSize] bytes of a long value.
func (b *Builder) Block(ctx context.Context, data []byte) (RecordID, error) {
	if len(data) == 0 || len(data) > BlockSize {
		return RecordID{}, fmt.Errorf("segment: block: expected 1 to %d bytes, found %d", BlockSize, len(data))
	}
	return b.done(b.put(ctx, Block, &draft{b: data}))
}

// LongValue writes a value of n bytes whose blocks are records already.
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

// BlockBytes returns the content of a block, which has n bytes, not to be changed.
func (r *Reader) BlockBytes(ctx context.Context, id RecordID, n int) ([]byte, error) {
	off, err := (&locator{r: r}).block(ctx, id, n)
	if err != nil {
		return nil, err
	}
	return r.bytes(ctx, Piece{id.Segment, off, n}, nil)
}
