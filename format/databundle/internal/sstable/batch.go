package sstable

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"slices"
	"sort"
)

// A memRow is a row of a log, with its place in the records.
type memRow struct {
	key, keyLen uint32
	val, valLen uint32
	trailer     uint64
}

const memRowLen = 24

// mem has the rows of the logs in key order, the last row of each key.
type mem struct {
	records []byte
	rows    []memRow
	limit   int64
	seq     uint64 // of the last row
}

func (m *mem) key(i int) []byte {
	r := &m.rows[i]
	return m.records[r.key:][:r.keyLen:r.keyLen]
}

func (m *mem) val(i int) []byte {
	r := &m.rows[i]
	return m.records[r.val:][:r.valLen:r.valLen]
}

// search returns the first row that is not below key.
func (m *mem) search(key []byte) int {
	return sort.Search(len(m.rows), func(i int) bool { return bytes.Compare(m.key(i), key) >= 0 })
}

// replay adds the records of a log: write batches,
//
//	u64 sequence, u32 count, then for each row
//	u8 kind, uvar-prefixed key[, uvar-prefixed value]
//
// If dacha wrote the batch, all its rows have the sequence number of the batch. If LevelDB wrote
// it, they count up from that number, so dacha's batches seem to overlap. The order of the log is
// correct in both cases. So the numbers are made to increase, and the later row wins.
func (m *mem) replay(ctx context.Context, r *logReader) error {
	for r.next(ctx) {
		rows, seq := len(m.rows), m.seq
		if f := m.add(r.record); f != nil {
			if f.at(r.w.name, r.off); f.Class == Limit {
				return f
			}
			m.rows, m.seq = m.rows[:rows], seq // a batch counts as a whole or not at all
			r.err = r.report(f)
		}
	}
	return r.err
}

func (m *mem) add(record []byte) *Error {
	if len(record) < 12 {
		return corruptf(-1, "write batch: %d bytes, expected at least 12", len(record))
	}
	base := len(m.records)
	if m.memory()+int64(len(record)) > m.limit {
		return m.full()
	}
	m.records = append(m.records, record...)
	seq := max(binary.LittleEndian.Uint64(record), m.seq+1)
	count := binary.LittleEndian.Uint32(record[8:])
	f := fields{b: m.records[base+12:]}
	place := func(s []byte) uint32 { return uint32(len(m.records) - len(f.b) - len(s)) }
	n := uint32(0)
	for ; len(f.b) > 0; n++ {
		kind := f.b[0]
		if kind > kindValue {
			return unsupportedf(-1, "write batch: row %d is of kind %d, expected a value or a deletion", n, kind)
		}
		f.b = f.b[1:]
		k := f.text()
		row := memRow{key: place(k), keyLen: uint32(len(k)), trailer: seq<<8 | uint64(kind)}
		if kind == kindValue {
			v := f.text()
			row.val, row.valLen = place(v), uint32(len(v))
		}
		if f.bad {
			return corruptf(-1, "write batch: row %d of %d is cut off", n, count)
		}
		if m.memory()+memRowLen > m.limit {
			return m.full()
		}
		m.rows = append(m.rows, row)
		m.seq = seq
		seq++
	}
	if n != count {
		return corruptf(-1, "write batch: %d rows, expected %d", n, count)
	}
	return nil
}

func (m *mem) memory() int64 { return int64(len(m.records)) + int64(len(m.rows))*memRowLen }

func (m *mem) full() *Error {
	return faultf(Limit, -1, "log: more than the limit of %d bytes are in no table yet", m.limit)
}

func (m *mem) sort() {
	slices.SortFunc(m.rows, func(a, b memRow) int {
		c := bytes.Compare(m.records[a.key:][:a.keyLen], m.records[b.key:][:b.keyLen])
		if c == 0 {
			c = cmp.Compare(b.key, a.key)
		}
		return c
	})
	m.rows = slices.CompactFunc(m.rows, func(a, b memRow) bool {
		return bytes.Equal(m.records[a.key:][:a.keyLen], m.records[b.key:][:b.keyLen])
	})
	m.rows = slices.Clip(m.rows)
}

// A memIter iterates over the rows of logs.
type memIter struct {
	m *mem
	i int
}

func (t *memIter) next(context.Context) (bool, error) {
	t.i++
	return t.i < len(t.m.rows), nil
}

func (t *memIter) at() (key []byte, trailer uint64, val []byte) {
	return t.m.key(t.i), t.m.rows[t.i].trailer, t.m.val(t.i)
}

func (t *memIter) close() {}
