package fleet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/kit/sorter"
	"github.com/holdall/holdall/internal/app/catalog"
	"github.com/holdall/holdall/internal/app/catalog/survey"
	"github.com/holdall/holdall/internal/base/glob"
	"github.com/holdall/holdall/internal/read/kept"
	"github.com/holdall/holdall/internal/read/parity"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storekit"
)

type CompactOptions struct {
	// Dead is the share of an archive's content that must be invisible before the
	// archive is rewritten; 0 means a fifth.
	Dead float64
	// Expire, if not 0, deletes files that were written longer ago than that.
	Expire time.Duration
	// Unlisted skips the listing of the sources, so objects that are gone there
	// are not found.
	Unlisted bool
	// Gone is the largest share of packed files that may be gone at the sources; 0
	// means half. A larger share is treated as a mistake.
	Gone float64
	// GoneAfter is how long an original must have been missing at the sources
	// before its file is deleted; 0 means 7 days.
	GoneAfter time.Duration
	// Yes also deletes more than a fifth of a plan's files.
	Yes bool
	// DryRun makes no changes.
	DryRun bool
}

// Compacted is what a compaction found, and what remains to be done.
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

// A GoneError reports that so much is gone at a plan's sources that it may be
// a mistake.
type GoneError struct {
	Plan     string
	Gone, Of int64
}

func (e *GoneError) Error() string {
	return fmt.Sprintf("plan %s: %d of %d files are gone at the source: more than allowed", format.Escape(e.Plan), e.Gone, e.Of)
}

// A ShareError reports that so many of a plan's files would be deleted at once
// that it may be a mistake.
type ShareError struct {
	Plan              string
	Gone, Expired, Of int64
}

func (e *ShareError) Error() string {
	return fmt.Sprintf("plan %s: %d gone and %d expired of %d files: more than a fifth would be deleted", format.Escape(e.Plan), e.Gone, e.Expired, e.Of)
}

// Compact deletes files that are gone at a plan's sources, and plans chunks
// that rewrite archives with many invisible files and merge small archives.
// Workers on the plan pack these chunks; Tidy then removes the old archives.
func Compact(ctx context.Context, c *catalog.Catalog, p catalog.Plan, o CompactOptions) (done Compacted, err error) {
	j, err := openToRewrite(ctx, c, p, "compacted", o.DryRun)
	if err != nil {
		return done, err
	}
	if err := j.shared(ctx, c); err != nil {
		return done, err
	}
	if err := j.bury(ctx, c, o, &done); err != nil {
		return done, err
	}
	of, err := j.seen(ctx, c)
	if err != nil {
		return done, err
	}
	for _, a := range of {
		done.Archives++
		done.Bytes += a.Size
		done.Live += a.files
		done.LiveBytes += a.bytes
	}
	rewritten := choose(of, cmp.Or(o.Dead, 0.2), j.set)
	for _, a := range rewritten {
		done.Old++
		done.Rewritten += a.bytes
	}
	if len(rewritten) == 0 || o.DryRun {
		return done, nil
	}
	done.Chunks, err = j.rewrite(ctx, c, rewritten, catalog.NewChunk{Rewrites: true})
	return done, err
}

// openToRewrite opens a plan whose archives are to be rewritten.
func openToRewrite(ctx context.Context, c *catalog.Catalog, p catalog.Plan, what string, dryRun bool) (*job, error) {
	j, err := openToDelete(ctx, c, p)
	if err == nil && !j.format.Chunked {
		err = fmt.Errorf("%s archives cannot be %s: %w", j.format.Name, what, errors.ErrUnsupported)
	}
	if err == nil && !dryRun {
		err = c.SetRoots(ctx, p.ID, j.roots())
	}
	return j, err
}

// A SharedError reports that another plan packs the same sources. It is then
// unclear which of their archives are to stay.
type SharedError struct{ Plan, Other string }

func (e *SharedError) Error() string {
	return fmt.Sprintf("plan %s packs the same sources as plan %s, so no archive is removed: forget one of the plans", format.Escape(e.Other), format.Escape(e.Plan))
}

func (j *job) shared(ctx context.Context, c *catalog.Catalog) error {
	plans, err := c.Plans(ctx)
	for _, p := range plans {
		if p.ID == j.plan.ID {
			continue
		}
		if other, err := open(ctx, p); err == nil && other.roots() == j.roots() {
			return &SharedError{j.plan.Name, p.Name}
		}
	}
	return err
}

