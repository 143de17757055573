package tar

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"slices"
	"sort"
	"strings"

	"github.com/holdall/holdall/codec"
	"github.com/holdall/holdall/format/kit"
	"github.com/holdall/holdall/store"
)

var zstdMagic, gzipMagic = []byte{0x28, 0xB5, 0x2F, 0xFD}, []byte{0x1F, 0x8B, 8}

// compressions are the compressions of tars, with their extensions.
var compressions = []struct {
	codec string
	magic []byte
	names []string
}{
	{codec.Zstd, zstdMagic, []string{".tar.zst", ".tzst"}},
	{codec.Gzip, gzipMagic, []string{".tar.gz", ".tgz"}},
	{codec.Bzip2, []byte("BZh"), []string{".tar.bz2", ".tbz2", ".tbz"}},
	{codec.XZ, []byte("\xfd7zXZ\x00"), []string{".tar.xz", ".txz"}},
	{codec.LZ4, []byte{4, 0x22, 0x4D, 0x18}, []string{".tar.lz4"}},
	{codec.LZ4, []byte{2, 0x21, 0x4C, 0x18}, nil}, // its first version
	{codec.Lzip, []byte("LZIP\x01"), []string{".tar.lz", ".tlz"}},
	{codec.Compress, []byte{0x1F, 0x9D}, []string{".tar.z", ".taz"}},
	{codec.LZMAFile, nil, []string{".tar.lzma"}},
}

// codecOf returns the compression of a tar that begins with head.
func codecOf(head []byte) string {
	if len(head) < 10 {
		return codec.Raw
	}
	if isSkippable(head) {
		return codec.Zstd // the beginning of what parallel compressors write
	}
	for _, c := range compressions {
		switch {
		case !bytes.HasPrefix(head, c.magic), c.codec == codec.LZMAFile && !codec.IsLZMAFile(head), c.codec == codec.Bzip2 && string(head[4:10]) != "1AY&SY":
		case c.codec == codec.XZ && head[7] == 0:
			return codec.XZPlain
		default:
			return c.codec
		}
	}
	return codec.Raw
}

// compression returns the compression of an archive with that name.
func compression(name string) string {
	name = strings.ToLower(name)
	for _, c := range compressions {
		if slices.ContainsFunc(c.names, func(end string) bool { return strings.HasSuffix(name, end) }) {
			return c.codec
		}
	}
	return codec.Raw
}

// isSkippable reports whether b is the beginning of a skippable zstd frame.
func isSkippable(b []byte) bool { return binary.LittleEndian.Uint32(b)&^0xf == 0x184D2A50 }

// frame is a part of a compressed tar that is decoded separately: a frame of zstd, a member of
// gzip, or everything for other compressions.
type frame struct {
	off, len int64 // of the stored bytes
	at, n    int64 // of the decoded bytes; both lengths are -1 if the frame was not read to its end
	summed   bool  // it ends with a checksum, which a frame of zstd need not have
}

// frames decodes a compressed tar sequentially, and records its frames.
type frames struct {
	stored stored
	codec  string
	now    io.ReadCloser // nil between frames
	block  *zstdFrame    // the input of now, for zstd
	frame  frame         // the current frame
	at     int64         // decoded bytes so far
	all    []frame       // frames that have ended and have content
	wrong  damaged
	err    error

	// For repairs, which continue after damage:
	rescues bool
	next    int64 // where the next frame is stored, after errTorn
	header  int64 // position of a tar header in its content
	fill    int64 // bytes to return in place of what is lost
	tries   int   // at places without a frame
}

// damaged are decoded bytes that may be wrong, in order: all of a frame that does not match its
// checksum or cannot be decoded to its end, and of one that only ends too early the last of them.
type damaged []frame

// mostHeld is more than a decoder returns of a block until it notices that the block is damaged, or
// that there is nothing more.
func mostHeld(name string) int64 {
	switch name {
	case codec.Zstd, codec.Gzip:
		return 128 << 10
	case codec.LZ4:
		return 8 << 20
	}
	return 1 << 20
}

// touches reports whether any of these decoded bytes is in a damaged frame.
func (d damaged) touches(from, to int64) bool {
	i := sort.Search(len(d), func(i int) bool { return d[i].at+d[i].n > from })
	return i < len(d) && d[i].at < to
}

// errTorn means that something is lost. After a call of pass, reading continues after the loss.
var errTorn = errors.New("a piece cannot be decoded")

// filler is neither a header nor the zeros that end a tar.
var filler = bytes.Repeat([]byte{0xff}, blockSize)

// mostTries is the number of places without a frame that are tried.
const mostTries = 1000

func newFrames(ctx context.Context, o store.Object, size int64, name string) *frames {
	f := &frames{codec: name}
	f.stored.object = kit.RangeReader{Ctx: ctx, Object: o, End: size}
	f.stored.buf = bufio.NewReaderSize(&f.stored.object, 128<<10)
	return f
}

