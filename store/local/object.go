package local

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/holdall/holdall/internal/sysfile"
	"github.com/holdall/holdall/store"
)

// object is an open file.
//
// That it changed is noticed by its size and modification time: when a read
// comes up short, and otherwise at most every recheck. Not noticed are a change
// that puts the old time back, one within the same tick of the file system's
// clock as the last change before Open (Linux since 6.13 has no such ticks on
// most file systems), a write through a memory map before it is written back,
// and, until the next look, a read less than recheck after the last look. The
// change time is left out because a rename over the file's name changes it, and
// the old file, which this object keeps open, is still whole then.
type object struct {
	f       *os.File
	path    string
	info    store.Info
	recheck time.Duration

	grows bool // it is only written to at its end: that is no change of what was there

	next    atomic.Int64 // when to look again, on the clock that ticks counts
	changed atomic.Bool
	can     store.ObjectAbilities
}

// Open opens a regular file for reading. It never waits: a named pipe is
// refused, not opened.
func (s *Store) Open(ctx context.Context, name string) (store.Object, error) {
	return s.openAs(ctx, name, false)
}

// OpenGrowing opens a file that is only written to at its end. What it had then can be
// read though it grows, or is removed.
func (s *Store) OpenGrowing(ctx context.Context, name string) (store.Object, error) {
	return s.openAs(ctx, name, true)
}

func (s *Store) openAs(ctx context.Context, name string, grows bool) (store.Object, error) {
	p, err := s.path(name)
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return nil, failed("open", name, err)
	}
	o, err := s.open(p, name, os.OpenFile, os.Stat)
	if err != nil {
		return nil, failed("open", p, err)
	}
	o.grows = grows
	return o, nil
}

// Locked says which other process has a lock of fcntl on a file, as Java programs take it.
// Other locks it does not know, and on systems without these it is an error that wraps
// errors.ErrUnsupported.
func (s *Store) Locked(ctx context.Context, name string) (by string, err error) {
	p, err := s.path(name)
	if err == nil {
		err = ctx.Err()
	}
	if err == nil {
		by, err = sysfile.RecordLocked(p)
		err = missing(err)
	}
	return by, failed("lock", name, err)
}

// open opens the file of that name at p.
func (s *Store) open(p, name string, open func(string, int, fs.FileMode) (*os.File, error), stat func(string) (fs.FileInfo, error)) (*object, error) {
	f, err := openRegular(p, os.O_RDONLY, open, stat)
	if err != nil {
		return nil, missing(err)
	}
	o, err := s.adopt(f, name)
	if err != nil {
		f.Close()
	}
	return o, err
}

// openRegular looks before opening: to open and close a pipe breaks it for its writer,
// and to open a device may move it. Who calls it looks again afterwards, at what was
// opened, without waiting for it.
func openRegular(p string, flag int, open func(string, int, fs.FileMode) (*os.File, error), stat func(string) (fs.FileInfo, error)) (*os.File, error) {
	fi, err := stat(p)
	if err == nil {
		err = refusal(fi.Mode())
	}
	if err != nil {
		return nil, err
	}
	return open(p, flag|sysfile.DontWait, 0)
}

// adopt makes an object of an open file.
func (s *Store) adopt(f *os.File, name string) (*object, error) {
	fi, err := f.Stat()
	if err == nil {
		err = refusal(fi.Mode())
	}
	if err != nil {
		return nil, err
	}
	o := &object{f: f, path: f.Name(), info: infoOf(name, fi), recheck: s.recheck}
	o.can.File = o.file
	o.next.Store(int64(ticks() + o.recheck))
	return o, nil
}

// refusal says why a file cannot be read as an object; nil if it can.
func refusal(mode fs.FileMode) error {
	switch {
	case mode.IsRegular():
		return nil
	case mode.IsDir():
		return syscall.EISDIR
	case mode&fs.ModeNamedPipe != 0:
		return errors.New("is a named pipe: expected a regular file")
	case mode&fs.ModeSocket != 0:
		return errors.New("is a socket: expected a regular file")
	case mode&fs.ModeDevice != 0:
		return errors.New("is a device: expected a regular file")
	default:
		return errors.New("is a special file: expected a regular file")
	}
}

func (o *object) Info(ctx context.Context) (store.Info, error) {
	return o.info, failed("info", o.path, ctx.Err())
}

func (o *object) ReadAt(ctx context.Context, p []byte, off int64) error {
	if len(p) == 0 {
		return nil
	}
	if o.changed.Load() {
		return o.fail("read", off, int64(len(p)), store.ErrChanged)
	}
	if err := ctx.Err(); err != nil {
		return o.fail("read", off, int64(len(p)), err)
	}
	if off < 0 {
		return o.fail("read", off, int64(len(p)), fs.ErrInvalid)
	}
	if int64(len(p)) > o.info.Size-off {
		return o.short("read", off, int64(len(p)), io.ErrUnexpectedEOF)
	}
	if n, err := o.f.ReadAt(p, off); n < len(p) {
		return o.short("read", off, int64(len(p)), err)
	}
	// Looking after the read, not before it, vouches for what was read.
	return o.fail("read", off, int64(len(p)), o.lookAgain())
}

func (o *object) Can() store.ObjectAbilities { return o.can }

// file returns the file. What is read of it afterwards nobody vouches for.
func (o *object) file(ctx context.Context) (*os.File, error) {
	err := ctx.Err()
	if err == nil && o.changed.Load() {
		err = store.ErrChanged
	}
	if err == nil {
		err = o.lookAgain()
	}
	if err != nil {
		return nil, failed("file", o.path, err)
	}
	return o.f, nil
}

// lookAgain looks if it is time to.
func (o *object) lookAgain() error {
	now := ticks()
	if int64(now) < o.next.Load() {
		return nil
	}
	o.next.Store(int64(now + o.recheck))
	return o.look()
}

func (o *object) Close() error { return failed("close", o.path, o.f.Close()) }

// look finds out whether the file is still what it was at Open.
func (o *object) look() error {
	fi, err := o.f.Stat()
	if err != nil {
		return cause(err)
	}
	if o.grows && fi.Size() >= o.info.Size {
		return nil
	}
	if fi.Size() != o.info.Size || !fi.ModTime().Equal(o.info.ModTime) {
		o.changed.Store(true)
	}
	if o.changed.Load() {
		return store.ErrChanged
	}
	return nil
}

// short says why there were too few bytes: the file changed, or else err.
func (o *object) short(op string, off, n int64, err error) error {
	if seen := o.look(); seen != nil {
		err = seen
	} else if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	return o.fail(op, off, n, err)
}

func (o *object) fail(op string, off, n int64, err error) error {
	return failedAt(op, o.path, off, n, err)
}

var started = time.Now()

// ticks is a clock that is cheap to read and never set.
func ticks() time.Duration { return time.Since(started) }

func infoOf(name string, fi fs.FileInfo) store.Info {
	return store.Info{Name: name, Size: fi.Size(), ModTime: fi.ModTime(), Version: version(fi)}
}

// version tells a file's states apart: inode, size, modification and change
// time. Where a system has no inodes, size and modification time must do.
func version(fi fs.FileInfo) string {
	ino, ctime := inode(fi)
	b := make([]byte, 0, 64)
	b = strconv.AppendUint(b, ino, 16)
	for _, n := range [...]int64{fi.Size(), fi.ModTime().UnixNano(), ctime} {
		b = append(b, '-')
		b = strconv.AppendUint(b, uint64(n), 16)
	}
	return string(b)
}
