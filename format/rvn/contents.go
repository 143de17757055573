package rvn

import (
	"errors"
	"fmt"
	"io"
	"math/bits"

	"github.com/holdall/holdall/codec"
	"github.com/holdall/holdall/format/kit"
)

// contents writes block 4 to scratch space, because the index before it contains its digests.
type contents interface {
	// mark records where the next file begins; its expected size is n.
	mark(n int64) error
	// wrote says that a file has been written since.
	wrote(name string) error
	write(p []byte) error
	// back discards what was written since mark.
	back() error
	// end ends the block.
	end() error
	// sections returns the table, or nil if there is none.
	sections() []section
	close() error
}

// spool counts the bytes that are written sequentially.
type spool struct {
	w io.Writer
	n int64
}

func (s *spool) Write(p []byte) (int, error) {
	k, err := s.w.Write(p)
	s.n += int64(k)
	if s.n >= 1<<32 {
		return k, errors.New("contents: more than 4 GiB compressed, the limit of the header")
	}
	return k, err
}

// cut truncates the spool to n bytes. It must write to scratch space.
func (s *spool) cut(n int64) error {
	_, err := s.w.(io.Seeker).Seek(n, io.SeekStart)
	s.n = n
	return err
}

// sectioned writes sections, several concurrently.
type sectioned struct {
	spool    *spool
	parallel *codec.Parallel
	most     int    // uncompressed bytes of a section
	buf      []byte // the section that is being filled
	table    []section
	flat     int64 // bytes in sections before buf

	// State of the current file: where it began in buf, what preceded it in buf if that has been
	// sent, and the number of sections at that time.
	markAt   int
	head     []byte
	headGone bool
	markFlat int64
	markTook int
	sent     int // sections that were handed over
}

func newSectioned(s *spool, c compressor, most, workers int) *sectioned {
	x := &sectioned{spool: s, most: most}
	x.parallel = codec.NewParallel(workers, c.section, x.take)
	return x
}

func (x *sectioned) take(src, out []byte) error {
	if len(x.table) == 0 {
		if _, err := x.spool.Write(frameHeader(windowLog(x.most))); err != nil {
			return err
		}
		x.table = append(x.table, section{comp: x.spool.n})
	}
	_, err := x.spool.Write(out)
	last := x.table[len(x.table)-1]
	x.table = append(x.table, section{flat: last.flat + int64(len(src)), comp: x.spool.n})
	return err
}

// windowLog returns the window of a frame whose sections have at most n bytes.
func windowLog(n int) int { return max(bits.Len(uint(n-1)), 17) }

// mark ends a section so that a file is not split, unless the section is far from full. Shorter
// sections compress worse, and splitting a file costs little.
func (x *sectioned) mark(n int64) error {
	if kit.EndsUnit(n, int64(len(x.buf)), int64(x.most)) {
		if err := x.flush(); err != nil {
			return err
		}
	}
	x.markAt, x.headGone, x.markFlat, x.markTook = len(x.buf), false, x.flat, x.sent
	return nil
}

// wrote ends a section by the name of a file; see [kit.EndsUnitAfter].
func (x *sectioned) wrote(name string) error {
	if kit.EndsUnitAfter(name, x.flat+int64(len(x.buf))-x.markFlat-int64(x.markAt), int64(len(x.buf)), int64(x.most)) {
		return x.flush()
	}
	return nil
}

func (x *sectioned) write(p []byte) error {
	for len(p) > 0 {
		if x.buf == nil {
			if x.buf = x.parallel.Buffer(); cap(x.buf) < x.most {
				x.buf = make([]byte, 0, x.most)
			}
		}
		k := min(len(p), x.most-len(x.buf))
		x.buf = append(x.buf, p[:k]...)
		p = p[k:]
		if len(x.buf) == x.most {
			if !x.headGone {
				x.head, x.headGone = append(x.head[:0], x.buf[:x.markAt]...), true
			}
			if err := x.flush(); err != nil {
				return err
			}
		}
	}
	return nil
}

func (x *sectioned) flush() error {
	if len(x.buf) == 0 {
		return nil
	}
	x.flat += int64(len(x.buf))
	x.sent++
	err := x.parallel.Add(x.buf)
	x.buf = nil
	return err
}

func (x *sectioned) back() error {
	if !x.headGone {
		x.buf = x.buf[:x.markAt]
		return nil
	}
	if err := x.parallel.Wait(); err != nil {
		return err
	}
	x.sent, x.flat = x.markTook, x.markFlat
	x.table = x.table[:min(x.sent+1, len(x.table))]
	end := int64(0)
	if x.sent == 0 {
		x.table = nil
	} else {
		end = x.table[x.sent].comp
	}
	x.buf = append(x.buf[:0], x.head...)
	x.headGone = false
	return x.spool.cut(end)
}

func (x *sectioned) end() error {
	if err := x.flush(); err != nil {
		return err
	}
	if err := x.parallel.Wait(); err != nil || len(x.table) == 0 {
		return err
	}
	_, err := x.spool.Write(lastBlock)
	return err
}

// sections omits the table if readers decode everything at once anyway.
func (x *sectioned) sections() []section {
	if len(x.table) <= 2 || x.table[len(x.table)-1].flat <= singleCall {
		return nil
	}
	return x.table
}

func (x *sectioned) close() error { return x.parallel.Close() }

// solid writes a single frame, as the reference does. It cannot take anything back.
type solid struct {
	spool *spool
	c     compressor
	held  []byte // everything so far, up to singleCall; that becomes a frame with its size
	w     io.WriteCloser
	flat  int64
	begun int64
}

func (x *solid) mark(int64) error {
	x.begun = x.flat
	return nil
}

func (x *solid) wrote(string) error { return nil }

func (x *solid) write(p []byte) (err error) {
	x.flat += int64(len(p))
	if x.w == nil {
		if x.held = append(x.held, p...); len(x.held) <= singleCall {
			return nil
		}
		if x.w, err = x.c.stream(x.spool); err != nil {
			return err
		}
		p, x.held = x.held, nil
	}
	_, err = x.w.Write(p)
	return err
}

func (x *solid) back() error {
	if x.w == nil {
		x.held = x.held[:x.begun]
	} else if x.flat > x.begun {
		return fmt.Errorf("content in a single frame cannot be rewound; use sections")
	}
	x.flat = x.begun
	return nil
}

func (x *solid) end() error {
	if x.w != nil {
		return x.w.Close()
	}
	if len(x.held) == 0 {
		return nil
	}
	b, err := x.c.frame(nil, x.held)
	if err == nil {
		_, err = x.spool.Write(b)
	}
	return err
}

func (x *solid) sections() []section { return nil }
func (x *solid) close() error        { return nil }
