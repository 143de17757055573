// Package store is the contract between holdall and the places where archives are stored: a disk,
// a web server, a bucket. It is for programs that implement a store; programs that only use
// archives need package holdall.
//
// A [Store] is a flat namespace of objects. For reading, implement Store and [Object]. Their
// methods Can return structs of optional functions: [Abilities] and [ObjectAbilities], and
// [WriterAbilities] for a [Writer]. A nil field means that it is not supported, so the zero
// struct is that of a read-only store. A new ability is a new field, which breaks no existing
// store.
//
// Programs that use a store should call the functions of package storekit, such as List, Create,
// ReadTail and WriteRange. If an ability is missing, they fall back to another way or return an
// error that wraps [errors.ErrUnsupported].
//
// A type that wraps a store, an object or a writer must have a Can of its own, which begins with the
// zero struct and names the abilities that the type has. If it only embeds the other, or returns the
// other's struct, each ability that it does not know bypasses it.
package store

import (
	"context"
	"errors"
	"io"
	"iter"
	"os"
	"time"
)

// A Store is a namespace of objects. Its methods may be called from several goroutines at once.
type Store interface {
	// Open returns the object called name. It need not send a request: if there is no such
	// object, it may be the first read that fails with an error that wraps [fs.ErrNotExist].
	Open(ctx context.Context, name string) (Object, error)

	// Can returns the optional functions of the store.
	Can() Abilities
}

// Abilities are the optional functions of a store. All of them may be called from several
// goroutines at once. A nil field is not supported.
type Abilities struct {
	// Near means that reads take no network requests, as on a disk. Joining reads, caching data
	// and sending requests in parallel then gain nothing.
	Near bool

	// Below is the store of what is stored, if the objects are made of those that it has under the same
	// names, as by decrypting them. Over makes them of another one instead. If heal is not nil, it is called
	// for something that is damaged. It returns a store that has the objects below as they were, or nil.
	Below Store
	Over  func(below Store, heal func(ctx context.Context) Store) Store

	// Address returns the address of an object, for [OpenAddress]. It contains no secrets: a user
	// name or a query is left out.
	Address func(name string) string

	// Identity returns what tells an object from every other one, of any store, such as its address with
	// its query. With a version that is an ETag, it identifies bytes at any time and in other programs.
	// It may be secret, so only digests of it may be stored.
	Identity func(name string) string

	// List yields the objects whose names begin with prefix, sorted by name.
	List func(ctx context.Context, prefix string) iter.Seq2[Info, error]

	// ListFrom is like List, but starts at the first name that is not less than from.
	ListFrom func(ctx context.Context, prefix, from string) iter.Seq2[Info, error]

	// ListHeaders is like List, and yields the headers of each object too, if a listing contains
	// them. The headers are those of [ObjectAbilities.Headers], and never nil.
	ListHeaders func(ctx context.Context, prefix string) iter.Seq2[Headed, error]

	// Level returns what is directly below prefix, up to the next slash, so that the levels below
	// can be listed in parallel. It returns the branches in byte order. If there are more than
	// most, it returns more.
	Level func(ctx context.Context, prefix string, most int) (all []Branch, more bool, err error)

	// OpenAs opens the version of an object that a listing returned as info. It sends no request
	// for what info has. Reads of any other version fail with [ErrChanged].
	OpenAs func(ctx context.Context, info Info) (Object, error)

	// OpenGrowing opens an object that programs only append to; the caller guarantees that. Its
	// bytes at the time of the first request stay readable while it is open, even as it grows,
	// and Info continues to describe that state.
	OpenGrowing func(ctx context.Context, name string) (Object, error)

	// Locked returns which other program has locked an object, as a text for people, or "" if
	// none has. It does not take a lock.
	Locked func(ctx context.Context, name string) (by string, err error)

	// Fetch requests data that later reads will need, all at once. It returns when all responses
	// or errors have arrived; the reads return these errors. The data may be discarded after
	// release is called.
	Fetch func(ctx context.Context, want []Range) (release func())

	// Create begins a new object. If the store cannot ensure that an object is created only once,
	// Wishes.Once is an error that wraps [errors.ErrUnsupported]. If it cannot resume, it starts
	// from the beginning.
	Create func(ctx context.Context, name string, wish Wishes) (Writer, error)

	// Append adds p to the end of an object to which several programs may append. The object must
	// be at bytes long; otherwise the error wraps [ErrChanged]. If at is 0, Append creates the
	// object if it does not exist. Up to 4 MiB are added completely or not at all.
	Append func(ctx context.Context, name string, p []byte, at int64) error

	// Lease takes a lock that other programs respect too, and creates the object called name if
	// it does not exist. The returned context ends with ctx, or when the lock is lost. The
	// function release removes the object. If another program has the lock, the error wraps
	// [fs.ErrExist].
	Lease func(ctx context.Context, name string) (held context.Context, release func() error, err error)

	// Folder begins a folder that appears as a whole. If that is not possible, for example
	// because the name exists, the error wraps [errors.ErrUnsupported].
	Folder func(ctx context.Context, name string) (*Folder, error)

	// Remove deletes an object. If there is none, the error wraps [fs.ErrNotExist].
	Remove func(ctx context.Context, name string) error

	// RemoveAs deletes the version of an object that a listing returned as info. If the object
	// has changed, or was written at another time, it is kept and the error wraps [ErrChanged]. If the server cannot compare the
	// version in the request that deletes, it is requested immediately before.
	RemoveAs func(ctx context.Context, info Info) error

	// RemoveIf is like RemoveAs for a server that compares the version in the request that deletes: it
	// sends no other. If there is no object, the error may also wrap [ErrChanged], or be nil. A server that
	// ignores the condition deletes any version, so programs must try it first.
	RemoveIf func(ctx context.Context, info Info) error

	// RemoveMany is like RemoveIf for up to 1000 objects, by one request. errs says what became of each; it is
	// nil for one that is removed. After an error of the request itself, any of them may be removed.
	RemoveMany func(ctx context.Context, infos []Info) (errs []error, err error)

	// Amend opens an object for changes in place, for one Amendment at a time. If the object
	// cannot be changed, the error wraps [errors.ErrUnsupported].
	Amend func(ctx context.Context, name string) (Amendment, error)

	// Unfinished yields the unfinished uploads of names that begin with prefix, from all
	// programs. It does not show which of them are still in progress.
	Unfinished func(ctx context.Context, prefix string) iter.Seq2[Upload, error]

	// CopiesFrom reports whether the store itself can copy ranges of the object at an address,
	// without their bytes passing through this program.
	CopiesFrom func(address string) bool

	// Owns reports whether the local file at path is the named object or belongs to it, such as a
	// temporary file. It is used to avoid packing an archive into itself.
	Owns func(path, object string) bool

	// Adopt returns an object for an open local file, so that a writer of the store can copy it
	// without reading it. Closing the object closes f.
	Adopt func(f *os.File) (Object, error)
}

