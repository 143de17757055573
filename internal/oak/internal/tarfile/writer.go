package tarfile

import (
	"errors"
	"io"
	"time"
)

// A Writer writes a tar from front to back: segments as they come, and at last what
// stands behind them, which it holds until then. What it writes depends on what is
// added and on the times alone. It belongs to one goroutine.
type Writer struct {
	w     io.Writer
	name  string
	mtime func() time.Time
	tail  Tail
	size  int64
	buf   []byte
	err   error // what ended it
}

// NewWriter begins the tar of the given name, in w, which stays the caller's. mtime
// is asked for each header; nil is the time at which it is written.
func NewWriter(w io.Writer, name string, mtime func() time.Time) *Writer {
	if mtime == nil {
		mtime = time.Now
	}
	return &Writer{w: w, name: name, mtime: mtime}
}

// Add writes a segment. What it refuses leaves the tar as it was; a failed write ends
// it. See [Tail.Add]. Oak's cleanup needs that a bulk segment is before what refers
// to it.
func (w *Writer) Add(id ID, gen Generation, data []byte, refs IDs, binaries []string) error {
	if w.err != nil {
		return w.err
	}
	e := Entry{ID: id, Pos: w.size + BlockSize, Len: len(data), Generation: gen}
	if err := w.tail.Add(e, refs, binaries); err != nil {
		return err
	}
	w.buf = AppendHeader(w.buf[:0], entryName(id, checksum(data)), int64(len(data)), w.mtime())
	w.buf = append(w.buf, data...)
	w.buf = append(w.buf, zeros[:pad(len(data))]...)
	return w.write(w.buf)
}

func (w *Writer) write(b []byte) error {
	n, err := w.w.Write(b)
	if err == nil && n < len(b) {
		err = io.ErrShortWrite
	}
	w.size += int64(n)
	w.err = err
	return err
}

func (w *Writer) Size() int64 { return w.size }

// Full reports whether a next segment should go into the next tar, as Oak has it: the
// tar is limit bytes long, or might become too long for Oak with one segment more.
func (w *Writer) Full(limit int64) bool {
	const refs = 1 << 20 // more than the references of a segment
	return w.size >= limit || w.size > maxLen-w.tail.size()-scanWindow-refs
}

// Close writes what stands behind the segments. There must be one at least.
func (w *Writer) Close() error {
	if w.err != nil {
		return w.err
	}
	b, err := w.tail.Append(w.buf[:0], w.name, w.mtime)
	if err != nil {
		return err
	}
	if err := w.write(b); err != nil {
		return err
	}
	w.err = errors.New("tar: already closed")
	return nil
}
