package oak

import (
	"context"
	"errors"

	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storetest"
)

var errFull = errors.New("no room is left")

// A fullStore has room for so many bytes more.
type fullStore struct {
	*storetest.Mem
	left int
}

func (s *fullStore) Can() store.Abilities { return store.Abilities{Create: s.create} }

func (s *fullStore) create(ctx context.Context, name string, wish store.Wishes) (store.Writer, error) {
	w, err := s.Mem.CreateAs(ctx, name, wish)
	return &fullWriter{w, s}, err
}

type fullWriter struct {
	store.Writer
	s *fullStore
}

func (w *fullWriter) Can() store.WriterAbilities { return store.WriterAbilities{} }

func (w *fullWriter) Write(p []byte) (int, error) {
	if w.s.left -= len(p); w.s.left < 0 {
		return 0, errFull
	}
	return w.Writer.Write(p)
}
