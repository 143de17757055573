//go:build linux || darwin || freebsd

package mount

import (
	"context"
	"errors"
	"iter"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/holdall/holdall"
	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/kit/naming"
)

// handles are the open files and folders, by number.
type handles struct {
	mu   sync.RWMutex
	m    map[uint64]handle
	last uint64
}

type handle interface{ Close() error }

func (hs *handles) add(h handle) uint64 {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	hs.last++
	hs.m[hs.last] = h
	return hs.last
}

func (hs *handles) get(n uint64) handle {
	hs.mu.RLock()
	defer hs.mu.RUnlock()
	return hs.m[n]
}

func (hs *handles) close(n uint64) {
	hs.mu.Lock()
	h := hs.m[n]
	delete(hs.m, n)
	hs.mu.Unlock()
	if h != nil {
		h.Close()
	}
}

// dir is a folder that is being listed. Entries are taken from the archive as the kernel requests
// them, page by page, and no page starts from the beginning.
type dir struct {
	n *node
	v *version // nil for the folder that contains several archives

	mu     sync.Mutex
	next   func() (holdall.Entry, error, bool)
	stop   func()
	cancel atomic.Pointer[context.CancelFunc]
	at     uint64 // number of the entry that next returns, or of kept
	kept   holdall.Entry
	keeps  bool
}

func (f *filesystem) OpenDir(cancel <-chan struct{}, in *fuse.OpenIn, out *fuse.OpenOut) fuse.Status {
	ctx, code := f.at(cancel, in.NodeId)
	if code != fuse.OK {
		return code
	}
	out.Fh = f.handles.add(&dir{n: ctx.n, v: ctx.v})
	ctx.v = nil // the listing uses it now
	ctx.end()
	out.OpenFlags = fuse.FOPEN_CACHE_DIR | fuse.FOPEN_KEEP_CACHE
	return fuse.OK
}

func (f *filesystem) ReleaseDir(in *fuse.ReleaseIn) { f.handles.close(in.Fh) }

func (d *dir) Close() error {
	d.mu.Lock()
	d.rewind()
	d.mu.Unlock()
	if d.v != nil {
		d.v.done()
	}
	return nil
}

func (d *dir) rewind() {
	if d.next != nil {
		(*d.cancel.Load())()
		d.stop()
		d.next, d.keeps, d.at = nil, false, 0
	}
}

// dots are the first two entries of every folder.
const dots = 2

// take returns the entry numbered at, which is valid until the next call. It returns nil if there
// are no more.
func (d *dir) take(f *filesystem, at uint64) (*holdall.Entry, error) {
	if d.next != nil && at < d.at {
		d.rewind()
	}
	if d.next == nil {
		ctx, cancel := context.WithCancel(f.ctx)
		d.cancel.Store(&cancel)
		d.at = dots
		d.next, d.stop = iter.Pull2(f.list(ctx, d))
	}
	for !d.keeps || d.at != at {
		if d.keeps {
			d.keeps, d.at = false, d.at+1
		}
		e, err, ok := d.next()
		if err != nil || !ok {
			if err != nil {
				d.rewind()
			}
			return nil, err
		}
		d.kept, d.keeps = e, true
	}
	return &d.kept, nil
}

func (f *filesystem) list(ctx context.Context, d *dir) iter.Seq2[holdall.Entry, error] {
	if d.v == nil {
		return func(yield func(holdall.Entry, error) bool) {
			for _, t := range f.trees {
				if !yield(holdall.Entry{Name: t.Name, Kind: format.Dir}, nil) {
					return
				}
			}
		}
	}
	if d.n.name != "." && !naming.ValidPath(d.n.name) {
		return func(func(holdall.Entry, error) bool) {} // its entries are listed in the root
	}
	return d.v.a.ReadDir(ctx, d.n.name)
}

