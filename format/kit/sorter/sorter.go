// Package sorter sorts any number of rows by their keys, in bounded memory. It is for formats
// that receive data in a different order than they write it. Make a Sorter with [New], Add rows, and
// iterate over Sorted. For few rows, use package slices.
package sorter

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"slices"
	"unsafe"
)

// Scratch is temporary storage that is removed when it is closed.
type Scratch interface {
	io.ReadWriteSeeker
	io.Closer
}

// TempFile opens scratch on the disk.
func TempFile() (Scratch, error) {
	f, err := os.CreateTemp("", "holdall-scratch-")
	if err != nil {
		return nil, err
	}
	// Without a name, the file disappears when the process ends, even if it is killed.
	if os.Remove(f.Name()) == nil {
		return f, nil
	}
	return tempFile{f}, nil
}

// tempFile is for systems where an open file cannot be removed.
type tempFile struct{ *os.File }

func (t tempFile) Close() error { return errors.Join(t.File.Close(), os.Remove(t.Name())) }

// Options of a Sorter. Scratch is required.
type Options struct {
	Memory  int64 // for rows; 0 is 32 MiB
	Scratch func() (Scratch, error)
	// Duplicate, if it is not nil, is called for each key that was added more than once. The last
	// value of the key is used. If Duplicate is nil, or returns an error, the sort fails.
	Duplicate func(key []byte) error
}

// A Row is a key and its value.
type Row struct{ Key, Value []byte }

// A Sorter takes rows in any order and yields them in the order of their keys. Rows that do not
// fit in memory are written to scratch in sorted runs. A Sorter must only be used by one
// goroutine.
type Sorter struct {
	o       Options
	chunks  [][]byte // of keys and values, filled one after the other
	used    int      // chunks that have something in them
	rows    []sortRow
	order   []uint64 // of rows, set by sort: the number of each in its lower half
	large   int64    // bytes of chunks that are longer than sortChunk
	scratch Scratch
	written int64
	runs    []run
	given   bool // Sorted was called: no more rows can be added
	err     error
}

// sortRow is where a row is.
type sortRow struct {
	chunk, at      uint32
	keyLen, valLen uint32
}

const (
	sortRowLen = 16
	orderLen   = 8
	sortChunk  = 1 << 20
	// Buffers for reading runs are as large as there is memory for, within these bounds.
	leastBuffer = 16 << 10
	mostBuffer  = 1 << 20
	// maxRow is the maximum length of a row. One row of each run has to be in memory.
	maxRow = 8<<20 - 64<<10
)

// run is a part of scratch.
type run struct{ off, end int64 }

// New returns an empty Sorter. It has no scratch until it needs one.
func New(o Options) *Sorter {
	o.Memory = max(cmp.Or(o.Memory, 32<<20), 2*sortChunk)
	return &Sorter{o: o}
}

// Add adds a row. It keeps copies.
func (s *Sorter) Add(key, value []byte) error {
	if s.err == nil && s.given {
		return errors.New("sort: a row after the last one")
	}
	if s.err != nil {
		return s.err
	}
	n := len(key) + len(value)
	if len(key) > maxRow-len(value) {
		return fmt.Errorf("sort: key %q: %d bytes, expected at most %d", clip(key), n, maxRow)
	}
	if s.used == 0 || cap(s.chunks[s.used-1])-len(s.chunks[s.used-1]) < n {
		if s.memory()+int64(max(n, sortChunk)) > s.o.Memory && len(s.rows) > 0 {
			if s.err = s.spill(); s.err != nil {
				return s.err
			}
		}
		s.room(n)
	}
	c := &s.chunks[s.used-1]
	s.rows = append(s.rows, sortRow{uint32(s.used - 1), uint32(len(*c)), uint32(len(key)), uint32(len(value))})
	*c = append(append(*c, key...), value...)
	return nil
}

// memory returns how much the rows take. The slice of rows counts twice, because it may be copied
// to a larger one.
func (s *Sorter) memory() int64 {
	return int64(s.used)*sortChunk + s.large + int64(cap(s.rows))*(2*sortRowLen+orderLen)
}

// room begins a chunk with room for n bytes.
func (s *Sorter) room(n int) {
	if n > sortChunk {
		s.large += int64(n - sortChunk)
		s.chunks = slices.Insert(s.chunks, s.used, make([]byte, 0, n))
	} else if s.used == len(s.chunks) {
		s.chunks = append(s.chunks, make([]byte, 0, sortChunk))
	}
	s.used++
}

