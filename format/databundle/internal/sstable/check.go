package sstable

import (
	"bytes"
	"context"
	"errors"
)

// A Problem is something that [DB.Check] or [Salvage] found.
type Problem struct {
	Err  *Error
	Rows bool // rows may be lost
}

// Check reads every block of every table, and reports what is wrong and what was noted when the
// directory was opened. It continues after each finding. It returns an error only if the store
// fails.
func (db *DB) Check(ctx context.Context, report func(Problem)) error {
	for _, p := range db.notes {
		report(p)
	}
	for _, g := range db.groups {
		for _, t := range g.tables {
			if err := db.checkTable(ctx, t, report); err != nil {
				return err
			}
		}
	}
	return nil
}

func (db *DB) checkTable(ctx context.Context, t *table, report func(Problem)) error {
	o, err := db.load(ctx, t)
	if e, ok := errors.AsType[*Error](err); ok {
		report(Problem{e, true})
		return nil
	}
	if err != nil {
		return err
	}
	defer o.obj.Close()
	w := &window{obj: o.obj, name: o.name, size: o.size, ahead: readAhead, buf: o.whole}
	k := tableCheck{walk: walk{w: w, index: blockIter{b: &o.index}}, o: o, report: report}
	return k.run(ctx)
}

// A walk visits the data blocks of a table by its index.
type walk struct {
	w     *window
	index blockIter
	above []byte // what the index has for the block before, nil at the first
	b     block
	buf   []byte // decoded
}

// next returns the next block, valid until the next call; nil at the end. An *Error means
// that it cannot be read, and the next one may be.
func (k *walk) next(ctx context.Context) (*block, error) {
	if len(k.index.key) > 0 {
		k.above = append(k.above[:0], k.index.key...)
	}
	if !k.index.advance() {
		return nil, nil
	}
	var err error
	k.b, err = k.block(ctx, k.index.handle(), maxBlock, roleData)
	return &k.b, err
}

// block reads, checks and parses one block.
func (k *walk) block(ctx context.Context, h handle, limit int, r role) (b block, err error) {
	raw, err := k.w.at(ctx, int64(h.off), int(h.size+blockTrailerLen))
	if err != nil {
		return block{}, err
	}
	var f *Error
	if b, k.buf, f = readBlock(k.buf, raw, limit, r); f != nil {
		return block{}, f.at(k.w.name, int64(h.off))
	}
	return b, nil
}

type tableCheck struct {
	walk
	o      *openTable
	report func(Problem)

	last []byte // the last key met
	rows int64
	bad  bool // a block could not be read
}

func (k *tableCheck) run(ctx context.Context) error {
	t := k.o.t
	for b, err := k.next(ctx); b != nil; b, err = k.next(ctx) {
		e, damaged := errors.AsType[*Error](err)
		switch {
		case damaged:
			k.bad = true
			k.report(Problem{e, true})
		case err != nil:
			return err
		case b.count > 0:
			k.data(b)
		}
	}
	if !k.bad && !bytes.Equal(k.last, t.largest) {
		k.disorder(k.o.foot.index, "table: the last key is %q, expected %q as the manifest says", clip(k.last), clip(t.largest))
	}
	return k.meta(ctx)
}

// data checks the rows of a block against the index and the manifest.
func (k *tableCheck) data(b *block) {
	h, t := k.index.handle(), k.o.t
	row := blockIter{b: b}
	row.advance()
	switch {
	case k.above == nil && !bytes.Equal(row.key, t.smallest):
		k.disorder(h, "table: the first key is %q, expected %q as the manifest says", clip(row.key), clip(t.smallest))
	case k.above != nil && compareInternal(row.key, k.above) <= 0:
		k.disorder(h, "block: its first key %q is not above %q, which the index has for the block before", clip(row.key), clip(k.above))
	}
	for row.advance() {
	}
	k.rows += int64(b.count)
	k.last = append(k.last[:0], row.key...)
	if compareInternal(k.last, k.index.key) > 0 {
		k.disorder(h, "block: its last key %q is above %q, which the index has", clip(k.last), clip(k.index.key))
	}
}

func (k *tableCheck) disorder(h handle, format string, a ...any) {
	k.report(Problem{Err: corruptf(-1, format, a...).at(k.o.name, int64(h.off))})
}

// propertiesName is the key of the metaindex under which RocksDB and dacha store the number of
// rows.
const propertiesName = "rocksdb.properties"

// meta checks what a table contains besides rows. Nothing depends on that.
func (k *tableCheck) meta(ctx context.Context) error {
	at := k.o.foot.meta
	b, err := k.metaBlock(ctx, at)
	if err != nil {
		return err
	}
	type named struct {
		name string
		h    handle
	}
	var blocks []named
	for it := (blockIter{b: &b}); it.advance(); {
		f := fields{b: it.val}
		if h := f.handle(); f.bad || !h.within(uint64(k.o.size-footerLen)) || h.size > maxIndex {
			k.disorder(at, "metaindex: %q is at no place of the table", clip(it.key))
		} else {
			blocks = append(blocks, named{string(it.key), h})
		}
	}
	for _, n := range blocks {
		if n.name != propertiesName {
			raw, err := k.w.at(ctx, int64(n.h.off), int(n.h.size+blockTrailerLen))
			if err != nil {
				return err
			}
			if f := checkBlock(raw); f != nil {
				k.report(Problem{Err: f.at(k.o.name, int64(n.h.off))})
			}
			continue
		}
		b, err := k.metaBlock(ctx, n.h)
		if err != nil {
			return err
		}
		for it := (blockIter{b: &b}); it.advance(); {
			f := fields{b: it.val}
			if string(it.key) != "rocksdb.num.entries" {
				continue
			}
			if n := f.number(); !f.bad && !k.bad && n != uint64(k.rows) {
				k.disorder(at, "properties: %d rows, expected %d", k.rows, n)
			}
		}
	}
	return nil
}

// metaBlock reads a block that has no rows. What is wrong with it is reported, and then
// it has no entries; errors of the store are returned.
func (k *tableCheck) metaBlock(ctx context.Context, h handle) (block, error) {
	b, err := k.block(ctx, h, maxIndex, roleMeta)
	if e, ok := errors.AsType[*Error](err); ok {
		k.report(Problem{Err: e})
		err = nil
	}
	return b, err
}
