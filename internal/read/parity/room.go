package parity

import (
	"cmp"
	"io"

	"github.com/holdall/holdall/format/kit/sorter"
)

// A room holds bytes in memory up to a limit. Above it, all of them are in a scratch file on disk.
// Bytes that were not written read as zeros.
type room struct {
	limit int64
	b     []byte
	disk  scratch
	size  int64
	spare []byte // buffer for borrow
}

type scratch interface {
	sorter.Scratch
	io.ReaderAt
	io.WriterAt
}

// reserve grows the room to at least size bytes.
func (r *room) reserve(size int64) error {
	if size <= r.size {
		return nil
	}
	if r.disk == nil && size > r.limit {
		s, err := sorter.TempFile()
		if err != nil {
			return err
		}
		r.disk = s.(scratch) // it is a file
		if _, err = r.disk.WriteAt(r.b, 0); err != nil {
			return err
		}
		r.b = nil
	}
	if r.disk == nil {
		if size > int64(cap(r.b)) {
			b := make([]byte, len(r.b), min(max(size, 2*int64(cap(r.b))), r.limit))
			copy(b, r.b)
			r.b = b
		}
		r.b = r.b[:size]
	}
	r.size = size
	return nil
}

func (r *room) write(b []byte, at int64) error {
	if err := r.reserve(at + int64(len(b))); err != nil {
		return err
	}
	if r.disk == nil {
		copy(r.b[at:], b)
		return nil
	}
	_, err := r.disk.WriteAt(b, at)
	return err
}

func (r *room) read(b []byte, at int64) error {
	if r.disk == nil {
		n := 0
		if at < r.size {
			n = copy(b, r.b[at:])
		}
		clear(b[n:])
		return nil
	}
	n, err := r.disk.ReadAt(b, at)
	if err == io.EOF {
		clear(b[n:])
		err = nil
	}
	return err
}

// append copies the first n bytes of another room.
func (r *room) append(from *room, at, n int64) error {
	b := make([]byte, min(n, 1<<16))
	for off := int64(0); off < n; off += int64(len(b)) {
		b = b[:min(int64(len(b)), n-off)]
		if err := cmp.Or(from.read(b, off), r.write(b, at+off)); err != nil {
			return err
		}
	}
	return nil
}

// A loan is a part of a room that can be changed in memory.
type loan struct {
	r  *room
	at int64
	b  []byte
}

// borrow returns n bytes of the room. If the room is on disk, only one part may be borrowed at a
// time.
func (r *room) borrow(at, n int64) (loan, error) {
	if r.disk == nil {
		return loan{r, at, r.b[at : at+n]}, nil
	}
	b := r.spare
	if int64(cap(b)) < n {
		b = make([]byte, n)
	}
	r.spare, b = nil, b[:n]
	return loan{r, at, b}, r.read(b, at)
}

func (l loan) keep() error {
	if l.r.disk == nil {
		return nil
	}
	return l.r.write(l.b, l.at)
}

func (l loan) drop() {
	if l.r.disk != nil {
		l.r.spare = l.b
	}
}

func (r *room) close() {
	if r.disk != nil {
		r.disk.Close()
	}
	*r = room{limit: r.limit}
}
