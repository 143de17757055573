package codec

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/bits"

	"github.com/klauspost/compress/snappy"
	"github.com/klauspost/compress/zlib"
	"github.com/klauspost/compress/zstd"
)

// A record is one unit of a common encoding, followed by arbitrary bytes. Records that are stored
// at aligned offsets have padding after them, and their lengths are not stored anywhere.
const (
	ZlibRecord   = "zlib-record"   // a stream of RFC 1950
	SnappyRecord = "snappy-record" // a block, not the framing format
	ZstdRecord   = "zstd-record"   // one frame
)

func init() {
	Register(Codec{Name: ZlibRecord, Sums: true, Decode: inflaters.open, Append: appendBy(inflaters.open, inflateZlib)})
	Register(Codec{Name: SnappyRecord, Decode: decodeWith(snappyLen, appendSnappy), Append: appendSnappy})
	Register(Codec{Name: ZstdRecord, Decode: decodeZstdRecord, Append: appendZstdRecord, AppendFront: appendZstdFront})
}

// maxRecord is the largest content of a record whose size is not known and that cannot be decoded
// piece by piece.
const maxRecord = 64 << 20

var errRecordLen = errors.New("longer than 64 MiB")

var inflaters = spareReaders{
	name:  "zlib",
	begin: zlib.NewReader,
	again: func(old io.ReadCloser, r io.Reader) error { return old.(zlib.Resetter).Reset(r, nil) },
}

// makeRoom returns dst with a capacity for size more bytes, and that space.
func makeRoom(dst []byte, size int) (_, room []byte, _ error) {
	if size < 0 {
		return dst, nil, fmt.Errorf("unit size: expected 0 or more, found %d", size)
	}
	at := len(dst)
	if cap(dst)-at < size {
		grown := make([]byte, at, at+size)
		copy(grown, dst)
		dst = grown
	}
	return dst, dst[at : at+size], nil
}

// snappyLen follows the tags of a block, and returns the size of its content and where the block
// ends. It treats a copy from a distance of 0 as an error. The decoder would accept that as a tag
// of S2.
func snappyLen(b []byte) (size, end int, err error) {
	n, i := binary.Uvarint(b)
	if i <= 0 || n > maxRecord {
		return 0, 0, errors.New("snappy: invalid length")
	}
	for made := uint64(0); made < n; {
		if i >= len(b) {
			return 0, 0, fmt.Errorf("snappy: ends at byte %d of %d: %w", made, n, io.ErrUnexpectedEOF)
		}
		tag := int(b[i])
		l := tag>>2 + 1
		zero := false // a copy's distance
		switch tag & 3 {
		case 0: // a literal, whose length may be in one to four more bytes
			i++
			if k := l - 60; k > 0 {
				if i+k > len(b) {
					return 0, 0, io.ErrUnexpectedEOF
				}
				v := uint32(0)
				for j := range k {
					v |= uint32(b[i+j]) << (8 * j)
				}
				if v >= maxRecord {
					return 0, 0, errors.New("snappy: longer than its stated length")
				}
				l = int(v) + 1
				i += k
			}
			i += l
		case 1:
			l = 4 + tag>>2&7
			zero = tag>>5 == 0 && i+1 < len(b) && b[i+1] == 0
			i += 2
		case 2:
			zero = i+2 < len(b) && b[i+1]|b[i+2] == 0
			i += 3
		case 3:
			zero = i+4 < len(b) && b[i+1]|b[i+2]|b[i+3]|b[i+4] == 0
			i += 5
		}
		if zero {
			return 0, 0, errors.New("snappy: copy with offset 0")
		}
		if made += uint64(l); i > len(b) {
			return 0, 0, io.ErrUnexpectedEOF
		}
		if made > n {
			return 0, 0, errors.New("snappy: longer than its stated length")
		}
	}
	return int(n), i, nil
}

func appendSnappy(dst, stored []byte, size int) ([]byte, error) {
	n, end, err := snappyLen(stored)
	if err != nil {
		return dst, err
	}
	if n != size {
		return dst, fmt.Errorf("unit size: expected %d, found %d", size, n)
	}
	dst, room, err := makeRoom(dst, size)
	if err != nil {
		return dst, err
	}
	if _, err := snappy.Decode(room, stored[:end]); err != nil {
		return dst, err
	}
	return dst[:len(dst)+size], nil
}

// maxHeader is the longest header of a frame: magic, descriptor, window, four bytes of
// dictionary, and eight of size. zstd.HeaderMaxSize is less.
const (
	maxHeader   = 4 + 1 + 1 + 4 + 8
	blockHeader = 3
)

