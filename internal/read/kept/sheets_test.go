package kept

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"sync"
	"testing"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/kit"
	"github.com/holdall/holdall/internal/testkit"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/local"
)

// answers are what an index says of names, and of some that are not there.
func answers(t testing.TB, x *Index, names []string) (all []any) {
	t.Helper()
	for _, name := range names {
		e, err := x.Lookup(t.Context(), name)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatalf("%q: %v", name, err)
		}
		xs := extents(x, e)
		e.Ref = nil
		all = append(all, e, fmt.Sprint(err), xs)
	}
	return all
}

// small is an index of rows of all kinds, with names that are there and that are not.
func small(t testing.TB, rows int) (b []byte, names []string) {
	t.Helper()
	entries, xs := anyEntries(rand.New(rand.NewPCG(5, 6)), rows)
	l := &listed{kit.NewIndex(kit.Entries(entries)), xs}
	b, _ = build(t, l, Head{Format: "list"}, Options{})
	for e, err := range l.Entries(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Fault == nil {
			names = append(names, e.Name)
		}
	}
	return b, append(names, ".", "a", "b", "a/b", "c/", "nothing", "")
}

// TestADamagedIndexIsNeverBelieved damages each byte of an index: an answer is an error of the index,
// or the right one.
func TestADamagedIndexIsNeverBelieved(t *testing.T) {
	testkit.Long(t)
	good, names := small(t, 30)
	x := opened(t, good)
	type answer struct {
		e   format.Entry
		err string
		xs  []format.Extent
	}
	ask := func(x *Index, name string) (a answer, bad bool) {
		e, err := x.Lookup(t.Context(), name)
		if _, bad = errors.AsType[*Error](err); err != nil {
			return answer{err: err.Error()}, bad
		}
		a = answer{xs: extents(x, e), e: e}
		a.e.Ref = nil
		return a, false
	}
	want := map[string]answer{}
	for _, name := range names {
		want[name], _ = ask(x, name)
	}
	order := all(x.Entries(t.Context()))
	noticed := 0
	for i := range good {
		b := slices.Clone(good)
		b[i] ^= 1 << (i % 8)
		x, err := openBytes(t.Context(), b, i%2 == 0)
		if err != nil {
			if _, bad := errors.AsType[*Error](err); !bad {
				t.Fatal(err)
			}
			noticed++
			continue
		}
		found := false
		for _, name := range names {
			got, bad := ask(x, name)
			if found = found || bad; !bad && !reflect.DeepEqual(got, want[name]) {
				t.Fatalf("byte %d: %q is %+v, expected %+v", i, name, got, want[name])
			}
		}
		if got := all(x.Entries(t.Context())); !reflect.DeepEqual(got, order) {
			found = true
			if n := len(got) - 1; !reflect.DeepEqual(got[:n], order[:n]) {
				t.Fatalf("byte %d: other entries", i)
			}
		}
		x.Close()
		if found {
			noticed++
		}
	}
	if noticed < len(good)-len(magic) {
		t.Errorf("%d damages of %d were noticed", noticed, len(good))
	}
}

// An unwatched object is a file whose changes are not noticed.
type unwatched struct {
	store.Object
	f *os.File
}

func (u unwatched) Can() store.ObjectAbilities {
	return store.ObjectAbilities{File: func(context.Context) (*os.File, error) { return u.f, nil }}
}

// TestAnIndexThatIsCutIsAnError has a file cut that is mapped: reading it is a fault that
// would end the program.
func TestAnIndexThatIsCutIsAnError(t *testing.T) {
	b, names := small(t, 60)
	dir := t.TempDir()
	path := filepath.Join(dir, "x.holdall")
	if err := os.WriteFile(path, b, 0o666); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	obj, err := local.New(dir).Open(t.Context(), "x.holdall")
	if err != nil {
		t.Fatal(err)
	}
	x, err := Open(t.Context(), unwatched{obj, f}, path, "dir/x", 1, tailGuess, true)
	if err != nil {
		t.Fatal(err)
	}
	defer x.Close()
	answers(t, x, names)
	if x.mapping.bytes == nil {
		if runtime.GOOS == "linux" {
			t.Fatal("the index is not mapped")
		}
		t.Skip("nothing is mapped here")
	}
	if err := f.Truncate(0); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, err := x.Lookup(t.Context(), names[0]); !errors.Is(err, store.ErrChanged) {
			t.Errorf("%v, expected that it changed", err)
		} else {
			typed(t, err)
		}
	}
}

// TestLookupsMayRunInParallel, and the index be closed meanwhile: then reads fail, and none
// is of memory that is not mapped any more.
func TestLookupsMayRunInParallel(t *testing.T) {
	b, names := small(t, 300)
	want := answers(t, opened(t, b), names)
	x := openedFile(t, b)
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for i, name := range names {
				e, err := x.Lookup(context.Background(), name)
				if e.Ref = nil; err == nil && !reflect.DeepEqual(any(e), want[3*i]) {
					t.Errorf("%q: %+v", name, e)
				}
				if i == len(names)/2 {
					x.Close()
				}
			}
		})
	}
	all.Wait()
}
