package audit

import (
	"context"
	"errors"

	"github.com/holdall/holdall/internal/oak/internal/repo"
	"github.com/holdall/holdall/internal/oak/internal/tarfile"
	"github.com/holdall/holdall/store"
)

// A Source is a repository to look at.
type Source struct {
	Listing repo.Listing

	// Tar opens a tar, which stays the caller's and open until the audit is over. A
	// [*tarfile.NoIndex] comes with the object.
	Tar func(context.Context, repo.Tar) (store.Object, *tarfile.Tar, error)

	// File opens another file of the directory, by its name there. It is closed here.
	File func(ctx context.Context, name string) (store.Object, error)
}

// Options of [Open]. The zero value is for use.
type Options struct {
	// SkipRecords leaves out what is within segments whose checksums are right, which
	// only a fault of who wrote them can damage, and which is half of the work.
	SkipRecords bool
}

// An Audit looks at a repository. Its units may run in parallel, except Across, which
// comes after all others.
type Audit struct {
	src   Source
	o     Options
	tars  []*unit // that count, newest first
	all   []*unit // and those of which only Directory tells
	known table   // segments by the indexes; for Across with those that were found
}

// A unit is one tar of the repository.
type unit struct {
	repo.Tar
	obj    store.Object
	t      *tarfile.Tar     // nil is none
	none   *tarfile.NoIndex // why
	damage error            // why nothing is known of the tar
	found  *found           // of a tar without an index, by Segments

	// What the references are asked of is the segments, if either is set.
	noGraph    bool // by Tail
	wrongGraph bool // by Segments
}

// Open opens all tars and gathers what their indexes say. An error is one of the
// source.
func Open(ctx context.Context, src Source, o Options) (*Audit, error) {
	a := &Audit{src: src, o: o}
	for _, letters := range src.Listing.Numbers() {
		var tars []*unit
		for _, l := range letters {
			t := &unit{Tar: l}
			var err error
			if t.obj, t.t, err = src.Tar(ctx, l); err != nil {
				if e, ok := errors.AsType[*tarfile.NoIndex](err); ok {
					t.none = e
				} else if e, ok := errors.AsType[*tarfile.Error](err); ok {
					t.damage = e
				} else {
					return nil, err
				}
			}
			tars = append(tars, t)
		}
		a.all = append(a.all, tars...)
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

// Tar is the i-th of them, the newest first.
func (a *Audit) Tar(i int) repo.Tar { return a.tars[i].Tar }

// Quick runs all units that read no segments.
func (a *Audit) Quick(ctx context.Context, report func(Problem)) error {
	return a.run(ctx, report, a.Tail)
}

// Full runs all units.
func (a *Audit) Full(ctx context.Context, report func(Problem)) error {
	return a.run(ctx, report, a.Tail, a.Segments)
}

func (a *Audit) run(ctx context.Context, report func(Problem), units ...func(context.Context, int, func(Problem)) error) error {
	if err := a.Directory(ctx, report); err != nil {
		return err
	}
	for i := range a.tars {
		for _, unit := range units {
			if err := unit(ctx, i, report); err != nil {
				return err
			}
		}
	}
	return a.Across(ctx, report)
}

// unread reports whether there are tars of which no segments are known.
func (a *Audit) unread() bool {
	for _, t := range a.tars {
		if t.t == nil && t.found == nil {
			return true
		}
	}
	return false
}
