package zip

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/holdall/holdall/codec"
	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/kit"
)

const (
	localMagic   = "PK\x03\x04"
	rowMagic     = "PK\x01\x02"
	behindMagic  = "PK\x07\x08"
	endMagic     = "PK\x05\x06"
	end64Magic   = "PK\x06\x06"
	locatorMagic = "PK\x06\x07"

	localLen   = 30
	rowLen     = 46
	endLen     = 22
	end64Len   = 56
	locatorLen = 20
	maxComment = math.MaxUint16
)

// Compression methods.
const (
	stored   = 0
	deflated = 8
	lzma     = 14
	zstd     = 93
)

// methods are the supported methods with their codecs; unread are others.
var (
	methods = map[uint16]string{stored: codec.Raw, deflated: codec.Deflate, 12: codec.Bzip2, lzma: codec.LZMA, zstd: codec.Zstd, 95: codec.XZPlain}
	unread  = map[uint16]string{1: "Shrink", 6: "Implode", 9: "Deflate64", 98: "PPMd"}
)

// Flags of an entry.
const (
	flagEncrypted = 1 << 0
	flagMarked    = 1 << 1 // LZMA with an end marker
	flagBehind    = 1 << 3 // sizes and crc32 follow the content
	flagUTF8      = 1 << 11
)

// Extra fields.
const (
	extra64    = 0x0001
	extraNTFS  = 0x000a
	extraTime  = 0x5455
	extraName  = 0x7075
	extraOwner = 0x7875
	extraAES   = 0x9901
)

// Systems, in the high byte of the version. Unix and macOS have Unix permissions; the others use
// backslashes.
const (
	madeByDOS   = 0
	madeByUnix  = 3
	madeByNTFS  = 10
	madeByMacOS = 19
)

var errShort = errors.New("ends within an entry")

// findEnd returns the position in tail where the end record begins, or -1. A record of an empty
// archive counts only if there is no other, because a comment may contain the magic number.
func findEnd(tail []byte) int {
	empty := -1
	for at := len(tail) - endLen; at >= 0 && at >= len(tail)-endLen-maxComment; at-- {
		if at = bytes.LastIndex(tail[:at+len(endMagic)], []byte(endMagic)); at < 0 {
			break
		}
		// A comment follows, and nothing else, except zeros from some writers.
		comment := int(binary.LittleEndian.Uint16(tail[at+20:]))
		if rest := tail[at+endLen:]; comment > len(rest) || len(bytes.Trim(rest[comment:], "\x00")) > 0 {
			continue
		}
		if parseEnd(tail[at:]) != (end{}) {
			return at
		}
		empty = max(empty, at)
	}
	return empty
}

// findOdd is like findEnd if something follows the end record, or a part of its comment is
// missing. The last record counts whose directory fits before it. tail begins at off.
func findOdd(tail []byte, off int64) int {
	for at := len(tail); at >= 0; {
		if at = bytes.LastIndex(tail[:at], []byte(endMagic)); at < 0 || at+endLen > len(tail) {
			continue
		}
		e, pos := parseEnd(tail[at:]), uint64(off)+uint64(at)
		if e.long || e.size <= pos && e.off <= pos-e.size && e.count <= e.size/rowLen {
			return at
		}
	}
	return -1
}

// end is the end record of an archive.
type end struct {
	count, size, off uint64
	long             bool // the rest may be in a longer record
	comment          string
	// disk is the number of the last part of a split archive, from 0, and start that of the part in
	// which the directory begins.
	disk, start uint64
}

func parseEnd(b []byte) end {
	e := end{count: uint64(binary.LittleEndian.Uint16(b[10:])), size: uint64(binary.LittleEndian.Uint32(b[12:])), off: uint64(binary.LittleEndian.Uint32(b[16:]))}
	e.disk, e.start = uint64(binary.LittleEndian.Uint16(b[4:])), uint64(binary.LittleEndian.Uint16(b[6:]))
	e.long = e.count == math.MaxUint16 || e.size == math.MaxUint32 || e.off == math.MaxUint32 || e.disk == math.MaxUint16 || e.start == math.MaxUint16
	return e
}

// parseLocator returns in which part the longer end record begins, and where in it, and the number of
// parts.
func parseLocator(b []byte) (part, off uint64, parts uint32, ok bool) {
	le := binary.LittleEndian
	return uint64(le.Uint32(b[4:])), le.Uint64(b[8:]), le.Uint32(b[16:]), string(b[:4]) == locatorMagic
}

func parseEnd64(b []byte) (end, bool) {
	le := binary.LittleEndian
	return end{count: le.Uint64(b[32:]), size: le.Uint64(b[40:]), off: le.Uint64(b[48:]), disk: uint64(le.Uint32(b[16:])), start: uint64(le.Uint32(b[20:]))},
		string(b[:4]) == end64Magic
}

