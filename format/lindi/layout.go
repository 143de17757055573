package lindi

import (
	"bytes"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/holdall/holdall/format/internal/tarhead"
)

// Fixed offsets from the start of the tar, through which everything else is found.
const (
	blockLen      = 512
	entryData     = blockLen             // of the content of .tar_entry.json
	entryLen      = 1024                 // with padding
	frontLen      = entryData + entryLen // where the next header may be
	terminatorLen = 2 * blockLen         // zeros at the end of the tar

	// commitLen is how much of the entry is written at once when an archive is amended: one
	// sector, which a disk writes completely or not at all.
	commitLen = blockLen
)

// Names of the archive's own members.
const (
	entryName = ".tar_entry.json"
	indexName = ".tar_index.json"
	rfsName   = "lindi.json"
	blobDir   = "blobs/"
	trashDir  = ".trash/"
)

// firstRoom is the size from which the reference pads its JSON members.
const firstRoom = 8192

// roomFor returns the size of the place for a JSON text of n bytes: doubled until it is four
// times as large, as in the reference.
func roomFor(n int64) int64 {
	room := int64(firstRoom)
	for room < 4*n {
		room *= 2
	}
	return room
}

// padded rounds n up to whole blocks.
func padded(n int64) int64 { return (n + blockLen - 1) &^ (blockLen - 1) }

// Fields of a tar header, as [begin, end).
const (
	nameEnd   = 100
	sizeAt    = 124
	sizeEnd   = 136
	timeAt    = 136
	timeEnd   = 148
	sumAt     = 148
	sumEnd    = 156
	typeAt    = 156
	magicAt   = 257
	userAt    = 265
	deviceAt  = 329
	prefixAt  = 345
	prefixEnd = 500
)

// maxSize is the largest number of eleven octal digits.
const maxSize = 8<<30 - 1

// header is a parsed tar header.
type header struct {
	name string
	size int64
	kind byte // '0' or NUL for a file, 'x' and 'g' for pax, 'L' for a GNU long name
	// ours means that the header is like those of LINDI's tools, without a time or an owner,
	// unlike those of other tars.
	ours bool
}

// isFile reports whether the header is that of a regular file.
func (h header) isFile() bool { return h.kind == '0' || h.kind == 0 || h.kind == '7' }

// parseHeader parses a block. It requires the correct magic and checksum, because it is also
// called for blocks that may not be headers.
func parseHeader(b []byte) (h header, ok bool) {
	if len(b) < blockLen || !bytes.Equal(b[magicAt:magicAt+5], []byte("ustar")) {
		return h, false
	}
	want, ok := tarhead.Octal(b[sumAt:sumEnd])
	if !ok || want != tarhead.Sum(b) {
		return h, false
	}
	size, ok := tarhead.Number(b[sizeAt:sizeEnd])
	if !ok || size < 0 || size > 1<<62 { // it is rounded up later
		return h, false
	}
	name := string(tarhead.Text(b[:nameEnd]))
	// A GNU header has other fields in place of the ustar prefix.
	if b[magicAt+5] == 0 {
		if prefix := string(tarhead.Text(b[prefixAt:prefixEnd])); prefix != "" {
			name = prefix + "/" + name
		}
	}
	h = header{name: name, size: size, kind: b[typeAt]}
	seconds, _ := tarhead.Octal(b[timeAt:timeEnd])
	h.ours = b[magicAt+5] == 0 && seconds == 0 && h.kind == '0' &&
		zero(b[userAt:prefixAt]) && string(b[100:108]) == "0000644\x00"
	return h, true
}

func zero(b []byte) bool { return len(bytes.TrimLeft(b, "\x00")) == 0 }

// splitName splits a name into the name and prefix fields of a header. The reference does not
// support the prefix, but reads members by the index; all tars support it.
func splitName(name string) (prefix, rest string, ok bool) {
	if len(name) <= nameEnd {
		return "", name, true
	}
	if len(name) > nameEnd+1+prefixEnd-prefixAt {
		return "", "", false
	}
	from := len(name) - nameEnd - 1
	for i := from; i < len(name)-1 && i <= prefixEnd-prefixAt; i++ {
		if name[i] == '/' && i > 0 {
			return name[:i], name[i+1:], true
		}
	}
	return "", "", false
}

// nameFault returns why no member can have this name, or "" if it can.
func nameFault(name string) string {
	_, _, fits := splitName(name)
	switch {
	case name == "":
		return "a member needs a name"
	case strings.IndexByte(name, 0) >= 0:
		return "a tar header cannot hold a NUL in a name"
	case !utf8.ValidString(name):
		return "the index is JSON, which cannot hold a name that is not UTF-8"
	case strings.HasSuffix(name, "/"):
		return "in a tar, a name that ends in / is a folder"
	case !fits:
		return fmt.Sprintf("the name has %d bytes: a tar header has room for 100, or for 255 with a / in the right place", len(name))
	case strings.HasPrefix(name, trashDir):
		return trashDir + " is the folder for removed members"
	case name == entryName || name == indexName:
		return "this is the name of the archive's own index"
	}
	return ""
}

// appendHeader appends the header of a member, whose name must fit.
func appendHeader(p []byte, name string, size int64) []byte {
	prefix, rest, _ := splitName(name)
	at := len(p)
	p = append(p, make([]byte, blockLen)...)
	b := p[at:]
	copy(b, rest)
	copy(b[100:], "0000644\x00")
	copy(b[108:], "0000000\x00")
	copy(b[116:], "0000000\x00")
	putOctal(b[sizeAt:sizeEnd-1], size)
	copy(b[timeAt:], "00000000000\x00")
	b[typeAt] = '0'
	copy(b[magicAt:], "ustar\x0000")
	copy(b[prefixAt:], prefix)
	putChecksum(b)
	return p
}

func putChecksum(b []byte) {
	sum := tarhead.Sum(b)
	putOctal(b[sumAt:sumEnd-2], sum)
	b[sumEnd-2], b[sumEnd-1] = 0, ' '
}

// putOctal fills b with the digits of n.
func putOctal(b []byte, n int64) {
	for i := len(b) - 1; i >= 0; i-- {
		b[i] = '0' + byte(n&7)
		n >>= 3
	}
}

// trashHeader renames a header as the reference does; the rest of it stays.
func trashHeader(b []byte, name string) {
	clear(b[:nameEnd])
	copy(b[:nameEnd], name)
	clear(b[prefixAt:prefixEnd])
	putChecksum(b)
}

// trashName returns the name of a removed member. If the reference's form,
// .trash/NAME.xxxxxxxxxx, does not fit, the beginning of the name is cut.
func trashName(name, tag string) string {
	if room := nameEnd - len(trashDir) - 1 - len(tag); len(name) > room {
		name = name[len(name)-room:]
		for name != "" && !utf8.RuneStart(name[0]) {
			name = name[1:]
		}
	}
	return trashDir + name + "." + tag
}
