package audit

import (
	"context"
	"errors"
	"slices"

	"github.com/holdall/holdall/internal/oak/internal/repo"
	"github.com/holdall/holdall/internal/oak/internal/tarfile"
	"github.com/holdall/holdall/store"
)

type Source struct {
	Listing repo.Listing

	// Tar opens a tar, which stays the caller's and open until the audit is over. A
	// [*tarfile.NoIndex] comes with the object.
	Tar func(context.Context, repo.Tar) (store.Object, *tarfile.Tar, error)

	// File opens another file of the directory, by its name there. It is closed here.
	File func(ctx context.Context, name string) (store.Object, error)
}

// An Audit looks at a repository. Its units may run in parallel, except Across, which
// comes after all others.
type Audit struct {
	src     Source
	tars    []*unit   // that count, newest first
	numbers [][]*unit // and those of which only Directory tells
	known   table     // segments by the indexes; for Across with those that were found
}

type unit struct {
	repo.Tar
	*tarfile.Index // or what Segments found in a tar without one
	obj            store.Object
	t              *tarfile.Tar               // nil is none
	none           *tarfile.NoIndex           // why
	damage         error                      // why nothing is known of the tar
	refs           map[tarfile.ID]tarfile.IDs // of what Segments found; nil is that it has not looked

	// What the references are asked of is the segments, if either is set.
	noGraph    bool // by Tail
	wrongGraph bool // by Segments
}

// Open opens all tars and gathers what their indexes say. An error is one of the
// source.
func Open(ctx context.Context, src Source) (*Audit, error) {
	a := &Audit{src: src}
	for _, letters := range src.Listing.Numbers() {
		var tars []*unit
		for _, l := range letters {
			t := &unit{Tar: l, Index: &tarfile.Index{}}
			var err error
			if t.obj, t.t, err = src.Tar(ctx, l); err == nil {
				t.Index = t.t.Index()
			} else if e, ok := errors.AsType[*tarfile.NoIndex](err); ok {
				t.none = e
			} else if e, ok := errors.AsType[*tarfile.Error](err); ok {
				t.damage = e
			} else {
				return nil, err
			}
			tars = append(tars, t)
		}
		a.numbers = append(a.numbers, tars)
		a.tars = append(a.tars, counting(tars)...)
	}
	a.known = newTable(a.tars)
	return a, nil
}

// counting returns those letters of a number that an open that may write goes by: the
// last with an index, or all, which are recovered together.
func counting(letters []*unit) []*unit {
	for i, t := range letters {
		if t.t != nil {
			return letters[i : i+1]
		}
	}
	return letters
}

// Len is how many tars have units of their own.
func (a *Audit) Len() int { return len(a.tars) }

// unread reports whether there are tars of which no segments are known.
func (a *Audit) unread() bool {
	return slices.ContainsFunc(a.tars, func(t *unit) bool { return t.t == nil && t.refs == nil })
}
