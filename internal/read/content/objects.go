package content

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"sync"
	"sync/atomic"

	"github.com/holdall/holdall/internal/read/blocks"
	"github.com/holdall/holdall/internal/read/cache"
	"github.com/holdall/holdall/internal/read/outside"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storekit"
)

// objects keeps the objects of an archive open as long as the archive is open, and also the
// objects outside that it refers to.
type objects struct {
	rule   outside.Rule
	blocks *blocks.Cache         // for objects outside; may be nil
	stale  atomic.Pointer[error] // why nothing is read any more

	borrowed func(name string) store.Object // what the format holds open; may be nil
	made     func(name string) store.Object // what only the format has; may be nil

	mu sync.RWMutex
	m  map[objectKey]store.Object // nil once closed
}

type objectKey struct {
	name     string
	external bool
}

func newObjects(st store.Store, name string, external []string) *objects {
	return &objects{rule: outside.Rule{Store: st, Name: name, Allowed: external}, m: map[objectKey]store.Object{}}
}

// maxOpen is the number of objects that are kept open. A folder of blobs may have more objects than
// a process may have open files. The others are opened for each read.
const maxOpen = 256

func (x *objects) open(ctx context.Context, name string, external bool) (store.Object, error) {
	if err := x.stale.Load(); err != nil {
		return nil, *err
	}
	for _, has := range []func(string) store.Object{x.borrowed, x.made} {
		if has != nil && !external {
			if o := has(name); o != nil {
				return o, nil
			}
		}
	}
	key := objectKey{name, external}
	x.mu.RLock()
	o := x.m[key]
	x.mu.RUnlock()
	if o != nil {
		return o, nil
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if o := x.m[key]; o != nil {
		return o, nil
	}
	if x.m == nil {
		return nil, fs.ErrClosed
	}
	st, at := x.rule.Store, name
	if external {
		var err error
		if st, at, err = x.rule.Find(ctx, name); err != nil {
			return nil, err
		}
		if st != x.rule.Store {
			st = cache.Shared(blocks.Wrap(st, x.blocks), 0)
		}
	}
	if len(x.m) >= maxOpen {
		return storekit.Briefly(st, at), nil
	}
	o, err := st.Open(ctx, at)
	if err == nil {
		x.m[key] = o
	}
	return o, err
}

// Find finds an object outside to which the archive refers. Its error is errors.ErrUnsupported if
// the archive may not refer to it.
func (s *Source) Find(ctx context.Context, address string) (store.Store, string, error) {
	st, name, err := s.objects.rule.Find(ctx, address)
	return st, name, notFollowed(err)
}

// Outside opens an object outside to which the archive refers, as long as the archive is open. Its error is
// errors.ErrUnsupported if the archive may not refer to it.
func (s *Source) Outside(ctx context.Context, address string) (store.Object, error) {
	o, err := s.objects.open(ctx, address, true)
	return o, notFollowed(err)
}

func notFollowed(err error) error {
	if _, ok := errors.AsType[*outside.Error](err); ok {
		err = fmt.Errorf("%w: %w", err, errors.ErrUnsupported)
	}
	return err
}

// Stat requests an object outside to which the archive refers. Its error is errors.ErrUnsupported
// if the archive may not refer to that object.
func (s *Source) Stat(ctx context.Context, address string) (store.Info, error) {
	st, name, err := s.Find(ctx, address)
	if err != nil {
		return store.Info{}, err
	}
	return storekit.Briefly(st, name).Info(ctx)
}

// held calls do with each open object, until do returns an error.
func (x *objects) held(do func(store.Object) error) error {
	x.mu.RLock()
	defer x.mu.RUnlock()
	for _, o := range x.m {
		if err := do(o); err != nil {
			return err
		}
	}
	return nil
}

// changed returns an error that is store.ErrChanged if one of the archive's own open objects has
// been replaced or changed. From then on none of them is read.
func (x *objects) changed(ctx context.Context) error {
	x.mu.RLock()
	defer x.mu.RUnlock()
	for key, o := range x.m {
		was, err := o.Info(ctx)
		if err != nil || key.external {
			continue
		}
		now, err := storekit.Briefly(cache.Below(x.rule.Store), key.name).Info(ctx)
		if err == nil && (now.Size != was.Size || now.Version != was.Version || !now.ModTime.Equal(was.ModTime)) {
			err := fmt.Errorf("%s: %w", key.name, store.ErrChanged)
			x.stale.Store(&err)
			return err
		}
	}
	return nil
}

func (x *objects) close() error {
	x.mu.Lock()
	defer x.mu.Unlock()
	var errs []error
	for _, o := range x.m {
		errs = append(errs, o.Close())
	}
	x.m = nil
	return errors.Join(errs...)
}
