// Package cache has all readers of an archive share its objects: those that detect its format, open
// it, and read it. It caches ranges of remote objects in memory. It is below the formats, which may
// therefore open the same object and read the same bytes several times. Disks are not cached,
// because the system does that.
package cache

import (
	"container/list"
	"context"
	"io/fs"
	"iter"
	"slices"
	"sort"
	"sync"

	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storekit"
)

// maxRun is the longest read that is cached. Heads, tails, indexes and small files are often read
// again. The middle of a large file is not.
const maxRun = 1 << 20

// usual is how much memory a cache has by default.
const usual = 32 << 20

// Wrap returns st with up to limit bytes of memory. If st already is a cache, it is returned
// unchanged.
func Wrap(st store.Store, limit int64) store.Store {
	if c, ok := st.(*cached); ok {
		return c
	}
	c := &cached{Store: st, limit: limit, objs: map[string]*object{}, looked: map[string][]store.Headed{}}
	below := st.Can()
	c.can = store.Abilities{Below: below.Below, Over: below.Over, Address: below.Address, Fetch: c.fetch, OpenGrowing: c.openGrowing, Locked: below.Locked}
	if below.List != nil {
		c.can.List = c.list
	}
	if below.ListHeaders != nil {
		c.can.ListHeaders = c.listHeaders
	}
	return c
}

// Look lists the first names below a prefix, up to most. If those are all of them, the next
// listing before release is answered without a request.
func Look(ctx context.Context, st store.Store, prefix string, most int) (names []string, release func()) {
	var all []store.Headed
	whole := true
	for h, err := range storekit.ListHeaders(ctx, st, prefix) {
		if whole = err == nil && len(all) < most; !whole {
			break
		}
		all, names = append(all, h), append(names, h.Name)
	}
	c, ok := st.(*cached)
	if !ok || !whole {
		return names, func() {}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.looked[prefix] = all
	return names, func() { c.take(prefix) }
}

// take returns what Look found, once.
func (c *cached) take(prefix string) ([]store.Headed, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	all, ok := c.looked[prefix]
	delete(c.looked, prefix)
	return all, ok
}

func (c *cached) list(ctx context.Context, prefix string) iter.Seq2[store.Info, error] {
	return looked(c, prefix, storekit.List(ctx, c.Store, prefix), func(h store.Headed) store.Info { return h.Info })
}

func (c *cached) listHeaders(ctx context.Context, prefix string) iter.Seq2[store.Headed, error] {
	return looked(c, prefix, storekit.ListHeaders(ctx, c.Store, prefix), func(h store.Headed) store.Headed { return h })
}

// looked yields what Look found below a prefix, or else what the store lists.
func looked[T any](c *cached, prefix string, listed iter.Seq2[T, error], of func(store.Headed) T) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		all, ok := c.take(prefix)
		if !ok {
			listed(yield)
		}
		for _, h := range all {
			if !yield(of(h), nil) {
				return
			}
		}
	}
}

type cached struct {
	store.Store
	can   store.Abilities
	limit int64
	mu    sync.Mutex
	held  int64     // bytes of all runs
	used  list.List // of *run, the most recently used in front
	objs  map[string]*object

	looked map[string][]store.Headed // by prefix
}

// Open returns the object of that name. All readers of an archive share it, so they see the same
// version.
func (c *cached) Open(ctx context.Context, name string) (store.Object, error) {
	return c.open(name, func() (store.Object, error) { return c.Store.Open(ctx, name) })
}

// openGrowing is Open for an object that only grows, called by its first opener.
func (c *cached) openGrowing(ctx context.Context, name string) (store.Object, error) {
	return c.open(name, func() (store.Object, error) { return storekit.OpenGrowing(ctx, c.Store, name) })
}

func (c *cached) open(name string, open func() (store.Object, error)) (store.Object, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if o := c.objs[name]; o != nil {
		o.users++
		return &handle{object: o}, nil
	}
	inner, err := open()
	if err != nil {
		return nil, err
	}
	o := &object{inner: inner, c: c, name: name, users: 1}
	c.objs[name] = o
	return &handle{object: o}, nil
}

