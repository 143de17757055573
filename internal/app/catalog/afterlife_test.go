package catalog

import (
	"errors"
	"io/fs"
	"slices"
	"testing"
	"time"

	"github.com/holdall/holdall/internal/testkit"
)

// TestAddingAgainKeepsWhatBecameOfFiles checks that the marks of an archive's
// files survive when the archive is added again.
func TestAddingAgainKeepsWhatBecameOfFiles(t *testing.T) {
	testkit.Serial(t)
	onEach(t, func(t *testing.T, c *Catalog, _ string) {
		roots := RootsOf([]Root{{"", "s3://from/"}})
		a := add(t, c, Archive{Address: "x", Roots: roots}, files("a", "b", "c", "d"))
		if err := c.Mark(t.Context(), []Location{{Path: "b", Archive: a.ID}}, OriginalLeft); err != nil {
			t.Fatal(err)
		}
		if n, err := c.Delete(t.Context(), roots, []string{"c", "absent"}, 0); err != nil || n != 1 {
			t.Fatal(n, err)
		}
		b := add(t, c, Archive{Address: "x"}, files("a", "b", "c", "d"))
		if b.Roots != roots || b.ID <= a.ID {
			t.Errorf("%+v", b)
		}
		var paths []string
		for l, err := range c.Below(t.Context(), "") {
			if err != nil {
				t.Fatal(err)
			}
			paths = append(paths, l.Path)
			if want := map[string]Original{"b": OriginalLeft}[l.Path]; l.Original != want {
				t.Errorf("%+v", l)
			}
		}
		if !slices.Equal(paths, []string{"a", "b", "d"}) {
			t.Errorf("%q", paths)
		}
		sound(t, c)
	})
}

// TestDeletionsAreCounted checks that each decision to delete something changes
// the identity of a catalogue, and nothing else does.
func TestDeletionsAreCounted(t *testing.T) {
	testkit.Serial(t)
	onEach(t, func(t *testing.T, c *Catalog, address string) {
		ctx, roots := t.Context(), RootsOf([]Root{{"", "s3://from/"}})
		a := add(t, c, Archive{Address: "old", Roots: roots}, files("a", "b"))
		first, err := c.Identity(ctx)
		if err != nil || first.Deletions != 0 || len(first.ID) != 32 || IsMarker(first.Marker()) {
			t.Fatalf("%+v, %v", first, err)
		}
		n, last := int64(0), first
		for _, step := range []struct {
			what   string
			do     func() error
			counts bool
		}{
			{"leave", func() error { return c.Mark(ctx, []Location{{Path: "a", Archive: a.ID}}, OriginalLeaving) }, true},
			{"left", func() error { return c.Mark(ctx, []Location{{Path: "a", Archive: a.ID}}, OriginalLeft) }, false},
			{"delete", func() error { _, err := c.Delete(ctx, roots, []string{"a", "b"}, 0); return err }, false},
			{"dead", func() error { return c.Spare(ctx, []int64{a.ID}, nil) }, false},
			{"drop too early", func() error {
				if err := c.Drop(ctx, a.ID, time.Hour); !errors.Is(err, fs.ErrNotExist) {
					t.Errorf("%v", err)
				}
				return nil
			}, false},
			{"drop", func() error { return c.Drop(ctx, a.ID, 0) }, true},
			{"open again", func() error { c = open(t, address); return nil }, false},
		} {
			if err := step.do(); err != nil {
				t.Errorf("%s: %v", step.what, err)
			}
			is, err := c.Identity(ctx)
			if step.counts {
				n++
			}
			if m, ok := ParseMarker("x/y" + is.Marker()); n > 0 && (!ok || m != is) {
				t.Errorf("%s: %+v", is.Marker(), m)
			}
			if err != nil || is.ID != first.ID || is.Deletions != n || (is.Token != last.Token) != step.counts {
				t.Errorf("%s: %+v after %+v, %v", step.what, is, last, err)
			}
			last = is
		}
	})
}

// TestArchivesAreDroppedWhenNothingOfThemIsSeen checks that an archive is
// dropped only after none of its files was visible for a while.
func TestArchivesAreDroppedWhenNothingOfThemIsSeen(t *testing.T) {
	testkit.Serial(t)
	onEach(t, func(t *testing.T, c *Catalog, _ string) {
		ctx, roots := t.Context(), RootsOf([]Root{{"", "s3://from/"}})
		old := add(t, c, Archive{Address: "old", Roots: roots}, files("a", "b"))
		add(t, c, Archive{Address: "other", Roots: RootsOf([]Root{{"", "s3://other/"}})}, files("a", "b"))
		add(t, c, Archive{Address: "new", Roots: roots}, files("a"))
		if err := c.Drop(ctx, old.ID, 0); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("one that is alive: %v", err)
		}
		if err := c.Spare(ctx, []int64{old.ID}, nil); err != nil {
			t.Fatal(err)
		}
		if err := c.Drop(ctx, old.ID, 0); err == nil || errors.Is(err, fs.ErrNotExist) {
			t.Errorf("b is seen in it: %v", err)
		}
		add(t, c, Archive{Address: "newer", Roots: roots}, files("b"))
		if err := c.Drop(ctx, old.ID, time.Hour); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("too early: %v", err)
		}
		if err := c.Drop(ctx, old.ID, 0); err != nil {
			t.Error(err)
		}
		all, err := c.Removals(ctx)
		if err != nil || len(all) != 1 || all[0].Address != "old" || all[0].Size != old.Size {
			t.Fatalf("%+v, %v", all, err)
		}
		if err := c.Removed(ctx, all[0]); err != nil {
			t.Error(err)
		}
		if all, err := c.Removals(ctx); err != nil || len(all) > 0 {
			t.Errorf("%+v, %v", all, err)
		}
		sound(t, c)
	})
}
