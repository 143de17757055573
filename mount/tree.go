//go:build linux || darwin || freebsd

package mount

import (
	"context"
	"errors"
	"io/fs"
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

var errLink = errors.New("hard link without a target")

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
