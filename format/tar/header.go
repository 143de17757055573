package tar

import (
	"bytes"
	"math"
	"path"
	"strings"

	"github.com/holdall/holdall/format/internal/tarhead"
	"github.com/holdall/holdall/format/kit/naming"
)

const blockSize = tarhead.Len

// block is a header. Its fields, with their offsets, are
//
//	  0 name       100 mode  108 uid    116 gid    124 size   136 mtime
//	148 checksum   156 type  157 link   257 magic  263 version
//	265 owner      297 group 329 major  337 minor
//
// and after these, depending on the magic,
//
//	345 prefix of the name, to 500; of star's to 476, whose "tar\0" is at 508
//	345 atime  357 ctime  386 sparse map  482 it goes on  483 real size; of GNU's
type block []byte

func (b block) name() []byte  { return tarhead.Text(b[0:100]) }
func (b block) link() []byte  { return tarhead.Text(b[157:257]) }
func (b block) owner() []byte { return tarhead.Text(b[265:297]) }
func (b block) group() []byte { return tarhead.Text(b[297:329]) }

// Types of members.
const (
	typeOld       = 0 // a file or, depending on its name, a directory
	typeFile      = '0'
	typeHardLink  = '1'
	typeSymlink   = '2'
	typeChar      = '3'
	typeBlock     = '4'
	typeDir       = '5'
	typeFifo      = '6'
	typeCont      = '7'
	typeContinued = 'M' // the rest of a file that begins in another volume, by GNU tar
	typeDumpDir   = 'D' // a folder in incremental backups of GNU tar; the content is a list
	typeLongLink  = 'K'
	typeLongName  = 'L'
	typeSparse    = 'S'
	typeGlobalPax = 'g'
	typePax       = 'x'
)

// hasContent reports whether content follows a header of that type.
func hasContent(kind byte) bool { return kind < typeHardLink || kind > typeFifo }

// dialect is the variant of a header.
type dialect uint8

const (
	noDialect dialect = iota // not a header
	v7                       // without a magic number
	ustar
	star
	gnu
)

func (b block) dialect() dialect {
	if !b.checked() {
		return noDialect
	}
	switch string(b[257:263]) {
	case "ustar\x00":
		if string(b[508:512]) == "tar\x00" {
			return star
		}
		return ustar
	case "ustar ":
		if string(b[263:265]) == " \x00" {
			return gnu
		}
	}
	return v7
}

// checked compares the checksum. Some writers used signed bytes.
func (b block) checked() bool {
	want, ok := tarhead.Octal(b[148:156])
	if !ok {
		return false
	}
	sum := tarhead.Sum(b)
	if sum == want {
		return true
	}
	sum = 8 * ' '
	for i, c := range b[:blockSize] {
		if i < 148 || i >= 156 {
			sum += int64(int8(c))
		}
	}
	return sum == want
}

// prefix returns the part of a name that precedes it with a slash.
func (b block) prefix(d dialect) []byte {
	switch d {
	case ustar:
		return tarhead.Text(b[345:500])
	case star:
		return tarhead.Text(b[345:476])
	case gnu:
		if b[345] == 0 && b[357] == 0 {
			return nil
		}
		// GNU has times there. For a while a writer stored a prefix, which is one if it is not a
		// time.
		_, atime := tarhead.Number(b[345:357])
		_, ctime := tarhead.Number(b[357:369])
		if b[345] != 0 && !atime || b[357] != 0 && !ctime {
			p := tarhead.Text(b[345:500])
			if bytes.IndexFunc(p, func(r rune) bool { return r >= 0x80 }) < 0 {
				return p
			}
		}
	}
	return nil
}

// decimal parses a number of pax records and sparse maps.
func decimal(b []byte) (n int64, ok bool) {
	minus := false
	if len(b) > 1 && (b[0] == '-' || b[0] == '+') {
		minus, b = b[0] == '-', b[1:]
	}
	if len(b) == 0 {
		return 0, false
	}
	for _, c := range b {
		if c -= '0'; c > 9 || n > (math.MaxInt64-9)/10 {
			return 0, false
		}
		n = 10*n + int64(c)
	}
	if minus {
		n = -n
	}
	return n, true
}

// paxTime parses seconds with a fraction.
func paxTime(b []byte) (sec int64, nsec int32, ok bool) {
	whole, fraction, _ := bytes.Cut(b, []byte("."))
	if sec, ok = decimal(whole); !ok {
		return 0, 0, false
	}
	unit := int32(1e8)
	for _, c := range fraction {
		if c -= '0'; c > 9 {
			return 0, 0, false
		}
		nsec += unit * int32(c)
		unit /= 10
	}
	if nsec > 0 && whole[0] == '-' {
		sec, nsec = sec-1, 1e9-nsec
	}
	return sec, nsec, true
}

// plain removes the parts of a name that only mark it as relative, or as a directory.
func plain(name []byte) []byte {
	b := bytes.TrimSuffix(name, []byte("/"))
	b = bytes.TrimPrefix(b, []byte("./"))
	if isPlain(b) {
		return b // nearly all names
	}
	return []byte(cleaned(string(name)))
}

// isPlain reports whether cleaning would not change b. It returns false for names with a dot
// after a slash, which need a closer look.
func isPlain(b []byte) bool {
	last := byte('/')
	for _, c := range b {
		if last == '/' && (c == '/' || c == '.') {
			return false
		}
		last = c
	}
	return last != '/'
}

func cleaned(name string) string {
	name = strings.TrimSuffix(name, "/")
	for strings.HasPrefix(name, "./") {
		name = strings.TrimLeft(name[2:], "/")
	}
	if naming.ValidPath(path.Clean(name)) && !strings.HasPrefix(name, "/") && !strings.Contains(name, "..") {
		return path.Clean(name)
	}
	return name
}
