package book

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/holdall/holdall/format/kit/pipe"
	"github.com/holdall/holdall/internal/app/catalog"
	"github.com/holdall/holdall/internal/app/catalog/rows"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storekit"
)

// Relocate records that archives whose addresses begin with old are now where addresses begin with
// new. It returns how many there are.
func (b *Book) Relocate(ctx context.Context, old, now string) (n int, err error) {
	_, err = b.Commit(ctx, func(s *State) (*Commit, error) {
		m := Move{Old: b.relative(old), New: b.relative(now)}
		n = 0
		for _, a := range s.Archives {
			if m.of(a.Address) != a.Address {
				n++
			}
		}
		if n == 0 {
			return nil, nil
		}
		return &Commit{Moved: []Move{m}}, nil
	})
	return n, err
}

// GiveUp records archives that no commit has as such that are to be removed from their store some time later, if the
// state allows that. It returns how many these are: others have become archives of the catalogue meanwhile.
func (b *Book) GiveUp(ctx context.Context, all []catalog.Archive, may func(*State) error) (n int, err error) {
	_, err = b.Commit(ctx, func(s *State) (*Commit, error) {
		c := &Commit{}
		for _, a := range all {
			if address := b.relative(a.Address); !s.Has(path.Base(string(address))) {
				c.Removals = append(c.Removals, Removal{ID: idOf(rows.ArchiveID{Commit: s.next(), Ordinal: len(c.Removals)}), Address: address, Size: a.Size, Version: text(a.Version)})
			}
		}
		if n = len(c.Removals); n == 0 {
			return nil, nil
		}
		return c, may(s)
	})
	if err != nil {
		n = 0
	}
	return n, err
}

// Has reports whether an archive of a state is called so, wherever it is, or one that is to be removed.
func (s *State) Has(base string) bool {
	return s.ToBeRemoved(base) || slices.ContainsFunc(s.Archives, func(a Archive) bool { return path.Base(string(a.Address)) == base })
}

// ToBeRemoved reports whether an archive that is called so is to be removed.
func (s *State) ToBeRemoved(base string) bool {
	return slices.ContainsFunc(s.Removals, func(r Removal) bool { return path.Base(string(r.Address)) == base })
}

// WasAdded returns the name of the archive beside which an object lies, if that says that a catalogue has had the archive.
func WasAdded(name string) (archive string, is bool) {
	archive, _, is = strings.Cut(path.Base(name), addedSuffix)
	return archive, is
}

// A Swept is what was removed of a catalogue, or would be.
type Swept struct {
	Floor  int64 `json:"floor"` // work that began before this commit is not committed any more
	Runs   int   `json:"runs"`
	States int   `json:"states"`
	Bytes  int64 `json:"bytes"`
	Waits  bool  `json:"waits,omitempty"`  // more would be, but work that a fleet has listed waits
	Signed bool  `json:"signed,omitempty"` // more would be, but the signature is of an older commit
}

// GC removes runs and states that no reader needs who has opened the catalogue within the grace time,
// and runs that were never committed. It first makes it certain that they never will be. Commits stay.
//
// How old a commit is, the store says by the times of its objects, and no machine's clock.
func (b *Book) GC(ctx context.Context, grace time.Duration, dryRun bool) (done Swept, err error) {
	s, err := b.full(ctx, b.current())
	if err != nil {
		return done, err
	}
	times := make(map[int64]time.Time, s.Number)
	for info, err := range storekit.List(ctx, b.st, b.dir+"commits/") {
		if err != nil {
			return done, b.fail("commits", err)
		}
		if n, ok := numbered(path.Base(info.Name)); ok {
			times[n] = info.ModTime
		}
	}
	floor, until := s.Floor, times[s.Number].Add(-grace)
	for n, at := range times {
		if n <= s.Number && !at.After(until) {
			floor = max(floor, n)
		}
	}
	// What a fleet has listed and not packed began before its list was written.
	for info, err := range storekit.List(ctx, b.st, b.dir+"work/") {
		if err != nil {
			return done, b.fail("work", err)
		}
		begun, _, _ := strings.Cut(path.Base(info.Name), "-")
		if n, ok := numbered(begun); ok && n < floor {
			floor, done.Waits = max(n, s.Floor), true
		}
	}
	signed, object, err := b.isSigned(ctx)
	if err != nil {
		return done, err
	}
	if signed != nil && signed.Number < floor {
		floor, done.Signed = max(signed.Number, s.Floor), true
	}
	swept, err := b.sweep(ctx, floor, func(info store.Info) bool { return info.Name == b.dir+object || info.ModTime.After(until) }, dryRun)
	swept.Waits, swept.Signed = done.Waits, done.Signed
	return swept, err
}

