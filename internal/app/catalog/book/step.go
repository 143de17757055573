package book

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"slices"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/kit/sorter"
	"github.com/holdall/holdall/internal/app/catalog"
	"github.com/holdall/holdall/internal/app/catalog/rows"
)

// A Step is what is done by one commit.
type Step struct {
	// Job names the work. If a commit has ended it already, nothing is done, and the error is ErrDone.
	Job string
	// Since is the commit from which the work began, if it is not the newest. If the catalogue has forgotten
	// what was before it, it must be done again.
	Since int64
	// Add are archives. They replace earlier records of the same addresses.
	Add []catalog.Addition
	// Instead are archives whose files Add has, as far as they are needed. They are dropped, and their
	// objects are removed some time later. If one is not there any more, the error is ErrConflict.
	Instead []int64
	// Rows are deletions and fates, in any order. All deletions have the same Seq: what lies beside has one for
	// all of them.
	Rows iter.Seq2[*rows.Row, error]

	// If, unless it is nil, says whether the commit may follow a state. Its error is that of the step.
	If func(*State) error

	Plans   []Plan
	Begins  bool
	Listed  *Listing
	Removed []ID
	Claim   *Claim
}

// Errors of [Book.Do].
var (
	ErrDone     = errors.New("another has done it")
	ErrConflict = errors.New("another has changed what it began with")
)

// errMeanwhile reports that another told of files, while an archive with such files was about to be added again.
var errMeanwhile = fmt.Errorf("files of an archive were deleted or retired meanwhile: %w", ErrConflict)

// A Result is what a step has done. If it is returned with an error, it is recorded, if Number is not 0.
type Result struct {
	Number int64 // of the commit
	Added  []catalog.Added
}

// Do commits a step. It may read the rows several times.
func (b *Book) Do(ctx context.Context, x Step) (done Result, err error) {
	for range 5 {
		if done, err = b.do(ctx, x, false); err != errMeanwhile {
			break
		}
	}
	return done, err
}

func (b *Book) do(ctx context.Context, x Step, try bool) (done Result, err error) {
	if len(x.Add) > maxOrdinals {
		return done, fmt.Errorf("expected at most %d archives at once, found %d", maxOrdinals, len(x.Add))
	}
	if err := b.follow(ctx); err != nil {
		return done, err
	}
	base := b.current().Number
	all := &stepRows{step: &x, last: b.current().next() - 1, added: make([]Archive, len(x.Add)), sorted: sorter.New(sorter.Options{Memory: 128 << 20, Scratch: sorter.TempFile, Duplicate: func([]byte) error { return nil }})}
	defer all.sorted.Close()
	if err := all.collect(ctx, b); err != nil {
		return done, err
	}
	c := Commit{Base: base, since: x.Since, Job: x.Job, Plans: x.Plans, Begins: x.Begins, Listed: x.Listed, Removed: x.Removed, Claim: x.Claim, Deletes: all.deletes}
	if all.n > 0 && !try {
		ref, more, err := b.writeRun(ctx, base, all.n, func(id rows.ArchiveID) (rows.Archive, bool) {
			return all.added[id.Ordinal].shown(), true
		}, all.yield)
		if err != nil {
			return done, err
		}
		c.Runs, c.inline = []RunRef{ref}, more
	} else if err := all.count(); err != nil {
		return done, err
	}
	var replaced []catalog.Archive
	var recorded []Archive
	change := func(s *State) (*Commit, error) {
		k := c
		k.Add, replaced = slices.Clone(all.added), nil
		if x.If != nil {
			if err := x.If(s); err != nil {
				return nil, err
			}
		}
		if x.Job != "" && slices.ContainsFunc(s.Jobs, func(d Done) bool { return d.Job == x.Job }) {
			return nil, ErrDone
		}
		for _, id := range x.Instead {
			i, ok := s.at[ID(id)]
			if !ok {
				return nil, ErrConflict
			}
			a := &s.Archives[i]
			k.Drop, k.Entries, k.Bytes = append(k.Drop, a.ID), k.Entries-a.Entries, k.Bytes-a.Size
			k.Removals = append(k.Removals, Removal{ID: a.ID, Address: a.Address, Size: a.Size, Version: a.Version})
		}
		at := make(map[text]*Archive, len(s.Archives))
		for i := range s.Archives {
			at[s.Archives[i].Address] = &s.Archives[i]
		}
		for i := range k.Add {
			a := &k.Add[i]
			a.Address = s.moved(all.added[i].Address, base)
			k.Entries, k.Bytes = k.Entries+a.Entries, k.Bytes+a.Size
			was := at[a.Address]
			if was == nil {
				replaced = append(replaced, catalog.Archive{})
				continue
			}
			if s.told > base {
				return nil, errMeanwhile
			}
			k.Drop, k.Entries, k.Bytes = append(k.Drop, was.ID), k.Entries-was.Entries, k.Bytes-was.Size
			replaced = append(replaced, b.record(was))
			if a.Roots == "" && a.Facts == "" { // a recording is no object of a bucket that was packed
				a.Roots = was.Roots
			}
			if a.Verified.IsZero() && a.Size == was.Size && a.Version == was.Version && a.Format == was.Format {
				a.Verified = was.Verified
			}
		}
		recorded = k.Add
		return &k, nil
	}
	var s *State
	if try {
		if s, err = b.full(ctx, b.current()); err == nil {
			_, err = change(s)
		}
	} else if s, err = b.commitNow(ctx, change); err == nil && len(c.Runs) > 0 {
		err = b.merge(ctx)
	}
	if s == nil {
		return done, err
	}
	if !try {
		done.Number = s.Number
	}
	for i, a := range recorded {
		if !try {
			a.ID = idOf(rows.ArchiveID{Commit: s.Number, Ordinal: i})
			a.Added = s.Time
		}
		done.Added = append(done.Added, catalog.Added{Archive: b.record(&a), Replaced: replaced[i]})
	}
	return done, err
}

