// Package store is where bytes live: a directory, a web server, a bucket.
//
// It is a contract for those who implement a store; programs that only want
// archives need package holdall. A [Store] is a flat namespace of objects.
// Reading needs only Store and [Object]. What else a store, an object or a [Writer]
// can do it says by Can, which returns a struct of functions: [Abilities],
// [ObjectAbilities] and [WriterAbilities]. A field that is nil is a thing that it
// cannot do, so the zero struct is that of a store which is only read. A new ability
// is a new field, and breaks nobody's store.
//
// Whoever uses a store calls the functions of this package ([List], [Create],
// [ReadTail], [WriteRange] and others), which fall back where something is missing,
// or say plainly that it cannot be done.
//
// Whoever wraps a store, an object or a writer by embedding it has its abilities
// too, which then pass the wrapper by. A wrapper that changes something has a Can of
// its own, which takes the struct of what it wraps and replaces what it changes.
package store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
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

	// Can returns what else the store can do.
	Can() Abilities
}

// Abilities are what a store can do besides opening an object. All may be called in
// parallel. A nil field is a thing that it cannot do.
type Abilities struct {
	// Near says that the store answers without a round trip, as a disk does:
	// nothing is gained by joining its reads, keeping their answers or asking in
	// parallel.
	Near bool

	// Address says where an object lies, in words that OpenAddress takes. It is no
	// secret: what a user name or a query in it was is left out.
	Address func(name string) string

	// List enumerates the objects whose names begin with prefix, by name.
	List func(ctx context.Context, prefix string) iter.Seq2[Info, error]

	// ListFrom is List from a name on that is not less than from.
	ListFrom func(ctx context.Context, prefix, from string) iter.Seq2[Info, error]

	// ListHeaders is List with what the service keeps with each object, where a listing
	// tells it: headers as [ObjectAbilities] has them, never nil.
	ListHeaders func(ctx context.Context, prefix string) iter.Seq2[Headed, error]

	// Level tells what is directly below a prefix, as far as the next slash behind it,
	// so that what is further below can be listed in parallel. It returns the
	// branches of the prefix, in byte order, or reports that it has more than most.
	Level func(ctx context.Context, prefix string, most int) (all []Branch, more bool, err error)

	// OpenAs is Open of the version that info, of a listing, tells of, with no
	// request for what is known: reads of another version fail with ErrChanged.
	OpenAs func(ctx context.Context, info Info) (Object, error)

	// OpenGrowing is Open of an object that is only ever written to at its end: who calls it
	// vouches for that. What it had when it was first asked can be read for as long as it
	// is open, while it grows, and Info goes on telling of that.
	OpenGrowing func(ctx context.Context, name string) (Object, error)

	// Locked says which other program has a lock on an object, in words for people; empty
	// is none. It takes no lock.
	Locked func(ctx context.Context, name string) (by string, err error)

	// Fetch asks at once for what later reads will find. It returns when all answers
	// are there, or errors, which the reads will meet again. What was fetched may be
	// forgotten after release.
	Fetch func(ctx context.Context, want []Range) (release func())

	// Create begins an object. A store that cannot see to it that an object is
	// created once says so by an error wrapping errors.ErrUnsupported; one that
	// cannot resume begins anew.
	Create func(ctx context.Context, name string, wish Wishes) (Writer, error)

	// Append adds p to the end of an object that is appended to, also by others, and
	// is at bytes long; at 0 it is made if it is not there. Another length is
	// ErrChanged. What is no longer than 4 MiB is added whole or not at all.
	Append func(ctx context.Context, name string, p []byte, at int64) error

	// Lease takes an object for a lock, as other programs do, and makes it if it is not there.
	// The context that it returns ends with ctx, and when the lock is lost. release
	// removes the object. That another program has it is an error that wraps fs.ErrExist.
	Lease func(ctx context.Context, name string) (held context.Context, release func() error, err error)

	// Folder begins a folder that appears whole. It says by an error wrapping
	// errors.ErrUnsupported that it cannot, as where something has the name.
	Folder func(ctx context.Context, name string) (*Folder, error)

	// Remove deletes an object. A name that is not there wraps fs.ErrNotExist.
	Remove func(ctx context.Context, name string) error

	// RemoveAs is Remove of the version that info, of a listing, tells of: another stays, and
	// is ErrChanged. Where a server does not look at the version with the request that
	// removes, it is asked for just before.
	RemoveAs func(ctx context.Context, info Info) error

	// Amend opens an object for changes in place, one amendment at a time. It may
	// say of an object that it cannot, by an error wrapping errors.ErrUnsupported.
	Amend func(ctx context.Context, name string) (Amendment, error)

	// Unfinished enumerates the uploads of names that begin with prefix, by whomever
	// they were begun. It does not tell which of them somebody is still at work on.
	// Whoever has it has Abandon, too.
	Unfinished func(ctx context.Context, prefix string) iter.Seq2[Upload, error]

	// Abandon takes an upload away. One that is gone is no error.
	Abandon func(ctx context.Context, u Upload) error

	// CopiesFrom reports whether the store copies ranges of what lies at an address
	// itself, without their bytes passing through this program.
	CopiesFrom func(address string) bool

	// Owns reports whether the file at path, of this machine, is the object of that
	// name or what the store keeps beside it. Whoever packs a folder that the
	// archive is written into asks, lest it pack itself.
	Owns func(path, object string) bool

	// Adopt makes an object of an open file of this machine, so that a writer of the
	// store can copy it without reading it. Closing the object closes f.
	Adopt func(f *os.File) (Object, error)
}

