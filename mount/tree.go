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

// tree is a mounted archive in consecutive versions.
type tree struct {
	Tree
	name    string // the archive's name in messages
	near    bool   // the archive is on this machine
	salt    uint64 // of its inode numbers
	root    uint64 // inode number of its root
	mu      sync.RWMutex
	cur     *version // nil after the mount has ended
	again   chan struct{}
	stale   atomic.Bool // it has changed and cannot be opened again
	doubt   sync.Once   // the first file is logged in which damage would not be seen
	lastSaw string      // result of Tree.Version for the version that is open; only for the watcher
}

// version is an archive that stays open while it is in use.
type version struct {
	tree    *tree
	number  int // of the bytes; if they are opened in another way, it stays the same
	a       *holdall.Archive
	modTime time.Time // of entries without a time
	uses    atomic.Int64
	linked  func() map[string]uint32
}

func (t *tree) newVersion(ctx context.Context, a *holdall.Archive, mounted time.Time) *version {
	v := &version{tree: t, a: a, modTime: a.ModTime(ctx)}
	if v.modTime.IsZero() {
		v.modTime = mounted
	}
	v.uses.Store(1) // the use of the tree
	v.linked = sync.OnceValue(func() map[string]uint32 { return countLinks(ctx, a) })
	return v
}

// use returns the current version. The caller must call done.
func (t *tree) use() *version {
	t.mu.RLock()
	defer t.mu.RUnlock()
	if t.cur != nil {
		t.cur.uses.Add(1)
	}
	return t.cur
}

// isCurrent reports whether the archive has not changed since.
func (v *version) isCurrent() bool {
	v.tree.mu.RLock()
	defer v.tree.mu.RUnlock()
	return v.tree.cur != nil && v.tree.cur.number == v.number
}

func (v *version) done() {
	if v.uses.Add(-1) == 0 {
		v.a.Close()
	}
}

func (v *version) isUsed() bool {
	v.tree.mu.RLock()
	defer v.tree.mu.RUnlock()
	return v.tree.cur == v
}

// turn makes v the current version; nil ends the tree.
func (t *tree) turn(v *version) {
	t.mu.Lock()
	old := t.cur
	t.cur = v
	if v != nil && old != nil {
		v.number = old.number + 1
	}
	t.mu.Unlock()
	if old != nil {
		old.done()
	}
}

// replace makes a, which has the entries and bytes of old, take its place. It reports false if
// old is not current any more.
func (t *tree) replace(ctx context.Context, old *version, a *holdall.Archive) bool {
	v := t.newVersion(ctx, a, old.modTime)
	v.number = old.number
	t.mu.Lock()
	is := t.cur == old
	if is {
		t.cur = v
	}
	t.mu.Unlock()
	if is {
		old.done()
	} else {
		v.done()
	}
	return is
}

// countLinks returns the number of names of each file that has several. It iterates over all
// entries, which is only worth it for formats with hard links and for archives on this machine.
// Otherwise each file has one name, and each hard link reports two.
func countLinks(ctx context.Context, a *holdall.Archive) map[string]uint32 {
	if a.Format().Keeps&format.KeepsHardLinks == 0 || !a.IsNear() {
		return nil
	}
	var links []holdall.Entry
	for e, err := range a.Entries(ctx) {
		if err != nil {
			break // listing the archive reports the error
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

// mostLinks is the longest chain of links that is followed.
const mostLinks = 40

var errLink = errors.New("hard link without a target")

// follow returns the target of a hard link.
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
