package kit

import (
	"cmp"
	"context"
	"hash"
	"io"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/kit/sorter"
)

// CopyContent passes e's content to write, block by block, and to sum unless that is nil. It
// returns an error of r, or a *SizeError if the content does not have the length that e says. It
// reads r into buf, which it does not need if r has WriteTo and sum is nil.
func CopyContent(ctx context.Context, e format.Entry, r io.Reader, buf []byte, sum hash.Hash, write func([]byte) error) error {
	s := contentSink{ctx: ctx, name: e.Name, size: e.Size, sum: sum, write: write}
	if wt, ok := r.(io.WriterTo); ok && sum == nil {
		if _, err := wt.WriteTo(&s); err != nil {
			return err
		}
		return s.end()
	}
	for {
		k, err := r.Read(buf)
		if k > 0 {
			if _, werr := s.Write(buf[:k]); werr != nil {
				return werr
			}
		}
		if err == io.EOF {
			return s.end()
		}
		if err == nil && ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		if err != nil {
			return err
		}
	}
}

// CopyDigested is CopyContent, and returns the digest of the content by an algorithm: that of e, or
// the one that h computes. If r has a method ContentDigest, which knows the digest once the content
// was read, it is that one instead, or "" if r knows only a digest by another algorithm.
func CopyDigested(ctx context.Context, e format.Entry, r io.Reader, buf []byte, algo string, h hash.Hash, write func([]byte) error) (string, error) {
	itself, knows := r.(interface{ ContentDigest() (format.Digest, bool) })
	given := e.Digest.Algo == algo && len(e.Digest.Sum) == h.Size()
	var sum hash.Hash
	if !knows && !given {
		h.Reset()
		sum = h
	}
	if err := CopyContent(ctx, e, r, buf, sum, write); err != nil {
		return "", err
	}
	switch {
	case given:
		return e.Digest.Sum, nil
	case !knows:
		return string(h.Sum(nil)), nil
	}
	d, ok := itself.ContentDigest()
	if !ok || d.Algo != algo {
		return "", nil
	}
	return d.Sum, nil
}

// contentSink receives an entry's content, block by block.
type contentSink struct {
	ctx   context.Context
	name  string
	size  int64
	n     int64
	sum   hash.Hash
	write func([]byte) error
}

func (s *contentSink) Write(p []byte) (int, error) {
	if s.ctx.Err() != nil {
		return 0, context.Cause(s.ctx)
	}
	if s.n += int64(len(p)); s.n > s.size {
		return 0, &SizeError{Name: s.name, Said: s.size, Found: s.n}
	}
	if s.sum != nil {
		s.sum.Write(p)
	}
	return len(p), s.write(p)
}

func (s *contentSink) end() error {
	if s.n != s.size {
		return &SizeError{Name: s.name, Said: s.size, Found: s.n}
	}
	return nil
}

// Spool calls write with a scratch, and returns a reader of what was written and its length.
func Spool(open func() (sorter.Scratch, error), write func(io.Writer) error) (_ io.Reader, n int64, release func(), err error) {
	s, err := open()
	if err != nil {
		return nil, 0, nil, err
	}
	c := counted{w: s}
	if err = write(&c); err == nil {
		_, err = s.Seek(0, io.SeekStart)
	}
	if err != nil {
		s.Close()
		return nil, 0, nil, err
	}
	return io.LimitReader(s, c.n), c.n, func() { s.Close() }, nil
}

// counted counts the bytes that it writes to w.
type counted struct {
	w io.Writer
	n int64
}

func (c *counted) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	c.n += int64(n)
	return n, err
}

// A Spill holds bytes that are appended, and then read from first to last. If there are many, they
// are in a scratch.
type Spill struct {
	Scratch func() (sorter.Scratch, error) // nil: all of them in memory
	Most    int                            // bytes in memory; 0 is 4 MiB
	N       int64                          // bytes

	held []byte
	file sorter.Scratch
}

// Add appends bytes.
func (s *Spill) Add(p []byte) (err error) {
	s.N += int64(len(p))
	s.held = append(s.held, p...)
	if len(s.held) < cmp.Or(s.Most, 4<<20) || s.Scratch == nil {
		return nil
	}
	if s.file == nil {
		if s.file, err = s.Scratch(); err != nil {
			return err
		}
	}
	_, err = s.file.Write(s.held)
	s.held = s.held[:0]
	return err
}

// Each passes all bytes to write, in blocks.
func (s *Spill) Each(write func([]byte) error) error {
	if s.file != nil {
		if _, err := s.file.Seek(0, io.SeekStart); err != nil {
			return err
		}
		n := s.N - int64(len(s.held))
		if err := CopyContent(context.Background(), format.Entry{Size: n}, io.LimitReader(s.file, n), make([]byte, 128<<10), nil, write); err != nil {
			return err
		}
	}
	return write(s.held)
}

// Close releases the scratch.
func (s *Spill) Close() (err error) {
	if s.file != nil {
		err = s.file.Close()
	}
	s.file, s.held = nil, nil
	return err
}
