package kept

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/holdall/holdall/codec"
	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/kit/sorter"
)

// Bits of the first byte of a row. The lowest bits are its kind.
const (
	kindBits    = 0x07
	newDir      = 0x07 // instead of a kind: the directory of the rows that follow
	oneRun      = 1 << 3
	isImplied   = 1 << 4
	isWhole     = 1 << 5
	hasRare     = 1 << 6
	isElsewhere = 1 << 7 // only the archive knows where its content lies
)

// Bits of the first byte of an extent.
const (
	otherAt = 1 << iota
	otherLen
	hasSkip
	hasUnit
	hasData
	otherCodec
)

// Bits for the rare properties of a row.
const (
	hasLink = 1 << iota
	hasAttr
	hasFault
	isInternal
	hasExtents // in a block: the rest says where the content lies
	isProven   // between sorting and writing: see row.same
)

// A manner has the properties that many rows share.
type manner struct {
	hasMode, hasTime bool
	mode             uint32
	owner, group     string
	algo             string // of the digest
	sumLen           uint8
}

// A state is what a row is encoded relative to: the row before it in a page.
type state struct {
	dir, base []byte
	manners   []manner
	last      int // the manner of the row before
	volume    int
	end       int64 // of the extent before
	sec       int64
	rank      int64
	proof     int64
}

func (s *state) reset() {
	*s = state{dir: s.dir[:0], base: s.base[:0], manners: s.manners[:0], rank: -1}
}

// A row is an entry, or a directory that is implied.
type row struct {
	place
	implied bool
	entry   *format.Entry // except for its name
	// one says that the content is one raw run of the entry's size, from off in a volume. Otherwise
	// extents, as encoded by appendExtents, says where it lies.
	one     bool
	off     int64
	volume  int
	extents []byte
	// elsewhere says that the index has neither.
	elsewhere bool
	rank      int64
	proof     int64 // number of its first digest
	proofs    int64 // number of its digests
	same      bool  // the digest of the entry is that of its only piece
}

const (
	// maxInline is how many bytes of one entry's content an index stores, and maxExtents in how
	// many pieces a content may lie. For more than that, the archive itself is read.
	maxInline  = 64 << 10
	maxExtents = 100_000
)

// appendRow appends r, encoded relative to the row before it, which is in s.
func (s *state) appendRow(b []byte, r *row) []byte {
	if r.dir != string(s.dir) {
		k := sorter.SharedLen(s.dir, r.dir)
		b = binary.AppendUvarint(append(b, newDir), uint64(k))
		b = appendString(b, r.dir[k:])
		s.dir = append(s.dir[:k], r.dir[k:]...)
		s.base = s.base[:0]
	}
	e := r.entry
	flags, rare := byte(e.Kind)|bit(r.implied, isImplied)|bit(r.whole, isWhole), byte(0)
	if !r.implied {
		rare = bit(e.Link != "", hasLink) | bit(len(e.Attr) > 0, hasAttr) | bit(e.Fault != nil, hasFault) | bit(e.Internal, isInternal) | bit(r.same, isProven)
		flags |= bit(r.elsewhere, isElsewhere) | bit(!r.elsewhere && r.one && r.volume == s.volume, oneRun) | bit(rare != 0, hasRare)
	}
	k := sorter.SharedLen(s.base, r.base)
	b = binary.AppendUvarint(append(b, flags), uint64(k))
	b = appendString(b, r.base[k:])
	s.base = append(s.base[:k], r.base[k:]...)
	if r.implied {
		return b
	}
	var hasTime bool
	b, hasTime = s.appendManner(b, e)
	b = binary.AppendUvarint(b, uint64(e.Size))
	if hasTime {
		sec := e.ModTime.Unix()
		b = binary.AppendVarint(b, sec-s.sec)
		b = binary.AppendUvarint(b, uint64(e.ModTime.Nanosecond()))
		s.sec = sec
	}
	b = append(b, e.Digest.Sum...)
	b = binary.AppendVarint(b, r.rank-s.rank-1)
	s.rank = r.rank
	if rare != 0 {
		b = appendRare(append(b, rare), e, rare)
	}
	if r.proofs > 0 {
		b = binary.AppendVarint(b, r.proof-s.proof)
		s.proof = r.proof + r.proofs
	}
	switch {
	case r.elsewhere:
	case flags&oneRun != 0:
		b = binary.AppendVarint(b, r.off-s.end)
		s.end = r.off + e.Size
	case r.one: // in a different volume than the previous row
		x := []format.Extent{{Size: e.Size, Off: r.off, Len: e.Size}}
		b = appendString(b, string(appendExtents(nil, x, []int{r.volume})))
		s.volume, s.end = r.volume, r.off+e.Size
	default:
		b = append(binary.AppendUvarint(b, uint64(len(r.extents))), r.extents...)
	}
	return b
}

