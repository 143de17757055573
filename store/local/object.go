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

	"github.com/holdall/holdall/internal/base/sysfile"
	"github.com/holdall/holdall/store"
)

// object is an open file.
//
// It detects changes of the file by its size and modification time. It checks them if a read
// returns too few bytes, and otherwise at most every recheck. It does not detect
//
//   - a change that restores the old time,
//   - a change in the same tick of the file system's clock as the last change before Open (since
//     Linux 6.13 most file systems have no such ticks),
//   - a write through a memory map before it is written back,
//   - until the next check, a change less than recheck after the last one.
//
// The change time is not compared because renaming another file over the name changes it, and the
// old file, which this object keeps open, is still intact then.
type object struct {
	f       *os.File
	path    string
	info    store.Info
	recheck time.Duration

	grows bool // programs only append to the file, which is not a change of what was there

	next    atomic.Int64 // when to check again, as returned by ticks
	changed atomic.Bool
	can     store.ObjectAbilities
}

// Open opens a regular file for reading. It never blocks: a named pipe is refused without opening
// it.
func (s *Store) Open(ctx context.Context, name string) (store.Object, error) {
	return s.openAs(ctx, name, false)
}

// OpenGrowing opens a file that programs only append to. Its contents at that time remain
// readable even if it grows or is removed.
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

// Locked returns which other process holds an fcntl lock on a file, as Java programs take it. It
// does not detect other kinds of locks. If the system has no such locks, the error wraps
// [errors.ErrUnsupported].
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

// open opens the object called name, whose file is at p.
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

// openRegular checks the type of a file before it opens it, because opening and closing a pipe
// breaks it for its writer, and opening a device may have effects. It does not block. The caller
// must check the type again after opening.
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

// adopt returns an object for an open file.
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

// refusal returns why a file of that mode cannot be an object, or nil if it can.
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
	// A check after the read covers what was read; one before it would not.
	return o.fail("read", off, int64(len(p)), o.lookAgain())
}

func (o *object) Can() store.ObjectAbilities { return o.can }

// file returns the file. What is read from it afterwards is not checked.
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

// lookAgain checks the file if it is time to.
func (o *object) lookAgain() error {
	now := ticks()
	if int64(now) < o.next.Load() {
		return nil
	}
	o.next.Store(int64(now + o.recheck))
	return o.look()
}

func (o *object) Close() error { return failed("close", o.path, o.f.Close()) }

// look checks whether the file is unchanged since Open.
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

// short returns the error for a read of too few bytes: that the file changed, or err.
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

// ticks returns the time of a clock that is cheap to read and is never set.
func ticks() time.Duration { return time.Since(started) }

func infoOf(name string, fi fs.FileInfo) store.Info {
	return store.Info{Name: name, Size: fi.Size(), ModTime: fi.ModTime(), Version: version(fi)}
}

// version returns a text that distinguishes versions of a file: inode, size, modification time
// and change time. On systems without inodes it is size and modification time.
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
