package rvn

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/cespare/xxhash/v2"
)

// Parts of zstd frames (RFC 8878).
const (
	zstdMagic      = 0xFD2FB528
	skippableMagic = 0x184D2A50 // the first of sixteen numbers
	frameHeaderLen = 6          // of the header that holdall writes
	blockHeaderLen = 3
)

// lastBlock ends a frame: an empty raw block that is marked as the last.
var lastBlock = []byte{1, 0, 0}

// frameHeader returns the header of a frame whose blocks refer back by at most 1<<windowLog
// bytes. It has no content size.
func frameHeader(windowLog int) []byte {
	return []byte{0x28, 0xB5, 0x2F, 0xFD, 0, byte((windowLog - 10) << 3)}
}

// appendSkippable appends the header of a skippable frame of n bytes.
func appendSkippable(b []byte, number uint32, n int) []byte {
	b = binary.LittleEndian.AppendUint32(b, number)
	return binary.LittleEndian.AppendUint32(b, uint32(n))
}

// skippable returns the content size of the skippable frame at the start of b, which must have at
// least eight bytes.
func skippable(b []byte) (n int64, ok bool) {
	if len(b) < 8 || binary.LittleEndian.Uint32(b)&^15 != skippableMagic {
		return 0, false
	}
	return int64(binary.LittleEndian.Uint32(b[4:])), true
}

var errNoFrame = errors.New("not a zstd frame")

const maxFrameHeader = 18

// frameInfo is a parsed frame header.
type frameInfo struct {
	len      int   // of the header
	content  int64 // -1 if it is not stated
	checksum bool
}

func parseFrame(b []byte) (frameInfo, error) {
	if len(b) < frameHeaderLen-1 || binary.LittleEndian.Uint32(b) != zstdMagic {
		return frameInfo{}, errNoFrame
	}
	d := b[4]
	single := d&0x20 != 0
	f := frameInfo{len: 5, content: -1, checksum: d&4 != 0}
	if !single {
		f.len++
	}
	f.len += []int{0, 1, 2, 4}[d&3]
	size := []int{0, 2, 4, 8}[d>>6]
	if single && size == 0 {
		size = 1
	}
	if len(b) < f.len+size {
		return frameInfo{}, errNoFrame
	}
	switch p := b[f.len:]; size {
	case 1:
		f.content = int64(p[0])
	case 2:
		f.content = int64(binary.LittleEndian.Uint16(p)) + 256
	case 4:
		f.content = int64(binary.LittleEndian.Uint32(p))
	case 8:
		if f.content = int64(binary.LittleEndian.Uint64(p)); f.content < 0 {
			return frameInfo{}, errNoFrame
		}
	}
	f.len += size
	return f, nil
}

// withChecksum adds the checksum of its content to a frame without one. Contents have digests,
// but metadata and index only have the checksum to show damage.
func withChecksum(frame, content []byte) []byte {
	frame[4] |= 4
	return binary.LittleEndian.AppendUint32(frame, uint32(xxhash.Sum64(content)))
}

// parseBlock parses the header of a block. It returns the number of bytes after it, and whether
// the block is the last.
func parseBlock(b []byte) (n int, last bool, err error) {
	if len(b) < blockHeaderLen {
		return 0, false, io.ErrUnexpectedEOF
	}
	h := uint32(b[0]) | uint32(b[1])<<8 | uint32(b[2])<<16
	n, last = int(h>>3), h&1 != 0
	switch h >> 1 & 3 {
	case 1: // one byte that is repeated
		n = 1
	case 3:
		return 0, false, errors.New("a block of a reserved type")
	}
	if n > 128<<10 {
		return 0, false, fmt.Errorf("a block of %d bytes exceeds the maximum", n)
	}
	return n, last, nil
}

// openFrame converts a frame to a section: the frame as an encoder wrote it for one run of
// content, without its header, and with no block that is marked as the last.
//
// A section may follow others within a frame if decoding it does not depend on what the decoder
// processed before:
//
//   - It copies nothing from before its beginning, because the encoder did not have it.
//   - Its first block does not repeat entropy tables, because the encoder had none to repeat.
//   - It uses no repeated offset before it has coded three of its own. An encoder assumes that
//     they begin as 1, 4 and 8, but the decoder still has those of the section before.
//
// The third is a property of the encoder that the format does not require: klauspost/compress
// uses no repeated offsets in the first three sequences of a block. compress_test.go tests that
// for the version in go.mod.
func openFrame(frame []byte) ([]byte, error) {
	f, err := parseFrame(frame)
	if err != nil {
		return nil, err
	}
	if f.checksum {
		return nil, errors.New("a section must not have a checksum")
	}
	last, end, err := walkFrame(0, within(frame))
	if err != nil {
		return nil, err
	}
	if end != int64(len(frame)) {
		return nil, fmt.Errorf("the frame of %d bytes ends at %d", len(frame), end)
	}
	frame[last] &^= 1
	return frame[f.len:], nil
}
