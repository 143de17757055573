package caf

import (
	"hash/maphash"
	"io"

	"github.com/holdall/holdall/format"
)

// rowBuffer holds the rows of an index that is being written: in memory while
// they are few, then in a scratch file.
type rowBuffer struct {
	scratch func() (format.Scratch, error) // nil: memory only
	n       int64                          // bytes of rows
	mem     []byte
	file    format.Scratch
}

// maxRowMem is how many bytes of rows stay in memory: some 30,000 files.
var maxRowMem = 4 << 20

func (b *rowBuffer) add(row []byte) error {
	b.n += int64(len(row))
	b.mem = append(b.mem, row...)
	if len(b.mem) < maxRowMem || b.scratch == nil {
		return nil
	}
	if b.file == nil {
		f, err := b.scratch()
		if err != nil {
			return err
		}
		b.file = f
	}
	_, err := b.file.Write(b.mem)
	b.mem = b.mem[:0]
	return err
}

// each passes all rows to write, in order, in blocks.
func (b *rowBuffer) each(write func([]byte) error) error {
	if b.file != nil {
		if _, err := b.file.Seek(0, io.SeekStart); err != nil {
			return err
		}
		block := make([]byte, 128<<10)
		for {
			k, err := b.file.Read(block)
			if k > 0 {
				if err := write(block[:k]); err != nil {
					return err
				}
			}
			if err == io.EOF {
				break
			}
			if err != nil {
				return err
			}
		}
	}
	return write(b.mem)
}

func (b *rowBuffer) close() {
	if b.file != nil {
		b.file.Close()
		b.file = nil
	}
	b.mem = nil
}

// nameSet remembers names by 64-bit fingerprints, ten to twenty bytes each
// whatever their length. Ten million names have a chance of one in 400,000 that
// one of them is taken for a duplicate and refused; none is ever let through.
type nameSet struct {
	seed  maphash.Seed
	slots []uint64 // 0 is free
	n     int
}

func (s *nameSet) print(name string) uint64 {
	return max(1, maphash.String(s.seed, name))
}

// slot returns where fingerprint h is, or would be.
func (s *nameSet) slot(h uint64) int {
	mask := uint64(len(s.slots) - 1)
	for i := h & mask; ; i = (i + 1) & mask {
		if s.slots[i] == 0 || s.slots[i] == h {
			return int(i)
		}
	}
}

func (s *nameSet) has(name string) bool {
	if s.n == 0 {
		return false
	}
	h := s.print(name)
	return s.slots[s.slot(h)] == h
}

func (s *nameSet) add(name string) {
	if 4*(s.n+1) > 3*len(s.slots) {
		old := s.slots
		s.slots = make([]uint64, max(1024, 2*len(old)))
		for _, h := range old {
			if h != 0 {
				s.slots[s.slot(h)] = h
			}
		}
	}
	h := s.print(name)
	s.slots[s.slot(h)] = h
	s.n++
}
