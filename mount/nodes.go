//go:build linux || darwin || freebsd

package mount

import (
	"encoding/binary"
	"math"
	"slices"
	"strings"
	"sync"

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

// nodes are the nodes that the kernel knows. There may be millions of them, so they take about 40
// bytes each, without pointers. The most recently used ones also have their entries.
type nodes struct {
	mu     sync.Mutex
	root   *node
	shards [1 << shardBits]shard
	dirs   folders
	links  map[uint64][]link // names other than the entry's own, for nodes that have any

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
	return nodes{root: root, dirs: folders{ids: map[folder]uint32{}}, links: map[uint64][]link{}, recent: map[uint64]*found{}}
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
		rec = ns.shard(ino).add(ino, ns.dirs.use(folder{t, dir}), base)
	}
	if n := rec.refs(); n < math.MaxUint32 { // at the maximum it is never forgotten
		rec.setRefs(n + 1)
	}
	if by.name != "" && !slices.Contains(ns.links[ino], by) {
		ns.links[ino] = append(ns.links[ino], by)
	}
	return &node{t, name, ino}
}

// numberOf returns the number of an entry, and its record. If two names have the same number, the
// later one gets another.
func (ns *nodes) numberOf(t *tree, name string) (uint64, record) {
	for ino := t.number(name); ; ino = mix(ino + 1) {
		if ino == rootIno {
			return ino, nil
		}
		rec := ns.shard(ino).find(ino)
		if rec == nil || ns.dirs.all[rec.dir()].is(t, rec.base(), name) {
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
	rec := ns.shard(ino).find(ino)
	if rec == nil {
		return nil
	}
	d := ns.dirs.all[rec.dir()]
	return &node{d.tree, d.join(rec.base()), ino}
}

func (ns *nodes) forget(ino, times uint64) bool {
	ns.mu.Lock()
	defer ns.mu.Unlock()
	s := ns.shard(ino)
	rec := s.find(ino)
	if rec == nil || rec.refs() == math.MaxUint32 {
		return false
	}
	left := rec.refs() - uint32(min(times, uint64(rec.refs())))
	if rec.setRefs(left); left > 0 {
		return false
	}
	ns.dirs.done(rec.dir())
	s.remove(ino)
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
			d := ns.dirs.all[rec.dir()]
			if d.tree != t {
				continue
			}
			inos = append(inos, rec.ino())
			names = append(names, ns.links[rec.ino()]...)
			if name := d.join(rec.base()); name != "." {
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
}

func (fs *folders) use(f folder) uint32 {
	id, ok := fs.ids[f]
	if !ok {
		f.name = strings.Clone(f.name) // it may be a part of a much longer string
		if n := len(fs.free); n > 0 {
			id, fs.free = fs.free[n-1], fs.free[:n-1]
			fs.all[id] = usedFolder{folder: f}
		} else {
			id = uint32(len(fs.all))
			fs.all = append(fs.all, usedFolder{folder: f})
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

// shard has the records of some nodes in one run of bytes, and a table of their offsets.
type shard struct {
	recs  []byte
	slots []uint32 // by number; the offset of a record plus 1
	used  int      // used slots, including those of removed records
	dead  int      // bytes of removed records
	live  int      // number of records
}

// record is the number of a node, how often the kernel was told of it, its folder, the length of
// its name there, and that name.
type record []byte

const (
	recordRefs  = 8
	recordDir   = 12
	recordName  = 16
	removedSlot = math.MaxUint32
)

func (r record) ino() uint64      { return binary.LittleEndian.Uint64(r) }
func (r record) refs() uint32     { return binary.LittleEndian.Uint32(r[recordRefs:]) }
func (r record) setRefs(n uint32) { binary.LittleEndian.PutUint32(r[recordRefs:], n) }
func (r record) dir() uint32      { return binary.LittleEndian.Uint32(r[recordDir:]) }

// bounds returns where the name begins, and where the name and the record end.
func (r record) bounds() (from, to int) {
	n, k := binary.Uvarint(r[recordName:])
	return recordName + k, recordName + k + int(n)
}

func (r record) base() []byte {
	from, to := r.bounds()
	return r[from:to]
}

// slot returns the slot of a node in the table, or the slot where it would be.
func (s *shard) slot(ino uint64) (at int, found bool) {
	mask := len(s.slots) - 1
	free := -1
	for at = int(ino) & mask; s.slots[at] != 0; at = (at + 1) & mask {
		if s.slots[at] == removedSlot {
			if free < 0 {
				free = at
			}
		} else if record(s.recs[s.slots[at]-1:]).ino() == ino {
			return at, true
		}
	}
	if free >= 0 {
		at = free
	}
	return at, false
}

// find returns the record of a node, or nil. It is valid until records are added or removed.
func (s *shard) find(ino uint64) record {
	if s.live == 0 {
		return nil
	}
	at, ok := s.slot(ino)
	if !ok {
		return nil
	}
	return s.recs[s.slots[at]-1:]
}

// add adds a node that does not exist yet.
func (s *shard) add(ino uint64, dir uint32, base string) record {
	if (s.used+1)*4 > len(s.slots)*3 {
		s.arrange(max(16, 2*s.live))
	}
	from := len(s.recs)
	s.put(ino, from)
	s.recs = binary.LittleEndian.AppendUint64(s.recs, ino)
	s.recs = binary.LittleEndian.AppendUint32(s.recs, 0)
	s.recs = binary.LittleEndian.AppendUint32(s.recs, dir)
	s.recs = binary.AppendUvarint(s.recs, uint64(len(base)))
	s.recs = append(s.recs, base...)
	return s.recs[from:]
}

func (s *shard) put(ino uint64, from int) {
	at, _ := s.slot(ino)
	if s.slots[at] == 0 {
		s.used++
	}
	s.slots[at] = uint32(from + 1)
	s.live++
}

func (s *shard) remove(ino uint64) {
	at, ok := s.slot(ino)
	if !ok {
		return
	}
	_, size := record(s.recs[s.slots[at]-1:]).bounds()
	s.slots[at] = removedSlot
	s.live, s.dead = s.live-1, s.dead+size
	if s.dead > len(s.recs)/2 {
		s.arrange(2 * s.live)
	}
}

// arrange drops removed records, and makes room for the given number of records.
func (s *shard) arrange(room int) {
	old := *s
	n := 0
	for n = 16; n*3 < room*4; n *= 2 {
	}
	*s = shard{recs: make([]byte, 0, len(old.recs)-old.dead+len(old.recs)/8), slots: make([]uint32, n)}
	for rec := range old.all() {
		_, size := rec.bounds()
		s.put(rec.ino(), len(s.recs))
		s.recs = append(s.recs, rec[:size]...)
	}
}

func (s *shard) all() func(func(record) bool) {
	return func(yield func(record) bool) {
		for _, from := range s.slots {
			if from != 0 && from != removedSlot && !yield(s.recs[from-1:]) {
				return
			}
		}
	}
}
