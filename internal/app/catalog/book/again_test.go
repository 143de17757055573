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

// fateOf is what a catalogue says of the newest file of a name.
func fateOf(t *testing.T, b *Book, name string) string {
	t.Helper()
	f, err := b.Newest(t.Context(), name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "deleted"
	case err != nil:
		t.Fatal(err)
	}
	return fmt.Sprint(f.Original, f.Missing, f.Unseen)
}

// again returns an archive that is added once more, in which the files with some names are others.
func again(a catalog.Addition, others ...string) catalog.Addition {
	var all []catalog.Location
	for l := range a.Rows {
		if slices.Contains(others, l.Path) {
			l.Size++
		}
		all = append(all, l)
	}
	a.Rows = listed(all)
	return a
}

// An archive that is added again at its address, as after a repair, does not bring back what was deleted of
// it, and the state of its originals stays known. A file that has changed is a new one.
func TestAnArchiveIsAddedAgain(t *testing.T) {
	names := []string{"changed and deleted", "changed and leaving", "deleted", "leaving", "lingers", "missing", "replaced", "there", "unseen"}
	want := map[string]string{
		"changed and deleted": "0 false false", "changed and leaving": "0 false false", "deleted": "deleted", "leaving": "1 false false",
		"lingers": "2 false false", "missing": "0 true false", "there": "0 false false", "unseen": "0 true true",
	}
	for _, inline := range []int{0, mostInline} {
		st, rnd := newMemory(), testkit.Rand(t)
		b := created(t, st)
		b.o.inline = inline
		a := addition(rnd, "mem://packed/a.caf", names...)
		add := func(all ...catalog.Addition) {
			t.Helper()
			if _, err := b.Add(t.Context(), all...); err != nil {
				t.Fatal(err)
			}
		}
		add(a)
		fates := map[string]rows.Original{"changed and leaving": rows.Leaving, "leaving": rows.Leaving, "lingers": rows.Lingers, "missing": rows.Missing, "unseen": rows.Unseen}
		if _, err := b.Do(t.Context(), Step{Rows: func(yield func(*rows.Row, error) bool) {
			for _, name := range names {
				f, err := b.Newest(t.Context(), name)
				r := rows.Row{Name: name, What: rows.Fate, Of: f.Seq, Original: fates[name]}
				if r.Original == rows.Stays {
					r = rows.Row{Name: name, What: rows.Delete}
				}
				if (name != "there" && name != "replaced") && !yield(&r, err) {
					return
				}
			}
		}}); err != nil {
			t.Fatal(err)
		}
		add(again(a, "changed and deleted", "changed and leaving"), addition(rnd, "mem://packed/b.caf", "deleted"))
		if is := fateOf(t, b, "deleted"); is != "0 false false" { // a new file of that name, in another archive
			t.Errorf("a file with the name of a deleted one: %s", is)
		}
		if _, err := b.Remove(t.Context(), "mem://packed/b.caf"); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			for _, b := range []*Book{b, opened(t, st, Options{})} {
				for name, want := range want {
					if is := fateOf(t, b, name); is != want {
						t.Errorf("%s: %s, expected %s", name, is, want)
					}
				}
				all, err := b.Archives(t.Context())
				if err != nil || len(all) != 1 {
					t.Fatalf("%d archives, %v", len(all), err)
				}
			}
			add(again(a, "changed and deleted", "changed and leaving"))
		}
	}
}

