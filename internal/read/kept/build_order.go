package kept

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"iter"
	"slices"

	"github.com/holdall/holdall/format"
)

// isScattered reports whether reading in this order, by the numbers of rows, would decode all
// pages again and again.
func isScattered(order []uint32) bool {
	const pages, often = 512, 4 // pages of rows are about twice as long
	touched, last := 0, map[uint32]int{}
	for rank, row := range order {
		if row == 0 {
			continue
		}
		window := rank/maxWindow + 1
		if page := (row - 1) / pages; last[page] != window {
			last[page] = window
			touched++
		}
	}
	return touched > often*(len(order)/pages+1)
}

// listing writes all rows once more, in the archive's order.
func (b *builder) listing() ([]ref, error) {
	in, err := b.inOrder.reader()
	if err != nil {
		return nil, err
	}
	var s state
	var r row
	var e format.Entry
	var value, key []byte
	w := rowPages{w: b.w}
	for rank := range b.rank {
		if rank&0xfff == 0 && b.ctx.Err() != nil {
			return nil, context.Cause(b.ctx)
		}
		n, err := binary.ReadUvarint(in)
		if err == nil && n > maxPage {
			err = errRow
		}
		if err != nil {
			return nil, err
		}
		value = slices.Grow(value[:0], int(n))[:n]
		if _, err := io.ReadFull(in, value); err != nil {
			return nil, err
		}
		if b.order[rank] == 0 {
			continue
		}
		s.reset()
		e = format.Entry{}
		r.entry = &e
		if err := s.decode(&scanner{b: value}, &r, b.head.Chunk); err != nil {
			return nil, err
		}
		r.dir, r.base = string(s.dir), string(s.base)
		key = binary.BigEndian.AppendUint32(key[:0], uint32(rank))
		if err := w.add(&r, key); err != nil {
			return nil, err
		}
	}
	return w.all()
}

// orders writes the pages of order, unless the rows have that order:
//
//	varint n minus the n before; n is the number of the row plus 1, or 0 for none
func (b *builder) orders() (refs []ref, err error) {
	if b.sorted {
		return nil, nil
	}
	var page []byte
	for from := 0; from < len(b.order); from += orderItems {
		part := b.order[from:min(from+orderItems, len(b.order))]
		page = page[:0]
		last := int64(0)
		for _, n := range part {
			page = binary.AppendVarint(page, int64(n)-last)
			last = int64(n)
		}
		r, err := b.w.page(page, nil, nil, int64(from), int64(len(part)))
		if err != nil {
			return nil, err
		}
		refs = append(refs, r)
	}
	return refs, nil
}

// digests writes the pages of digests.
func (b *builder) digests(all iter.Seq2[[DigestLen]byte, error]) (refs []ref, err error) {
	if b.head.Chunk == 0 {
		return nil, nil
	}
	var page []byte
	n, from := int64(0), int64(0)
	flush := func() error {
		if n == from {
			return nil
		}
		r, err := b.w.page(page, nil, nil, from, n-from)
		refs, page, from = append(refs, r), page[:0], n
		return err
	}
	for d, err := range all {
		if err != nil {
			return nil, err
		}
		page = append(page, d[:]...)
		if n++; n-from == proofItems {
			if err := flush(); err != nil {
				return nil, err
			}
		}
	}
	if n != b.proof {
		return nil, errors.New("the archive changed while it was indexed")
	}
	return refs, flush()
}
