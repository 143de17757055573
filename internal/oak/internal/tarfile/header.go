package tarfile

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"time"
)

// BlockSize is the size of headers. Everything begins at a multiple of it.
const BlockSize = 512

// MaxSegment is the maximum size of a segment.
const MaxSegment = 256 << 10

// Fields of a header. There is no magic: this is the tar of Unix version 7.
const (
	nameLen     = 100
	modeAt      = 100
	uidAt       = 108
	gidAt       = 116
	sizeAt      = 124
	mtimeAt     = 136
	checksumAt  = 148
	typeAt      = 156
	headerLen   = 157 // zeros follow
	sizeDigits  = 11
	maxOctal    = 1<<33 - 1 // what 11 digits hold
	checkDigits = 6
)

// pad returns how many zeros follow n bytes to fill the last block.
func pad[T int | int64](n T) T { return -n & (BlockSize - 1) }

type Header struct {
	Name       string // up to the first NUL; it may contain any bytes
	Size       int64
	ModTime    time.Time
	ChecksumOK bool
}

// ParseHeader parses a header block as Oak does: a field is the octal digits with which it
// begins. It only reports that the checksum is wrong, or is not written as in all tars. It
// returns an error if b is not a block, or is a block of zeros.
func ParseHeader(b []byte) (Header, error) {
	if len(b) != BlockSize {
		return Header{}, fmt.Errorf("header: %d bytes, expected %d", len(b), BlockSize)
	}
	if isZero(b) {
		return Header{}, fmt.Errorf("header: only zeros, expected a name")
	}
	stored, digits := octal(b[checksumAt:typeAt])
	size, _ := octal(b[sizeAt:mtimeAt])
	return Header{
		Name:       headerName(b),
		Size:       size,
		ModTime:    headerTime(b),
		ChecksumOK: digits == checkDigits && stored == headerSum(b) && b[typeAt-2] == 0 && b[typeAt-1] == ' ',
	}, nil
}

func headerName(b []byte) string {
	name, _, _ := bytes.Cut(b[:nameLen], []byte{0})
	return string(name)
}

func headerTime(b []byte) time.Time {
	n, _ := octal(b[mtimeAt:checksumAt])
	return time.Unix(n, 0)
}

// headerSum adds the bytes of a header, with blanks instead of its checksum.
func headerSum(b []byte) (sum int64) {
	const lanes = 0x00ff00ff00ff00ff // four sums of 16 bits, which 512 bytes do not fill
	var four uint64
	for i := 0; i < BlockSize; i += 8 {
		v := binary.LittleEndian.Uint64(b[i:])
		four += v&lanes + v>>8&lanes
	}
	for ; four > 0; four >>= 16 {
		sum += int64(four & 0xffff)
	}
	for _, c := range b[checksumAt:typeAt] {
		sum += ' ' - int64(c)
	}
	return sum
}

// octal parses the digits at the beginning of b, at most 12, so that nothing overflows.
func octal(b []byte) (v int64, digits int) {
	for _, c := range b {
		if c < '0' || c > '7' {
			break
		}
		v = v<<3 | int64(c-'0')
		digits++
	}
	return v, digits
}

// AppendHeader appends a header block. A longer name is truncated to 100 bytes. A time that does
// not fit into the field becomes the nearest one that does. It panics if the size has more than
// 11 octal digits.
func AppendHeader(b []byte, name string, size int64, mtime time.Time) []byte {
	if size < 0 || size > maxOctal {
		panic(fmt.Sprintf("tarfile: no header for a size of %d", size))
	}
	var h [BlockSize]byte
	fillHeader(&h, name, size)
	putOctal(h[mtimeAt:mtimeAt+sizeDigits], min(max(mtime.Unix(), 0), maxOctal))
	sumHeader(&h)
	return append(b, h[:]...)
}

// fillHeader sets everything except time and checksum.
func fillHeader[T string | []byte](h *[BlockSize]byte, name T, size int64) {
	copy(h[:nameLen], name)
	copy(h[modeAt:], "0000400")
	copy(h[uidAt:], "0000000")
	copy(h[gidAt:], "0000000")
	putOctal(h[sizeAt:sizeAt+sizeDigits], size)
	h[typeAt] = '0'
}

func sumHeader(h *[BlockSize]byte) {
	putOctal(h[checksumAt:checksumAt+checkDigits], headerSum(h[:]))
	h[checksumAt+checkDigits+1] = ' ' // after a NUL
}

func putOctal(b []byte, v int64) {
	for i := len(b) - 1; i >= 0; i-- {
		b[i] = '0' + byte(v&7)
		v >>= 3
	}
}

var zeros [BlockSize]byte

func isZero(b []byte) bool {
	for len(b) > len(zeros) {
		if !bytes.Equal(b[:len(zeros)], zeros[:]) {
			return false
		}
		b = b[len(zeros):]
	}
	return bytes.Equal(b, zeros[:len(b)])
}

// Magics of footers: "\n0K\n" and so on.
const (
	indexV1    = 0x0a304b0a
	indexV2    = 0x0a314b0a
	graphV1    = 0x0a30470a
	binariesV1 = 0x0a30420a
	binariesV2 = 0x0a31420a
)

const (
	footerLen  = 16
	trailerLen = 2 * BlockSize // the zeros that a tar ends with
)

// A footer is at the end of index, graph and binary references.
type footer struct {
	crc         uint32
	count, size int32
	magic       uint32
}

func parseFooter(b []byte) footer {
	b = b[len(b)-footerLen:]
	return footer{
		crc:   binary.BigEndian.Uint32(b),
		count: int32(binary.BigEndian.Uint32(b[4:])),
		size:  int32(binary.BigEndian.Uint32(b[8:])),
		magic: binary.BigEndian.Uint32(b[12:]),
	}
}

func (f footer) append(b []byte) []byte {
	b = binary.BigEndian.AppendUint32(b, f.crc)
	b = binary.BigEndian.AppendUint32(b, uint32(f.count))
	b = binary.BigEndian.AppendUint32(b, uint32(f.size))
	return binary.BigEndian.AppendUint32(b, f.magic)
}

func int32At(b []byte) int32 { return int32(binary.BigEndian.Uint32(b)) }
