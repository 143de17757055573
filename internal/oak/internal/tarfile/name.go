package tarfile

import (
	"cmp"
	"encoding/hex"
	"fmt"
	"hash/crc32"
	"math"
	"regexp"
	"strconv"
	"strings"
	"sync"

	"github.com/holdall/holdall/internal/oak/internal/segment"
)

// ParseName parses the name of a tar. ok is true if Oak's reader accepts the name; it ignores
// other files. A name without a letter is treated as letter a. Oak's cleanup loses data of such a
// tar, so [Name] never makes one. A number of more than 31 bits, at which Oak fails, is not
// accepted.
func ParseName(name string) (number int, letter byte, ok bool) {
	m := tarName().FindStringSubmatch(name)
	if m == nil {
		return 0, 0, false
	}
	n, err := strconv.ParseInt(m[1], 10, 32)
	if err != nil {
		return 0, 0, false
	}
	return int(n), cmp.Or(m[2], "a")[0], true
}

// tarName has five digits, or more if the first is not 0.
var tarName = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^data([0-9]{5}|[1-9][0-9]{5,})([a-z]?)\.tar$`) })

// Name makes the name of a tar. It panics beyond 31 bits, and letters a to z.
func Name(number int, letter byte) string {
	if number < 0 || number > math.MaxInt32 || letter < 'a' || letter > 'z' {
		panic(fmt.Sprintf("tarfile: no name for number %d, letter %q", number, letter))
	}
	return fmt.Sprintf("data%05d%c.tar", number, letter)
}

// An EntryName is what the name of an entry contains about a segment.
type EntryName struct {
	ID     ID
	CRC    uint32 // of the segment
	HasCRC bool   // names without one were written long ago
}

// ParseEntryName parses "<uuid>" and "<uuid>.<crc>", both optionally followed by a dot and any
// text.
func ParseEntryName(name string) (EntryName, bool) {
	if len(name) < idText {
		return EntryName{}, false
	}
	id, err := segment.ParseID(name[:idText])
	if err != nil {
		return EntryName{}, false
	}
	e, rest := EntryName{ID: id}, name[idText:]
	if len(rest) >= 9 && rest[0] == '.' && (len(rest) == 9 || rest[9] == '.') {
		crc, err := strconv.ParseUint(rest[1:9], 16, 32)
		if err == nil && strings.ToLower(rest[1:9]) == rest[1:9] {
			e.CRC, e.HasCRC, rest = uint32(crc), true, rest[9:]
		}
	}
	// What Java's regular expressions treat as the end of a line is not part of a name.
	if rest != "" && (rest[0] != '.' || strings.ContainsAny(rest, "\n\r\u0085\u2028\u2029")) {
		return EntryName{}, false
	}
	return e, true
}

// NameIn is ParseEntryName for the name in a header, whatever else is in that.
func NameIn(header []byte) (EntryName, bool) { return ParseEntryName(headerName(header)) }

func entryName(id ID, crc uint32) string { return string(appendEntryName(nil, id, crc)) }

func appendEntryName(b []byte, id ID, crc uint32) []byte {
	b = append(id.AppendText(b), '.')
	return hex.AppendEncode(b, []byte{byte(crc >> 24), byte(crc >> 16), byte(crc >> 8), byte(crc)})
}

// checksum returns the checksum that is used for segments, index, graph and binary references.
func checksum(b []byte) uint32 { return crc32.ChecksumIEEE(b) }

// What a tar repeats of segments.
type (
	ID         = segment.ID
	IDs        = segment.IDs
	Generation = segment.Generation
)

const idText = 36

// dashes are the positions of the dashes in a UUID.
var dashes = [...]int{8, 13, 18, 23}

// compareIDs compares IDs in the form that they have in files.
func compareIDs(a, b []byte) int { return ID(a).Compare(ID(b)) }
