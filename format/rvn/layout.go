package rvn

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"github.com/holdall/holdall/internal/base/blake3"
)

const (
	headerLen = 64
	recordLen = 64
	blockLen  = 32 // block size of names, links, owners and groups

	// version is what writers store; readers ignore it.
	version = 3

	// singleCall is the uncompressed size up to which the reference decodes a block with one
	// call. For the index it is the compressed size.
	singleCall = 256 << 10
	// maxStackIndex is the size of the index that the reference can decode with one call. It uses
	// a stack of 8 MiB, and failed from 4.16 MB on.
	maxStackIndex = 4_000_000
	// maxMetadata is the largest metadata that readers accept.
	maxMetadata = 512 << 10
)

var magic = [3]byte{200, 100, 50}

// header is block 1, as stored.
type header struct {
	Magic      [3]byte
	Version    uint8
	Groups     uint16
	Owners     uint16
	LinkBlocks uint32
	Files      uint32
	MetaComp   uint32
	IndexComp  uint32
	ArcComp    uint32
	NameBlocks uint32
	MetaFlat   uint32
	IndexFlat  uint32
	ArcFlat    uint64
	Unused     [4]uint32
}

// parseHeader parses b, which has headerLen bytes. It reports whether the header has the other
// byte order.
func parseHeader(b []byte) (_ header, swapped bool) {
	var h, s header
	binary.Decode(b, binary.LittleEndian, &h)
	binary.Decode(b, binary.BigEndian, &s)
	if h.flatByCounts() != int64(h.IndexFlat) && s.flatByCounts() == int64(s.IndexFlat) && s.IndexFlat != 0 {
		return s, true
	}
	return h, false
}

func (h header) append(b []byte) []byte {
	b, _ = binary.Append(b, binary.LittleEndian, h)
	return b
}

// flatByCounts returns the uncompressed size of the index according to the counts.
func (h header) flatByCounts() int64 {
	return blockLen*(int64(h.Groups)+int64(h.Owners)+int64(h.LinkBlocks)+int64(h.NameBlocks)) + recordLen*int64(h.Files)
}

func (h header) indexOff() int64    { return headerLen + int64(h.MetaComp) }
func (h header) contentsOff() int64 { return h.indexOff() + int64(h.IndexComp) }

type recordType uint8

const (
	typeDir recordType = iota
	typeFile
	typeSymlink
	typeHardLink
	typeFifo
	typeCount // this and higher values are never written
)

// record is 64 bytes of the index.
type record []byte

func (r record) digest() []byte   { return r[:32] }
func (r record) seconds() uint64  { return binary.LittleEndian.Uint64(r[32:]) }
func (r record) nanos() uint32    { return binary.LittleEndian.Uint32(r[40:]) }
func (r record) owner() int       { return int(r[44]) }
func (r record) group() int       { return int(r[45]) }
func (r record) kind() recordType { return recordType(r[46]) }
func (r record) mode() uint16     { return binary.LittleEndian.Uint16(r[52:]) }
func (r record) linkLen() int     { return int(binary.LittleEndian.Uint16(r[54:])) }
func (r record) parent() int      { return int(binary.LittleEndian.Uint16(r[56:])) }
func (r record) dirID() int       { return int(binary.LittleEndian.Uint16(r[58:])) }
func (r record) nameLen() int     { return int(r[60]) }
func (r record) sizeField() int64 {
	return int64(r[47])<<32 | int64(binary.LittleEndian.Uint32(r[48:]))
}
func (r record) hasDigest() bool { return !bytes.Equal(r.digest(), zeroDigest[:]) }

var zeroDigest [32]byte

// size returns the number of bytes of block 4 that belong to the record.
func (r record) size() int64 {
	if r.kind() != typeFile {
		return 0
	}
	return r.sizeField()
}

const maxFileSize = 1<<40 - 1

// pad pads b with zeros to whole blocks.
func pad(b []byte) []byte { return append(b, make([]byte, -len(b)&(blockLen-1))...) }

// section is a run of block 4 that can be decoded separately: the uncompressed bytes [flat,
// next.flat) are encoded in the zstd blocks [comp, next.comp). The last element of a table is the
// end, and not a section.
type section struct {
	flat int64
	comp int64 // from the beginning of block 4
}

const (
	sectionLen = 12
	// maxSection limits what must be decoded at once.
	maxSection = 8 << 20
)

// tableMagic is the beginning of holdall's skippable frame; its last byte is the version. It is
// followed by the BLAKE3 of the rest: 12 bytes for each section.
var tableMagic = []byte("RVNSECT\x01")

// tableFrame is the number of the skippable frame, one of sixteen.
const tableFrame = 0x184D2A5E

func appendTable(b []byte, sections []section) []byte {
	rows := make([]byte, 0, len(sections)*sectionLen)
	for _, s := range sections {
		rows = binary.LittleEndian.AppendUint64(rows, uint64(s.flat))
		rows = binary.LittleEndian.AppendUint32(rows, uint32(s.comp))
	}
	sum := blake3.Sum256(rows)
	b = appendSkippable(b, tableFrame, len(tableMagic)+len(sum)+len(rows))
	b = append(b, tableMagic...)
	b = append(b, sum[:]...)
	return append(b, rows...)
}

// parseTable parses the content of a skippable frame. It returns nil and no error if it is not a
// section table. A table is holdall's, or bare rows as other programs write them, which only
// their numbers identify.
func parseTable(b []byte) ([]section, error) {
	ours := bytes.HasPrefix(b, tableMagic)
	if ours {
		b = b[len(tableMagic):]
		if len(b) < 32 {
			return nil, fmt.Errorf("%d bytes are too short for a digest and rows", len(b))
		}
		if sum := blake3.Sum256(b[32:]); !bytes.Equal(sum[:], b[:32]) {
			return nil, fmt.Errorf("its digest does not match")
		}
		b = b[32:]
	}
	if len(b)%sectionLen != 0 || len(b) < 2*sectionLen {
		if ours {
			return nil, fmt.Errorf("%d bytes are not whole rows", len(b))
		}
		return nil, nil
	}
	if !ours && (binary.LittleEndian.Uint64(b) != 0 || binary.LittleEndian.Uint32(b[8:]) != frameHeaderLen) {
		return nil, nil
	}
	sections := make([]section, 0, len(b)/sectionLen)
	for ; len(b) > 0; b = b[sectionLen:] {
		s := section{flat: int64(binary.LittleEndian.Uint64(b)), comp: int64(binary.LittleEndian.Uint32(b[8:]))}
		if n := len(sections); n > 0 {
			last := sections[n-1]
			if s.flat <= last.flat || s.comp <= last.comp || s.flat-last.flat > maxSection {
				return nil, fmt.Errorf("section %d ends at %d in %d, after %d in %d", n-1, s.flat, s.comp, last.flat, last.comp)
			}
			// A section cannot be larger than its uncompressed bytes and the headers of their
			// blocks.
			if most := sectionBound(s.flat - last.flat); s.comp-last.comp > most {
				return nil, fmt.Errorf("section %d has %d bytes, more than the maximum of %d", n-1, s.comp-last.comp, most)
			}
		} else if s.flat != 0 || s.comp < frameHeaderLen {
			return nil, fmt.Errorf("the first section begins at %d in %d", s.flat, s.comp)
		}
		sections = append(sections, s)
	}
	return sections, nil
}

// sectionBound returns the largest size of a section with that many uncompressed bytes: all
// stored raw, in blocks that may have only 1 KiB.
func sectionBound(flat int64) int64 { return flat + 3*(flat>>10) + 64 }
