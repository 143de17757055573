package catalog

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"strings"
	"time"

	"github.com/holdall/holdall/format"
)

// An Archive is the catalogue's record of one archive.
type Archive struct {
	// ID grows with each archive that is added, and is never reused. If several
	// archives have a path, the one with the highest ID is the newest.
	ID      int64
	Address string // an address for store.OpenAddress; any bytes
	Format  string
	Size    int64
	// Version changes when the archive's bytes do: an ETag, or a time. Size and
	// Version together show whether the archive is still the one that was added.
	Version  string
	Entries  int64 // how many paths the catalogue has of it
	Added    time.Time
	Verified time.Time // when this version was last found sound; zero means never
	// Parity is the identity of the parity that lay beside it when that was last looked for. Databases do
	// not record it.
	Parity string
	// Roots are the places that the archive's files were packed from. Empty means
	// unknown.
	Roots Roots
	// Dead is the time since when none of the archive's files is visible. It is
	// zero if one is.
	Dead time.Time
	// Listed is the listing of originals that Location.Missing is from. It is zero
	// if there was none since the archive was added.
	Listed time.Time
}

func (a Archive) Same(b Archive) bool {
	return a.Address == b.Address && a.Format == b.Format && a.Size == b.Size && a.Version == b.Version
}

// A Location is the place of a file in an archive.
type Location struct {
	Path    string // as the archive has it, byte for byte
	Archive int64  // Archive.ID; Add sets it
	Kind    format.Kind
	Size    int64 // content bytes
	// Raw reports that the content is one run of the archive's own bytes: Size
	// bytes from Off. If it is false, only the archive's format can read the file.
	Raw    bool
	Off    int64
	Digest format.Digest

	// These are the attributes that the bucket kept with the original object.
	// Headers is an ID for Catalog.Headers. A location to be added has the headers
	// in HeaderText, in the form that the function HeaderText returns, and Add
	// sets Headers.
	Modified   time.Time
	ETag       string
	Headers    uint64
	HeaderText string
	// Original is the state of the object that the file was packed from.
	Original Original
	// Missing reports that the listing of Archive.Listed and all later ones did not
	// find the original. Unseen reports that no listing has found it since it was
	// packed.
	Missing, Unseen bool
	// Gone reports that the file was deleted. Its bytes are still in the archive,
	// but lookups do not find it. Only Locations yields such files.
	Gone bool
}

// An Original is the state of an object after it was packed.
type Original uint8

const (
	OriginalStays   Original = iota
	OriginalLeaving          // it is about to be removed, or has been
	OriginalLeft             // it was removed after the packed copy was proven
)

// Check returns an error if a location is invalid in an archive of that size.
func (l Location) Check(archive int64) error {
	switch {
	case l.Size < 0:
		return fmt.Errorf("%s: expected a size, found %d", format.Escape(l.Path), l.Size)
	case l.Raw && (l.Off < 0 || l.Off > archive || l.Size > archive-l.Off):
		return fmt.Errorf("%s: bytes %d+%d: expected them within the %d bytes of the archive", format.Escape(l.Path), l.Off, l.Size, archive)
	}
	return nil
}

// Same reports whether two locations describe the same file, as far as both
// have the information.
func (l Location) Same(b Location) bool {
	l.Headers, b.Headers = headersID(l), headersID(b)
	for _, x := range []*Location{&l, &b} {
		x.HeaderText, x.Original, x.Gone, x.Missing, x.Unseen = "", OriginalStays, false, false, false
	}
	if l.ETag == "" || b.ETag == "" { // older catalogues do not record them
		for _, x := range []*Location{&l, &b} {
			x.Modified, x.ETag, x.Headers = time.Time{}, "", 0
		}
	}
	l.Modified, b.Modified = l.Modified.UTC(), b.Modified.UTC()
	return l == b
}

// A Found is a location and the archive that it is in.
type Found struct {
	Location
	In Archive
}

// A Listed is an item directly below a prefix: a location, or a folder.
type Listed struct {
	Location
	Folder bool // Path ends in a slash, and is the prefix of the folder's contents
}

type Addition struct {
	Archive
	// Rows are the archive's locations, in any order; byte order of the paths is
	// fastest. If a path occurs several times, the last one counts.
	Rows    iter.Seq2[Location, error]
	headers *headerSets // that rows have
}

// Check returns an error if an archive cannot be recorded.
func (a Archive) Check() error {
	if a.Address == "" || a.Size < 0 {
		return fmt.Errorf("%s: expected an address and a size, found %d bytes", format.Escape(a.Address), a.Size)
	}
	return nil
}

// checked returns the addition with rows that also yield errors for invalid
// locations.
func (a Addition) checked() (Addition, error) {
	if err := a.Check(); err != nil {
		return a, err
	}
	given := a.Rows
	a.headers = &headerSets{seen: map[uint64]bool{}}
	a.Rows = func(yield func(Location, error) bool) {
		for l, err := range given {
			if err == nil {
				err = l.Check(a.Size)
			}
			if err == nil {
				l.Headers, err = a.headers.add(l.HeaderText)
			}
			if !yield(l, err) || err != nil {
				return
			}
		}
	}
	return a, nil
}

