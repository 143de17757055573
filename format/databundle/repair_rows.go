package databundle

import (
	"bytes"
	"context"
	"fmt"
	"hash/crc32"
	"iter"
	"slices"
	"sort"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/databundle/internal/sstable"
	"github.com/holdall/holdall/format/kit"
	"github.com/holdall/holdall/format/kit/pipe"
)

// keptEnds has the end of the last kept file in each shard's stream.
type keptEnds map[uint64]int64

func (k keptEnds) add(m meta) {
	if m.kind == regularFile && m.size > 0 {
		k[m.shard] = max(k[m.shard], int64(m.offset+m.size))
	}
}

// writeRows writes the kept rows and the new ones, sorted.
func (m *repairer) writeRows(ctx context.Context, w *indexWriter) error {
	if err := w.add(ctx, configKey, m.cfg.append(nil)); err != nil {
		return err
	}
	found, err := m.foundFiles(ctx)
	if err != nil {
		return err
	}
	kept := keptEnds{}
	for row, err := range together(m.keptRows(ctx), pipe.All(found)) {
		if err != nil {
			return err
		}
		if f, err := parseMeta(row.Value); err == nil {
			kept.add(f)
			if m.sums && f.size == 0 && f.crc != 0 {
				f.crc = 0
				row.Value = f.append(nil)
			}
		}
		if err := w.add(ctx, row.Key, row.Value); err != nil {
			return err
		}
	}
	shards, err := m.recordShards(ctx)
	if err != nil {
		return err
	}
	for _, i := range shards {
		if err := m.writeRecords(ctx, w, i, kept[i]); err != nil {
			return err
		}
	}
	return nil
}

// keptRows yields the rows of files that are kept.
func (m *repairer) keptRows(ctx context.Context) iter.Seq2[sstable.Row, error] {
	return func(yield func(sstable.Row, error) bool) {
		n := -1
		for row, err := range m.rows.Scan(ctx, fileTablePrefix, after(fileTablePrefix)) {
			if n++; (err != nil || !m.bad[n]) && !yield(row, err) {
				return
			}
		}
	}
}

// recordShards returns the shards that have rows of records.
func (m *repairer) recordShards(ctx context.Context) ([]uint64, error) {
	var all []uint64
	for i := range m.places {
		all = append(all, i)
	}
	prefix := appendVaruint(nil, recordTable)
	for row, err := range m.rows.Scan(ctx, prefix, after(prefix)) {
		if err != nil {
			return nil, err
		}
		if i, _, err := parsePlace(row); err == nil && (len(all) == 0 || all[len(all)-1] != i) {
			all = append(all, i)
		}
	}
	slices.Sort(all)
	return slices.Compact(all), nil
}

// recordsOf returns a shard with its records, or nil if it or they cannot be read.
func (m *repairer) recordsOf(ctx context.Context, i uint64) (*shard, []storedAt, error) {
	s, err := m.shard(ctx, i)
	var places []storedAt
	if err == nil {
		places, err = m.placesOf(ctx, s)
	}
	if _, damaged := err.(*format.CorruptError); damaged {
		return nil, nil, nil
	}
	return s, places, err
}

// writeRecords writes the rows of a shard's records. A record that no longer exists is written as
// zeros, because no file is in it and its row is the end of the record before.
func (m *repairer) writeRecords(ctx context.Context, w *indexWriter, i uint64, kept int64) error {
	s, places, err := m.recordsOf(ctx, i)
	if s == nil {
		return err // nil if no file of it is kept
	}
	for _, p := range places {
		r := record{shard: i, offset: uint64(p.off), at: uint64(max(p.at, 0)), stored: p.at >= 0 && p.at < s.size-s.dataOff}
		r.allZeros = !r.stored
		if r.allZeros {
			r.at = 0
		}
		if err := w.add(ctx, appendRecordKey(nil, i, uint64(p.off)), r.append(nil)); err != nil {
			return err
		}
	}
	end := m.ends[i]
	if len(places) == 0 || kept >= end {
		return nil
	}
	// A damaged row may have any end of its file.
	last := places[len(places)-1]
	if n := end - last.off; n <= 0 || n > maxRecord {
		return nil
	} else if length := methods[s.header.compression].length; length != nil && last.at >= 0 {
		// Files in a damaged record can be read only as long as nothing says how long it is.
		scan := recordScan{s: s, length: length, usual: mostStored(int64(max(m.cfg.recordSize, defaultRecord)))}
		if size, _, err := scan.measure(ctx, last.at); err != nil || size != n {
			return err
		}
	}
	r := record{shard: i, offset: uint64(end), allZeros: true}
	return w.add(ctx, appendRecordKey(nil, i, uint64(end)), r.append(nil))
}

