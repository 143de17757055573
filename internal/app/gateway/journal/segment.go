package journal

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"sync/atomic"

	"github.com/holdall/holdall/format/caf"
	"github.com/holdall/holdall/internal/app/gateway/journal/disk"
)

// A Segment is a file of the log.
type Segment struct {
	j       *Journal
	f       disk.File
	log     caf.Log
	first   int64        // where batches begin
	end     atomic.Int64 // of the last batch that is on the disk
	batches int64
	room    int64 // end of what is reserved
	sealed  atomic.Int64
	users   atomic.Int64
}

// sector is what the size of a segment is a multiple of while batches are written to it.
const sector = 512

// complete returns the size of a segment to which nothing is being written. The zeros at its end keep what a
// client has put last from being read as the footer of a CAF.
func complete(end int64) int64 {
	if end += 4; end%sector == 0 {
		end++
	}
	return end
}

func roundUp(n int64) int64 { return (n + sector - 1) / sector * sector }

// Log returns the header of the segment.
func (s *Segment) Log() caf.Log { return s.log }

// Size returns how many bytes header and batches have. The index of a CAF follows them.
func (s *Segment) Size() int64 { return s.end.Load() }

// Sealed returns the size of the CAF that the segment is, or 0 if it was not sealed.
func (s *Segment) Sealed() int64 { return s.sealed.Load() }

func (s *Segment) empty() bool { return s.end.Load() == s.first }

