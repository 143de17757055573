package sstable

import (
	"bytes"
	"compress/zlib"
	"encoding/binary"
	"hash/crc32"
	"slices"

	"github.com/klauspost/compress/snappy"
)

// What follows encodes directories as other programs write them, with everything
// that Writer does not: levels that overlap, older rows of a key, deletions, zlib,
// filters, logs. It shares nothing with the code under test but the names of
// constants.

// memTableRow is a row with all that its internal key has.
type memTableRow struct {
	key, val string
	seq      uint64
	kind     byte
}

func (r memTableRow) internal() []byte {
	return binary.LittleEndian.AppendUint64([]byte(r.key), r.seq<<8|uint64(r.kind))
}

// encoding is how a table is written.
type encoding struct {
	compression byte // one of stored…
	blockRows   int  // 0 is 5
	interval    int  // 0 is 3
	rocks       bool // the footer of a RocksDB table
	properties  bool
}

// encodeTable returns a table and its smallest and largest internal key.
func encodeTable(rows []memTableRow, e encoding) (b, smallest, largest []byte) {
	if e.blockRows == 0 {
		e.blockRows = 5
	}
	if e.interval == 0 {
		e.interval = 3
	}
	type pair struct{ k, v []byte }
	var index []pair
	put := func(entries []pair, interval int, compression byte) (at []byte) {
		var raw, restarts, last []byte
		for i, p := range entries {
			shared := 0
			if i%interval == 0 {
				restarts = binary.LittleEndian.AppendUint32(restarts, uint32(len(raw)))
			} else {
				for shared < len(last) && shared < len(p.k) && last[shared] == p.k[shared] {
					shared++
				}
			}
			for _, n := range []int{shared, len(p.k) - shared, len(p.v)} {
				raw = binary.AppendUvarint(raw, uint64(n))
			}
			raw = append(append(raw, p.k[shared:]...), p.v...)
			last = p.k
		}
		if len(entries) == 0 {
			restarts = make([]byte, 4)
		}
		raw = append(raw, restarts...)
		raw = binary.LittleEndian.AppendUint32(raw, uint32(len(restarts)/4))
		switch compression {
		case storedSnappy:
			raw = snappy.Encode(nil, raw)
		case storedZlib:
			var z bytes.Buffer
			w := zlib.NewWriter(&z)
			w.Write(raw)
			w.Close()
			raw = z.Bytes()
		}
		at = binary.AppendUvarint(nil, uint64(len(b)))
		at = binary.AppendUvarint(at, uint64(len(raw)))
		b = append(append(b, raw...), compression)
		b = binary.LittleEndian.AppendUint32(b, maskTest(crc32.Checksum(b[len(b)-len(raw)-1:], crc32.MakeTable(crc32.Castagnoli))))
		return at
	}
	for block := range slices.Chunk(rows, e.blockRows) {
		var entries []pair
		for _, r := range block {
			entries = append(entries, pair{r.internal(), []byte(r.val)})
		}
		last := entries[len(entries)-1].k
		index = append(index, pair{last, put(entries, e.interval, e.compression)})
	}
	var meta []pair
	if e.properties {
		n := binary.AppendUvarint(nil, uint64(len(rows)))
		meta = append(meta, pair{[]byte(propertiesName), put([]pair{{[]byte("rocksdb.num.entries"), n}}, 1, 0)})
	}
	metaAt, indexAt := put(meta, 1, 0), put(index, 1, 0)
	foot := append(metaAt, indexAt...)
	foot = append(foot, make([]byte, 40-len(foot))...)
	magic := uint64(tableMagic)
	if e.rocks {
		magic = rocksMagic
	}
	b = append(b, binary.LittleEndian.AppendUint64(foot, magic)...)
	return b, rows[0].internal(), rows[len(rows)-1].internal()
}

func maskTest(c uint32) uint32 { return (c>>15 | c<<17) + 0xa282ead8 }

// encodeBatch returns a write batch.
func encodeBatch(seq uint64, rows []memTableRow) []byte {
	b := binary.LittleEndian.AppendUint64(nil, seq)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(rows)))
	for _, r := range rows {
		b = append(b, r.kind)
		b = append(binary.AppendUvarint(b, uint64(len(r.key))), r.key...)
		if r.kind == kindValue {
			b = append(binary.AppendUvarint(b, uint64(len(r.val))), r.val...)
		}
	}
	return b
}

// An edit is a version edit in the making.
type edit []byte

func (e edit) numbers(n ...uint64) edit {
	for _, v := range n {
		e = binary.AppendUvarint(e, v)
	}
	return e
}

func (e edit) text(s []byte) edit {
	return append(e.numbers(uint64(len(s))), s...)
}

func (e edit) add(tag, level, num uint64, size int, smallest, largest []byte) edit {
	e = e.numbers(tag, level, num, uint64(size)).text(smallest).text(largest)
	if tag == tagAddSeqs {
		e = e.numbers(1, 1<<40)
	}
	return e
}

// opening is what every manifest begins with.
func opening(logNum, next uint64) edit {
	return edit(nil).numbers(tagComparator).text([]byte(bytewise)).numbers(tagLog, logNum, tagPrevLog, 0, tagNextFile, next, tagLastSeq, 1<<40)
}
