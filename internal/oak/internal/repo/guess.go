package repo

import (
	"context"
	"errors"
	"io/fs"
	"slices"
	"strings"

	"github.com/holdall/holdall/internal/oak/internal/tarfile"
	"github.com/holdall/holdall/internal/pipe"
	"github.com/holdall/holdall/store"
)

const (
	guessGap    = 64
	mostNumbers = 1 << 16
	atOnce      = 8 // requests
)

// guess looks for the journal and the tars of a directory by their names, for stores
// that cannot list. [Listing.Beside] looks for what reading does not need.
//
// It looks for letter a of each number upwards: a new tar has letter a, so that the
// newest most often has it. It asks for two numbers at once, then for four, then for
// eight. It ends where the next number has none and the segment of the newest revision
// is in a tar that was found, since what is written later is in no revision; without
// that, where 64 numbers have none. Of the numbers before that it looks for the other
// letters: where there is an a, for b, and so on until one is missing, since a cleanup
// goes one letter further; where there is none, for all, and so for the eight numbers
// after them if the newest revision has not been found.
//
// It does not find what comes after 64 numbers without an a, as many cleanups can
// leave, and no backups, nor names that Oak ignores.
func guess(ctx context.Context, st store.Store, dir string) (_ Listing, err error) {
	g := guesser{ctx: ctx, st: st, l: Listing{Dir: dir, Guessed: true}}
	defer func() {
		if err != nil {
			g.l.Release()
		}
	}()
	names, end, known := []string{Journal}, 0, false // end is behind the last that has an a
	var hasA []bool
	for some := 2; len(hasA) < min(end+guessGap, mostNumbers) && !known; some = min(2*some, atOnce) {
		for i := range some {
			names = append(names, tarfile.Name(len(hasA)+i, 'a'))
		}
		found, err := g.try(names...)
		if err != nil {
			return g.l, err
		}
		hasA = append(hasA, found[len(names)-some:]...)
		for end = len(hasA); end > 0 && !hasA[end-1]; {
			end--
		}
		if end < len(hasA) {
			if known, err = g.hasHead(); err != nil {
				return g.l, err
			}
		}
		names = names[:0]
	}
	if g.l.Journal != nil && !known {
		end = min(end+atOnce, len(hasA))
	}
	var next, missing []string
	for n, a := range hasA[:end] {
		if a {
			next = append(next, tarfile.Name(n, 'b'))
			continue
		}
		for letter := byte('b'); letter <= 'z'; letter++ {
			missing = append(missing, tarfile.Name(n, letter))
		}
	}
	if _, err := g.try(missing...); err != nil {
		return g.l, err
	}
	for len(next) > 0 {
		found, err := g.try(next...)
		if err != nil {
			return g.l, err
		}
		var more []string
		for i, ok := range found {
			if number, letter, _ := tarfile.ParseName(next[i]); ok && letter < 'z' {
				more = append(more, tarfile.Name(number, letter+1))
			}
		}
		next = more
	}
	g.l.sort()
	return g.l, nil
}

// Beside looks in a store that cannot list for what a guess has not looked for. What
// is known of tars and journal may be read meanwhile.
func (l *Listing) Beside(ctx context.Context, st store.Store) error {
	g := guesser{ctx: ctx, st: st, l: Listing{Dir: l.Dir}}
	defer g.l.Release()
	_, err := g.try(Manifest, GCLog, Lock)
	l.Manifest, l.GCLog, l.Lock = g.l.Manifest, g.l.GCLog, g.l.Lock
	return err
}

// Release gives up what a guess has read and holds for whoever opens the files next.
func (l *Listing) Release() {
	for _, o := range l.held {
		o.Close()
	}
	l.held = nil
}

type guesser struct {
	ctx  context.Context
	st   store.Store
	l    Listing
	seen int // how many of the tars have been searched for the newest revision
}

// try adds the files that are there. Of the journal and of tars the end is what is
// read next: it is read here, which tells how long they are, and held.
func (g *guesser) try(names ...string) (found []bool, err error) {
	type wanted struct {
		File
		obj store.Object
	}
	all := make([]*wanted, len(names))
	for i, name := range names {
		all[i] = &wanted{File: File{Name: name}}
	}
	err = pipe.Each(g.ctx, pipe.All(all), atOnce, func(ctx context.Context, f *wanted) (err error) {
		if f.obj, err = g.st.Open(ctx, g.l.Path(f.Name)); err != nil {
			return unlessMissing(err)
		}
		if f.Name == Journal || strings.HasSuffix(f.Name, ".tar") {
			_, err = store.ReadTail(ctx, f.obj, make([]byte, window))
		}
		var info store.Info
		if err == nil {
			info, err = f.obj.Info(ctx)
			f.Size = info.Size
		}
		if err != nil {
			err = unlessMissing(errors.Join(err, f.obj.Close()))
			f.obj = nil
		}
		return err
	})
	for _, f := range all {
		if found = append(found, f.obj != nil); f.obj != nil {
			g.l.add(f.File)
			g.l.held = append(g.l.held, f.obj)
		}
	}
	return found, err
}

func unlessMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// hasHead reports whether the newest revision is in a tar that was found.
func (g *guesser) hasHead() (bool, error) {
	if g.l.Journal == nil {
		return false, nil
	}
	journal, err := g.st.Open(g.ctx, g.l.Path(Journal))
	if err != nil {
		return false, err
	}
	defer journal.Close()
	for head, err := range Entries(g.ctx, journal) {
		if _, bad := err.(*Error); bad {
			continue
		}
		if err != nil {
			return false, err
		}
		for _, t := range slices.Backward(g.l.Tars[g.seen:]) {
			if ok, err := g.has(t, head.Segment); ok || err != nil {
				return ok, err
			}
		}
		g.seen = len(g.l.Tars)
		return false, nil
	}
	return false, nil
}

// has reports whether a tar has a segment, by its index, if it has one.
func (g *guesser) has(t Tar, id tarfile.ID) (bool, error) {
	o, err := g.st.Open(g.ctx, g.l.Path(t.Name))
	if err != nil {
		return false, err
	}
	defer o.Close()
	tar, err := tarfile.Open(g.ctx, o, t.Name, tarfile.Options{Tail: window})
	if _, none := errors.AsType[*tarfile.NoIndex](err); none || tarfile.IsDamage(err) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	_, ok := tar.Index().Find(id)
	return ok, nil
}
