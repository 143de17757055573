// Package blocks is a cache on a disk for objects of stores on a network. All processes of a machine
// may share it. It holds blocks of versions of objects; docs/bytes/cache.md describes its files.
//
// Only what has the lock of the table changes anything, and only for as long as it takes to write a block.
// Readers take no lock: checksums show whether a slot and its block are whole. So whatever happens to the
// files, a block is right or missing. If something fails, objects are read as without a cache.
package blocks

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storekit"
)

// A Cache is a folder on a disk with blocks of objects that were read over a network.
type Cache struct {
	Dir string
	// Size is the total size of its files, in bytes, at least 16 MiB. 0 means that of the cache that is there,
	// and 10 GiB for a new one. A cache of another size is emptied.
	Size int64
}

// A Usage is what a cache holds.
type Usage struct {
	Path   string `json:"path"`
	Blocks int64  `json:"blocks"`
	Size   int64  `json:"size"` // of all files
	Limit  int64  `json:"limit"`
}

// Check returns why the cache cannot be used.
func (c *Cache) Check(ctx context.Context) error {
	_, err := open(ctx, c.Dir, c.Size)
	return err
}

// Usage returns what the cache holds.
func (c *Cache) Usage(ctx context.Context) (u Usage, err error) {
	f, err := open(ctx, c.Dir, c.Size)
	if err != nil {
		return u, err
	}
	h, err := f.head()
	if err != nil {
		return u, err
	}
	u = Usage{Path: f.dir, Limit: h.limit}
	slots := io.NewSectionReader(f.table, slotsAt, h.size()-slotsAt)
	for b := make([]byte, bucket); err == nil; {
		if _, err = io.ReadFull(slots, b); err == nil {
			for o := 0; o < bucket; o += record {
				if _, ok := h.parseSlot(b[o:][:record]); ok {
					u.Blocks++
				}
			}
		}
	}
	if err != io.EOF {
		return u, err
	}
	u.Size, err = f.sweep(func(uint32) bool { return true })
	u.Size += h.size()
	return u, err
}

// Clear removes all blocks. It returns what there was.
func (c *Cache) Clear(ctx context.Context) (u Usage, err error) {
	if u, err = c.Usage(ctx); err != nil {
		return u, err
	}
	f, err := open(ctx, c.Dir, c.Size)
	if err != nil {
		return u, err
	}
	unlock, err := f.lockTable(ctx)
	if err != nil {
		return u, err
	}
	defer unlock()
	_, err = f.make(u.Limit)
	return u, err
}

// Wrap returns st with blocks of its objects in c. If c is nil, or objects of st cannot be told from all
// others, it returns st. For a layer, the blocks hold the stored bytes, so encrypted data stays encrypted on the disk.
func Wrap(st store.Store, c *Cache) store.Store {
	can := st.Can()
	if can.Over != nil && c != nil {
		return can.Over(Wrap(can.Below, c), nil)
	}
	if c == nil || can.Near || can.Identity == nil {
		return st
	}
	return &cached{st, c}
}

type cached struct {
	store.Store
	c *Cache
}

// Can returns the abilities of reading.
func (s *cached) Can() store.Abilities {
	can := s.Store.Can()
	var openAs func(context.Context, store.Info) (store.Object, error)
	if can.OpenAs != nil {
		openAs = s.openAs
	}
	return store.Abilities{OpenAs: openAs, Address: can.Address, List: can.List, ListFrom: can.ListFrom, ListHeaders: can.ListHeaders, Level: can.Level, OpenGrowing: can.OpenGrowing, Locked: can.Locked}
}

func (s *cached) Open(ctx context.Context, name string) (store.Object, error) {
	o, err := s.Store.Open(ctx, name)
	return s.object(ctx, o, name, false, err)
}

// openAs opens a version that is known, so not even its first read needs a request.
func (s *cached) openAs(ctx context.Context, info store.Info) (store.Object, error) {
	o, err := s.Store.Can().OpenAs(ctx, info)
	return s.object(ctx, o, info.Name, true, err)
}

