package storetest

import (
	"context"
	"io/fs"
	"iter"
	"maps"
	"strings"
	"sync"

	"github.com/holdall/holdall/store"
)

// A Container is a [Mem] with the additional abilities of Azure's containers: it stores and lists
// headers, appends, and leases. Its zero value is ready to use.
type Container struct {
	Mem

	mu      sync.Mutex
	headers map[string]map[string]string
	leases  map[string]context.CancelCauseFunc
	Lists   int // number of listings with headers
}

// Can returns the abilities of a container.
func (c *Container) Can() store.Abilities {
	return store.Abilities{List: c.List, ListHeaders: c.ListHeaders, Create: c.CreateAs, Append: c.Append, Lease: c.Lease, Remove: c.Remove, RemoveAs: c.RemoveAs, Amend: c.Amend}
}

// Clone returns a container with the same objects, of which no lock is held.
func (c *Container) Clone() *Container {
	c.mu.Lock()
	defer c.mu.Unlock()
	m, n := c.Mem.Clone(), &Container{headers: maps.Clone(c.headers)}
	n.objs, n.last = m.objs, m.last
	return n
}

// SetHeaders replaces the headers of an object. Their names must be in lower case.
func (c *Container) SetHeaders(name string, headers map[string]string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.headers == nil {
		c.headers = map[string]map[string]string{}
	}
	c.headers[name] = headers
}

// CreateAs begins an object with the headers of wish.
func (c *Container) CreateAs(ctx context.Context, name string, wish store.Wishes) (store.Writer, error) {
	w, err := c.Mem.CreateAs(ctx, name, wish)
	if err != nil {
		return nil, err
	}
	headers := map[string]string{}
	for k, v := range wish.Headers {
		headers[strings.ToLower(k)] = v
	}
	return &containerWriter{w, func() { c.SetHeaders(name, headers) }}, nil
}

type containerWriter struct {
	store.Writer
	done func()
}

func (w *containerWriter) Can() store.WriterAbilities {
	can := w.Writer.Can()
	return store.WriterAbilities{WriteRange: can.WriteRange, Rewind: can.Rewind, Patch: can.Patch, PatchLimit: can.PatchLimit}
}

func (w *containerWriter) Commit(ctx context.Context) (store.Info, error) {
	info, err := w.Writer.Commit(ctx)
	if err == nil {
		w.done()
	}
	return info, err
}

// ListHeaders yields the objects whose names begin with prefix, with their headers.
func (c *Container) ListHeaders(ctx context.Context, prefix string) iter.Seq2[store.Headed, error] {
	return func(yield func(store.Headed, error) bool) {
		c.mu.Lock()
		c.Lists++
		headers := maps.Clone(c.headers)
		c.mu.Unlock()
		for info, err := range c.List(ctx, prefix) {
			h := store.Headed{Info: info, Headers: maps.Clone(headers[info.Name])}
			if h.Headers == nil {
				h.Headers = map[string]string{}
			}
			if !yield(h, err) {
				return
			}
		}
	}
}

// Append adds p to the end of an object that is at bytes long.
func (c *Container) Append(ctx context.Context, name string, p []byte, at int64) error {
	old := c.Get(name)
	err := ctx.Err()
	switch {
	case err != nil:
	case old == nil && at > 0:
		err = fs.ErrNotExist
	case int64(len(old)) != at:
		err = store.ErrChanged
	default:
		c.Put(name, append(old, p...))
	}
	return failed("append", name, -1, 0, err)
}

// Lease takes the lock of an object.
func (c *Container) Lease(ctx context.Context, name string) (context.Context, func() error, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.leases[name] != nil {
		return nil, nil, failed("lease", name, -1, 0, fs.ErrExist)
	}
	held, cancel := context.WithCancelCause(ctx)
	if c.leases == nil {
		c.leases = map[string]context.CancelCauseFunc{}
	}
	c.leases[name] = cancel
	c.Put(name, nil)
	return held, func() error {
		c.mu.Lock()
		delete(c.leases, name)
		c.mu.Unlock()
		cancel(nil)
		return c.Remove(context.WithoutCancel(ctx), name)
	}, nil
}

// Break takes the lock of an object from its holder.
func (c *Container) Break(name string, cause error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if cancel := c.leases[name]; cancel != nil {
		cancel(cause)
	}
}
