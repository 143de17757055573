package fleet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"time"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/app/catalog"
	"github.com/holdall/holdall/internal/app/catalog/book"
	"github.com/holdall/holdall/internal/app/catalog/rows"
	"github.com/holdall/holdall/internal/app/catalog/survey"
	"github.com/holdall/holdall/internal/read/kept"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storekit"
)

type CompactOptions struct {
	// Dead is the share of an archive's content that must be invisible before the archive is rewritten; 0
	// means a fifth.
	Dead float64
	// Expire, if not 0, deletes files that were written longer ago than that.
	Expire time.Duration
	// GoneAfter is how long an original must have been missing at the sources before its file is deleted; 0
	// means 7 days.
	GoneAfter time.Duration
	// Yes also deletes more than a fifth of a plan's files, and files that are less than an hour old.
	Yes bool
	// DryRun makes no changes.
	DryRun bool
}

// Compacted is what a compaction found, and what it hands out.
type Compacted struct {
	Gone      int64 `json:"gone"`    // files that were deleted at the sources
	Missing   int64 `json:"missing"` // further files whose originals were not found there
	Expired   int64 `json:"expired"`
	Archives  int64 `json:"archives"` // of the plan
	Live      int64 `json:"files"`    // that are visible
	LiveBytes int64 `json:"bytes"`    // of these
	Bytes     int64 `json:"stored_bytes"`
	Old       int   `json:"rewrite"` // archives to be rewritten
	Rewritten int64 `json:"rewrite_bytes"`
	Chunks    int   `json:"chunks"` // that rewrite them
}

// goneAfter is the usual CompactOptions.GoneAfter.
const goneAfter = 7 * 24 * time.Hour

// A GoneError reports that so much is gone at a plan's sources that it may be a mistake.
type GoneError struct {
	Plan     string
	Gone, Of int64
}

func (e *GoneError) Error() string {
	return fmt.Sprintf("plan %s: %d of %d originals are missing at the sources, which may be a mistake", format.Escape(e.Plan), e.Gone, e.Of)
}

// A ShareError reports that so many of a plan's files would be deleted at once that it may be a mistake.
type ShareError struct {
	Plan              string
	Gone, Expired, Of int64
}

func (e *ShareError) Error() string {
	return fmt.Sprintf("plan %s: %d gone and %d expired of %d files: more than a fifth would be deleted", format.Escape(e.Plan), e.Gone, e.Expired, e.Of)
}

// A RecentError reports that files would expire within an hour.
type RecentError struct{ Expire time.Duration }

func (e *RecentError) Error() string {
	return fmt.Sprintf("expire %s: files would be deleted less than an hour after they were written", e.Expire)
}

// Compact deletes files whose originals are gone, as far as plans have listed the sources, and hands out
// chunks that rewrite archives with many invisible files and merge small archives. Tidy later removes the old
// archives.
func Compact(ctx context.Context, f Fleet, p Plan, o CompactOptions) (done Compacted, err error) {
	if o.Expire > 0 && o.Expire < time.Hour && !o.Yes {
		return done, &RecentError{o.Expire}
	}
	j, err := f.openToRewrite(ctx, p, "compacted")
	if err != nil {
		return done, err
	}
	scope, err := j.scope(ctx, f.Book)
	if err != nil {
		return done, err
	}
	if err := f.bury(ctx, j, scope, o, &done); err != nil {
		return done, err
	}
	used, err := f.Book.Usage(ctx, scope.has)
	if err != nil {
		return done, err
	}
	for id, a := range scope {
		done.Archives++
		done.Bytes += a.Size
		if u := used[id]; u != nil {
			done.Live += u.Files
			done.LiveBytes += u.Bytes
		}
	}
	old := j.choose(scope, used, cmp.Or(o.Dead, 0.2))
	for _, a := range old {
		done.Old++
		done.Rewritten += a.Bytes
	}
	if len(old) == 0 || o.DryRun {
		return done, nil
	}
	done.Chunks, err = f.rewrite(ctx, j, old, false)
	return done, err
}

// openToRewrite opens a plan whose archives are to be rewritten.
func (f Fleet) openToRewrite(ctx context.Context, p Plan, what string) (*job, error) {
	j, err := open(ctx, p)
	if err == nil && !j.format.Chunked {
		err = fmt.Errorf("%s archives cannot be %s: %w", j.format.Name, what, errors.ErrUnsupported)
	}
	if err == nil {
		_, err = j.current(ctx, f.Book)
	}
	return j, err
}

