package sstable

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math/bits"
	"strconv"
	"strings"
)

const (
	tableMagic = 0xdb4775248b80fb57
	rocksMagic = 0x88e241b785f4cff7 // of a footer that LevelDB does not know

	footerLen       = 48 // two handles, zeros up to 40, magic u64
	blockTrailerLen = 5  // compression u8, masked crc32c u32
	trailerLen      = 8  // of an internal key: sequence<<8 | kind

	bytewise = "leveldb.BytewiseComparator"
)

// What one thing may be long, whatever a file says. dacha cannot load a block
// over 8 MiB; an index block of that length would be of a table of 1 GiB.
const (
	maxBlock    = 8 << 20
	maxIndex    = 32 << 20
	maxManifest = 64 << 20
)

// Kinds of rows; RocksDB has more.
const (
	kindDeleted = 0
	kindValue   = 1
)

// maxTrailer sorts before all other trailers of a key.
const maxTrailer = 1<<64 - 1

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// masked returns the stored form of a checksum. It ensures that the checksum of bytes that
// contain their own checksum is not a special value.
func masked(crc uint32) uint32 { return bits.RotateLeft32(crc, 17) + 0xa282ead8 }

func unmasked(crc uint32) uint32 { return bits.RotateLeft32(crc-0xa282ead8, 15) }

// Keys in files are internal: a user key and a trailer, u64 little-endian, of
// sequence number and kind. The newest row of a user key comes first.

func userKey(k []byte) []byte { return k[:len(k)-trailerLen] }

func trailer(k []byte) uint64 { return binary.LittleEndian.Uint64(k[len(k)-trailerLen:]) }

func compareInternal(a, b []byte) int {
	if c := bytes.Compare(userKey(a), userKey(b)); c != 0 {
		return c
	}
	return cmp.Compare(trailer(b), trailer(a))
}

// A handle is the place of a block, without its trailer.
type handle struct{ off, size uint64 }

// end returns where the next block can begin. Checked handles do not overflow.
func (h handle) end() uint64 { return h.off + h.size + blockTrailerLen }

func (h handle) within(n uint64) bool {
	return h.off <= n && h.size <= n-h.off && n-h.off-h.size >= blockTrailerLen
}

func appendHandle(b []byte, h handle) []byte {
	return binary.AppendUvarint(binary.AppendUvarint(b, h.off), h.size)
}

// fields reads numbers and strings until one is missing, which it records.
type fields struct {
	b   []byte
	bad bool
}

func (f *fields) number() uint64 {
	v, n := binary.Uvarint(f.b)
	if n <= 0 {
		f.bad, f.b = true, nil
		return 0
	}
	f.b = f.b[n:]
	return v
}

func (f *fields) text() []byte {
	n := f.number()
	if n > uint64(len(f.b)) {
		f.bad, f.b = true, nil
		return nil
	}
	s := f.b[:n:n]
	f.b = f.b[n:]
	return s
}

func (f *fields) handle() handle { return handle{f.number(), f.number()} }

// footer is the end of a table.
type footer struct{ meta, index handle }

// parseFooter reads the last footerLen bytes of a table of size bytes.
func parseFooter(b []byte, size int64) (footer, *Error) {
	switch m := binary.LittleEndian.Uint64(b[footerLen-8:]); m {
	case tableMagic:
	case rocksMagic:
		return footer{}, unsupportedf(footerLen-8, "footer: a table of RocksDB")
	default:
		return footer{}, corruptf(footerLen-8, "footer: magic %016x, expected %016x", m, uint64(tableMagic))
	}
	f := fields{b: b[:footerLen-8]}
	foot := footer{f.handle(), f.handle()}
	if f.bad {
		return footer{}, corruptf(0, "footer: no two block handles")
	}
	room := uint64(size - footerLen)
	if !foot.index.within(room) || !foot.meta.within(room) {
		return footer{}, corruptf(0, "footer: index %d+%d and metaindex %d+%d, expected both within %d bytes",
			foot.index.off, foot.index.size, foot.meta.off, foot.meta.size, room)
	}
	if foot.index.size > maxIndex || foot.meta.size > maxIndex {
		return footer{}, faultf(Limit, 0, "footer: index of %d bytes and metaindex of %d, expected at most %d", foot.index.size, foot.meta.size, maxIndex)
	}
	return foot, nil
}

func appendFooter(b []byte, foot footer) []byte {
	n := len(b)
	b = appendHandle(appendHandle(b, foot.meta), foot.index)
	b = append(b, make([]byte, footerLen-8-(len(b)-n))...)
	return binary.LittleEndian.AppendUint64(b, tableMagic)
}

const (
	currentName  = "CURRENT"
	lockName     = "LOCK"
	identityName = "IDENTITY"
)

func manifestName(num uint64) string { return fmt.Sprintf("MANIFEST-%06d", num) }

func logName(num uint64) string { return fmt.Sprintf("%06d.log", num) }

// tableSuffixes in the order in which they are tried.
var tableSuffixes = [...]string{".sst", ".ldb"}

func tableName(num uint64, suffix string) string { return fmt.Sprintf("%06d%s", num, suffix) }

// parseName splits the name of a log or table into its number and suffix.
func parseName(name string) (num uint64, suffix string, ok bool) {
	digits, ext, _ := strings.Cut(name, ".")
	if ext != "log" && ext != "sst" && ext != "ldb" {
		return 0, "", false
	}
	num, ok = parseNumber(digits)
	return num, "." + ext, ok
}

// parseNumber accepts only digits: no sign, no underscore.
func parseNumber(s string) (uint64, bool) {
	if s == "" || strings.Trim(s, "0123456789") != "" {
		return 0, false
	}
	n, err := strconv.ParseUint(s, 10, 64)
	return n, err == nil
}

func parseCurrent(b []byte) (string, *Error) {
	name, ok := strings.CutSuffix(string(b), "\n")
	digits, isManifest := strings.CutPrefix(name, "MANIFEST-")
	if _, isNumber := parseNumber(digits); !ok || !isManifest || !isNumber {
		return "", corruptf(0, "%q, expected the name of a manifest and a newline", b[:min(len(b), 40)])
	}
	return name, nil
}
