package segment

import (
	"cmp"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"strconv"
)

// An ID names a segment: a UUID, most significant byte first.
type ID [16]byte

// String is the lower-case form that file names and the journal have.
func (id ID) String() string { return string(id.AppendText(nil)) }

// AppendText appends what String returns.
func (id ID) AppendText(b []byte) []byte {
	for i, part := range [...][]byte{id[:4], id[4:6], id[6:8], id[8:10], id[10:]} {
		if i > 0 {
			b = append(b, '-')
		}
		b = hex.AppendEncode(b, part)
	}
	return b
}

// IsData reports whether id names a segment of records.
func (id ID) IsData() bool { return id[8]>>4 == 0xA }

// IsBulk reports whether id names a segment of bare bytes. What is neither data
// nor bulk is read as bare bytes too.
func (id ID) IsBulk() bool { return id[8]>>4 == 0xB }

// Compare orders ids as the index of a tar does: as two signed numbers of 64 bits.
func (id ID) Compare(other ID) int {
	return cmp.Or(
		cmp.Compare(int64(binary.BigEndian.Uint64(id[:])), int64(binary.BigEndian.Uint64(other[:]))),
		cmp.Compare(int64(binary.BigEndian.Uint64(id[8:])), int64(binary.BigEndian.Uint64(other[8:]))))
}

const idTextLen = 36

// ParseID reads what String writes, and nothing else.
func ParseID(s string) (id ID, err error) {
	bad := func() (ID, error) {
		return ID{}, fmt.Errorf("segment id: %.60q: expected 36 characters, a UUID in lower case", s)
	}
	if len(s) != idTextLen {
		return bad()
	}
	n := 0
	for i := 0; i < idTextLen; i++ {
		switch i {
		case 8, 13, 18, 23:
			if s[i] != '-' {
				return bad()
			}
			continue
		}
		hi, lo := nibble(s[i]), nibble(s[i+1])
		if hi < 0 || lo < 0 {
			return bad()
		}
		id[n] = byte(hi<<4 | lo)
		n, i = n+1, i+1
	}
	return id, nil
}

func nibble(c byte) int {
	switch {
	case '0' <= c && c <= '9':
		return int(c - '0')
	case 'a' <= c && c <= 'f':
		return int(c-'a') + 10
	}
	return -1
}

// A RecordID names a record. In a segment without a record table the number is
// the record's place: that in a segment of full size with the same end.
type RecordID struct {
	Segment ID
	Number  int32
}

// String is the form "UUID:NUMBER".
func (id RecordID) String() string {
	return string(strconv.AppendInt(append(id.Segment.AppendText(nil), ':'), int64(id.Number), 10))
}

var errRecordID = errors.New("expected UUID:NUMBER or UUID.HEX8")

// ParseRecordID reads "UUID:NUMBER", and "UUID.XXXXXXXX" as older journals have
// it, with the number in eight hex digits.
func ParseRecordID(s string) (RecordID, error) {
	bad := func() (RecordID, error) { return RecordID{}, fmt.Errorf("record id: %.80q: %w", s, errRecordID) }
	if len(s) < idTextLen+2 {
		return bad()
	}
	id, err := ParseID(s[:idTextLen])
	if err != nil {
		return bad()
	}
	digits := s[idTextLen+1:]
	var n uint64
	switch s[idTextLen] {
	case ':':
		if digits[0] == '0' && len(digits) > 1 || len(digits) > 10 {
			return bad()
		}
		for _, c := range []byte(digits) {
			if c < '0' || c > '9' {
				return bad()
			}
			n = n*10 + uint64(c-'0')
		}
	case '.':
		if len(digits) != 8 {
			return bad()
		}
		for _, c := range []byte(digits) {
			v := nibble(c)
			if v < 0 {
				return bad()
			}
			n = n<<4 | uint64(v)
		}
	default:
		return bad()
	}
	if n > math.MaxInt32 {
		return bad()
	}
	return RecordID{id, int32(n)}, nil
}