// Can returns abilities of the store below, and those of the cache.
func (c *cached) Can() store.Abilities { return c.can }

// fetch requests all wanted ranges at once. The handles keep them until release.
func (c *cached) fetch(ctx context.Context, want []store.Range) (release func()) {
	handles := make([]store.Object, len(want))
	var wg sync.WaitGroup
	for i, w := range want {
		wg.Go(func() {
			o, err := c.Open(ctx, w.Name)
			if err != nil {
				return
			}
			handles[i] = o
			_, _ = o.Can().ReadEnd(ctx, make([]byte, w.Len), w.Tail) // a later read gets the error again
		})
	}
	wg.Wait()
	return func() {
		for _, o := range handles {
			if o != nil {
				o.Close()
			}
		}
	}
}

// object is what all handles of one name share. Its fields are guarded by c.mu.
type object struct {
	inner   store.Object
	c       *cached
	name    string
	users   int
	runs    []*run // by offset
	flights []*flight
	sized   bool // something was read, so that Info costs nothing
}

type run struct {
	o    *object
	off  int64
	b    []byte
	elem *list.Element
}

func (r *run) covers(off int64, n int) bool {
	return r.off <= off && off-r.off <= int64(len(r.b)-n)
}

// flight is a range that is being fetched. Other readers of the range wait for it.
type flight struct {
	run
	done chan struct{}
	err  error
}

type handle struct {
	*object
	closed bool
}

func (h *handle) Can() store.ObjectAbilities {
	return store.ObjectAbilities{ReadEnd: h.readEnd, Inner: h.inner}
}

func (h *handle) Info(ctx context.Context) (store.Info, error) { return h.inner.Info(ctx) }

func (h *handle) Close() error {
	c := h.c
	c.mu.Lock()
	defer c.mu.Unlock()
	if h.closed {
		return nil
	}
	h.closed = true
	if h.users--; h.users > 0 {
		return nil
	}
	delete(c.objs, h.name)
	for _, r := range h.runs {
		c.drop(r)
	}
	h.runs = nil
	return h.inner.Close()
}