// An old is an archive that may be rewritten.
type old struct {
	catalog.Archive
	book.Usage
}

// dead returns the invisible share of an archive: of its contents, and of its index by the number of files.
// So an archive of a few large files is not copied because many small ones are gone.
func (a *old) dead() float64 {
	size := max(a.Size, a.All) // files may share bytes
	index := float64(size-a.All) * float64(a.Entries-a.Files) / float64(max(a.Entries, 1))
	return (float64(a.All-a.Bytes) + index) / float64(max(size, 1))
}

// choose returns the archives that are worth rewriting: those with a large invisible part, and small ones, if
// several of them together are twice as large as the largest.
func (j *job) choose(of scope, used map[int64]*book.Usage, dead float64) (chosen []*old) {
	var small []*old
	for id, x := range of {
		a := &old{Archive: x}
		if u := used[id]; u != nil {
			a.Usage = *u
		}
		switch {
		case a.Spread || !j.mine(x):
		case a.dead() > dead || a.Files == 0:
			chosen = append(chosen, a)
		case a.Bytes < j.set.ChunkSize/4 && a.Files < j.set.ChunkObjects/4 && a.Size-a.All < maxIndex/4: // otherwise its chunk is full, of bytes, of objects or of index
			small = append(small, a)
		}
	}
	slices.SortFunc(small, func(a, b *old) int { return cmp.Or(cmp.Compare(a.Bytes, b.Bytes), cmp.Compare(a.ID, b.ID)) })
	sum, most := int64(0), 0
	for i, a := range small {
		if i > 0 && a.Bytes <= sum {
			most = i + 1
		}
		sum += a.Bytes
	}
	// A rewrite that is needed anyway has room for one more.
	if len(chosen) > 0 && most == 0 && len(small) > 0 && small[0].Bytes <= j.set.ChunkSize/16 {
		most = 1
	}
	return append(chosen, small[:most]...)
}

// mine reports whether an archive has a name of the plan's form. Others are never rewritten.
func (j *job) mine(a catalog.Archive) bool { return j.own(a.Address) }

// bury deletes files that are gone at the sources, and files that have expired. That an original is missing
// does not prove that its owner deleted it. So a file is gone only if a complete listing found its original
// after it was packed, and two complete listings some time apart did not, and this catalogue was never about
// to remove it.
func (f Fleet) bury(ctx context.Context, j *job, of scope, o CompactOptions, done *Compacted) error {
	s, err := f.Book.State(ctx)
	if err != nil {
		return err
	}
	listed := j.listingsOf(s, []span{{}})
	lapse := lapses{book: f.Book}
	gone := map[int64][]string{} // by the last listing
	var expired []string
	files := int64(0)
	for l, err := range f.Book.Between(ctx, "", "", of.has) {
		if err != nil {
			return err
		}
		files++
		is := false
		if l.Missing && !l.Unseen && l.Original == catalog.OriginalStays {
			passed, err := lapse.between(ctx, l.Since, listed.of(l.Path))
			if err != nil {
				return err
			}
			is = passed >= cmp.Or(o.GoneAfter, goneAfter)
		}
		switch {
		case is:
			done.Gone++
			last := listed.of(l.Path)
			gone[last] = append(gone[last], l.Path)
		case o.Expire > 0 && !l.Modified.IsZero() && time.Since(l.Modified) > o.Expire:
			done.Expired++
			expired = append(expired, l.Path)
		case l.Missing:
			done.Missing++
		}
	}
	if 5*(done.Gone+done.Expired) > files && !o.Yes {
		return &ShareError{j.plan.Name, done.Gone, done.Expired, files}
	}
	if o.DryRun {
		return nil
	}
	for last, paths := range gone { // what a later listing has packed again is not gone
		if err := f.delete(ctx, paths, last); err != nil {
			return err
		}
	}
	return f.delete(ctx, expired, 0)
}