// A Folder is a set of objects that appear together, by Commit, or never.
type Folder struct {
	// Create begins an object, under the name below the folder that it will have. Its
	// Commit comes before that of the folder.
	Create func(ctx context.Context, name string, wish Wishes) (Writer, error)
	Commit func(ctx context.Context) error
	Abort  func() error // nothing after Commit
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

	// Can returns what else the object can do.
	Can() ObjectAbilities
}

// ObjectAbilities are what an object can do besides reading a range. A nil field is a
// thing that it cannot do.
type ObjectAbilities struct {
	// ReadEnd reads the first, or with tail the last, len(p) bytes into the front of
	// p, or all of the object if it is shorter, and returns how many there were. It
	// is for objects whose size is not known before, and saves the request that
	// would ask for it.
	ReadEnd func(ctx context.Context, p []byte, tail bool) (n int, err error)

	// File returns the open file of this machine that the object is, of which the
	// system can hand on a range without passing the bytes through this program; or
	// ErrChanged if it is known to have changed. Like ReadAt it may look for that now
	// and then only; whoever reads of it does not look. It belongs to the object.
	File func(ctx context.Context) (*os.File, error)

	// Inner is the object that this one is a view of, byte for byte.
	Inner Object

	// Sums returns the checksums that the service vouches for, none if it knows none.
	// What is known is what came with a read; where that is not enough it asks once.
	Sums func(ctx context.Context) ([]Sum, error)

	// Headers returns what the service keeps with the object besides its bytes: headers
	// by their names in small letters, those that [IsHeader] knows. What users keep is
	// called x-amz-meta-NAME whatever the service. What is known is what came with a
	// read; of an object of which nothing was read it asks once, and Info tells what that
	// answer told. The map is not to be changed.
	Headers func(ctx context.Context) (map[string]string, error)
}

// A Sum is a checksum of an object's bytes.
type Sum struct {
	Algo  string // "sha256", "sha1", "md5", "crc64nvme", "crc32c" or "crc32"
	Value string // its bytes
	// Part is how long the parts are, but for the last, where Value is the checksum of
	// the checksums of parts; 0 is that of the whole.
	Part int64
}

// A Writer writes one object from front to back. Nothing is visible under the
// object's name until Commit returns nil; an object of that name that was there
// before stays whole until then. Abort after Commit does nothing, so it can be
// deferred. A Writer belongs to one goroutine.
type Writer interface {
	io.Writer
	Commit(ctx context.Context) (Info, error)
	Abort() error

	// Can returns what else the writer can do.
	Can() WriterAbilities
}

