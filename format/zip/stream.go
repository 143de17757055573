package zip

import (
	"context"
	"encoding/binary"
	"hash/crc32"
	"io"
	"strings"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/kit"
	"github.com/holdall/holdall/format/kit/sorter"
)

// A Stream writes an archive sequentially, each file as soon as it is read, without compression.
// It is for servers that send archives; programs that write archives use package holdall.
type Stream struct {
	out   io.Writer
	at    uint64
	count uint64
	dir   kit.Spill
	buf   []byte
	row   []byte
}

// NewStream returns a Stream that writes to out. If it must remember much, it uses scratch space.
// The caller must call End when all entries have been added, and Close in any case.
func NewStream(out io.Writer, scratch func() (sorter.Scratch, error)) *Stream {
	return &Stream{out: out, dir: kit.Spill{Scratch: scratch, Most: 16 << 10}}
}

// Add writes an entry, which must be a file, a folder or a symbolic link, and may have any name.
// Content that is an io.ReadSeeker is read twice: first its checksum is computed, which is in front of it then. After
// an error of other content or of out, the stream cannot be continued.
func (s *Stream) Add(ctx context.Context, e format.Entry, content io.Reader) error {
	switch e.Kind {
	case format.Dir:
		e.Size, content = 0, strings.NewReader("")
	case format.Symlink:
		e.Size, content = int64(len(e.Link)), strings.NewReader(e.Link)
	}
	x := newRow(e, s.at)
	x.size, x.stored = uint64(e.Size), uint64(e.Size)
	sum := crc32.NewIEEE()
	again, held := content.(io.ReadSeeker)
	if held {
		err := kit.CopyContent(ctx, e, content, s.buf, nil, func(p []byte) error { sum.Write(p); return nil })
		if err == nil {
			_, err = again.Seek(0, io.SeekStart)
		}
		if err != nil {
			return err
		}
		x.crc = sum.Sum32()
	} else {
		x.flags |= flagBehind
	}
	if err := s.write(x.appendLocal(nil)); err != nil {
		return err
	}
	if held {
		if err := kit.CopyContent(ctx, e, content, s.buf, nil, s.write); err != nil {
			return err
		}
	} else {
		if s.buf == nil {
			s.buf = make([]byte, 64<<10)
		}
		if err := kit.CopyContent(ctx, e, content, s.buf, sum, s.write); err != nil {
			return err
		}
		x.crc = sum.Sum32()
		le := binary.LittleEndian
		b := le.AppendUint32([]byte(behindMagic), x.crc)
		if err := s.write(le.AppendUint64(le.AppendUint64(b, x.stored), x.size)); err != nil {
			return err
		}
	}
	s.count++
	s.row = x.append(s.row[:0])
	return s.dir.Add(s.row)
}

func (s *Stream) write(p []byte) error {
	n, err := s.out.Write(p)
	s.at += uint64(n)
	return err
}

// End writes the directory, and a comment for people. Nothing may be added afterwards.
func (s *Stream) End(comment string) error {
	off := s.at
	err := s.dir.Each(s.write)
	if err == nil {
		err = s.write(appendEnd(nil, end{count: s.count, size: uint64(s.dir.N), off: off, comment: comment}))
	}
	return err
}

// Close releases the scratch space.
func (s *Stream) Close() error { return s.dir.Close() }
