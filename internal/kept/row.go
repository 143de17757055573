package kept

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"slices"
	"time"

	"github.com/holdall/holdall/codec"
	"github.com/holdall/holdall/format"
)

// What a row begins with: its kind in the lowest bits, and
const (
	kindBits    = 0x07
	newDir      = 0x07 // in the place of a kind: a directory, in which the rows are that follow
	oneRun      = 1 << 3
	isImplied   = 1 << 4
	isWhole     = 1 << 5
	hasRare     = 1 << 6
	isElsewhere = 1 << 7 // where its content lies the archive has to be asked
)

// What an extent begins with.
const (
	otherAt = 1 << iota
	otherLen
	hasSkip
	hasUnit
	hasData
	otherCodec
)

// What the rare things of a row are.
const (
	hasLink = 1 << iota
	hasAttr
	hasFault
	isInternal
)

// A manner is what many rows have in common.
type manner struct {
	hasMode, hasTime bool
	mode             uint32
	owner, group     string
	algo             string // of the digest
	sumLen           uint8
}

// A state is what a row is told apart from: the one before it in a page.
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
	entry   *format.Entry // but for its name
	// one says that the content is one raw run, of the entry's size from off in a volume;
	// else extents, as appendExtents has them, are where it lies.
	one     bool
	off     int64
	volume  int
	extents []byte
	// elsewhere says that neither is kept.
	elsewhere bool
	rank      int64
	proof     int64 // the first of its digests
	proofs    int64 // how many these are
}

const (
	// maxInline is how much content an index takes in of one entry, and maxExtents
	// in how many pieces one may lie: longer ones the archive has to be asked for.
	maxInline  = 64 << 10
	maxExtents = 100_000
)

// appendRow appends r. It is told apart from the row before by s.
func (s *state) appendRow(b []byte, r *row) []byte {
	if r.dir != string(s.dir) {
		k := shared(s.dir, r.dir)
		b = binary.AppendUvarint(append(b, newDir), uint64(k))
		b = appendString(b, r.dir[k:])
		s.dir = append(s.dir[:k], r.dir[k:]...)
		s.base = s.base[:0]
	}
	flags := byte(r.entry.Kind)
	e := r.entry
	if r.implied {
		flags |= isImplied
	}
	if r.whole {
		flags |= isWhole
	}
	rare := byte(0)
	if !r.implied {
		switch {
		case r.elsewhere:
			flags |= isElsewhere
		case r.one && r.volume == s.volume:
			flags |= oneRun
		}
		rare = rareOf(e)
		if rare != 0 {
			flags |= hasRare
		}
	}
	k := shared(s.base, r.base)
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
	case r.one: // in another volume than the one before
		x := []format.Extent{{Size: e.Size, Off: r.off, Len: e.Size}}
		b = appendString(b, string(appendExtents(nil, x, []int{r.volume})))
		s.volume, s.end = r.volume, r.off+e.Size
	default:
		b = append(binary.AppendUvarint(b, uint64(len(r.extents))), r.extents...)
	}
	return b
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
		bits := byte(0)
		if m.hasMode {
			bits |= 1
		}
		if m.hasTime {
			bits |= 2
		}
		b = binary.AppendUvarint(append(b, bits), uint64(m.mode))
		b = appendString(b, m.owner)
		b = appendString(b, m.group)
		b = append(appendString(b, m.algo), m.sumLen)
	}
	return b, m.hasTime
}

func rareOf(e *format.Entry) (bits byte) {
	if e.Link != "" {
		bits |= hasLink
	}
	if len(e.Attr) > 0 {
		bits |= hasAttr
	}
	if e.Fault != nil {
		bits |= hasFault
	}
	if e.Internal {
		bits |= isInternal
	}
	return bits
}

