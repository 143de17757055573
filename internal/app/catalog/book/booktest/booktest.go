// Package booktest tests catalogues in folders on real stores. Only tests import it.
package booktest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"testing"

	"github.com/holdall/holdall/internal/app/catalog"
	"github.com/holdall/holdall/internal/app/catalog/book"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storetest"
)

// Writers has two writers commit at once to a catalogue in a folder of a store, each the number of
// times that HOLDALL_TORTURE says, or some. Now and then one is killed at some request. What was
// acknowledged must be there once; what was not, once or not at all.
func Writers(t *testing.T, open func() store.Store, folder string, rnd *rand.Rand) {
	t.Helper()
	commits := 30
	if n, err := strconv.Atoi(os.Getenv("HOLDALL_TORTURE")); err == nil {
		commits = max(commits, n)
	}
	b, err := book.Create(t.Context(), open(), folder)
	if err == nil {
		err = b.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	seeds := [2]uint64{rnd.Uint64(), rnd.Uint64()}
	var acknowledged [2][]string
	var failed [2]error
	var wg sync.WaitGroup
	for w := range 2 {
		wg.Go(func() {
			acknowledged[w], failed[w] = write(t.Context(), open, folder, w, commits, rand.New(rand.NewPCG(seeds[w], 1)))
		})
	}
	wg.Wait()
	if err := errors.Join(failed[:]...); err != nil {
		t.Fatal(err)
	}
	if b, err = book.Open(t.Context(), open(), folder, book.Options{Write: true}); err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	if err := b.Check(t.Context(), func(problem string) { t.Error(problem) }); err != nil {
		t.Fatal(err)
	}
	there := map[string]int{}
	archives, err := b.Archives(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range archives {
		there[a.Format]++ // which has a name for each commit
	}
	for _, names := range acknowledged {
		for _, name := range names {
			if there[name] != 1 {
				t.Errorf("%s is there %d times", name, there[name])
			}
			if f, err := b.Newest(t.Context(), name); err != nil || f.In.Format != name {
				t.Errorf("%s: %+v, %v", name, f.In, err)
			}
		}
	}
	if len(archives) > 2*commits {
		t.Errorf("%d archives of %d commits", len(archives), 2*commits)
	}
	t.Logf("%d and %d of %d commits acknowledged", len(acknowledged[0]), len(acknowledged[1]), 2*commits)
}

// write adds an archive with one file in each commit.
func write(ctx context.Context, open func() store.Store, folder string, w, commits int, rnd *rand.Rand) (acknowledged []string, err error) {
	var b *book.Book
	var killed *storetest.Killed
	for i := range commits {
		if b == nil {
			st := open()
			if killed = nil; rnd.IntN(3) == 0 {
				killed = storetest.Kill(st, rnd.IntN(20))
				st = killed
			}
			if b, err = book.Open(ctx, st, folder, book.Options{Write: true}); err != nil {
				return nil, err
			}
		}
		name := fmt.Sprintf("writer%d-%04d", w, i)
		_, err := b.Add(ctx, catalog.Addition{Archive: catalog.Archive{Address: "mem://" + name, Format: name, Size: 10}, Rows: func(yield func(catalog.Location, error) bool) {
			yield(catalog.Location{Path: name, Size: 1, Raw: true}, nil)
		}})
		switch {
		case err == nil:
			acknowledged = append(acknowledged, name)
		case killed != nil && killed.Dead():
			b = nil
		default:
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		if killed == nil && rnd.IntN(4) == 0 {
			err, b = b.Close(), nil
			if err != nil {
				return nil, err
			}
		}
	}
	return acknowledged, nil
}
