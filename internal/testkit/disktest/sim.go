// Package disktest has a disk in memory, for tests of what is written to disks.
package disktest

import (
	"errors"
	"io"
	"io/fs"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"syscall"

	"github.com/holdall/holdall/internal/app/gateway/journal/disk"
)

// A Disk is a disk that can be killed between any two calls and in the middle of a write, lose
// its power, be full, and fail to sync.
type Disk struct {
	rng     *rand.Rand
	Names   map[string]*Inode // as programs see them
	durable map[string]*Inode // as they are after a power cut
	changes []func(names map[string]*Inode)
	locked  bool

	Calls   int   // that are left before it dies; negative means that it does not
	BadSync int   // syncs that are left before one fails; negative means none
	BadIO   int   // the same for writes
	Room    int64 // bytes that files may take in all
	Sparse  bool  // room is taken by writes, and not reserved
}

type Inode struct {
	mu      sync.Mutex // held by those that use View, while others may
	View    []byte
	disk    []byte
	changes []change // of view, that are not on the disk
	used    int64    // of the room
}

// A change is a write at an offset, or another size if it has no bytes.
type change struct {
	off   int64
	bytes []byte
}

var ErrDead = errors.New("the process is dead")

func New(rng *rand.Rand) *Disk {
	return &Disk{rng: rng, Names: map[string]*Inode{}, durable: map[string]*Inode{}, Calls: -1, BadSync: -1, BadIO: -1, Room: 1 << 20}
}

func (c change) on(b []byte) []byte {
	end := c.off + int64(len(c.bytes))
	if c.bytes == nil && end < int64(len(b)) {
		return b[:end:end]
	}
	if grow := end - int64(len(b)); grow > 0 {
		b = append(b, make([]byte, grow)...)
	}
	copy(b[c.off:], c.bytes)
	return b
}

// dead counts a call.
func (d *Disk) dead() bool {
	if d.Calls > 0 {
		d.Calls--
	}
	return d.Calls == 0
}

// bad counts down to a failure.
func bad(n *int) bool {
	if *n > 0 {
		*n--
	}
	if *n == 0 {
		*n = -1
		return true
	}
	return false
}

// some keeps any of the changes: all, a first part, sizes alone, or any sectors of any of them. A sector may be
// torn.
func (d *Disk) some(b []byte, all []change) []byte {
	how, keep := d.rng.IntN(5), d.rng.IntN(3)
	for i, c := range all {
		switch {
		case how == 0:
			b = c.on(b)
		case how == 1 && i < len(all)*keep/2:
			b = c.on(b)
		case how == 2 && d.rng.IntN(2) == 0:
			b = c.on(b)
		case how == 3 && c.bytes == nil && d.rng.IntN(2) == 0, how == 4 && c.bytes == nil:
			b = c.on(b)
		case how == 3 || how == 1 && i == len(all)*keep/2:
			for at := int64(0); at < int64(len(c.bytes)); {
				n := min(sector-(c.off+at)%sector, int64(len(c.bytes))-at)
				part := change{c.off + at, c.bytes[at : at+n]}
				if at += n; how == 1 {
					if d.rng.IntN(3) > 0 {
						b = part.on(b)
						continue
					}
					part.bytes = part.bytes[:d.rng.IntN(len(part.bytes)+1)]
					b = part.on(b)
					break
				}
				if d.rng.IntN(9) == 0 {
					part.bytes = part.bytes[:d.rng.IntN(len(part.bytes)+1)]
				}
				if d.rng.IntN(2) == 0 && len(part.bytes) > 0 {
					b = part.on(b)
				}
			}
		}
	}
	return b
}

// Restart is what the next process finds. After a power cut, that is what is on the disk.
func (d *Disk) Restart(powerCut bool) {
	if powerCut {
		seen := map[*Inode]bool{}
		names := maps.Clone(d.durable)
		how := d.rng.IntN(3)
		for _, change := range d.changes {
			if how == 0 || how == 1 && d.rng.IntN(2) == 0 {
				change(names)
			}
		}
		for _, name := range slices.Sorted(maps.Keys(names)) {
			if n := names[name]; !seen[n] {
				seen[n] = true
				n.disk = d.some(n.disk, n.changes)
				n.View, n.changes, n.used = slices.Clone(n.disk), nil, int64(len(n.disk))
			}
		}
		d.Names, d.durable, d.changes = names, maps.Clone(names), nil
	}
	d.locked, d.Calls, d.BadSync, d.BadIO = false, -1, -1, -1
}

// Reborn is Restart for the next process while the one before may still run: all that it does fails.
func (d *Disk) Reborn(powerCut bool) *Disk {
	next := *d
	d.Calls = 0
	next.Restart(powerCut)
	return &next
}

// Used is how much room files take.
func (d *Disk) Used() (n int64) {
	for _, x := range d.Names {
		n += x.used
	}
	return n
}

