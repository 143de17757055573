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

// Zstd is the name of one or more zstd frames, which may include skippable frames.
//
// ZstdBlocks is the name of blocks of a zstd frame without its header and without a last block.
// They are a part of a longer frame that does not depend on what precedes it. Blocks refer back
// by at most 8 MiB.
const (
	Zstd       = "zstd"
	ZstdBlocks = "zstd-blocks"
)

func init() {
	Register(Codec{Name: Zstd, Decode: decodeZstd, Append: appendZstd})
	Register(Codec{Name: ZstdBlocks, Decode: decodeBlocks, Append: appendBlocks})
}

// maxWindow is how far a frame may refer back, and so the memory that a stream takes. It is the
// limit of the zstd command.
const maxWindow = 128 << 20

var (
	// ErrWindow means that a frame refers back further than a decoder remembers.
	ErrWindow = errors.New("refers back by more than 128 MiB")
	// ErrChecksum means that some of the decoded content is wrong. It is not known which.
	ErrChecksum = errors.New("checksum does not match")
)

var (
	// blocksHeader is a frame header with nothing but a window of 8 MiB.
	blocksHeader = []byte{0x28, 0xB5, 0x2F, 0xFD, 0, (23 - 10) << 3}
	lastBlock    = []byte{1, 0, 0}
)

// newDecoder returns a decoder with the limits of this package.
func newDecoder(o ...zstd.DOption) *zstd.Decoder {
	d, err := zstd.NewReader(nil, append(o, zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(maxWindow))...)
	if err != nil {
		panic("codec: " + err.Error())
	}
	return d
}

// streams are unused decoders. They decode one block at a time. A decoder with several blocks in
// progress can return old contents of its memory if a block cannot be decoded, and these may be
// of another archive.
var streams = sync.Pool{New: func() any {
	return newDecoder(zstd.WithDecoderConcurrency(1), zstd.WithDecodeBuffersBelow(0))
}}

// ahead is the number of blocks that are decoded in advance, concurrently with the reader. This
// makes reading 1.5 times as fast.
const ahead = 4

// stream is a decoder in use.
type stream struct {
	d     *zstd.Decoder
	full  chan []byte // closed when all is decoded or err is set
	empty chan []byte // closed by Close
	err   error
	now   []byte
	left  []byte // the unread part of now
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

// decode decodes until the end, or until the stream is closed.
func (s *stream) decode() {
	defer close(s.full)
	// Unlike Read, WriteTo also returns the last block if only the checksum after it is wrong.
	_, err := s.d.WriteTo(blockWriter{s})
	if s.err = zstdError(err); err == nil {
		s.err = io.EOF
	}
}

// blockWriter receives one block at a time.
type blockWriter struct{ s *stream }

func (w blockWriter) Write(p []byte) (int, error) {
	b, ok := <-w.s.empty
	if !ok {
		return 0, errClosed
	}
	w.s.full <- append(b[:0], p...)
	return len(p), nil
}

// Close waits for a read of decoded data, if one is in progress.
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

// drain takes the empty buffers, so that decode stops, unless decode takes them first.
func (s *stream) drain() {
	for {
		select {
		case <-s.empty:
		default:
			return
		}
	}
}

// zstdError adds what the decoder's errors leave out.
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

// whole decodes units. The capacity of the destination limits the size of the content.
var whole = sync.OnceValue(func() *zstd.Decoder {
	return newDecoder(zstd.WithDecoderConcurrency(0), zstd.WithDecodeAllCapLimit(true))
})

// slack is extra room after the content. It makes decoding the last block a third faster, because
// the decoder can then copy 16 bytes at a time.
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
	// The decoder may notice only after a block of up to 128 KiB that the room is too small. It
	// has then allocated memory once, and gives up.
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

// blockReader returns the header of a frame and then the blocks of the frame. Each block states
// its length, so nothing is read after the last one. In a part of a frame no block may be marked
// as the last, because that would end the frame early.
type blockReader struct {
	r      io.Reader
	next   []byte // returned before anything else
	left   int    // bytes left of the current block
	head   [3]byte
	whole  bool // there is a last block
	behind int  // bytes of the frame after the last block
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

// blockLen returns the number of bytes after the header of a block. Bit 0 marks the last block,
// bits 1 and 2 are its type, and the others its size. A block of type 1 is one byte that is
// repeated.
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

// frames are buffers of type *[]byte in which blocks are assembled to frames.
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
	// This is the header of a single segment with the size of the content in four bytes.
	f := append((*buf)[:0], 0x28, 0xB5, 0x2F, 0xFD, 0xA0)
	f = binary.LittleEndian.AppendUint32(f, uint32(size))
	f = append(append(f, stored...), lastBlock...)
	*buf = f
	return appendZstd(dst, f, size)
}
