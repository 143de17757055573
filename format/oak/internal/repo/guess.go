package repo

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"math"
	"sync"

	"github.com/holdall/holdall/format/oak/internal/tarfile"
	"github.com/holdall/holdall/store"
)

// GuessOptions of [Guess]. The zero value is for use.
type GuessOptions struct {
	First int // number to begin with
	Gap   int // so many numbers without a tar are the end; 0 is 64
}

const (
	guessGap = 64
	atOnce   = 8 // requests
)

// Guess looks for the files of a directory by their names, for stores that cannot
// list.
//
// It looks for letter a of each number upwards, until Gap numbers have none: a new
// tar has letter a, so that the newest most often has it. Of the numbers before that
// it looks for the other letters: where there is an a, for b, and so on until one is
// missing, since a cleanup goes one letter further; where there is none, for all. So
// it makes Gap requests, and at most 25 for each number up to the newest.
//
// It does not find what comes after a run of Gap numbers without an a, as many
// cleanups can leave, and no backups, nor names that Oak ignores.
func Guess(ctx context.Context, st store.Store, dir string, o GuessOptions) (Listing, error) {
	g := guesser{ctx: ctx, st: st, l: Listing{Dir: clean(dir), Guessed: true}}
	if _, err := g.try(Journal, Manifest, GCLog, Lock); err != nil {
		return Listing{}, err
	}
	gap, first := cmp.Or(o.Gap, guessGap), o.First
	end := first // behind the newest
	hasA := map[int]bool{}
	for n := first; n < end+gap && n <= math.MaxInt32-atOnce; n += atOnce {
		names := make([]string, atOnce)
		for i := range names {
			names[i] = tarfile.Name(n+i, 'a')
		}
		found, err := g.try(names...)
		if err != nil {
			return Listing{}, err
		}
		for i, ok := range found {
			if ok {
				hasA[n+i], end = true, n+i+1
			}
		}
	}
	for n := first; n < end; n++ {
		if err := g.letters(n, hasA[n]); err != nil {
			return Listing{}, err
		}
	}
	g.l.sort()
	return g.l, nil
}

type guesser struct {
	ctx context.Context
	st  store.Store
	l   Listing
}

// letters looks for b to z of a number: one after another where there is an a.
func (g *guesser) letters(number int, hasA bool) error {
	step := atOnce
	if hasA {
		step = 1
	}
	for letter := byte('b'); letter <= 'z'; letter += byte(step) {
		var names []string
		for i := range min(step, int('z'-letter)+1) {
			names = append(names, tarfile.Name(number, letter+byte(i)))
		}
		found, err := g.try(names...)
		if err != nil {
			return err
		}
		if hasA && !found[0] {
			return nil
		}
	}
	return nil
}

// try adds the files that are there.
func (g *guesser) try(names ...string) ([]bool, error) {
	found := make([]bool, len(names))
	sizes := make([]int64, len(names))
	errs := make([]error, len(names))
	var all sync.WaitGroup
	for i, name := range names {
		all.Go(func() { sizes[i], found[i], errs[i] = size(g.ctx, g.st, g.l.Path(name)) })
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	for i, name := range names {
		if found[i] {
			g.l.add(File{name, sizes[i]})
		}
	}
	return found, nil
}

func size(ctx context.Context, st store.Store, name string) (int64, bool, error) {
	obj, err := st.Open(ctx, name)
	if err == nil {
		defer obj.Close()
		var info store.Info
		if info, err = obj.Info(ctx); err == nil {
			return info.Size, true, nil
		}
	}
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return 0, false, err
}
