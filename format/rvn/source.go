package rvn

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/holdall/holdall/codec"
	"github.com/holdall/holdall/format/kit"
	"github.com/holdall/holdall/internal/base/blake3"
)

// source decodes contents sequentially for repairs, as the engine does for readers. After a
// damaged section it continues with the next one.
type source struct {
	a     *archive
	ctx   context.Context
	at    int64         // offset of the next byte of r
	r     io.ReadCloser // a frame or a section
	end   int64         // where r ends; -1 if that is not known
	fault error         // an error of a frame without sections: everything after it is lost

	broken error // an error of the store, not about the archive
	in     *kit.RangeReader
	buf    []byte
	hash   *blake3.Hasher
}

func (a *archive) newSource(ctx context.Context) *source {
	return &source{a: a, ctx: ctx, buf: make([]byte, 256<<10), hash: blake3.New()}
}

func (s *source) close() {
	if s.r != nil {
		s.r.Close()
		s.r = nil
	}
}

// copyFile calls write with n bytes from off, which must not be before what was copied last, and
// returns their digest.
func (s *source) copyFile(off, n int64, write func([]byte) error) (sum string, err error) {
	s.hash.Reset()
	for n > 0 {
		if s.ctx.Err() != nil {
			return "", context.Cause(s.ctx)
		}
		if err := s.seek(off); err != nil {
			return "", err
		}
		most := min(n, int64(len(s.buf)))
		if s.end >= 0 {
			most = min(most, s.end-s.at)
		}
		k, err := io.ReadFull(s.r, s.buf[:most])
		s.at += int64(k)
		if err != nil {
			return "", s.fail(err)
		}
		s.hash.Write(s.buf[:k])
		if err := write(s.buf[:k]); err != nil {
			return "", err
		}
		off, n = off+int64(k), n-int64(k)
	}
	return string(s.hash.Sum(nil)), nil
}

// fail records that r has ended or failed.
func (s *source) fail(err error) error {
	s.broken = cmp.Or(s.broken, s.in.Err)
	if err == io.EOF || err == io.ErrUnexpectedEOF {
		err = fmt.Errorf("ends at byte %d", s.at)
	}
	s.close()
	if s.end < 0 {
		s.fault = err
	}
	return err
}

// seek opens the section that contains off, and skips to it.
func (s *source) seek(off int64) error {
	if s.fault != nil {
		return s.fault
	}
	if s.r != nil && s.end >= 0 && off >= s.end {
		s.close()
	}
	if s.r == nil {
		if err := s.open(off); err != nil {
			return err
		}
	}
	k, err := io.CopyN(io.Discard, s.r, off-s.at)
	s.at += k
	if err != nil {
		return s.fail(err)
	}
	return nil
}

func (s *source) open(off int64) error {
	c := s.a.block[contentBlock]
	stored, name := c, codec.Zstd
	s.at, s.end = 0, -1
	if t := s.a.table.sections; t != nil {
		name = codec.ZstdBlocks
		for k := range t[1:] {
			if off < t[k+1].flat {
				s.at, s.end = t[k].flat, t[k+1].flat
				stored = span{c.off + t[k].comp, t[k+1].comp - t[k].comp}
				break
			}
		}
		if s.end < 0 {
			return fmt.Errorf("content at %d is after the last section", off)
		}
	}
	if stored.end() > s.a.size {
		if s.end >= 0 {
			return errors.New("the archive ends within its section")
		}
		stored.len = s.a.size - stored.off
	}
	z, _ := codec.Lookup(name)
	s.in = &kit.RangeReader{Ctx: s.ctx, Object: s.a.obj, Off: stored.off, End: stored.end()}
	r, err := z.Decode(s.in)
	if err != nil {
		return s.fail(err)
	}
	s.r = r
	return nil
}

// ends reports whether a frame without sections ends where the last file does, and is intact to
// its end.
func (s *source) ends() bool {
	if s.a.table.sections != nil {
		return true
	}
	if s.seek(s.a.index.total) != nil {
		return false
	}
	_, err := io.ReadFull(s.r, make([]byte, 1))
	if err != nil && err != io.EOF {
		_ = s.fail(err)
	}
	return err == io.EOF
}
