package codec

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"sync"

	"github.com/klauspost/compress/zstd"
)

// Zstd content is one or more zstd frames; skippable ones may stand among them.
//
// ZstdBlocks content is the blocks of a zstd frame without its header and
// without a last block: a part of a longer frame that does not depend on what
// precedes it. Its blocks refer back by at most 8 MiB.
const (
	Zstd       = "zstd"
	ZstdBlocks = "zstd-blocks"
)

func init() {
	Register(Codec{Name: Zstd, Decode: decodeZstd, Append: appendZstd})
	Register(Codec{Name: ZstdBlocks, Decode: decodeBlocks, Append: appendBlocks})
}

// maxWindow is how much of what was decoded a frame may refer back to, and so
// what a stream takes in memory: as much as the zstd command allows.
const maxWindow = 128 << 20

var (
	// ErrWindow means that a frame refers back further than a decoder remembers.
	ErrWindow = errors.New("refers back by more than 128 MiB")
	// ErrChecksum means that some of what was decoded is wrong, wherever it is.
	ErrChecksum = errors.New("checksum does not match")
)

var (
	// blocksHeader is a frame header that says nothing but a window of 8 MiB.
	blocksHeader = []byte{0x28, 0xB5, 0x2F, 0xFD, 0, (23 - 10) << 3}
	lastBlock    = []byte{1, 0, 0}
)

// newDecoder returns a decoder that has the limits of this package.
func newDecoder(o ...zstd.DOption) *zstd.Decoder {
	d, err := zstd.NewReader(nil, append(o, zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(maxWindow))...)
	if err != nil {
		panic("codec: " + err.Error())
	}
	return d
}

// streams are decoders that nobody uses. They decode a block at a time: those
// that have several under way hand out, where a block cannot be decoded, what
// their memory of it held before, which may be of another archive.
var streams = sync.Pool{New: func() any {
	return newDecoder(zstd.WithDecoderConcurrency(1), zstd.WithDecodeBuffersBelow(0))
}}

// ahead is how many blocks are decoded before somebody asks for them, beside
// whoever takes them: that is half as fast again.
const ahead = 4

// stream is a decoder in use.
type stream struct {
	d     *zstd.Decoder
	full  chan []byte // closed when all is decoded, or err is set
	empty chan []byte // closed by Close
	err   error
	now   []byte
	left  []byte // of now
}

var errClosed = errors.New("zstd: read after close")

func decodeZstd(r io.Reader) (io.ReadCloser, error) {
	d := streams.Get().(*zstd.Decoder)
	if err := d.Reset(r); err != nil {
		return nil, err
	}
	return &stream{d: d}, nil
}

func (s *stream) Read(p []byte) (int, error) {
	if s.d == nil {
		return 0, errClosed
	}
	if s.full == nil {
		s.full, s.empty = make(chan []byte, ahead), make(chan []byte, ahead)
		for range ahead {
			s.empty <- nil
		}
		go s.decode()
	}
	for len(s.left) == 0 {
		if s.now != nil {
			s.empty <- s.now
		}
		if s.now = <-s.full; s.now == nil {
			return 0, s.err
		}
		s.left = s.now
	}
	n := copy(p, s.left)
	s.left = s.left[n:]
	return n, nil
}

// decode decodes until there is no more, or nobody wants it.
func (s *stream) decode() {
	defer close(s.full)
	// Unlike Read, this hands out the last block too where it is only the checksum
	// behind it that is wrong.
	_, err := s.d.WriteTo(blockWriter{s})
	if s.err = zstdError(err); err == nil {
		s.err = io.EOF
	}
}

// blockWriter is given a block at a time.
type blockWriter struct{ s *stream }

func (w blockWriter) Write(p []byte) (int, error) {
	b, ok := <-w.s.empty
	if !ok {
		return 0, errClosed
	}
	w.s.full <- append(b[:0], p...)
	return len(p), nil
}

// Close waits for a read of what is decoded, if one is under way.
func (s *stream) Close() error {
	if s.d == nil {
		return nil
	}
	if s.full != nil {
		s.drain()
		close(s.empty)
		for range s.full { // until decode has returned
		}
	}
	if s.d.Reset(nil) == nil {
		streams.Put(s.d)
	}
	s.d, s.now, s.left = nil, nil, nil
	return nil
}

// drain takes what decode would go on with, as far as decode does not come first.
func (s *stream) drain() {
	for {
		select {
		case <-s.empty:
		default:
			return
		}
	}
}

// zstdError says what the decoder's words leave out.
func zstdError(err error) error {
	switch {
	case errors.Is(err, zstd.ErrWindowSizeExceeded), errors.Is(err, zstd.ErrDecoderSizeExceeded):
		return ErrWindow
	case errors.Is(err, zstd.ErrUnknownDictionary):
		return errors.New("needs a dictionary")
	case errors.Is(err, zstd.ErrMagicMismatch):
		return errors.New("not a zstd frame")
	case errors.Is(err, zstd.ErrCRCMismatch):
		return ErrChecksum
	}
	return err
}

