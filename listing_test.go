package holdall_test

import (
	"context"
	"iter"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/holdall/holdall"
	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/formattest/tiny"
	"github.com/holdall/holdall/internal/read/listing"
	"github.com/holdall/holdall/internal/testkit"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storetest"
)

// backwards lists directories the wrong way round, and finds no places in them.
type backwards struct{ format.Reader }

func (backwards) Can() format.Abilities { return format.Abilities{} }

func (b backwards) ReadDir(ctx context.Context, dir string) iter.Seq2[holdall.Entry, error] {
	return func(yield func(holdall.Entry, error) bool) {
		var all []holdall.Entry
		for e, err := range b.Reader.Can().ReadDirFrom(ctx, dir, "") {
			if err != nil {
				yield(e, err)
				return
			}
			all = append(all, e)
		}
		for _, e := range slices.Backward(all) {
			if !yield(e, nil) {
				return
			}
		}
	}
}

// unordered is the format of tests by such a reader.
var unordered = func() *format.Format {
	f := *tiny.Format
	f.Open = func(ctx context.Context, st store.Store, name string, o format.OpenOptions) (format.Reader, error) {
		r, err := tiny.Format.Open(ctx, st, name, o)
		return backwards{r}, err
	}
	return &f
}()

// oddNames are names of which many begin like others, and some are no paths.
func oddNames(rnd *rand.Rand, n int) []string {
	parts := []string{"a", "a-", "a-b", "a.b", "b", "a!", "ab", "a0", "\xff", "ü", "a b", "..", ""}
	all := map[string]bool{}
	for range n {
		var name []string
		for range 1 + rnd.IntN(4) {
			i := rnd.IntN(len(parts))
			if rnd.IntN(8) > 0 {
				i = rnd.IntN(9)
			}
			name = append(name, parts[i])
		}
		if name[len(name)-1] != "" { // else it would be where a directory is
			all[strings.Join(name, "/")] = true
		}
	}
	delete(all, "")
	delete(all, ".")
	var names []string
	for name := range all {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

func TestKeysAndDirectoriesAreInOrderFromAnywhere(t *testing.T) {
	rnd := testkit.Rand(t)
	for round := range testkit.Rounds(t, 6) {
		st := &storetest.Mem{}
		w, err := tiny.Format.Create(t.Context(), st, "x.tiny", format.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		var keys []string
		for _, name := range oddNames(rnd, 20+round%12*16) {
			e := holdall.Entry{Name: name}
			if rnd.IntN(6) == 0 {
				e.Kind = format.Dir
			} else {
				keys = append(keys, name)
			}
			if err := w.Add(t.Context(), e, strings.NewReader("")); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := w.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(t.TempDir(), "x.tiny")
		if err := os.WriteFile(path, st.Get("x.tiny"), 0o666); err != nil {
			t.Fatal(err)
		}
		at := path + ".index"
		buildIndex(t, path, holdall.OpenOptions{Formats: []*format.Format{tiny.Format}}, at)
		var dirs []string
		for kind, o := range map[string]holdall.OpenOptions{
			"ordered": {Formats: []*format.Format{tiny.Format}}, "unordered": {Formats: []*format.Format{unordered}},
			"kept": {Formats: []*format.Format{tiny.Format}, Index: holdall.UseIndex{At: at}},
		} {
			a, err := holdall.Open(t.Context(), path, o)
			if err != nil {
				t.Fatal(err)
			}
			if got := a.Index().Used != ""; got != (kind == "kept") {
				t.Fatalf("%s: by an index: %v, %v", kind, got, a.Index())
			}
			for range 60 {
				prefix, from := "", ""
				if rnd.IntN(2) == 0 {
					prefix = keys[rnd.IntN(len(keys))]
					prefix = prefix[:rnd.IntN(len(prefix)+1)]
				}
				if rnd.IntN(3) > 0 {
					from = keys[rnd.IntN(len(keys))] + []string{"", "\x00", "/", "-"}[rnd.IntN(4)]
					from = from[:rnd.IntN(len(from)+1)]
				}
				want := slices.DeleteFunc(slices.Clone(keys), func(k string) bool { return !strings.HasPrefix(k, prefix) || k < from })
				var got []string
				for e, err := range a.Keys(t.Context(), prefix, from) {
					if err != nil {
						t.Fatalf("%s: keys %q from %q: %v", kind, prefix, from, err)
					}
					got = append(got, e.Name)
				}
				if !slices.Equal(got, want) {
					t.Fatalf("%s: keys %q from %q:\n%q\nwant\n%q\nof\n%q", kind, prefix, from, got, want, keys)
				}
			}
			dirs = append(dirs[:0], ".", "a", "a-", "a/a-", "b", "a-b/a")
			for _, dir := range dirs {
				whole, ok := placesIn(t, a, dir, "")
				if !ok {
					continue
				}
				if !slices.IsSorted(whole) || len(slices.Compact(slices.Clone(whole))) != len(whole) {
					t.Fatalf("%s: %s: %q", kind, dir, whole)
				}
				for i, from := range whole {
					if got, _ := placesIn(t, a, dir, from); !slices.Equal(got, whole[i:]) {
						t.Fatalf("%s: %s from %q: %q\nof %q", kind, dir, from, got, whole)
					}
					if got, _ := placesIn(t, a, dir, from+"\x00"); !slices.Equal(got, whole[i+1:]) {
						t.Fatalf("%s: %s behind %q: %q\nof %q", kind, dir, from, got, whole)
					}
				}
			}
			if err := a.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func placesIn(t *testing.T, a *holdall.Archive, dir, from string) (places []string, ok bool) {
	t.Helper()
	for e, err := range a.Source().ReadDirFrom(t.Context(), dir, from) {
		if err != nil {
			return nil, false
		}
		places = append(places, listing.Place(dir, e))
	}
	return places, true
}