// sweep makes it certain that work which began before a commit is never committed. Then it removes runs and states
// that nobody needs who reads what the catalogue was after that commit, or later. Of states that were stored for a
// signature, those stay that signed returns true of.
func (b *Book) sweep(ctx context.Context, floor int64, signed func(store.Info) bool, dryRun bool) (done Swept, err error) {
	s := b.current()
	used := map[string]bool{}
	is, err := b.stateAt(ctx, max(floor, 1))
	for ; ; is, err = b.next(ctx, is) { // what a reader may have
		if err != nil {
			return done, err
		}
		for _, r := range is.Runs {
			used[r.Object] = true
		}
		if is.Number >= s.Number {
			break
		}
	}
	done.Floor = floor
	if floor > s.Floor && !dryRun {
		if s, err = b.Commit(ctx, func(s *State) (*Commit, error) { return &Commit{Floor: max(floor, s.Floor)}, nil }); err != nil {
			return done, err
		}
		for _, r := range s.Runs {
			used[r.Object] = true
		}
		if err := b.writeHead(ctx); err != nil {
			return done, err
		}
	}
	// A reader at the floor may need the last state before it.
	oldest := int64(0)
	for info, err := range storekit.List(ctx, b.st, b.dir+"states/") {
		if err != nil {
			return done, b.fail("states", err)
		}
		if n, ok := numbered(path.Base(info.Name)); ok && n <= floor {
			oldest = max(oldest, n)
		}
	}
	var gone []store.Info
	for info, err := range storekit.List(ctx, b.st, b.dir) {
		if err != nil {
			return done, b.fail("", err)
		}
		name := strings.TrimPrefix(info.Name, b.dir)
		switch path.Dir(name) {
		case "runs":
			base, _, _ := strings.Cut(path.Base(name), "-")
			n, err := strconv.ParseInt(base, 10, 64)
			if err != nil || n >= floor || used[name] {
				continue
			}
			done.Runs++
		case "states":
			if n, ok := numbered(path.Base(name)); !ok || n >= oldest {
				continue
			}
			done.States++
		case "signed":
			if signed(info) {
				continue
			}
			done.States++
		default:
			continue
		}
		done.Bytes += info.Size
		gone = append(gone, info)
	}
	for _, info := range gone {
		if dryRun {
			break
		}
		if err := storekit.Remove(ctx, b.st, info.Name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return done, b.fail(strings.TrimPrefix(info.Name, b.dir), err)
		}
	}
	return done, nil
}

// TimeOf returns when a commit was made, by the clock of its store.
func (b *Book) TimeOf(ctx context.Context, n int64) (time.Time, error) {
	info, err := storekit.Briefly(b.st, b.dir+commitName(n)).Info(ctx)
	if err != nil {
		return time.Time{}, b.fail(commitName(n), err)
	}
	return info.ModTime, nil
}

// next returns the state after the commit that follows.
func (b *Book) next(ctx context.Context, s *State) (*State, error) {
	c, err := b.commit(ctx, s.next())
	if err == nil && c.Erased != "" {
		err = errErased
	}
	if err == nil {
		var n *State
		if n, err = s.after(c.Commit, c.hash); err == nil {
			n.last = &c
			return n, nil
		}
		err = broken(err)
	}
	return s, b.fail(commitName(s.next()), err)
}

