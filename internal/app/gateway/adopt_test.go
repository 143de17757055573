package gateway

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"iter"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdall/holdall/internal/app/catalog"
	"github.com/holdall/holdall/internal/app/catalog/book"
	"github.com/holdall/holdall/internal/app/fleet"
	"github.com/holdall/holdall/internal/app/serve"
	"github.com/holdall/holdall/store"
)

// originals is a source in memory.
type originals struct {
	all  map[string]entry
	pass func(op, name string) error // before each request
}

func (s originals) Can() store.Abilities {
	from := func(ctx context.Context, prefix, first string) iter.Seq2[store.Info, error] {
		return func(yield func(store.Info, error) bool) {
			if err := s.pass("list", prefix); err != nil {
				yield(store.Info{}, err)
				return
			}
			for _, name := range slices.Sorted(maps.Keys(s.all)) {
				if strings.HasPrefix(name, prefix) && name >= first && !yield(s.info(name), nil) {
					return
				}
			}
		}
	}
	return store.Abilities{ListFrom: from, List: func(ctx context.Context, prefix string) iter.Seq2[store.Info, error] { return from(ctx, prefix, "") }}
}

var written = time.Date(2026, 5, 1, 10, 0, 0, 0, time.UTC)

func (s originals) info(name string) store.Info {
	e := s.all[name]
	return store.Info{Name: name, Size: int64(len(e.data)), Version: e.etag(), ModTime: written}
}

func (s originals) Open(_ context.Context, name string) (store.Object, error) {
	if err := s.pass("open", name); err != nil {
		return nil, err
	}
	e, is := s.all[name]
	if !is {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	}
	return opened{s, name, e}, nil
}

type opened struct {
	originals
	name string
	entry
}

func (o opened) Info(context.Context) (store.Info, error) { return o.info(o.name), nil }
func (o opened) Close() error                             { return nil }

func (o opened) Can() store.ObjectAbilities {
	return store.ObjectAbilities{Headers: func(context.Context) (map[string]string, error) { return o.headers, nil }}
}

func (o opened) ReadAt(_ context.Context, p []byte, off int64) error {
	if err := o.pass("get", o.name); err != nil {
		return err
	}
	if off < 0 || off > int64(len(o.data)) || copy(p, o.data[off:]) < len(p) {
		return io.ErrUnexpectedEOF
	}
	return nil
}

// from has a world begin with a source.
func (w *world) from(all map[string]entry) {
	w.end()
	w.through, w.is, w.source = "src", maps.Clone(all), &originals{all, func(string, string) error { return nil }}
	w.start()
}

// forgets has the catalogue forget what was before now: merges then drop deletions.
func (w *world) forgets() {
	w.t.Helper()
	b, err := book.Open(w.t.Context(), w.st, "b.catalog", book.Options{Write: true})
	if err == nil {
		_, err = b.GC(w.t.Context(), 0, false)
	}
	if err = errors.Join(err, b.Close()); err != nil {
		w.t.Fatal(err)
	}
}

// adopted waits until everything that was read is here.
func (w *world) adopted() {
	w.t.Helper()
	b, ctx := w.g.buckets["b"], w.t.Context()
	for {
		w.look()
		left := 0
		for name := range w.is {
			if _, err := b.book.Newest(ctx, name); errors.Is(err, fs.ErrNotExist) {
				left++
			} else if err != nil {
				w.t.Fatal(err)
			}
		}
		if left == 0 {
			return
		}
		wait(ctx, time.Millisecond)
	}
}

func TestWhatWasReadIsAdopted(t *testing.T) {
	for _, there := range []bool{false, true} {
		w := newWorld(t, there)
		w.adopt = true
		w.from(map[string]entry{"small": {data: "text", headers: map[string]string{"content-type": "text/plain", "x-amz-tagging": "a=1"}}, "empty": {}, "folder/": {},
			"large": {data: strings.Repeat("text", (9<<20)/4), headers: map[string]string{"x-amz-meta-a": "b"}}, "deleted": {data: "x"}, "prefix/a/b": {data: "y"}})
		w.remove("deleted")
		w.adopted()
		f, err := w.g.buckets["b"].book.Newest(t.Context(), "large")
		if err != nil || !f.Modified.Equal(written) {
			t.Fatal(f.Modified, err)
		}
		if err := w.g.Leave(t.Context()); err != nil {
			t.Fatal(err)
		}
		w.end()
		w.through, w.adopt = None, false
		w.start()
		w.look()
		w.source.all = nil
		if w.g.buckets["b"].book.Source() != "" {
			t.Error("the source has not ended")
		}
	}
}

