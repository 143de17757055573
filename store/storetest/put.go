package storetest

import (
	"context"
	"errors"
	"testing"

	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storekit"
)

// Put creates or replaces an object through a writer.
func Put(ctx context.Context, st store.Store, name string, content []byte) error {
	w, err := storekit.Create(ctx, st, name)
	if err != nil {
		return err
	}
	if _, err = w.Write(content); err == nil {
		_, err = w.Commit(ctx)
	}
	return errors.Join(err, w.Abort())
}

// Get returns the content of an object.
func Get(t testing.TB, st store.Store, name string) []byte {
	t.Helper()
	o, err := st.Open(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	defer o.Close()
	info, err := o.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	b := make([]byte, info.Size)
	if err := o.ReadAt(t.Context(), b, 0); err != nil {
		t.Fatal(err)
	}
	return b
}

// Open opens an object until the test ends. The test fails if it cannot be closed.
func Open(t testing.TB, st store.Store, name string) store.Object {
	t.Helper()
	o, err := st.Open(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := o.Close(); err != nil {
			t.Error(err)
		}
	})
	return o
}

// Create begins an object. If it is not committed, it is aborted when the test ends, which must
// not fail.
func Create(t testing.TB, st store.Store, name string) store.Writer {
	t.Helper()
	w, err := storekit.Create(t.Context(), st, name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.Abort(); err != nil {
			t.Errorf("abort: %v", err)
		}
	})
	return w
}