// commits yields the commits from one to another.
func (b *Book) commits(ctx context.Context, from, to int64) iter.Seq2[numberedCommit, error] {
	return pipe.Told(func(tell func(numberedCommit) error) error {
		for n := from; n <= to; {
			c, err := b.commit(ctx, n)
			if err != nil {
				return b.fail(commitName(n), err)
			}
			if err := tell(c); err != nil {
				return err
			}
			n = cmp.Or(c.Next, n+1)
		}
		return nil
	})
}

// stateAt returns the state after a commit.
func (b *Book) stateAt(ctx context.Context, n int64) (is *State, err error) {
	last := int64(0)
	for info, err := range storekit.List(ctx, b.st, b.dir+"states/") {
		if err != nil { // it is only faster, unless commits were erased
			if k := b.current().Stored; k <= n {
				last = k
			}
			break
		}
		if k, ok := numbered(path.Base(info.Name)); ok && k <= n {
			last = max(last, k)
		}
	}
	if is = (&State{}); last > 0 {
		if is, err = b.stored(ctx, last); err != nil {
			return nil, err
		}
	}
	for is.Number < n && err == nil {
		is, err = b.next(ctx, is)
	}
	return is, err
}

// At makes the catalogue what it was after a commit, for reading.
func (b *Book) At(ctx context.Context, n int64) error {
	s := b.current()
	if n < max(s.Floor, 1) || n > s.Number {
		return fmt.Errorf("commit %d: the catalogue has what it was after commits %d to %d", n, max(s.Floor, 1), s.Number)
	}
	is, err := b.stateAt(ctx, n)
	if err == nil && is.Number != n {
		err = b.fail(commitName(n), fs.ErrNotExist)
	}
	if err == nil {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.state, b.fixed = is, true
	}
	return err
}

// Since returns the time of the first commit that the catalogue still has.
func (b *Book) Since(ctx context.Context) (time.Time, error) {
	c, err := b.commit(ctx, max(b.current().Floor, 1))
	if err != nil {
		return time.Time{}, b.fail("", err)
	}
	return c.Time, nil
}

// AtTime is At for the last commit before a time.
func (b *Book) AtTime(ctx context.Context, at time.Time) error {
	s, last := b.current(), int64(0)
	for c, err := range b.commits(ctx, max(s.Floor, 1), s.Number) {
		if err != nil {
			return err
		}
		if c.Time.After(at) {
			break
		}
		last = c.Number
	}
	if last == 0 {
		return fmt.Errorf("the catalogue does not have what it was at %s", at.Format(time.RFC3339))
	}
	return b.At(ctx, last)
}

// ChangedSince returns the names that the commits after one have changed, and the archives that they
// have removed. If their runs are there no more, the error wraps [fs.ErrNotExist].
func (b *Book) ChangedSince(ctx context.Context, n int64) (names map[string]bool, dropped []int64, err error) {
	names = map[string]bool{}
	for c, err := range b.commits(ctx, n, b.current().Number) {
		if err != nil {
			return nil, nil, err
		}
		if c.Number == n {
			continue
		}
		if c.Erased != "" {
			return nil, nil, b.fail(commitName(c.Number), fmt.Errorf("%w: %w", errErased, fs.ErrNotExist))
		}
		for _, id := range c.Drop {
			dropped = append(dropped, int64(id))
		}
		if len(c.Merged) > 0 { // its rows are known
			continue
		}
		for i := range c.Runs {
			run, err := b.open(ctx, &c.Runs[i])
			if err != nil {
				return nil, nil, b.fail(c.Runs[i].Object, err)
			}
			for x, err := range run.All(ctx) {
				if err != nil {
					return nil, nil, err
				}
				names[x.Name] = true
			}
		}
	}
	return names, dropped, nil
}
