package sstable

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"math"
)

// Names and numbers in a directory that Writer wrote. The numbers are those of a new database,
// and all are different, as LevelDB's are. dacha would refuse a log number above a table's. Level
// 6 is the last, so the tables are never compacted.
const (
	manifestNumber = 2
	logNumber      = 3
	firstTable     = 4
	tableLevel     = 6

	onlySequence    = 1 // of every row
	restartInterval = 16
)

// A blockBuilder makes a block of entries that are added in order.
type blockBuilder struct {
	interval int // entries from one restart to the next
	b        []byte
	restarts []uint32
	count    int
	last     []byte
}

func (w *blockBuilder) add(key, value []byte) {
	shared := 0
	if w.count%w.interval == 0 {
		w.restarts = append(w.restarts, uint32(len(w.b)))
	} else {
		shared = sharedLen(w.last, key)
	}
	w.b = binary.AppendUvarint(w.b, uint64(shared))
	w.b = binary.AppendUvarint(w.b, uint64(len(key)-shared))
	w.b = binary.AppendUvarint(w.b, uint64(len(value)))
	w.b = append(append(w.b, key[shared:]...), value...)
	w.last = append(w.last[:shared], key[shared:]...)
	w.count++
}

func sharedLen(a, b []byte) int {
	n := min(len(a), len(b))
	i := 0
	for i+8 <= n && binary.LittleEndian.Uint64(a[i:]) == binary.LittleEndian.Uint64(b[i:]) {
		i += 8
	}
	for i < n && a[i] == b[i] {
		i++
	}
	return i
}

func (w *blockBuilder) size() int { return len(w.b) + 4*len(w.restarts) + 4 }

// finish returns the block, which is valid until the next add.
func (w *blockBuilder) finish() []byte {
	if w.count == 0 {
		w.restarts = append(w.restarts, 0)
	}
	for _, r := range w.restarts {
		w.b = binary.LittleEndian.AppendUint32(w.b, r)
	}
	return binary.LittleEndian.AppendUint32(w.b, uint32(len(w.restarts)))
}

// reset begins the next block. It keeps the last key of the previous one for the index.
func (w *blockBuilder) reset() { w.b, w.restarts, w.count = w.b[:0], w.restarts[:0], 0 }

// appendBlock appends a block with its trailer, compressed if that saves an eighth:
// LevelDB's rule.
func appendBlock(dst, b []byte) []byte {
	at := len(dst)
	if dst = appendSnappy(dst, b); len(dst)-at < len(b)-len(b)/8 {
		dst = append(dst, storedSnappy)
	} else {
		dst = append(append(dst[:at], b...), storedPlain)
	}
	return binary.LittleEndian.AppendUint32(dst, masked(crc32.Checksum(dst[at:], castagnoli)))
}

// appendInternal appends the internal key of a row.
func appendInternal(dst, key []byte) []byte {
	return binary.LittleEndian.AppendUint64(append(dst, key...), onlySequence<<8|kindValue)
}

// appendSeparator appends the shortest possible key that is not below a and is below b. Both are
// internal keys.
func appendSeparator(dst, a, b []byte) []byte {
	ua, ub := userKey(a), userKey(b)
	i := sharedLen(ua, ub)
	if i < len(ua)-1 && i < len(ub) && ua[i] < math.MaxUint8 && ua[i]+1 < ub[i] {
		dst = append(append(dst, ua[:i]...), ua[i]+1)
		return appendSeekTrailer(dst)
	}
	return append(dst, a...)
}

// appendSuccessor appends a short key that is not below a.
func appendSuccessor(dst, a []byte) []byte {
	ua := userKey(a)
	for i, c := range ua {
		if c < math.MaxUint8 {
			if i == len(ua)-1 {
				break
			}
			return appendSeekTrailer(append(append(dst, ua[:i]...), c+1))
		}
	}
	return append(dst, a...)
}

// appendSeekTrailer makes an internal key of a user key that sorts before all rows of that key.
// LevelDB seeks with such keys.
func appendSeekTrailer(dst []byte) []byte {
	const maxSequence = 1<<56 - 1
	return binary.LittleEndian.AppendUint64(dst, maxSequence<<8|kindValue)
}

// A tableBuilder makes a table of rows that are added in order. It appends its output to out,
// from which its user removes it.
type tableBuilder struct {
	blockSize int
	out       []byte
	off       int64 // of what was appended, from the beginning of the table

	data     blockBuilder
	index    blockBuilder
	pending  handle // of the block after which the next row comes
	key      []byte // internal
	sep      []byte
	place    []byte
	smallest []byte
}

func (t *tableBuilder) add(key, value []byte) {
	if t.data.count > 0 && t.data.size()+len(key)+len(value) > maxBlock {
		t.endBlock()
	}
	t.key = appendInternal(t.key[:0], key)
	if t.smallest == nil {
		t.smallest = bytes.Clone(t.key)
	}
	if t.data.count == 0 && t.off > 0 {
		t.addIndex(appendSeparator(t.sep[:0], t.data.last, t.key))
	}
	t.data.add(t.key, value)
	if t.data.size() >= t.blockSize {
		t.endBlock()
	}
}

func (t *tableBuilder) endBlock() {
	t.pending = t.append(t.data.finish())
	t.data.reset()
}

func (t *tableBuilder) addIndex(sep []byte) {
	t.sep = sep
	t.place = appendHandle(t.place[:0], t.pending)
	t.index.add(sep, t.place)
}

func (t *tableBuilder) append(b []byte) handle {
	n := len(t.out)
	t.out = appendBlock(t.out, b)
	h := handle{uint64(t.off), uint64(len(t.out) - n - blockTrailerLen)}
	t.off += int64(len(t.out) - n)
	return h
}

// finish appends what follows the rows, and returns the largest key. There must be at least one
// row.
func (t *tableBuilder) finish() (largest []byte) {
	if t.data.count > 0 {
		t.endBlock()
	}
	largest = bytes.Clone(t.data.last)
	t.addIndex(appendSuccessor(t.sep[:0], largest))
	meta := blockBuilder{interval: 1}
	foot := footer{meta: t.append(meta.finish())}
	foot.index = t.append(t.index.finish())
	t.out = appendFooter(t.out, foot)
	t.off += footerLen
	return largest
}

func (t *tableBuilder) reset() {
	t.data.reset()
	t.index.reset()
	t.off, t.smallest = 0, nil
}