func (s *Sorter) key(r sortRow) []byte { return s.chunks[r.chunk][r.at:][:r.keyLen:r.keyLen] }

func (s *Sorter) val(r sortRow) []byte {
	return s.chunks[r.chunk][r.at+r.keyLen:][:r.valLen:r.valLen]
}

// sort orders what is in memory; rows of one key stay in the order of Add.
func (s *Sorter) sort() {
	s.order = slices.Grow(s.order[:0], len(s.rows))
	for i := range s.rows {
		s.order = append(s.order, uint64(i))
	}
	order(s.order, func(i uint32) string {
		k := s.key(s.rows[i])
		return unsafe.String(unsafe.SliceData(k), len(k))
	}, 0)
}

// sorted returns a row in the order of sort.
func (s *Sorter) sorted(i int) sortRow { return s.rows[uint32(s.order[i])] }

// spill writes what is in memory as a run:
//
//	uvar shared with the key before, uvar unshared, uvar value length, key suffix, value
func (s *Sorter) spill() error {
	if s.scratch == nil {
		var err error
		if s.scratch, err = s.o.Scratch(); err != nil {
			return err
		}
	}
	s.sort()
	if _, err := s.scratch.Seek(s.written, io.SeekStart); err != nil {
		return err
	}
	w := bufio.NewWriterSize(s.scratch, 256<<10)
	r := run{off: s.written}
	var last []byte
	for i := range s.rows {
		row := s.sorted(i)
		k, v := s.key(row), s.val(row)
		shared := SharedLen(last, k)
		b := binary.AppendUvarint(w.AvailableBuffer(), uint64(shared))
		b = binary.AppendUvarint(b, uint64(len(k)-shared))
		b = binary.AppendUvarint(b, uint64(len(v)))
		b = append(append(b, k[shared:]...), v...)
		if _, err := w.Write(b); err != nil {
			return err
		}
		s.written += int64(len(b))
		last = k
	}
	if err := w.Flush(); err != nil {
		return err
	}
	r.end = s.written
	s.runs = append(s.runs, r)
	s.rows = s.rows[:0]
	s.chunks = slices.DeleteFunc(s.chunks, func(c []byte) bool { return cap(c) > sortChunk })
	for i := range s.chunks {
		s.chunks[i] = s.chunks[i][:0]
	}
	s.used, s.large = 0, 0
	return nil
}

// Sorted yields all rows in order, as often as it is called; nothing can be added after that. A
// row is valid until the next one. An error is the last thing that it yields.
func (s *Sorter) Sorted() iter.Seq2[Row, error] {
	return func(yield func(Row, error) bool) {
		if s.err != nil {
			yield(Row{}, s.err)
			return
		}
		s.given = true
		var m runs
		if len(s.runs) > 0 {
			// What is in memory becomes a run too, and makes room for buffers.
			if len(s.rows) > 0 {
				if s.err = s.spill(); s.err != nil {
					yield(Row{}, s.err)
					return
				}
			}
			s.chunks, s.rows, s.order = nil, nil, nil
			size := min(max(leastBuffer, int(s.o.Memory)/len(s.runs)), mostBuffer)
			for i, r := range s.runs {
				m = append(m, &runReader{scratch: s.scratch, run: r, order: i, buf: make([]byte, 0, min(size, int(r.end-r.off)))})
			}
		} else {
			s.sort()
			m = append(m, &runReader{sorter: s})
		}
		if err := m.merge(s.o.Duplicate, yield); err != nil {
			yield(Row{}, err)
		}
	}
}

// Close releases memory and scratch.
func (s *Sorter) Close() error {
	s.err = errors.New("sort: closed")
	s.chunks, s.rows, s.order = nil, nil, nil
	if s.scratch == nil {
		return nil
	}
	err := s.scratch.Close()
	s.scratch = nil
	return err
}

func clip(key []byte) []byte { return key[:min(len(key), 64)] }

// A runReader reads a run, in scratch or in memory.
type runReader struct {
	sorter *Sorter // its rows are in memory, or
	row    int

	scratch Scratch
	run     run // what was not read yet
	order   int // number of the run: later runs have later rows
	buf     []byte
	at      int

	key, val []byte
}

