package tarfile

import (
	"iter"

	"github.com/holdall/holdall/internal/oak/internal/segment"
)

// ID and Generation are those of segments.
type (
	ID         = segment.ID
	Generation = segment.Generation
)

// ParseID reads the text form of an id, which has lower case digits only.
func ParseID(s string) (ID, error) { return segment.ParseID(s) }

const idText = 36

// dashes is where a UUID has its dashes.
var dashes = [...]int{8, 13, 18, 23}

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

// compareIDs compares ids where they stand in files.
func compareIDs(a, b []byte) int { return ID(a).Compare(ID(b)) }

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
