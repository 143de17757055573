package sstable

import (
	"bytes"
	"context"
	"errors"
	"io/fs"

	"github.com/holdall/holdall/format/kit"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storekit"
)

const (
	// tailLen is how many bytes of the end of a table are read first: the footer and, except in
	// large tables, the index.
	tailLen = 64 << 10
	// wholeLen is the size up to which a table is read completely, and the maximum size of the
	// first read.
	wholeLen = 1 << 20
)

// A table is a table of a version.
type table struct {
	num               uint64
	level             int
	size              int64
	smallest, largest []byte // internal keys
}

// firstRead returns how many bytes of the end of a table are read first: all of a small table,
// and of others about the size of their index.
func firstRead(size int64) int64 {
	if size <= wholeLen {
		return size
	}
	return min(max(tailLen, size/64), wholeLen)
}

// An openTable is the index of a table, and its bytes if they are few.
type openTable struct {
	t     *table
	name  string
	obj   store.Object
	size  int64
	foot  footer
	index block
	whole []byte // the table, or nil

	refs int // of readers, and of tables, whose mu guards it
}

func (o *openTable) memory() int64 { return o.index.memory() + int64(len(o.whole)) + 512 }

// object opens the object of a table and reads its end into a new slice of at
// most want bytes.
func (db *DB) object(ctx context.Context, num uint64, want int64) (name string, obj store.Object, tail []byte, size int64, err error) {
	first := int(db.suffix.Load())
	for i := range tableSuffixes {
		which := (first + i) % len(tableSuffixes)
		name = Join(db.dir, tableName(num, tableSuffixes[which]))
		obj, tail, size, err = kit.OpenPart(ctx, db.st, name, int(want), storekit.ReadTail)
		if err == nil {
			db.suffix.Store(int32(which))
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return name, obj, tail, size, readError(name, -1, err)
		}
	}
	name = Join(db.dir, tableName(num, tableSuffixes[first]))
	return name, nil, nil, 0, readError(name, -1, err)
}

// load opens a table and reads its footer and index.
func (db *DB) load(ctx context.Context, t *table) (_ *openTable, err error) {
	name, obj, tail, size, err := db.object(ctx, t.num, firstRead(t.size))
	if err != nil {
		return nil, err
	}
	if size != t.size {
		err = corruptf(-1, "table: %d bytes, expected %d as the manifest says", size, t.size).at(name, -1)
	}
	var o *openTable
	if err == nil {
		o, err = openTail(ctx, obj, name, size, tail)
	}
	if err != nil {
		obj.Close()
		return nil, err
	}
	o.t = t
	return o, nil
}

// openTail reads the footer and index of a table of size bytes. tail is its last bytes.
func openTail(ctx context.Context, obj store.Object, name string, size int64, tail []byte) (*openTable, error) {
	if len(tail) < footerLen {
		return nil, corruptf(-1, "table: %d bytes, expected at least %d", size, footerLen).at(name, -1)
	}
	o := &openTable{name: name, obj: obj, size: size}
	foot, f := parseFooter(tail[len(tail)-footerLen:], o.size)
	if f != nil {
		return nil, f.at(name, o.size-footerLen)
	}
	o.foot = foot
	raw := make([]byte, foot.index.size+blockTrailerLen)
	from := o.size - int64(len(tail)) // of what is in tail
	at := int64(foot.index.off)
	missing := min(max(0, from-at), int64(len(raw)))
	if missing > 0 {
		if err := obj.ReadAt(ctx, raw[:missing], at); err != nil {
			return nil, readError(name, at, err)
		}
	}
	if missing < int64(len(raw)) {
		copy(raw[missing:], tail[at+missing-from:])
	}
	if o.index, _, f = readBlock(nil, raw, maxIndex, roleIndex); f == nil {
		f = o.checkEnd()
	}
	if f != nil {
		return nil, f.at(name, at)
	}
	if from == 0 {
		o.whole = tail
	}
	return o, nil
}

// checkEnd checks that the blocks of the index end before the footer. That they
// ascend was checked when it was parsed.
func (o *openTable) checkEnd() *Error {
	if o.index.count == 0 {
		return nil
	}
	last := blockIter{b: &o.index, next: o.index.restart(len(o.index.restarts)/4 - 1)}
	for last.advance() {
	}
	if h := last.handle(); !h.within(uint64(o.size - footerLen)) {
		return corruptf(-1, "index: last block at %d of %d bytes, expected it within %d", h.off, h.size, o.size-footerLen)
	}
	return nil
}

// readBlock reads a data block into newly allocated memory.
func (o *openTable) readBlock(ctx context.Context, h handle) (*block, error) {
	raw, err := o.stored(ctx, h)
	if err != nil {
		return nil, err
	}
	b, _, f := readBlock(nil, raw, maxBlock, roleData)
	if f != nil {
		return nil, f.at(o.name, int64(h.off))
	}
	return &b, nil
}

func (o *openTable) stored(ctx context.Context, h handle) ([]byte, error) {
	if o.whole != nil {
		return o.whole[h.off:h.end()], nil
	}
	raw := make([]byte, h.size+blockTrailerLen)
	if err := o.obj.ReadAt(ctx, raw, int64(h.off)); err != nil {
		return nil, readError(o.name, int64(h.off), err)
	}
	return raw, nil
}

// find finds the newest row of a user key.
func (o *openTable) find(ctx context.Context, blocks *blockCache, key []byte) (hit, error) {
	index := blockIter{b: &o.index}
	for ok := index.seek(key); ok; ok = index.advance() {
		h := index.handle()
		b := blocks.get(o.t, h.off)
		if b == nil {
			var err error
			if b, err = o.readBlock(ctx, h); err != nil {
				return hit{}, err
			}
			blocks.put(o.t, h.off, b)
		}
		row := blockIter{b: b}
		if row.seek(key) {
			if !bytes.Equal(userKey(row.key), key) {
				return hit{}, nil
			}
			return hit{true, trailer(row.key), row.val}, nil
		}
		// Only where the index has the very key may the next block begin with it.
		if !bytes.Equal(userKey(index.key), key) {
			break
		}
	}
	return hit{}, nil
}

// A hit is the newest row of a key in one place.
type hit struct {
	ok      bool
	trailer uint64
	val     []byte // shared with a cache
}
