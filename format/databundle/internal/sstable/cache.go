package sstable

import (
	"container/list"
	"context"
	"io/fs"
	"sync"
)

// A blockCache holds decoded data blocks, the most recently used ones. It may be
// used in parallel.
type blockCache struct {
	limit int64
	mu    sync.Mutex
	held  int64
	used  list.List // of *cachedBlock, the most recently used in front
	at    map[blockKey]*list.Element
}

type blockKey struct {
	t   *table
	off uint64
}

type cachedBlock struct {
	blockKey
	b *block
}

func (c *blockCache) get(t *table, off uint64) *block {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.at[blockKey{t, off}]
	if e == nil {
		return nil
	}
	c.used.MoveToFront(e)
	return e.Value.(*cachedBlock).b
}

func (c *blockCache) put(t *table, off uint64, b *block) {
	c.mu.Lock()
	defer c.mu.Unlock()
	k := blockKey{t, off}
	if c.at[k] != nil || b.memory() > c.limit {
		return
	}
	if c.at == nil {
		c.at = map[blockKey]*list.Element{}
	}
	c.at[k] = c.used.PushFront(&cachedBlock{k, b})
	for c.held += b.memory(); c.held > c.limit; {
		e := c.used.Back()
		old := c.used.Remove(e).(*cachedBlock)
		delete(c.at, old.blockKey)
		c.held -= old.b.memory()
	}
}

// maxOpenTables bounds how many objects, which may be files, are held open.
const maxOpenTables = 200

// tables holds tables open, the most recently used ones, so that indexes take a
// bounded amount of memory. It may be used in parallel.
type tables struct {
	tableOpener
	limit  int64
	mu     sync.Mutex
	held   int64
	used   list.List // of *openTable, the most recently used in front
	closed bool
	at     map[*openTable]*list.Element
}

// acquire returns a table open for reading, until it is released.
func (c *tables) acquire(ctx context.Context, t *table) (*openTable, error) {
	c.mu.Lock()
	o, err := c.hold(t)
	c.mu.Unlock()
	if o != nil || err != nil {
		return o, err
	}
	mine, err := c.load(ctx, t)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	o, err = c.hold(t)
	var evicted []*openTable
	if o != nil || err != nil {
		evicted = append(evicted, mine) // somebody else was faster
	} else {
		o, evicted = mine, c.insert(mine)
	}
	c.mu.Unlock()
	for _, e := range evicted {
		e.obj.Close()
	}
	return o, err
}

// hold and insert are for those who hold the lock.
func (c *tables) hold(t *table) (*openTable, error) {
	if c.closed {
		return nil, fs.ErrClosed
	}
	if t.open == nil {
		return nil, nil
	}
	t.open.refs++
	c.used.MoveToFront(c.at[t.open])
	return t.open, nil
}

// insert returns which tables nobody uses any more.
func (c *tables) insert(o *openTable) (closable []*openTable) {
	if c.at == nil {
		c.at = map[*openTable]*list.Element{}
	}
	o.refs = 1
	o.t.open = o
	c.at[o] = c.used.PushFront(o)
	c.held += o.memory()
	for c.used.Len() > 1 && (c.held > c.limit || c.used.Len() > maxOpenTables) {
		if old := c.drop(c.used.Back()); old.refs == 0 {
			closable = append(closable, old)
		}
	}
	return closable
}

func (c *tables) drop(e *list.Element) *openTable {
	o := c.used.Remove(e).(*openTable)
	delete(c.at, o)
	c.held -= o.memory()
	o.t.open, o.gone = nil, true
	return o
}

func (c *tables) release(o *openTable) {
	c.mu.Lock()
	o.refs--
	last := o.gone && o.refs == 0
	c.mu.Unlock()
	if last {
		o.obj.Close()
	}
}

// close closes what nobody uses, and lets the rest be closed by whoever does.
func (c *tables) close() {
	c.mu.Lock()
	c.closed = true
	var closable []*openTable
	for c.used.Len() > 0 {
		if o := c.drop(c.used.Back()); o.refs == 0 {
			closable = append(closable, o)
		}
	}
	c.mu.Unlock()
	for _, o := range closable {
		o.obj.Close()
	}
}