// foundFiles returns rows of new files in lost+found, if rows were lost: the runs of content that
// no file covers. Unreadable parts separate them.
func (m *repairer) foundFiles(ctx context.Context) ([]sstable.Row, error) {
	if !m.rescue {
		return nil, nil
	}
	used, err := m.used(ctx)
	if err != nil {
		return nil, err
	}
	var out []sstable.Row
	for s, err := range m.opened(ctx) {
		var places []storedAt
		if err == nil {
			s, places, err = m.recordsOf(ctx, s.index)
		}
		if err != nil {
			return nil, err
		}
		if s == nil || s.decode != nil {
			continue
		}
		r := recordReader{repairer: m}
		for _, gap := range used[s.index].Gaps(0, m.ends[s.index]) {
			all, err := r.gap(ctx, s.index, places, gap)
			if err != nil {
				return nil, err
			}
			for _, f := range all {
				name, err := m.freeName(ctx, fmt.Sprintf("lost+found/%08d-%d", s.index, f.offset))
				if err != nil {
					return nil, err
				}
				out = append(out, sstable.Row{Key: appendFileKey(nil, name), Value: f.append(nil)})
			}
		}
	}
	if len(out) > 0 {
		_, ok, err := m.row(ctx, "lost+found")
		if err != nil {
			return nil, err
		}
		if !ok {
			out = append(out, sstable.Row{Key: appendFileKey(nil, "lost+found"), Value: meta{kind: directory}.append(nil)})
		}
	}
	slices.SortFunc(out, func(a, b sstable.Row) int { return bytes.Compare(a.Key, b.Key) })
	return out, nil
}

// freeName returns name, or a similar name that no row has.
func (m *repairer) freeName(ctx context.Context, name string) (string, error) {
	for try, n := name, 2; ; try, n = fmt.Sprintf("%s-%d", name, n), n+1 {
		if _, ok, err := m.row(ctx, try); !ok || err != nil {
			return try, err
		}
	}
}

// gap returns files for the readable parts of bytes that no file covers, without zeros.
func (r *recordReader) gap(ctx context.Context, shard uint64, places []storedAt, x kit.Range) (all []meta, _ error) {
	var cur meta
	zeros := true
	end := func() {
		if cur.size > 0 && !zeros {
			all = append(all, cur)
		}
		cur, zeros = meta{}, true
	}
	k := sort.Search(len(places), func(k int) bool { return places[k].off > x.From }) - 1
	for off := x.From; off < x.To; k++ {
		next := x.To
		if k+1 < len(places) {
			next = min(next, places[k+1].off)
		}
		if next <= off {
			continue // two records at the same offset
		}
		if cur.size == 0 {
			cur = meta{kind: regularFile, shard: shard, offset: uint64(off)}
		}
		sum := cur.crc
		part := format.Entry{Kind: format.File, Size: next - off, Ref: stretch{shard, off}}
		err := r.read(ctx, part, func(b []byte) {
			sum = crc32.Update(sum, castagnoli, b)
			zeros = zeros && allZeros(b)
		})
		if broken, ok := err.(*storeError); ok {
			return nil, broken.error
		}
		if err == nil {
			cur.size, cur.crc = cur.size+uint64(next-off), sum
		} else {
			end()
		}
		off = next
	}
	end()
	return all, nil
}
