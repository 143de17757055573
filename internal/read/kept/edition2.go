package kept

import (
	"cmp"
	"hash/crc32"
	"io/fs"
	"time"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/base/scan"
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
	sums      *scan.Scanner // has the digests of rows
}

// decode reads a row into r, and its entry into r.entry, which must be empty. Names are in s.
func (s *state) decode(c *scan.Scanner, r *row, chunk int64) error {
	flags := c.Byte()
	for flags&kindBits == newDir && !c.Bad {
		c.Must(flags == newDir)
		s.dir, s.base = nameAfter(c, s.dir), s.base[:0]
		flags = c.Byte()
	}
	s.base = nameAfter(c, s.base)
	e := r.entry
	e.Kind = format.Kind(flags & kindBits)
	r.dir, r.base = string(s.dir), string(s.base)
	r.implied, r.whole, r.elsewhere = flags&isImplied != 0, flags&isWhole != 0, flags&isElsewhere != 0
	if c.Must(!r.whole || r.dir == ""); r.implied || c.Bad {
		c.Must(e.Kind == format.Dir && flags&^(kindBits|isImplied) == 0)
		return parsed(c)
	}
	s.decodeManner(c, e)
	s.rank += 1 + c.Varint()
	r.rank = s.rank
	if flags&hasRare != 0 {
		decodeRare(c, e)
	}
	if c.Bad {
		return errRow
	}
	if r.proofs = Pieces(e, chunk); r.proofs > 0 { // an entry with a fault has none
		r.proof = s.proof + c.Varint()
		s.proof = r.proof + r.proofs
	}
	if flags&oneRun != 0 {
		r.one, r.off, r.volume = true, s.end+c.Varint(), s.volume
		s.end = r.off + e.Size
		c.Must(!r.elsewhere)
	} else if !r.elsewhere {
		r.extents = c.Text()
	}
	return parsed(c)
}

// decodeManner reads the manner of an entry, its size, its time and its digest.
func (s *state) decodeManner(c *scan.Scanner, e *format.Entry) {
	m := c.Uvarint()
	if m == uint64(len(s.manners)) {
		s.manners = append(s.manners, manner{c.Byte(), c.Uvarint(), string(c.Text()), string(c.Text()), string(c.Text()), c.Byte()})
	}
	if c.Must(m < uint64(len(s.manners))); c.Bad {
		return
	}
	n := &s.manners[m]
	e.HasMode, e.Mode, e.Owner, e.Group = n.bits&1 != 0, fs.FileMode(n.mode), n.owner, n.group
	e.Size = c.Size()
	if n.bits&2 != 0 {
		s.sec += c.Varint()
		nsec := c.Uvarint()
		c.Must(nsec < 1e9)
		e.ModTime = time.Unix(s.sec, int64(nsec)).UTC()
	}
	from := cmp.Or(s.sums, c)
	e.Digest = format.Digest{Algo: n.algo, Sum: string(from.Bytes(uint64(n.sumLen)))}
	c.Must(!from.Bad)
}

// nameAfter reads a name: how much it shares with the name before, and the rest.
func nameAfter(c *scan.Scanner, before []byte) []byte {
	k := c.Uvarint()
	rest := c.Text()
	if c.Must(k <= uint64(len(before))); c.Bad {
		return before
	}
	return append(before[:k], rest...)
}

// renewed returns a page of rows of edition 2 as one of today.
func (x *Index) renewed(page []byte, r *ref) ([]byte, error) {
	c, s := &scan.Scanner{B: page}, state{rank: -1}
	if len(page) > 0 && page[0] == sumsApart {
		c.At = 1
		end := len(page) - int(min(c.Uvarint(), maxPage))
		if c.Bad || end < c.At {
			return nil, x.fail(r.off, errRow)
		}
		c.B, s.sums = page[:end], &scan.Scanner{B: page[end:]}
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
	if c.At != len(c.B) || s.sums != nil && s.sums.At != len(s.sums.B) {
		return nil, x.fail(r.off, errRow)
	}
	return w.encoded(), nil
}
