package audit

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"io/fs"
	"slices"

	"github.com/holdall/holdall/internal/oak/internal/repo"
	"github.com/holdall/holdall/internal/oak/internal/tarfile"
	"github.com/holdall/holdall/store"
)

type Source struct {
	Listing repo.Listing

	// Written reports whether another program is writing to the store. What that program has not
	// finished is not a fault.
	Written bool

	// Roots are segments besides the newest revision's that a cleanup may begin with: it treats
	// compacted segments after them as leftovers.
	Roots []tarfile.ID

	// Newer returns a revision that was written after the head, or nil. If it is nil, none is looked for.
	Newer func(ctx context.Context, head repo.Head) (*repo.Revision, error)

	// Tar opens a tar. The caller owns it, and must keep it open until the audit is over. With a
	// [*tarfile.NoIndex], the object is returned too.
	Tar func(context.Context, repo.Tar) (store.Object, *tarfile.Tar, error)

	// File opens another file of the directory, by its name there. Audit closes it.
	File func(ctx context.Context, name string) (store.Object, error)
}

// An Audit checks a repository. Its units may run in parallel, except that Across must be last.
type Audit struct {
	src     Source
	tars    []*unit      // those in use, newest first
	numbers [][]*unit    // also those that only Directory checks
	known   segmentTable // segments by the indexes; for Across with those that were found

	// Head is where reading begins, if there is such a revision. Start and Across set it.
	Head *repo.Head
	// Late are the bulk segments in use that come after all segments that refer to them. Across sets
	// it.
	Late []tarfile.ID
}

// A Held tar is one whose segments the caller has.
type Held struct {
	repo.Tar
	*tarfile.Index
	Read func(context.Context, tarfile.Entry) ([]byte, error) // it need not compare checksums
	File *tarfile.Tar                                         // nil if there is none
}

// Of makes an audit of tars that are open, or will be written, the newest first. It has Start and
// Across and Needed, for which the source needs no Tar.
func Of(src Source, tars []Held) *Audit {
	a := &Audit{src: src}
	for _, h := range tars {
		a.tars = append(a.tars, &unit{Tar: h.Tar, Index: h.Index, t: h.File, read: h.Read})
	}
	a.known = newTable(a.tars)
	return a
}

type unit struct {
	repo.Tar
	*tarfile.Index // or, without one, the segments found by Segments
	obj            store.Object
	t              *tarfile.Tar               // nil if it has no index
	none           *tarfile.NoIndex           // why
	damage         error                      // why nothing is known about the tar
	refs           map[tarfile.ID]tarfile.IDs // found by Segments; nil before that

	read func(context.Context, tarfile.Entry) ([]byte, error) // of a Held

	// If either is set, references are read from the segments.
	noGraph    bool // by Tail
	wrongGraph bool // by Segments
}

// Open opens all tars and collects their indexes. It returns an error only if the source fails.
func Open(ctx context.Context, src Source) (*Audit, error) {
	a := &Audit{src: src}
	for _, letters := range src.Listing.Numbers() {
		var tars []*unit
		for _, l := range letters {
			t := &unit{Tar: l, Index: &tarfile.Index{}}
			var err error
			if t.obj, t.t, err = src.Tar(ctx, l); err == nil {
				t.Index = t.t.Index()
			} else if src.Written && len(letters) > 1 && errors.Is(err, fs.ErrNotExist) {
				continue // a cleanup has removed it since
			} else if e, ok := errors.AsType[*tarfile.NoIndex](err); ok {
				t.none = e
			} else if e, ok := errors.AsType[*tarfile.Error](err); ok {
				t.damage = e
			} else {
				return nil, err
			}
			tars = append(tars, t)
		}
		if len(tars) == 0 {
			continue
		}
		a.numbers = append(a.numbers, tars)
		a.tars = append(a.tars, counting(tars)...)
	}
	a.known = newTable(a.tars)
	return a, nil
}

// counting returns the letters of a number that are used when the store is opened for writing:
// the last one with an index or, if none has one, all, which are recovered together.
func counting(letters []*unit) []*unit {
	for i, t := range letters {
		if t.t != nil {
			return letters[i : i+1]
		}
	}
	return letters
}

// isWritten reports whether a tar is the one that another program is adding to.
func (a *Audit) isWritten(x *unit) bool {
	return a.src.Written && x.t == nil && x.damage == nil && x.Number == a.tars[0].Number
}

// Unfinished does what Segments does for the tars that are being written. Without their segments
// nothing could be determined about the newest revision.
func (a *Audit) Unfinished(ctx context.Context, report func(Problem)) error {
	for i, x := range a.tars {
		if a.isWritten(x) {
			if err := a.Segments(ctx, i, report); err != nil {
				return err
			}
		}
	}
	return nil
}

// Len returns the number of tars with units of their own.
func (a *Audit) Len() int { return len(a.tars) }

// unread reports whether there are tars whose segments are not known.
func (a *Audit) unread() bool {
	return slices.ContainsFunc(a.tars, func(t *unit) bool { return t.t == nil && t.refs == nil && t.read == nil })
}

type segmentTable struct {
	rows  []row    // by id; of two with one id the newest first
	first []uint32 // of the rows whose id begins with these bits, or more
	shift uint
}

type row struct {
	hi, lo uint64 // the id
	tarEntry
}

// tarEntry is where a segment is: an entry of a tar's index, or of what was found in the tar.
type tarEntry struct{ tar, entry uint32 }

func (r row) compare(o row) int { return cmp.Or(cmp.Compare(r.hi, o.hi), cmp.Compare(r.lo, o.lo)) }

func newTable(tars []*unit) segmentTable {
	n := 0
	for _, t := range tars {
		n += t.Len()
	}
	b := segmentTable{rows: make([]row, 0, n)}
	for i, t := range tars {
		for k, e := range t.All() {
			b.rows = append(b.rows, row{binary.BigEndian.Uint64(e.ID[:]), binary.BigEndian.Uint64(e.ID[8:]), tarEntry{uint32(i), uint32(k)}})
		}
	}
	slices.SortFunc(b.rows, func(x, y row) int {
		return cmp.Or(x.compare(y), cmp.Compare(x.tar, y.tar), cmp.Compare(y.entry, x.entry))
	})
	// IDs are random, so few buckets have more than a few rows.
	b.shift = 64
	for n := 4; n < len(b.rows); n *= 2 {
		b.shift--
	}
	b.first = make([]uint32, 1<<(64-b.shift)+1)
	at := 0
	for i := range b.first {
		for at < len(b.rows) && b.rows[at].hi>>b.shift < uint64(i) {
			at++
		}
		b.first[i] = uint32(at)
	}
	return b
}

// find returns where the newest of that id is.
func (b *segmentTable) find(id tarfile.ID) (tarEntry, bool) {
	want := row{hi: binary.BigEndian.Uint64(id[:]), lo: binary.BigEndian.Uint64(id[8:])}
	bucket := want.hi >> b.shift
	rows := b.rows[b.first[bucket]:b.first[bucket+1]]
	i, ok := slices.BinarySearchFunc(rows, want, row.compare)
	if !ok {
		return tarEntry{}, false
	}
	return rows[i].tarEntry, true
}
