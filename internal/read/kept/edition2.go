package kept

import (
	"cmp"
	"hash/crc32"
	"io/fs"
	"time"

	"github.com/holdall/holdall/format"
)

// Indexes of edition 2 have other pages of rows, which are turned into those of today when they are
// read. All their pages are compressed, and have other checksums. If their archive has no order at
// all, they have all rows once more instead of that order, and a table of rows; both are not used.

const endMagic2 = "holdall2"

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Bits of the first byte of a row. The lowest bits are its kind.
const (
	newDir      = 0x07 // instead of a kind: the directory of the rows that follow
	sumsApart   = 0x06 // at the beginning of a page: its digests are after its rows
	oneRun      = 1 << 3
	isImplied   = 1 << 4
	isWhole     = 1 << 5
	hasRare     = 1 << 6
	isElsewhere = 1 << 7 // only the archive knows where its content lies
)

// A manner has the properties that many rows share.
type manner struct {
	bits         byte // 1 it has a mode, 2 a time
	mode         uint64
	owner, group string
	algo         string // of the digest
	sumLen       uint8
}

// A state is what a row is relative to: the row before it in a page.
type state struct {
	dir, base []byte
	manners   []manner
	volume    int
	end       int64 // of the extent before
	sec       int64
	rank      int64
	proof     int64
	sums      *scanner // has the digests of rows
}

// decode reads a row into r, and its entry into r.entry, which must be empty. Names are in s.
func (s *state) decode(c *scanner, r *row, chunk int64) error {
	flags := c.byte()
	for flags&kindBits == newDir && !c.bad {
		c.must(flags == newDir)
		s.dir, s.base = c.from(s.dir), s.base[:0]
		flags = c.byte()
	}
	s.base = c.from(s.base)
	e := r.entry
	e.Kind = format.Kind(flags & kindBits)
	r.dir, r.base = string(s.dir), string(s.base)
	r.implied, r.whole, r.elsewhere = flags&isImplied != 0, flags&isWhole != 0, flags&isElsewhere != 0
	if c.must(!r.whole || r.dir == ""); r.implied || c.bad {
		c.must(e.Kind == format.Dir && flags&^(kindBits|isImplied) == 0)
		return c.err()
	}
	s.decodeManner(c, e)
	s.rank += 1 + c.varint()
	r.rank = s.rank
	if flags&hasRare != 0 {
		decodeRare(c, e)
	}
	if c.bad {
		return errRow
	}
	if r.proofs = Pieces(e, chunk); r.proofs > 0 { // an entry with a fault has none
		r.proof = s.proof + c.varint()
		s.proof = r.proof + r.proofs
	}
	if flags&oneRun != 0 {
		r.one, r.off, r.volume = true, s.end+c.varint(), s.volume
		s.end = r.off + e.Size
		c.must(!r.elsewhere)
	} else if !r.elsewhere {
		r.extents = c.text()
	}
	return c.err()
}

// decodeManner reads the manner of an entry, its size, its time and its digest.
func (s *state) decodeManner(c *scanner, e *format.Entry) {
	m := c.uvarint()
	if m == uint64(len(s.manners)) {
		s.manners = append(s.manners, manner{c.byte(), c.uvarint(), string(c.text()), string(c.text()), string(c.text()), c.byte()})
	}
	if c.must(m < uint64(len(s.manners))); c.bad {
		return
	}
	n := &s.manners[m]
	e.HasMode, e.Mode, e.Owner, e.Group = n.bits&1 != 0, fs.FileMode(n.mode), n.owner, n.group
	e.Size = c.size()
	if n.bits&2 != 0 {
		s.sec += c.varint()
		nsec := c.uvarint()
		c.must(nsec < 1e9)
		e.ModTime = time.Unix(s.sec, int64(nsec)).UTC()
	}
	from := cmp.Or(s.sums, c)
	e.Digest = format.Digest{Algo: n.algo, Sum: string(from.bytes(uint64(n.sumLen)))}
	c.must(!from.bad)
}

// from reads a name: how much it shares with the name before, and the rest.
func (c *scanner) from(before []byte) []byte {
	k := c.uvarint()
	rest := c.text()
	if c.must(k <= uint64(len(before))); c.bad {
		return before
	}
	return append(before[:k], rest...)
}

// renewed returns a page of rows of edition 2 as one of today.
func (x *Index) renewed(page []byte, r *ref) ([]byte, error) {
	c, s := &scanner{b: page}, state{rank: -1}
	if len(page) > 0 && page[0] == sumsApart {
		c.at = 1
		end := len(page) - int(min(c.uvarint(), maxPage))
		if c.bad || end < c.at {
			return nil, x.fail(r.off, errRow)
		}
		c.b, s.sums = page[:end], &scanner{b: page[end:]}
	}
	w := rowPages{chunk: x.Chunk}
	var d record
	for range min(r.items, pageRows) {
		row := row{entry: &format.Entry{}}
		if err := s.decode(c, &row, x.Chunk); err != nil || w.names > pageNames+maxPage {
			return nil, x.fail(r.off, errRow)
		}
		d.take(&row)
		w.append(&d)
	}
	if c.at != len(c.b) || s.sums != nil && s.sums.at != len(s.sums.b) {
		return nil, x.fail(r.off, errRow)
	}
	return w.encoded(), nil
}