// bit returns b if is is true, and 0 otherwise.
func bit(is bool, b byte) byte {
	if is {
		return b
	}
	return 0
}

// isPlain reports whether all of a content of that size is one raw run.
func isPlain(x *format.Extent, size int64) bool {
	return x.Codec == codec.Raw && x.At == 0 && x.Skip == 0 && x.Unit == 0 && x.Size == x.Len && x.Size == size && len(x.Data) == 0
}

func (s *state) appendManner(b []byte, e *format.Entry) ([]byte, bool) {
	m := manner{hasMode: e.HasMode, hasTime: !e.ModTime.IsZero(), mode: uint32(e.Mode), owner: e.Owner, group: e.Group,
		algo: e.Digest.Algo, sumLen: uint8(len(e.Digest.Sum))}
	i := s.last
	if i >= len(s.manners) || s.manners[i] != m {
		if i = slices.Index(s.manners, m); i < 0 {
			i = len(s.manners)
		}
	}
	s.last = i
	b = binary.AppendUvarint(b, uint64(i))
	if i == len(s.manners) {
		s.manners = append(s.manners, m)
		b = binary.AppendUvarint(append(b, bit(m.hasMode, 1)|bit(m.hasTime, 2)), uint64(m.mode))
		b = appendString(b, m.owner)
		b = appendString(b, m.group)
		b = append(appendString(b, m.algo), m.sumLen)
	}
	return b, m.hasTime
}

func appendRare(b []byte, e *format.Entry, rare byte) []byte {
	if rare&hasLink != 0 {
		b = appendString(b, e.Link)
	}
	if rare&hasAttr != 0 {
		b = binary.AppendUvarint(b, uint64(len(e.Attr)))
		for _, k := range slices.Sorted(maps.Keys(e.Attr)) {
			b = appendString(appendString(b, k), e.Attr[k])
		}
	}
	if rare&hasFault != 0 {
		f := e.Fault
		b = appendString(appendString(b, string(f.Code)), f.Class)
		b = append(b, byte(f.Severity))
		b = binary.AppendVarint(appendString(b, f.Volume), f.Off)
		b = append(appendString(b, f.Entry), bit(f.HasEntry, 1))
		b = appendString(b, f.Message)
	}
	return b
}

// appendExtents appends where a content lies.
func appendExtents(b []byte, xs []format.Extent, volumes []int) []byte {
	at, end := int64(0), int64(0)
	last := codec.Raw
	for i := range xs {
		x := &xs[i]
		bits := bit(x.At != at, otherAt) | bit(x.Len != x.Size, otherLen) | bit(x.Skip != 0, hasSkip) | bit(x.Unit != 0, hasUnit) |
			bit(x.Codec == codec.Inline, hasData) | bit(x.Codec != last, otherCodec)
		b = binary.AppendUvarint(append(b, bits), uint64(volumes[i]))
		b = binary.AppendVarint(b, x.Off-end)
		b = binary.AppendUvarint(b, uint64(x.Size))
		if bits&otherAt != 0 {
			b = binary.AppendVarint(b, x.At-at)
		}
		if bits&otherLen != 0 {
			b = binary.AppendUvarint(b, uint64(x.Len))
		}
		if bits&hasSkip != 0 {
			b = binary.AppendUvarint(b, uint64(x.Skip))
		}
		if bits&hasUnit != 0 {
			b = binary.AppendUvarint(b, uint64(x.Unit))
		}
		if bits&otherCodec != 0 {
			b = appendString(b, x.Codec)
		}
		if bits&hasData != 0 {
			b = appendString(b, string(x.Data))
		}
		at, end, last = x.At+x.Size, x.Off+x.Len, x.Codec
	}
	return b
}