type Added struct {
	Archive
	// Replaced is the earlier record of the address. Its ID is 0 if there was
	// none.
	Replaced Archive
}

// ErrAway reports that the database server cannot be reached, or has closed
// the connection. The operation may or may not have been carried out. The
// server may come back.
var ErrAway = errors.New("the database cannot be reached")

// ErrBusy reports that another program was writing for longer than the wait
// time.
var ErrBusy = errors.New("another program is writing to the catalogue")

// ErrBroken is wrapped by errors about a damaged database, and about a file
// that is not a catalogue. Such a file is never written to.
var ErrBroken = errors.New("is not an intact catalogue")

// A SchemaError reports that another version of holdall made the catalogue.
type SchemaError struct {
	Database     string
	Found, Known int
}

func (e *SchemaError) Error() string {
	if e.Found > e.Known {
		return fmt.Sprintf("%s: schema: expected at most version %d, found %d: written by a newer holdall", e.Database, e.Known, e.Found)
	}
	return fmt.Sprintf("%s: schema: expected version %d, found %d: written by an older holdall, and opened read-only", e.Database, e.Known, e.Found)
}

// Options are options for opening a catalogue; the zero value suits most
// callers.
type Options struct {
	// ReadOnly opens the catalogue for reading, and migrates nothing.
	ReadOnly bool
	// Wait is how long to wait for another program that is writing; 0 means one
	// minute.
	Wait time.Duration
	// Queue takes part in the transactions that change chunks. Only PostgreSQL
	// supports it.
	Queue Queue
	// Workers, if not 0, is how many workers finish chunks at once. A database
	// that many machines share then gets no more connections than they need.
	Workers int
}

// Files is what every kind of catalogue does. Package book has another.
type Files interface {
	// Archives returns all archives, the oldest first. ArchiveOf returns that with an ID, and Archive that
	// at an address, or an error that wraps fs.ErrNotExist.
	Archives(ctx context.Context) ([]Archive, error)
	ArchiveOf(ctx context.Context, id int64) (Archive, error)
	Archive(ctx context.Context, address string) (Archive, error)

	// Newest returns where the newest file of a path is, NewestIn where it is in some archives, and
	// Holders all archives that have it, the newest first.
	Newest(ctx context.Context, path string) (Found, error)
	NewestIn(ctx context.Context, path string, in Scope) (Found, error)
	Holders(ctx context.Context, path string) ([]Found, error)
	// Between, Below, ListFrom and List yield the newest location of each path, in byte order: in
	// [from, before), with a prefix, and directly below a prefix. Locations yields those of an archive.
	Between(ctx context.Context, from, before string, in Scope) iter.Seq2[Location, error]
	Below(ctx context.Context, prefix string) iter.Seq2[Location, error]
	ListFrom(ctx context.Context, prefix, from string, in Scope) iter.Seq2[Listed, error]
	List(ctx context.Context, prefix string) iter.Seq2[Listed, error]
	Locations(ctx context.Context, a Archive) iter.Seq2[Location, error]
	// HeadersOf returns what a service stored with the original of a file. The caller must not change it.
	HeadersOf(ctx context.Context, l Location) (map[string]string, error)

	// Add records archives, TryAdd does all the work and no more, and Remove forgets one. Verified records
	// that one was found sound. Delete deletes files; see [Catalog.Delete].
	Add(ctx context.Context, all ...Addition) ([]Added, error)
	TryAdd(ctx context.Context, all ...Addition) ([]Added, error)
	Remove(ctx context.Context, address string) (Archive, error)
	Verified(ctx context.Context, id int64, at time.Time) error
	Delete(ctx context.Context, roots Roots, paths []string, last int64) (int64, error)

	Check(ctx context.Context, report func(problem string)) error
	Close() error
}

var _ Files = (*Catalog)(nil)

// A Catalog is an open catalogue in a database. Its methods may be called concurrently, also
// while one of its iterators is running. Calls that write wait for each other.
type Catalog struct {
	db      engine
	headers headerMemory
}

// scheme splits an address into the kind of its database and the rest.
func scheme(address string) (kind, rest string) {
	kind, rest, ok := strings.Cut(address, ":")
	if ok && (kind == "sqlite" || kind == "postgres" || kind == "postgresql") {
		return kind, rest
	}
	return "sqlite", address
}

// TakesQueue reports whether the catalogue at an address can have a Queue.
// Only PostgreSQL supports it.
func TakesQueue(address string) bool {
	kind, _ := scheme(address)
	return kind != "sqlite"
}