func (d *Disk) change(do func(names map[string]*Inode)) {
	do(d.Names)
	d.changes = append(d.changes, do)
}

func (d *Disk) Create(name string) (disk.File, error) {
	if d.dead() {
		return nil, ErrDead
	}
	if d.Used() >= d.Room {
		return nil, syscall.ENOSPC
	}
	n := &Inode{}
	d.change(func(names map[string]*Inode) { names[name] = n })
	return &file{d, n}, nil
}

func (d *Disk) Open(name string) (disk.File, error) {
	if d.dead() {
		return nil, ErrDead
	}
	if n := d.Names[name]; n != nil {
		return &file{d, n}, nil
	}
	return nil, fs.ErrNotExist
}

func (d *Disk) List() ([]string, error) {
	if d.dead() {
		return nil, ErrDead
	}
	return slices.Sorted(maps.Keys(d.Names)), nil
}

func (d *Disk) Rename(from, to string) error {
	if d.dead() {
		return ErrDead
	}
	n := d.Names[from]
	d.change(func(names map[string]*Inode) {
		delete(names, from)
		names[to] = n
	})
	return nil
}

func (d *Disk) Remove(name string) error {
	if d.dead() {
		return ErrDead
	}
	d.change(func(names map[string]*Inode) { delete(names, name) })
	return nil
}

func (d *Disk) Sync() error {
	if d.dead() {
		return ErrDead
	}
	if bad(&d.BadSync) {
		return syscall.EIO
	}
	d.durable, d.changes = maps.Clone(d.Names), nil
	return nil
}

func (d *Disk) Lock() (io.Closer, error) {
	if d.locked {
		return nil, &disk.LockedError{}
	}
	d.locked = true
	return unlock{d}, nil
}

// sector is what may be torn, and is written before or after others.
const sector = 512

type unlock struct{ d *Disk }

func (u unlock) Close() error {
	u.d.locked = false
	return nil
}

type file struct {
	d *Disk
	n *Inode
}

func (f *file) ReadAt(p []byte, off int64) (int, error) {
	if f.d.Calls == 0 {
		return 0, ErrDead
	}
	f.n.mu.Lock()
	defer f.n.mu.Unlock()
	n := copy(p, f.n.View[min(off, int64(len(f.n.View))):])
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

func (f *file) apply(c change) {
	f.n.mu.Lock()
	defer f.n.mu.Unlock()
	f.n.View = c.on(f.n.View)
	f.n.changes = append(f.n.changes, c)
}

func (f *file) WriteAt(p []byte, off int64) (n int, err error) {
	n = len(p)
	if f.d.Calls == 0 {
		return 0, ErrDead
	}
	if f.d.dead() {
		n, err = f.d.rng.IntN(len(p)+1), ErrDead
	} else if bad(&f.d.BadIO) {
		n, err = f.d.rng.IntN(len(p)+1), syscall.EIO
	}
	if room := f.d.Room - f.d.Used() + f.n.used - off; int64(n) > room && off+int64(n) > f.n.used {
		n, err = int(max(0, room, f.n.used-off)), syscall.ENOSPC
	}
	if n > 0 {
		f.apply(change{off, slices.Clone(p[:n])})
		f.n.used = max(f.n.used, off+int64(n))
	}
	return n, err
}

func (f *file) Size() (int64, error) {
	if f.d.dead() {
		return 0, ErrDead
	}
	return int64(len(f.n.View)), nil
}

func (f *file) Allocate(size int64) error {
	if f.d.dead() {
		return ErrDead
	}
	if size <= int64(len(f.n.View)) {
		return nil
	}
	var err error
	if all := f.d.Room - f.d.Used() + f.n.used; size > all && !f.d.Sparse {
		err = syscall.ENOSPC
		if size = all / sector * sector; size <= int64(len(f.n.View)) || f.d.rng.IntN(2) == 0 {
			return err
		}
	}
	if f.apply(change{off: size}); !f.d.Sparse {
		f.n.used = size
	}
	return err
}

func (f *file) Truncate(size int64) error {
	if f.d.dead() {
		return ErrDead
	}
	f.apply(change{off: size})
	f.n.used = min(f.n.used, size)
	return nil
}

func (f *file) Datasync() error {
	if f.d.dead() {
		return ErrDead
	}
	if bad(&f.d.BadSync) {
		// The kernel has dropped what it could not write: nobody will write it later.
		f.n.disk, f.n.changes = f.d.some(f.n.disk, f.n.changes), nil
		return syscall.EIO
	}
	for _, c := range f.n.changes {
		f.n.disk = c.on(f.n.disk)
	}
	f.n.changes = nil
	return nil
}

func (f *file) Sync() error  { return f.Datasync() }
func (f *file) Close() error { return nil }
