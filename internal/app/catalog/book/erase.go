package book

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"sync"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/kit/pipe"
	"github.com/holdall/holdall/internal/app/catalog/rows"
	"github.com/holdall/holdall/internal/base/scan"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storekit"
)

// errErased reports a commit that says nothing any more.
var errErased = errors.New("what the catalogue was then was erased")

// Erased is what was removed or replaced because it had names, or may have had them.
type Erased struct {
	Swept
	Commits   int   `json:"commits"`   // that say nothing any more
	Deletions int   `json:"deletions"` // lists of deleted files that were rewritten or removed
	At        int64 `json:"at"`        // nothing of the catalogue before this commit can be read
}

// Mentions returns the archives of the catalogue that have files of some names, also those that no reader finds,
// and the names about which there is nothing at all.
func (b *Book) Mentions(ctx context.Context, names []string) (archives []int64, unknown []string, err error) {
	var mu sync.Mutex
	err = pipe.Each(ctx, pipe.All(names), 16, func(ctx context.Context, name string) error {
		is := false
		err := b.each(ctx, name, name+"\x00", func(s *State, x *rows.Item) error {
			if x.Name != name {
				return errEnough
			}
			is = true
			if id := idOf(x.Archive); x.What == rows.Put && !s.dropped[id] {
				mu.Lock()
				defer mu.Unlock()
				if !slices.Contains(archives, int64(id)) {
					archives = append(archives, int64(id))
				}
			}
			return nil
		})
		if mu.Lock(); !is {
			unknown = append(unknown, name)
		}
		mu.Unlock()
		return err
	})
	slices.Sort(archives)
	slices.Sort(unknown)
	return archives, unknown, err
}

// Erase removes all that the catalogue still says about names of deleted files. No archive may have them any
// more. What the catalogue was before cannot be read afterwards: its runs and states are removed, and commits
// with rows are replaced by others that say nothing, and have their hashes. Work that began before must be done
// again.
func (b *Book) Erase(ctx context.Context, names []string) (done Erased, err error) {
	_, err = b.Commit(ctx, func(s *State) (*Commit, error) { return &Commit{Floor: s.next()}, nil })
	if err != nil {
		return done, err
	}
	erased := make(map[string]bool, len(names))
	for _, name := range names {
		erased[name] = true
	}
	for range 5 { // others may be merging
		archives, unknown, err := b.Mentions(ctx, names)
		if err != nil {
			return done, err
		}
		if len(archives) > 0 {
			a, err := b.ArchiveOf(ctx, archives[0])
			return done, errors.Join(err, fmt.Errorf("%s: it has a file that is to be erased: %w", format.Escape(a.Address), ErrConflict))
		}
		if len(unknown) == len(names) {
			break
		}
		s, err := b.full(ctx, b.current())
		if err == nil {
			err = b.mergeRuns(ctx, s, s.Runs, erased)
		}
		if err != nil {
			return done, err
		}
	}
	s, err := b.full(ctx, b.current())
	if err == nil {
		err = b.store(ctx, s)
	}
	if err != nil {
		return done, err
	}
	done.At = s.Number
	if done.Swept, err = b.sweep(ctx, s.Number, func(store.Info) bool { return false }, false); err != nil {
		return done, err
	}
	if b.head < done.At {
		err = b.writeHead(ctx)
	}
	if err == nil {
		err = b.blank(ctx, s, &done)
	}
	if err != nil {
		return done, err
	}
	if err := b.eraseBeside(ctx, erased, &done); err != nil {
		return done, err
	}
	if _, unknown, err := b.Mentions(ctx, names); err != nil || len(unknown) < len(names) {
		return done, errors.Join(err, fmt.Errorf("others were writing at the same time: %w", ErrLate))
	}
	return done, nil
}

// blank replaces the commits before a state that have rows or archives, but not those that have runs of this state: of
// these rows, none is about an erased name.
func (b *Book) blank(ctx context.Context, s *State, done *Erased) error {
	var mu sync.Mutex
	used := map[string]bool{}
	for _, r := range s.Runs {
		used[r.Object] = true
	}
	return pipe.Each(ctx, func(yield func(int64, error) bool) {
		for info, err := range storekit.List(ctx, b.st, b.dir+"commits/") {
			if n, ok := numbered(path.Base(info.Name)); err != nil || ok && n < s.Number && !used[commitName(n)] {
				if !yield(n, b.fail("commits", err)) || err != nil {
					return
				}
			}
		}
	}, 16, func(ctx context.Context, n int64) error {
		c, err := b.commit(ctx, n)
		if err == nil && (c.Erased != "" || len(c.Runs)+len(c.Add) == 0) {
			return nil
		}
		var o []byte
		if err == nil {
			o, err = (&Commit{Catalog: c.Catalog, Number: n, Before: c.Before, Base: c.Base, Attempt: c.Attempt, Time: c.Time, Next: c.Next, Erased: c.hash}).encode()
		}
		if err == nil {
			err = b.put(ctx, commitName(n), o, false)
		}
		if err != nil {
			return b.fail(commitName(n), err)
		}
		mu.Lock()
		defer mu.Unlock()
		done.Commits++
		return nil
	})
}

// eraseBeside takes names out of what says that they were deleted.
func (b *Book) eraseBeside(ctx context.Context, erased map[string]bool, done *Erased) error {
	for info, err := range storekit.List(ctx, b.st, b.Name()+goneSuffix+"/") {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return &Error{b.Name() + goneSuffix, err}
		}
		r, err := readRecord(ctx, b.st, info, true)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return &Error{info.Name, err}
		}
		n := len(r.Deleted)
		r.Deleted = slices.DeleteFunc(r.Deleted, func(name string) bool { return erased[name] })
		switch {
		case len(r.Deleted) == n:
			continue
		case len(r.Deleted)+len(r.Gone) == 0:
			err = storekit.Remove(ctx, b.st, info.Name)
		default:
			var more, o []byte
			for _, name := range r.Deleted {
				more = scan.AppendText(more, name)
			}
			if o, err = framed(goneMagic, r, more); err == nil {
				err = b.putBeside(ctx, info.Name, o)
			}
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return &Error{info.Name, err}
		}
		done.Deletions++
	}
	return nil
}

// beyond returns a state after commits that were erased.
func (b *Book) beyond(ctx context.Context, s *State) (*State, error) {
	n, err := b.begin(ctx)
	if err == nil && n.Number <= s.Number { // the head is old
		n, err = b.newest(ctx)
	}
	if err == nil && (n == nil || n.Number <= s.Number || n.Catalog != s.Catalog) {
		err = b.fail(commitName(s.next()), broken(fmt.Errorf("%w, and there is no later state", errErased)))
	}
	return n, err
}

// leap goes through commits of which some were erased, to the state after one.
func (b *Book) leap(ctx context.Context, is *State, to int64, hashes map[int64]string) (*State, error) {
	last := is.Hash
	for c, err := range b.commits(ctx, is.next(), to) {
		if err == nil && (c.Before != last || is.Number > 0 && c.Catalog != is.Catalog) {
			err = b.fail(commitName(c.Number), broken(errors.New("it does not follow the one before")))
		}
		if err != nil {
			return is, err
		}
		last = c.hash
		hashes[c.Number] = last
	}
	n, err := b.stateAt(ctx, to)
	if err == nil && (n.Number <= is.Number || n.Hash != last) {
		err = b.fail(stateName(n.Number), broken(errors.New("it is not what the commits make")))
	}
	return n, err
}
