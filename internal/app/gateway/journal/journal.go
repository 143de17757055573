// Package journal is the log of a gateway on a disk. What is appended is durable when Append returns:
// it costs one fdatasync, however many records it has. The log consists of segments, and each becomes
// a CAF when it is sealed (format/caf describes its bytes).
//
// What Open relies on, and Append keeps: a batch is synced before the next one is written, the name of
// a segment before its first batch, and the end of a segment before the next one begins.
package journal

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/caf"
	"github.com/holdall/holdall/internal/app/gateway/journal/disk"
	"github.com/holdall/holdall/internal/base/blake3"
)

var (
	// ErrFull means that the disk has no room. Nothing of the batch is in the log, and a later Append
	// may succeed.
	ErrFull = errors.New("the disk of the log is full")
	// ErrStopped means that the disk has failed to write or to sync. Nobody knows what it has then, so
	// nothing is written until another Open has read it.
	ErrStopped = errors.New("the log has stopped, because its disk failed: start again to go on")
	// ErrRemoved means that a segment was removed, or the journal closed.
	ErrRemoved = errors.New("the segment was removed")
)

// Options are the options of Open.
type Options struct {
	Text string // of the caller, for the headers of new segments; at most 64 KiB
	Seq  int64  // the next sequence number is at least this
	// Room is how many bytes are reserved on the disk at a time, so that Append need not wait for that;
	// 0 means 64 MiB.
	Room int64
	// Used reports whether a segment is the archive of a commit already, and must not be written to: a new
	// time would make it another one.
	Used func(caf.Log) bool
	// Disk is the folder of the log; nil means that of the system.
	Disk disk.Disk
}

// A Record is a row of the log with its content. Append sets Seq, Size, Off and Segment, and Sum if it is zero.
type Record struct {
	caf.LogRow
	Content []byte
	Segment *Segment
}

// A Journal is an open log. Its methods may be called by several goroutines; they wait for each other.
type Journal struct {
	dir  string
	o    Options
	disk disk.Disk
	lock io.Closer

	mu       sync.Mutex
	segments []*Segment // in their order
	current  *Segment   // the last one, if it can be appended to
	number   int64      // of the last segment
	seq      int64      // of the next row
	stopped  error
	buf      []byte
}

const (
	suffix = ".log"
	unborn = ".new" // of a segment whose header is not synced yet

	mostRoom = 64 << 20
	writes   = 1 << 20 // bytes that are written at a time
	blocks   = 16 << 10
)

// Open opens the log in a folder, and recovers what a crash has left. The segments that have rows are
// returned in their order: they only wait to be sealed and removed. Damage that no crash leaves is a
// *format.CorruptError, and then nothing was changed.
func Open(ctx context.Context, dir string, o Options) (*Journal, []*Segment, error) {
	d := o.Disk
	if d == nil {
		folder, err := disk.Open(dir)
		if err != nil {
			return nil, nil, err
		}
		d = folder
	}
	return open(ctx, dir, d, o)
}

func open(ctx context.Context, dir string, d disk.Disk, o Options) (_ *Journal, _ []*Segment, err error) {
	if o.Room = roundUp(o.Room); o.Room <= 0 {
		o.Room = mostRoom
	}
	j := &Journal{dir: dir, o: o, disk: d}
	if j.lock, err = d.Lock(); err != nil {
		return nil, nil, err
	}
	defer func() {
		if err != nil {
			j.stopped = err
			_ = j.Close()
		}
	}()
	names, err := d.List()
	if err != nil {
		return nil, nil, err
	}
	var numbers []int64
	for _, name := range names {
		n, err := strconv.ParseInt(strings.TrimSuffix(name, suffix), 10, 64)
		switch {
		case strings.HasSuffix(name, suffix+unborn):
			if err := d.Remove(name); err != nil {
				return nil, nil, err
			}
		case err == nil && name == nameOf(n):
			numbers = append(numbers, n)
		}
	}
	slices.Sort(numbers)
	if err := d.Sync(); err != nil { // a segment whose removal was seen must not come back
		return nil, nil, err
	}
	// No segment is changed before all were read.
	var mends []func() error
	for i, n := range numbers {
		mend, err := j.recover(ctx, n, i == len(numbers)-1)
		if err != nil {
			return nil, nil, err
		}
		mends = append(mends, mend)
	}
	for _, mend := range mends {
		if err := mend(); err != nil {
			return nil, nil, err
		}
	}
	j.seq = max(j.seq, o.Seq)
	return j, slices.DeleteFunc(slices.Clone(j.segments), (*Segment).empty), nil
}

func nameOf(number int64) string { return fmt.Sprintf("%012d%s", number, suffix) }

// full returns ErrFull for errors of a full disk.
func full(err error) error {
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		return fmt.Errorf("%w: %w", ErrFull, err)
	}
	return err
}

// stop makes all later writes fail.
func (j *Journal) stop(err error) error {
	if j.stopped == nil {
		j.stopped = fmt.Errorf("%s: %w: %w", j.dir, ErrStopped, err)
	}
	return j.stopped
}

