// Package format is the contract between holdall and archive formats. It is for programs that add
// a format; programs that only use archives need package holdall.
//
// To add a format, write a package with a [Format] that passes formattest.Run, and call
// [Register]. Only Format.Open is required, or FromZarr. If any other function is nil, the format cannot do
// that, and holdall reports it. Package kit has what formats are made of, and what the comments here
// call kit.
//
// A format package describes archives. It does not fetch, cache, decode, retry or draw. It
// returns where an entry's bytes are ([Extent]), what every other byte is for ([Region]), what is
// wrong ([Problem]), and what would repair it ([Plan]). holdall's engine does the rest.
package format

import (
	"context"
	"errors"
	"io"
	"iter"
	"time"

	"github.com/holdall/holdall/format/kit/sorter"
	"github.com/holdall/holdall/store"
)

// A Format describes an archive format and has the functions that read and write it.
type Format struct {
	Name       string   // "caf": also the value of --format
	Title      string   // "Chunk Archive Format"
	Extensions []string // ".caf"

	// Views are the names of the ways to present an archive, the default first. For example, an
	// archive can be presented as nodes or as segments, or as members or as Zarr keys. Empty
	// means that there is a single view.
	Views []string

	// Overview is the view that is used to count the entries of an archive and to draw it, if
	// iterating over the default view takes too long. Empty means the default view.
	Overview string

	// Keeps lists what the format can store of an entry besides its name and content. When an
	// archive is converted, anything else is reported as lost.
	Keeps Keeps

	// Refuses, if not nil, returns why no archive of the format can hold e, or "". It is about
	// names, sizes, times and link targets; which kinds of entries the format can hold is in Keeps.
	// kit.Create asks it before each Writer.Add, so a Writer need not repeat it. What depends on
	// other entries, such as a name that exists already, is an error of Writer.Add.
	Refuses func(e Entry) string

	// Digest is the algorithm of the digests that the format stores; empty means "blake3".
	// Packing computes them concurrently and passes them with the entries.
	Digest string

	// NeedsDigests means that the format always has digests, so CreateOptions.NoDigests has no
	// effect.
	NeedsDigests bool

	// Copies means that a Writer copies the bytes of a kit.Section without reading them, if the
	// store supports it.
	Copies bool

	// CopiesUnread means that a Writer supports Section.Unread and Section.AtOnce. It must be
	// able to undo everything that it writes around such content.
	CopiesUnread bool

	// StoredTime returns the time that an archive has of an entry with time t, as not every
	// format keeps fractions of a second. If it is nil, that is t.
	StoredTime func(t time.Time) time.Time

	// WantsManifest means that the format benefits from CreateOptions.Manifest, which requires a
	// walk over everything to be packed. Names are then checked before anything is written, and
	// the size of an index at the front is known.
	WantsManifest bool

	// Order compares two entries by the order in which they should be stored; nil means the order
	// of names, with a folder before its contents. The order is a preference: a Writer must
	// accept entries in any order. With WantsManifest, packed entries arrive in this order.
	Order func(a, b Entry) int

	// Joined returns a compare function if, with the given parameters, a Writer stores
	// consecutive contents together. Entries are then packed and converted in that order. Joined
	// or its result may be nil.
	Joined func(param map[string]string) func(a, b Entry) int

	// Refers means that an entry can be written as a reference to its content; see
	// Section.Address.
	Refers bool

	// Chunked formats can be continued in NAME-00001, NAME-00002, …. A Writer then returns
	// ErrFull, and each object is an archive by itself.
	Chunked bool

	// Params declares the values of OpenOptions.Param and CreateOptions.Param that this format
	// supports. Others are refused before the format is called. The command has a flag for each
	// of them.
	Params []Param

	// DateEpoch means that $SOURCE_DATE_EPOCH sets the time of every entry, as tools that build
	// packages expect.
	DateEpoch bool

	// Steady means that a Writer uses most of its memory from beginning to end. The command then
	// lets the garbage collector run earlier than usual.
	Steady bool

	// Bare reports whether an archive of that name contains only references and no contents.
	Bare func(name string) bool

	// Detect returns how certain it is that p is an archive of this format. It does not read
	// anything.
	Detect func(p Probe) Match

	// Marks are bytes with which archives begin, one of them each. A repair looks for them if there
	// is something else before an archive, and asks Detect. It is empty if Repair itself does that.
	Marks []string

	// Open reads the archive's index. If the archive is damaged, the error is a [*CorruptError]. It
	// is nil if archives of the format are folders that are opened as such.
	Open func(ctx context.Context, st store.Store, name string, o OpenOptions) (Reader, error)

	// Create begins a new archive. Nothing may appear under the name before Writer.Commit.
	// Programs call the function kit.Create.
	Create func(ctx context.Context, st store.Store, name string, o CreateOptions) (Writer, error)

	// FromZarr, if not nil, begins a new archive whose entries are the keys of a Zarr hierarchy of version 2. It is
	// for formats that hold arrays and nothing else, which have no Create. Entries arrive in the order of Joined.
	FromZarr func(ctx context.Context, st store.Store, name string, o CreateOptions) (Writer, error)

	// Place, if not nil, returns the store to which the objects of an archive are written instead
	// of st, because st needs another layout, or a lock. release ends that.
	Place func(ctx context.Context, st store.Store, name string) (place store.Store, release func() error, err error)

	// Parts, if not nil, writes an archive in independent parts.
	Parts *Parts

	// Verify checks the archive's structure and reports problems. It does not compare contents
	// with their digests, unless ReadsAll is set; holdall does that. An error means that the
	// check could not continue. Problems that were found are not errors.
	Verify func(ctx context.Context, st store.Store, name string, o OpenOptions, report func(Problem)) error

	// ReadsAll means that Verify itself compares all contents with the format's checksums, unless
	// OpenOptions.Quick is set. It is for formats whose checksums are not available for each
	// entry.
	ReadsAll bool
	// DigestsAll says that each file has a digest. What a wrong index lists without one is no file.
	DigestsAll bool

	// Repair plans what would repair an archive, and reports problems. It never writes.
	Repair func(ctx context.Context, st store.Store, name string, o OpenOptions, report func(Problem)) (Plan, error)

	// Amend opens an archive for changes in place. Unlike Repair it returns no plan, because only
	// the format can decide in which order to write.
	Amend func(ctx context.Context, st store.Store, name string, o OpenOptions) (Amender, error)
}

