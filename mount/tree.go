//go:build linux || darwin || freebsd

package mount

import (
	"context"
	"errors"
	"io/fs"
	"path"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdall/holdall"
	"github.com/holdall/holdall/format"
)

// A tree is an archive that is mounted, in one version after the other.
type tree struct {
	Tree
	salt    uint64 // of its inode numbers
	root    uint64 // its own
	mu      sync.RWMutex
	cur     *version // nil once the mount has ended
	again   chan struct{}
	stale   atomic.Bool // it changed, and nobody can open it again
	lastSaw string      // version that was opened, as Tree.Version says; of the watcher
}

// A version is an archive that is open as long as somebody uses it.
type version struct {
	tree    *tree
	a       *holdall.Archive
	modTime time.Time // of entries that have none
	uses    atomic.Int64
	linked  func() map[string]uint32
}

func (t *tree) newVersion(ctx context.Context, a *holdall.Archive, mounted time.Time) *version {
	v := &version{tree: t, a: a, modTime: a.ModTime(ctx)}
	if v.modTime.IsZero() {
		v.modTime = mounted
	}
	v.uses.Store(1) // of the tree
	v.linked = sync.OnceValue(func() map[string]uint32 { return countLinks(ctx, a) })
	return v
}

// use returns the current version, for which done must be called.
func (t *tree) use() *version {
	t.mu.RLock()
	defer t.mu.RUnlock()
	if t.cur != nil {
		t.cur.uses.Add(1)
	}
	return t.cur
}

// isCurrent reports whether there is no newer version.
func (v *version) isCurrent() bool {
	v.tree.mu.RLock()
	defer v.tree.mu.RUnlock()
	return v.tree.cur == v
}

func (v *version) done() {
	if v.uses.Add(-1) == 0 {
		v.a.Close()
	}
}

// turn makes a the current version; nil ends all.
func (t *tree) turn(v *version) {
	t.mu.Lock()
	old := t.cur
	t.cur = v
	t.mu.Unlock()
	if old != nil {
		old.done()
	}
}

// countLinks returns how many names files have that have several. It goes through all
// entries, which only formats that have hard links are worth, and only on this machine:
// elsewhere each file has one name, and each other name of it says two.
func countLinks(ctx context.Context, a *holdall.Archive) map[string]uint32 {
	if a.Format().Keeps&format.KeepsHardLinks == 0 || !a.IsNear() {
		return nil
	}
	var links []holdall.Entry
	for e, err := range a.Entries(ctx) {
		if err != nil {
			break // whoever lists it will hear of it
		}
		if e.Kind == format.HardLink {
			links = append(links, holdall.Entry{Name: e.Name, Kind: e.Kind, Link: e.Link})
		}
	}
	n := map[string]uint32{}
	for _, e := range links {
		if e, err := follow(ctx, a, e); err == nil {
			n[e.Name] = max(n[e.Name], 1) + 1
		}
	}
	return n
}

// mostLinks is how many links are followed, one leading to the next.
const mostLinks = 40

var errLink = errors.New("a hard link that leads to no file")

// follow returns what a hard link is another name of.
func follow(ctx context.Context, a *holdall.Archive, e holdall.Entry) (holdall.Entry, error) {
	link := e
	for range mostLinks {
		if e.Kind != format.HardLink {
			break
		}
		next, err := a.Lookup(ctx, e.Link)
		if errors.Is(err, fs.ErrNotExist) {
			break
		}
		if err != nil {
			return link, err
		}
		e = next
	}
	if e.Kind == format.HardLink || e.Kind == format.Dir {
		return link, &fs.PathError{Op: "lookup", Path: link.Name, Err: errLink}
	}
	return e, nil
}

// A node is what the system knows by a number. It holds a name only: of a million files
// that were looked at once nothing else need be kept.
type node struct {
	tree *tree  // nil of the folder of several archives
	name string // of the entry; of a hard link that of what it leads to
	ino  uint64
	// found is the entry, of the nodes that were used last.
	found atomic.Pointer[found]
	// refs is how often the system was told of it; links are the names that it was told,
	// but for the entry's own. Both belong to nodes.
	refs  uint64
	links []link
}

