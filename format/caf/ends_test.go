package caf

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storetest"
)

// A source that breaks off after one byte, on a store that cannot take it back,
// must not leave an archive whose ends could be meant inclusive.
func TestOneDeadByteDoesNotMakeEndsAmbiguous(t *testing.T) {
	m := &storetest.Mem{}
	w, err := create(t.Context(), noRewind{m}, "x.caf", format.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Abort()
	big := strings.Repeat("x", 3*128<<10)
	if err := w.Add(t.Context(), format.Entry{Name: "whole", Size: int64(len(big))}, strings.NewReader(big)); err != nil {
		t.Fatal(err)
	}
	a := w.(*archiveWriter)
	if err := a.Flush(); err != nil {
		t.Fatal(err)
	}
	a.Block = -1 // nothing is gathered from here: the byte goes out at once
	broken := io.MultiReader(strings.NewReader("y"), iotest.ErrReader(errors.New("broken")))
	if err := w.Add(t.Context(), format.Entry{Name: "part", Size: 9}, broken); err == nil {
		t.Fatal("a broken source was taken")
	}
	if _, err := w.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if b := m.Get("x.caf"); b[3*128<<10] != 'y' {
		t.Fatal("the dead byte is not there: nothing was tested")
	}
	r, err := open(t.Context(), m, "x.caf", format.OpenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if e, err := r.Lookup(t.Context(), "whole"); err != nil || e.Fault != nil || e.Size != int64(len(big)) {
		t.Errorf("%+v, %v", e, err)
	}
}

// noRewind is a store whose writers cannot go back, as a bucket's cannot.
type noRewind struct{ *storetest.Mem }

func (s noRewind) Can() store.Abilities { return store.Abilities{Create: s.create} }

func (s noRewind) create(ctx context.Context, name string, wish store.Wishes) (store.Writer, error) {
	w, err := s.Mem.CreateAs(ctx, name, wish)
	return onlyWriter{w}, err
}

type onlyWriter struct{ store.Writer }

func (onlyWriter) Can() store.WriterAbilities { return store.WriterAbilities{} }