func (h *handle) ReadAt(ctx context.Context, p []byte, off int64) error {
	if len(p) == 0 {
		return nil
	}
	if err := h.usable(); err != nil {
		return err
	}
	if len(p) > maxRun {
		return h.inner.ReadAt(ctx, p, off)
	}
	for {
		f, mine := h.join(p, off)
		if f == nil {
			return nil
		}
		if mine {
			err := h.inner.ReadAt(ctx, f.b, off)
			if err == nil {
				copy(p, f.b)
			}
			h.land(f, err)
			return err
		}
		select {
		case <-f.done:
			if f.err == nil {
				copy(p, f.b[off-f.off:])
				return nil
			}
			// Another reader that fetched it may have been cancelled. Then try again.
			if err := context.Cause(ctx); err != nil {
				return err
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (h *handle) usable() error {
	h.c.mu.Lock()
	defer h.c.mu.Unlock()
	if h.closed {
		return &store.Error{Op: "read", Name: h.name, Off: -1, Err: fs.ErrClosed}
	}
	return nil
}

// readEnd requests the end even if the size is known, unless the range is cached: the store can
// choose the best request. The response is shared like that of any other read.
func (h *handle) readEnd(ctx context.Context, p []byte, tail bool) (int, error) {
	if err := h.usable(); err != nil {
		return 0, err
	}
	// from is where n bytes at that end begin.
	from := func(n int) (int64, error) {
		if !tail {
			return 0, nil
		}
		info, err := h.inner.Info(ctx)
		return info.Size - int64(n), err
	}
	if h.sizeKnown() {
		info, err := h.inner.Info(ctx)
		if err != nil {
			return 0, err
		}
		n := int(min(int64(len(p)), info.Size))
		off, err := from(n)
		if err != nil || n == 0 || h.known(p[:n], off) {
			return n, err
		}
	}
	read := storekit.ReadHead
	if tail {
		read = storekit.ReadTail
	}
	n, err := read(ctx, h.inner, p)
	if err != nil {
		return n, err
	}
	h.nowSized()
	off, err := from(n)
	if err == nil && n > 0 && n <= maxRun {
		h.keep(p[:n], off)
	}
	return n, err
}

// sizeKnown reports whether Info costs nothing.
func (h *handle) sizeKnown() bool {
	h.c.mu.Lock()
	defer h.c.mu.Unlock()
	return h.sized || len(h.runs) > 0
}

func (h *handle) nowSized() {
	h.c.mu.Lock()
	defer h.c.mu.Unlock()
	h.sized = true
}

// known fills p if runs cover it.
func (h *handle) known(p []byte, off int64) bool {
	h.c.mu.Lock()
	defer h.c.mu.Unlock()
	return h.fill(p, off)
}

// fill is known, for callers that hold the lock. Several runs may cover p together.
func (h *handle) fill(p []byte, off int64) bool {
	for len(p) > 0 {
		// Runs are at most maxRun long: one that covers off does not begin before that.
		i := sort.Search(len(h.runs), func(i int) bool { return h.runs[i].off > off }) - 1
		for i >= 0 && off-h.runs[i].off < maxRun && !h.runs[i].covers(off, 1) {
			i--
		}
		if i < 0 || !h.runs[i].covers(off, 1) {
			return false
		}
		r := h.runs[i]
		n := copy(p, r.b[off-r.off:])
		h.c.used.MoveToFront(r.elem)
		p, off = p[n:], off+int64(n)
	}
	return true
}

// join fills p if runs cover it. Otherwise it returns a flight that will cover it: one that is
// under way, or a new one (mine), which the caller must fetch and land.
func (h *handle) join(p []byte, off int64) (_ *flight, mine bool) {
	h.c.mu.Lock()
	defer h.c.mu.Unlock()
	if h.fill(p, off) {
		return nil, false
	}
	for _, f := range h.flights {
		if f.covers(off, len(p)) {
			return f, false
		}
	}
	return h.takeOff(off, len(p)), true
}

// takeOff adds a flight; the caller holds the lock.
func (h *handle) takeOff(off int64, n int) *flight {
	f := &flight{run: run{o: h.object, off: off, b: make([]byte, n)}, done: make(chan struct{})}
	h.flights = append(h.flights, f)
	return f
}

// keep caches bytes that were not read by ReadAt.
func (h *handle) keep(p []byte, off int64) {
	h.c.mu.Lock()
	f := h.takeOff(off, len(p))
	h.c.mu.Unlock()
	copy(f.b, p)
	h.land(f, nil)
}

func (h *handle) land(f *flight, err error) {
	c := h.c
	c.mu.Lock()
	defer c.mu.Unlock()
	h.flights = slices.DeleteFunc(h.flights, func(g *flight) bool { return g == f })
	f.err = err
	close(f.done)
	if err != nil || h.users == 0 || int64(len(f.b)) > c.limit {
		return
	}
	r := &run{o: h.object, off: f.off, b: f.b}
	i := sort.Search(len(h.runs), func(i int) bool { return h.runs[i].off > r.off })
	h.runs = slices.Insert(h.runs, i, r)
	r.elem = c.used.PushFront(r)
	c.held += int64(len(r.b))
	c.makeRoom()
}

func (c *cached) makeRoom() {
	for c.held > c.limit {
		r := c.used.Back().Value.(*run)
		r.o.runs = slices.DeleteFunc(r.o.runs, func(x *run) bool { return x == r })
		c.drop(r)
	}
}

func (c *cached) drop(r *run) {
	c.used.Remove(r.elem)
	c.held -= int64(len(r.b))
}
