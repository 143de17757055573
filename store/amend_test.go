package store_test

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storekit"
	"github.com/holdall/holdall/store/storetest"
)

// readOnly hides all that a store can do but reading.
type readOnly struct{ store.Store }

func (readOnly) Can() store.Abilities { return store.Abilities{} }

func TestStoreThatCannotAmendSaysSo(t *testing.T) {
	_, err := storekit.Amend(t.Context(), readOnly{&storetest.Mem{}}, "dir/x")
	if !errors.Is(err, errors.ErrUnsupported) || !strings.Contains(err.Error(), `change "dir/x": `) {
		t.Errorf("found %v", err)
	}
}

func TestLockedErrorTellsWhatIsKnown(t *testing.T) {
	since := time.Date(2026, 1, 2, 15, 4, 5, 0, time.Local)
	for _, c := range []struct {
		err  store.LockedError
		want string
	}{
		{store.LockedError{Name: "x"}, "x: locked by another process"},
		{store.LockedError{Name: "x", Holder: "process 123 on h (holdall add)", Since: since},
			"x: locked by process 123 on h (holdall add) since 2026-01-02 15:04:05"},
	} {
		if got := c.err.Error(); got != c.want {
			t.Errorf("expected %q, found %q", c.want, got)
		}
	}
}

// forward has writers that cannot patch.
type forward struct{ *storetest.Mem }

func (f forward) Can() store.Abilities {
	return store.Abilities{Create: func(ctx context.Context, name string, wish store.Wishes) (store.Writer, error) {
		w, err := f.CreateAs(ctx, name, wish)
		return forwardWriter{w}, err
	}}
}

type forwardWriter struct{ store.Writer }

func (forwardWriter) Can() store.WriterAbilities { return store.WriterAbilities{} }

func TestStagedWriterPatchesIfTheOneBelowDoes(t *testing.T) {
	for _, c := range []struct {
		name  string
		st    func(*storetest.Mem) store.Store
		limit int64
		want  string
	}{
		{"which patches", func(m *storetest.Mem) store.Store { return m }, math.MaxInt64, "01ab456789"},
		{"which does not", func(m *storetest.Mem) store.Store { return forward{m} }, 0, "0123456789"},
	} {
		mem := &storetest.Mem{}
		stage := storekit.NewStage(c.st(mem))
		w, err := storekit.Create(t.Context(), stage, "x")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte("0123456789")); err != nil {
			t.Fatal(err)
		}
		can := w.Can()
		if can.PatchLimit != c.limit || (can.Patch != nil) != (c.limit > 0) || (can.Rewind != nil) != (c.limit > 0) {
			t.Fatalf("%s: expected a limit of %d, found %d; patches: %v; rewinds: %v", c.name, c.limit, can.PatchLimit, can.Patch != nil, can.Rewind != nil)
		}
		if c.limit > 0 {
			if err := can.Patch(t.Context(), []byte("ab"), 2); err != nil {
				t.Errorf("%s: patch: found %v", c.name, err)
			}
		}
		info, err := w.Commit(t.Context())
		if err != nil || info.Size != 10 {
			t.Errorf("%s: commit: %+v, %v", c.name, info, err)
		}
		// What is finished waits as it is.
		_, again := w.Commit(t.Context())
		_, written := w.Write([]byte("more"))
		late := map[string]error{"commit": again, "write": written}
		if c.limit > 0 {
			late["patch"], late["rewind"] = can.Patch(t.Context(), []byte("ZZ"), 0), can.Rewind(0)
		}
		for what, err := range late {
			if err == nil {
				t.Errorf("%s: %s after commit: expected an error", c.name, what)
			}
		}
		if err := stage.Publish(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := string(mem.Get("x")); got != c.want {
			t.Errorf("%s: expected %q, found %q", c.name, c.want, got)
		}
	}
}