// A Folder is a set of objects that appear together at Commit, or not at all.
type Folder struct {
	// Path is where the folder is until Commit, if that is on this machine. Files may be added there.
	Path string
	// Create begins an object, with the name relative to the folder. It must be committed before
	// the folder.
	Create func(ctx context.Context, name string, wish Wishes) (Writer, error)
	Commit func(ctx context.Context) error
	Abort  func() error // does nothing after Commit
}

// An Object is one version of the bytes stored under a name. If they change while the Object is
// open, reads fail with [ErrChanged]; they never return bytes of different versions.
type Object interface {
	// Info returns the size and version of the object.
	Info(ctx context.Context) (Info, error)

	// ReadAt reads exactly len(p) bytes from offset off, or fails. If the range extends past the
	// end, the error wraps [io.ErrUnexpectedEOF]. If p is empty, ReadAt returns nil without a
	// request. It may be called from several goroutines at once.
	ReadAt(ctx context.Context, p []byte, off int64) error

	// Close releases the object. Later reads fail.
	Close() error

	// Can returns the optional functions of the object.
	Can() ObjectAbilities
}

// ObjectAbilities are the optional functions of an object. A nil field is not supported.
type ObjectAbilities struct {
	// ReadEnd reads the first len(p) bytes of the object or, if tail is true, the last ones, into
	// the front of p. If the object is shorter, it reads all of it. It returns the number of
	// bytes. For an object of unknown size this saves the request for its size.
	ReadEnd func(ctx context.Context, p []byte, tail bool) (n int, err error)

	// File returns the open local file of the object, from which the system can send ranges
	// without copying them through this program. If the file is known to have changed, File
	// returns [ErrChanged]. Like ReadAt, it may check only from time to time, and reads from the
	// file are not checked. The caller must not close the file.
	File func(ctx context.Context) (*os.File, error)

	// Inner is the object of which this object is a view, with the same bytes.
	Inner Object

	// Sums returns the checksums of the object that the service has. It returns those that came
	// with a read. If these are not enough, it sends one request.
	Sums func(ctx context.Context) ([]Sum, error)

	// Headers returns what the service stores with the object besides its bytes: the headers for
	// which storekit.IsHeader returns true, with names in lower case. Metadata of users has the name
	// x-amz-meta-NAME for all services. Headers returns what came with a read. If nothing was
	// read, it sends one request, and Info then returns what the response contained. The caller
	// must not change the map.
	Headers func(ctx context.Context) (map[string]string, error)

	// Unkept returns what else the service stores with the object, so that an archive of it with
	// its headers lacks that: any of "tags", "storage class", "redirect" and "lock". It returns what
	// came with a read or with Headers.
	Unkept func() []string

	// Shared reports whether the service keeps a list with the object, which lets others than its owner
	// read or change it. It sends a request, unless objects have no such lists there. If the service refuses
	// to tell, the error wraps [fs.ErrPermission].
	Shared func(ctx context.Context) (bool, error)
}

