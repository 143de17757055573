package formattest

import (
	"bytes"
	"context"
	"errors"
	"io"
	"testing"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/kit"
	"github.com/holdall/holdall/internal/testkit"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storetest"
)

// onward is a store whose writers cannot take anything back, as when an object is sent to a
// bucket in parts.
type onward struct{ *storetest.Mem }

func (o onward) Can() store.Abilities {
	return store.Abilities{Create: func(ctx context.Context, name string, wish store.Wishes) (store.Writer, error) {
		w, err := o.Mem.CreateAs(ctx, name, wish)
		return onwardWriter{w}, err
	}}
}

type onwardWriter struct{ store.Writer }

func (onwardWriter) Can() store.WriterAbilities { return store.WriterAbilities{} }

var errSource = errors.New("the source broke")

// breaking returns r's bytes and then fails.
type breaking struct{ r io.Reader }

func (b breaking) Read(p []byte) (int, error) {
	n, err := b.r.Read(p)
	if err == io.EOF {
		err = errSource
	}
	return n, err
}

// endless continues for longer than any format should read.
type endless struct{ n int64 }

func (e *endless) Read(p []byte) (int, error) {
	if e.n > 32<<20 {
		return 0, io.EOF
	}
	e.n += int64(len(p))
	return len(p), nil
}

// testFailedEntries adds entries whose content does not match their size, between other entries
// that must not be affected.
func testFailedEntries(t *testing.T, s *suite) {
	testkit.Serial(t)
	far := int64(s.most(5<<20) / 2) // more of a file than a writer should keep in memory
	bytesOf := func(n int64) io.Reader { return bytes.NewReader(noise(77, int(n))) }
	bad := []struct {
		what    string
		size    int64
		content func(t *testing.T, st store.Store) io.Reader
	}{
		{"short by a byte", 100, func(*testing.T, store.Store) io.Reader { return bytesOf(99) }},
		{"nothing at all", 100, func(*testing.T, store.Store) io.Reader { return bytesOf(0) }},
		{"long by a byte", 100, func(*testing.T, store.Store) io.Reader { return bytesOf(101) }},
		{"something for an empty file", 0, func(*testing.T, store.Store) io.Reader { return bytesOf(1) }},
		{"far too long", 100, func(*testing.T, store.Store) io.Reader { return bytesOf(far) }},
		{"endless", 100, func(*testing.T, store.Store) io.Reader { return &endless{} }},
		{"large and short", far, func(*testing.T, store.Store) io.Reader { return bytesOf(far - 1) }},
		{"large and long", far, func(*testing.T, store.Store) io.Reader { return bytesOf(far + 1) }},
		{"breaks at once", 100, func(*testing.T, store.Store) io.Reader { return breaking{bytesOf(0)} }},
		{"breaks off", 100, func(*testing.T, store.Store) io.Reader { return breaking{bytesOf(50)} }},
		{"breaks after the last byte", 100, func(*testing.T, store.Store) io.Reader { return breaking{bytesOf(100)} }},
		{"large and breaks off", 2 * far, func(*testing.T, store.Store) io.Reader { return breaking{bytesOf(far)} }},
		{"section beyond its object", 100, section(950, 100)},
		{"large section beyond its object", far, section(950, far)},
		{"section shorter than the entry", 100, section(0, 99)},
		{"section longer than the entry", 100, section(0, 101)},
	}
	for _, c := range []struct {
		name string
		open func(*storetest.Mem) store.Store
	}{
		{"where the store can take back", func(m *storetest.Mem) store.Store { return m }},
		{"where the store only goes forward", func(m *storetest.Mem) store.Store { return onward{m} }},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, b := range bad {
				t.Run(b.what, func(t *testing.T) {
					sources := &storetest.Mem{}
					sources.Put("source", noise(5, 1000))
					mem, name := &storetest.Mem{}, s.archiveName()
					w := s.begin(t, c.open(mem), name, format.CreateOptions{})
					good := []sample{file("before", noise(1, 1000))}
					mustAdd(t, w, good[0])
					// The second name could be taken for another one.
					for _, n := range []string{"bad", "b\xffd"} {
						r := b.content(t, sources)
						err := w.Add(t.Context(), format.Entry{Name: n, Size: b.size}, r)
						if _, refused := errors.AsType[kit.EntryError](err); refused && n != "bad" {
							continue
						}
						s.wantSourceError(t, err, r)
						good = append(good, file("after"+n, noise(uint64(len(n)), 2000)))
						mustAdd(t, w, good[len(good)-1])
						// The name must still be available.
						again := file(n, []byte("this time it worked"))
						mustAdd(t, w, again)
						good = append(good, again)
					}
					// Nothing comes after this entry.
					r := b.content(t, sources)
					s.wantSourceError(t, w.Add(t.Context(), format.Entry{Name: "last", Size: b.size}, r), r)
					sum := mustCommit(t, w)
					if sum.Entries != int64(len(good)) {
						t.Errorf("summary: expected %d entries, found %d", len(good), sum.Entries)
					}
					s.wantSamples(t, mem, name, good)
					testEveryByte(t, &archive{s, mem, name})
				})
			}
		})
	}
	// If all entries fail, the archive is empty.
	for _, st := range []store.Store{&storetest.Mem{}, onward{&storetest.Mem{}}} {
		w := s.begin(t, st, s.archiveName(), format.CreateOptions{})
		for _, n := range []int64{10, far} {
			r := breaking{bytesOf(n - 1)}
			s.wantSourceError(t, w.Add(t.Context(), format.Entry{Name: "bad", Size: n}, r), r)
		}
		mustCommit(t, w)
		s.wantSamples(t, st, s.archiveName(), nil)
	}
}

func section(off, n int64) func(*testing.T, store.Store) io.Reader {
	return func(t *testing.T, st store.Store) io.Reader {
		o, err := st.Open(t.Context(), "source")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { o.Close() })
		return kit.NewSection(t.Context(), o, off, n)
	}
}

// wantSourceError checks the error of Add for a source that does not match its entry.
func (s *suite) wantSourceError(t *testing.T, err error, r io.Reader) {
	t.Helper()
	_, wrongSize := errors.AsType[*kit.SizeError](err)
	_, inStore := errors.AsType[*store.Error](err)
	switch r := r.(type) {
	case breaking:
		if !errors.Is(err, errSource) {
			t.Fatalf("expected %q, found %v", errSource, err)
		}
	case *kit.Section:
		if !wrongSize && !inStore {
			t.Fatalf("expected a *format.SizeError or the store's error, found %v", err)
		}
	default:
		if !wrongSize {
			t.Fatalf("expected a *format.SizeError, found %v", err)
		}
		if e, ok := r.(*endless); ok && e.n > 4<<20 {
			t.Errorf("%d bytes were read from a source for an entry of 100", e.n)
		}
	}
}
