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

// An Archive is what the catalogue knows of one archive.
type Archive struct {
	// ID grows with each archive that is added, and is never given twice: of
	// several archives that have a path, the one with the highest is newest.
	ID      int64
	Address string // where it is, in words that store.OpenAddress takes; any bytes
	Format  string
	Size    int64
	// Version changes when the archive's bytes do: an ETag, or a time. Together
	// with Size it says whether an archive still is what was added.
	Version  string
	Entries  int64 // how many paths it has here
	Added    time.Time
	Verified time.Time // when this version was last found sound; zero is never
	// Roots say where what is in it was before it was packed; empty is not known.
	Roots Roots
	// Dead is since when nothing of it is seen; zero is that something is.
	Dead time.Time
}

// Same reports whether b is the same version of an archive as a.
func (a Archive) Same(b Archive) bool {
	return a.Address == b.Address && a.Format == b.Format && a.Size == b.Size && a.Version == b.Version
}

// A Location says where a file is.
type Location struct {
	Path    string // as the archive has it, byte for byte
	Archive int64  // Archive.ID; Add sets it
	Kind    format.Kind
	Size    int64 // content bytes
	// Raw says that the content is one run of the archive's own bytes, Size of
	// them from Off. Without it, only the archive's format can read the file.
	Raw    bool
	Off    int64
	Digest format.Digest

	// What its bucket kept of the object that it was. Headers stands for what
	// Catalog.Headers returns; of a location that is added HeaderText has it, as
	// HeaderText makes it, and Headers is set.
	Modified   time.Time
	ETag       string
	Headers    uint64
	HeaderText string
	// Original is what became of the object that it was packed from.
	Original Original
	// Gone says that it was deleted: its bytes are in the archive still, but who looks for
	// the path does not find them. Only Locations has such.
	Gone bool
}

// An Original is what became of an object after it was packed.
type Original uint8

const (
	OriginalStays   Original = iota
	OriginalLeaving          // somebody is about to remove it, or did
	OriginalLeft             // it was removed, since what is packed was proven
)

// check says what is wrong with a location in an archive of that size.
func (l Location) check(archive int64) error {
	switch {
	case l.Size < 0:
		return fmt.Errorf("%s: expected a size, found %d", format.Escape(l.Path), l.Size)
	case l.Raw && (l.Off < 0 || l.Off > archive || l.Size > archive-l.Off):
		return fmt.Errorf("%s: bytes %d+%d: expected them within the %d bytes of the archive", format.Escape(l.Path), l.Off, l.Size, archive)
	}
	return nil
}

