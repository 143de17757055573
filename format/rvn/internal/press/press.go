// Package press compresses sections: runs of bytes that become blocks of a zstd frame (RFC 8878)
// and do not depend on the blocks before them. It is for the independent parts of up to 8 MiB
// that holdall writes. For a stream or another level, use a zstd library.
//
// find.go finds repetitions in a section. parse.go selects among them, which results in literals
// and sequences. block.go, fse.go and stream.go encode these. With [NewBest], seek.go finds more
// repetitions, optimal.go selects by the sizes that price.go estimates, and split.go divides the
// section into blocks.
package press

import (
	"bytes"
	"encoding/binary"
	"slices"
)

// MaxSection is the longest run that is compressed as one section. No reference is longer, so a
// frame of sections needs no larger window.
const MaxSection = 1 << mostSectionLog

const mostSectionLog = 23

// An Encoder compresses sections, one at a time. Its tables take about four times as much memory
// as the longest section, but at most 10 MiB.
type Encoder struct {
	coder
	finder
	optimal *optimal // instead of the finder, in the slower setting
}

// New returns an encoder.
func New() *Encoder {
	return &Encoder{coder: newCoder()}
}

// NewBest returns an encoder that takes several times as long and has smaller output. Its tables
// take at most 12 MiB.
func NewBest() *Encoder {
	return &Encoder{coder: newCoder(), optimal: new(optimal)}
}

// Section appends src as zstd blocks, none of which is the last of a frame. They do not depend on
// anything before them, and are determined by src only.
func (e *Encoder) Section(dst, src []byte) []byte {
	dst, _ = e.section(dst, src)
	return dst
}

// section also returns where the last block begins.
func (e *Encoder) section(dst, src []byte) (_ []byte, last int) {
	dst = slices.Grow(dst, len(src)/4+1<<10)
	for run := range slices.Chunk(src, MaxSection) {
		e.forget(run)
		for at := 0; at < len(run); at += mostBlock {
			b := run[at:min(len(run), at+mostBlock)]
			last = len(dst)
			if len(b) > 1 && bytes.Equal(b[1:], b[:len(b)-1]) {
				dst = append(appendHeader(dst, blockRLE, len(b)), b[0])
				continue
			}
			if e.optimal == nil {
				e.parse(run, at, at+len(b))
				dst = e.block(dst, b)
			} else {
				e.parseOptimal(run, at, at+len(b))
				dst, last = e.blocks(dst, b, &e.optimal.splitter)
			}
		}
	}
	return dst, last
}

// forget readies e for a section.
func (e *Encoder) forget(src []byte) {
	e.coder.forget()
	if e.optimal == nil {
		e.finder.forget(len(src))
	} else {
		e.optimal.forget(src)
	}
}

// Frame appends src as a frame.
func (e *Encoder) Frame(dst, src []byte) []byte {
	dst = appendFrameHeader(dst, uint64(len(src)))
	if len(src) == 0 {
		return append(dst, 1, 0, 0)
	}
	dst, last := e.section(dst, src)
	dst[last] |= 1
	return dst
}

// appendFrameHeader appends the header of a frame that has its length and no
// checksum. The window of a short frame is as long as the frame.
func appendFrameHeader(dst []byte, n uint64) []byte {
	const single = 1 << 5
	dst = append(dst, 0x28, 0xB5, 0x2F, 0xFD)
	switch {
	case n < 1<<8:
		return append(dst, single, byte(n))
	case n < 1<<16+256:
		return binary.LittleEndian.AppendUint16(append(dst, 1<<6|single), uint16(n-256))
	case n <= MaxSection:
		return binary.LittleEndian.AppendUint32(append(dst, 2<<6|single), uint32(n))
	}
	return binary.LittleEndian.AppendUint64(append(dst, 3<<6, (mostSectionLog-10)<<3), n)
}
