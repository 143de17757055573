package segment

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"iter"
	"slices"
	"unicode/utf16"
	"unicode/utf8"
)

type Child struct {
	Name string
	Node RecordID
}

type hashedChild struct {
	Child
	hash uint32
	key  RecordID // where the name is stored; zero if it must be written
}

func hashed(c Child) hashedChild {
	c.Name = asJava(c.Name)
	return hashedChild{Child: c, hash: mapHash(c.Name)}
}

func (c hashedChild) compare(other hashedChild) int {
	return cmp.Or(cmp.Compare(c.hash, other.hash), compareUTF16(c.Name, other.Name))
}

// AppendMapKey appends a key for a name. Keys, compared byte by byte, are in the order of maps.
// No key is a prefix of another, so those of the names of a path may be concatenated:
//
//	hash u32, code units of UTF-16, each as in UTF-8, 0x00 as 0x00 0xFF; 0x00 0x01
func AppendMapKey(b []byte, name string) []byte {
	name = asJava(name)
	b = binary.BigEndian.AppendUint32(b, mapHash(name))
	for _, r := range name {
		switch {
		case r == 0:
			b = append(b, 0, keyNUL)
		case r < 0x10000:
			b = utf8.AppendRune(b, r)
		default:
			hi, lo := utf16.EncodeRune(r)
			b = appendUnit(appendUnit(b, hi), lo)
		}
	}
	return append(b, 0, keyEnd)
}

// What follows a zero byte of a key.
const (
	keyEnd = 1
	keyNUL = 0xFF
)

// appendUnit appends a surrogate, which UTF-8 proper has not.
func appendUnit(b []byte, u rune) []byte {
	return append(b, 0xE0|byte(u>>12), 0x80|byte(u>>6)&0x3F, 0x80|byte(u)&0x3F)
}

// CutMapKey returns the name of the key at the beginning of b, if any, and the bytes after it.
func CutMapKey(b []byte) (name string, rest []byte, ok bool) {
	if len(b) < 4 {
		return "", b, false
	}
	var out []byte
	for at := 4; at+1 < len(b); at++ {
		switch c := b[at]; {
		case c == 0 && b[at+1] == keyEnd:
			return string(out), b[at+2:], true
		case c == 0 && b[at+1] != keyNUL:
			return "", b, false
		case c == 0:
			out, at = append(out, 0), at+1
		case c == 0xED && b[at+1] >= 0xA0:
			if at+5 >= len(b) {
				return "", b, false
			}
			unit := func(p []byte) rune { return rune(p[0]&0xF)<<12 | rune(p[1]&0x3F)<<6 | rune(p[2]&0x3F) }
			out, at = utf8.AppendRune(out, utf16.DecodeRune(unit(b[at:]), unit(b[at+3:]))), at+5
		default:
			out = append(out, c)
		}
	}
	return "", b, false
}

// WrittenChildren are the children of a node to be written. The zero value means none.
type WrittenChildren struct {
	n   int
	one Child    // if n is 1
	id  RecordID // of a map, if n is more
}

func (c WrittenChildren) rule() ChildRule {
	switch c.n {
	case 0:
		return NoChild
	case 1:
		return OneChild
	}
	return ManyChildren
}

// Children writes the map of a node's children. They must be in the order of [AppendMapKey], each
// once. It keeps few of them in memory. For fewer than two children there is no map, and nothing
// is written.
func (b *Builder) Children(ctx context.Context, children iter.Seq2[Child, error]) (c WrittenChildren, err error) {
	w, stop := b.mapOf(children)
	defer stop()
	w.look(2)
	if c.n = len(w.ahead); c.n == 1 {
		c.one = w.ahead[0].Child
	}
	if c.n > 1 {
		c.id, c.n = w.record(ctx, 0)
	}
	return c, b.err
}

func inMapOrder(children []Child) iter.Seq2[Child, error] {
	all := make([]hashedChild, len(children))
	for i, c := range children {
		all[i] = hashed(c)
	}
	slices.SortFunc(all, hashedChild.compare)
	return func(yield func(Child, error) bool) {
		for _, c := range all {
			if !yield(c.Child, nil) {
				return
			}
		}
	}
}

