package fleet

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/app/catalog"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storekit"
)

// A BehindError reports that a catalogue does not know its last deletion: it was
// restored from a backup, or another copy of it is in use.
type BehindError struct {
	Marker       string // its address
	Known, Found int64
}

func (e *BehindError) Error() string {
	return fmt.Sprintf("%s: the catalogue is an old copy, which does not know its last deletion: expected at most number %d of its own, found %d", format.Escape(e.Marker), e.Known, e.Found)
}

// A side is a place beside originals or archives, where markers are. A marker is
// a small object whose name has a deletion of a catalogue. It is written after
// the catalogue has counted the deletion, and before anything is deleted.
type side struct {
	st    store.Store
	begin string // of names
}

// sides returns the sides of the originals, and then that of the archives.
func (j *job) sides() (all []side) {
	for _, o := range j.origins {
		all = append(all, side{o.st, o.begin})
	}
	dir, _ := path.Split(j.name)
	return append(all, side{j.target, dir})
}

// openToDelete opens a plan for what deletes originals or archives: the catalogue
// must know all that was deleted before.
func openToDelete(ctx context.Context, c *catalog.Catalog, p catalog.Plan) (*job, error) {
	j, err := open(ctx, p)
	if err == nil {
		err = j.current(ctx, c, 0)
	}
	return j, err
}

// current returns an error if there is a marker of a deletion that the catalogue
// does not know. It removes markers of deletions before a given one, which are of
// no use any more.
func (j *job) current(ctx context.Context, c *catalog.Catalog, before int64) error {
	is, err := c.Identity(ctx)
	if err != nil {
		return err
	}
	var found []catalog.Identity
	var at []string // their addresses
	for _, s := range j.sides() {
		for info, err := range storekit.List(ctx, s.st, s.begin+catalog.Markers+is.ID+"/") {
			if errors.Is(err, errors.ErrUnsupported) || errors.Is(err, fs.ErrNotExist) {
				break // nothing can be deleted there, or nothing is left
			}
			if err != nil {
				return err
			}
			if m, ok := catalog.ParseMarker(info.Name); !ok {
				continue
			} else if m.Deletions < before {
				_ = storekit.Remove(ctx, s.st, info.Name) // it does no harm
			} else {
				found, at = append(found, m), append(at, storekit.AddressOf(s.st, info.Name))
			}
		}
	}
	// Other processes may have gone on. The catalogue counts before they write.
	is, err = c.Identity(ctx)
	for i, m := range found {
		if err == nil && (m.Deletions > is.Deletions || m.Deletions == is.Deletions && m.Token != is.Token) {
			err = &BehindError{at[i], is.Deletions, m.Deletions}
		}
	}
	return err
}

// raise writes markers of the catalogue's last deletion, which may then begin.
func (j *job) raise(ctx context.Context, c *catalog.Catalog, sides []side) error {
	is, err := c.Identity(ctx)
	for _, s := range sides {
		if err == nil {
			_, err = storekit.Write(ctx, s.st, s.begin+is.Marker(), func(w store.Writer) error {
				_, err := fmt.Fprintln(w, "Keep this. It stops an old copy of a catalogue of holdall from deleting files that it takes for gone.")
				return err
			})
		}
	}
	if err == nil {
		err = j.current(ctx, c, is.Deletions)
	}
	if _, behind := errors.AsType[*BehindError](err); behind { // the other copy may go on
		for _, s := range sides {
			_ = storekit.Remove(ctx, s.st, s.begin+is.Marker())
		}
	}
	return err
}