// delete deletes files up to a version, or all.
func (f Fleet) delete(ctx context.Context, paths []string, seq int64) error {
	for len(paths) > 0 {
		n, size := 0, 0
		for ; n < len(paths) && (n == 0 || size+len(paths[n]) <= mostBuried); n++ {
			size += len(paths[n])
		}
		some := paths[:n]
		_, err := f.Book.Do(ctx, book.Step{Rows: func(yield func(*rows.Row, error) bool) {
			for _, path := range some {
				if !yield(&rows.Row{Name: path, What: rows.Delete, Seq: seq}, nil) {
					return
				}
			}
		}})
		if err != nil {
			return err
		}
		paths = paths[n:]
	}
	return nil
}

// mostBuried is how many bytes of names a commit deletes.
const mostBuried = 4 << 20

// lapses tells how much time passed between listings, by the clock of the catalogue's store.
type lapses struct {
	book *book.Book
	of   map[int64]time.Time
}

func (l *lapses) between(ctx context.Context, first, last int64) (time.Duration, error) {
	if last <= first {
		return 0, nil
	}
	if l.of == nil {
		l.of = map[int64]time.Time{}
	}
	for _, n := range []int64{first, last} {
		if _, ok := l.of[n]; !ok {
			at, err := l.book.TimeOf(ctx, n)
			if err != nil {
				return 0, err
			}
			l.of[n] = at
		}
	}
	return l.of[last].Sub(l.of[first]), nil
}

// Tidy removes archives that a commit has replaced some time ago, and the objects beside them. It returns how
// many are still waiting, and how many were removed. The wait gives readers time to notice that the files are
// elsewhere.
func Tidy(ctx context.Context, f Fleet, p Plan, grace time.Duration) (waiting, removed int, err error) {
	j, err := open(ctx, p)
	if err == nil {
		_, err = j.current(ctx, f.Book)
	}
	if err != nil {
		return 0, 0, err
	}
	s, err := f.Book.Full(ctx)
	if err != nil {
		return 0, 0, err
	}
	now, err := f.Book.TimeOf(ctx, s.Number)
	if err != nil {
		return 0, 0, err
	}
	used := map[string]bool{}
	all, err := f.Book.Archives(ctx)
	if err != nil {
		return 0, 0, err
	}
	for _, a := range all {
		used[a.Address] = true
	}
	raised := false
	for _, r := range s.Removals {
		address := f.Book.AddressOf(r)
		if !j.own(address) {
			continue
		}
		at, err := f.Book.TimeOf(ctx, r.Commit)
		if err != nil {
			return waiting, removed, err
		}
		if now.Sub(at) < grace {
			waiting++
			continue
		}
		if !used[address] { // otherwise it was added again
			if !raised {
				if err := j.raise(ctx, f.Book, len(j.origins)); err != nil {
					return waiting, removed, err
				}
				raised = true
			}
			is, err := f.remove(ctx, r)
			if err != nil {
				return waiting, removed, err
			}
			if is {
				removed++
			}
		}
		if _, err := f.Book.Do(ctx, book.Step{Removed: []book.ID{r.ID}}); err != nil {
			return waiting, removed, err
		}
	}
	return waiting, removed, nil
}

// remove removes an archive and the objects beside it, and reports whether it existed. If the name now belongs
// to a different object, all of them stay, and so does what another catalogue has written beside it.
func (f Fleet) remove(ctx context.Context, r book.Removal) (bool, error) {
	st, info, there, err := f.replaced(ctx, r)
	if there { // otherwise an earlier try removed it, but perhaps not the objects beside it
		if err = storekit.RemoveAs(ctx, st, info); errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
	}
	if err != nil {
		if errors.Is(err, store.ErrChanged) {
			err = nil
		}
		return false, err
	}
	_, added := f.Book.Beside()
	for _, beside := range append([]string{added}, kept.Beside...) {
		if err := storekit.Remove(ctx, st, info.Name+beside); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return false, err
		}
	}
	return there, nil
}

// replaced finds an archive that is to be removed. If its name belongs to a different object, the error is
// [store.ErrChanged].
func (f Fleet) replaced(ctx context.Context, r book.Removal) (st store.Store, info store.Info, there bool, err error) {
	st, name, err := store.OpenAddress(ctx, f.Book.AddressOf(r))
	if err != nil {
		return st, info, false, err
	}
	info, err = storekit.Briefly(st, name).Info(ctx)
	info.Name = name
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return st, info, false, nil
	case err == nil && !survey.Is(info, st.Can().Near, catalog.Archive{Size: r.Size, Version: string(r.Version)}):
		err = store.ErrChanged
	}
	return st, info, err == nil, err
}
