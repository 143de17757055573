package sstable

import (
	"container/list"
	"context"
	"io/fs"
	"sync"
)

// An lru holds the values that were used last. Its user sees to its limit.
type lru[K comparable, V interface{ memory() int64 }] struct {
	limit int64
	held  int64
	used  list.List // of kept, the most recently used in front
	at    map[K]*list.Element
}

type kept[K, V any] struct {
	k K
	v V
}

func (c *lru[K, V]) get(k K) (v V) {
	if e := c.at[k]; e != nil {
		c.used.MoveToFront(e)
		v = e.Value.(*kept[K, V]).v
	}
	return v
}

func (c *lru[K, V]) put(k K, v V) {
	if c.at == nil {
		c.at = map[K]*list.Element{}
	}
	c.at[k] = c.used.PushFront(&kept[K, V]{k, v})
	c.held += v.memory()
}

func (c *lru[K, V]) pop() V {
	old := c.used.Remove(c.used.Back()).(*kept[K, V])
	delete(c.at, old.k)
	c.held -= old.v.memory()
	return old.v
}

// A blockCache holds decoded data blocks. It may be used in parallel.
type blockCache struct {
	mu sync.Mutex
	lru[blockKey, *block]
}

type blockKey struct {
	t   *table
	off uint64
}

func (c *blockCache) get(t *table, off uint64) *block {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.lru.get(blockKey{t, off})
}

func (c *blockCache) put(t *table, off uint64, b *block) {
	c.mu.Lock()
	defer c.mu.Unlock()
	k := blockKey{t, off}
	if c.at[k] != nil || b.memory() > c.limit {
		return
	}
	for c.lru.put(k, b); c.held > c.limit; {
		c.pop()
	}
}

// maxOpenTables limits how many objects, which may be files, are kept open.
const maxOpenTables = 200

// tables keeps tables open, so that indexes take a limited amount of memory. It may be used in
// parallel.
type tables struct {
	mu sync.Mutex
	lru[*table, *openTable]
	closed bool
}

// acquire returns an open table for reading, until it is released.
func (db *DB) acquire(ctx context.Context, t *table) (*openTable, error) {
	o, err := db.tables.hold(t, nil)
	if o != nil || err != nil {
		return o, err
	}
	if o, err = db.load(ctx, t); err != nil {
		return nil, err
	}
	return db.tables.hold(t, o)
}

// hold returns a table if it is open, otherwise mine, if there is one.
func (c *tables) hold(t *table, mine *openTable) (*openTable, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	o := c.get(t)
	if mine != nil && (o != nil || c.closed) {
		mine.obj.Close() // another goroutine was faster
	}
	switch {
	case c.closed:
		return nil, fs.ErrClosed
	case o == nil && mine == nil:
		return nil, nil
	case o == nil:
		o = mine
		o.refs++
		c.put(t, o)
		for c.used.Len() > 1 && (c.held > c.limit || c.used.Len() > maxOpenTables) {
			c.pop().release()
		}
	}
	o.refs++
	return o, nil
}

func (c *tables) release(o *openTable) {
	c.mu.Lock()
	defer c.mu.Unlock()
	o.release()
}

// close closes the tables that are not in use. The others are closed when their users release
// them.
func (c *tables) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.closed = true; c.used.Len() > 0; {
		c.pop().release()
	}
}

func (o *openTable) release() {
	if o.refs--; o.refs == 0 {
		o.obj.Close()
	}
}
