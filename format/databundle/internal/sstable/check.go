package sstable

import (
	"bytes"
	"context"
	"errors"
)

// A Problem is one thing that [DB.Check] or [Salvage] found.
type Problem struct {
	Err *Error
	Len int64 // of the bytes that are of no use, 0 if that is not known

	// Rows says that rows may be lost. Their keys lie between From and To, which
	// are included; nil is not known.
	Rows     bool
	From, To []byte
}

// Counts says what a check went through.
type Counts struct {
	Tables, Blocks int
	Rows           int64 // values, older ones of a key included
	Deletions      int64
	LogRows        int64 // the last of each key
}

// Check reads every block of every table and reports what is wrong, and what was
// noted when the directory was opened. It goes on behind what it finds; an error
// is one of the store.
func (db *DB) Check(ctx context.Context, report func(Problem)) (Counts, error) {
	c := Counts{LogRows: int64(len(db.mem.rows))}
	for _, p := range db.notes {
		report(p)
	}
	for _, g := range db.groups {
		for _, t := range g.tables {
			c.Tables++
			if err := db.checkTable(ctx, t, &c, report); err != nil {
				return c, err
			}
		}
	}
	return c, nil
}

func (db *DB) checkTable(ctx context.Context, t *table, c *Counts, report func(Problem)) error {
	o, err := db.tables.load(ctx, t)
	if e, ok := errors.AsType[*Error](err); ok {
		report(Problem{Err: e, Rows: true, From: userKey(t.smallest), To: userKey(t.largest)})
		return nil
	}
	if err != nil {
		return err
	}
	defer o.obj.Close()
	k := tableCheck{o: o, w: &window{obj: o.obj, name: o.name, size: o.size, ahead: readAhead}, report: report, c: c}
	if o.whole != nil {
		k.w.buf = o.whole
	}
	return k.run(ctx)
}

// A tableCheck goes through one table.
type tableCheck struct {
	o      *openTable
	w      *window
	report func(Problem)
	c      *Counts

	buf  []byte // decoded
	last []byte // the last key met
	rows int64
	bad  bool // a block could not be read
}

func (k *tableCheck) run(ctx context.Context) error {
	t := k.o.t
	var above []byte // what the index has for the block before
	for index := (blockIter{b: &k.o.index}); index.advance(); {
		h := index.handle()
		k.c.Blocks++
		b, err := k.block(ctx, h, maxBlock, roleData)
		e, ok := errors.AsType[*Error](err)
		switch {
		case ok:
			k.bad = true
			p := Problem{Err: e, Len: int64(h.size + blockTrailerLen), Rows: true, From: userKey(t.smallest), To: bytes.Clone(userKey(index.key))}
			if above != nil {
				p.From = bytes.Clone(userKey(above))
			}
			k.report(p)
		case err != nil:
			return err
		default:
			k.data(h, &b, above, index.key)
		}
		above = append(above[:0], index.key...)
	}
	if !k.bad && !bytes.Equal(k.last, t.largest) {
		k.disorder(int64(k.o.foot.index.off), "table: the last key is %q, expected %q as the manifest says", clip(k.last), clip(t.largest))
	}
	return k.meta(ctx)
}

// block reads, checks and parses one block. The result is good until the next.
func (k *tableCheck) block(ctx context.Context, h handle, limit int, r role) (block, error) {
	raw, err := k.w.at(ctx, int64(h.off), int(h.size+blockTrailerLen))
	if err != nil {
		return block{}, err
	}
	var f *fault
	if k.buf, f = decodeBlock(k.buf, raw, limit); f != nil {
		return block{}, k.o.fault(f, h.off)
	}
	b, f := parseBlock(k.buf, r)
	if f != nil {
		return block{}, k.o.fault(f, h.off)
	}
	return b, nil
}

// data checks the rows of a block against the index, which has above for the block
// before, and upto for this one, and against the manifest.
func (k *tableCheck) data(h handle, b *block, above, upto []byte) {
	t := k.o.t
	row := blockIter{b: b}
	for i := 0; row.advance(); i++ {
		k.rows++
		if byte(trailer(row.key)) == kindDeleted {
			k.c.Deletions++
		} else {
			k.c.Rows++
		}
		switch {
		case i > 0:
		case above != nil && compareInternal(row.key, above) <= 0:
			k.disorder(int64(h.off), "block: its first key %q is not above %q, which the index has for the block before", clip(row.key), clip(above))
		case above == nil && !bytes.Equal(row.key, t.smallest):
			k.disorder(int64(h.off), "table: the first key is %q, expected %q as the manifest says", clip(row.key), clip(t.smallest))
		}
	}
	if b.count == 0 {
		return
	}
	k.last = append(k.last[:0], row.key...)
	if compareInternal(k.last, upto) > 0 {
		k.disorder(int64(h.off), "block: its last key %q is above %q, which the index has", clip(k.last), clip(upto))
	}
}

func (k *tableCheck) disorder(off int64, format string, a ...any) {
	k.report(Problem{Err: corruptf(-1, format, a...).at(k.o.name, off)})
}

// propertiesName is the key of the metaindex under which RocksDB and dacha tell
// how many rows there are.
const propertiesName = "rocksdb.properties"

// meta checks what a table has besides rows, of which nothing depends.
func (k *tableCheck) meta(ctx context.Context) error {
	b, err := k.block(ctx, k.o.foot.meta, maxIndex, roleMeta)
	if err != nil {
		return k.metaProblem(err)
	}
	type named struct {
		name string
		h    handle
	}
	var blocks []named
	for it := (blockIter{b: &b}); it.advance(); {
		f := fields{b: it.val}
		if h := f.handle(); f.bad || !h.within(uint64(k.o.size-footerLen)) || h.size > maxIndex {
			k.disorder(int64(k.o.foot.meta.off), "metaindex: %q is at no place of the table", clip(it.key))
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
				k.report(Problem{Err: f.at(k.o.name, int64(n.h.off)), Len: int64(n.h.size + blockTrailerLen)})
			}
			continue
		}
		b, err := k.block(ctx, n.h, maxIndex, roleMeta)
		if err != nil {
			if err = k.metaProblem(err); err != nil {
				return err
			}
			continue
		}
		for it := (blockIter{b: &b}); it.advance(); {
			f := fields{b: it.val}
			if string(it.key) != "rocksdb.num.entries" {
				continue
			}
			if n := f.number(); !f.bad && !k.bad && n != uint64(k.rows) {
				k.disorder(int64(k.o.foot.meta.off), "properties: %d rows, expected %d", k.rows, n)
			}
		}
	}
	return nil
}

// metaProblem reports what is wrong with a block that has no rows; errors of the
// store are returned.
func (k *tableCheck) metaProblem(err error) error {
	e, ok := errors.AsType[*Error](err)
	if !ok {
		return err
	}
	k.report(Problem{Err: e})
	return nil
}
