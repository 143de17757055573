package storetest

import (
	"context"
	"errors"
	"sync"

	"github.com/holdall/holdall/store"
)

// Killed is a store in the cloud whose client is killed after some requests that change something. A
// new object that is appended to takes two of them.
type Killed struct {
	store.Store

	mu   sync.Mutex
	left int
	dead bool
}

// ErrKilled is the error of every request that changes something after that.
var ErrKilled = errors.New("killed")

// Kill returns st with a client that is killed after so many requests.
func Kill(st store.Store, after int) *Killed { return &Killed{Store: st, left: after} }

// Dead reports whether the client was killed.
func (k *Killed) Dead() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.dead
}

func (k *Killed) request(do func() error) error {
	k.mu.Lock()
	if k.left--; k.left < 0 {
		k.dead = true
	}
	k.mu.Unlock()
	if k.Dead() {
		return ErrKilled
	}
	return do()
}

// Can returns the abilities of the store that is killed.
func (k *Killed) Can() store.Abilities {
	can := k.Store.Can()
	return store.Abilities{
		List: can.List, ListHeaders: can.ListHeaders, Lease: can.Lease, Address: can.Address,
		Create: func(ctx context.Context, name string, wish store.Wishes) (store.Writer, error) {
			w, err := can.Create(ctx, name, wish)
			return killedWriter{w, k}, err
		},
		Append: func(ctx context.Context, name string, p []byte, at int64) error {
			var err error
			if at == 0 {
				err = k.request(func() error { return can.Append(ctx, name, nil, 0) })
			}
			if err == nil {
				err = k.request(func() error { return can.Append(ctx, name, p, at) })
			}
			return err
		},
		Remove: func(ctx context.Context, name string) error {
			return k.request(func() error { return can.Remove(ctx, name) })
		},
	}
}

type killedWriter struct {
	store.Writer
	k *Killed
}

func (w killedWriter) Can() store.WriterAbilities { return store.WriterAbilities{} }

func (w killedWriter) Commit(ctx context.Context) (info store.Info, err error) {
	err = w.k.request(func() error {
		info, err = w.Writer.Commit(ctx)
		return err
	})
	return info, err
}
