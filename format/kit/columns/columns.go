// Package columns stores lists of millions of values in few allocations. A format with that many
// entries keeps a row of numbers for each in [Rows] and its name in [Strings], and makes an entry when
// its kit.Table is asked for it. Few entries can be kit.Entries instead.
package columns

import (
	"encoding/binary"
	"math"
	"unsafe"
)

// Strings keeps many short strings in few pieces of memory. A million names in a table must not be
// a million objects.
type Strings struct {
	pieces [][]byte
	room   int
}

const (
	firstPiece = 4 << 10
	mostPiece  = 1 << 20
)

// Add copies b, and returns where it is.
func (s *Strings) Add(b []byte) (at uint64) {
	last := len(s.pieces) - 1
	if last < 0 || cap(s.pieces[last])-len(s.pieces[last]) < len(b) {
		s.room = min(max(2*s.room, firstPiece), mostPiece)
		s.pieces = append(s.pieces, make([]byte, 0, max(s.room, len(b))))
		last++
	}
	at = uint64(last)<<32 | uint64(len(s.pieces[last]))
	s.pieces[last] = append(s.pieces[last], b...)
	return at
}

// At returns the string of n bytes at a place, without copying it. Strings are never moved or
// changed.
func (s *Strings) At(at uint64, n int) string {
	if n == 0 {
		return ""
	}
	return unsafe.String(&s.pieces[at>>32][uint32(at)], n)
}

// Decoder returns a decoder of what was packed at a place: numbers by binary.AppendUvarint, and
// texts after their length.
func (s *Strings) Decoder(at uint64) Decoder {
	return Decoder{b: s.pieces[at>>32], at: int(uint32(at))}
}

// A Decoder decodes numbers and texts. Its texts share the memory of the Strings.
type Decoder struct {
	b  []byte
	at int
}

// Number decodes a number. Most have one byte.
func (d *Decoder) Number() uint64 {
	if v := d.b[d.at]; v < 0x80 {
		d.at++
		return uint64(v)
	}
	return d.long()
}

// Signed decodes a number that was packed by binary.AppendVarint.
func (d *Decoder) Signed() int64 {
	v := d.Number()
	return int64(v>>1) ^ -int64(v&1)
}

func (d *Decoder) long() uint64 {
	v, n := binary.Uvarint(d.b[d.at:])
	d.at += n
	return v
}

// Text decodes a text.
func (d *Decoder) Text() string {
	n := int(d.Number())
	if n == 0 {
		return ""
	}
	d.at += n
	return unsafe.String(&d.b[d.at-n], n)
}

// Rows is a list that grows without being copied, which would briefly take twice the memory.
type Rows[T any] struct {
	pages [][]T
	n     int
}

const pageRows = 1 << 10

// Add appends a row.
func (r *Rows[T]) Add(v T) {
	if r.n%pageRows == 0 {
		room := pageRows
		if r.n == 0 {
			room = 0 // most lists are short: the first page grows
		}
		r.pages = append(r.pages, make([]T, 0, room))
	}
	page := &r.pages[r.n/pageRows]
	*page = append(*page, v)
	r.n++
}

// Len returns how many rows there are.
func (r *Rows[T]) Len() int { return r.n }

// At returns a row.
func (r *Rows[T]) At(i int) *T { return &r.pages[i/pageRows][i%pageRows] }

// Places are where rows are in a Strings, in the order in which they were added. Most take two bytes.
type Places struct {
	near   Rows[uint16] // after the first of the block, or elsewhere
	blocks Rows[uint64] // where the first of each block is
	far    map[int]uint64
}

const (
	blockRows = 64
	elsewhere = math.MaxUint16
)

// Add appends a place. It returns the memory that it takes beyond two bytes, if it is unusual.
func (p *Places) Add(at uint64) (more int64) {
	const far = 40
	i := p.near.Len()
	if i%blockRows == 0 {
		p.blocks.Add(at)
	}
	after := at - *p.blocks.At(i / blockRows)
	if after >= elsewhere {
		Rare(&p.far, i, at)
		after, more = elsewhere, far
	}
	p.near.Add(uint16(after))
	return more
}

// Len returns how many places there are.
func (p *Places) Len() int { return p.near.Len() }

// At returns a place.
func (p *Places) At(i int) uint64 {
	after := *p.near.At(i)
	if after == elsewhere {
		return p.far[i]
	}
	return *p.blocks.At(i / blockRows) + uint64(after)
}

// Words are strings with few distinct values, such as owners and groups. Each value is kept once.
type Words struct {
	list []string
	ids  map[string]uint32
	last [2]uint32 // mostly there are two
}

// ID returns the number of a word. Numbers begin at 0.
func (w *Words) ID(word []byte) uint32 {
	for _, i := range w.last {
		if int(i) < len(w.list) && w.list[i] == string(word) {
			return i
		}
	}
	i, ok := w.ids[string(word)]
	if !ok {
		if w.ids == nil {
			w.ids = map[string]uint32{}
		}
		i = uint32(len(w.list))
		s := string(word)
		w.list, w.ids[s] = append(w.list, s), i
	}
	w.last[0], w.last[1] = i, w.last[0]
	return i
}

// At returns a word.
func (w *Words) At(id uint32) string { return w.list[id] }

// Len returns how many words there are.
func (w *Words) Len() int { return len(w.list) }

// Rare sets a value that few rows have, in a map that is allocated for the first of them.
func Rare[K comparable, V any](m *map[K]V, k K, v V) {
	if *m == nil {
		*m = map[K]V{}
	}
	(*m)[k] = v
}