// A folder is there if something below it is.
func TestFoldersOfASource(t *testing.T) {
	w := newWorld(t, false)
	w.from(map[string]entry{"a/1": {}, "a/b/2": {}, "a/c/3": {}, "d/4": {}, "e": {}})
	for i, want := range []string{"a/ d/ e", "a/ d/ e", "d/ e", "e", ""} {
		w.remove([][]string{{}, {"a/b/2", "a/1"}, {"a/c/3"}, {"d/4"}, {"e", "never"}}[i]...)
		if i%2 == 0 {
			if err := w.g.Flush(t.Context()); err != nil {
				t.Fatal(err)
			}
			w.forgets()
		}
		a, err := w.set.Use(t.Context(), "b", "")
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for e, err := range a.ReadDir(t.Context(), ".") {
			if err != nil {
				t.Fatal(err)
			}
			if !e.Kind.HasContent() {
				e.Name += "/"
			}
			got = append(got, e.Name)
		}
		if _, err := a.Lookup(t.Context(), "a"); errors.Is(err, fs.ErrNotExist) != (i > 1) {
			t.Error(i, err)
		}
		if a.Release(); strings.Join(got, " ") != want {
			t.Errorf("%d: %q, expected %q", i, got, want)
		}
		w.look()
	}
}

var registered store.Store

func init() {
	store.Register("src", func(_ context.Context, address string) (store.Store, string, error) {
		return registered, strings.TrimPrefix(address, "src://x/"), nil
	})
}

func TestASourceStaysUntilItIsEnded(t *testing.T) {
	ctx, w := t.Context(), newWorld(t, false)
	w.from(map[string]entry{"k": {data: "x"}, "l": {data: "y"}})
	w.remove("k")
	w.end()
	w.through = ""
	w.start()
	w.look()
	w.end()
	w.through = "other"
	_, err := New(ctx, w.st, "", "b", w.set, w.options())
	if _, is := errors.AsType[*SourceError](err); !is {
		t.Fatal(err)
	}
	w.only, w.through = "", ""
	w.start()
	if err := w.g.Remove(ctx, "b"); !errors.Is(err, serve.ErrSource) {
		t.Fatal(err)
	}
	// A name is not erased as long as the source has it.
	if err := w.g.Leave(ctx); err != nil {
		t.Fatal(err)
	}
	w.end()
	w.g = nil
	c, err := book.Open(ctx, w.st, "b.catalog", book.Options{Write: true})
	if err != nil {
		t.Fatal(err)
	}
	registered = w.source
	if _, err := c.Commit(ctx, func(*book.State) (*book.Commit, error) {
		x := &book.Commit{}
		x.Through("src://x")
		return x, nil
	}); err != nil {
		t.Fatal(err)
	}
	f := fleet.Fleet{Book: c, Queue: &jobs{}}
	if _, err := fleet.PrepareErasure(ctx, f, []string{"k"}, fleet.ErasureOptions{}); err == nil {
		t.Fatal("it is erased")
	} else if _, is := errors.AsType[*fleet.ThereError](err); !is {
		t.Fatal(err)
	}
	delete(w.source.all, "k")
	if _, err = fleet.PrepareErasure(ctx, f, []string{"k"}, fleet.ErasureOptions{}); err == nil {
		_, err = fleet.FinishErasure(ctx, f, []string{"k"})
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, unknown, err := c.Mentions(ctx, []string{"k"}); err != nil || len(unknown) != 1 {
		t.Fatal(unknown, err)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
}

// A failure of the source is no answer, and refuses only what needs it.
func TestASourceThatFails(t *testing.T) {
	ctx, w := t.Context(), newWorld(t, false)
	w.from(map[string]entry{"k": {data: "x"}})
	w.remove("k")
	if err := w.put("l", entry{data: "z"}, serve.Condition{}); err != nil {
		t.Fatal(err)
	}
	away := errors.New("away")
	w.source.pass = func(string, string) error { return away }
	if err := w.put("m", entry{data: "z"}, serve.Condition{NoneMatch: "*"}); !errors.Is(err, away) {
		t.Error(err)
	}
	if err := w.put("k", entry{data: "z"}, serve.Condition{NoneMatch: "*"}); err != nil {
		t.Error(err)
	}
	a, err := w.set.Use(ctx, "b", "")
	if err != nil {
		t.Fatal(err)
	}
	defer a.Release()
	for name, want := range map[string]error{"k": nil, "l": nil, "m": away} {
		if _, err := a.Lookup(ctx, name); !errors.Is(err, want) {
			t.Error(name, err)
		}
	}
	for _, err := range a.Keys(ctx, "", "") {
		if !errors.Is(err, away) {
			t.Error(err)
		}
	}
	w.end()
	w.through = "" // it is known
	w.start()
	if _, err := w.g.buckets["b"].book.Newest(ctx, "nothing"); errors.Is(err, catalog.ErrDeleted) {
		t.Error(err)
	}
}
