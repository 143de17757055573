package rescue

import (
	"context"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/holdall/holdall/internal/oak/internal/tarfile"
	"github.com/holdall/holdall/store/storetest"
)

// memory is the tars of a store.
type memory struct {
	*storetest.Mem
	names []string
}

func newMemory(tars map[string][]byte) memory {
	m := memory{&storetest.Mem{}, slices.Sorted(maps.Keys(tars))}
	for name, b := range tars {
		m.Put(name, b)
	}
	return m
}

func (m memory) open(t testing.TB, name string) *tarfile.Tar {
	t.Helper()
	o, err := m.Open(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	x, err := tarfile.Open(t.Context(), o, name, tarfile.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return x
}

// sound opens a tar in which nothing may be wrong, except for segments that were kept.
func (m memory) sound(t testing.TB, name string, kept func(tarfile.ID) bool) *tarfile.Tar {
	t.Helper()
	x := m.open(t, name)
	fault := func(p tarfile.Problem) { t.Errorf("%s: %+v", name, p) }
	if _, err := x.CheckLayout(t.Context(), fault); err != nil {
		t.Fatal(err)
	}
	b := m.bytes(t, name)
	for i, e := range x.Index().All() {
		if kept(e.ID) {
			continue
		}
		at := e.Whole()
		x.CheckBytes(i, b[at.Off:][:at.Len], fault)
	}
	return x
}

func (m memory) source(t testing.TB, name string) Source {
	t.Helper()
	o, err := m.Open(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	return Source{name, o}
}

// letters are the tars of a number.
func (m memory) letters(t testing.TB, number int) (all []Source) {
	for _, name := range m.names {
		if n, _, ok := tarfile.ParseName(name); ok && n == number {
			all = append(all, m.source(t, name))
		}
	}
	return all
}

// copies looks in all tars with an index, except for those of a number.
func (m memory) copies(t testing.TB, but int) func(context.Context, tarfile.ID) iter.Seq2[Place, error] {
	var tars []*tarfile.Tar
	var sources []Source
	for _, name := range slices.Backward(m.names) {
		if n, _, ok := tarfile.ParseName(name); !ok || n == but {
			continue
		}
		s := m.source(t, name)
		x, err := tarfile.Open(t.Context(), s.Object, name, tarfile.Options{})
		if err == nil {
			tars, sources = append(tars, x), append(sources, s)
		}
	}
	return func(_ context.Context, id tarfile.ID) iter.Seq2[Place, error] {
		return func(yield func(Place, error) bool) {
			for i, x := range tars {
				k, ok := x.Index().Find(id)
				if !ok {
					continue
				}
				if e := x.Index().At(k); !yield(Place{sources[i], e.Pos, e.Len}, nil) {
					return
				}
			}
		}
	}
}

// events collects what is reported.
type events []Event

func (e *events) add(x Event) { *e = append(*e, x) }

func (e events) of(k Kind) (all events) {
	for _, x := range e {
		if x.Kind == k {
			all = append(all, x)
		}
	}
	return all
}

func (e events) String() string {
	var b strings.Builder
	for _, x := range e {
		fmt.Fprintf(&b, "\n%s", x)
	}
	return b.String()
}

// survey plans the recovery of a number.
func (m memory) survey(t testing.TB, number int, o Copies) (*Plan, events) {
	t.Helper()
	if o == nil {
		o = m.copies(t, number)
	}
	var e events
	p, err := Survey(t.Context(), m.letters(t, number), o, e.add)
	if err != nil {
		t.Fatal(err)
	}
	return p, e
}

// write writes a plan and returns the tar.
func write(t testing.TB, p *Plan, name string) memory {
	t.Helper()
	m := newMemory(nil)
	if err := Write(t.Context(), m, name, p); err != nil {
		t.Fatal(err)
	}
	return m
}

func (m memory) bytes(t testing.TB, name string) []byte {
	t.Helper()
	return storetest.Get(t, m, name)
}

// numbers are those of the tars, ascending.
func (m memory) numbers() (all []int) {
	for _, name := range m.names {
		if n, _, ok := tarfile.ParseName(name); ok {
			all = append(all, n)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}