// stepRows are the rows of a step.
type stepRows struct {
	step    *Step
	added   []Archive
	sorted  *sorter.Sorter
	n       int64
	last    int64 // number of a commit
	deletes bool
	key     []byte
	value   []byte
}

func (x *stepRows) add(r *rows.Row) error {
	x.key, x.value = appendKey(x.key[:0], r), r.Append(x.value[:0])
	if x.n++; max(r.Seq, r.Of) > x.last {
		return fmt.Errorf("%s: version %d is not known at commit %d", format.Escape(r.Name), max(r.Seq, r.Of), x.last)
	}
	return x.sorted.Add(x.key, x.value)
}

// known returns the files of an archive of which it is recorded that they were deleted, or what became of
// their originals.
func (b *Book) known(ctx context.Context, address string) (map[string]catalog.Location, error) {
	a, err := b.Archive(ctx, address)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
		return nil, err
	}
	all := map[string]catalog.Location{}
	for l, err := range b.Locations(ctx, a) {
		if err != nil {
			return nil, err
		}
		if l.Gone || l.Original != catalog.OriginalStays || l.Missing {
			all[l.Path] = l
		}
	}
	return all, nil
}

// collect sorts the rows. A file that was in the archive before, with the same bytes, stays the same version
// if something is recorded of it.
func (x *stepRows) collect(ctx context.Context, b *Book) error {
	twice := map[string]bool{}
	for i, a := range x.step.Add {
		if err := a.Check(); err != nil {
			return err
		}
		if twice[a.Address] {
			return fmt.Errorf("%s: twice in one step", format.Escape(a.Address))
		}
		twice[a.Address] = true
		is := &x.added[i]
		*is = Archive{Address: b.relative(a.Address), Format: a.Format, Size: a.Size, Version: text(a.Version), Verified: a.Verified, Parity: a.Parity, Roots: a.Roots, Proven: a.Proven, Facts: text(a.Facts)}
		known, err := b.known(ctx, a.Address)
		if err != nil {
			return err
		}
		first := true
		for l, err := range a.Rows {
			if err == nil {
				err = l.Check(a.Size)
			}
			if err != nil {
				return err
			}
			if was, ok := known[l.Path]; ok && l.Seq == 0 && was.Size == l.Size && was.Digest == l.Digest {
				l.Seq = was.Seq
			}
			r := rows.Row{Name: l.Path, Seq: l.Seq, Archive: rows.ArchiveID{Ordinal: i}, Kind: l.Kind, Raw: l.Raw, Size: l.Size, Digest: l.Digest, Time: l.Modified, ETag: l.ETag, Headers: l.HeaderText}
			if l.Raw {
				r.Off = l.Off
			}
			if first {
				first, is.Seq = false, l.Seq
			} else if l.Seq != is.Seq {
				is.Seq = Various
			}
			if err := x.add(&r); err != nil {
				return err
			}
		}
	}
	if x.step.Rows == nil {
		return nil
	}
	seq := int64(0)
	for r, err := range x.step.Rows {
		if err == nil && r.What == rows.Delete {
			if x.deletes && r.Seq != seq {
				err = fmt.Errorf("%s: deleted up to version %d, and others of the step up to %d", format.Escape(r.Name), r.Seq, seq)
			}
			x.deletes, seq = true, r.Seq
		}
		if err == nil {
			err = x.add(r)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// count counts the rows of each archive.
func (x *stepRows) count() (err error) {
	x.yield(func(_ *rows.Row, rerr error) bool {
		err = rerr
		return err == nil
	})
	return err
}

// yield yields the rows in their order, and counts those of each archive.
func (x *stepRows) yield(yield func(*rows.Row, error) bool) {
	var r rows.Row
	originals := make([]*originals, len(x.added))
	for i, a := range x.step.Add {
		if a.Originals != nil {
			o := newOriginals(a.Originals)
			defer o.stop()
			originals[i] = o
		}
	}
	for s, err := range x.sorted.Sorted() {
		if err == nil {
			err = r.Parse(nameIn(s.Key), s.Value)
		}
		if err == nil && r.What == rows.Put {
			a := &x.added[r.Archive.Ordinal]
			if o := originals[r.Archive.Ordinal]; o != nil {
				err = o.describe(&r)
			}
			if a.Entries++; a.Entries == 1 {
				a.First = text(r.Name)
			}
			a.Last = text(r.Name)
		}
		if !yield(&r, err) || err != nil {
			return
		}
	}
}

// originals are those of the files of an archive.
type originals struct {
	next func() (catalog.Location, error, bool)
	stop func()
	l    catalog.Location
	err  error
	more bool
	was  catalog.Location // the last one that is not after a file
}

func newOriginals(all iter.Seq2[catalog.Location, error]) *originals {
	o := &originals{}
	o.next, o.stop = iter.Pull2(all)
	o.l, o.err, o.more = o.next()
	return o
}

// describe adds to a row what is known of its original. Rows must come in byte order.
func (o *originals) describe(r *rows.Row) error {
	for o.err == nil && o.more && o.l.Path <= r.Name {
		o.was = o.l
		o.l, o.err, o.more = o.next()
	}
	if o.was.Path != r.Name || o.was.Size != r.Size {
		return o.err
	}
	if r.ETag == "" {
		r.ETag, r.Time = o.was.ETag, o.was.Modified
	}
	if r.Time.IsZero() {
		r.Time = o.was.Modified
	}
	return o.err
}
