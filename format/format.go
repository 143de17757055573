// Package format is the contract between holdall and an archive format.
//
// It is for those who teach holdall a format; programs that only want archives
// need package holdall. To teach a format, write one package that fills in a
// [Format] and passes formattest.Run. Only Open is required; each other field
// left nil is a thing the format cannot do, and holdall says so in its own
// words.
//
// A format package describes; it does not fetch, cache, decode content, retry
// or draw. It says where an entry's bytes lie ([Extent]), what every other byte
// is for ([Region]), what is wrong ([Problem]) and what would mend it ([Plan]);
// one engine does the rest.
package format

import (
	"context"
	"errors"
	"io"
	"iter"

	"github.com/holdall/holdall/store"
)

// A Format is what holdall knows about one archive format.
type Format struct {
	Name       string   // "caf": the package, the folder and the --format value
	Title      string   // "Chunk Archive Format"
	Extensions []string // ".caf"

	// Views are the ways to look at one archive, the usual one first: a node
	// tree or its segments, members or Zarr keys. Empty means there is one.
	Views []string

	// Overview is the view that shows an archive as a whole, where the usual one would
	// take a long way through it: what is counted, and drawn as a map. Empty is the
	// usual one.
	Overview string

	// Keeps says what an entry can carry besides its name and content.
	// Convert tells the user what gets lost.
	Keeps Keeps

	// Digest is the algorithm of the digests that the format keeps; empty is
	// "blake3". What is packed comes with them, computed beside other work.
	Digest string

	// NeedsDigests says that the bare format has digests: there is none without.
	NeedsDigests bool

	// Copies says that a Writer copies the bytes of a [Section] without reading
	// them, where the store can.
	Copies bool

	// CopiesUnread says that a Writer knows [Section].Unread and AtOnce: it has nothing
	// around a content that could not be taken back.
	CopiesUnread bool

	// WantsManifest says that CreateOptions.Manifest is worth a walk over all
	// that is to be packed: names are checked before anything is written, and
	// an index in front finds its room.
	WantsManifest bool

	// Order compares two entries by where they should be stored; nil is the order
	// of their names, a folder before what is in it. It is a wish: a Writer takes
	// entries as they come. With WantsManifest, what is packed comes in this order.
	Order func(a, b Entry) int

	// Joined returns an order if with such parameters a Writer joins contents that come one
	// after the other. What is packed, and what is converted, comes in that order then.
	Joined func(param map[string]string) func(a, b Entry) int

	// Refers says that an entry can be written as a reference to where its
	// content lies: see Section.Address.
	Refers bool

	// Chunked formats roll over into NAME-00001, NAME-00002, …: a Writer
	// returns ErrFull and each object is an archive by itself.
	Chunked bool

	// Params are what only this format understands of OpenOptions.Param and
	// CreateOptions.Param. The front door refuses others before it calls the format,
	// and the command makes flags of them.
	Params []Param

	// DateEpoch says that whoever makes such archives expects $SOURCE_DATE_EPOCH to
	// be the time of every entry, as makers of packages do.
	DateEpoch bool

	// Steady says that most of a Writer's memory is in use from its beginning to its
	// end, so that a heap of twice that is much for nothing.
	Steady bool

	// Bare says that an archive of that name holds references alone, no contents.
	Bare func(name string) bool

	// Detect says how surely p looks like this format, without further reads.
	Detect func(p Probe) Match

	// Open reads the archive's index.
	Open func(ctx context.Context, st store.Store, name string, o OpenOptions) (Reader, error)

	// Create starts a new archive.
	Create func(ctx context.Context, st store.Store, name string, o CreateOptions) (Writer, error)

	// Parts writes an archive in parts that need not know of each other.
	Parts *Parts

	// Verify checks the archive's structure and reports what is wrong; the
	// engine checks the contents against their digests, unless ReadsAll. Its
	// error means the check itself could not go on, not that problems exist.
	Verify func(ctx context.Context, st store.Store, name string, o OpenOptions, report func(Problem)) error

	// ReadsAll says that Verify compares the contents with what vouches for them
	// itself, unless OpenOptions.Quick: a format may have checksums that are not
	// at hand for each entry.
	ReadsAll bool

	// Repair plans what would mend an archive. It never writes.
	Repair func(ctx context.Context, st store.Store, name string, o OpenOptions, report func(Problem)) (Plan, error)

	// Amend opens an archive for changes in place. Unlike a repair, an
	// amendment is no plan: what may be written before what is the format's
	// own knowledge, and so it writes itself.
	Amend func(ctx context.Context, st store.Store, name string, o OpenOptions) (Amender, error)
}

// Keeps is a set of things that an entry can carry in a format.
type Keeps uint16

const (
	KeepsModes Keeps = 1 << iota
	KeepsTimes
	KeepsOwners
	KeepsDirs // directories of their own, empty ones too
	KeepsSymlinks
	KeepsHardLinks
	KeepsFifos
	KeepsDigests
	KeepsProperties // as such; elsewhere they become files
	KeepsHeaders    // and times, of objects of buckets: see IsObjectAttr
)

