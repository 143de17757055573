package fleet

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/app/catalog/book"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storekit"
)

// A BehindError reports that a catalogue does not know what was deleted: it is an old copy, or another copy
// of it is in use.
type BehindError struct {
	Marker       string // its address
	Known, Found int64  // the newest commit of this catalogue, and that of the marker
}

func (e *BehindError) Error() string {
	return fmt.Sprintf("%s: something was deleted after commit %d of another copy of the catalogue, which this one, at commit %d, does not have: use the newest copy", format.Escape(e.Marker), e.Found, e.Known)
}

// An UnmarkedError reports that the markers are gone which would stop an old copy of a catalogue.
type UnmarkedError struct{ Place string }

func (e *UnmarkedError) Error() string {
	return fmt.Sprintf("%s: originals were retired, but no marker (.holdall-catalogue-…) is left, so this may be an old copy of the catalogue: if you are sure that it is the newest, say so", format.Escape(e.Place))
}

// A side is a place beside originals or archives, where markers are. A marker is a small object whose name has
// a commit of a catalogue. It is written after that commit, and before anything is deleted because of it.
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

// current returns an error if there is a marker of a commit that the catalogue does not have: then it does not
// know all that was deleted. marked says whether there is a marker. One that is left
// on any side suffices.
func (j *job) current(ctx context.Context, b *book.Book) (marked bool, err error) {
	return j.markers(ctx, b, func(int, book.Marker) bool { return false })
}

// markers is current, and then removes the markers that are of no use any more, by the number of their side.
func (j *job) markers(ctx context.Context, b *book.Book, useless func(side int, m book.Marker) bool) (marked bool, err error) {
	s, err := b.State(ctx)
	if err != nil {
		return false, err
	}
	known, old := map[book.Marker]bool{}, []func(){}
	for i, side := range j.sides() {
		for info, err := range storekit.List(ctx, side.st, side.begin+book.MarkersOf(s.Catalog)) {
			if errors.Is(err, errors.ErrUnsupported) || errors.Is(err, fs.ErrNotExist) {
				break // nothing can be deleted there, or nothing is left
			}
			if err != nil {
				return false, err
			}
			m, ok := book.ParseMarker(info.Name)
			if !ok {
				continue
			}
			if marked = true; !known[m] {
				// Other processes may have gone on. They commit before they write.
				if known[m], err = b.Knows(ctx, m); err != nil {
					return false, err
				}
			}
			if !known[m] {
				return false, &BehindError{storekit.AddressOf(side.st, info.Name), b.Marker().Commit, m.Commit}
			}
			if useless(i, m) {
				old = append(old, func() { _ = storekit.Remove(ctx, side.st, info.Name) }) // it does no harm
			}
		}
	}
	for _, remove := range old {
		remove()
	}
	return marked, nil
}

// raise writes markers of the newest commit to all sides from a number on. What that commit has decided to delete
// there may then be deleted. The markers that they replace are removed. Those on other sides stay: plans with
// other archives may have no other side in common.
func (j *job) raise(ctx context.Context, b *book.Book, from int) error {
	m, sides := b.Marker(), j.sides()[from:]
	for _, s := range sides {
		if _, err := s.mark(ctx, m); err != nil {
			return err
		}
	}
	_, err := j.markers(ctx, b, func(side int, is book.Marker) bool { return side >= from && is.Commit < m.Commit })
	if _, behind := errors.AsType[*BehindError](err); behind { // the other copy may go on
		for _, s := range sides {
			_ = storekit.Remove(ctx, s.st, s.begin+m.String())
		}
	}
	return err
}

func (s side) mark(ctx context.Context, m book.Marker) (store.Info, error) {
	return storekit.Write(ctx, s.st, s.begin+m.String(), func(w store.Writer) error {
		_, err := fmt.Fprintln(w, "Keep this. It stops an old copy of a catalogue of holdall from deleting files that it takes for gone.")
		return err
	})
}

// otherVersion is one that no marker has.
const otherVersion = `"00000000000000000000000000000000"`

// many reports whether a service deletes many objects by one request, and compares the version of each. It tries that
// with two more markers, so that there is always one: the first has another version, and must stay.
func (s side) many(ctx context.Context, b *book.Book) (heeds bool, err error) {
	remove, m := s.st.Can().RemoveMany, b.Marker()
	if remove == nil {
		return false, nil
	}
	infos := make([]store.Info, 2)
	for i := range infos {
		s.begin += book.MarkersOf(m.Catalog)
		if infos[i], err = s.mark(ctx, m); err != nil {
			return false, err
		}
	}
	infos[0].Version = otherVersion
	if errs, err := remove(ctx, infos); err == nil && errors.Is(errs[0], store.ErrChanged) && errs[1] == nil {
		_, err = storekit.Briefly(s.st, infos[0].Name).Info(ctx)
		heeds = err == nil
	}
	for _, info := range infos {
		_ = storekit.Remove(ctx, s.st, info.Name) // it may be gone; left, it is a marker like any other
	}
	return heeds, ctx.Err()
}

// careless reports whether a service ignores the condition of a request that deletes. It tries to delete the
// marker of the newest commit in another version.
func (s side) careless(ctx context.Context, b *book.Book) (bool, error) {
	if s.st.Can().Near {
		return false, nil
	}
	m := b.Marker()
	info, err := s.mark(ctx, m)
	if err != nil {
		return false, err
	}
	name := info.Name
	info.Version = otherVersion
	if err = storekit.RemoveIf(ctx, s.st, info); errors.Is(err, store.ErrChanged) {
		return false, nil
	}
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		info, err = s.mark(ctx, m)
		return true, err
	}
	return false, fmt.Errorf("%s: %w", format.Escape(storekit.AddressOf(s.st, name)), err)
}