// whole decodes units. It is told the most it may make by the room that it gets.
var whole = sync.OnceValue(func() *zstd.Decoder {
	return newDecoder(zstd.WithDecoderConcurrency(0), zstd.WithDecodeAllCapLimit(true))
})

// slack is room behind what is decoded that makes the decoder of the last block a
// third faster, for it may then copy 16 bytes at once.
const slack = 16

func appendZstd(dst, stored []byte, size int) ([]byte, error) {
	if size < 0 {
		return dst, fmt.Errorf("unit size: expected 0 or more, found %d", size)
	}
	at := len(dst)
	room := dst
	if cap(dst)-at < size {
		room = make([]byte, at, at+size+slack)
		copy(room, dst)
	}
	most := min(cap(room), at+size+slack)
	// The decoder may find out only after a block, of at most 128 KiB, that there
	// is no room for it. It then has taken room of its own, once, and gives up.
	out, err := whole().DecodeAll(stored, room[at:at:most])
	switch {
	case errors.Is(err, zstd.ErrDecoderSizeExceeded), errors.Is(err, zstd.ErrFrameSizeExceeded):
		return dst, fmt.Errorf("unit size: expected %d, found more", size)
	case err != nil:
		return dst, zstdError(err)
	case len(out) != size:
		return dst, fmt.Errorf("unit size: expected %d, found %d", size, len(out))
	}
	return room[:at+size], nil
}

func decodeBlocks(r io.Reader) (io.ReadCloser, error) {
	return decodeZstd(&blockReader{r: r, next: blocksHeader})
}

// blockReader reads a frame's header, which it has already, and then the frame's blocks.
// Each block says how long it is, so nothing is read beyond the last one. In a part of a
// frame no block may be marked as the last: that would end the frame early.
type blockReader struct {
	r      io.Reader
	next   []byte // to be read before anything else
	left   int    // of the current block
	head   [3]byte
	whole  bool // there is a last block
	behind int  // it, in bytes that are the frame's
	ended  bool
}

func (b *blockReader) Read(p []byte) (int, error) {
	for len(b.next) == 0 {
		if b.left > 0 {
			n, err := b.r.Read(p[:min(len(p), b.left)])
			b.left -= n
			if err == io.EOF && b.left == 0 {
				err = nil
			}
			return n, unexpectedEnd(err)
		}
		if b.ended {
			return 0, io.EOF
		}
		switch _, err := io.ReadFull(b.r, b.head[:]); {
		case err == io.EOF && !b.whole:
			b.ended, b.next = true, lastBlock
		case err != nil:
			return 0, unexpectedEnd(err)
		default:
			b.next = b.head[:]
			head := b.head
			if b.whole {
				b.ended = head[0]&1 != 0
				head[0] &^= 1
			}
			if b.left, err = blockLen(head); err != nil {
				return 0, err
			}
			if b.ended {
				b.left += b.behind
			}
		}
	}
	n := copy(p, b.next)
	b.next = b.next[n:]
	return n, nil
}

// blockLen returns how many bytes follow a block's header: bit 0 says that it is
// the last, bits 1 and 2 its type, the others its size. Blocks of type 1 are one
// byte, many times.
func blockLen(head [3]byte) (int, error) {
	h := uint32(head[0]) | uint32(head[1])<<8 | uint32(head[2])<<16
	if h&1 != 0 {
		return 0, errors.New("unexpected last block")
	}
	if h>>1&3 == 1 {
		return 1, nil
	}
	return int(h >> 3), nil
}

// frames are buffers of *[]byte in which blocks become frames.
var frames = sync.Pool{New: func() any { return new([]byte) }}

func appendBlocks(dst, stored []byte, size int) ([]byte, error) {
	if size < 0 || int64(size) > math.MaxUint32 {
		return dst, fmt.Errorf("unit size: expected at most %d, found %d", int64(math.MaxUint32), size)
	}
	for rest := stored; len(rest) > 0; {
		if len(rest) < 3 {
			return dst, io.ErrUnexpectedEOF
		}
		n, err := blockLen([3]byte(rest))
		if err != nil {
			return dst, err
		}
		if len(rest)-3 < n {
			return dst, io.ErrUnexpectedEOF
		}
		rest = rest[3+n:]
	}
	buf := frames.Get().(*[]byte)
	defer frames.Put(buf)
	// A header of one segment, with the content's size in four bytes.
	f := append((*buf)[:0], 0x28, 0xB5, 0x2F, 0xFD, 0xA0)
	f = binary.LittleEndian.AppendUint32(f, uint32(size))
	f = append(append(f, stored...), lastBlock...)
	*buf = f
	return appendZstd(dst, f, size)
}