// Append writes a batch, and returns when it is on the disk. After an error nothing of the batch counts.
// If the error is ErrStopped, all later calls return it.
func (j *Journal) Append(batch []*Record) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.stopped != nil || len(batch) == 0 {
		return j.stopped
	}
	if j.current == nil {
		if err := j.begin(); err != nil {
			return err
		}
	}
	s, rows, contents := j.current, make([]*caf.LogRow, len(batch)), int64(0)
	for i, r := range batch {
		if rows[i] = &r.LogRow; r.Here() {
			if r.Size = int64(len(r.Content)); r.Sum == ([32]byte{}) {
				r.Sum = blake3.Sum256(r.Content)
			}
			contents += r.Size
		}
	}
	from := s.end.Load()
	frame, err := s.log.AppendBatch(j.buf[:0], s.batches, from, j.seq, rows)
	if err != nil {
		return err
	}
	end := from + int64(len(frame)) + contents
	if err := s.reserve(end); err != nil {
		return err
	}
	b, at := frame, from
	for i := 0; i <= len(batch); i++ {
		var content []byte
		if i < len(batch) && batch[i].Here() {
			content = batch[i].Content
		}
		if len(content) < writes {
			b, content = append(b, content...), nil
		}
		if len(b) < writes && content == nil && i < len(batch) {
			continue
		}
		for _, part := range [][]byte{b, content} { // what is large is not copied
			if _, err := s.f.WriteAt(part, at); err != nil {
				return s.failed(err)
			}
			at += int64(len(part))
		}
		b = b[:0]
	}
	if j.buf = b; cap(b) > 4*writes {
		j.buf = nil
	}
	if err := s.f.Datasync(); err != nil {
		return j.stop(err)
	}
	s.batches++
	s.end.Store(end)
	j.seq += int64(len(batch))
	for _, r := range batch {
		r.Segment = s
	}
	return nil
}

// begin creates the next segment.
func (j *Journal) begin() error {
	s := &Segment{j: j, log: caf.Log{Number: j.number + 1, Seq: j.seq, Text: j.o.Text}}
	_, _ = rand.Read(s.log.ID[:]) // never fails
	name := nameOf(s.log.Number)
	f, err := j.disk.Create(name + unborn)
	if err != nil {
		return fmt.Errorf("%s: %w", s.Path(), full(err))
	}
	head := s.log.Append(nil)
	s.first = int64(len(head))
	if _, err = f.WriteAt(head, 0); err == nil {
		err = f.Allocate(j.o.Room)
	}
	if err == nil {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err = full(err); errors.Is(err, ErrFull) {
		return fmt.Errorf("%s: %w", s.Path(), errors.Join(err, j.disk.Remove(name+unborn)))
	}
	if err == nil {
		err = j.disk.Rename(name+unborn, name)
	}
	if err == nil {
		err = j.disk.Sync()
	}
	if err == nil {
		s.f, err = j.disk.Open(name)
	}
	if err != nil {
		return j.stop(err)
	}
	j.number = s.log.Number
	s.room = j.o.Room
	j.add(s)
	j.current = s
	// An empty segment before it has only kept the sequence number.
	for _, old := range j.segments[:len(j.segments)-1] {
		if old.empty() {
			return j.remove(old)
		}
	}
	return nil
}

func (j *Journal) add(s *Segment) {
	s.users.Store(1)
	s.end.CompareAndSwap(0, s.first)
	j.segments = append(j.segments, s)
}

// Roll ends the current segment, which is returned, and begins the next. It returns nil if the current
// one has no rows. If it returns both a segment and an error, the next Append tries again to begin.
func (j *Journal) Roll() (*Segment, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	s := j.current
	if j.stopped != nil || s == nil || s.empty() {
		return nil, j.stopped
	}
	if err := s.cut(); err != nil {
		return nil, j.stop(err)
	}
	j.current = nil
	return s, j.begin()
}

// remove removes a segment and its name.
func (j *Journal) remove(s *Segment) error {
	if err := j.disk.Remove(nameOf(s.log.Number)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	j.segments = slices.DeleteFunc(j.segments, func(old *Segment) bool { return old == s })
	s.Release()
	if err := j.disk.Sync(); err != nil {
		return j.stop(err)
	}
	return nil
}

// Close ends the use of the log. Segments that are held stay readable until they are released.
func (j *Journal) Close() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	var err error
	if j.current != nil && j.stopped == nil {
		err = j.current.cut()
	}
	for _, s := range j.segments {
		s.Release()
	}
	if j.segments, j.current = nil, nil; j.stopped == nil {
		j.stopped = fs.ErrClosed
	}
	if j.lock != nil {
		err = errors.Join(err, j.lock.Close())
		j.lock = nil
	}
	return err
}

// damage returns the error for damage to a segment that a crash does not leave.
func (s *Segment) damage(off int64, what string) error {
	return &format.CorruptError{Format: "caf", Problem: format.Problem{Code: format.BadData, Class: "log", Severity: format.Error, Volume: s.Path(), Off: off,
		Message: what + "; nothing was changed: 'holdall repair' takes out what is left, and then the file can be moved away"}}
}

// Path returns the path of the segment's file.
func (s *Segment) Path() string { return filepath.Join(s.j.dir, nameOf(s.log.Number)) }