// Same reports whether two locations say the same of a file, as far as both know it.
func (l Location) Same(b Location) bool {
	l.Headers, b.Headers = headersID(l), headersID(b)
	for _, x := range []*Location{&l, &b} {
		x.HeaderText, x.Original, x.Gone = "", OriginalStays, false
	}
	if l.ETag == "" || b.ETag == "" { // older catalogues have none of it
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

// A Listed is what is directly below a prefix: a location, or a folder.
type Listed struct {
	Location
	Folder bool // Path ends in a slash, and is the prefix of what is in it
}

// An Addition is an archive to be added, and what is in it.
type Addition struct {
	Archive
	// Rows are the archive's locations, any number of them in any order; those in
	// byte order of their paths take the least time. Of several of one path the last
	// one counts.
	Rows    iter.Seq2[Location, error]
	headers *headerSets // that rows have
}

// checked returns the addition with rows that say what is wrong with them.
func (a Addition) checked() (Addition, error) {
	if a.Address == "" || a.Size < 0 {
		return a, fmt.Errorf("%s: expected an address and a size, found %d bytes", format.Escape(a.Address), a.Size)
	}
	given := a.Rows
	a.headers = newHeaderSets()
	a.Rows = func(yield func(Location, error) bool) {
		for l, err := range given {
			if err == nil {
				err = l.check(a.Size)
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

// Added says what Add did.
type Added struct {
	Archive
	// Replaced is what was known of the address before; its ID is 0 if nothing was.
	Replaced Archive
}

// ErrAway means that the server of a database cannot be reached, or has let go of us:
// what was asked of it may have been done, or not. It may come back.
var ErrAway = errors.New("the database cannot be reached")

// ErrBusy means that another program was writing for longer than we wait.
var ErrBusy = errors.New("another program is writing to the catalogue")

// ErrBroken is what errors about a damaged database wrap, and about a file that
// is no catalogue. Such a file is never written to.
var ErrBroken = errors.New("is not an intact catalogue")

// A SchemaError means that a catalogue was made by another holdall than this.
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

// Options are wishes for a catalogue; the zero value suits most.
type Options struct {
	// ReadOnly opens it for reading. Then nothing is brought up to date.
	ReadOnly bool
	// Wait is how long to wait for another program that is writing; 0 is a minute.
	Wait time.Duration
	// Queue takes part in what is written of chunks; only PostgreSQL has it.
	Queue Queue
	// Workers, if it is not 0, is how many will finish chunks at once: a database of many
	// machines is asked for no more connections than they need.
	Workers int
}

// A Catalog is an open catalogue. Its methods may be called in parallel, also
// while one of its iterators is under way; those that write wait for one another.
type Catalog struct {
	db      engine
	headers headerMemory
}

// scheme returns the kind of database that an address is of, and what is behind it.
func scheme(address string) (kind, rest string) {
	kind, rest, ok := strings.Cut(address, ":")
	if ok && (kind == "sqlite" || kind == "postgres" || kind == "postgresql") {
		return kind, rest
	}
	return "sqlite", address
}

// TakesQueue reports whether the catalogue of an address can have a Queue: one in
// PostgreSQL can.
func TakesQueue(address string) bool {
	kind, _ := scheme(address)
	return kind != "sqlite"
}

// file returns the file that an address means, or why it means none.
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
// postgres://USER@HOST/DATABASE, a database that is there, where it is a schema named
// holdall, or as a parameter "schema" of the address says. It appears whole or
// not at all. What is there already is not touched, and is an error that wraps
// fs.ErrExist.
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

// Open opens the catalogue at an address. One of an older schema is brought up to
// date, one of a newer is refused.
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

// Close ends the use of the catalogue. It waits for who is writing; no iterator may be
// under way.
func (c *Catalog) Close() error { return c.db.close() }

// A Scope says which archives count, by Archive.ID; nil is all.
type Scope func(archive int64) bool

func (in Scope) has(archive int64) bool { return in == nil || in(archive) }

// List yields what is directly below a prefix, which is empty or ends in a slash.
// It goes past folders without looking at what is in them, so it costs what it
// shows. A path with empty elements ("a//b", "/x") is in folders as it says, and
// some of these have empty names: what List yields as Path leads to them.
//
// While it yields, nothing is open: so listings may be nested as deep as folders are.
func (c *Catalog) List(ctx context.Context, prefix string) iter.Seq2[Listed, error] {
	return c.ListFrom(ctx, prefix, prefix, nil)
}

// ListFrom is List of some archives, from a path on that is not less than from. Where archives
// that do not count have paths among those that do, it goes through them.
func (c *Catalog) ListFrom(ctx context.Context, prefix, from string, in Scope) iter.Seq2[Listed, error] {
	return func(yield func(Listed, error) bool) {
		from, before, more := max(prefix, from), After(prefix), true
		var some []Listed
		for n := 16; more; n = min(4*n, 1024) {
			some = some[:0]
			for more && len(some) < n {
				var err error
				if some, from, more, err = c.listSome(ctx, prefix, from, before, in, some, n); err != nil {
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

// listSome appends what is directly below a prefix, from a path on, until there is a
// folder or are n; and says where to go on, if anywhere.
func (c *Catalog) listSome(ctx context.Context, prefix, from, before string, in Scope, some []Listed, n int) (all []Listed, next string, more bool, err error) {
	for l, err := range c.Between(ctx, from, before, in) {
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

// After returns the first string behind all that begin with prefix, empty if there
// is none.
func After(prefix string) string {
	for i := len(prefix) - 1; i >= 0; i-- {
		if prefix[i] < 0xff {
			return prefix[:i] + string([]byte{prefix[i] + 1})
		}
	}
	return ""
}

func absent(what string) error {
	return &fs.PathError{Op: "catalogue", Path: what, Err: fs.ErrNotExist}
}