// owns reports whether an archive has a name of the plan's form. Others are
// never removed.
func (j *job) owns(a catalog.Archive) bool {
	dir, _ := path.Split(j.name)
	name := dir + a.Address[strings.LastIndexAny(a.Address, "/\\")+1:]
	return j.number(name) >= 0 && storekit.AddressOf(j.target, name) == a.Address
}

// seenOf counts the visible part of an archive.
type seenOf struct {
	catalog.Archive
	files, bytes int64
	all          int64 // bytes of all its files
	spread       bool  // some content is not a run of its bytes
	own          bool  // it is one of the plan's
}

// dead returns the invisible share of an archive: of its contents, and of its
// index by the number of files. So an archive of a few large files is not
// copied because many small ones are gone.
func (a *seenOf) dead() float64 {
	size := max(a.Size, a.all) // files may share bytes
	index := float64(size-a.all) * float64(a.Entries-a.files) / float64(max(a.Entries, 1))
	return (float64(a.all-a.bytes) + index) / float64(max(size, 1))
}

// seen counts the visible part of each archive of a plan.
func (j *job) seen(ctx context.Context, c *catalog.Catalog) (map[int64]*seenOf, error) {
	scope, err := j.scope(ctx, c)
	if err != nil {
		return nil, err
	}
	of := map[int64]*seenOf{}
	for id, a := range scope {
		of[id] = &seenOf{Archive: a, own: j.owns(a)}
	}
	last, any := "", false
	for l, err := range c.Every(ctx) {
		if err != nil {
			return nil, err
		}
		a := of[l.Archive]
		if a == nil {
			continue
		}
		a.all += l.Size
		if l.Gone || any && l.Path == last {
			continue
		}
		last, any = l.Path, true
		a.files++
		a.bytes += l.Size
		a.spread = a.spread || !l.Raw && l.Size > 0
	}
	return of, nil
}

// choose returns the archives that are worth rewriting: those with a large
// invisible part, and small ones, if several of them together are twice as
// large as the largest.
func choose(of map[int64]*seenOf, dead float64, set settings) (chosen []*seenOf) {
	var small []*seenOf
	for _, a := range of {
		switch {
		case a.files == 0 || a.spread || !a.own:
		case a.dead() > dead:
			chosen = append(chosen, a)
		case a.bytes < set.ChunkSize/4 && a.files < set.ChunkObjects/4 && a.Size-a.all < maxIndex/4: // otherwise its chunk is full, of bytes, of objects or of index
			small = append(small, a)
		}
	}
	slices.SortFunc(small, func(a, b *seenOf) int { return cmp.Or(cmp.Compare(a.bytes, b.bytes), cmp.Compare(a.ID, b.ID)) })
	sum, most := int64(0), 0
	for i, a := range small {
		if i > 0 && a.bytes <= sum {
			most = i + 1
		}
		sum += a.bytes
	}
	// A rewrite that is needed anyway has room for one more.
	if len(chosen) > 0 && most == 0 && len(small) > 0 && small[0].bytes <= set.ChunkSize/16 {
		most = 1
	}
	return append(chosen, small[:most]...)
}

// live yields the visible files of a plan's archives, with their planned
// members.
func (j *job) live(ctx context.Context, c *catalog.Catalog, in catalog.Scope) iter.Seq2[liveFile, error] {
	return func(yield func(liveFile, error) bool) {
		next, stop := iter.Pull2(c.Planned(ctx, j.plan.ID))
		defer stop()
		m, merr, more := next()
		for l, err := range c.Between(ctx, "", "", in) {
			for err == nil && merr == nil && more && m.Path < l.Path {
				m, merr, more = next()
			}
			f := liveFile{Location: l}
			switch {
			case cmp.Or(err, merr) != nil:
				yield(f, cmp.Or(err, merr))
				return
			case more && m.Path == l.Path && m.Size == l.Size && (l.ETag == "" || m.Version == l.ETag):
				f.m = m
			default: // planned by another plan of the same sources, or no longer recorded
				f.m = catalog.Member{Path: l.Path, Origin: j.originOf(l.Path), Size: l.Size, Version: l.ETag}
			}
			if !yield(f, nil) {
				return
			}
		}
	}
}

// A liveFile is a visible file with its planned member.
type liveFile struct {
	catalog.Location
	m catalog.Member
}