// A Reader is an open archive. Its methods may be called in parallel.
//
// A format with a flat list of entries embeds [*Index] for the first three, and Can.
type Reader interface {
	// Entries yields every entry in stored order, the order in which
	// reading all content is cheapest.
	Entries(ctx context.Context) iter.Seq2[Entry, error]

	// Lookup returns the named entry or an error wrapping fs.ErrNotExist.
	Lookup(ctx context.Context, name string) (Entry, error)

	// ReadDir yields the entries directly in dir ("." is the root). Where
	// nothing is called dir, it yields one error wrapping fs.ErrNotExist; where
	// that is no directory, one wrapping syscall.ENOTDIR.
	ReadDir(ctx context.Context, dir string) iter.Seq2[Entry, error]

	// Extents yields, in content order, where e's content bytes
	// [off, off+n) are stored. Extents may stick out of that range.
	Extents(ctx context.Context, e Entry, off, n int64) iter.Seq2[Extent, error]

	// Regions yields what the bytes that are not content are for.
	Regions(ctx context.Context) iter.Seq2[Region, error]

	// About says what is known of the archive as a whole.
	About(ctx context.Context) (About, error)

	// Can returns what else the reader can do. It is asked once.
	Can() Abilities

	Close() error
}

// Abilities are what a Reader can do besides. A nil field is a thing that it cannot do.
type Abilities struct {
	// Run returns the extent of all of e's content if it is stored in one raw run; false
	// if it is not, is empty, or cannot be read. The most frequent read, of a small file
	// on a disk, is a third faster by it.
	Run func(e Entry) (Extent, bool)

	// Object returns an object that the reader itself holds open; nil for others. Contents
	// are read of it, and not of what has its name by then: another program may write to
	// the archive meanwhile. It stays the reader's.
	Object func(name string) store.Object

	// EntriesBelow yields what is below a directory, in stored order, without going
	// through the rest: for trees too large to be walked.
	EntriesBelow func(ctx context.Context, dir string) iter.Seq2[Entry, error]

	// EntriesFrom yields entries in stored order from one of them on, without going
	// through those before it: for training on an archive in a shuffled order.
	EntriesFrom func(ctx context.Context, name string) iter.Seq2[Entry, error]

	// ReadDirFrom lists a directory from any place in it on, without going through what
	// stands before: for directories of millions that are shown page by page. It yields
	// what is directly in dir, in the byte order of places, from the first place on that
	// is not less than from. The place of an entry is its name in dir; of a directory
	// that only other names imply, that and a slash. A file that others lie below is such
	// a directory, too.
	ReadDirFrom func(ctx context.Context, dir, from string) iter.Seq2[Entry, error]

	// Keys yields what has a name that begins with prefix and is no directory, in the byte
	// order of names, from the first name on that is not less than from. It is for readers
	// whose names are the keys of a bucket, of any bytes, and are in order somewhere.
	Keys func(ctx context.Context, prefix, from string) iter.Seq2[Entry, error]

	// Compares reports whether the reader itself compares e's content with checksums of the
	// format's own before any part of it is handed on. What a codec compares counts besides.
	Compares func(e Entry) bool

	// Doubt returns what is wrong with the index as a whole, as far as it was read: it is
	// not what its own digest says. What it has is read all the same.
	Doubt func() *Problem

	// Decoder prepares to decode contents that have no digest, to find damage. What it
	// returns gives what decodes an entry; nil if nothing in its content shows damage.
	Decoder func(ctx context.Context) (func(e Entry) Decode, error)
}

// A Decode reads a content, decodes it, and reports what cannot be decoded. An error is
// one of reading.
type Decode func(ctx context.Context, r io.Reader, report func(Problem)) (Proof, error)

// A Proof says how far a content is proven.
type Proof uint8

const (
	Unproven Proof = iota
	Decoded        // all of it can be decoded
	Summed         // checksums of all of it were compared
	Digested       // a digest was compared
)

// About describes an archive as a whole.
type About struct {
	Version    string      // of the format
	IndexBytes int64       // stored bytes that serve finding, not content
	Volumes    []string    // the objects the archive is made of
	Stored     int64       // how long these are together; 0 leaves it to whoever asks each of them
	Shared     int64       // content bytes that are stored as another entry's
	Facts      [][2]string // what else is worth knowing: keys and values, in order
	Notes      []Problem   // what the reader assumed or noticed
	Carry      [][2]string // what only this format understands; Create takes it back
}

// A Writer writes one archive. It ends in exactly one Commit, or in Abort.
type Writer interface {
	// Add appends e, whose content is read from r to its end. It returns
	// ErrFull, having read nothing, if e does not fit this archive any more.
	// If r fails or ends early, Add returns its error or a *SizeError, and
	// the archive is as if e had never been added. Where r is a [*Section],
	// its bytes may be copied without passing through this program.
	Add(ctx context.Context, e Entry, r io.Reader) error
	Commit(ctx context.Context) (Summary, error)
	Abort() error
}