// A link is a name that a node was found by.
type link struct {
	parent uint64
	name   string
}

type found struct {
	v *version
	e holdall.Entry
}

const rootIno = 1

// nodes are those that the system knows.
type nodes struct {
	mu     sync.Mutex
	m      map[uint64]*node
	recent []*node // that hold their entries, in a ring
	next   int
}

// mostRecent bounds the entries that are held.
const mostRecent = 4096

// number is what the name of an entry has as its inode number. It is the same whenever
// the archive is mounted.
func (t *tree) number(name string) uint64 {
	if name == "." {
		return t.root
	}
	return mix(hash(t.salt, name))
}

// hash is FNV-1a.
func hash(h uint64, s string) uint64 {
	for i := range len(s) {
		h = (h ^ uint64(s[i])) * 1099511628211
	}
	return h
}

const hashStart = 14695981039346656037

// mix spreads a hash over all bits, and leaves out the numbers that mean something else.
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

// know returns the node of an entry, of which the system is about to be told by a name.
func (ns *nodes) know(t *tree, name string, by link) *node {
	ns.mu.Lock()
	defer ns.mu.Unlock()
	n := ns.at(t, name)
	n.refs++
	if by.name != "" && !slices.Contains(n.links, by) {
		n.links = append(n.links, by)
	}
	return n
}

// at returns the node of an entry, new if need be.
func (ns *nodes) at(t *tree, name string) *node {
	ino := ns.numberOf(t, name)
	n := ns.m[ino]
	if n == nil {
		n = &node{tree: t, name: name, ino: ino}
		ns.m[ino] = n
	}
	return n
}

// numberOf is the number of an entry. Of two names with one number, the one that comes
// later gets another.
func (ns *nodes) numberOf(t *tree, name string) uint64 {
	for ino := t.number(name); ; ino = mix(ino + 1) {
		if n := ns.m[ino]; n == nil || n.tree == t && n.name == name {
			return ino
		}
	}
}

func (ns *nodes) get(ino uint64) *node {
	ns.mu.Lock()
	defer ns.mu.Unlock()
	return ns.m[ino]
}

// forget returns the node if the system does not know it any more.
func (ns *nodes) forget(ino, times uint64) *node {
	ns.mu.Lock()
	defer ns.mu.Unlock()
	n := ns.m[ino]
	if n == nil || ino == rootIno {
		return nil
	}
	if n.refs -= min(times, n.refs); n.refs > 0 {
		return nil
	}
	delete(ns.m, ino)
	return n
}

// remember keeps a node's entry until others have been used.
func (ns *nodes) remember(n *node, f *found) {
	had := n.found.Swap(f)
	if had != nil {
		return
	}
	ns.mu.Lock()
	defer ns.mu.Unlock()
	if len(ns.recent) < mostRecent {
		ns.recent = append(ns.recent, n)
		return
	}
	ns.recent[ns.next].found.Store(nil)
	ns.recent[ns.next] = n
	ns.next = (ns.next + 1) % mostRecent
}

// all returns what the system knows of a tree: the number of each node, and the names
// that it has.
func (ns *nodes) all(t *tree) (inos []uint64, names []link) {
	ns.mu.Lock()
	defer ns.mu.Unlock()
	for ino, n := range ns.m {
		if n.tree != t {
			continue
		}
		inos = append(inos, ino)
		names = append(names, n.links...)
		if n.name != "." {
			dir := folderOf(n.name)
			names = append(names, link{ns.numberOf(t, dir), shown(dir, n.name)})
		}
	}
	return inos, names
}

// folderOf returns the folder that an entry is listed in.
func folderOf(name string) string {
	if !format.ValidPath(name) || strings.IndexByte(name, '/') < 0 {
		return "."
	}
	return path.Dir(name)
}