// rewrite plans chunks from the visible files of some archives. If an
// interrupted run left such chunks, rewrite continues with them and plans no
// others.
func (j *job) rewrite(ctx context.Context, c *catalog.Catalog, archives []*seenOf, kind catalog.NewChunk) (int, error) {
	number, left := 0, 0
	for k, err := range c.Chunks(ctx, j.plan.ID) {
		if err != nil {
			return 0, err
		}
		switch {
		case k.Rewrites && (k.State == catalog.ChunkPlanned || k.State == catalog.ChunkLeased):
			left++
		case k.Rewrites && k.State == catalog.ChunkSetAside && (k.Repairs || !kind.Repairs):
			return 0, fmt.Errorf("the rewrite of %s is set aside (%s): 'holdall fleet retry' tries it again", format.Escape(k.Name), k.Problem)
		}
		number = max(number, k.Number+1)
	}
	if left > 0 {
		return left, nil
	}
	if err := j.vacant(ctx, number, seat{}); err != nil {
		return 0, err
	}
	scope, err := j.scope(ctx, c)
	if err != nil {
		return 0, err
	}
	old := map[int64]bool{}
	for _, a := range archives {
		old[a.ID] = true
	}
	members := func(yield func(catalog.Member, error) bool) {
		for f, err := range j.live(ctx, c, scope.has) {
			if err == nil && !old[f.Archive] {
				continue
			}
			if err == nil {
				var headers map[string]string
				headers, err = c.Headers(ctx, f.Headers)
				f.m.Headers = len(catalog.HeaderText(headers))
			}
			f.m.Outcome, f.m.Note, f.m.Proof = catalog.Pending, "", ""
			if !yield(f.m, err) || err != nil {
				return
			}
		}
	}
	var p Planned
	p.Plan = j.plan
	pl := &planner{c: c, j: j, p: &p, number: number, kind: kind, progress: func(Planned) {}}
	next, stop := iter.Pull2(iter.Seq2[catalog.Member, error](members))
	defer stop()
	pl.next = next
	err = pl.run(ctx)
	return p.Chunks, err
}

// bury deletes files that are gone at the sources, and files that have
// expired. That an original is missing does not prove that its owner deleted it:
// an older catalogue does not know that it was retired. So a file is gone only if
// a listing found its original after it was packed, and two listings some time
// apart did not.
func (j *job) bury(ctx context.Context, c *catalog.Catalog, o CompactOptions, done *Compacted) (err error) {
	scope, err := j.scope(ctx, c)
	if err != nil {
		return err
	}
	// Files packed from here on existed when the sources were listed, or are
	// newer.
	last := int64(0)
	for id := range scope {
		last = max(last, id)
	}
	now := time.Now()
	before := now.Add(-cmp.Or(o.GoneAfter, goneAfter))
	found := sorter.New(sorter.Options{Memory: 16 << 20, Scratch: sorter.TempFile}) // files to be deleted, and with a value those of Listed
	defer found.Close()
	var next func() (catalog.Member, error, bool)
	if !o.Unlisted {
		made, err := j.made(ctx, c)
		if err != nil {
			return err
		}
		var skipped Skipped
		pull, stop := iter.Pull2(j.listed(ctx, made, &skipped))
		defer stop()
		next = pull
	}
	var m catalog.Member
	more, reached, files, originals := next != nil, false, int64(0), int64(0)
	if more {
		m, err, more = next()
	}
	names, nerr := glob.NewFilter(nil, j.set.Exclude)
	if err = cmp.Or(err, nerr); err != nil {
		return err
	}
	for l, lerr := range c.Between(ctx, "", "", scope.has) {
		for err == nil && lerr == nil && more && m.Path < l.Path {
			m, err, more = next()
		}
		if err = cmp.Or(lerr, err); err != nil {
			return err
		}
		files++
		expired := o.Expire > 0 && !l.Modified.IsZero() && l.Modified.Before(now.Add(-o.Expire))
		// An excluded path is not listed either, so it does not count as missing.
		missing := next != nil && l.Original == catalog.OriginalStays && l.Archive <= last && !(more && m.Path == l.Path) && !names.Excluded(l.Path)
		if next != nil && l.Original == catalog.OriginalStays {
			originals++
		}
		if missing && !reached {
			for _, origin := range j.origins {
				if err := origin.reachable(ctx); err != nil {
					return err
				}
			}
			reached = true
		}
		listed := scope[l.Archive].Listed
		again := !listed.IsZero() && !listed.After(before)
		is := catalog.Location{Missing: missing && (l.Missing || again && !l.Unseen), Unseen: missing && (l.Unseen || listed.IsZero())}
		var value []byte
		switch {
		case missing && l.Missing && again:
			done.Gone++
		case expired:
			done.Expired++
		case missing:
			done.Missing++
			fallthrough
		default:
			if next == nil || is.Missing == l.Missing && is.Unseen == l.Unseen {
				continue
			}
			value = fmt.Appendf(nil, "%t %t", is.Missing, is.Unseen)
		}
		if err := found.Add([]byte(l.Path), value); err != nil {
			return err
		}
	}
	if n, most := done.Gone+done.Missing, cmp.Or(o.Gone, 0.5); n > 1 && float64(n) > most*float64(originals) {
		return &GoneError{j.plan.Name, n, originals}
	}
	if 5*(done.Gone+done.Expired) > files && !o.Yes {
		return &ShareError{j.plan.Name, done.Gone, done.Expired, files}
	}
	if o.DryRun {
		return nil
	}
	if next != nil {
		if err := c.Listed(ctx, j.roots(), last, now, before, func(yield func(catalog.Location, error) bool) {
			for row, err := range found.Sorted() {
				l := catalog.Location{Path: string(row.Key)}
				if err == nil && len(row.Value) == 0 {
					continue
				}
				if err == nil {
					_, err = fmt.Sscan(string(row.Value), &l.Missing, &l.Unseen)
				}
				if !yield(l, err) || err != nil {
					return
				}
			}
		}); err != nil {
			return err
		}
	}
	var paths []string
	flush := func() error {
		_, err := c.Delete(ctx, j.roots(), paths, last)
		paths = paths[:0]
		return err
	}
	for row, err := range found.Sorted() {
		if err != nil {
			return err
		}
		if len(row.Value) > 0 {
			continue
		}
		if paths = append(paths, string(row.Key)); len(paths) == 1000 {
			if err := flush(); err != nil {
				return err
			}
		}
	}
	return flush()
}