// WriterAbilities are what a writer can do besides writing on. A nil field is a thing
// that it cannot do.
type WriterAbilities struct {
	// WriteRange appends a range of another object without passing the bytes through
	// this program: copy_file_range on a disk, UploadPartCopy in a bucket. It returns
	// errors.ErrUnsupported, having written nothing, where it cannot do better than
	// reading and writing.
	WriteRange func(ctx context.Context, from Object, off, n int64) error

	// CopyRange is WriteRange at once, and by the store alone. An error that wraps
	// errors.ErrUnsupported, whatever else it wraps, means that nothing was written: the
	// range is to be read instead.
	CopyRange func(ctx context.Context, from Object, off, n int64) error

	// Rewind takes back the end of what was written, so that a source that broke off
	// halfway leaves no dead bytes.
	Rewind func(to int64) error

	// Patch replaces len(p) bytes from off on that were written earlier, until
	// Commit. It cannot lengthen the object, and reaches no further than PatchLimit.
	// If it fails half way nothing more can be done than to Abort.
	Patch func(ctx context.Context, p []byte, off int64) error

	// PatchLimit is how many bytes from the beginning can be replaced: all on a
	// disk, those of its first part in a bucket, none without Patch.
	PatchLimit int64

	// Keep ends the writer as Abort does, but what was sent stays, for a writer of
	// the same name that wishes to Resume. It tells how many bytes these are. Of none
	// nothing stays.
	Keep func() (int64, error)

	// Finish tells the writer that no more comes, long before its object is to
	// appear: it sends what is left, and needs little memory from then on. Only
	// Commit, Abort and Keep may follow. Of the time and the version that the object will
	// have it returns what is known by then.
	Finish func(ctx context.Context) (Info, error)

	// Saved tells how many bytes did not pass through this program: those that the
	// store copied by itself, and those that it was proven to have.
	Saved func() (copied, proven int64)
}

// Info describes one version of an object.
type Info struct {
	Name    string
	Size    int64
	ModTime time.Time
	Version string // ETag, generation, or inode and times: equal means same bytes
}

// Headed is an object with its headers; they are nil where nothing tells them.
type Headed struct {
	Info
	Headers map[string]string
}

// A Range is a run of bytes at the beginning or, if Tail, at the end of an object.
type Range struct {
	Name string
	Tail bool
	Len  int
}

// A Branch is an object, or all objects whose names begin with the Name, which then ends
// in a slash.
type Branch struct {
	Info
	All bool
}

// ErrChanged means an object's bytes changed while it was being read.
var ErrChanged = errors.New("changed while it was being read")

// ReadTail reads the last len(p) bytes of o, or all of it if it is shorter.
func ReadTail(ctx context.Context, o Object, p []byte) (int, error) { return readEnd(ctx, o, p, true) }

// ReadHead reads the first len(p) bytes of o, or all of it if it is shorter.
func ReadHead(ctx context.Context, o Object, p []byte) (int, error) { return readEnd(ctx, o, p, false) }

func readEnd(ctx context.Context, o Object, p []byte, tail bool) (int, error) {
	if read := o.Can().ReadEnd; read != nil {
		return read(ctx, p, tail)
	}
	info, err := o.Info(ctx)
	if err != nil {
		return 0, err
	}
	n, off := min(int64(len(p)), info.Size), int64(0)
	if tail {
		off = info.Size - n
	}
	return int(n), o.ReadAt(ctx, p[:n], off)
}

// Inner finds an object of a type in o and what that is a view of.
func Inner[O Object](o Object) (found O, ok bool) {
	for o != nil && !ok {
		if found, ok = o.(O); !ok {
			o = o.Can().Inner
		}
	}
	return found, ok
}

// OpenGrowing opens an object that is only ever written to at its end. In a store that does
// not know of such, reads fail once it has grown.
func OpenGrowing(ctx context.Context, st Store, name string) (Object, error) {
	if open := st.Can().OpenGrowing; open != nil {
		return open(ctx, name)
	}
	return st.Open(ctx, name)
}