func appendRare(b []byte, e *format.Entry, rare byte) []byte {
	if rare&hasLink != 0 {
		b = appendString(b, e.Link)
	}
	if rare&hasAttr != 0 {
		keys := make([]string, 0, len(e.Attr))
		for k := range e.Attr {
			keys = append(keys, k)
		}
		slices.Sort(keys)
		b = binary.AppendUvarint(b, uint64(len(keys)))
		for _, k := range keys {
			b = appendString(appendString(b, k), e.Attr[k])
		}
	}
	if rare&hasFault != 0 {
		f := e.Fault
		b = appendString(appendString(b, string(f.Code)), f.Class)
		b = append(b, byte(f.Severity))
		b = binary.AppendVarint(appendString(b, f.Volume), f.Off)
		b = appendString(b, f.Entry)
		if f.HasEntry {
			b = append(b, 1)
		} else {
			b = append(b, 0)
		}
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
		bits := byte(0)
		if x.At != at {
			bits |= otherAt
		}
		if x.Len != x.Size {
			bits |= otherLen
		}
		if x.Skip != 0 {
			bits |= hasSkip
		}
		if x.Unit != 0 {
			bits |= hasUnit
		}
		if x.Codec == codec.Inline {
			bits |= hasData
		}
		if x.Codec != last {
			bits |= otherCodec
		}
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

func shared(a []byte, b string) int {
	n := min(len(a), len(b))
	for i := range n {
		if a[i] != b[i] {
			return i
		}
	}
	return n
}

var errRow = errors.New("a row that is none")

// A scanner takes rows apart. What it returns after an error means nothing.
type scanner struct {
	b   []byte
	at  int
	bad bool
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

// size is a number of bytes, or of anything else that is not negative.
func (c *scanner) size() int64 {
	v := c.uvarint()
	if v > math.MaxInt64 {
		c.bad = true
		return 0
	}
	return int64(v)
}

// bytes returns n bytes where they are.
func (c *scanner) bytes(n uint64) []byte {
	if c.bad || n > uint64(len(c.b)-c.at) {
		c.bad = true
		return nil
	}
	c.at += int(n)
	return c.b[c.at-int(n) : c.at]
}

func (c *scanner) text() []byte { return c.bytes(c.uvarint()) }

// decode reads a row into r, and what is in it of an entry into r.entry, which must be
// empty. Names are in s.
func (s *state) decode(c *scanner, r *row, chunk int64) error {
	flags := c.byte()
	for flags&kindBits == newDir && !c.bad {
		k := c.uvarint()
		rest := c.text()
		if flags != newDir || c.bad || k > uint64(len(s.dir)) {
			return errRow
		}
		s.dir = append(s.dir[:k], rest...)
		s.base = s.base[:0]
		flags = c.byte()
	}
	k := c.uvarint()
	rest := c.text()
	if c.bad || k > uint64(len(s.base)) {
		return errRow
	}
	s.base = append(s.base[:k], rest...)
	r.implied, r.whole, r.elsewhere = flags&isImplied != 0, flags&isWhole != 0, flags&isElsewhere != 0
	e := r.entry
	e.Kind = format.Kind(flags & kindBits)
	r.proofs = 0
	if r.whole && len(s.dir) > 0 {
		return errRow
	}
	if r.implied {
		if e.Kind != format.Dir || flags&^(kindBits|isImplied) != 0 || len(s.base) < 2 || s.base[len(s.base)-1] != '/' {
			return errRow
		}
		return nil
	}
	m := c.uvarint()
	if m > uint64(len(s.manners)) {
		return errRow
	}
	if int(m) == len(s.manners) {
		bits := c.byte()
		n := manner{hasMode: bits&1 != 0, hasTime: bits&2 != 0, mode: uint32(c.uvarint())}
		n.owner, n.group, n.algo, n.sumLen = string(c.text()), string(c.text()), string(c.text()), c.byte()
		if c.bad {
			return errRow
		}
		s.manners = append(s.manners, n)
	}
	n := &s.manners[m]
	e.HasMode, e.Mode, e.Owner, e.Group = n.hasMode, fs.FileMode(n.mode), n.owner, n.group
	e.Size = c.size()
	if n.hasTime {
		s.sec += c.varint()
		nsec := c.uvarint()
		if nsec >= 1e9 {
			return errRow
		}
		e.ModTime = time.Unix(s.sec, int64(nsec)).UTC()
	}
	if n.sumLen > 0 || n.algo != "" {
		e.Digest = format.Digest{Algo: n.algo, Sum: string(c.bytes(uint64(n.sumLen)))}
	}
	r.rank = s.rank + 1 + c.varint()
	if s.rank = r.rank; r.rank < 0 || r.rank >= maxRows {
		return errRow
	}
	if flags&hasRare != 0 {
		decodeRare(c, e)
	}
	if r.proofs = Pieces(e, chunk); r.proofs > 0 { // what is at fault has none
		r.proof = s.proof + c.varint()
		if s.proof = r.proof + r.proofs; r.proof < 0 || s.proof < 0 {
			return errRow
		}
	}
	if flags&oneRun != 0 {
		r.one, r.off, r.volume = true, s.end+c.varint(), s.volume
		if s.end = r.off + e.Size; r.off < 0 || s.end < 0 || r.elsewhere {
			return errRow
		}
	} else if r.one, r.extents = false, nil; !r.elsewhere {
		r.extents = c.text()
	}
	if c.bad {
		return errRow
	}
	return nil
}

// Pieces is how many digests there are of an entry's content.
func Pieces(e *format.Entry, chunk int64) int64 {
	if chunk == 0 || e.Size == 0 || !e.Kind.HasContent() || e.Fault != nil {
		return 0
	}
	return (e.Size-1)/chunk + 1
}

func decodeRare(c *scanner, e *format.Entry) {
	rare := c.byte()
	if rare&hasLink != 0 {
		e.Link = string(c.text())
	}
	if rare&hasAttr != 0 {
		n := c.uvarint()
		if n > uint64(len(c.b)) {
			c.bad = true
			return
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

// name is the name of a row that was decoded.
func (s *state) appendName(b []byte) []byte {
	if len(s.dir) > 0 {
		b = append(append(b, s.dir...), '/')
	}
	return append(b, s.base...)
}

// check says what is wrong with an entry that is to be kept.
func check(e *format.Entry) error {
	if e.Size < 0 {
		return fmt.Errorf("%s: a size of %d", format.Escape(e.Name), e.Size)
	}
	if len(e.Digest.Sum) > math.MaxUint8 || e.Kind > format.Property {
		return fmt.Errorf("%s: a digest of %d bytes, or a kind %d", format.Escape(e.Name), len(e.Digest.Sum), e.Kind)
	}
	return nil
}
