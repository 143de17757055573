package fleet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"time"

	"github.com/holdall/holdall"
	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/app/catalog"
	"github.com/holdall/holdall/internal/app/catalog/book"
	"github.com/holdall/holdall/internal/app/catalog/survey"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storekit"
)

type RepairOptions struct {
	// Archives are the addresses of the archives to check; none means all of the
	// plan.
	Archives []string
	// Contents also reads all contents. Otherwise only lost or replaced archives
	// are found.
	Contents bool
	DryRun   bool
	// Tell, if not nil, is called with each archive that is lost or damaged.
	Tell func(a catalog.Archive, why string)
}

// Repaired is what a repair found, and what remains to be done.
type Repaired struct {
	Archives, Damaged, Chunks int
	Files                     int64 // in the damaged ones
}

// Repair plans chunks that make a plan's lost and damaged archives again.
// Their content comes from the originals, if these still exist in the packed
// version, and otherwise from whatever can be read of the archives, also by
// their parity. Workers on the plan pack the chunks; Tidy then removes the old
// archives.
func Repair(ctx context.Context, f Fleet, p Plan, o RepairOptions) (done Repaired, err error) {
	j, err := f.openToRewrite(ctx, p, "rebuilt")
	if err != nil {
		return done, err
	}
	for _, address := range o.Archives { // otherwise a mistyped address would count as sound
		if _, err := f.Book.Archive(ctx, address); err != nil {
			return done, err
		}
	}
	scope, err := j.scope(ctx, f.Book)
	if err != nil {
		return done, err
	}
	used, err := f.Book.Usage(ctx, scope.has)
	if err != nil {
		return done, err
	}
	var damaged []*old
	for _, a := range slices.SortedFunc(maps.Values(scope), func(a, b catalog.Archive) int { return cmp.Compare(a.ID, b.ID) }) {
		u := used[a.ID]
		if u == nil || u.Files == 0 || len(o.Archives) > 0 && !slices.Contains(o.Archives, a.Address) {
			continue
		}
		done.Archives++
		why, err := unsound(ctx, f.Book, a, o)
		if err != nil {
			return done, err
		}
		if why == "" {
			continue
		}
		if o.Tell != nil {
			o.Tell(a, why)
		}
		damaged = append(damaged, &old{a, *u})
		done.Damaged++
		done.Files += u.Files
	}
	if len(damaged) == 0 || o.DryRun {
		return done, nil
	}
	done.Chunks, err = f.rewrite(ctx, j, damaged, true)
	return done, err
}

// unsound returns a description of an archive's fault, or "" if there is none.
func unsound(ctx context.Context, b *book.Book, a catalog.Archive, o RepairOptions) (string, error) {
	st, name, err := store.OpenAddress(ctx, a.Address)
	if err != nil {
		return "", err
	}
	info, err := storekit.Briefly(st, name).Info(ctx)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "the archive is lost", nil
	case err != nil:
		return "", err
	case !survey.Is(info, st.Can().Near, a):
		return "the archive has changed since it was packed", nil
	case !o.Contents:
		return "", nil
	}
	first, n := "", 0
	_, err = holdall.Verify(ctx, name, holdall.VerifyOptions{OpenOptions: holdall.OpenOptions{Store: st, Format: a.Format}}, func(p holdall.Problem) {
		if p.Severity < format.Warning {
			return
		}
		if n++; n == 1 {
			first = p.Message
			if p.HasEntry {
				first = format.Escape(p.Entry) + ": " + first
			}
		}
	})
	switch {
	case err != nil:
		return "", err
	case n > 1:
		return fmt.Sprintf("%s, and %d more", first, n-1), nil
	case n == 1:
		return first, nil
	case o.DryRun:
		return "", nil
	}
	return "", b.Verified(ctx, a.ID, time.Now())
}
