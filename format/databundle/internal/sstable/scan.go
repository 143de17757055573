package sstable

import (
	"bytes"
	"context"
	"fmt"
	"iter"
	"slices"
)

// Scan yields the rows from key from up to but not including key to, in order; nil means the
// beginning or the end. A row is valid until the next one. An error is the last element.
func (db *DB) Scan(ctx context.Context, from, to []byte) iter.Seq2[Row, error] {
	return Merged(ctx, []*DB{db}, from, to)
}

// Merged yields the rows of several directories as Scan does for one. If several directories have
// a key, the last one counts. A table is open while its keys are yielded, and reads ahead as far
// as there is memory for all of them.
func Merged(ctx context.Context, all []*DB, from, to []byte) iter.Seq2[Row, error] {
	return func(yield func(Row, error) bool) {
		m := merge{ctx: ctx, from: from, to: to}
		defer m.close()
		rank := 0
		for _, db := range slices.Backward(all) {
			if len(db.mem.rows) > 0 {
				m.add(&stream{rank: rank, it: &memIter{&db.mem, db.mem.search(from) - 1}})
			}
			for _, g := range db.groups {
				rank++
				if !g.overlaps {
					m.add(&stream{rank: rank, tables: g.tables, open: db.iterate})
					continue
				}
				for i := range g.tables {
					m.add(&stream{rank: rank, order: i, tables: g.tables[i : i+1], open: db.iterate})
				}
			}
			rank++
		}
		m.run(yield)
	}
}

// A rowIter iterates over the rows of one table, or of logs, in order. The function that makes it
// decides where it begins and ends.
type rowIter interface {
	next(ctx context.Context) (bool, error)
	at() (key []byte, trailer uint64, val []byte) // of the row; the key is the user's
	close()
}

// A merge returns the newest row of each key of its streams. If several streams have rows of a
// key, the newest is the one of the stream with the lowest rank, then the one with the highest
// sequence number, then the one of the stream with the lowest order.
//
// A stream of tables is at the smallest key of its next table before that table is opened. It
// opens the table only when that key is the smallest of all. So tables that do not overlap are
// open one at a time.
type merge struct {
	ctx      context.Context
	from, to []byte
	heap     []*stream
	last     []byte // user key
	any      bool   // last is one
	ahead    int    // how far each stream reads ahead
}

type stream struct {
	rank, order int

	// The current row. Before a table is opened, expected is set: then the key is not a row, but
	// the smallest key that may have one.
	key      []byte // user key
	trailer  uint64
	val      []byte
	expected bool

	it     rowIter
	tables []*table // still to come
	// open begins to read a table. The first call of next moves to the first row.
	open func(*table, *merge) (rowIter, error)
}

func (s *stream) before(t *stream) bool {
	if c := bytes.Compare(s.key, t.key); c != 0 {
		return c < 0
	}
	if s.rank != t.rank {
		return s.rank < t.rank
	}
	if a, b := s.trailer>>8, t.trailer>>8; a != b {
		return a > b
	}
	return s.order < t.order
}

// streamMemory is how many bytes all streams together may read ahead.
const streamMemory = 8 << 20

// add adds a stream that is at its first row, or before it.
func (m *merge) add(s *stream) {
	for len(s.tables) > 0 && bytes.Compare(userKey(s.tables[0].largest), m.from) < 0 {
		s.tables = s.tables[1:]
	}
	ok := m.expect(s)
	if s.it != nil {
		ok, _ = m.advance(s) // in memory
	}
	if ok {
		m.heap = append(m.heap, s)
	}
}

// run merges until the end, or until yield returns false.
func (m *merge) run(yield func(Row, error) bool) {
	m.ahead = min(max(streamMemory/max(1, len(m.heap)), firstRun), readAhead)
	for i := len(m.heap)/2 - 1; i >= 0; i-- {
		m.sift(i)
	}
	for n := 1; len(m.heap) > 0; n++ {
		s := m.heap[0]
		if n&0xfff == 0 && m.ctx.Err() != nil {
			yield(Row{}, context.Cause(m.ctx))
			return
		}
		if m.to != nil && bytes.Compare(s.key, m.to) >= 0 {
			return
		}
		if !s.expected && (!m.any || !bytes.Equal(s.key, m.last)) {
			m.last, m.any = append(m.last[:0], s.key...), true
			if byte(s.trailer) != kindDeleted && !yield(Row{s.key, s.val}, nil) {
				return
			}
		}
		ok, err := m.advance(s)
		if err != nil {
			yield(Row{}, err)
			return
		}
		if !ok {
			n := len(m.heap) - 1
			m.heap[0] = m.heap[n]
			m.heap = m.heap[:n]
		}
		m.sift(0)
	}
}

// advance moves to the next row of a stream, or to where its next table may begin.
func (m *merge) advance(s *stream) (ok bool, err error) {
	if s.expected {
		if s.it, err = s.open(s.tables[0], m); err != nil {
			return false, err
		}
		s.tables, s.expected = s.tables[1:], false
	}
	if ok, err = s.it.next(m.ctx); err != nil {
		return false, err
	}
	if ok {
		s.key, s.trailer, s.val = s.it.at()
		return true, nil
	}
	s.it.close()
	s.it = nil
	return m.expect(s), nil
}

// expect moves a stream to where its next table may begin.
func (m *merge) expect(s *stream) bool {
	if len(s.tables) == 0 {
		return false
	}
	s.key, s.trailer, s.val, s.expected = userKey(s.tables[0].smallest), maxTrailer, nil, true
	if bytes.Compare(s.key, m.from) < 0 {
		s.key = m.from
	}
	return true
}

