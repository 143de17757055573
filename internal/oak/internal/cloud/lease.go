package cloud

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"github.com/holdall/holdall/store"
)

// Leased is a store of which Oak's lock is held. When the lock is lost, nothing more is written.
type Leased struct {
	store.Store
	held context.Context
}

// Keeps reports whether a store has what Oak needs to keep its segments in blobs: a lock, metadata
// in listings, and blobs that are appended to.
func Keeps(st store.Store) bool {
	can := st.Can()
	return can.Lease != nil && can.ListHeaders != nil && can.Append != nil && can.Create != nil && can.Remove != nil
}

// Lease takes the lock of the store in the folder dir, unless st is leased already. The function
// release gives it back.
func Lease(ctx context.Context, st store.Store, dir string) (l *Leased, release func() error, err error) {
	if l, ok := st.(*Leased); ok {
		return l, func() error { return nil }, nil
	}
	held, release, err := st.Can().Lease(ctx, dir+lock)
	if errors.Is(err, fs.ErrExist) {
		err = fmt.Errorf("the store is open in another program, such as Oak: %w", err)
	}
	if err != nil {
		return nil, nil, err
	}
	return &Leased{st, held}, release, nil
}

// Can returns the abilities of a store whose lock is held.
func (l *Leased) Can() store.Abilities {
	can := l.Store.Can()
	return store.Abilities{
		Address: can.Address, List: can.List, ListHeaders: can.ListHeaders, OpenGrowing: can.OpenGrowing,
		Create: func(ctx context.Context, name string, wish store.Wishes) (store.Writer, error) {
			w, err := can.Create(ctx, name, wish) // which ctx outlives
			if err != nil {
				return nil, err
			}
			return leasedWriter{w, l}, nil
		},
		Append: func(ctx context.Context, name string, p []byte, at int64) error {
			return l.do(ctx, func(ctx context.Context) error { return can.Append(ctx, name, p, at) })
		},
		Remove: func(ctx context.Context, name string) error {
			return l.do(ctx, func(ctx context.Context) error { return can.Remove(ctx, name) })
		},
	}
}

// do makes a request that ends when the lock is lost.
func (l *Leased) do(ctx context.Context, request func(context.Context) error) error {
	if l.held.Err() != nil {
		return context.Cause(l.held)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(l.held, func() { cancel(context.Cause(l.held)) })()
	err := request(ctx)
	if err != nil && l.held.Err() != nil {
		err = context.Cause(l.held)
	}
	return err
}

type leasedWriter struct {
	store.Writer
	l *Leased
}

func (w leasedWriter) Can() store.WriterAbilities {
	return store.WriterAbilities{Finish: w.Writer.Can().Finish}
}

func (w leasedWriter) Commit(ctx context.Context) (info store.Info, err error) {
	err = w.l.do(ctx, func(ctx context.Context) error {
		info, err = w.Writer.Commit(ctx)
		return err
	})
	return info, err
}