// looks counts lookups of single files after they were listed. If there are many, listings
// contain attributes, so that the kernel need not look up each file: find -size then takes a
// sixth of the time. Otherwise listings contain names only, because attributes would double the
// time of a plain find. Folders do not count and are always listed with attributes, since every
// walk looks them up.
type looks struct {
	n     atomic.Int64
	since atomic.Int64 // the time when n was 0
	last  atomic.Int64 // the last time that there were many
}

const (
	manyLooks = 16
	looksTime = 2 * time.Second
)

func (l *looks) note() {
	now := time.Now().UnixNano()
	if now-l.since.Load() > int64(looksTime) {
		l.since.Store(now)
		l.n.Store(0)
	}
	if l.n.Add(1) >= manyLooks {
		l.last.Store(now)
	}
}

func (l *looks) many() bool { return time.Now().UnixNano()-l.last.Load() < int64(looksTime) }

func (f *filesystem) ReadDir(cancel <-chan struct{}, in *fuse.ReadIn, out *fuse.DirEntryList) fuse.Status {
	return f.readDir(cancel, in, out, false)
}

func (f *filesystem) ReadDirPlus(cancel <-chan struct{}, in *fuse.ReadIn, out *fuse.DirEntryList) fuse.Status {
	return f.readDir(cancel, in, out, true)
}

func (f *filesystem) readDir(cancel <-chan struct{}, in *fuse.ReadIn, out *fuse.DirEntryList, plus bool) fuse.Status {
	d, ok := f.handles.get(in.Fh).(*dir)
	if !ok {
		return fuse.EBADF
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.v != nil && !d.v.isCurrent() && in.Offset > 0 {
		return fuse.Status(syscall.ESTALE)
	}
	ctx := f.request(cancel)
	defer ctx.end()
	// Its entries may take long to arrive, and are still useful after this request.
	if d.v != nil && !d.v.a.IsNear() {
		stop := context.AfterFunc(ctx, func() {
			if c := d.cancel.Load(); c != nil {
				(*c)()
			}
		})
		defer stop()
	}
	many := plus && f.looks.many()
	add := func(name string, ino uint64, mode uint32, e *holdall.Entry, off uint64) bool {
		x := fuse.DirEntry{Name: name, Ino: ino, Mode: mode, Off: off}
		if !plus {
			return out.AddDirEntry(x)
		}
		room := out.AddDirLookupEntry(x)
		if room == nil {
			return false
		}
		if e == nil || e.Kind != format.Dir && !many {
			return true // node 0: no attributes
		}
		if d.v != nil {
			f.tell(ctx, d.v, d.n, name, *e, room)
		} else {
			_ = f.tellRoot(ctx, d.n, name, room) // without attributes, the kernel looks it up later
		}
		return true
	}
	for at := in.Offset; ; at++ {
		if at < dots {
			if !add([]string{".", ".."}[at], d.n.ino, syscall.S_IFDIR, nil, at+1) {
				return fuse.OK
			}
			continue
		}
		e, err := d.take(f, at)
		if errors.Is(err, context.Canceled) && ctx.Err() == nil {
			e, err = d.take(f, at) // the previous request was cancelled
		}
		if err != nil {
			if at > in.Offset {
				return fuse.OK // the next page returns the error
			}
			return f.gone(d.v, d.n, err)
		}
		if e == nil {
			return fuse.OK
		}
		name, ino, mode := e.Name, uint64(0), typeOf(e.Kind)
		if d.v != nil {
			name = shown(d.n.name, e.Name)
			if ino = d.v.tree.number(e.Name); e.Kind == format.HardLink {
				if to, err := follow(ctx, d.v.a, *e); err == nil {
					ino, mode = d.v.tree.number(to.Name), typeOf(to.Kind)
				}
			}
		}
		if !add(name, ino, mode, e, at+1) {
			return fuse.OK
		}
	}
}

func typeOf(k format.Kind) uint32 {
	switch k {
	case format.Dir:
		return syscall.S_IFDIR
	case format.Symlink:
		return syscall.S_IFLNK
	case format.Fifo:
		return syscall.S_IFIFO
	}
	return syscall.S_IFREG
}