// Keeps is a set of properties of entries that a format can store.
type Keeps uint16

// Properties that a format can store.
const (
	KeepsModes Keeps = 1 << iota
	KeepsTimes
	KeepsOwners
	KeepsDirs // directories as entries of their own, including empty ones
	KeepsSymlinks
	KeepsHardLinks
	KeepsFifos
	KeepsDigests
	KeepsProperties // as properties; other formats store them as files
	KeepsHeaders    // headers and times of objects of buckets: see IsObjectAttr
)

// Holds reports whether an archive of the format can hold entries of kind k.
func (f *Format) Holds(k Kind) bool {
	need := map[Kind]Keeps{Dir: KeepsDirs, Symlink: KeepsSymlinks, HardLink: KeepsHardLinks, Fifo: KeepsFifos, Property: KeepsProperties}[k]
	return f.Keeps&need == need
}

// A Reader is an open archive. Its methods may be called from several goroutines at once.
//
// A format with a flat list of entries can embed *kit.Index for Entries, Lookup, ReadDir and Can.
type Reader interface {
	// Entries yields all entries in stored order, the order in which reading all contents costs
	// least.
	Entries(ctx context.Context) iter.Seq2[Entry, error]

	// Lookup returns the entry called name. If there is none, the error wraps [fs.ErrNotExist].
	Lookup(ctx context.Context, name string) (Entry, error)

	// ReadDir yields the entries directly in dir; "." is the root. If there is no entry called
	// dir, it yields an error that wraps [fs.ErrNotExist]. If the entry is not a directory, the
	// error wraps [syscall.ENOTDIR].
	ReadDir(ctx context.Context, dir string) iter.Seq2[Entry, error]

	// Extents yields, in content order, the places of bytes [off, off+n) of e's content. Extents
	// may extend beyond that range.
	Extents(ctx context.Context, e Entry, off, n int64) iter.Seq2[Extent, error]

	// Regions yields the ranges that are not content, with their uses.
	Regions(ctx context.Context) iter.Seq2[Region, error]

	// About returns properties of the archive as a whole.
	About(ctx context.Context) (About, error)

	// Can returns the optional functions of the reader. It is called once.
	Can() Abilities

	// Close releases the reader's resources.
	Close() error
}