// zstdLen follows the blocks of a frame to its end. It returns the size of the content, or -1 if
// the frame does not state it.
func zstdLen(b []byte) (size, end int, err error) {
	var h zstd.Header
	if err := h.Decode(b[:min(len(b), maxHeader+blockHeader)]); err != nil {
		return 0, 0, zstdError(err)
	}
	if h.Skippable {
		return 0, 0, errors.New("not a zstd frame")
	}
	size = -1
	if h.HasFCS {
		if h.FrameContentSize > maxRecord {
			return 0, 0, errRecordLen
		}
		size = int(h.FrameContentSize)
	}
	for i, last := h.HeaderSize, false; !last; {
		if len(b)-i < 3 {
			return 0, 0, io.ErrUnexpectedEOF
		}
		head := [3]byte(b[i:])
		last = head[0]&1 != 0
		head[0] &^= 1
		n, err := blockLen(head)
		if err != nil {
			return 0, 0, err
		}
		i += 3 + n
		end = i
	}
	if h.HasCheckSum {
		end += 4
	}
	if end > len(b) {
		return 0, 0, io.ErrUnexpectedEOF
	}
	return size, end, nil
}

func appendZstdRecord(dst, stored []byte, size int) ([]byte, error) {
	said, end, err := zstdLen(stored)
	if err != nil {
		return dst, err
	}
	if said >= 0 && said != size {
		return dst, fmt.Errorf("unit size: expected %d, found %d", size, said)
	}
	return appendZstd(dst, stored[:end], size)
}

// zstdBlock is the largest content of a block.
const zstdBlock = 128 << 10

// appendZstdFront decodes as many blocks as usually contain want bytes. It decodes the whole
// frame if that has a checksum or shorter blocks than usual.
func appendZstdFront(dst, stored []byte, size, want int) ([]byte, error) {
	var h zstd.Header
	blocks := (want + zstdBlock - 1) / zstdBlock
	if err := h.Decode(stored[:min(len(stored), maxHeader+blockHeader)]); err != nil || h.Skippable || h.HasCheckSum ||
		!h.HasFCS || h.FrameContentSize != uint64(size) || h.DictionaryID != 0 || size > maxRecord || blocks*zstdBlock >= size {
		return appendZstdRecord(dst, stored, size)
	}
	end, last := h.HeaderSize, 0
	for range blocks {
		if len(stored)-end < blockHeader || stored[end]&1 != 0 {
			return appendZstdRecord(dst, stored, size)
		}
		n, err := blockLen([3]byte(stored[end:]))
		if err != nil || len(stored)-end-blockHeader < n {
			return appendZstdRecord(dst, stored, size)
		}
		last, end = end, end+blockHeader+n
	}
	buf := frames.Get().(*[]byte)
	defer frames.Put(buf)
	// This header has no size, and a window large enough for the whole content.
	f := append((*buf)[:0], 0x28, 0xB5, 0x2F, 0xFD, 0, byte(max(bits.Len(uint(size-1))-10, 0))<<3)
	last += len(f) - h.HeaderSize
	f = append(f, stored[h.HeaderSize:end]...)
	f[last] |= 1
	*buf = f
	at := len(dst)
	dst, room, err := makeRoom(dst, blocks*zstdBlock+slack)
	if err != nil {
		return dst, err
	}
	out, err := whole().DecodeAll(f, room[:0])
	if err != nil || len(out) < want || len(out) > len(room) {
		return appendZstdRecord(dst, stored, size)
	}
	return dst[:at+len(out)], nil
}

// decodeZstdRecord decodes one frame and ignores what follows it.
func decodeZstdRecord(r io.Reader) (io.ReadCloser, error) {
	// The decoder would take a truncated header for the end of all frames.
	head := make([]byte, 5, maxHeader)
	if _, err := io.ReadFull(r, head); err != nil {
		return nil, unexpectedEnd(err)
	}
	if binary.LittleEndian.Uint32(head) != 0xFD2FB528 {
		return nil, zstdError(zstd.ErrMagicMismatch)
	}
	// The descriptor determines the length of the rest.
	d := head[4]
	single := d&0x20 != 0
	rest := [4]int{0, 1, 2, 4}[d&3] + [4]int{0, 2, 4, 8}[d>>6]
	if !single || d>>6 == 0 {
		rest++ // a window, or a size of one byte
	}
	head = head[:5+rest]
	if _, err := io.ReadFull(r, head[5:]); err != nil {
		return nil, unexpectedEnd(err)
	}
	behind := 0
	if d&4 != 0 {
		behind = 4 // a checksum
	}
	return decodeZstd(&blockReader{r: r, next: head, whole: true, behind: behind})
}

// decodeWith returns the Decode function of an encoding that cannot be decoded piece by piece.
func decodeWith(length func([]byte) (size, end int, err error), decode func(dst, stored []byte, size int) ([]byte, error)) func(io.Reader) (io.ReadCloser, error) {
	return func(r io.Reader) (io.ReadCloser, error) {
		// Content that does not compress becomes longer, by at most this.
		const most = maxRecord + maxRecord/6 + 32
		b, err := io.ReadAll(io.LimitReader(r, most+1))
		if err != nil {
			return nil, err
		}
		if len(b) > most {
			return nil, errRecordLen
		}
		size, _, err := length(b)
		if err != nil {
			return nil, err
		}
		if b, err = decode(nil, b, size); err != nil {
			return nil, err
		}
		return io.NopCloser(bytes.NewReader(b)), nil
	}
}
