//go:build linux || darwin || freebsd

package mount

import (
	"encoding/binary"
	"math"
	"slices"
	"strings"
	"sync"
	"unsafe"

	"github.com/holdall/holdall"
	"github.com/holdall/holdall/format/kit/naming"
)

// node is what the kernel refers to by a number. It has only a name, because nothing else need be
// kept for a million files that were looked up once; names are kept in nodes.
type node struct {
	tree *tree  // nil for the folder that contains several archives
	name string // of the entry; for a hard link, that of its target
	ino  uint64
}

// link is a name by which a node was found.
type link struct {
	parent uint64
	name   string
}

type found struct {
	v *version
	e holdall.Entry
}

const rootIno = 1

// number returns the inode number for the name of an entry. It is the same each time the archive
// is mounted.
func (t *tree) number(name string) uint64 {
	if name == "." {
		return t.root
	}
	return mix(hash(t.salt, name))
}

// hash computes FNV-1a.
func hash(h uint64, s string) uint64 {
	for i := range len(s) {
		h = (h ^ uint64(s[i])) * 1099511628211
	}
	return h
}

const hashStart = 14695981039346656037

// mix spreads a hash over all bits, and avoids numbers with a special meaning.
func mix(h uint64) uint64 {
	h ^= h >> 33
	h *= 0xff51afd7ed558ccd
	h ^= h >> 33
	h *= 0xc4ceb9fe1a85ec53
	h ^= h >> 33
	if h <= rootIno || h == ^uint64(0) {
		h += 0x9e3779b97f4a7c15
	}
	return h
}

func folderOf(name string) string {
	i := strings.LastIndexByte(name, '/')
	if i < 0 || !naming.ValidPath(name) {
		return "."
	}
	return name[:i]
}

// nodes are the nodes that the kernel knows. There may be millions of them, so they take about 30
// bytes each, without pointers. The most recently used ones also have their entries.
type nodes struct {
	mu     sync.Mutex
	root   *node
	shards [1 << shardBits]shard
	dirs   folders
	links  map[uint64][]link // names other than the entry's own, for nodes that have any
	told   map[uint64]uint64 // how often the kernel was told of a node, if that is often

	recent map[uint64]*found
	ring   []uint64 // the numbers in recent
	next   int
}

const (
	shardBits = 8
	// mostRecent is the number of entries that are kept.
	mostRecent = 4096
)

func newNodes(root *node) nodes {
	return nodes{root: root, dirs: folders{ids: map[folder]uint32{}}, links: map[uint64][]link{}, told: map[uint64]uint64{}, recent: map[uint64]*found{}}
}

func (ns *nodes) shard(ino uint64) *shard { return &ns.shards[ino>>(64-shardBits)] }

// know returns the node of an entry that the kernel is about to learn by a name.
func (ns *nodes) know(t *tree, name string, by link) *node {
	ns.mu.Lock()
	defer ns.mu.Unlock()
	ino, rec := ns.numberOf(t, name)
	if ino == rootIno {
		return ns.root
	}
	if rec == nil {
		dir := folderOf(name)
		base := name
		if dir != "." {
			base = name[len(dir)+1:]
		}
		rec = ns.shard(ino).add(&ns.dirs, ino, ns.dirs.use(folder{t, dir}), base)
	}
	ns.setRefs(rec, ino, ns.refs(rec, ino)+1)
	if by.name != "" && !slices.Contains(ns.links[ino], by) {
		ns.links[ino] = append(ns.links[ino], by)
	}
	return &node{t, name, ino}
}

// refs returns how often the kernel was told of a node and did not forget it.
func (ns *nodes) refs(rec record, ino uint64) uint64 {
	if rec[0] == often {
		return ns.told[ino]
	}
	return uint64(rec[0])
}

func (ns *nodes) setRefs(rec record, ino, n uint64) {
	if rec[0] == often {
		delete(ns.told, ino)
	}
	if n >= often {
		ns.told[ino] = n
	}
	rec[0] = byte(min(n, often))
}

// numberOf returns the number of an entry, and its record. If two names have the same number, the
// later one gets another.
func (ns *nodes) numberOf(t *tree, name string) (uint64, record) {
	for ino := t.number(name); ; ino = mix(ino + 1) {
		if ino == rootIno {
			return ino, nil
		}
		rec := ns.shard(ino).find(&ns.dirs, ino)
		if rec == nil {
			return ino, nil
		}
		if dir, _, base, _ := rec.parts(); ns.dirs.all[dir].is(t, base, name) {
			return ino, rec
		}
	}
}

func (ns *nodes) get(ino uint64) *node {
	if ino == rootIno {
		return ns.root
	}
	ns.mu.Lock()
	defer ns.mu.Unlock()
	rec := ns.shard(ino).find(&ns.dirs, ino)
	if rec == nil {
		return nil
	}
	dir, _, base, _ := rec.parts()
	d := &ns.dirs.all[dir]
	return &node{d.tree, d.join(base), ino}
}