// Abilities are optional functions of a Reader. A nil field means that the reader does not
// support it.
type Abilities struct {
	// Run returns the extent of all of e's content if it is stored uncompressed in one run. It
	// returns false if it is not, is empty, or cannot be read. Run makes the most frequent read,
	// that of a small file on a disk, a third faster.
	Run func(e Entry) (Extent, bool)

	// Object returns an object that the reader holds open, or nil for any other name. Contents
	// are then read from that object, because another program that writes to the archive may have
	// replaced or renamed it. The caller must not close it.
	Object func(name string) store.Object

	// Made returns an object that no store has and that extents name, because the reader makes it of
	// others, or nil for any other name. For example, a compressed content that begins in one volume
	// and ends in the next is read from both as one object. The reader closes it.
	Made func(name string) store.Object

	// EntriesBelow yields the entries below a directory in stored order, without iterating over
	// the rest. It is for trees that are too large to walk.
	EntriesBelow func(ctx context.Context, dir string) iter.Seq2[Entry, error]

	// EntriesFrom yields the entries in stored order, starting with the entry called name,
	// without iterating over those before it. It is used to read archives in a shuffled order.
	EntriesFrom func(ctx context.Context, name string) iter.Seq2[Entry, error]

	// ReadDirFrom lists a directory from a given position, without iterating over what comes
	// before. It is for directories with millions of entries that are shown page by page. It
	// yields the entries directly in dir in byte order of their positions, starting with the
	// first position that is not less than from.
	//
	// The position of an entry is its name within dir. For a directory that is only implied by
	// other names it is that name and a slash. A file that is also a parent of other names is
	// listed as such a directory too.
	ReadDirFrom func(ctx context.Context, dir, from string) iter.Seq2[Entry, error]

	// Keys yields the entries whose names begin with prefix, without directories, in byte order
	// of their names. It starts with the first name that is not less than from. It is for readers
	// whose names are keys of a bucket, with arbitrary bytes, and are already sorted.
	Keys func(ctx context.Context, prefix, from string) iter.Seq2[Entry, error]

	// Compares returns with what the reader itself has compared e's content before it returns any
	// part of it. Comparisons made by a codec are not included.
	Compares func(e Entry) Proof

	// Root is the root of the archive, in hex, if all that the reader shows is compared with it. A signature of it
	// covers that.
	Root string

	// Carry returns data that only this format understands, for CreateOptions.Carry.
	Carry func(ctx context.Context) ([][2]string, error)

	// Doubt returns a problem if the index, as far as it was read, does not match its own digest.
	// The reader uses its contents nevertheless.
	Doubt func() *Problem

	// Certain makes the reader show nothing from now on that it only guesses from damaged parts. It
	// is for programs that make something that lasts of the names.
	Certain func()

	// Verify does what Format.Verify does for an archive that is open. It is for readers that have read
	// all structures, which need not be read again.
	Verify func(report func(Problem)) error

	// Decoder prepares for decoding contents that have no digest, in order to find damage. It
	// returns a function that returns the Decode for an entry, or nil if decoding its content
	// does not show damage.
	Decoder func(ctx context.Context) (func(e Entry) Decode, error)
}

// A Decode decodes the content that it reads from r and reports what cannot be decoded. Its error
// is an error of reading r.
type Decode func(ctx context.Context, r io.Reader, report func(Problem)) (Proof, error)

// A Proof is the extent to which a content is proven correct.
type Proof uint8

// Degrees of proof.
const (
	Unproven Proof = iota
	Decoded        // the whole content can be decoded
	Summed         // checksums of the whole content match
	Digested       // a digest of the content matches
)

// About has properties of an archive as a whole.
type About struct {
	Version    string      // of the format
	IndexBytes int64       // stored bytes that are used to find contents
	Volumes    []string    // the objects that the archive consists of
	Stored     int64       // total size of the volumes; 0 means that the caller must add up their sizes
	Shared     int64       // content bytes that are stored only once for several entries
	Facts      [][2]string // other properties as keys and values, in the order in which to print them
	Notes      []Problem   // what the reader assumed or noticed
}

// A Writer writes one archive. The caller must call either Commit once or Abort. Programs get one
// from kit.Create, so Add is called only for entries that the format holds and does not refuse.
type Writer interface {
	// Add appends e. It reads the content of e from r until the end. If e no longer fits into the
	// archive, Add returns ErrFull without reading from r. If r fails or its length differs from
	// e.Size, Add returns its error or a *kit.SizeError, and the archive is unchanged. If r is a
	// *kit.Section, its bytes may be copied without passing through this program.
	Add(ctx context.Context, e Entry, r io.Reader) error
	// Commit finishes the archive and makes it appear under its name.
	Commit(ctx context.Context) (Summary, error)
	// Abort discards everything that was written.
	Abort() error
}

// An Amender changes an archive in place. No change takes effect before Commit returns nil. If
// the program is killed at any time, even during Commit, the archive is left as before or
// as it is after. After Commit the Amender can be used for further changes. It keeps other
// writers out until it is closed.
//
// An Amender must not be used by several goroutines at once.
type Amender interface {
	// Put adds e, or replaces the entry of the same name. It reads r like Writer.Add.
	Put(ctx context.Context, e Entry, r io.Reader) error
	// Remove and Rename return an error that wraps [fs.ErrNotExist] if there is no entry of that
	// name. Rename returns one that wraps [fs.ErrExist] if the new name exists.
	Remove(ctx context.Context, name string) error
	Rename(ctx context.Context, from, to string) error
	// Commit makes the changes take effect.
	Commit(ctx context.Context) (Amended, error)
	// Close releases the archive and discards changes that were not committed.
	Close() error
}

