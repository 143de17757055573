// Package store is where bytes live: a directory, a web server, a bucket.
//
// It is a contract for those who implement a store; programs that only want
// archives need package holdall. A [Store] is a flat namespace of objects.
// Reading needs only Store and [Object]; everything else a store may be able
// to do is an optional interface ([Header], [Tailer], [Filer], [Lister], [Creator],
// [Remover], [RangeWriter], [Rewinder], [Patcher], [Amender], [Fetcher], [Near],
// [Wisher], [Keeper], [Finisher], [Uploader], [Copier], [Pinner]) with a helper that falls back,
// or says plainly that it cannot.
package store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"time"
)

// A Store is a namespace of objects. Its methods may be called in parallel.
type Store interface {
	// Open returns the named object. It need not touch the network: an
	// object that is not there may only be found out by its first read,
	// which then fails with an error wrapping fs.ErrNotExist.
	Open(ctx context.Context, name string) (Object, error)
}

// An Object is one version of the bytes behind a name. If they change while
// the Object is open, reads fail with [ErrChanged]; they never mix versions.
type Object interface {
	// Info reports the object's size and version.
	Info(ctx context.Context) (Info, error)

	// ReadAt fills p from offset off or fails; it never reads short.
	// A range past the end is io.ErrUnexpectedEOF. An empty p is never an
	// error and asks nobody. Calls may run in parallel.
	ReadAt(ctx context.Context, p []byte, off int64) error

	// Close releases the object. Reads after it fail.
	Close() error
}

// Info describes one version of an object.
type Info struct {
	Name    string
	Size    int64
	ModTime time.Time
	Version string // ETag, generation, or inode and times: equal means same bytes
}

// A Tailer can read the end of an object before its size is known, which saves
// the request that would ask for it.
type Tailer interface {
	// ReadTail reads the last len(p) bytes into the front of p, or all of
	// the object if it is shorter, and returns how many there were.
	ReadTail(ctx context.Context, p []byte) (n int, err error)
}

// A Header can read the beginning of an object before its size is known.
type Header interface {
	// ReadHead reads the first len(p) bytes, or all of the object if it is
	// shorter, and returns how many there were.
	ReadHead(ctx context.Context, p []byte) (n int, err error)
}

// A Filer is an Object that is an open file of this machine, of which the system can
// hand on a range without passing the bytes through this program.
type Filer interface {
	// File returns the file, or ErrChanged if it is known to have changed. Like ReadAt it
	// may look for that now and then only; whoever reads of it does not look. It belongs
	// to the object.
	File(ctx context.Context) (*os.File, error)
}

// A Fetcher can read ahead: what is asked for with Fetch is asked for at once, and
// later reads find it. It returns when all answers are there, or errors, which
// the reads will meet again. What was fetched may be forgotten after release.
type Fetcher interface {
	Fetch(ctx context.Context, want []Range) (release func())
}

// A Range is a run of bytes at the beginning or, if Tail, at the end of an object.
type Range struct {
	Name string
	Tail bool
	Len  int
}

// A Lister can enumerate the objects whose names begin with prefix, by name.
type Lister interface {
	List(ctx context.Context, prefix string) iter.Seq2[Info, error]
}

// A Leveler can tell what is directly below a prefix that is empty or ends in a slash, so
// that what is further below can be listed in parallel.
type Leveler interface {
	// Level returns the branches of a prefix, in byte order, or reports that it has
	// more than most.
	Level(ctx context.Context, prefix string, most int) (all []Branch, more bool, err error)
}

// A Branch is an object, or all objects whose names begin with the Name, which then ends
// in a slash.
type Branch struct {
	Info
	All bool
}

// A Creator can write objects.
type Creator interface {
	Create(ctx context.Context, name string) (Writer, error)
}

// A Remover can delete objects. A name that is not there wraps fs.ErrNotExist.
type Remover interface {
	Remove(ctx context.Context, name string) error
}

// A Writer writes one object from front to back. Nothing is visible under the
// object's name until Commit returns nil; an object of that name that was there
// before stays whole until then. Abort after Commit does nothing, so it can be
// deferred. A Writer belongs to one goroutine.
type Writer interface {
	io.Writer
	Commit(ctx context.Context) (Info, error)
	Abort() error
}

