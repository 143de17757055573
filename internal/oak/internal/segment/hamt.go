package segment

import (
	"context"
	"iter"
	"math/bits"
	"sort"
)

// A map is a tree with at most 7 levels of branches. Each branch divides names by 5 bits of their
// hash. The leaves are sorted by hash, then by name.
const (
	mapSizeBits = 29 // of a head; the level is above them
	mapSizeMask = 1<<mapSizeBits - 1
	leafLevel   = 7  // at this level, no bits of the hash are left
	leafMax     = 32 // entries of a leaf above that level
	levelBits   = 5
	diffHead    = 1<<32 - 1
	branchHead  = 8  // head 4, bitmap 4
	leafHead    = 4  // then hashes
	diffLen     = 26 // head 4, hash 4, key, value, base
	pairLen     = 2 * recordIDLen

	// Writers merge a diff on a diff into one diff, or write a new map. Deeper diffs are damage.
	maxDiffs = 16
	// Names are at most a few hundred bytes in practice.
	maxName = 1 << 20
)

// mapIndex returns a bucket's number at a level. Java shifts modulo 32, so level 6 has the three
// top bits again, extended with the sign.
func mapIndex(hash uint32, level int) uint {
	shift := uint(32-levelBits*(level+1)) & 31
	return uint(int32(hash)>>shift) & 31
}

// A Map has the child nodes of a node by name, as record IDs.
type Map struct {
	r     *Reader
	top   mapRecord
	diffs []diff // the last written first
}

// An Entry is a name and the record that it refers to.
type Entry struct {
	Name  string
	Key   RecordID // where the name is stored
	Value RecordID
}

// mapRecord is a branch or a leaf. Its IDs and hashes have been checked to exist.
type mapRecord struct {
	Record
	size, level int
	bitmap      uint32 // of a branch, or 0
}

func (m mapRecord) branch() bool { return m.size > leafMax && m.level < leafLevel }

// A diff replaces the value of one name.
type diff struct {
	hash       uint32
	key, value RecordID
	near       *Segment
}

func (r *Reader) openMap(ctx context.Context, id RecordID, near *Segment) (Map, error) {
	m := Map{r: r}
	for {
		rec, err := r.typed(ctx, id, near, Leaf, Branch, 4, "map")
		if err != nil {
			return Map{}, err
		}
		if rec.u32(0) != diffHead {
			m.top, err = rec.mapRecord()
			return m, err
		}
		if len(m.diffs) == maxDiffs {
			return Map{}, rec.errorf(Limit, 0, "map: expected at most %d diffs on each other, found more", maxDiffs)
		}
		var d diff
		if d, id, err = rec.diff(); err != nil {
			return Map{}, err
		}
		m.diffs, near = append(m.diffs, d), rec.seg
	}
}

func (rec *Record) diff() (d diff, base RecordID, err error) {
	d.near = rec.seg
	if err = rec.need(0, diffLen, "map diff"); err == nil {
		d.hash = rec.u32(4)
		err = rec.ids(8, &d.key, &d.value, &base)
	}
	return d, base, err
}

// mapRecord reads the head of a leaf or branch. need has checked that it has 4 bytes.
func (rec *Record) mapRecord() (m mapRecord, err error) {
	head := rec.u32(0)
	if head == diffHead {
		return m, rec.errorf(Corrupt, 0, "map: expected a leaf or a branch, found a diff")
	}
	m = mapRecord{Record: *rec, size: int(head & mapSizeMask), level: int(head >> mapSizeBits)}
	if m.branch() {
		if err = rec.need(0, branchHead, "map branch"); err != nil {
			return m, err
		}
		m.bitmap = rec.u32(4)
		if m.bitmap == 0 {
			return m, rec.errorf(Corrupt, 4, "map branch: expected buckets, found none")
		}
		return m, rec.need(branchHead, recordIDLen*bits.OnesCount32(m.bitmap), "map branch")
	}
	if m.size > MaxSize/(4+pairLen) {
		return m, rec.errorf(Corrupt, 0, "map leaf: expected at most %d entries, found %d", MaxSize/(4+pairLen), m.size)
	}
	return m, rec.need(leafHead, (4+pairLen)*m.size, "map leaf")
}