// Amended is the result of Amender.Commit.
type Amended struct {
	Added    int64    `json:"added"`
	Replaced int64    `json:"replaced"`
	Removed  int64    `json:"removed"`
	Renamed  int64    `json:"renamed"`
	Stored   int64    `json:"stored_bytes"` // size of the archive now
	Notes    []string `json:"notes,omitempty"`
	Lost     []string `json:"lost,omitempty"` // attributes of added files that the format cannot store
	// Unmatched has the patterns of AddOptions that matched nothing.
	Unmatched []string `json:"unmatched,omitempty"`
	// Again has the inputs that were named again. Each is added once.
	Again []string `json:"again,omitempty"`
}

// ErrFull means that an entry must go into the next archive of a set.
var ErrFull = errors.New("archive is full")

// OpenOptions are the options for opening an archive.
type OpenOptions struct {
	View string // one of Format.Views; empty means the first
	// FewLookups means that only one or two entries will be looked up, or all entries iterated over
	// once. A large index should be read as a stream instead of loaded.
	FewLookups bool
	// Once means that the caller iterates over the entries once, in stored order. The format need
	// not keep them: it may yield each entry when it finds it, in memory that does not depend on
	// their number. Extents and Run are called for an entry right after it is yielded. If several
	// entries have the same name, all of them are yielded, and the last one counts. Lookup,
	// ReadDir, Regions and About may have to iterate over all entries, and may then keep them.
	Once bool
	// Quick makes Verify skip the contents in formats with ReadsAll.
	Quick bool
	// NoVerify disables the comparison with the format's own checksums.
	NoVerify bool
	// OnHeal, if it is not nil, is called when the reader has corrected damaged data by a checksum. It
	// may be called by several goroutines, and again.
	OnHeal func()
	// Stat returns the properties of an object outside the archive. If it is nil, Verify does not
	// check such objects. The error wraps [errors.ErrUnsupported] for objects that the archive
	// may not refer to.
	Stat func(ctx context.Context, address string) (store.Info, error)
	// Linked opens a file that the archive refers to, as Zarr keys. If it is nil, no such file is
	// opened. The error wraps [errors.ErrUnsupported] for files that the archive may not refer
	// to.
	Linked func(ctx context.Context, address string) (Reader, error)
	// Outside opens an object that the archive refers to. It stays open. If it is nil, there are no such objects.
	// The error wraps [errors.ErrUnsupported] for objects that the archive may not refer to.
	Outside func(ctx context.Context, address string) (store.Object, error)
	Limits  Limits
	// Password decrypts contents. It is not one of Param, which are stored in indexes.
	Password string
	// Param has values for Format.Params by name, such as "ends": "inclusive".
	Param map[string]string
}

// Limits bound the sizes that a format accepts from an archive. Zero means the default.
type Limits struct {
	Index int64 // size of the index in bytes
	Depth int   // nesting of structures
}

// Default limits.
const (
	defaultMaxIndex = 1 << 30
	defaultMaxDepth = 256
)

// OrDefault returns l with defaults in place of zeros.
func (l Limits) OrDefault() Limits {
	if l.Index == 0 {
		l.Index = defaultMaxIndex
	}
	if l.Depth == 0 {
		l.Depth = defaultMaxDepth
	}
	return l
}

// CreateOptions are the options for creating an archive.
type CreateOptions struct {
	// Manifest lists all entries, if they are known in advance. Formats whose index comes first
	// can then write without a temporary copy.
	Manifest []Entry
	// ChunkSize is the size of the content that a chunk of a Chunked format should contain; 0
	// means a single archive. ChunkMax limits the size of the whole object, index included.
	ChunkSize, ChunkMax int64
	// IndexMax, if not 0, limits the index. An entry that does not fit any more is an error that
	// implements EntryError. Formats whose readers have no such limit may ignore it.
	IndexMax int64
	// Chunk describes the chunk of a set; nil if the archive is not part of a set.
	Chunk *Chunk
	// Scratch opens temporary storage for data that is too large for memory. It is never nil.
	Scratch func() (sorter.Scratch, error)
	// NoDigests omits digests that the bare format does not have.
	NoDigests bool
	// Carry is Abilities.Carry of an archive of the same format.
	Carry [][2]string
	// Param has values for Format.Params by name, such as "level": "19".
	Param map[string]string
}

// A Chunk describes one archive of a set.
type Chunk struct {
	Number int  // from 1
	Last   bool // set before Commit of the last chunk
}

// Summary is the result of Writer.Commit.
type Summary struct {
	Entries int64 `json:"entries"`
	Content int64 `json:"bytes"`        // content bytes
	Stored  int64 `json:"stored_bytes"` // bytes written
	// Shared is the number of content bytes that are not stored again, because equal contents are
	// stored once.
	Shared  int64    `json:"shared_bytes,omitempty"`
	Volumes []string `json:"volumes"`
}
