package audit

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdall/holdall/format/oak/internal/repo"
	"github.com/holdall/holdall/format/oak/internal/tarfile"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storetest"
)

const testdata = "../../testdata"

// fixtures calls do with each store of testdata.
func fixtures(t *testing.T, do func(t *testing.T, name string, st *storetest.Mem)) {
	all, err := filepath.Glob(filepath.Join(testdata, "*.tar.gz"))
	if err != nil || len(all) != 24 {
		t.Fatal(len(all), "fixtures", err)
	}
	for _, file := range all {
		name := strings.TrimSuffix(filepath.Base(file), ".tar.gz")
		t.Run(name, func(t *testing.T) { do(t, name, fixture(t, name)) })
	}
}

// fixture returns the files of a store.
func fixture(t testing.TB, name string) *storetest.Mem {
	t.Helper()
	st := &storetest.Mem{}
	for r := tar.NewReader(bytes.NewReader(gunzip(t, filepath.Join(testdata, name+".tar.gz")))); ; {
		h, err := r.Next()
		if err == io.EOF {
			return st
		}
		if err != nil {
			t.Fatal(err)
		}
		if h.Typeflag == tar.TypeReg && path.Base(path.Dir(h.Name)) == "segmentstore" {
			b, err := io.ReadAll(r)
			if err != nil {
				t.Fatal(err)
			}
			st.Put(path.Base(h.Name), b)
		}
	}
}

func gunzip(t testing.TB, file string) []byte {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	return b
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
	a, err := Open(t.Context(), src, Options{})
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
		if p.Class.Meaning() == "" || p.What == "" || p.Severity == 0 {
			t.Errorf("%+v says nothing", p)
		}
	}
	return all
}
