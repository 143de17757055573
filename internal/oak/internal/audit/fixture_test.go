package audit

import (
	"context"
	"testing"

	"github.com/holdall/holdall/internal/oak/internal/repo"
	"github.com/holdall/holdall/internal/oak/internal/tarfile"
	"github.com/holdall/holdall/internal/testkit"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storetest"
)

const testdata = "../../testdata/"

// fixtures calls do with each store of testdata.
func fixtures(t *testing.T, do func(t *testing.T, name string, st *storetest.Mem)) {
	for _, name := range testkit.Names(t, testdata, ".tar.gz", 24) {
		t.Run(name, func(t *testing.T) { do(t, name, fixture(t, name)) })
	}
}

// fixture returns the files of a store.
func fixture(t testing.TB, name string) *storetest.Mem {
	t.Helper()
	st := &storetest.Mem{}
	testkit.Put(st, testkit.Untar(t, testdata+name+".tar.gz"), "segmentstore/", "")
	return st
}

// source is the repository in a store.
func source(t testing.TB, st store.Store) Source {
	t.Helper()
	l, err := repo.List(t.Context(), st, "")
	if err != nil {
		t.Fatal(err)
	}
	return Source{
		Listing: l,
		Tar: func(ctx context.Context, f repo.Tar) (store.Object, *tarfile.Tar, error) {
			obj, err := st.Open(ctx, f.Name)
			if err != nil {
				return nil, nil, err
			}
			t.Cleanup(func() { obj.Close() })
			x, err := tarfile.Open(ctx, obj, f.Name, tarfile.Options{})
			return obj, x, err
		},
		File: st.Open,
	}
}

// problems runs an audit.
func problems(t testing.TB, st store.Store, full bool) (all []Problem) {
	t.Helper()
	return audited(t, source(t, st), full)
}

func audited(t testing.TB, src Source, full bool) (all []Problem) {
	t.Helper()
	a, err := Open(t.Context(), src)
	if err != nil {
		t.Fatal(err)
	}
	run := a.Quick
	if full {
		run = a.Full
	}
	if err := run(t.Context(), func(p Problem) { all = append(all, p) }); err != nil {
		t.Fatal(err)
	}
	for _, p := range all {
		if p.Class.Meaning == "" || p.What == "" || p.Severity == 0 {
			t.Errorf("%+v says nothing", p)
		}
	}
	return all
}

// Quick runs all units that read no segments.
func (a *Audit) Quick(ctx context.Context, report func(Problem)) error {
	return a.run(ctx, report, a.Tail)
}

// Full runs all units.
func (a *Audit) Full(ctx context.Context, report func(Problem)) error {
	return a.run(ctx, report, a.Tail, a.Segments)
}

func (a *Audit) run(ctx context.Context, report func(Problem), units ...func(context.Context, int, func(Problem)) error) error {
	if err := a.Directory(ctx, report); err != nil {
		return err
	}
	for i := range a.tars {
		for _, unit := range units {
			if err := unit(ctx, i, report); err != nil {
				return err
			}
		}
	}
	return a.Across(ctx, report)
}