func (r *runReader) next() (bool, error) {
	if s := r.sorter; s != nil {
		if r.row == len(s.rows) {
			return false, nil
		}
		row := s.sorted(r.row)
		r.key, r.val = s.key(row), s.val(row)
		r.row++
		return true, nil
	}
	if len(r.buf)-r.at < 3*binary.MaxVarintLen64 {
		if err := r.fill(3 * binary.MaxVarintLen64); err != nil {
			return false, err
		}
	}
	if r.at == len(r.buf) {
		return false, nil
	}
	shared, a := binary.Uvarint(r.buf[r.at:])
	unshared, b := binary.Uvarint(r.buf[r.at+max(a, 0):])
	vlen, c := binary.Uvarint(r.buf[r.at+max(a, 0)+max(b, 0):])
	if a <= 0 || b <= 0 || c <= 0 || shared > uint64(len(r.key)) || unshared > maxRow || vlen > maxRow {
		return false, r.damaged()
	}
	head := a + b + c
	n := head + int(unshared) + int(vlen)
	if len(r.buf)-r.at < n {
		if err := r.fill(n); err != nil {
			return false, err
		}
		if len(r.buf)-r.at < n {
			return false, r.damaged()
		}
	}
	row := r.buf[r.at:][head:n]
	r.key = append(r.key[:shared], row[:unshared]...)
	r.val = row[unshared:]
	r.at += n
	return true, nil
}

// damaged returns an error: scratch does not have what was written.
func (r *runReader) damaged() error {
	return fmt.Errorf("sort: scratch before %d: no row, expected what was written", r.run.off)
}

// fill reads more, so that n bytes are in the buffer, unless the run has fewer.
func (r *runReader) fill(n int) error {
	rest := copy(r.buf[:cap(r.buf)], r.buf[r.at:])
	r.buf, r.at = r.buf[:rest], 0
	if n > cap(r.buf) {
		r.buf = slices.Grow(r.buf, n-rest)
	}
	more := int(min(int64(cap(r.buf)-rest), r.run.end-r.run.off))
	if more == 0 {
		return nil
	}
	if _, err := r.scratch.Seek(r.run.off, io.SeekStart); err != nil {
		return err
	}
	if _, err := io.ReadFull(r.scratch, r.buf[rest:rest+more]); err != nil {
		return fmt.Errorf("sort: scratch at %d: %w", r.run.off, err)
	}
	r.buf = r.buf[:rest+more]
	r.run.off += int64(more)
	return nil
}

// runs is a heap of runs, ordered by their current rows.
type runs []*runReader

func (m *runs) merge(duplicate func([]byte) error, yield func(Row, error) bool) error {
	live := (*m)[:0]
	for _, r := range *m {
		ok, err := r.next()
		if err != nil {
			return err
		}
		if ok {
			live = append(live, r)
		}
	}
	*m = live
	for i := len(live)/2 - 1; i >= 0; i-- {
		m.sift(i)
	}
	// A row waits until it is known to be the last of its key.
	var held Row
	have := false
	for len(*m) > 0 {
		r := (*m)[0]
		if have && bytes.Equal(r.key, held.Key) {
			if duplicate == nil {
				return fmt.Errorf("sort: key %q was added more than once", clip(r.key))
			}
			if err := duplicate(r.key); err != nil {
				return err
			}
		} else if have && !yield(held, nil) {
			return nil
		}
		held.Key, held.Value = append(held.Key[:0], r.key...), append(held.Value[:0], r.val...)
		have = true
		ok, err := r.next()
		if err != nil {
			return err
		}
		if !ok {
			n := len(*m) - 1
			(*m)[0] = (*m)[n]
			*m = (*m)[:n]
		}
		m.sift(0)
	}
	if have {
		yield(held, nil)
	}
	return nil
}

func (m runs) before(i, j int) bool {
	c := bytes.Compare(m[i].key, m[j].key)
	return c < 0 || c == 0 && m[i].order < m[j].order
}

func (m runs) sift(i int) {
	for {
		c := 2*i + 1
		if c >= len(m) {
			return
		}
		if c+1 < len(m) && m.before(c+1, c) {
			c++
		}
		if !m.before(c, i) {
			return
		}
		m[i], m[c] = m[c], m[i]
		i = c
	}
}
