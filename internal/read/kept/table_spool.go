package kept

import (
	"bufio"
	"bytes"
	"container/heap"
	"encoding/binary"
	"io"
	"iter"
	"slices"

	"github.com/holdall/holdall/format/kit/sorter"
)

// hashes are the hashes of names, each with the number of its row in the lower half. They are
// sorted in memory, and if there are many, in runs on scratch.
type hashes struct {
	scratch func() (sorter.Scratch, error)
	mem     []uint64
	disk    sorter.Scratch
	spilt   int64 // bytes of runs
}

const (
	hashRun    = 2 << 20   // numbers in a run
	hashBuffer = 128 << 10 // bytes of a run that are read at once
)

func (h *hashes) add(v uint64) (err error) {
	if len(h.mem) == hashRun {
		h.sort()
		if h.disk == nil {
			if h.disk, err = h.scratch(); err != nil {
				return err
			}
		}
		w := bufio.NewWriterSize(h.disk, hashBuffer)
		for _, v := range h.mem {
			if _, err := w.Write(binary.LittleEndian.AppendUint64(w.AvailableBuffer(), v)); err != nil {
				return err
			}
		}
		if err := w.Flush(); err != nil {
			return err
		}
		h.spilt += hashRun * hashLen
		h.mem = h.mem[:0]
	}
	h.mem = append(h.mem, v)
	return nil
}

// sort sorts the hashes in memory. Rows with the same hash stay in the order in which they were
// added.
func (h *hashes) sort() {
	const digit = 11
	from, to := h.mem, make([]uint64, len(h.mem))
	for shift := 32; shift < 64; shift += digit {
		var at [1<<digit + 1]int
		for _, v := range from {
			at[v>>shift&(1<<digit-1)+1]++
		}
		for i := range 1 << digit {
			at[i+1] += at[i]
		}
		for _, v := range from {
			k := v >> shift & (1<<digit - 1)
			to[at[k]] = v
			at[k]++
		}
		from, to = to, from
	}
	h.mem = from
}

// sorted yields all hashes in order. It may be called more than once. Nothing can be added after
// that.
func (h *hashes) sorted() iter.Seq2[uint64, error] {
	return func(yield func(uint64, error) bool) {
		h.sort()
		var m hashRuns
		for off := int64(0); off < h.spilt; off += hashRun * hashLen {
			m = append(m, &hashReader{disk: h.disk, off: off, end: off + hashRun*hashLen})
		}
		m = append(m, &hashReader{mem: h.mem})
		live := m[:0]
		for _, r := range m {
			ok, err := r.next()
			if err != nil {
				yield(0, err)
				return
			}
			if ok {
				live = append(live, r)
			}
		}
		m = live
		heap.Init(&m)
		for len(m) > 0 {
			r := m[0]
			if !yield(r.v, nil) {
				return
			}
			ok, err := r.next()
			if err != nil {
				yield(0, err)
				return
			}
			if !ok {
				heap.Pop(&m)
			} else if len(m) > 1 {
				heap.Fix(&m, 0)
			}
		}
	}
}

// writeTo writes u32 hash, u32 row of each.
func (h *hashes) writeTo(w io.Writer) error {
	var b []byte
	for v, err := range h.sorted() {
		if err != nil {
			return err
		}
		b = binary.LittleEndian.AppendUint32(b[:0], uint32(v>>32))
		b = binary.LittleEndian.AppendUint32(b, uint32(v))
		if _, err := w.Write(b); err != nil {
			return err
		}
	}
	return nil
}

// writeSlots writes, for each value of the highest bits of a hash, how many entries are before it,
// and finally the number of entries.
func (h *hashes) writeSlots(w io.Writer, bits int) error {
	var b []byte
	slot, n := uint64(0), uint32(0)
	put := func() error {
		b = binary.LittleEndian.AppendUint32(b[:0], n)
		_, err := w.Write(b)
		slot++
		return err
	}
	for v, err := range h.sorted() {
		for at := v >> (64 - bits); err == nil && slot <= at; {
			err = put()
		}
		if err != nil {
			return err
		}
		n++
	}
	for slot <= 1<<bits {
		if err := put(); err != nil {
			return err
		}
	}
	return nil
}

// A hashReader reads a run.
type hashReader struct {
	mem      []uint64 // the rest of a run in memory, or
	disk     sorter.Scratch
	off, end int64
	buf      []byte
	v        uint64
}

func (r *hashReader) next() (bool, error) {
	if len(r.mem) > 0 {
		r.v, r.mem = r.mem[0], r.mem[1:]
		return true, nil
	}
	if len(r.buf) == 0 && r.off < r.end {
		if _, err := r.disk.Seek(r.off, io.SeekStart); err != nil {
			return false, err
		}
		r.buf = slices.Grow(r.buf[:0], hashBuffer)[:min(hashBuffer, r.end-r.off)]
		if _, err := io.ReadFull(r.disk, r.buf); err != nil {
			return false, err
		}
		r.off += int64(len(r.buf))
	}
	if len(r.buf) == 0 {
		return false, nil
	}
	r.v, r.buf = binary.LittleEndian.Uint64(r.buf), r.buf[hashLen:]
	return true, nil
}

// hashRuns is a heap of runs, ordered by their next hash.
type hashRuns []*hashReader

func (m hashRuns) Len() int           { return len(m) }
func (m hashRuns) Less(i, j int) bool { return m[i].v < m[j].v }
func (m hashRuns) Swap(i, j int)      { m[i], m[j] = m[j], m[i] }
func (m *hashRuns) Push(x any)        { *m = append(*m, x.(*hashReader)) }
func (m *hashRuns) Pop() any {
	last := len(*m) - 1
	r := (*m)[last]
	*m = (*m)[:last]
	return r
}

// A spool holds bytes that are written later: in memory, or on scratch if there are many.
type spool struct {
	scratch func() (sorter.Scratch, error)
	mem     []byte
	disk    sorter.Scratch
	n       int64 // bytes in all
}

const spoolMemory = 256 << 10

func (s *spool) write(b []byte) error {
	_, err := s.Write(b)
	return err
}

func (s *spool) Write(b []byte) (n int, err error) {
	if len(s.mem)+len(b) > spoolMemory && len(s.mem) > 0 {
		if s.disk == nil {
			if s.disk, err = s.scratch(); err != nil {
				return 0, err
			}
		}
		if _, err := s.disk.Write(s.mem); err != nil {
			return 0, err
		}
		s.mem = s.mem[:0]
	}
	s.mem = append(s.mem, b...)
	s.n += int64(len(b))
	return len(b), nil
}

// reader returns a reader of all bytes. Nothing can be added after that.
func (s *spool) reader() (*bufio.Reader, error) {
	if s.disk == nil {
		return bufio.NewReader(bytes.NewReader(s.mem)), nil
	}
	if _, err := s.disk.Seek(0, io.SeekStart); err != nil {
		return nil, err
	}
	spilt := io.LimitReader(s.disk, s.n-int64(len(s.mem)))
	return bufio.NewReaderSize(io.MultiReader(spilt, bytes.NewReader(s.mem)), spoolMemory), nil
}

// writeTo writes all bytes to w. Nothing can be added after that.
func (s *spool) writeTo(w io.Writer) error {
	r, err := s.reader()
	if err == nil {
		_, err = io.CopyN(w, r, s.n)
	}
	return err
}

// drop discards all bytes.
func (s *spool) drop() {
	s.close()
	s.mem, s.disk, s.n = nil, nil, 0
}

func (s *spool) close() {
	if s.disk != nil {
		s.disk.Close()
	}
}