func (ns *nodes) forget(ino, times uint64) bool {
	ns.mu.Lock()
	defer ns.mu.Unlock()
	s := ns.shard(ino)
	rec := s.find(&ns.dirs, ino)
	if rec == nil {
		return false
	}
	left := ns.refs(rec, ino)
	left -= min(times, left)
	if ns.setRefs(rec, ino, left); left > 0 {
		return false
	}
	dir, _, _, _ := rec.parts()
	s.remove(&ns.dirs, ino)
	ns.dirs.done(dir)
	delete(ns.links, ino)
	delete(ns.recent, ino)
	return true
}

// recall returns the entry of a node if it was used recently, and nil otherwise.
func (ns *nodes) recall(n *node) *found {
	ns.mu.Lock()
	defer ns.mu.Unlock()
	return ns.recent[n.ino]
}

// remember keeps the entry of a node until others have been used, if its archive is still used.
func (ns *nodes) remember(n *node, f *found) {
	ns.mu.Lock()
	defer ns.mu.Unlock()
	if !f.v.isUsed() {
		return
	}
	if _, had := ns.recent[n.ino]; !had {
		if len(ns.ring) < mostRecent {
			ns.ring = append(ns.ring, n.ino)
		} else {
			delete(ns.recent, ns.ring[ns.next])
			ns.ring[ns.next] = n.ino
			ns.next = (ns.next + 1) % mostRecent
		}
	}
	ns.recent[n.ino] = f
}

// forgetEntries drops the entries of a tree that are kept. They refer to the archive that they
// are from.
func (ns *nodes) forgetEntries(t *tree) {
	ns.mu.Lock()
	defer ns.mu.Unlock()
	for ino, k := range ns.recent {
		if k != nil && k.v.tree == t {
			ns.recent[ino] = nil
		}
	}
}

// all returns what the kernel knows of a tree: the number of each node, and its names.
func (ns *nodes) all(t *tree) (inos []uint64, names []link) {
	ns.mu.Lock()
	defer ns.mu.Unlock()
	if ns.root.tree == t {
		inos = append(inos, rootIno)
	}
	for i := range ns.shards {
		for rec := range ns.shards[i].all() {
			dir, _, base, _ := rec.parts()
			d := ns.dirs.all[dir]
			if d.tree != t {
				continue
			}
			ino := ns.dirs.number(rec)
			inos = append(inos, ino)
			names = append(names, ns.links[ino]...)
			if name := d.join(base); name != "." {
				parent, _ := ns.numberOf(t, d.name)
				names = append(names, link{parent, shown(d.name, name)})
			}
		}
	}
	return inos, names
}

// folders are the folders of nodes, each stored once.
type folders struct {
	ids  map[folder]uint32
	all  []usedFolder
	free []uint32
}

type folder struct {
	tree *tree
	name string
}

type usedFolder struct {
	folder
	uses int
	hash uint64 // of what names in it begin with
}

// number returns the number of a node.
func (fs *folders) number(rec record) uint64 {
	dir, own, base, _ := rec.parts()
	if own != 0 {
		return own
	}
	return fs.all[dir].number(unsafe.String(unsafe.SliceData(base), len(base)))
}

// number returns the number that an entry of the folder has, if no other entry has it.
func (f *usedFolder) number(base string) uint64 {
	if f.name == "." && base == "." {
		return f.tree.root
	}
	return mix(hash(f.hash, base))
}

func (fs *folders) use(f folder) uint32 {
	id, ok := fs.ids[f]
	if !ok {
		f.name = strings.Clone(f.name) // it may be a part of a much longer string
		used := usedFolder{folder: f, hash: f.tree.salt}
		if f.name != "." {
			used.hash = hash(hash(used.hash, f.name), "/")
		}
		if n := len(fs.free); n > 0 {
			id, fs.free = fs.free[n-1], fs.free[:n-1]
			fs.all[id] = used
		} else {
			id = uint32(len(fs.all))
			fs.all = append(fs.all, used)
		}
		fs.ids[f] = id
	}
	fs.all[id].uses++
	return id
}

func (fs *folders) done(id uint32) {
	f := &fs.all[id]
	if f.uses--; f.uses == 0 {
		delete(fs.ids, f.folder)
		*f = usedFolder{}
		fs.free = append(fs.free, id)
	}
}

func (f *folder) join(base []byte) string {
	if f.name == "." {
		return string(base)
	}
	return f.name + "/" + string(base)
}

// is reports whether the entry base of a folder is called name.
func (f *folder) is(t *tree, base []byte, name string) bool {
	if f.tree != t {
		return false
	}
	if f.name != "." {
		dir, rest, ok := strings.Cut(name[min(len(f.name), len(name)):], "/")
		if !ok || dir != "" || !strings.HasPrefix(name, f.name) {
			return false
		}
		name = rest
	}
	return string(base) == name
}

