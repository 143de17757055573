package repairs_test

import (
	"context"
	"testing"

	"github.com/holdall/holdall/format"
	_ "github.com/holdall/holdall/format/all"
	"github.com/holdall/holdall/internal/read/content"
	"github.com/holdall/holdall/internal/read/kept"
	"github.com/holdall/holdall/internal/testkit"
	"github.com/holdall/holdall/internal/write/pack"
	"github.com/holdall/holdall/store"
	_ "github.com/holdall/holdall/store/all"
	"github.com/holdall/holdall/store/storetest"
)

const chunk = 64 << 10 // as short as a piece may be

// packedAs is an archive called x of files, in memory.
func packedAs(t testing.TB, kind string, param, files map[string]string) *storetest.Mem {
	t.Helper()
	st := &storetest.Mem{}
	if _, err := pack.Pack(t.Context(), st, "x", []string{testkit.Tree(t, t.TempDir(), files)}, pack.Options{Format: kind, Param: param}); err != nil {
		t.Fatal(err)
	}
	return st
}

// open opens an archive, with byIndex by the index beside it.
func open(t testing.TB, st store.Store, name, kind string, byIndex bool) *content.Source {
	t.Helper()
	f, err := format.All().Named(kind)
	if err != nil {
		t.Fatal(err)
	}
	s := content.New(st, name, nil, 0)
	t.Cleanup(func() { s.Close() })
	plain := func(ctx context.Context) (format.Reader, error) { return f.Open(ctx, st, name, format.OpenOptions{}) }
	if byIndex {
		x, state := kept.Find(t.Context(), st, name, kept.Use{Beside: true, SizeOnly: true}, kept.Wanted{Formats: format.All()})
		if x == nil {
			t.Fatalf("%+v", state)
		}
		s.Read(f, kept.NewReader(x, s.ProvenBefore, plain))
		s.UseIndex(x)
		return s
	}
	r, err := plain(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	s.Read(f, r)
	return s
}

// index writes an index with digests of pieces beside an archive.
func index(t testing.TB, st store.Store, name, kind string) {
	t.Helper()
	s := open(t, st, name, kind, false)
	if _, err := s.WriteIndex(t.Context(), st, name+kept.Suffix, content.IndexOptions{Chunk: chunk, OnError: func(format.Problem) {}}); err != nil {
		t.Fatal(err)
	}
}

func lookup(t testing.TB, s *content.Source, name string) format.Entry {
	t.Helper()
	e, err := s.Reader.Lookup(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func extentsOf(t testing.TB, s *content.Source, name string) (all []format.Extent) {
	t.Helper()
	for x, err := range s.Extents(t.Context(), lookup(t, s, name)) {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, x)
	}
	return all
}