// List enumerates the objects of st whose names begin with prefix.
func List(ctx context.Context, st Store, prefix string) iter.Seq2[Info, error] {
	if list := st.Can().List; list != nil {
		return list(ctx, prefix)
	}
	return func(yield func(Info, error) bool) {
		yield(Info{}, fmt.Errorf("list %q: %w", prefix, errors.ErrUnsupported))
	}
}

// ListFrom is List from a name on that is not less than from. A store that cannot is listed from its
// beginning.
func ListFrom(ctx context.Context, st Store, prefix, from string) iter.Seq2[Info, error] {
	if list := st.Can().ListFrom; list != nil && from > prefix {
		return list(ctx, prefix, from)
	}
	return func(yield func(Info, error) bool) {
		for info, err := range List(ctx, st, prefix) {
			if err == nil && info.Name < from {
				continue
			}
			if !yield(info, err) {
				return
			}
		}
	}
}

// ListHeaders enumerates the objects of st whose names begin with prefix, with their headers
// if the store can list those.
func ListHeaders(ctx context.Context, st Store, prefix string) iter.Seq2[Headed, error] {
	if list := st.Can().ListHeaders; list != nil {
		return list(ctx, prefix)
	}
	return func(yield func(Headed, error) bool) {
		for info, err := range List(ctx, st, prefix) {
			if !yield(Headed{Info: info}, err) {
				return
			}
		}
	}
}

// Create begins a new object in st.
func Create(ctx context.Context, st Store, name string) (Writer, error) {
	return CreateAs(ctx, st, name, Wishes{})
}

// CreateAs begins a new object in st, as wished.
func CreateAs(ctx context.Context, st Store, name string, wish Wishes) (Writer, error) {
	if create := st.Can().Create; create != nil {
		return create(ctx, name, wish)
	}
	return nil, fmt.Errorf("create %q: this store is read-only: %w", name, errors.ErrUnsupported)
}

// Remove deletes an object of st.
func Remove(ctx context.Context, st Store, name string) error {
	if remove := st.Can().Remove; remove != nil {
		return remove(ctx, name)
	}
	return fmt.Errorf("remove %q: this store is read-only: %w", name, errors.ErrUnsupported)
}

// RemoveAs deletes an object of st if it still is the version that info tells of. A version that is
// not known is an error: nothing is removed that could be another.
func RemoveAs(ctx context.Context, st Store, info Info) error {
	remove := st.Can().RemoveAs
	if remove == nil {
		return fmt.Errorf("remove %q: this store does not remove one version only: %w", info.Name, errors.ErrUnsupported)
	}
	if info.Version == "" {
		return &Error{Op: "remove", Name: info.Name, Off: -1, Err: fs.ErrInvalid}
	}
	return remove(ctx, info)
}

// Unchanged says why an object is not the version that info tells of, if it is now.
func Unchanged(info, now Info) error {
	if info.Size != now.Size || info.Version != now.Version {
		return &Error{Op: "compare", Name: info.Name, Off: -1, Err: ErrChanged}
	}
	return nil
}

// copyBlock is how much WriteRange reads at once where it has to read.
const copyBlock = 1 << 20

// WriteRange appends n bytes of from, from offset off, to w: without moving
// them through this program if w can.
func WriteRange(ctx context.Context, w Writer, from Object, off, n int64) error {
	if off < 0 || n < 0 {
		return fmt.Errorf("copy range %d+%d: invalid range", off, n)
	}
	if n == 0 {
		return nil
	}
	if write := w.Can().WriteRange; write != nil {
		if err := write(ctx, from, off, n); !errors.Is(err, errors.ErrUnsupported) {
			return err
		}
	}
	return CopyRange(ctx, w, from, off, n)
}

// CopyRange writes n bytes of an object, from off on, to w.
func CopyRange(ctx context.Context, w io.Writer, from Object, off, n int64) error {
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

// Write makes an object of what write writes. Without an error from it, the object is
// there then; with one there is none.
func Write(ctx context.Context, st Store, name string, write func(Writer) error) (Info, error) {
	w, err := Create(ctx, st, name)
	if err != nil {
		return Info{}, err
	}
	defer w.Abort()
	if err := write(w); err != nil {
		return Info{}, err
	}
	return w.Commit(ctx)
}