// Read decodes. Bytes after the last gzip member that are not a member end the tar, as in other
// programs.
func (f *frames) Read(p []byte) (int, error) {
	for f.err == nil {
		if n := copy(p, filler[:f.fill]); n > 0 {
			f.fill, f.at = f.fill-int64(n), f.at+int64(n)
			return n, nil
		}
		if f.now == nil {
			if f.err = f.begin(); f.err != nil {
				break
			}
		}
		if n := f.step(p); n > 0 {
			return n, nil
		}
	}
	if f.err != io.EOF && f.err != errTorn && f.rescues && f.codec == codec.Zstd {
		f.rescue()
	}
	return 0, f.err
}

// rescue finds the next frame that can be decoded and contains a tar header. It must be followed
// by another frame or the end, because otherwise it may be a file within a damaged frame.
func (f *frames) rescue() {
	if f.Close(); f.stored.object.Err != nil {
		return
	}
	from := f.frame.off + max(f.frame.len, 0) + 1
	s := newFrames(f.stored.object.Ctx, f.stored.object.Object, f.stored.object.End, f.codec).stored
	s.object.Off = from
	s.buf.Reset(&s.object)
	for f.tries < mostTries {
		for {
			b, err := s.buf.Peek(s.buf.Size())
			if i := bytes.Index(b, zstdMagic); i >= 0 {
				_, _ = s.buf.Discard(i)
				break
			} else if err != nil {
				return
			}
			_, _ = s.buf.Discard(len(b) - len(zstdMagic) + 1)
		}
		n, header := f.try(s.off())
		if header >= 0 {
			f.err, f.next, f.header = errTorn, s.off(), header
			return
		}
		if n == 0 {
			n, f.tries = 1, f.tries+1
		}
		if s.skip(n) != nil {
			return
		}
	}
}

// try decodes the frame at an offset. It returns its length, or 0 if it cannot be decoded, and
// the position of the first header in it, or -1.
func (f *frames) try(off int64) (n, header int64) {
	g := newFrames(f.stored.object.Ctx, f.stored.object.Object, f.stored.object.End, f.codec)
	defer g.Close()
	g.stored.object.Off = off
	buf, have := make([]byte, 64<<10), 0
	header = -1
	for g.err = g.begin(); g.err == nil && g.now != nil; {
		have += g.step(buf[have:])
		for at := 0; header < 0; at++ {
			i := bytes.Index(buf[at:have], []byte("ustar"))
			if i < 0 {
				break
			}
			at += i
			if b := at - 257; b >= 0 && b+blockSize <= have && block(buf[b:b+blockSize]).dialect() != noDialect {
				header = g.at - int64(have-b)
			}
		}
		if have > len(buf)/2 {
			have = copy(buf, buf[have-blockSize+1:have])
		}
	}
	if head, err := g.stored.buf.Peek(4); g.err != nil || err == nil && !bytes.Equal(head, zstdMagic) && !isSkippable(head) {
		return 0, -1
	}
	return g.stored.off() - off, header
}

// pass continues after what is lost, so that the next header is at a multiple of a block.
func (f *frames) pass() {
	f.stored.object.Off, f.err = f.next, nil
	f.stored.buf.Reset(&f.stored.object)
	f.fill = -(f.at + f.header) & (blockSize - 1)
}

// rescued has the frames with everything that can be read of them.
type rescued struct{ *frames }

func (r rescued) Read(p []byte) (int, error) {
	n, err := r.frames.Read(p)
	if err == errTorn {
		r.pass()
		return r.Read(p)
	}
	return n, err
}

// step decodes a part of the current frame, and ends the frame at its end.
func (f *frames) step(p []byte) int {
	n, err := f.now.Read(p)
	f.at += int64(n)
	if err != nil && err != io.EOF && f.stored.object.Err == nil {
		w := frame{at: f.frame.at, n: f.at - f.frame.at}
		switch {
		case errors.Is(err, io.ErrUnexpectedEOF), f.codec == codec.Bzip2: // each block of bzip2 has a checksum
			w.n = min(w.n, mostHeld(f.codec))
			w.at = f.at - w.n
		case errors.Is(err, codec.ErrChecksum) && (f.codec == codec.Zstd || f.codec == codec.Gzip):
			err = io.EOF // all of it has been decoded
		}
		f.wrong = append(f.wrong, w)
	}
	if err == io.EOF {
		err = f.end()
	}
	f.err = err
	return n
}

// begin begins the next frame.
func (f *frames) begin() (err error) {
	head, err := f.stored.buf.Peek(8)
	if err != nil && err != io.EOF {
		return err
	}
	for f.codec == codec.Zstd && len(head) == 8 && isSkippable(head) {
		if err := f.stored.skip(8 + int64(binary.LittleEndian.Uint32(head[4:]))); err != nil {
			return err
		}
		if head, err = f.stored.buf.Peek(8); err != nil && err != io.EOF {
			return err
		}
	}
	if len(head) == 0 || f.codec == codec.Gzip && f.at > 0 && !bytes.HasPrefix(head, gzipMagic[:2]) {
		return io.EOF
	}
	f.frame = frame{off: f.stored.off(), len: -1, at: f.at, n: -1}
	if f.codec == codec.Gzip {
		m, err := codec.NewGzipMember(f.stored.buf)
		if err == nil {
			f.now = m
		}
		return err
	}
	z, _ := codec.Lookup(f.codec)
	if f.codec != codec.Zstd { // everything is one frame
		f.now, err = z.Decode(f.stored.buf)
		return err
	}
	f.block = &zstdFrame{r: f.stored.buf}
	f.now, err = z.Decode(f.block)
	return err
}