func (m mapRecord) bucket(ctx context.Context, r *Reader, k int) (mapRecord, error) {
	id, err := m.id(branchHead + recordIDLen*k)
	if err != nil {
		return mapRecord{}, err
	}
	return r.bucket(ctx, id, m.seg, m.level, m.size)
}

// bucket opens a bucket of a branch. Levels only increase, so there can be no cycle.
func (r *Reader) bucket(ctx context.Context, id RecordID, near *Segment, level, size int) (mapRecord, error) {
	rec, err := r.typed(ctx, id, near, Leaf, Branch, 4, "map")
	if err != nil {
		return mapRecord{}, err
	}
	sub, err := rec.mapRecord()
	switch {
	case err != nil:
		return mapRecord{}, err
	case sub.branch() && sub.level <= level:
		return mapRecord{}, rec.errorf(Corrupt, 0, "map branch: expected a level above %d, found %d", level, sub.level)
	case sub.size > size:
		return mapRecord{}, rec.errorf(Corrupt, 0, "map: expected at most %d entries, found %d", size, sub.size)
	}
	return sub, nil
}

func (m mapRecord) hash(i int) uint32 { return m.u32(leafHead + 4*i) }

func (m mapRecord) pair(i int) (key, value RecordID, err error) {
	err = m.ids(leafHead+4*m.size+pairLen*i, &key, &value)
	return key, value, err
}

func (m Map) Len() int { return m.top.size }

func (r *Reader) isName(ctx context.Context, key RecordID, near *Segment, want string) (bool, error) {
	v, err := r.value(ctx, key, near)
	if err != nil {
		return false, err
	}
	if b, ok := v.h.inline(&v.rec); ok {
		return string(b) == want, nil
	}
	if v.Len() != int64(len(want)) || v.External() {
		return false, nil
	}
	b, err := v.whole(ctx)
	return string(b) == want, err
}

func (m Map) Get(ctx context.Context, name string) (value RecordID, ok bool, err error) {
	hash := mapHash(name)
	for _, d := range m.diffs {
		if d.hash != hash {
			continue
		}
		if ok, err := m.r.isName(ctx, d.key, d.near, name); err != nil || ok {
			return d.value, ok, err
		}
	}
	rec := m.top
	for rec.branch() {
		bit := uint32(1) << mapIndex(hash, rec.level)
		if rec.bitmap&bit == 0 {
			return RecordID{}, false, nil
		}
		if rec, err = rec.bucket(ctx, m.r, bits.OnesCount32(rec.bitmap&(bit-1))); err != nil {
			return RecordID{}, false, err
		}
	}
	for i := sort.Search(rec.size, func(i int) bool { return rec.hash(i) >= hash }); i < rec.size && rec.hash(i) == hash; i++ {
		key, value, err := rec.pair(i)
		if err != nil {
			return RecordID{}, false, err
		}
		if ok, err := m.r.isName(ctx, key, rec.seg, name); err != nil || ok {
			return value, ok, err
		}
	}
	return RecordID{}, false, nil
}

// All yields the entries of the map in the reference's order: by hash, then by name. A name or a
// bucket that cannot be read is an error in its place, and the others follow.
func (m Map) All(ctx context.Context) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		m.From(ctx, new(Place))(yield)
	}
}

// From resumes an earlier iteration over the map at the place at, which it keeps up to date. The
// iteration can be stopped and resumed again, even if no segment is in memory any more.
func (m Map) From(ctx context.Context, at *Place) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		w := walk{Map: m, ctx: ctx, yield: yield, at: at, from: *at, goesOn: at.begun}
		w.path, at.begun = w.store[:0], true
		w.record(m.top)
	}
}

// A Place is a position in an iteration over a map. The zero value is the beginning.
type Place struct {
	begun  bool
	depth  int // branches on the way
	branch [leafLevel + 1]placeInBranch
	leaf   int // entries of the leaf that were given; -1 if the bucket is not to be read
}

// A placeInBranch is the bucket of an iteration, and what it had read before that.
type placeInBranch struct {
	bucket  int
	left    int  // entries that this and the other buckets may have
	counted bool // the number is exact
}