func (s *cached) object(ctx context.Context, in store.Object, name string, heard bool, err error) (store.Object, error) {
	if err != nil {
		return nil, err
	}
	f, err := open(ctx, s.c.Dir, s.c.Size)
	if err != nil {
		return in, nil
	}
	o := &object{Object: in, f: f, identity: s.Store.Can().Identity(name)}
	o.heard.Store(heard)
	return o, nil
}

// An object is read by blocks as soon as its version is known. The first read asks the store, whose
// answer contains the version.
type object struct {
	store.Object
	f        *files
	identity string
	heard    atomic.Bool
}

func (o *object) Can() store.ObjectAbilities {
	return store.ObjectAbilities{ReadEnd: o.readEnd, Inner: o.Object}
}

func (o *object) Info(ctx context.Context) (store.Info, error) {
	info, err := o.Object.Info(ctx)
	if err == nil {
		o.heard.Store(true)
	}
	return info, err
}

func (o *object) readEnd(ctx context.Context, p []byte, tail bool) (n int, err error) {
	if o.heard.Load() {
		info, err := o.Object.Info(ctx)
		if err != nil {
			return 0, err
		}
		n, off := min(int64(len(p)), info.Size), int64(0)
		if tail {
			off = info.Size - n
		}
		return int(n), o.ReadAt(ctx, p[:n], off)
	}
	read := storekit.ReadHead
	if tail {
		read = storekit.ReadTail
	}
	if n, err = read(ctx, o.Object, p); err == nil {
		o.heard.Store(true)
	}
	return n, err
}

func (o *object) ReadAt(ctx context.Context, p []byte, off int64) error {
	if !o.heard.Load() {
		err := o.Object.ReadAt(ctx, p, off)
		if err == nil && len(p) > 0 {
			o.heard.Store(true)
		}
		return err
	}
	info, err := o.Object.Info(ctx)
	// A version that is not an ETag is a date, which two versions may share.
	if err != nil || !strings.HasPrefix(info.Version, `"`) || len(p) == 0 || off < 0 || off > info.Size-int64(len(p)) {
		return o.Object.ReadAt(ctx, p, off)
	}
	for len(p) > 0 {
		n := off / block
		k, from, end := o.block(info, n)
		part := p[:min(int64(len(p)), end-off)]
		if !o.f.read(k, part, off-from, end-from) {
			release, waited, err := o.f.hold(ctx, k, true)
			if err != nil {
				return err
			}
			release = sync.OnceFunc(release)
			if !o.f.read(k, part, off-from, end-from) { // another reader may have fetched it
				if waited {
					release() // that reader failed, and so may this one: the others need not wait for it too
				}
				var run []byte
				run, err = o.fetch(ctx, info, n, off+int64(len(p)))
				part = p[:copy(p, run[min(off-from, int64(len(run))):])]
			}
			if release(); err != nil {
				return err
			}
		}
		p, off = p[len(part):], off+int64(len(part))
	}
	return nil
}

// block returns the key of block n, and where it begins and ends.
func (o *object) block(info store.Info, n int64) (k key, from, end int64) {
	return sha256.Sum256(fmt.Appendf(nil, "%s\x00%d\x00%d\x00%s", info.Version, info.Size, n, o.identity)), n * block, min((n+1)*block, info.Size)
}

// mostRun is the number of blocks that are fetched by one request.
const mostRun = 17 // 4 MiB anywhere

// fetch fetches block n, which the caller holds, and those after it that are needed up to an offset and that
// nobody has or fetches. It waits for none of them, so readers cannot wait for each other.
func (o *object) fetch(ctx context.Context, info store.Info, n, to int64) ([]byte, error) {
	first, from, end := o.block(info, n)
	keys := []key{first}
	for end < to && len(keys) < mostRun {
		k, _, next := o.block(info, n+int64(len(keys)))
		release, _, err := o.f.hold(ctx, k, false)
		if release == nil {
			if err != nil {
				return nil, err
			}
			break
		}
		defer release()
		if _, found := o.f.find(k); found {
			break
		}
		keys, end = append(keys, k), next
	}
	p := make([]byte, end-from)
	if err := o.Object.ReadAt(ctx, p, from); err != nil {
		return nil, err
	}
	for i, k := range keys {
		o.f.write(ctx, k, p[i*block:min((i+1)*block, len(p))])
	}
	return p, nil
}
