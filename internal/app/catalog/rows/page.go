package rows

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"hash/crc32"
	"math"
	"time"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/kit"
	"github.com/holdall/holdall/format/kit/sorter"
	"github.com/holdall/holdall/internal/base/scan"
)

// A page has the tables of what its rows share, then blocks of up to blockRows rows. The first row of a
// block has its whole name; others have what differs from the name before. It ends with the places of
// the blocks, 4 bytes each, their number, and the CRC-32 of all before it.
const (
	pageSize  = 32 << 10 // from which on a page is full
	blockRows = 16

	// mostShown is how many archives a page describes itself. With more, the state of the catalogue does.
	mostShown = 16

	crcLen = 4
)

// Bits of a row, above its kind. A row with others was written by a newer program.
const (
	isDelete = 1 << (kindBits + iota)
	hasSeq   // otherwise it is that of the run's commit
	isRaw
	isNext // Off is the end of the row before, in the same archive
	hasDigest
	hasTime
	hasNanos
	hasMD5 // an ETag that is one
	hasETag
	hasHeaders
	isFate
	noBits = isFate << 1
)

const kindBits = 4

// A table numbers different values.
type table[T comparable] struct {
	all []T
	at  map[T]int
}

func (t *table[T]) add(v T) int {
	i, ok := t.at[v]
	if !ok {
		if t.at == nil {
			t.at = map[T]int{}
		}
		i = len(t.all)
		t.all, t.at[v] = append(t.all, v), i
	}
	return i
}

func (t *table[T]) clear() {
	t.all = t.all[:0]
	clear(t.at)
}

// An algo is one of digests, with their length.
type algo struct {
	name string
	len  int
}

// A pageWriter makes pages.
type pageWriter struct {
	archives table[ArchiveID]
	algos    table[algo]
	headers  table[string]

	rows        []byte
	said        int // bytes of headers
	blocks      []uint32
	n           int // rows
	first, last string

	seconds int64 // of the row before
	end     int64 // of its content
	in      int   // its archive
}

func (w *pageWriter) add(r *Row) {
	shared := 0
	if w.n == 0 {
		w.first = r.Name
	}
	if w.n%blockRows == 0 {
		w.blocks = append(w.blocks, uint32(len(w.rows)))
		w.seconds, w.end, w.in = 0, 0, -1
	} else {
		shared = sorter.SharedLen(w.last, r.Name)
	}
	bits := uint64(r.Kind)
	set := func(is bool, bit uint64) {
		if is {
			bits |= bit
		}
	}
	archive := -1
	if r.What == Put {
		archive = w.archives.add(r.Archive)
	}
	sum, isMD5 := kit.MD5OfETag(r.ETag)
	set(r.What == Delete, isDelete)
	set(r.What == Fate, isFate)
	set(r.Seq != 0, hasSeq)
	set(r.Raw, isRaw)
	set(r.Raw && archive == w.in && r.Off == w.end, isNext)
	set(r.Digest.Algo != "", hasDigest)
	set(!r.Time.IsZero(), hasTime)
	set(!r.Time.IsZero() && r.Time.Nanosecond() != 0, hasNanos)
	set(isMD5, hasMD5)
	set(!isMD5 && r.ETag != "", hasETag)
	set(r.Headers != "", hasHeaders)

	b := binary.AppendUvarint(w.rows, bits)
	b = binary.AppendUvarint(b, uint64(shared))
	b = scan.AppendText(b, r.Name[shared:])
	if r.Seq != 0 {
		b = binary.AppendUvarint(b, uint64(r.Seq))
	}
	if r.What == Fate {
		b = append(binary.AppendUvarint(b, uint64(r.Of)), byte(r.Original))
	}
	if r.What == Put {
		b = binary.AppendUvarint(b, uint64(archive))
		b = binary.AppendUvarint(b, uint64(r.Size))
		if bits&(isRaw|isNext) == isRaw {
			b = binary.AppendUvarint(b, uint64(r.Off))
		}
		if bits&hasDigest != 0 {
			b = append(binary.AppendUvarint(b, uint64(w.algos.add(algo{r.Digest.Algo, len(r.Digest.Sum)}))), r.Digest.Sum...)
		}
		if bits&hasTime != 0 {
			s := r.Time.Unix()
			b = binary.AppendVarint(b, s-w.seconds)
			w.seconds = s
		}
		if bits&hasNanos != 0 {
			b = binary.AppendUvarint(b, uint64(r.Time.Nanosecond()))
		}
		switch {
		case isMD5:
			b = append(b, sum...)
		case r.ETag != "":
			b = scan.AppendText(b, r.ETag)
		}
		if r.Headers != "" {
			n := len(w.headers.all)
			b = binary.AppendUvarint(b, uint64(w.headers.add(r.Headers)))
			if len(w.headers.all) > n {
				w.said += len(r.Headers)
			}
		}
		w.in, w.end = archive, r.Off+r.Size
	}
	w.rows, w.last = b, r.Name
	w.n++
}

