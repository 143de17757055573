package tarfile

import (
	"cmp"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"iter"
)

// An ID names a segment: a random UUID, its most significant byte first.
type ID [16]byte

const idText = 36

// dashes is where a UUID has its dashes.
var dashes = [...]int{8, 13, 18, 23}

func (id ID) String() string { return string(id.appendText(nil)) }

func (id ID) appendText(b []byte) []byte {
	from := 0
	for _, to := range [...]int{4, 6, 8, 10} {
		b = append(hex.AppendEncode(b, id[from:to]), '-')
		from = to
	}
	return hex.AppendEncode(b, id[10:])
}

// ParseID reads the text form, which has lower case digits only.
func ParseID(s string) (ID, error) {
	if id, ok := parseID(s); ok {
		return id, nil
	}
	return ID{}, fmt.Errorf("segment id: %.40q, expected a UUID in lower case", s)
}

func parseID(s string) (id ID, ok bool) {
	if len(s) != idText {
		return ID{}, false
	}
	for _, i := range dashes {
		if s[i] != '-' {
			return ID{}, false
		}
	}
	k := 0
	for i := range id {
		if i == 4 || i == 6 || i == 8 || i == 10 {
			k++ // a dash
		}
		hi, lo := nibble(s[k]), nibble(s[k+1])
		if hi|lo > 15 {
			return ID{}, false
		}
		id[i] = hi<<4 | lo
		k += 2
	}
	return id, true
}

// nibble is the value of a lower case digit, or more than 15.
func nibble(c byte) byte {
	switch {
	case '0' <= c && c <= '9':
		return c - '0'
	case 'a' <= c && c <= 'f':
		return c - 'a' + 10
	}
	return 0xff
}

// IsData reports whether the segment has a header and records.
func (id ID) IsData() bool { return id[8]>>4 == 0xa }

// IsBulk reports whether the segment is bare bytes of long values. There may be
// ids that are of neither kind.
func (id ID) IsBulk() bool { return id[8]>>4 == 0xb }

// Compare orders ids as an index does: as two signed numbers of 64 bits.
func (id ID) Compare(other ID) int { return compareIDs(id[:], other[:]) }

func compareIDs(a, b []byte) int {
	if c := cmp.Compare(int64(binary.BigEndian.Uint64(a)), int64(binary.BigEndian.Uint64(b))); c != 0 {
		return c
	}
	return cmp.Compare(int64(binary.BigEndian.Uint64(a[8:])), int64(binary.BigEndian.Uint64(b[8:])))
}

// IDs is a list of ids, one after another as they stand in files.
type IDs []byte

// Len returns how many there are.
func (l IDs) Len() int { return len(l) / len(ID{}) }

// At returns one.
func (l IDs) At(i int) ID { return ID(l[i*len(ID{}):]) }

// All enumerates them.
func (l IDs) All() iter.Seq[ID] {
	return func(yield func(ID) bool) {
		for i := range l.Len() {
			if !yield(l.At(i)) {
				return
			}
		}
	}
}

// A Generation says which garbage collection wrote a segment.
type Generation struct {
	Gen, Full int32
	Compacted bool
}

func (g Generation) String() string {
	return fmt.Sprintf("%d,%d,%t", g.Gen, g.Full, g.Compacted)
}

// Compare orders by Gen, Full, Compacted.
func (g Generation) Compare(other Generation) int {
	c := cmp.Or(cmp.Compare(g.Gen, other.Gen), cmp.Compare(g.Full, other.Full))
	switch {
	case c != 0 || g.Compacted == other.Compacted:
		return c
	case other.Compacted:
		return -1
	}
	return 1
}
