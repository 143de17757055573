package catalog

import (
	"context"
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
	// Proven counts the files by the checksum that their originals were compared with when they were packed,
	// such as "md5:55 size:1".
	Proven string
	// Facts says that the archive is recorded as one file, itself. It is the kind of what is known of the file, a
	// colon, and its path, as FactsAt returns it. If it is empty, the archive's entries are recorded.
	Facts string
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

	// These are the attributes that the bucket kept with the original object. The headers are in the form
	// that the function HeaderText returns.
	Modified   time.Time
	ETag       string
	HeaderText string
	// Seq is the version of the file: of one path, the highest counts. 0 is that
	// of the commit which adds it. It is that which began the listing that found an object.
	Seq int64
	// Original is the state of the object that the file was packed from.
	Original Original
	// Since is the commit that says what Original, Missing and Unseen say.
	Since int64
	// Missing reports that the listing which began with commit Since, and all later ones, did not find the
	// original. Unseen reports that no listing has found it since it was packed.
	Missing, Unseen bool
	// Gone reports that the file was deleted. Its bytes are still in the archive,
	// but lookups do not find it. Only Locations and Versions yield such files, and BetweenAll their paths.
	Gone bool
}

// An Original is the state of an object after it was packed.
type Original uint8

const (
	OriginalStays   Original = iota
	OriginalLeaving          // it is about to be removed, or has been
	OriginalLingers          // it was leaving, and is still there
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
	for _, x := range []*Location{&l, &b} {
		x.Original, x.Gone, x.Missing, x.Unseen, x.Seq, x.Since = OriginalStays, false, false, false, 0, 0
	}
	if l.ETag == "" || b.ETag == "" { // not every format keeps them
		for _, x := range []*Location{&l, &b} {
			x.Modified, x.ETag, x.HeaderText = time.Time{}, "", ""
		}
	}
	l.Modified, b.Modified = l.Modified.UTC(), b.Modified.UTC()
	return l == b
}

// Content is equal for locations of one path that have the same content, as far as that is known.
func (l Location) Content() string {
	seq := int64(0)
	if l.Digest.Sum+l.ETag == "" {
		seq = l.Seq
	}
	return fmt.Sprintf("%s %d %s %d", l.Digest, l.Size, l.ETag, seq)
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
	Rows iter.Seq2[Location, error]
	// Originals, if not nil, yields what is known of the objects that the files were packed from, in byte
	// order of the paths: time and ETag, which not every format keeps. If a path occurs several times, the
	// last one counts.
	Originals iter.Seq2[Location, error]
}

// Check returns an error if an archive cannot be recorded.
func (a Archive) Check() error {
	if a.Address == "" || a.Size < 0 {
		return fmt.Errorf("%s: expected an address and a size, found %d bytes", format.Escape(a.Address), a.Size)
	}
	return nil
}

type Added struct {
	Archive
	// Replaced is the earlier record of the address. Its ID is 0 if there was
	// none.
	Replaced Archive
}

// A Scope reports whether an archive counts, by Archive.ID. A nil Scope
// includes all archives.
type Scope func(archive int64) bool

// List yields the items directly below a prefix, which is empty or ends in a slash, from the first path that
// is not less than from. between yields locations as Book.Between does. List skips over the contents of
// folders, so its cost depends only on what it yields. A path with empty elements ("a//b", "/x") is in folders
// that may have empty names; the Path that List yields leads to them.
//
// List holds nothing open while it yields, so listings may be nested as deep as folders are.
func List(ctx context.Context, between func(ctx context.Context, from, before string, in Scope) iter.Seq2[Location, error], prefix, from string, in Scope) iter.Seq2[Listed, error] {
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

// ErrDeleted is fs.ErrNotExist for a path that was deleted from the catalogue.
var ErrDeleted = fmt.Errorf("%w", fs.ErrNotExist)

// Deleted is Absent for a path that was deleted.
func Deleted(path string) error {
	return &fs.PathError{Op: "catalogue", Path: path, Err: ErrDeleted}
}
