package sstable

import (
	"bytes"
	"cmp"
	"compress/zlib"
	"encoding/binary"
	"hash/crc32"
	"io"
	"slices"

	"github.com/klauspost/compress/snappy"
)

// The byte after a block is its kind of compression. Numbers above these are RocksDB's.
const (
	storedPlain  = 0
	storedSnappy = 1
	storedZlib   = 2
)

// checkBlock compares the checksum of a block with its trailer.
func checkBlock(raw []byte) *Error {
	n := len(raw) - blockTrailerLen
	said, is := binary.LittleEndian.Uint32(raw[n+1:]), masked(crc32.Checksum(raw[:n+1], castagnoli))
	if said != is {
		return corruptf(int64(n), "block: checksum %08x, expected %08x", is, said)
	}
	return nil
}

// decodeBlock checks a block with its trailer, and appends its contents, at most limit bytes, to
// dst[:0]. The result never shares memory with raw.
func decodeBlock(dst, raw []byte, limit int) ([]byte, *Error) {
	if f := checkBlock(raw); f != nil {
		return nil, f
	}
	n := len(raw) - blockTrailerLen
	b, size := raw[:n], n
	var err error
	switch raw[n] {
	case storedPlain:
		if size <= limit {
			dst = append(dst[:0], b...)
		}
	case storedSnappy:
		if size, err = snappy.DecodedLen(b); err == nil && size <= limit {
			dst, err = snappy.Decode(dst[:cap(dst)], b)
		}
	case storedZlib:
		if dst, err = inflate(dst[:0], b, limit+1); err == nil {
			size = len(dst)
		}
	default:
		return nil, unsupportedf(int64(n), "block: compression %d, expected none, snappy or zlib", raw[n])
	}
	switch {
	case err != nil:
		return nil, corruptf(0, "block: %v", err)
	case size > limit:
		return nil, faultf(Limit, 0, "block: %d bytes, expected at most %d", size, limit)
	}
	return dst, nil
}

// inflate appends at most most bytes of the decompressed contents of b.
func inflate(dst, b []byte, most int) ([]byte, error) {
	z, err := zlib.NewReader(bytes.NewReader(b))
	if err != nil {
		return nil, err
	}
	w := bytes.NewBuffer(dst)
	_, err = io.Copy(w, io.LimitReader(z, int64(most)))
	return w.Bytes(), err
}

// readBlock decodes and parses a block with its trailer. Its bytes are in buf, which replaces
// dst.
func readBlock(dst, raw []byte, limit int, r role) (b block, buf []byte, f *Error) {
	if buf, f = decodeBlock(dst, raw, limit); f == nil {
		b, f = parseBlock(buf, r)
	}
	return b, buf, f
}

// A role is the purpose of a block. It determines what the block's keys and values must be.
type role uint8

const (
	roleData  role = iota // internal keys; values of any kind
	roleIndex             // internal keys; handles
	roleMeta              // names; handles or numbers
)

// A block is the decoded entries of a block, all of which have been checked:
//
//	uvar shared, uvar unshared, uvar value length, key suffix, value
//	…
//	u32 offsets of restarts, entries that share nothing with the one before
//	u32 number of restarts
type block struct {
	entries  []byte
	restarts []byte
	count    int // of entries
}

func (b *block) restart(i int) int { return int(binary.LittleEndian.Uint32(b.restarts[4*i:])) }

// memory returns about how much memory the block takes.
func (b *block) memory() int64 { return int64(cap(b.entries) + 160) }

// parseBlock checks every entry of a decoded block: that it is within the block, that keys
// ascend, and that restarts are at the recorded offsets. So iterating over the block afterwards
// cannot fail.
func parseBlock(b []byte, r role) (block, *Error) {
	if len(b) < 4 {
		return block{}, corruptf(0, "block: %d bytes, expected at least 4", len(b))
	}
	n := binary.LittleEndian.Uint32(b[len(b)-4:])
	if n < 1 || uint64(n) > uint64(len(b)-4)/4 {
		return block{}, corruptf(0, "block: %d restarts in %d bytes", n, len(b))
	}
	end := len(b) - 4 - 4*int(n)
	bl := block{entries: b[:end:end], restarts: b[end : len(b)-4]}
	if f := bl.check(r); f != nil {
		f.Offset = -1 // an offset of decoded bytes is no place in the file
		return block{}, f
	}
	return bl, nil
}

