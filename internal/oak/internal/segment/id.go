package segment

import (
	"cmp"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"iter"
	"strconv"
	"strings"
)

// An ID names a segment: a UUID, most significant byte first.
type ID [16]byte

// String returns the lower-case form in file names and in the journal.
func (id ID) String() string { return string(id.AppendText(nil)) }

func (id ID) AppendText(b []byte) []byte {
	for i, part := range [...][]byte{id[:4], id[4:6], id[6:8], id[8:10], id[10:]} {
		if i > 0 {
			b = append(b, '-')
		}
		b = hex.AppendEncode(b, part)
	}
	return b
}

func (id ID) IsData() bool { return id[8]>>4 == 0xA }

// IsBulk reports whether id names a segment of bare bytes. IDs that are neither data nor bulk are
// read like that too.
func (id ID) IsBulk() bool { return id[8]>>4 == 0xB }

// Compare orders ids as the index of a tar does: as two signed numbers of 64 bits.
func (id ID) Compare(other ID) int {
	if c := cmp.Compare(int64(binary.BigEndian.Uint64(id[:])), int64(binary.BigEndian.Uint64(other[:]))); c != 0 {
		return c
	}
	return cmp.Compare(int64(binary.BigEndian.Uint64(id[8:])), int64(binary.BigEndian.Uint64(other[8:])))
}

const idTextLen = 36

// ParseID parses what String returns, and nothing else.
func ParseID(s string) (id ID, err error) {
	if len(s) == idTextLen {
		var digits [2 * len(id)]byte
		n := 0
		for _, part := range [...]string{s[:8], s[9:13], s[14:18], s[19:23], s[24:]} {
			n += copy(digits[n:], part)
		}
		var text [idTextLen]byte
		if _, err := hex.Decode(id[:], digits[:]); err == nil && string(id.AppendText(text[:0])) == s {
			return id, nil
		}
	}
	return ID{}, fmt.Errorf("segment id: %.60q: expected 36 characters, a UUID in lower case", s)
}

// IDs is a list of IDs, one after another as in files.
type IDs []byte

func (l IDs) Len() int { return len(l) / len(ID{}) }

func (l IDs) All() iter.Seq[ID] {
	return func(yield func(ID) bool) {
		for i := 0; i+len(ID{}) <= len(l); i += len(ID{}) {
			if !yield(ID(l[i:])) {
				return
			}
		}
	}
}

// A RecordID names a record. In a segment without a record table the number is
// the record's place: that in a segment of full size with the same end.
type RecordID struct {
	Segment ID
	Number  int32
}

func (id RecordID) String() string {
	return string(strconv.AppendInt(append(id.Segment.AppendText(nil), ':'), int64(id.Number), 10))
}

var errRecordID = errors.New("expected UUID:NUMBER or UUID.HEX8")

// ParseRecordID reads "UUID:NUMBER", and "UUID.XXXXXXXX" as older journals have
// it, with the number in eight hex digits.
func ParseRecordID(s string) (RecordID, error) {
	base, form := 10, "%d"
	name, digits, ok := strings.Cut(s, ":")
	if !ok {
		base, form = 16, "%08x"
		name, digits, _ = strings.Cut(s, ".")
	}
	id, err := ParseID(name)
	n, bad := strconv.ParseUint(digits, base, 31)
	if err != nil || bad != nil || fmt.Sprintf(form, n) != digits {
		return RecordID{}, fmt.Errorf("record id: %.80q: %w", s, errRecordID)
	}
	return RecordID{id, int32(n)}, nil
}
