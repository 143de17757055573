package content_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"slices"
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

// nearMem is a store in memory that says that it is a disk.
type nearMem struct{ *storetest.Mem }

func (n nearMem) Can() store.Abilities {
	can := n.Mem.Can()
	can.Near = true
	return can
}

func formatNamed(t testing.TB, name string) *format.Format {
	t.Helper()
	f, err := format.All().Named(name)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// packedAs is an archive called x of files, in memory.
func packedAs(t testing.TB, kind string, param, files map[string]string) *storetest.Mem {
	t.Helper()
	st := &storetest.Mem{}
	if _, err := pack.Pack(t.Context(), st, "x", []string{testkit.Tree(t, t.TempDir(), files)}, pack.Options{Format: kind, Param: param}); err != nil {
		t.Fatal(err)
	}
	return st
}

// A way is how an archive is opened.
type way struct {
	open     format.OpenOptions
	checking content.Checking
	external []string
	by       store.Store // the format reads from it; nil is the store itself
	index    kept.Use    // must lead to an index, if it is set
}

// tryOpen opens an archive as package holdall does.
func tryOpen(ctx context.Context, st store.Store, name string, f *format.Format, w way) (*content.Source, error) {
	s := content.New(st, name, w.external, 0)
	s.Checking = w.checking
	by := w.by
	if by == nil {
		by = st
	}
	_, _ = s.Object(ctx, name) // a folder has none
	if w.index.Any() {
		x, state := kept.Find(ctx, st, name, w.index, kept.Wanted{View: w.open.View, Param: w.open.Param, Formats: format.All()})
		if x == nil {
			s.Close()
			return nil, errors.Join(errNoIndex, state.Why)
		}
		s.Read(f, kept.NewReader(x, s.ProvenBefore, func(ctx context.Context) (format.Reader, error) { return f.Open(ctx, by, name, w.open) }))
		s.UseIndex(x)
		return s, nil
	}
	r, err := f.Open(ctx, by, name, w.open)
	if err != nil {
		s.Close()
		return nil, err
	}
	s.Read(f, r)
	if w.by == nil {
		s.Borrow()
	}
	return s, nil
}

var errNoIndex = errors.New("there is no index to use")

func openAs(t testing.TB, st store.Store, name, kind string, w way) *content.Source {
	t.Helper()
	s, err := tryOpen(t.Context(), st, name, formatNamed(t, kind), w)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func lookup(t testing.TB, s *content.Source, name string) content.Entry {
	t.Helper()
	e, err := s.Reader.Lookup(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// extentsOf are where content lies.
func extentsOf(t testing.TB, s *content.Source, e content.Entry) (all []content.Extent) {
	t.Helper()
	for x, err := range s.Extents(t.Context(), e) {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, x)
	}
	return all
}

// one yields an entry.
func one(e content.Entry) func(func(content.Entry, error) bool) {
	return func(yield func(content.Entry, error) bool) { yield(e, nil) }
}

// readInEveryWay compares what each way to read a content gives with what is right. It returns the
// errors, one for a way.
func readInEveryWay(t testing.TB, s *content.Source, e content.Entry, want string, rnd *rand.Rand) (errs []error) {
	t.Helper()
	ctx := t.Context()
	part := func(way string, got []byte, off int, err error) {
		t.Helper()
		if err != nil {
			errs = append(errs, err)
		}
		if off+len(got) > len(want) || string(got) != want[off:off+len(got)] {
			t.Fatalf("%s: %s: other bytes in the %d from %d (%v)", e.Name, way, len(got), off, err)
		}
		if err == nil && way != "ReadAt" && off+len(got) != len(want) {
			t.Fatalf("%s: %s: %d bytes from %d, expected %d", e.Name, way, len(got), off, len(want)-off)
		}
	}
	for range 6 {
		off := rnd.IntN(len(want) + 1)
		p := bytes.Repeat([]byte{0xee}, rnd.IntN(len(want)-off+1))
		n, err := s.ReadAt(ctx, e, p, int64(off))
		part("ReadAt", p[:n], off, err)
		if err == nil && n < len(p) {
			t.Fatalf("%s: %d of %d bytes", e.Name, n, len(p))
		}
	}
	for _, off := range []int{0, rnd.IntN(len(want) + 1)} {
		r := s.ReadFrom(ctx, e, int64(off))
		got, err := io.ReadAll(r)
		part("ReadFrom", got, off, err)
		r.Close()
	}
	var b bytes.Buffer
	err := s.Copy(ctx, &b, e)
	part("Copy", b.Bytes(), 0, err)
	c := s.Open(ctx, e, 0)
	got, err := io.ReadAll(c.Checked())
	part("Checked", got, 0, err)
	c.Close()
	for _, order := range []content.Order{content.AnyOrder, content.InOrder, content.Compared} {
		err = s.Sweep(ctx, one(e), order, func(c content.Content, err error) error {
			if err != nil {
				return err
			}
			if order == content.AnyOrder {
				b.Reset()
				err = c.CopyTo(ctx, &b, nil)
				part("CopyTo", b.Bytes(), 0, err)
				return nil
			}
			got, err := io.ReadAll(c.Checked())
			part("Sweep", got, 0, err)
			return nil
		})
		if err != nil {
			errs = append(errs, err)
		}
	}
	return errs
}

func objectsIn(t testing.TB, st *storetest.Mem) (all []string) {
	t.Helper()
	for info, err := range st.List(t.Context(), "") {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, info.Name)
	}
	return all
}

// copyOf reads all of a content with Copy.
func copyOf(t testing.TB, s *content.Source, e content.Entry) (string, error) {
	t.Helper()
	var b bytes.Buffer
	err := s.Copy(t.Context(), &b, e)
	return b.String(), err
}

// flipped returns a copy of b with a bit of a byte turned.
func flipped(b []byte, at int64, bit int) []byte {
	b = slices.Clone(b)
	b[at] ^= 1 << bit
	return b
}

// compares returns what s says of the comparison of e's content.
func compares(t *testing.T, s *content.Source, e format.Entry) (parts, whole bool) {
	t.Helper()
	p := s.Proof(t.Context(), e)
	return p.Parts, p.Whole()
}