func (m *merge) sift(i int) {
	h := m.heap
	for {
		c := 2*i + 1
		if c >= len(h) {
			return
		}
		if c+1 < len(h) && h[c+1].before(h[c]) {
			c++
		}
		if !h[c].before(h[i]) {
			return
		}
		h[i], h[c] = h[c], h[i]
		i = c
	}
}

func (m *merge) close() {
	for _, s := range m.heap {
		if s.it != nil {
			s.it.close()
		}
	}
}

const (
	// keptBlocks is how many blocks of a scan go into the cache. Blocks of a short scan, as of a
	// single folder, are read again. Those of a long one would only displace others.
	keptBlocks = 16
	// firstRun is the size of the first read of a scan. Each further read is four times as large
	// as the previous one.
	firstRun = 16 << 10
)

// A tableIter iterates over the rows of a table, starting at a key.
type tableIter struct {
	db       *DB
	o        *openTable
	from, to []byte // user keys; to is where the reader will stop, nil if nowhere
	ahead    int

	index blockIter
	row   blockIter
	last  []byte // what the index has for the block before, nil at the first
	begun bool   // the first row of this block was met
	first bool   // of the table: nothing was met

	n     int   // blocks met
	own   block // memory for blocks that do not go to the cache
	w     window
	grown int // what the last read requested
}

func (db *DB) iterate(t *table, m *merge) (rowIter, error) {
	o, err := db.acquire(m.ctx, t)
	if err != nil {
		return nil, err
	}
	it := &tableIter{db: db, o: o, from: m.from, to: m.to, ahead: m.ahead, first: true,
		w: window{obj: o.obj, name: o.name, size: o.size, buf: o.whole}}
	it.index.reset(&o.index)
	return it, nil
}

func (t *tableIter) close() { t.db.tables.release(t.o) }

func (t *tableIter) at() (key []byte, trailer uint64, val []byte) { return t.row.row() }

// next moves to the next row, or to the first one that is not below t.from.
func (t *tableIter) next(ctx context.Context) (bool, error) {
	if !t.first {
		return t.step(ctx)
	}
	t.first = false
	smallest := t.o.t.smallest
	if bytes.Compare(t.from, userKey(smallest)) <= 0 {
		ok, err := t.step(ctx)
		if ok && compareInternal(t.row.key, smallest) < 0 {
			return false, t.disorder("table: the first key %q is below the smallest that the manifest has", clip(t.row.key))
		}
		return ok, err
	}
	if !t.index.seek(t.from) {
		return false, nil
	}
	if err := t.load(ctx); err != nil {
		return false, err
	}
	if t.row.seek(t.from) {
		return true, nil
	}
	return t.step(ctx)
}

func (t *tableIter) step(ctx context.Context) (bool, error) {
	for t.row.b == nil || !t.row.advance() {
		if t.row.b != nil && len(t.row.key) > 0 {
			if compareInternal(t.row.key, t.index.key) > 0 {
				return false, t.disorder("block: its last key %q is above %q, which the index has", clip(t.row.key), clip(t.index.key))
			}
			t.last = append(t.last[:0], t.index.key...)
		}
		if !t.index.advance() {
			if t.row.b != nil && len(t.row.key) > 0 && compareInternal(t.row.key, t.o.t.largest) > 0 {
				return false, t.disorder("table: the last key %q is above the largest that the manifest has", clip(t.row.key))
			}
			return false, nil
		}
		if err := t.load(ctx); err != nil {
			return false, err
		}
	}
	if t.begun {
		return true, nil
	}
	t.begun = true
	if t.last != nil && compareInternal(t.row.key, t.last) <= 0 {
		return false, t.disorder("block: its first key %q is not above %q, which the index has for the block before", clip(t.row.key), clip(t.last))
	}
	return true, nil
}

func (t *tableIter) disorder(format string, a ...any) error {
	return corruptf(-1, format, a...).at(t.o.name, int64(t.index.handle().off))
}

// load loads the block at the current position of the index.
func (t *tableIter) load(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%s: %w", t.o.name, err)
	}
	h := t.index.handle()
	t.begun = false
	if b := t.db.blocks.get(t.o.t, h.off); b != nil {
		t.row.reset(b)
		return nil
	}
	raw, err := t.stored(ctx, h)
	if err != nil {
		return err
	}
	t.n++
	keep := t.n <= keptBlocks
	var dst []byte
	if !keep {
		dst = t.own.entries
	}
	b, buf, f := readBlock(dst, raw, maxBlock, roleData)
	if f != nil {
		return f.at(t.o.name, int64(h.off))
	}
	if keep {
		kept := b
		t.db.blocks.put(t.o.t, h.off, &kept)
		t.row.reset(&kept)
		return nil
	}
	t.own = b
	t.own.entries = buf[:len(b.entries)]
	t.row.reset(&t.own)
	return nil
}

// stored returns a block with its trailer. With it, it reads the blocks that follow before the
// end of the scan, up to a length that grows.
func (t *tableIter) stored(ctx context.Context, h handle) ([]byte, error) {
	if !t.w.has(int64(h.off), int64(h.end())) {
		t.grown = min(max(firstRun, 4*t.grown), t.ahead)
		end := h.end()
		for p := t.index.clone(); end-h.off < uint64(t.grown); {
			if t.to != nil && bytes.Compare(userKey(p.key), t.to) >= 0 || !p.advance() {
				break
			}
			next := p.handle()
			if next.off != end || next.end()-h.off > uint64(t.grown) {
				break
			}
			end = next.end()
		}
		t.w.ahead = int(end - h.off)
	}
	return t.w.at(ctx, int64(h.off), int(h.size+blockTrailerLen))
}