// A mapWriter writes a map from the bottom. In the order of maps, the names of each bucket are
// consecutive, at any level. Whether a bucket is a leaf depends on whether a few more of its
// names follow.
type mapWriter struct {
	b     *Builder
	next  func() (Child, error, bool)
	done  bool // no more children, or an error
	n     int  // read
	last  hashedChild
	ahead []hashedChild // read, and not yet in a leaf
}

const mostLeaf = MaxSize / (4 + pairLen)

func (b *Builder) mapOf(children iter.Seq2[Child, error]) (*mapWriter, func()) {
	next, stop := iter.Pull2(children)
	return &mapWriter{b: b, next: next}, stop
}

// look reads ahead n children, or all that are left.
func (w *mapWriter) look(n int) {
	for len(w.ahead) < n && !w.done {
		c, err, ok := w.next()
		h := hashed(c)
		if ok && err == nil {
			err = w.follows(h)
		}
		if err != nil {
			w.b.err = err // it may describe the builder's earlier error in more detail
		}
		if w.done = !ok || err != nil; w.done {
			return
		}
		w.last = h
		w.ahead = append(w.ahead, h)
	}
}

// follows returns why a child cannot be the next.
func (w *mapWriter) follows(h hashedChild) error {
	order := -1
	if w.n > 0 {
		order = w.last.compare(h)
	}
	w.n++
	switch {
	case order == 0:
		return fmt.Errorf("segment: map: expected each name once, found %.100q twice", h.Name)
	case order > 0:
		return fmt.Errorf("segment: map: expected names in order, found %.100q after %.100q", h.Name, w.last.Name)
	case w.n > mapSizeMask:
		return w.b.limit("map: expected at most %d names, found more", mapSizeMask)
	}
	return nil
}

// inBucket counts, to most, which of the next children share a level's bucket with the first.
func (w *mapWriter) inBucket(level, most int) (n int) {
	for ; n < most; n++ {
		w.look(n + 1)
		if n == len(w.ahead) || !sameBucket(w.ahead[0].hash, w.ahead[n].hash, level) {
			break
		}
	}
	return n
}

// sameBucket reports whether two hashes belong to the same record of a level. The first level
// already has all bits of the last one.
func sameBucket(a, b uint32, level int) bool {
	return (a^b)>>(32-levelBits*min(level, leafLevel-1)) == 0
}

// record writes the children that share a bucket of a level with the next child.
func (w *mapWriter) record(ctx context.Context, level int) (id RecordID, n int) {
	n = w.inBucket(level, leafMax+1)
	if n > leafMax && level < leafLevel {
		return w.branch(ctx, level)
	}
	if n > leafMax {
		if n = w.inBucket(level, mostLeaf+1); n > mostLeaf {
			w.b.fail(w.b.limit("map: expected at most %d names of one hash, found more", mostLeaf))
		}
	}
	id = w.b.leaf(ctx, w.ahead[:n], level)
	w.ahead = w.ahead[n:]
	return id, n
}

func (w *mapWriter) branch(ctx context.Context, level int) (id RecordID, n int) {
	var bitmap uint32
	var buckets []RecordID
	first := w.ahead[0].hash
	for len(w.ahead) > 0 && sameBucket(first, w.ahead[0].hash, level) {
		bitmap |= 1 << mapIndex(w.ahead[0].hash, level)
		sub, more := w.record(ctx, level+1)
		buckets, n = append(buckets, sub), n+more
		w.look(1)
	}
	return w.b.branch(ctx, level, n, bitmap, buckets), n
}

func mapHead(level, n int) uint32 { return uint32(level)<<mapSizeBits | uint32(n) }

func (b *Builder) branch(ctx context.Context, level, n int, bitmap uint32, buckets []RecordID) RecordID {
	return b.put(ctx, Branch, b.draft().u32(mapHead(level, n)).u32(bitmap).id(buckets...))
}

func (b *Builder) leaf(ctx context.Context, all []hashedChild, level int) RecordID {
	keys := make([]RecordID, len(all))
	for i, c := range all {
		if keys[i] = c.key; c.key == (RecordID{}) {
			keys[i] = b.text(ctx, c.Name)
		}
	}
	d := b.draft().u32(mapHead(level, len(all)))
	for _, c := range all {
		d.u32(c.hash)
	}
	for i, c := range all {
		d.id(keys[i]).id(c.Node)
	}
	return b.put(ctx, Leaf, d)
}