// shard has the records of some nodes in one run of bytes, and a table of their offsets. Each slot has
// a tag, a part of the node's number, so that a search passes over most other nodes without reading them.
type shard struct {
	recs  []byte
	slots []uint32 // by number; the offset of a record
	tags  []byte   // of the slots
	used  int      // used slots, including those of removed records
	dead  int      // bytes of removed records
	live  int      // number of records
}

// record is how often the kernel was told of a node, its folder, the length of its name there, and
// that name. The number of the node follows from these. Only if another node had that number, it is
// stored, too.
type record []byte

const (
	often = math.MaxUint8 // nodes.told says how often

	noTag      = 0
	removedTag = 1
	tags       = 2 // the first of others
)

func tagOf(ino uint64) byte { return tags + byte(ino>>40%(math.MaxUint8-tags)) }

// parts returns the number of the folder, that of the node if it does not follow from its name, the
// name, and how long the record is.
func (r record) parts() (dir uint32, own uint64, base []byte, size int) {
	d, at := binary.Uvarint(r[1:])
	at++
	if d&1 == 1 {
		own = binary.LittleEndian.Uint64(r[at:])
		at += 8
	}
	n, k := binary.Uvarint(r[at:])
	at += k
	size = at + int(n)
	return uint32(d >> 1), own, r[at:size], size
}

// slot returns the slot of a node in the table, or the slot where it would be.
func (s *shard) slot(fs *folders, ino uint64) (at int, found bool) {
	free, tag := -1, tagOf(ino)
	for at = int(uint64(uint32(ino)) * uint64(len(s.slots)) >> 32); s.tags[at] != noTag; {
		switch s.tags[at] {
		case removedTag:
			if free < 0 {
				free = at
			}
		case tag:
			if fs.number(s.recs[s.slots[at]:]) == ino {
				return at, true
			}
		}
		if at++; at == len(s.slots) {
			at = 0
		}
	}
	if free >= 0 {
		at = free
	}
	return at, false
}

// find returns the record of a node, or nil. It is valid until records are added or removed.
func (s *shard) find(fs *folders, ino uint64) record {
	if s.live == 0 {
		return nil
	}
	at, ok := s.slot(fs, ino)
	if !ok {
		return nil
	}
	return s.recs[s.slots[at]:]
}

// add adds a node that does not exist yet.
func (s *shard) add(fs *folders, ino uint64, dir uint32, base string) record {
	if (s.used+1)*5 > len(s.slots)*4 {
		s.arrange(fs, s.live+s.live/2)
	}
	from := len(s.recs)
	if most := len(base) + 24; cap(s.recs)-from < most {
		s.recs = append(make([]byte, 0, from+max(most, from/8)), s.recs...)
	}
	if s.recs = append(s.recs, 0); fs.all[dir].number(base) == ino {
		s.recs = binary.AppendUvarint(s.recs, uint64(dir)<<1)
	} else {
		s.recs = binary.AppendUvarint(s.recs, uint64(dir)<<1|1)
		s.recs = binary.LittleEndian.AppendUint64(s.recs, ino)
	}
	s.recs = binary.AppendUvarint(s.recs, uint64(len(base)))
	s.recs = append(s.recs, base...)
	s.put(fs, ino, from)
	return s.recs[from:]
}

func (s *shard) put(fs *folders, ino uint64, from int) {
	at, _ := s.slot(fs, ino)
	if s.tags[at] == noTag {
		s.used++
	}
	s.slots[at], s.tags[at] = uint32(from), tagOf(ino)
	s.live++
}

func (s *shard) remove(fs *folders, ino uint64) {
	at, ok := s.slot(fs, ino)
	if !ok {
		return
	}
	s.tags[at] = removedTag
	_, _, _, size := record(s.recs[s.slots[at]:]).parts()
	s.live, s.dead = s.live-1, s.dead+size
	if s.dead > len(s.recs)/2 {
		s.arrange(fs, s.live+s.live/2)
	}
}

// arrange drops removed records, and makes room for the given number of records.
func (s *shard) arrange(fs *folders, room int) {
	old := *s
	n := max(16, room*5/4+1)
	*s = shard{recs: make([]byte, 0, len(old.recs)-old.dead+len(old.recs)/8), slots: make([]uint32, n), tags: make([]byte, n)}
	for rec := range old.all() {
		from := len(s.recs)
		_, _, _, size := rec.parts()
		s.recs = append(s.recs, rec[:size]...)
		s.put(fs, fs.number(rec), from)
	}
}

func (s *shard) all() func(func(record) bool) {
	return func(yield func(record) bool) {
		for at, tag := range s.tags {
			if tag >= tags && !yield(s.recs[s.slots[at]:]) {
				return
			}
		}
	}
}