func (b *block) check(r role) *Error {
	var keyBuf, spare [128]byte
	prev, other := keyBuf[:0], spare[:0]
	restarts := len(b.restarts) / 4
	met := 0 // restarts
	var behind uint64
	if len(b.entries) > 0 && b.restart(0) != 0 { // a search would not find what is before it
		return corruptf(0, "block: the first restart is at %d, expected 0", b.restart(0))
	}
	for at := 0; at < len(b.entries); b.count++ {
		shared, unshared, vlen, head := entryHead(b.entries[at:])
		if head == 0 {
			return corruptf(0, "block: entry %d: lengths cut off or too large", b.count)
		}
		rest := b.entries[at+head:]
		if shared > uint64(len(prev)) || unshared > uint64(len(rest)) || vlen > uint64(len(rest))-unshared {
			return corruptf(0, "block: entry %d: %d bytes of the key before and %d+%d following, expected at most %d and %d",
				b.count, shared, unshared, vlen, len(prev), len(rest))
		}
		if met < restarts && b.restart(met) == at {
			if shared != 0 {
				return corruptf(0, "block: entry %d: a restart that shares %d bytes with the key before", b.count, shared)
			}
			met++
		}
		suffix, value := rest[:unshared], rest[unshared:unshared+vlen]
		order := -1
		if r == roleMeta {
			if b.count > 0 {
				order = bytes.Compare(prev[shared:], suffix)
			}
			prev = append(prev[:shared], suffix...)
		} else {
			if shared+unshared < trailerLen {
				return corruptf(0, "block: entry %d: key of %d bytes, expected at least %d", b.count, shared+unshared, trailerLen)
			}
			other = append(append(other[:0], prev[:shared]...), suffix...)
			if b.count > 0 {
				// Both begin with the shared bytes, which the comparison need not see.
				skip := min(int(shared), len(prev)-trailerLen, len(other)-trailerLen)
				order = bytes.Compare(prev[skip:len(prev)-trailerLen], other[skip:len(other)-trailerLen])
				if order == 0 {
					order = cmp.Compare(trailer(other), trailer(prev))
				}
			}
			prev, other = other, prev
		}
		if order >= 0 {
			return corruptf(0, "block: entry %d: key %q is not above the one before", b.count, clip(prev))
		}
		switch r {
		case roleData:
			if kind := byte(trailer(prev)); kind > kindValue {
				return unsupportedf(0, "block: entry %d: row of kind %d, expected a value or a deletion", b.count, kind)
			}
		case roleIndex:
			f := fields{b: value}
			h := f.handle()
			if f.bad || h.size > maxBlock || h.off < behind || h.off > 1<<62 {
				return corruptf(0, "index: entry %d: block of %[3]d bytes at %[2]d, expected at most %[5]d bytes at %[4]d or later", b.count, h.off, h.size, behind, maxBlock)
			}
			behind = h.end()
		}
		at += head + int(unshared) + int(vlen)
	}
	// A block without entries has one restart, which is nowhere.
	if met != restarts && (b.count > 0 || restarts != 1 || b.restart(0) != 0) {
		return corruptf(0, "block: restart %d of %d is at no entry", met, restarts)
	}
	return nil
}

// clip shortens a key for an error text.
func clip(key []byte) []byte { return key[:min(len(key), 64)] }

// entryHead reads the lengths at the beginning of an entry. It returns a head of 0
// if they are not there.
func entryHead(b []byte) (shared, unshared, vlen uint64, head int) {
	if len(b) >= 3 && b[0]|b[1]|b[2] < 0x80 {
		return uint64(b[0]), uint64(b[1]), uint64(b[2]), 3
	}
	var v [3]uint64
	for i := range v {
		n := 0
		if v[i], n = binary.Uvarint(b[head:]); n <= 0 {
			return 0, 0, 0, 0
		}
		head += n
	}
	return v[0], v[1], v[2], head
}

// A blockIter iterates over the entries of a block.
type blockIter struct {
	b    *block
	next int    // where the next entry begins
	key  []byte // of this entry, in memory of the iterator
	val  []byte // of this entry, in memory of the block
}

func (it *blockIter) reset(b *block) {
	it.b, it.next, it.key, it.val = b, 0, it.key[:0], nil
}

func (it *blockIter) advance() bool {
	if it.next >= len(it.b.entries) {
		return false
	}
	b := it.b.entries[it.next:]
	shared, unshared, vlen, head := entryHead(b)
	k := head + int(unshared)
	it.key = append(it.key[:shared], b[head:k]...)
	it.val = b[k : k+int(vlen) : k+int(vlen)]
	it.next += k + int(vlen)
	return true
}

// seek moves to the first entry whose user key is not below key, and reports whether there is
// one. The block must have internal keys.
func (it *blockIter) seek(key []byte) bool {
	// The last restart below key, or the first if there is none.
	lo, hi := 0, len(it.b.restarts)/4-1
	if len(it.b.entries) == 0 {
		hi = 0
	}
	for lo < hi {
		mid := int(uint(lo+hi+1) / 2)
		e := it.b.entries[it.b.restart(mid):]
		_, unshared, _, head := entryHead(e)
		if bytes.Compare(e[head:head+int(unshared)-trailerLen], key) < 0 {
			lo = mid
		} else {
			hi = mid - 1
		}
	}
	it.next, it.key = it.b.restart(lo), it.key[:0]
	for it.advance() {
		if bytes.Compare(userKey(it.key), key) >= 0 {
			return true
		}
	}
	return false
}

// row returns the entry of a data block, by its user key.
func (it *blockIter) row() (key []byte, seq uint64, val []byte) {
	return userKey(it.key), trailer(it.key), it.val
}

// handle returns the value of an entry of an index.
func (it *blockIter) handle() handle { return (&fields{b: it.val}).handle() }

// clone returns an independent iterator at the same entry.
func (it *blockIter) clone() blockIter {
	c := *it
	c.key = slices.Clone(it.key)
	return c
}