func appendString(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

var errRow = errors.New("invalid row")

// A scanner parses bytes. What it returns after an error is undefined.
type scanner struct {
	b   []byte
	at  int
	bad bool

	sums *scanner // has the digests of rows, if they are not in b
}

// must makes the scan fail unless is is true.
func (c *scanner) must(is bool) { c.bad = c.bad || !is }

func (c *scanner) err() error {
	if c.bad {
		return errRow
	}
	return nil
}

func (c *scanner) byte() byte {
	if c.at >= len(c.b) {
		c.bad = true
		return 0
	}
	c.at++
	return c.b[c.at-1]
}

func (c *scanner) uvarint() uint64 {
	if c.at < len(c.b) && c.b[c.at] < 0x80 {
		c.at++
		return uint64(c.b[c.at-1])
	}
	v, n := binary.Uvarint(c.b[min(c.at, len(c.b)):])
	if n <= 0 {
		c.bad = true
		return 0
	}
	c.at += n
	return v
}

func (c *scanner) varint() int64 {
	u := c.uvarint()
	return int64(u>>1) ^ -int64(u&1)
}

// size reads a number that is not negative.
func (c *scanner) size() int64 {
	v := c.uvarint()
	c.must(v <= math.MaxInt64)
	return int64(v & math.MaxInt64)
}

// bytes returns n bytes without copying them.
func (c *scanner) bytes(n uint64) []byte {
	if c.bad || n > uint64(len(c.b)-c.at) {
		c.bad = true
		return nil
	}
	c.at += int(n)
	return c.b[c.at-int(n) : c.at]
}

func (c *scanner) text() []byte { return c.bytes(c.uvarint()) }

// from reads a name: how much it shares with the name before, and the rest.
func (c *scanner) from(before []byte) []byte {
	k := c.uvarint()
	rest := c.text()
	if c.must(k <= uint64(len(before))); c.bad {
		return before
	}
	return append(before[:k], rest...)
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
	r.implied, r.whole, r.elsewhere, r.proofs, r.same = flags&isImplied != 0, flags&isWhole != 0, flags&isElsewhere != 0, 0, false
	c.must(!r.whole || len(s.dir) == 0)
	if r.implied {
		c.must(e.Kind == format.Dir && flags&^(kindBits|isImplied) == 0 && len(s.base) >= 2 && s.base[len(s.base)-1] == '/')
	}
	if r.implied || c.bad {
		return c.err()
	}
	s.decodeManner(c, e)
	r.rank = s.rank + 1 + c.varint()
	s.rank = r.rank
	c.must(r.rank >= 0 && r.rank < maxRows)
	if flags&hasRare != 0 {
		r.same = decodeRare(c, e)&isProven != 0
	}
	if c.bad {
		return errRow
	}
	if r.proofs = Pieces(e, chunk); r.same {
		r.proofs = 0
	}
	if r.proofs > 0 { // an entry with a fault has none
		r.proof = s.proof + c.varint()
		s.proof = r.proof + r.proofs
		c.must(r.proof >= 0 && s.proof >= 0)
	}
	if flags&oneRun != 0 {
		r.one, r.off, r.volume = true, s.end+c.varint(), s.volume
		s.end = r.off + e.Size
		c.must(r.off >= 0 && s.end >= 0 && !r.elsewhere)
	} else if r.one, r.extents = false, nil; !r.elsewhere {
		r.extents = c.text()
	}
	return c.err()
}

// decodeManner reads the manner of an entry, its size, its time and its digest.
func (s *state) decodeManner(c *scanner, e *format.Entry) {
	m := c.uvarint()
	if m == uint64(len(s.manners)) {
		bits := c.byte()
		n := manner{hasMode: bits&1 != 0, hasTime: bits&2 != 0, mode: uint32(c.uvarint())}
		n.owner, n.group, n.algo, n.sumLen = string(c.text()), string(c.text()), string(c.text()), c.byte()
		s.manners = append(s.manners, n)
	}
	if c.must(m < uint64(len(s.manners))); c.bad {
		return
	}
	n := &s.manners[m]
	e.HasMode, e.Mode, e.Owner, e.Group = n.hasMode, fs.FileMode(n.mode), n.owner, n.group
	e.Size = c.size()
	if n.hasTime {
		s.sec += c.varint()
		nsec := c.uvarint()
		c.must(nsec < 1e9)
		e.ModTime = time.Unix(s.sec, int64(nsec)).UTC()
	}
	if n.sumLen > 0 || n.algo != "" {
		from := cmp.Or(c.sums, c)
		sum := from.bytes(uint64(n.sumLen))
		e.Digest = format.Digest{Algo: n.algo, Sum: string(sum)}
		c.must(!from.bad)
	}
}

// Pieces is the number of digests of an entry's content.
func Pieces(e *format.Entry, chunk int64) int64 {
	if e.Fault != nil {
		return 0
	}
	return pieces(e.Kind, e.Size, chunk)
}

func pieces(kind format.Kind, size, chunk int64) int64 {
	if chunk == 0 || size == 0 || !kind.HasContent() {
		return 0
	}
	return (size-1)/chunk + 1
}

// decodeRare reads rare properties, and returns the byte that says which.
func decodeRare(c *scanner, e *format.Entry) (rare byte) {
	rare = c.byte()
	if rare&hasLink != 0 {
		e.Link = string(c.text())
	}
	if rare&hasAttr != 0 {
		n := c.uvarint()
		if n > uint64(len(c.b)) {
			c.bad = true
			return rare
		}
		e.Attr = make(map[string]string, min(n, 64))
		for ; n > 0 && !c.bad; n-- {
			k := string(c.text())
			e.Attr[k] = string(c.text())
		}
	}
	if rare&hasFault != 0 {
		f := &format.Problem{Code: format.Code(c.text()), Class: string(c.text()), Severity: format.Severity(c.byte())}
		f.Volume, f.Off, f.Entry = string(c.text()), c.varint(), string(c.text())
		f.HasEntry = c.byte() != 0
		f.Message = string(c.text())
		e.Fault = f
	}
	e.Internal = rare&isInternal != 0
	return rare
}

// decodeExtents calls each with what appendExtents appended.
func decodeExtents(b []byte, each func(x format.Extent, volume int)) error {
	c := &scanner{b: b}
	at, end := int64(0), int64(0)
	last := codec.Raw
	for c.at < len(b) {
		bits := c.byte()
		volume := c.uvarint()
		x := format.Extent{At: at, Off: end + c.varint(), Size: c.size()}
		if x.Len = x.Size; bits&otherAt != 0 {
			x.At += c.varint()
		}
		if bits&otherLen != 0 {
			x.Len = c.size()
		}
		if bits&hasSkip != 0 {
			x.Skip = c.size()
		}
		if bits&hasUnit != 0 {
			x.Unit = c.size()
		}
		if bits&otherCodec != 0 {
			last = string(c.text())
		}
		if x.Codec = last; bits&hasData != 0 {
			x.Data = slices.Clone(c.text())
		}
		at, end = x.At+x.Size, x.Off+x.Len
		if c.bad || x.At < 0 || x.Off < 0 || at < 0 || end < 0 || volume > math.MaxInt32 {
			return errRow
		}
		each(x, int(volume))
	}
	return nil
}

// check returns an error if an entry cannot be in an index.
func check(e *format.Entry) error {
	if e.Size < 0 {
		return fmt.Errorf("%s: a size of %d", format.Escape(e.Name), e.Size)
	}
	if len(e.Digest.Sum) > math.MaxUint8 || e.Kind > format.Property {
		return fmt.Errorf("%s: a digest of %d bytes, or a kind %d", format.Escape(e.Name), len(e.Digest.Sum), e.Kind)
	}
	return nil
}