// An Amender changes an archive in place. Nothing of what it is asked counts
// before Commit returns nil; a program that is killed at any time, Commit
// included, leaves the archive as it was or as it was to be. After Commit it
// goes on from there. It keeps other writers out until it is closed, and belongs
// to one goroutine.
type Amender interface {
	// Put adds e, or replaces the entry of that name. The same holds of r as
	// for Writer.Add.
	Put(ctx context.Context, e Entry, r io.Reader) error
	// Remove and Rename fail with fs.ErrNotExist where there is nothing of the
	// name, Rename with fs.ErrExist where there is something of the new one.
	Remove(ctx context.Context, name string) error
	Rename(ctx context.Context, from, to string) error
	Commit(ctx context.Context) (Amended, error)
	// Close gives up what was not committed.
	Close() error
}

// Amended says what a Commit changed.
type Amended struct {
	Added    int64    `json:"added"`
	Replaced int64    `json:"replaced"`
	Removed  int64    `json:"removed"`
	Renamed  int64    `json:"renamed"`
	Stored   int64    `json:"stored_bytes"` // length of the archive now
	Notes    []string `json:"notes,omitempty"`
}

// ErrFull means an entry needs the next archive.
var ErrFull = errors.New("archive is full")

// An EntryError is about the one entry that a Writer was asked to add: it has no
// place in the archive, which is otherwise sound.
type EntryError interface {
	error
	EntryName() string
}

// OpenOptions are the wishes an archive is opened with.
type OpenOptions struct {
	View string // one of Format.Views; empty is the first
	// FewLookups says that one or two entries are wanted, so that a large
	// index is better searched than loaded.
	FewLookups bool
	// Once says that the entries are gone through once, in stored order: nothing need
	// be kept of them. A format may then yield each as it finds it, in memory that
	// does not depend on how many there are. What an entry's Extents and Run say is
	// asked right after it was yielded. Of several entries of one name all come, the
	// one that counts last. Lookup, ReadDir, Regions and About may have to go through
	// all of them, and may keep them then.
	Once bool
	// Quick keeps a Verify that reads contents from doing so.
	Quick bool
	// NoVerify has what is read not compared with checksums of the format's own.
	NoVerify bool
	// Stat asks for an object outside of the archive; nil keeps a Verify from asking. Its
	// error is errors.ErrUnsupported for what the archive may not lead to.
	Stat func(ctx context.Context, address string) (store.Info, error)
	// Linked opens a file that the archive leads to, as keys of Zarr; nil where none is to be
	// opened. Its error is errors.ErrUnsupported for what the archive may not lead to.
	Linked func(ctx context.Context, address string) (Reader, error)
	Limits Limits
	// Param has values of Format.Params, by their names ("ends": "inclusive").
	Param map[string]string
}

// Limits bound what is believed of an archive. Zero means the usual limit.
type Limits struct {
	Index int64 // bytes of index
	Depth int   // of nested structures
}

// Limits that are used where none are given.
const (
	DefaultMaxIndex = 1 << 30
	DefaultMaxDepth = 256
)

// OrDefault returns l with the usual limits where it has none.
func (l Limits) OrDefault() Limits {
	if l.Index == 0 {
		l.Index = DefaultMaxIndex
	}
	if l.Depth == 0 {
		l.Depth = DefaultMaxDepth
	}
	return l
}

// CreateOptions are the wishes a new archive is made with.
type CreateOptions struct {
	// Manifest, if known beforehand, lets formats whose index comes first
	// write without spooling.
	Manifest []Entry
	// ChunkSize is how much content a chunk of a Chunked format should hold;
	// 0 is one archive. ChunkMax bounds the whole object, index included.
	ChunkSize, ChunkMax int64
	// Chunk says which chunk of a set it is; nil is none.
	Chunk *Chunk
	// Scratch opens temporary room for what does not belong in memory. It is
	// always there.
	Scratch func() (Scratch, error)
	// NoDigests leaves out digests that the bare format does not have.
	NoDigests bool
	// Carry is what About gave for an archive of the same format.
	Carry [][2]string
	// Param has values of Format.Params, by their names ("level": "19").
	Param map[string]string
}

// A Chunk is one archive of a set.
type Chunk struct {
	Number int  // from 1
	Last   bool // set before Commit of the last one
}

// Scratch is temporary room, gone when closed.
type Scratch interface {
	io.ReadWriteSeeker
	io.Closer
}

// Summary says what was written.
type Summary struct {
	Entries int64 `json:"entries"`
	Content int64 `json:"bytes"`        // content bytes
	Stored  int64 `json:"stored_bytes"` // bytes written
	// Shared bytes of the content are not stored again: equal contents are stored once.
	Shared  int64    `json:"shared_bytes,omitempty"`
	Volumes []string `json:"volumes"`
}