// What another deletes, or is about to retire, while an archive is added again, is not forgotten.
func TestAnArchiveIsAddedAgainMeanwhile(t *testing.T) {
	st, rnd := newMemory(), testkit.Rand(t)
	created(t, st)
	r := &racing{memory: st}
	slow, fast := opened(t, r, Options{Write: true}), opened(t, st, Options{Write: true})
	a := addition(rnd, "mem://packed/a.caf", "deleted", "leaving", "there")
	if _, err := slow.Add(t.Context(), a); err != nil {
		t.Fatal(err)
	}
	r.then = func() {
		f, err := fast.Newest(t.Context(), "leaving")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := fast.Do(t.Context(), Step{Rows: func(yield func(*rows.Row, error) bool) {
			_ = yield(&rows.Row{Name: "deleted", What: rows.Delete}, nil) &&
				yield(&rows.Row{Name: "leaving", What: rows.Fate, Of: f.Seq, Original: rows.Leaving}, nil)
		}}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := slow.Add(t.Context(), again(a)); err != nil {
		t.Fatal(err)
	}
	if r.then != nil {
		t.Fatal("nobody came in between")
	}
	for name, want := range map[string]string{"deleted": "deleted", "leaving": "1 false false", "there": "0 false false"} {
		if is := fateOf(t, slow, name); is != want {
			t.Errorf("%s: %s, expected %s", name, is, want)
		}
	}
}

// An archive of files with different versions, as a compaction writes it, keeps them when the catalogue is made
// again: a file that is newer than one of them stays the newest.
func TestVersionsOutliveTheCatalogue(t *testing.T) {
	st, rnd, m := newMemory(), testkit.Rand(t), newModel()
	b := created(t, st)
	add := func(a catalog.Addition) {
		t.Helper()
		m.additions[a.Address] = a
		if _, err := b.Add(t.Context(), a); err != nil {
			t.Fatal(err)
		}
	}
	add(addition(rnd, "mem://packed/1.caf", "kept", "old"))
	add(addition(rnd, "mem://packed/2.caf", "other"))
	var all []catalog.Location
	for l, err := range b.Between(t.Context(), "", "", nil) {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, l)
	}
	add(addition(rnd, "mem://packed/3.caf", "old"))
	joined := addition(rnd, "mem://packed/joined.caf")
	joined.Rows = listed(all)
	if _, err := b.Do(t.Context(), Step{Add: []catalog.Addition{joined}, Instead: []int64{all[0].Archive, all[1].Archive}}); err != nil {
		t.Fatal(err)
	}
	newest := func(b *Book) {
		t.Helper()
		if f, err := b.Newest(t.Context(), "old"); err != nil || f.In.Address != "mem://packed/3.caf" {
			t.Errorf("the newest file is in %+v, %v", f.In, err)
		}
	}
	newest(b)
	for info := range st.List(t.Context(), at+"/") {
		_ = st.Remove(t.Context(), info.Name)
	}
	alone := slices.Clone(all) // the archive knows no versions
	for i := range alone {
		alone[i].Seq = 0
	}
	joined.Rows = listed(alone)
	m.additions[joined.Address] = joined
	newest(rebuilt(t, st, m))
}

// What lies beside has one version for all deletions of a step, so a step has no others: with the version of a
// listing, a file of that listing which had expired would come back when the catalogue is made again.
func TestDeletionsOfAStepHaveOneVersion(t *testing.T) {
	st, rnd, m := newMemory(), testkit.Rand(t), newModel()
	b := created(t, st)
	a := addition(rnd, "mem://packed/a.caf", "expired", "gone", "there")
	m.additions[a.Address] = a
	added, err := b.Add(t.Context(), a)
	if err != nil {
		t.Fatal(err)
	}
	listing := added[0].ID / maxOrdinals
	deletes := func(all ...rows.Row) error {
		_, err := b.Do(t.Context(), Step{Rows: func(yield func(*rows.Row, error) bool) {
			for _, r := range all {
				if r.What = rows.Delete; !yield(&r, nil) {
					return
				}
			}
		}})
		return err
	}
	if err := deletes(rows.Row{Name: "expired"}, rows.Row{Name: "gone", Seq: listing}); err == nil || fateOf(t, b, "expired") == "deleted" {
		t.Errorf("two versions: %v", err)
	}
	if err := errors.Join(deletes(rows.Row{Name: "gone", Seq: listing}), deletes(rows.Row{Name: "expired"})); err != nil {
		t.Fatal(err)
	}
	is := [2]string{fateOf(t, b, "expired"), fateOf(t, b, "there")}
	for info := range st.List(t.Context(), at+"/") {
		_ = st.Remove(t.Context(), info.Name)
	}
	b = rebuilt(t, st, m)
	if again := [2]string{fateOf(t, b, "expired"), fateOf(t, b, "there")}; is != again || is[0] != "deleted" || is[1] == "deleted" {
		t.Errorf("%q, and made again %q", is, again)
	}
}