// row is an entry of the directory.
type row struct {
	name     string
	maker    byte
	flags    uint16
	method   uint16
	crc      uint32
	stored   uint64 // stored size
	size     uint64
	off      uint64 // offset of its header
	part     uint32 // of a split archive: where its header is
	external uint32
	time     time.Time
	owner    string
	group    string
	renamed  bool // by an extra field
	// An encrypted entry has these: the known byte of ZipCrypto, or the strength and version of AES and
	// the method that it hides.
	known    byte
	strength int
	version  int
	hidden   uint16
}

// parseRow parses the row at the start of b, and returns its length, which is 0 if b is too
// short. If decode is nil, a name without a stated encoding is in code page 437 if its system has it.
func parseRow(b []byte, decode func(string) string) (r row, n int, err error) {
	if len(b) < rowLen {
		return r, 0, nil
	}
	if string(b[:4]) != rowMagic {
		return r, 0, fmt.Errorf("begins with %x, expected %x", b[:4], rowMagic)
	}
	le := binary.LittleEndian
	name, extra, comment := int(le.Uint16(b[28:])), int(le.Uint16(b[30:])), int(le.Uint16(b[32:]))
	if n = rowLen + name + extra + comment; n > len(b) {
		return r, 0, nil
	}
	r = row{
		name: string(b[rowLen:][:name]), maker: b[5], flags: le.Uint16(b[8:]), method: le.Uint16(b[10:]), crc: le.Uint32(b[16:]),
		stored: uint64(le.Uint32(b[20:])), size: uint64(le.Uint32(b[24:])), off: uint64(le.Uint32(b[42:])), part: uint32(le.Uint16(b[34:])), external: le.Uint32(b[38:]),
		time: dosTime(le.Uint16(b[14:]), le.Uint16(b[12:])), known: b[19],
	}
	if r.flags&flagBehind != 0 {
		r.known = b[13] // the checksum was not known
	}
	err = r.extra(b[rowLen+name:][:extra])
	if r.flags&flagUTF8 == 0 && !r.renamed && decode != nil {
		r.name = decode(r.name)
	} else if r.flags&flagUTF8 == 0 && !r.renamed && r.maker != madeByUnix && r.maker != madeByMacOS && !utf8.ValidString(r.name) {
		r.name = fromDOS(r.name)
	}
	if (r.maker == madeByDOS || r.maker == madeByNTFS) && strings.IndexByte(r.name, '/') < 0 {
		r.name = strings.ReplaceAll(r.name, `\`, "/") // some writers use backslashes
	}
	if err == nil && (r.stored > math.MaxInt64/4 || r.size > math.MaxInt64/4 || r.off > math.MaxInt64/4) {
		err = fmt.Errorf("sizes %d and %d or offset %d exceed the maximum", r.stored, r.size, r.off)
	}
	return r, n, err
}

// extra parses extra fields.
func (r *row) extra(b []byte) error {
	for len(b) >= 4 {
		id, n := binary.LittleEndian.Uint16(b), int(binary.LittleEndian.Uint16(b[2:]))
		if b = b[4:]; n > len(b) {
			return nil // as in other programs
		}
		f := b[:n]
		b = b[n:]
		switch {
		case id == extra64:
			for _, to := range []*uint64{&r.size, &r.stored, &r.off} {
				if *to != math.MaxUint32 {
					continue
				}
				if len(f) < 8 {
					return errors.New("missing size")
				}
				*to, f = binary.LittleEndian.Uint64(f), f[8:]
			}
			if r.part == math.MaxUint16 && len(f) >= 4 {
				r.part = binary.LittleEndian.Uint32(f)
			}
		case id == extraTime && n >= 5 && f[0]&1 != 0:
			r.time = time.Unix(int64(int32(binary.LittleEndian.Uint32(f[1:]))), 0).UTC()
		case id == extraNTFS && n >= 32 && binary.LittleEndian.Uint32(f[4:]) == 24<<16|1:
			if t := ntfsTime(binary.LittleEndian.Uint64(f[8:])); !t.IsZero() {
				r.time = t
			}
		case id == extraName && n > 5 && f[0] == 1 && r.flags&flagUTF8 == 0 && binary.LittleEndian.Uint32(f[1:]) == crc32.ChecksumIEEE([]byte(r.name)):
			r.name, r.renamed = string(f[5:]), true // unless another program renamed it and left this field
		case id == extraAES && n >= 7 && r.method == aesMethod:
			r.version, r.strength, r.hidden = int(f[0]), int(f[4]), binary.LittleEndian.Uint16(f[5:])
		case id == extraOwner && n >= 3 && f[0] == 1:
			if uid, rest, ok := sizedNumber(f[1:]); ok {
				if gid, _, ok := sizedNumber(rest); ok {
					r.owner, r.group = strconv.FormatUint(uid, 10), strconv.FormatUint(gid, 10)
				}
			}
		}
	}
	return nil
}

// beyondASCII has the characters of code page 437, of the first PCs, from 0x80 on. Names without
// a stated encoding use it, unless they come from a system that does not have it.
var beyondASCII = []rune("ÇüéâäàåçêëèïîìÄÅÉæÆôöòûùÿÖÜ¢£¥₧ƒáíóúñÑªº¿⌐¬½¼¡«»░▒▓│┤╡╢╖╕╣║╗╝╜╛┐└┴┬├─┼╞╟╚╔╩╦╠═╬╧╨╤╥╙╘╒╓╫╪┘┌█▄▌▐▀αßΓπΣσµτΦΘΩδ∞φε∩≡±≥≤⌠⌡÷≈°∙·√ⁿ²■\u00a0")

func fromDOS(name string) string {
	b := make([]byte, 0, 2*len(name))
	for i := range len(name) {
		if c := name[i]; c < utf8.RuneSelf {
			b = append(b, c)
		} else {
			b = utf8.AppendRune(b, beyondASCII[c-utf8.RuneSelf])
		}
	}
	return string(b)
}

// sizedNumber parses a number that is preceded by its length.
func sizedNumber(b []byte) (n uint64, rest []byte, ok bool) {
	if len(b) == 0 || int(b[0]) > len(b)-1 || b[0] > 8 {
		return 0, nil, false
	}
	for i := range int(b[0]) {
		n |= uint64(b[1+i]) << (8 * i)
	}
	return n, b[1+b[0]:], true
}

// dosTime converts a time with a resolution of two seconds and no time zone, which is taken as
// UTC.
func dosTime(date, clock uint16) time.Time {
	if date == 0 {
		return time.Time{}
	}
	return time.Date(1980+int(date>>9), time.Month(date>>5&15), int(date&31), int(clock>>11), int(clock>>5&63), int(clock&31)*2, 0, time.UTC)
}

// dosClock is the inverse of dosTime.
func dosClock(t time.Time) (date, clock uint16) {
	t = t.UTC()
	if t.Year() < 1980 || t.Year() > 2107 {
		return 1<<5 | 1, 0 // the first possible day
	}
	return uint16((t.Year()-1980)<<9 | int(t.Month())<<5 | t.Day()), uint16(t.Hour()<<11 | t.Minute()<<5 | t.Second()/2)
}

// Windows counts units of 100 ns from 1601.
const ntfsEpoch = -11644473600

func ntfsTime(n uint64) time.Time {
	if n == 0 || n > math.MaxInt64 {
		return time.Time{}
	}
	return time.Unix(int64(n/1e7)+ntfsEpoch, int64(n%1e7)*100).UTC()
}

// mode returns the entry's mode, depending on the system that wrote it.
func (r *row) mode() (m fs.FileMode, known bool) {
	if r.maker != madeByUnix && r.maker != madeByMacOS || r.external>>16 == 0 {
		return 0, false
	}
	sys := r.external >> 16
	m = kit.ModeOfUnix(sys)
	switch sys & 0o170000 {
	case unixDir:
		m |= fs.ModeDir
	case unixLink:
		m |= fs.ModeSymlink
	case 0, unixFile, unixPipe: // a pipe is what "zip - -" writes of its standard input
	default:
		m |= fs.ModeIrregular
	}
	return m, true
}

const (
	unixFile = 0o100000
	unixDir  = 0o040000
	unixPipe = 0o010000
	unixLink = 0o120000
)

// dosDir is the bit of the attributes of MS-DOS that makes an entry a folder.
const dosDir = 0x10

// unixMode returns the mode of an entry as Unix bits.
func unixMode(e format.Entry) uint32 {
	m := kit.UnixMode(e.Mode)
	switch {
	case e.Kind == format.Symlink && !e.HasMode:
		return unixLink | 0o777
	case e.Kind == format.Symlink:
		return unixLink | m
	case !e.HasMode && e.Kind == format.Dir:
		return unixDir | 0o755
	case !e.HasMode:
		return unixFile | 0o644
	case e.Kind == format.Dir:
		return unixDir | m
	}
	return unixFile | m
}

// parseLocal returns the length of the header before a content.
func parseLocal(b []byte) (n int64, ok bool) {
	return localLen + int64(binary.LittleEndian.Uint16(b[26:])) + int64(binary.LittleEndian.Uint16(b[28:])), string(b[:4]) == localMagic
}

// appendLocal appends the header before a content. If sizes follow the content, they have 64
// bits, which the extra field for long sizes announces.
func (r *row) appendLocal(b []byte) []byte {
	le := binary.LittleEndian
	date, clock := dosClock(r.time)
	version, extra := uint16(20), r.timeExtra()
	size, packed := uint32(r.size), uint32(r.stored)
	if r.size >= math.MaxUint32 || r.stored >= math.MaxUint32 || r.flags&flagBehind != 0 {
		version, size, packed = 45, math.MaxUint32, math.MaxUint32
		extra = le.AppendUint16(le.AppendUint16(extra, extra64), 16)
		extra = le.AppendUint64(le.AppendUint64(extra, r.size), r.stored)
	}
	b = append(b, localMagic...)
	for _, v := range []uint16{version, r.flags, r.method, clock, date} {
		b = le.AppendUint16(b, v)
	}
	for _, v := range []uint32{r.crc, packed, size} {
		b = le.AppendUint32(b, v)
	}
	b = le.AppendUint16(le.AppendUint16(b, uint16(len(r.name))), uint16(len(extra)))
	return append(append(b, r.name...), extra...)
}

// append appends the row.
func (r *row) append(b []byte) []byte {
	le := binary.LittleEndian
	date, clock := dosClock(r.time)
	version, extra := uint16(20), r.timeExtra()
	short := func(v uint64) uint32 { return uint32(min(v, math.MaxUint32)) }
	var long []byte
	for _, v := range []uint64{r.size, r.stored, r.off} {
		if v >= math.MaxUint32 {
			long = le.AppendUint64(long, v)
		}
	}
	if long != nil {
		version = 45
		extra = le.AppendUint16(le.AppendUint16(extra, extra64), uint16(len(long)))
		extra = append(extra, long...)
	}
	b = append(b, rowMagic...)
	for _, v := range []uint16{uint16(r.maker)<<8 | version, version, r.flags, r.method, clock, date} {
		b = le.AppendUint16(b, v)
	}
	for _, v := range []uint32{r.crc, short(r.stored), short(r.size)} {
		b = le.AppendUint32(b, v)
	}
	for _, v := range []int{len(r.name), len(extra), 0, 0, 0} { // comment, disk, internal attributes
		b = le.AppendUint16(b, uint16(v))
	}
	b = le.AppendUint32(le.AppendUint32(b, r.external), short(r.off))
	return append(append(b, r.name...), extra...)
}

// timeExtra returns the time in extra fields with a defined time zone.
func (r *row) timeExtra() (b []byte) {
	if r.time.IsZero() {
		return nil
	}
	le := binary.LittleEndian
	sec := r.time.Unix()
	if sec >= math.MinInt32 && sec <= math.MaxInt32 {
		b = le.AppendUint16(le.AppendUint16(b, extraTime), 5)
		b = le.AppendUint32(append(b, 1), uint32(sec))
	}
	if n := sec - ntfsEpoch; n > 0 && n < math.MaxInt64/10_000_000 && (b == nil || r.time.Nanosecond() >= 100) {
		v := uint64(n)*10_000_000 + uint64(r.time.Nanosecond()/100)
		b = le.AppendUint16(le.AppendUint16(b, extraNTFS), 32)
		b = le.AppendUint16(le.AppendUint16(append(b, 0, 0, 0, 0), 1), 24)
		b = le.AppendUint64(le.AppendUint64(le.AppendUint64(b, v), v), v)
	}
	return b
}

// storedTime is the time that a reader finds in an archive for t.
func storedTime(t time.Time) time.Time {
	written, read := row{time: t}, row{time: dosTime(dosClock(t))}
	if read.extra(written.timeExtra()) != nil {
		return time.Time{}
	}
	return read.time
}

// appendEnd appends the end of an archive whose directory is at off.
func appendEnd(b []byte, e end) []byte {
	le := binary.LittleEndian
	if e.count >= math.MaxUint16 || e.size >= math.MaxUint32 || e.off >= math.MaxUint32 {
		b = le.AppendUint64(append(b, end64Magic...), end64Len-12)
		b = le.AppendUint16(le.AppendUint16(b, madeByUnix<<8|45), 45)
		b = le.AppendUint64(b, 0) // disks
		for _, v := range []uint64{e.count, e.count, e.size, e.off} {
			b = le.AppendUint64(b, v)
		}
		b = le.AppendUint32(append(b, locatorMagic...), 0)
		b = le.AppendUint32(le.AppendUint64(b, e.off+e.size), 1)
	}
	count := uint16(min(e.count, math.MaxUint16))
	b = le.AppendUint32(append(b, endMagic...), 0)
	b = le.AppendUint16(le.AppendUint16(b, count), count)
	b = le.AppendUint32(le.AppendUint32(b, uint32(min(e.size, math.MaxUint32))), uint32(min(e.off, math.MaxUint32)))
	return append(le.AppendUint16(b, uint16(len(e.comment))), e.comment...)
}