// A RangeWriter can append a range of another object without passing the bytes
// through this program: copy_file_range on a disk, UploadPartCopy in a bucket.
type RangeWriter interface {
	// WriteRange returns errors.ErrUnsupported, having written nothing,
	// where it cannot do better than reading and writing.
	WriteRange(ctx context.Context, from Object, off, n int64) error
}

// A Rewinder can take back the end of what was written, so that a source that
// broke off halfway leaves no dead bytes.
type Rewinder interface {
	Rewind(to int64) error
}

// ErrChanged means an object's bytes changed while it was being read.
var ErrChanged = errors.New("changed while it was being read")

// ReadTail reads the last len(p) bytes of o, or all of it if it is shorter.
func ReadTail(ctx context.Context, o Object, p []byte) (int, error) {
	if t, ok := o.(Tailer); ok {
		return t.ReadTail(ctx, p)
	}
	info, err := o.Info(ctx)
	if err != nil {
		return 0, err
	}
	n := min(int64(len(p)), info.Size)
	return int(n), o.ReadAt(ctx, p[:n], info.Size-n)
}

// ReadHead reads the first len(p) bytes of o, or all of it if it is shorter.
func ReadHead(ctx context.Context, o Object, p []byte) (int, error) {
	if h, ok := o.(Header); ok {
		return h.ReadHead(ctx, p)
	}
	info, err := o.Info(ctx)
	if err != nil {
		return 0, err
	}
	n := min(int64(len(p)), info.Size)
	return int(n), o.ReadAt(ctx, p[:n], 0)
}

// Fetch reads ahead where st can: behind a network, several requests at once take
// as long as one.
func Fetch(ctx context.Context, st Store, want []Range) (release func()) {
	if f, ok := st.(Fetcher); ok {
		return f.Fetch(ctx, want)
	}
	return func() {}
}

// List enumerates the objects of st whose names begin with prefix.
func List(ctx context.Context, st Store, prefix string) iter.Seq2[Info, error] {
	if l, ok := st.(Lister); ok {
		return l.List(ctx, prefix)
	}
	return func(yield func(Info, error) bool) {
		yield(Info{}, fmt.Errorf("list %q: %w", prefix, errors.ErrUnsupported))
	}
}

// Create begins a new object in st.
func Create(ctx context.Context, st Store, name string) (Writer, error) {
	if c, ok := st.(Creator); ok {
		return c.Create(ctx, name)
	}
	return nil, fmt.Errorf("create %q: this store is read-only: %w", name, errors.ErrUnsupported)
}

// Remove deletes an object of st.
func Remove(ctx context.Context, st Store, name string) error {
	if r, ok := st.(Remover); ok {
		return r.Remove(ctx, name)
	}
	return fmt.Errorf("remove %q: this store is read-only: %w", name, errors.ErrUnsupported)
}

// copyBlock is how much WriteRange reads at once where it has to read.
const copyBlock = 1 << 20

// WriteRange appends n bytes of from, from offset off, to w: without moving
// them through this program if w can.
func WriteRange(ctx context.Context, w Writer, from Object, off, n int64) error {
	if off < 0 || n < 0 {
		return fmt.Errorf("copy range %d+%d: no range", off, n)
	}
	if n == 0 {
		return nil
	}
	if rw, ok := w.(RangeWriter); ok {
		err := rw.WriteRange(ctx, from, off, n)
		if !errors.Is(err, errors.ErrUnsupported) {
			return err
		}
	}
	buf := make([]byte, min(n, copyBlock))
	for n > 0 {
		p := buf[:min(n, copyBlock)]
		if err := from.ReadAt(ctx, p, off); err != nil {
			return err
		}
		if _, err := w.Write(p); err != nil {
			return err
		}
		off, n = off+int64(len(p)), n-int64(len(p))
	}
	return nil
}

// A Near store answers without a round trip, as a disk does: nothing is gained
// by joining its reads, keeping their answers or asking in parallel.
type Near interface{ Near() bool }

// IsNear reports whether st says that it is Near.
func IsNear(st Store) bool {
	n, ok := st.(Near)
	return ok && n.Near()
}