func (w *pageWriter) full() bool { return len(w.rows)+w.said >= pageSize }

// page returns the page, and begins another.
func (w *pageWriter) page(about func(ArchiveID) (Archive, bool)) []byte {
	b := binary.AppendUvarint(nil, uint64(len(w.archives.all)))
	for _, id := range w.archives.all {
		b = binary.AppendUvarint(binary.AppendUvarint(b, uint64(id.Commit)), uint64(id.Ordinal))
		a, known := about(id)
		if known = known && len(w.archives.all) <= mostShown; !known {
			b = append(b, 0)
			continue
		}
		b = scan.AppendText(scan.AppendText(append(b, 1), a.Address), a.Format)
		b = scan.AppendText(binary.AppendUvarint(b, uint64(a.Size)), a.Version)
	}
	b = binary.AppendUvarint(b, uint64(len(w.algos.all)))
	for _, a := range w.algos.all {
		b = append(scan.AppendText(b, a.name), byte(a.len))
	}
	b = binary.AppendUvarint(b, uint64(len(w.headers.all)))
	for _, s := range w.headers.all {
		b = scan.AppendText(b, s)
	}
	at := uint32(len(b))
	b = append(b, w.rows...)
	for _, off := range w.blocks {
		b = binary.LittleEndian.AppendUint32(b, at+off)
	}
	b = binary.LittleEndian.AppendUint32(b, uint32(len(w.blocks)))
	w.rows, w.said, w.blocks, w.n = w.rows[:0], 0, w.blocks[:0], 0
	w.archives.clear()
	w.algos.clear()
	w.headers.clear()
	return sealed(b)
}

// sealed appends the checksum of b.
func sealed(b []byte) []byte { return binary.LittleEndian.AppendUint32(b, crc32.ChecksumIEEE(b)) }

// unsealed returns what was sealed.
func unsealed(b []byte) ([]byte, error) {
	n := len(b) - crcLen
	if n < 0 || binary.LittleEndian.Uint32(b[n:]) != crc32.ChecksumIEEE(b[:n]) {
		return nil, errChecksum
	}
	return b[:n:n], nil
}

var (
	errChecksum = errors.New("the checksum does not match")
	errPage     = errors.New("invalid page")
	errNewer    = errors.New("a row of a newer version of holdall")
)

// A page is parsed as far as what its rows share.
type page struct {
	b        []byte // up to the places of blocks
	archives []ArchiveID
	shown    []*Archive // nil if the page does not describe it
	algos    []algo
	headers  []string
	blocks   []byte
}

// parsePage checks a stored page.
func parsePage(stored []byte) (*page, error) {
	b, err := unsealed(stored)
	if err != nil {
		return nil, err
	}
	if len(b) < 4 {
		return nil, errPage
	}
	n := int64(binary.LittleEndian.Uint32(b[len(b)-4:]))
	b = b[:len(b)-4]
	if n < 1 || 4*n > int64(len(b)) {
		return nil, errPage
	}
	p := &page{b: b[:int64(len(b))-4*n], blocks: b[int64(len(b))-4*n:]}
	c := &scan.Scanner{B: p.b}
	for range c.Count() {
		id := ArchiveID{Commit: c.Size()}
		ordinal := c.Size()
		c.Bad = c.Bad || ordinal >= MostArchives || id.Commit > MostCommit
		id.Ordinal = int(ordinal)
		var a *Archive
		if shown := c.Bytes(1); !c.Bad && shown[0] != 0 {
			a = &Archive{Address: string(c.Text()), Format: string(c.Text())}
			a.Size = c.Size()
			a.Version = string(c.Text())
		}
		if c.Bad {
			return nil, errPage
		}
		p.archives, p.shown = append(p.archives, id), append(p.shown, a)
	}
	for range c.Count() {
		name, n := string(c.Text()), c.Bytes(1)
		if c.Bad {
			return nil, errPage
		}
		p.algos = append(p.algos, algo{name, int(n[0])})
	}
	for range c.Count() {
		p.headers = append(p.headers, string(c.Text()))
		if c.Bad {
			return nil, errPage
		}
	}
	if c.Bad || c.At != p.block(0) {
		return nil, errPage
	}
	return p, nil
}

