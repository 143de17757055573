package databundle

import (
	"encoding/binary"
	"fmt"
	"strconv"
	"strings"

	"github.com/holdall/holdall/codec"
	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/kit"
)

// Names of a bundle's objects, relative to the bundle.
const (
	indexDir    = "index"
	currentName = "index/CURRENT"
	shardPrefix = "shard-"
)

func shardName(i uint64) string { return fmt.Sprintf("%s%08d", shardPrefix, i) }

func parseShardName(name string) (uint64, bool) {
	i, err := strconv.ParseUint(strings.TrimPrefix(name, shardPrefix), 10, 64)
	return i, err == nil && shardName(i) == name
}

// indexName returns the name of the index, or of a copy of it, numbered from 1.
func indexName(copy int) string {
	if copy == 0 {
		return indexDir
	}
	return fmt.Sprintf("%s-copy-%d", indexDir, copy)
}

// mostCopies ensures that the number in a copy's name is a single digit.
const mostCopies = 9

// copyOf returns the number of the copy of the index that contains an object, or 0 if none does.
// The name is relative to the bundle.
func copyOf(name string) int {
	dir, _, ok := strings.Cut(name, "/")
	for i := 1; ok && i <= mostCopies; i++ {
		if dir == indexName(i) {
			return i
		}
	}
	return 0
}

// A shard begins with
//
//	"daBS"  u32 length of the header  u32 position of the first data byte
//
// and the header, all little-endian.
const (
	shardMagic   = "daBS"
	prefixLen    = 12
	maxHeader    = 16 << 20
	headerGuess  = 4096 // how much of a shard is read before the length of its header is known
	versionMagic = "daBundleV1"
)

const (
	defaultRecord = 256 << 10
	defaultAlign  = 4096
	// largeFile is the size of the smallest file that begins a record of its own. It is a
	// constant of the format, whatever the size of records.
	largeFile = 1 << 20
	// maxRecord is the size of the largest record that is decoded.
	maxRecord = 64 << 20
)

// methods are the compressions of records, with their decoders, the functions that measure a
// record, and the levels.
var methods = map[compression]struct {
	name, codec   string
	length        func([]byte) (size, stored int, err error)
	usual, levels int
}{
	none:   {"none", codec.Raw, nil, 0, 0},
	snappy: {"snappy", codec.SnappyRecord, codec.SnappyRecordLen, 0, 0},
	zlib:   {"zlib", codec.ZlibRecord, codec.ZlibRecordLen, 6, 9},
	zstd:   {"zstd", codec.ZstdRecord, codec.ZstdRecordLen, 3, 22},
}

// mostStored returns the largest compressed size of n bytes. Anything after that is not part of
// the record.
func mostStored(n int64) int64 { return n + n/6 + 1024 }

func roundUp(n, align int64) int64 {
	if align <= 1 {
		return n
	}
	if r := n % align; r != 0 {
		n += align - r
	}
	return n
}

// parsePrefix parses the first bytes of a shard.
func parsePrefix(b []byte) (headerLen, dataOff int64, ok bool) {
	if len(b) < prefixLen || string(b[:4]) != shardMagic {
		return 0, 0, false
	}
	return int64(binary.LittleEndian.Uint32(b[4:])), int64(binary.LittleEndian.Uint32(b[8:])), true
}

// Classes of faults, and their general codes.
const (
	notABundle   = "not-a-bundle"
	badConfig    = "config-invalid"
	indexCorrupt = "index-corrupt"
	indexForeign = "index-unsupported"
	indexTorn    = "index-torn"
	indexLimit   = "index-limit"
	badMetadata  = "metadata-invalid"
	shardMissing = "shard-missing"
	badShard     = "shard-header"
	shardShort   = "shard-truncated"
	recordBounds = "record-bounds"
	recordLarge  = "record-too-large"
	badMethod    = "unsupported-compression"
	slashInName  = "name-slash"

	// These do not prevent reading.
	doubleName  = "duplicate-name"
	fileAsDir   = "name-conflict"
	lostLink    = "dangling-link"
	overlapping = "overlap"
	orphan      = "orphan"
	oddConfig   = "config-odd"
	strangeRow  = "unknown-table"
	badCopy     = "index-copy"
)

var codes = map[string]format.Code{
	notABundle:   format.MissingIndex,
	badConfig:    format.BadHeader,
	indexCorrupt: format.BadIndex,
	indexForeign: format.Unsupported,
	indexTorn:    format.Truncated,
	indexLimit:   format.Limit,
	badMetadata:  format.BadIndex,
	shardMissing: format.MissingVolume,
	badShard:     format.BadHeader,
	shardShort:   format.Truncated,
	recordBounds: format.OutOfBounds,
	recordLarge:  format.Limit,
	badMethod:    format.Unsupported,
	slashInName:  format.UnsafePath,

	doubleName: format.Duplicate, fileAsDir: format.Overlap, lostLink: format.Dangling, overlapping: format.Overlap,
	orphan: format.Gap, oddConfig: format.BadHeader, strangeRow: format.BadIndex, badCopy: format.BadIndex,
}

// fault returns a CorruptError.
var fault = kit.Classes{Format: "databundle", Codes: codes}.Fault

// of sets the entry of a fault.
func of(e *format.CorruptError, name string) *format.CorruptError {
	c := *e
	c.Entry, c.HasEntry = name, true
	return &c
}
