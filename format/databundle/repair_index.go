package databundle

import (
	"bytes"
	"context"
	"errors"
	"iter"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/databundle/internal/sstable"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storekit"
)

// hasIndex reports whether there is any trace of an index.
func (m *repairer) hasIndex(ctx context.Context) (bool, error) {
	for i := range mostCopies + 1 {
		for _, err := range storekit.List(ctx, m.st, sstable.Join(m.root, indexName(i))+"/") {
			return err == nil, err
		}
	}
	return false, nil
}

// recover finds rows in a copy of the index, or in what is left of its files.
func (m *repairer) recover(ctx context.Context, damage *format.CorruptError) error {
	if m.rows != nil {
		m.rows.Close()
		m.rows = nil
	}
	for i := 1; i <= mostCopies; i++ {
		dir := indexName(i)
		open := func(ctx context.Context) (rows, error) {
			db, err := sstable.Open(ctx, m.st, sstable.Join(m.root, dir), sstable.Options{})
			return directoryRows{db}, indexError(err)
		}
		r, err := open(ctx)
		if _, damaged := errors.AsType[*format.CorruptError](err); damaged {
			continue
		}
		if err != nil {
			return err
		}
		sound := true
		if err := r.(directoryRows).Check(ctx, func(p sstable.Problem) { sound = sound && !p.Rows }); err != nil {
			return indexError(err)
		}
		if m.rows = r; sound && m.configure(ctx) == nil {
			m.reopen = open
			m.note("took the index from %s", dir)
			return nil
		}
		r.Close()
		m.rows = nil
	}
	left := salvaged{m.st, sstable.Join(m.root, indexDir), func(p sstable.Problem) {
		if p.Rows {
			m.rescue = true
			m.lose("rows of the index: %v", p.Err)
		}
	}}
	any := false
	for _, err := range left.Scan(ctx, nil, nil) {
		if err != nil {
			return err
		}
		any = true
	}
	left.report = func(sstable.Problem) {} // it has been reported
	m.rows = left
	m.reopen = func(context.Context) (rows, error) { return left, nil }
	if !any {
		if damage != nil {
			return damage
		}
		return fault(notABundle, m.name, -1, "no row of the index can be read")
	}
	if err := m.configure(ctx); err != nil {
		if _, damaged := errors.AsType[*format.CorruptError](err); !damaged {
			return err
		}
		return m.inferConfig(ctx)
	}
	return nil
}

// salvaged is what is left of an index. It is read from the beginning each time.
type salvaged struct {
	st     store.Store
	dir    string
	report func(sstable.Problem)
}

func (s salvaged) Close() error { return nil }

func (s salvaged) Get(ctx context.Context, key []byte) ([]byte, bool, error) {
	row, ok, err := first(ctx, s, key, append(bytes.Clone(key), 0))
	return bytes.Clone(row.Value), ok, err
}

func (s salvaged) Scan(ctx context.Context, from, to []byte) iter.Seq2[sstable.Row, error] {
	return func(yield func(sstable.Row, error) bool) {
		for row, err := range sstable.Salvage(ctx, s.st, s.dir, sstable.Options{}, s.report) {
			if err != nil {
				yield(row, indexError(err))
				return
			}
			if bytes.Compare(row.Key, from) < 0 {
				continue
			}
			if to != nil && bytes.Compare(row.Key, to) >= 0 || !yield(row, nil) {
				return
			}
		}
	}
}

// opened yields the existing shards that can be opened.
func (m *repairer) opened(ctx context.Context) iter.Seq2[*shard, error] {
	return func(yield func(*shard, error) bool) {
		objects, err := m.objects(ctx)
		if err != nil {
			yield(nil, err)
			return
		}
		for _, o := range objects {
			if !o.isShard {
				continue
			}
			s, err := m.shard(ctx, o.shard)
			if _, damaged := err.(*format.CorruptError); !damaged && !yield(s, err) {
				return
			}
		}
	}
}

// inferConfig makes the row of the bundle itself from the headers of its shards.
func (m *repairer) inferConfig(ctx context.Context) error {
	m.cfg = config{version: versionMagic}
	for s, err := range m.opened(ctx) {
		if err != nil {
			return err
		}
		m.cfg.blockSize, m.cfg.recordSize, m.cfg.compression = s.header.align, s.header.recordSize, s.header.compression
		m.cfg.shards = max(m.cfg.shards, s.index+1, s.header.shards)
	}
	if m.cfg.compression == 0 {
		return fault(badConfig, m.indexName(), -1, "neither the bundle's own row nor the header of a shard can be read")
	}
	m.note("rebuilt the bundle's own row from the headers of its shards")
	return nil
}
