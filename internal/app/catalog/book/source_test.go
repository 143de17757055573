package book

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"testing"

	"github.com/holdall/holdall/internal/app/catalog"
	"github.com/holdall/holdall/internal/app/catalog/rows"
	"github.com/holdall/holdall/internal/testkit"
)

// While a catalogue has a source, one deletion of each name stays, and lookups and ranges tell deleted names from others.
func TestDeletionsStayAsLongAsTheSource(t *testing.T) {
	rnd, ctx := testkit.Rand(t), t.Context()
	b := created(t, newMemory())
	name := func(address string) {
		t.Helper()
		if _, err := b.Commit(ctx, func(*State) (*Commit, error) {
			c := &Commit{}
			c.Through(address)
			return c, nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	name("s3://src/")
	for i := range 3 {
		if _, err := b.Add(ctx, addition(rnd, fmt.Sprintf("mem://packed/%d.caf", i), "a", "b", "c")); err != nil {
			t.Fatal(err)
		}
		if err := b.delete(ctx, []string{"a", "b", "never"}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := b.Add(ctx, addition(rnd, "mem://packed/x.caf", "b")); err != nil {
		t.Fatal(err)
	}
	merged := func(erased map[string]bool) (deleted []string) {
		t.Helper()
		if _, err := b.Commit(ctx, func(s *State) (*Commit, error) { return &Commit{Floor: s.next()}, nil }); err != nil {
			t.Fatal(err)
		}
		s, err := b.Full(ctx)
		if err == nil {
			err = b.mergeRuns(ctx, s, s.Runs, erased)
		}
		if err != nil {
			t.Fatal(err)
		}
		if err := b.each(ctx, "", "", func(_ *State, x *rows.Item) error {
			if x.What == rows.Delete {
				deleted = append(deleted, x.Name)
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		return deleted
	}
	looks := func(gone ...string) {
		t.Helper()
		for _, path := range []string{"a", "never", "other"} {
			if _, err := b.Newest(ctx, path); errors.Is(err, catalog.ErrDeleted) != slices.Contains(gone, path) || !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("%s: %v", path, err)
			}
		}
		var got []string
		for l, err := range b.BetweenAll(ctx, "", "") {
			if err != nil {
				t.Fatal(err)
			}
			if l.Gone {
				got = append(got, l.Path)
			}
		}
		if !slices.Equal(got, gone) {
			t.Errorf("%q are deleted, expected %q", got, gone)
		}
	}
	looks("a", "never")
	for _, i := range []int{0, 1, 2} {
		if _, err := b.Remove(ctx, fmt.Sprintf("mem://packed/%d.caf", i)); err != nil {
			t.Fatal(err)
		}
	}
	if got := merged(nil); !slices.Equal(got, []string{"a", "b", "never"}) {
		t.Errorf("%q", got)
	}
	looks("a", "never")
	if got := merged(map[string]bool{"a": true}); !slices.Equal(got, []string{"b", "never"}) {
		t.Errorf("%q", got)
	}
	looks("never")
	name("")
	if got := merged(nil); len(got) > 0 {
		t.Errorf("%q", got)
	}
	looks()
}