// end ends the current frame.
func (f *frames) end() error {
	err := f.now.Close()
	f.now = nil
	if f.block != nil && !f.block.whole() {
		return io.ErrUnexpectedEOF // the decoder accepts some truncated frames
	}
	f.frame.len, f.frame.n = f.stored.off()-f.frame.off, f.at-f.frame.at
	if f.frame.n > 0 {
		f.frame.summed = f.block != nil && f.block.sum > 0
		f.all = append(f.all, f.frame)
	}
	return err
}

// drain reads the current frame to its end, so that its length is known.
func (f *frames) drain() error {
	var buf [32 << 10]byte
	for f.err == nil && f.now != nil {
		f.step(buf[:])
	}
	if f.err == io.EOF {
		return nil
	}
	return f.err
}

// known returns all frames; the end of the last one may be unknown.
func (f *frames) known() []frame {
	if f.frame.n < 0 && f.at > f.frame.at {
		return append(f.all, f.frame)
	}
	return f.all
}

// from returns the frame with the byte at an offset, and forgets the frames before it.
func (f *frames) from(at int64) frame {
	for len(f.all) > 0 && f.all[0].at+f.all[0].n <= at {
		f.all = f.all[1:]
	}
	if len(f.all) > 0 {
		return f.all[0]
	}
	return f.frame
}

func (f *frames) Close() error {
	if f.now == nil {
		return nil
	}
	err := f.now.Close()
	f.now = nil
	return err
}

func unexpected(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}

// stored reads an object sequentially, and counts the bytes that were taken from it.
type stored struct {
	buf    *bufio.Reader
	object kit.RangeReader
}

func (s *stored) off() int64 { return s.object.Off - int64(s.buf.Buffered()) }

func (s *stored) skip(n int64) error {
	if have := int64(s.buf.Buffered()); n > have {
		if n -= have; n > s.object.End-s.object.Off {
			s.object.Off = s.object.End
			s.buf.Reset(&s.object)
			return io.ErrUnexpectedEOF
		}
		s.object.Off += n
		s.buf.Reset(&s.object)
		return nil
	}
	_, err := s.buf.Discard(int(n))
	return err
}

// zstdFrame is a single frame of r: a header, blocks of three bytes and the data that these
// announce, and optionally a checksum.
type zstdFrame struct {
	r    *bufio.Reader
	left int // bytes until the next header of a block
	last bool
	head []byte // returned before anything else
	some bool
	sum  int
}

func (z *zstdFrame) whole() bool { return z.last && z.left == 0 && len(z.head) == 0 }

func (z *zstdFrame) Read(p []byte) (n int, err error) {
	switch {
	case !z.some:
		err = z.begin()
	case len(z.head) > 0 || z.left > 0:
	case z.last:
		return 0, io.EOF
	default:
		err = z.block()
	}
	if err != nil {
		return 0, err
	}
	if n = copy(p, z.head); n > 0 {
		z.head = z.head[n:]
		return n, nil
	}
	if n, err = z.r.Read(p[:min(len(p), z.left)]); err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	z.left -= n
	return n, err
}

// begin parses the frame header: magic, a byte of flags, a window unless it is as large as the
// content, the number of a dictionary, the size of the content.
func (z *zstdFrame) begin() error {
	z.some = true
	b, err := z.r.Peek(5)
	if err != nil {
		return unexpected(err)
	}
	if !bytes.HasPrefix(b, zstdMagic) {
		return errors.New("not a zstd frame")
	}
	flags := b[4]
	n := 6 + [...]int{0, 1, 2, 4}[flags&3] + [...]int{0, 2, 4, 8}[flags>>6]
	if flags>>5&1 != 0 {
		if n--; flags>>6 == 0 {
			n++
		}
	}
	if flags>>2&1 != 0 {
		z.sum = 4
	}
	z.head = make([]byte, n)
	_, err = io.ReadFull(z.r, z.head)
	return unexpected(err)
}

func (z *zstdFrame) block() error {
	z.head = make([]byte, 3)
	if _, err := io.ReadFull(z.r, z.head); err != nil {
		return unexpected(err)
	}
	h := uint32(z.head[0]) | uint32(z.head[1])<<8 | uint32(z.head[2])<<16
	if z.left = int(h >> 3); h>>1&3 == 1 {
		z.left = 1
	}
	if z.last = h&1 != 0; z.last {
		z.left += z.sum
	}
	return nil
}

// within returns the frames with the decoded bytes [at, at+n).
func within(all []frame, at, n int64) []frame {
	i := sort.Search(len(all), func(i int) bool { return all[i].n < 0 || all[i].at+all[i].n > at })
	j := i + sort.Search(len(all)-i, func(j int) bool { return all[i+j].at >= at+n })
	return all[i:j]
}