// Tidy removes archives of a plan that have had no visible files for a while,
// and the files beside them. It returns how many are still waiting, and how
// many were removed. The wait gives readers time to notice that the files are
// elsewhere.
func Tidy(ctx context.Context, c *catalog.Catalog, p catalog.Plan, grace time.Duration) (dead, removed int, err error) {
	j, err := openToDelete(ctx, c, p)
	if err != nil {
		return 0, 0, err
	}
	of, err := j.seen(ctx, c)
	if err != nil {
		return 0, 0, err
	}
	err = j.shared(ctx, c)
	_, shared := errors.AsType[*SharedError](err)
	if err != nil && !shared {
		return 0, 0, err
	}
	var gone, alive []int64
	for id, a := range of {
		switch {
		case a.files == 0 && a.own && !shared:
			gone = append(gone, id)
		case !a.Dead.IsZero():
			alive = append(alive, id)
		}
	}
	if err := c.Spare(ctx, gone, alive); err != nil {
		return 0, 0, err
	}
	for _, id := range gone {
		if err := c.Drop(ctx, id, grace); err == nil {
			continue
		} else if !errors.Is(err, fs.ErrNotExist) { // it is not due yet
			return dead, removed, err
		}
		dead++
	}
	// These include the ones that an earlier run did not reach.
	all, err := c.Removals(ctx)
	if err == nil && len(all) > 0 {
		err = j.raise(ctx, c, j.sides()[len(j.origins):])
	}
	if err != nil {
		return dead, removed, err
	}
	for _, r := range all {
		is, err := remove(ctx, r)
		if err == nil {
			err = c.Removed(ctx, r)
		}
		if err != nil {
			return dead, removed, err
		}
		if is {
			removed++
		}
	}
	return dead, removed, nil
}

// remove removes an archive and the files beside it, and reports whether it
// existed. If the name now belongs to a different object, remove leaves that
// alone.
func remove(ctx context.Context, r catalog.Removal) (bool, error) {
	st, name, err := store.OpenAddress(ctx, r.Address)
	if err != nil {
		return false, err
	}
	info, err := storekit.Briefly(st, name).Info(ctx)
	switch {
	case errors.Is(err, fs.ErrNotExist): // an earlier try removed it, but perhaps not the files beside it
	case err != nil:
		return false, err
	case !survey.Is(info, st.Can().Near, catalog.Archive{Size: r.Size, Version: r.Version}):
		return false, nil
	}
	there := err == nil
	for _, beside := range []string{kept.Suffix, parity.Suffix} {
		if err := storekit.Remove(ctx, st, name+beside); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return false, err
		}
	}
	if !there {
		return false, nil
	}
	info.Name = name
	switch err := storekit.RemoveAs(ctx, st, info); {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, store.ErrChanged):
		return false, nil
	case err != nil:
		return false, err
	}
	return true, nil
}