// A walk iterates over a map. It keeps only its position.
type walk struct {
	Map
	ctx   context.Context
	yield func(Entry, error) bool
	path  []step // from the top to the record
	store [leafLevel + 1]step

	names []string // of diffs, once they are read

	at     *Place
	from   Place
	goesOn bool // it has not reached from yet
}

// A step is the bucket taken at a level.
type step struct {
	level int
	index uint
}

// record yields the entries of a record. It returns false if the walk is over.
func (w *walk) record(m mapRecord) bool {
	if !m.branch() {
		return w.leaf(m)
	}
	if err := w.ctx.Err(); err != nil {
		w.yield(Entry{}, err)
		return false
	}
	depth, k := len(w.path), -1
	here := placeInBranch{left: m.size, counted: true}
	if w.goesOn && depth < w.from.depth {
		here = w.from.branch[depth]
	}
	for rest := m.bitmap; rest != 0; rest &= rest - 1 {
		index := uint(bits.TrailingZeros32(rest))
		if k++; k < here.bucket {
			continue
		}
		here.bucket = k
		w.at.branch[depth], w.at.depth, w.at.leaf = here, depth+1, -1
		if w.goesOn && depth+1 == w.from.depth && w.from.leaf < 0 {
			w.goesOn, here.counted = false, false
			continue
		}
		sub, err := m.bucket(w.ctx, w.r, k)
		if err == nil && sub.size > here.left {
			err = sub.errorf(Corrupt, 0, "map: expected at most %d entries, found %d", here.left, sub.size)
		}
		if err != nil {
			here.counted = false
			if !w.yield(Entry{}, err) {
				return false
			}
			continue
		}
		here.left -= sub.size
		w.path = append(w.path[:depth], step{m.level, index})
		if !w.record(sub) {
			return false
		}
	}
	w.path, w.goesOn = w.path[:depth], false
	if here.counted && here.left > 0 {
		w.at.branch[depth], w.at.depth, w.at.leaf = placeInBranch{bucket: k + 1}, depth+1, -1
		return w.yield(Entry{}, m.errorf(Corrupt, 0, "map branch: expected %d entries, found %d", m.size, m.size-here.left))
	}
	return true
}

// suits returns the first step that contradicts a hash, or -1 if none does.
func (w *walk) suits(hash uint32) int {
	for i, s := range w.path {
		if mapIndex(hash, s.level) != s.index {
			return i
		}
	}
	return -1
}

func (w *walk) leaf(m mapRecord) bool {
	first := 0
	if w.goesOn {
		first, w.goesOn = w.from.leaf, false
	}
	w.at.depth = len(w.path)
	for i := max(first, 0); i < m.size; i++ {
		w.at.leaf = i + 1
		hash := m.hash(i)
		if bad := w.suits(hash); bad >= 0 {
			// A name in the wrong bucket cannot be found by name. An attacker could also make a
			// small map look endless by putting one leaf into many buckets.
			s := w.path[bad]
			w.at.leaf = m.size
			return w.yield(Entry{}, m.errorf(Corrupt, leafHead+4*i, "map leaf: expected hashes of bucket %d at level %d, found %#08x", s.index, s.level, hash))
		}
		if e, err := w.entry(m, i, hash); !w.yield(e, err) {
			return false
		}
	}
	return true
}

func (w *walk) entry(m mapRecord, i int, hash uint32) (e Entry, err error) {
	if e.Key, e.Value, err = m.pair(i); err != nil {
		return e, err
	}
	if e.Name, err = w.r.text(w.ctx, e.Key, m.seg, maxName); err != nil {
		return e, err
	}
	// The last written counts, which is the first.
	for k, d := range w.diffs {
		if d.hash != hash {
			continue
		}
		name := e.Name
		if d.key != e.Key {
			if name, err = w.diffName(k); err != nil {
				return e, err
			}
		}
		if name == e.Name {
			e.Value = d.value
			break
		}
	}
	return e, nil
}

// diffName reads the name of a diff, which is needed for few of a map's entries.
func (w *walk) diffName(k int) (string, error) {
	if w.names == nil {
		w.names = make([]string, len(w.diffs))
	}
	if w.names[k] == "" {
		d := w.diffs[k]
		name, err := w.r.text(w.ctx, d.key, d.near, maxName)
		if err != nil {
			return "", err
		}
		w.names[k] = name
	}
	return w.names[k], nil
}
