package format

import (
	"context"
	"hash"
	"io"
)

// CopyContent hands e's content on to write, block by block, and to sum unless
// that is nil. It is an error of r, or a *SizeError, if the content is not as
// long as e says. Buf is where r is read into; content that hands on blocks of
// its own needs none.
func CopyContent(ctx context.Context, e Entry, r io.Reader, buf []byte, sum hash.Hash, write func([]byte) error) error {
	s := contentSink{ctx: ctx, e: e, sum: sum, write: write}
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

// contentSink takes an entry's content from sources that hand on blocks.
type contentSink struct {
	ctx   context.Context
	e     Entry
	n     int64
	sum   hash.Hash
	write func([]byte) error
}

func (s *contentSink) Write(p []byte) (int, error) {
	if s.ctx.Err() != nil {
		return 0, context.Cause(s.ctx)
	}
	if s.n += int64(len(p)); s.n > s.e.Size {
		return 0, &SizeError{Name: s.e.Name, Said: s.e.Size, Found: s.n}
	}
	if s.sum != nil {
		s.sum.Write(p)
	}
	return len(p), s.write(p)
}

func (s *contentSink) end() error {
	if s.n != s.e.Size {
		return &SizeError{Name: s.e.Name, Said: s.e.Size, Found: s.n}
	}
	return nil
}
