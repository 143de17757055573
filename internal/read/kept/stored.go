package kept

import (
	"context"
	"encoding/binary"
	"iter"
	"slices"

	"github.com/holdall/holdall/format/kit/pipe"
	"github.com/holdall/holdall/internal/base/scan"
)

// A Piece is a run of stored bytes with its BLAKE3. An index has pieces of what no digest of a row or of a piece of
// content stands for, so that a copy of another version of the archive can be brought up to date.
type Piece struct {
	Object string // as Volume.Name
	Off, N int64
	Sum    [DigestLen]byte
}

// storedPieces writes the pages of pieces, which come in the order of objects and offsets:
//
//	uvar number of the object in the root, uvar offset of the first piece
//	for each piece: uvar bytes between it and the piece before, uvar length, its BLAKE3
func (b *builder) storedPieces(pieces iter.Seq2[Piece, error]) (refs []ref, err error) {
	var page []byte
	var object string
	n, in, end := int64(0), int64(0), int64(0)
	flush := func() error {
		if in == 0 {
			return nil
		}
		r, err := b.w.page(page, nil, n-in, in, false)
		refs, page, in = append(refs, r), page[:0], 0
		return err
	}
	for p, err := range pieces {
		if err == nil && (in == proofItems || p.Object != object) {
			err = flush()
		}
		if err != nil {
			return nil, err
		}
		if in == 0 {
			object, end = p.Object, p.Off
			page = binary.AppendUvarint(page, uint64(slices.Index(b.head.Objects, object)))
			page = binary.AppendUvarint(page, uint64(end))
		}
		page = binary.AppendUvarint(page, uint64(p.Off-end))
		page = binary.AppendUvarint(page, uint64(p.N))
		page = append(page, p.Sum[:]...)
		n, in, end = n+1, in+1, p.Off+p.N
	}
	return refs, flush()
}

// StoredPieces yields the pieces of stored bytes.
func (x *Index) StoredPieces(ctx context.Context) iter.Seq2[Piece, error] {
	return pipe.Told(func(tell func(Piece) error) error {
		steps, err := x.storedTree.findItem(ctx, 0)
		for more := steps != nil; err == nil && more; more, err = x.storedTree.next(ctx, steps) {
			r := leaf(steps)
			b, err := x.page(ctx, r, nil)
			if err == nil {
				err = x.tellPieces(r, b, tell)
			}
			if err != nil {
				return err
			}
		}
		return err
	})
}

func (x *Index) tellPieces(r *ref, b []byte, tell func(Piece) error) error {
	c := &scan.Scanner{B: b}
	object, at := c.Size(), c.Size()
	for range r.items {
		p := Piece{Off: at + c.Size(), N: c.Size()}
		sum := c.Bytes(DigestLen)
		if at = p.Off + p.N; c.Bad || object >= int64(len(x.Objects)) || p.Off < 0 || p.N <= 0 || at < 0 {
			return x.fail(r.off, errNode)
		}
		p.Object, p.Sum = x.Objects[object], [DigestLen]byte(sum)
		if err := tell(p); err != nil {
			return err
		}
	}
	return nil
}

// Whole reads all of the index with one request, unless it is longer than most, and returns it. Later reads of its
// pages take no request.
func (x *Index) Whole(ctx context.Context, most int64) ([]byte, error) {
	if x.tailAt > most {
		return nil, nil
	}
	b := make([]byte, x.size)
	copy(b[x.tailAt:], x.tail)
	if err := x.obj.ReadAt(ctx, b[:x.tailAt], 0); err != nil {
		return nil, err
	}
	x.tail, x.tailAt = b, 0
	return b, nil
}
