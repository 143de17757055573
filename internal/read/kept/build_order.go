package kept

import (
	"cmp"
	"encoding/binary"
	"errors"
)

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
		r, err := b.w.page(page, nil, int64(from), int64(len(part)), true)
		if err != nil {
			return nil, err
		}
		refs = append(refs, r)
	}
	return refs, nil
}

// pieceDigests writes the pages of digests of pieces.
type pieceDigests struct {
	w    *binder
	next func() ([DigestLen]byte, error, bool)
	page []byte
	n    int64 // how many there are
	refs []ref
}

var errOther = errors.New("the archive changed while it was indexed")

// take takes the digests of the n pieces of r. The digest of an entry that is that of its only
// piece is not stored once more.
func (p *pieceDigests) take(r *row, n int64) error {
	r.proof, r.proofs = p.n, n
	for range n {
		d, err, ok := p.next()
		if !ok {
			err = errOther
		}
		if err != nil {
			return err
		}
		if e := r.entry; n == 1 && e.Digest.Algo == "blake3" && e.Digest.Sum == string(d[:]) {
			r.same, r.proofs = true, 0
			return nil
		}
		p.page = append(p.page, d[:]...)
		if p.n++; p.n%proofItems == 0 {
			if err := p.flush(proofItems); err != nil {
				return err
			}
		}
	}
	return nil
}

func (p *pieceDigests) flush(items int64) error {
	if items == 0 {
		return nil
	}
	r, err := p.w.page(p.page, nil, p.n-items, items, false)
	p.refs, p.page = append(p.refs, r), p.page[:0]
	return err
}

// end writes the last page.
func (p *pieceDigests) end() error {
	if _, err, more := p.next(); err != nil || more {
		return cmp.Or(err, errOther)
	}
	return p.flush(p.n % proofItems)
}