func (p *page) count() int { return len(p.blocks) / 4 }

func (p *page) block(i int) int {
	if i == p.count() {
		return len(p.b)
	}
	return int(min(binary.LittleEndian.Uint32(p.blocks[4*i:]), math.MaxInt32))
}

// A cursor reads the rows of a block.
type cursor struct {
	scan.Scanner
	p       *page
	end     int
	name    []byte
	seconds int64
	off     int64
	in      int
	row     Row
	shown   *Archive // of the row's archive, if the page describes it
}

// open begins a block.
func (c *cursor) open(p *page, block int) error {
	from, to := p.block(block), p.block(block+1)
	if from >= to || to > len(p.b) {
		return errPage
	}
	c.Scanner, c.p, c.end = scan.Scanner{B: p.b[:to], At: from}, p, to
	c.name, c.seconds, c.off, c.in = c.name[:0], 0, 0, -1
	return nil
}

// nextName reads the name of the next row; rest must be called after it. ok is false at the end of the block.
func (c *cursor) nextName() (bits uint64, ok bool, err error) {
	if c.At == c.end {
		return 0, false, nil
	}
	bits = c.Uvarint()
	shared := c.Uvarint()
	if c.Bad || shared > uint64(len(c.name)) {
		return 0, false, errPage
	}
	suffix := c.Text()
	if c.name = append(c.name[:shared], suffix...); c.Bad || len(c.name) > MostName {
		return 0, false, errPage
	}
	return bits, true, nil
}

// rest reads the rest of a row. If it is wanted, c.row is the row.
func (c *cursor) rest(bits uint64, wanted bool) error {
	if bits >= noBits {
		return errNewer
	}
	r := Row{Kind: format.Kind(bits & (1<<kindBits - 1))}
	c.shown = nil
	if bits&hasSeq != 0 {
		r.Seq = c.Size()
	}
	switch {
	case bits&isDelete != 0:
		r.What = Delete
	case bits&isFate != 0:
		r.What, r.Of, r.Original = Fate, c.Size(), Original(c.Byte())
		c.Must(r.Of > 0 && r.Original <= Lingers)
	default:
		i := c.Uvarint()
		if i >= uint64(len(c.p.archives)) {
			return errPage
		}
		archive := int(i)
		r.Archive, c.shown = c.p.archives[archive], c.p.shown[archive]
		r.Size = c.Size()
		if r.Raw = bits&isRaw != 0; r.Raw {
			if bits&isNext == 0 {
				r.Off = c.Size()
			} else if r.Off = c.off; c.in != archive {
				return errPage
			}
		}
		if bits&hasDigest != 0 {
			i := c.Uvarint()
			if i >= uint64(len(c.p.algos)) {
				return errPage
			}
			a := c.p.algos[i]
			if sum := c.Bytes(uint64(a.len)); wanted {
				r.Digest = format.Digest{Algo: a.name, Sum: string(sum)}
			}
		}
		nanos := uint64(0)
		if bits&hasTime != 0 {
			c.seconds += c.Varint()
		}
		if bits&hasNanos != 0 {
			nanos = c.Uvarint()
			c.Bad = c.Bad || nanos >= uint64(time.Second)
		}
		if bits&hasTime != 0 && wanted {
			r.Time = time.Unix(c.seconds, int64(nanos)).UTC()
		}
		switch {
		case bits&hasMD5 != 0:
			if sum := c.Bytes(16); wanted && !c.Bad {
				r.ETag = `"` + hex.EncodeToString(sum) + `"`
			}
		case bits&hasETag != 0:
			if t := c.Text(); wanted {
				r.ETag = string(t)
			}
		}
		if bits&hasHeaders != 0 {
			i := c.Uvarint()
			if i >= uint64(len(c.p.headers)) {
				return errPage
			}
			r.Headers = c.p.headers[i]
		}
		c.in, c.off = archive, r.Off+r.Size
		c.Bad = c.Bad || c.off < 0
	}
	if c.Bad || r.Kind > format.Property {
		return errPage
	}
	if wanted {
		r.Name = string(c.name)
		c.row = r
	}
	return nil
}