// A Sum is a checksum of an object.
type Sum struct {
	Algo  string // "sha256", "sha1", "md5", "crc64nvme", "crc32c" or "crc32"
	Value string // the bytes of the checksum
	// Part is 0 for a checksum of the whole object. Otherwise Value is the checksum of the
	// checksums of parts, and Part is the size of each part except the last.
	Part int64
}

// A Writer writes an object sequentially. The object appears under its name when Commit returns
// nil. Until then, an existing object of that name remains unchanged. Abort discards the object;
// after Commit it does nothing, so it can be deferred. A Writer must not be used by several
// goroutines at once.
type Writer interface {
	io.Writer
	Commit(ctx context.Context) (Info, error)
	Abort() error

	// Can returns the optional functions of the writer.
	Can() WriterAbilities
}

// WriterAbilities are the optional functions of a writer. A nil field is not supported.
type WriterAbilities struct {
	// WriteRange appends a range of another object without copying it through this program, such
	// as by copy_file_range on a disk or UploadPartCopy in a bucket. If that is no better than
	// reading and writing, it writes nothing and returns [errors.ErrUnsupported].
	WriteRange func(ctx context.Context, from Object, off, n int64) error

	// CopyRange is like WriteRange, but the store copies the range itself, before CopyRange
	// returns. If the error wraps [errors.ErrUnsupported], whatever else it wraps, nothing was
	// written and the caller should read the range instead.
	CopyRange func(ctx context.Context, from Object, off, n int64) error

	// Rewind discards everything after the first to bytes that were written. It is used when a
	// source fails halfway.
	Rewind func(to int64) error

	// Patch replaces len(p) bytes at offset off that have been written, until Commit. It cannot
	// extend the object, and works only within the first PatchLimit bytes. If it fails, the
	// caller can only call Abort.
	Patch func(ctx context.Context, p []byte, off int64) error

	// PatchLimit is the number of bytes at the start of the object that Patch can replace: all on
	// a disk, the first part in a bucket, none without Patch.
	PatchLimit int64

	// Keep ends the writer like Abort, but keeps what was sent for a writer of the same name with
	// Wishes.Resume. It returns the number of bytes that it kept; if that is 0, nothing is left
	// in the store.
	Keep func() (int64, error)

	// Finish tells the writer that no more data follows, although the object may appear much
	// later. The writer sends what is left, and needs little memory afterwards. Only Commit,
	// Abort and Keep may follow. Finish returns what is known of the time and version that the
	// object will have.
	Finish func(ctx context.Context) (Info, error)

	// Saved returns the number of bytes that did not pass through this program: those that the
	// store copied by itself, and those that it was proven to have already.
	Saved func() (copied, proven int64)
}

// Info describes one version of an object.
type Info struct {
	Name    string
	Size    int64
	ModTime time.Time
	Version string // ETag, generation, or inode and times: equal versions mean equal bytes
}

// Headed is an object with its headers. Headers is nil if they are not known.
type Headed struct {
	Info
	Headers map[string]string
}

// A Range is a run of bytes at the beginning of an object or, if Tail is set, at its end.
type Range struct {
	Name string
	Tail bool
	Len  int
}

// A Branch is an object or, if All is set, all objects whose names begin with Name, which then
// ends with a slash.
type Branch struct {
	Info
	All bool
}

// ErrChanged means that an object changed while it was being read.
var ErrChanged = errors.New("changed while it was being read")
