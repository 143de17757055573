package kept

import (
	"context"
	"hash/crc32"

	"github.com/holdall/holdall/format"
)

// Indexes of edition 2 have other pages of rows, which are turned into those of today when they are
// read. All their pages are compressed, and have other checksums. If their archive has no order at
// all, they have all rows once more instead of that order, and a table of rows; both are not used.

const endMagic2 = "holdall2"

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// sumsApart at the beginning of a page says that its digests are after its rows.
const sumsApart = 0x06

// renewed returns a page of rows of edition 2 as one of today.
func (x *Index) renewed(page []byte, r *ref) ([]byte, error) {
	c := &scanner{b: page}
	if len(page) > 0 && page[0] == sumsApart {
		c.at = 1
		n := c.uvarint()
		if c.bad || n > uint64(len(page)-c.at) {
			return nil, x.fail(r.off, errRow)
		}
		end := len(page) - int(n)
		c.b, c.sums = page[:end], &scanner{b: page[end:]}
	}
	var s state
	var w rowPages
	s.reset()
	for range min(r.items, pageRows) {
		row := row{entry: &format.Entry{}}
		if err := s.decode(c, &row, x.Chunk); err != nil || row.same {
			return nil, x.fail(r.off, errRow)
		}
		row.dir, row.base = string(s.dir), string(s.base)
		w.append(&row)
		if w.names > pageNames+maxPage {
			return nil, x.fail(r.off, errRow)
		}
	}
	if c.at != len(c.b) || c.sums != nil && c.sums.at != len(c.sums.b) {
		return nil, x.fail(r.off, errRow)
	}
	return w.encoded(), nil
}

// entriesByRank yields all entries by their ranks. It reads all rows before the first one.
func (x *Index) entriesByRank(ctx context.Context, from int64, tell func(format.Entry) error) error {
	return x.tellRanked(ctx, []int64{0, x.count()}, from, tell)
}