// Hold keeps the segment readable until Release is called. It returns false if it was removed.
func (s *Segment) Hold() bool {
	for {
		n := s.users.Load()
		if n == 0 {
			return false
		}
		if s.users.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

// Release ends what Hold has begun.
func (s *Segment) Release() {
	if s.users.Add(-1) == 0 {
		_ = s.f.Close()
	}
}

// ReadAt reads bytes of the segment. The error is ErrRemoved if it was removed before.
func (s *Segment) ReadAt(p []byte, off int64) (int, error) {
	if !s.Hold() {
		return 0, ErrRemoved
	}
	defer s.Release()
	return s.f.ReadAt(p, off)
}

// reader returns a reader of the batches up to an end.
func (s *Segment) reader(end int64) (*caf.LogReader, error) {
	l, err := caf.NewLogReader(func(p []byte, off int64) error {
		n, err := s.ReadAt(p, off)
		if n == len(p) {
			err = nil
		}
		return err
	}, end, blocks)
	if l == nil && err == nil {
		err = s.damage(0, "the header of the segment is damaged")
	}
	return l, err
}

// Rows yields all rows in their order, with those that later ones replace.
func (s *Segment) Rows(ctx context.Context) iter.Seq2[*caf.LogRow, error] {
	return func(yield func(*caf.LogRow, error) bool) {
		end := s.Size()
		l, err := s.reader(end)
		for err == nil && l.End < end {
			var x *caf.LogBatch
			if x, err = l.Read(); err == nil && x == nil {
				err = s.damage(l.End, "a batch is damaged")
			}
			if err == nil {
				err = ctx.Err()
			}
			for i := 0; err == nil && i < len(x.Rows); i++ {
				if !yield(&x.Rows[i], nil) {
					return
				}
			}
		}
		if err != nil {
			yield(nil, err)
		}
	}
}

// reserve makes room up to end. The size is on the disk before anything is written there.
func (s *Segment) reserve(end int64) error {
	if end <= s.room {
		return nil
	}
	to := roundUp(end + s.j.o.Room/4)
	if err := s.f.Allocate(to); err != nil {
		return s.failed(err)
	}
	if err := s.f.Sync(); err != nil {
		return s.j.stop(err)
	}
	s.room = to
	return nil
}

// failed returns the error of a write. If the disk is full, it takes back what was written.
func (s *Segment) failed(err error) error {
	if err = full(err); !errors.Is(err, ErrFull) {
		return s.j.stop(err)
	}
	if cut := s.cut(); cut != nil {
		return s.j.stop(cut) // and not ErrFull: the batch may be there
	}
	return fmt.Errorf("%s: %w", s.Path(), err)
}

// cut removes what is after the last batch, and makes the segment complete.
func (s *Segment) cut() error {
	for _, size := range []int64{s.Size(), complete(s.Size())} {
		if err := s.f.Truncate(size); err != nil {
			return err
		}
		// Before the second size is there, the last batch is durable, and what is after it is gone.
		if err := s.f.Sync(); err != nil {
			return err
		}
		s.room = size
	}
	return nil
}

// recover reads the segment of a number. mend makes the changes that are needed after a crash.
func (j *Journal) recover(ctx context.Context, number int64, last bool) (mend func() error, err error) {
	s := &Segment{j: j, log: caf.Log{Number: number}}
	if s.f, err = j.disk.Open(nameOf(number)); err != nil {
		return nil, err
	}
	j.add(s)
	size, err := s.f.Size()
	if err != nil {
		return nil, err
	}
	l, err := s.reader(size)
	switch {
	case err != nil:
		return nil, err
	case l.Number != number || l.Seq < j.seq:
		return nil, s.damage(0, "the header is of another segment")
	}
	s.log, s.first = l.Log, l.End
	var x, next *caf.LogBatch
	for next, err = l.Read(); next != nil && err == nil; next, err = l.Read() {
		if x, err = next, ctx.Err(); err != nil {
			break
		}
	}
	if err == nil {
		next, err = l.Find()
	}
	if err == nil && next != nil {
		err = s.damage(l.End, fmt.Sprintf("a batch is damaged, and a later one is whole, at byte %d", next.Off))
	}
	if err != nil {
		return nil, err
	}
	s.end.Store(l.End)
	s.batches, j.number, j.seq = l.Batch, number, max(j.seq, l.Next)
	rest, err := s.isZero(l.End, size)
	if err != nil {
		return nil, err
	}
	done := complete(l.End)
	growing := size%sector == 0 || size < done
	if !rest || !growing && size != done {
		// If sealing was begun, all batches are complete.
		if whole, part, err := s.indexed(ctx, size); err != nil || part {
			return func() error {
				if !whole || j.o.Used != nil && j.o.Used(s.log) {
					return nil
				}
				_, err := s.Seal(ctx) // it may be in memory alone
				return err
			}, err
		}
	}
	switch {
	case rest && size == done || rest && !last && growing:
		return func() error {
			if !last {
				return nil
			}
			return s.cut()
		}, nil
	case !last || !growing:
		return nil, s.damage(l.End, "bytes after the last whole batch are neither zeros nor the index, and no crash leaves that")
	}
	// The last batch was acknowledged if anything was written after it.
	if rest && x != nil {
		whole, err := l.Whole(x)
		if err != nil {
			return nil, err
		}
		if !whole {
			s.end.Store(x.Off)
			s.batches, j.seq, x = x.Number, l.Next-int64(len(x.Rows)), nil
		}
	}
	return func() error { return s.settle(x) }, nil
}

// settle makes what was read the state of the disk. The last batch may be in memory alone, even if its
// sync has failed, so it is written again, and synced before the size says that nothing is being written.
func (s *Segment) settle(last *caf.LogBatch) error {
	if last != nil {
		buf := make([]byte, min(writes, last.End-last.Off))
		for at := last.Off; at < last.End; at += int64(len(buf)) {
			buf = buf[:min(int64(len(buf)), last.End-at)]
			if _, err := s.ReadAt(buf, at); err != nil {
				return err
			}
			if _, err := s.f.WriteAt(buf, at); err != nil {
				return err
			}
		}
		if err := s.f.Datasync(); err != nil {
			return err
		}
	}
	return s.cut()
}

// isZero reports whether there are only zeros from one place to another.
func (s *Segment) isZero(from, to int64) (bool, error) {
	buf, zeros := make([]byte, min(writes, to-from)), make([]byte, min(writes, to-from))
	for ; from < to; from += int64(len(buf)) {
		buf = buf[:min(int64(len(buf)), to-from)]
		if _, err := s.ReadAt(buf, from); err != nil {
			return false, err
		}
		if !bytes.Equal(buf, zeros[:len(buf)]) {
			return false, nil
		}
	}
	return true, nil
}

// indexed reports whether what follows the batches is the index that Seal writes, or a part of it with
// zeros for what is not written yet.
func (s *Segment) indexed(ctx context.Context, size int64) (whole, part bool, err error) {
	c := &comparer{s: s, at: s.Size(), size: size, whole: true, part: true}
	err = s.log.WriteIndex(c, s.Rows(ctx))
	return c.whole && c.at == size, c.part && c.at >= size, err
}

// A comparer compares what is written to it with what the segment has.
type comparer struct {
	s           *Segment
	at, size    int64
	whole, part bool
}

func (c *comparer) Write(b []byte) (int, error) {
	is := make([]byte, len(b))
	if n := min(int64(len(b)), c.size-c.at); n > 0 {
		if _, err := c.s.ReadAt(is[:n], c.at); err != nil {
			return 0, err
		}
	}
	for i := range b {
		c.whole = c.whole && is[i] == b[i]
		c.part = c.part && (is[i] == b[i] || is[i] == 0)
	}
	c.at += int64(len(b))
	return len(b), nil
}

// Seal makes the segment a CAF, durably, and returns its size. It can be called again after an error.
func (s *Segment) Seal(ctx context.Context) (int64, error) {
	s.j.mu.Lock()
	growing := s.j.current == s
	s.j.mu.Unlock()
	switch {
	case growing:
		return 0, fmt.Errorf("%s: the segment has not ended: roll the log before it is sealed", s.Path())
	case s.Sealed() > 0:
		return s.Sealed(), nil
	case !s.Hold():
		return 0, ErrRemoved
	}
	defer s.Release()
	w := io.NewOffsetWriter(s.f, s.Size())
	err := s.log.WriteIndex(w, s.Rows(ctx))
	n, _ := w.Seek(0, io.SeekCurrent)
	size := s.Size() + n
	if err == nil {
		err = s.f.Truncate(size)
	}
	if err == nil {
		err = s.f.Sync()
	}
	if err != nil {
		return 0, fmt.Errorf("%s: seal: %w", s.Path(), full(err))
	}
	s.sealed.Store(size)
	return size, nil
}

// Remove removes the segment, durably. Segments must be removed in their order: otherwise, what a later
// one deletes would be back. Those who hold it can still read it.
func (s *Segment) Remove() error {
	j := s.j
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.stopped != nil {
		return j.stopped
	}
	for len(j.segments) > 1 && j.segments[0] != s && j.segments[0].Size() == j.segments[0].first { // empty ones, which a start has found
		if err := j.remove(j.segments[0]); err != nil {
			return err
		}
	}
	switch {
	case s == j.current || len(j.segments) == 0 || j.segments[0] != s:
		return fmt.Errorf("%s: is removed already, can still grow, or is not the oldest segment", s.Path())
	case len(j.segments) == 1: // the next header keeps the sequence number
		if err := j.begin(); err != nil {
			return err
		}
	}
	return j.remove(s)
}