// file returns the file that an address names, or an error if it does not name
// one.
func file(name string) (string, error) {
	switch {
	case name == "":
		return "", errors.New("catalogue: expected the name of a file")
	case strings.IndexByte(name, 0) >= 0:
		return "", fmt.Errorf("%s: the name contains a NUL byte", format.Escape(name))
	}
	return name, nil
}

// Create makes a new catalogue at an address: a file, sqlite:FILE, or
// postgres://USER@HOST/DATABASE. The PostgreSQL database must exist; the
// catalogue is a schema in it, named holdall unless the address has a
// parameter "schema". The catalogue appears complete or not at all. If
// there is something at the address already, Create leaves it unchanged and
// returns an error that wraps fs.ErrExist.
func Create(ctx context.Context, address string) error {
	kind, rest := scheme(address)
	if kind != "sqlite" {
		return createPostgres(ctx, address)
	}
	name, err := file(rest)
	if err != nil {
		return err
	}
	return createFile(ctx, name)
}

// Open opens the catalogue at an address. An older schema is migrated; a newer
// one is an error.
func Open(ctx context.Context, address string, o Options) (*Catalog, error) {
	o.Wait = cmp.Or(o.Wait, time.Minute)
	var db engine
	var err error
	if kind, rest := scheme(address); kind != "sqlite" {
		db, err = openPostgres(ctx, address, o)
	} else if rest, err = file(rest); err == nil && o.Queue != nil {
		err = fmt.Errorf("%s: a queue in an SQLite file: %w", rest, errors.ErrUnsupported)
	} else if err == nil {
		db, err = openFile(ctx, rest, o)
	}
	if err != nil {
		return nil, err
	}
	return &Catalog{db: db}, nil
}

// Close closes the catalogue. It waits for running writes. No iterator may be
// running.
func (c *Catalog) Close() error { return c.db.close() }

// A Scope reports whether an archive counts, by Archive.ID. A nil Scope
// includes all archives.
type Scope func(archive int64) bool

func (in Scope) has(archive int64) bool { return in == nil || in(archive) }

// List yields the items directly below a prefix, which is empty or ends in a
// slash. It skips over the contents of folders, so its cost depends only on
// what it yields. A path with empty elements ("a//b", "/x") is in folders that
// may have empty names; the Path that List yields leads to them.
//
// List holds nothing open while it yields, so listings may be nested as deep
// as folders are.
func (c *Catalog) List(ctx context.Context, prefix string) iter.Seq2[Listed, error] {
	return c.ListFrom(ctx, prefix, prefix, nil)
}

// ListFrom is List for some archives, starting at the first path that is not
// less than from. If other archives have paths in between, it has to read past
// them.
func (c *Catalog) ListFrom(ctx context.Context, prefix, from string, in Scope) iter.Seq2[Listed, error] {
	return ListIn(ctx, c.Between, prefix, from, in)
}

// ListIn is ListFrom of a catalogue that has the given function Between.
func ListIn(ctx context.Context, between func(ctx context.Context, from, before string, in Scope) iter.Seq2[Location, error], prefix, from string, in Scope) iter.Seq2[Listed, error] {
	return func(yield func(Listed, error) bool) {
		from, before, more := max(prefix, from), After(prefix), true
		var some []Listed
		for n := 16; more; n = min(4*n, 1024) {
			some = some[:0]
			for more && len(some) < n {
				var err error
				if some, from, more, err = listSome(ctx, between, prefix, from, before, in, some, n); err != nil {
					yield(Listed{}, err)
					return
				}
			}
			for _, l := range some {
				if !yield(l, nil) {
					return
				}
			}
		}
	}
}

// listSome appends the items directly below a prefix, starting at a path,
// until it meets a folder or has n items. It returns where to go on, if there
// is more.
func listSome(ctx context.Context, between func(ctx context.Context, from, before string, in Scope) iter.Seq2[Location, error], prefix, from, before string, in Scope, some []Listed, n int) (all []Listed, next string, more bool, err error) {
	for l, err := range between(ctx, from, before, in) {
		if err != nil {
			return some, "", false, err
		}
		name, _, deeper := strings.Cut(l.Path[len(prefix):], "/")
		if deeper {
			folder := prefix + name + "/"
			next := After(folder)
			return append(some, Listed{Location: Location{Path: folder, Kind: format.Dir}, Folder: true}), next, next != "", nil
		}
		if some = append(some, Listed{Location: l}); len(some) >= n {
			return some, l.Path + "\x00", true, nil
		}
	}
	return some, "", false, nil
}

// After returns the first string after all strings that begin with prefix, or
// "" if there is none.
func After(prefix string) string {
	for i := len(prefix) - 1; i >= 0; i-- {
		if prefix[i] < 0xff {
			return prefix[:i] + string([]byte{prefix[i] + 1})
		}
	}
	return ""
}

// Absent is the error for a path or a name that is not in the catalogue.
func Absent(what string) error {
	return &fs.PathError{Op: "catalogue", Path: what, Err: fs.ErrNotExist}
}
