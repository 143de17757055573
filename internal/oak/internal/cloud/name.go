package cloud

import (
	"encoding/binary"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"sync"

	"github.com/holdall/holdall/internal/oak/internal/segment"
	"github.com/holdall/holdall/internal/oak/internal/tarfile"
	"github.com/holdall/holdall/store/storekit"
)

// Names of blobs in the folder of an archive, and suffixes that follow the archive's own name.
const (
	Closed   = "closed"
	deleted  = "deleted" // an archive that is on its way out
	Binaries = ".brf"
	Graph    = ".gph"
	Index    = ".idx"
)

// BlobName returns the name of a segment's blob in the folder of its archive.
func BlobName(number int, id segment.ID) string { return fmt.Sprintf("%04x.%s", number, id) }

// ParseBlobName parses what [BlobName] returns, and nothing else.
func ParseBlobName(name string) (number int, id segment.ID, ok bool) {
	digits, text, _ := strings.Cut(name, ".")
	n, err := strconv.ParseUint(digits, 16, 16)
	if err != nil || len(digits) != 4 || strings.ToLower(digits) != digits {
		return 0, id, false
	}
	id, err = segment.ParseID(text)
	return int(n), id, err == nil
}

// journalPart is the name of a part of the journal, which come in the order of their names.
var journalPart = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^journal\.log\.[0-9]{3,9}$`) })

func JournalPart(number int) string { return fmt.Sprintf("journal.log.%03d", number) }

func PartNumber(name string) int {
	n, _ := strconv.Atoi(name[strings.LastIndexByte(name, '.')+1:])
	return n
}

// lastEntry is the header of a part of the journal that has its last line.
const lastEntry = storekit.MetaHeader + "lastentry"

// Names of a blob's metadata. Their case is kept for readers that depend on it; stores return
// them in lower case.
const (
	metaType       = "type"
	metaUUID       = "uuid"
	metaPosition   = "position"
	metaGeneration = "generation"
	metaFull       = "fullGeneration"
	metaCompacted  = "compacted"
	metaUnproven   = "holdallUnproven" // nothing proved the segment when it was written; not of Oak
	metaPending    = "holdallPending"  // of a first segment: without its end, the archive does not count; not of Oak

	typeSegment = "segment"
)

func Metadata(number int, e tarfile.Entry, proven bool) map[string]string {
	m := map[string]string{
		storekit.MetaHeader + metaType:       typeSegment,
		storekit.MetaHeader + metaUUID:       e.ID.String(),
		storekit.MetaHeader + metaPosition:   strconv.Itoa(number),
		storekit.MetaHeader + metaGeneration: strconv.Itoa(int(e.Generation.Gen)),
		storekit.MetaHeader + metaFull:       strconv.Itoa(int(e.Generation.Full)),
		storekit.MetaHeader + metaCompacted:  strconv.FormatBool(e.Generation.Compacted),
	}
	if !proven {
		m[storekit.MetaHeader+metaUnproven] = "true"
	}
	return m
}

// parseMetadata reads the generation out of metadata, if they are those of this segment.
func parseMetadata(headers map[string]string, number int, id segment.ID) (g segment.Generation, ok bool) {
	get := func(name string) string { return headers[storekit.MetaHeader+strings.ToLower(name)] }
	gen, err := strconv.ParseInt(get(metaGeneration), 10, 32)
	full, err2 := strconv.ParseInt(get(metaFull), 10, 32)
	if err != nil || err2 != nil || gen < 0 || full < 0 ||
		get(metaType) != typeSegment || get(metaUUID) != id.String() || get(metaPosition) != strconv.Itoa(number) {
		return g, false
	}
	return segment.Generation{Gen: int32(gen), Full: int32(full), Compacted: strings.EqualFold(get(metaCompacted), "true")}, true
}

// indexRow is the length of a row of an index: ID, number, length, generation, full generation,
// compacted.
const indexRow = 33

func AppendRow(b []byte, number int, e tarfile.Entry) []byte {
	b = append(b, e.ID[:]...)
	for _, v := range [...]uint32{uint32(number), uint32(e.Len), uint32(e.Generation.Gen), uint32(e.Generation.Full)} {
		b = binary.BigEndian.AppendUint32(b, v)
	}
	if e.Generation.Compacted {
		return append(b, 1)
	}
	return append(b, 0)
}

// parseIndex calls each with the rows of an index. It skips invalid rows, and the incomplete last
// row of a truncated index.
func parseIndex(b []byte, each func(number int, e tarfile.Entry)) {
	for ; len(b) >= indexRow; b = b[indexRow:] {
		at := func(off int) int64 { return int64(int32(binary.BigEndian.Uint32(b[off:]))) }
		number, n, gen, full := at(16), at(20), at(24), at(28)
		if number < 0 || number >= tarfile.MostSegments || n < 1 || gen < 0 || full < 0 {
			continue
		}
		each(int(number), tarfile.Entry{ID: segment.ID(b[:16]), Len: int(n), Generation: segment.Generation{Gen: int32(gen), Full: int32(full), Compacted: b[32] != 0}})
	}
}
